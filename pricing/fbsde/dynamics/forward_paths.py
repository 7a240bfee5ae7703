"""Paths of the forward equation, standardizers of their states, and further steps from them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from jaxtape import stored_jit

from ...numerics.standardizer import Standardizer, deviation
from ...sampling import normals, uniforms
from ..path_shares import (
    PathShare,
    in_device_order,
    in_first_order,
    on_axis,
    per_device,
)
from ..problem import Problem

_FEW_PATHS = 64  # paths that determine the scales of coordinates
_EXACT = 1e-3  # tolerance of one step against two, relative to the move of a step


class Paths(NamedTuple):
    """The states at all dates, and the Brownian increments of the steps between them."""

    states: Float[Array, "dates paths dim"]
    increments: Float[Array, "steps paths dim"]


def simulate(
    problem: Problem,
    num_paths: int,
    *,
    key: PRNGKeyArray,
    initial_dispersion: float | None = None,
    spread: float = 1.0,
    mesh: Mesh | None = None,
) -> Paths:
    """Simulate independent paths of the forward equation.

    Args:
        problem: The problem whose states are simulated.
        num_paths: The number of paths.
        key: The key of the random numbers.
        initial_dispersion: If None, all paths start at x0. Otherwise they start at the problem's `start`, or at
            x0 dispersed by today's equation over this fraction of the maturity. From x0, coordinates are
            dispersed without correlation, so that a regression can separate their slopes.
        spread: A factor of the increments, above 1 for more paths in the tails.
        mesh: The devices that share the paths (axis "paths"); the paths do not depend on it, in the order of
            `path_shares`.

    Returns:
        The states and the increments of all paths.
    """
    paths_first, paths_second = on_axis(0), on_axis(1)
    begin = eqx.Partial(_begun, problem, num_paths, initial_dispersion, key)
    start, noise = per_device(begin, mesh, (), (paths_first, paths_second))()
    if initial_dispersion and problem.start is None:
        # shift coordinate i by i / dim of all paths
        start = in_first_order(start, mesh)
        shifts = [i * num_paths // problem.dim for i in range(problem.dim)]
        shifted = [jnp.roll(start[:, i], shift) for i, shift in enumerate(shifts)]
        start = in_device_order(jnp.stack(shifted, axis=1), mesh)
    walk = eqx.Partial(_walked, problem, num_paths, key)
    specs = (paths_first, paths_second), Paths(paths_second, paths_second)
    return per_device(walk, mesh, *specs)(start, spread * noise)


def simulate_share(
    problem: Problem, num_paths: int, share: PathShare, *, key: PRNGKeyArray
) -> Paths:
    """Simulate a share of the independent paths from x0."""
    return _walked(problem, num_paths, key, share, *_begun(problem, num_paths, None, key, share))


def _begun(
    problem: Problem,
    num_paths: int,
    initial_dispersion: float | None,
    key: PRNGKeyArray,
    share: PathShare,
) -> tuple[Float[Array, "paths dim"], Float[Array, "dates paths dim"]]:
    """Return the unshifted starts of a share of the paths, and the noise of their steps."""
    shape = problem.num_steps + 1, num_paths, problem.dim
    noise = normals(key, shape, problem.x0.dtype, part=share.part)
    start = jnp.broadcast_to(problem.x0, noise.shape[1:])
    own_start = None if initial_dispersion is None else problem.start
    if own_start is not None:
        row = 1, *shape[1:]
        uniform = uniforms(key, row, problem.x0.dtype, first_row=len(noise), part=share.part)
        start = jax.vmap(own_start)(uniform[0])
    if initial_dispersion:
        before = initial_dispersion * problem.maturity
        today = lambda x, dw: problem.advance(problem.times[0], x, dw, before)
        start = jax.vmap(today)(start, jnp.sqrt(before) * noise[0])
    return start, noise[1:]


def _walked(
    problem: Problem,
    num_paths: int,
    key: PRNGKeyArray,
    share: PathShare,
    start: Float[Array, "paths dim"],
    noise: Float[Array, "steps paths dim"],
) -> Paths:
    """Return a share of the paths from their starts."""
    increments = jnp.sqrt(problem.dt) * noise

    def advance(x, of_step):
        date, dw = of_step
        x = jax.vmap(problem.advance, (None, 0, 0))(problem.times[date], x, dw)
        jumps = problem.draw_jumps(jax.random.fold_in(key, date), (num_paths,), share)
        x = jax.vmap(problem.jumped)(x, jumps)
        return x, x

    _, later = jax.lax.scan(advance, start, (jnp.arange(problem.num_steps), increments))
    return Paths(jnp.concatenate([start[None], later]), increments)


@stored_jit
def sampled_states(
    problem: Problem, num_paths: int, *, key: PRNGKeyArray
) -> Float[Array, "dates paths dim"]:
    """Return the states of some paths, with one program for all problems that differ only in numbers."""
    return simulate(problem, num_paths, key=key).states


def coordinate_scales(problem: Problem, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale of each coordinate, and whether it stays positive on some paths, like a price.

    The scale of prices is x0; that of other coordinates, their standard deviation at maturity.
    """
    states = np.asarray(sampled_states(problem, _FEW_PATHS, key=key))
    is_positive = np.all(states > 0.0, axis=(0, 1))
    return np.where(is_positive, states[0, 0], np.std(states[-1], axis=0)), is_positive


def has_exact_steps(problem: Problem) -> bool:
    """Return True if one step to maturity has the law of two half steps.

    It has if both move sample noise to the same states, or if they are affine and have the same mean and
    covariance.
    """
    gaps = _gaps_of_one_step(problem)
    return bool(gaps.of_paths <= _EXACT) or bool(gaps.of_law <= _EXACT)


class _Gaps(NamedTuple):
    """Differences between one step and two half steps, relative to the move: of paths, and of affine laws."""

    of_paths: Float[Array, ""]
    of_law: Float[Array, ""]


@stored_jit(runs_briefly=True)
def _gaps_of_one_step(problem: Problem) -> _Gaps:
    half, t, x = 0.5 * problem.maturity, problem.times[0], problem.x0
    noise = jax.random.normal(jax.random.key(0), (8, 2, problem.dim), x.dtype)
    still = jnp.zeros_like(x)
    first = lambda x, dw: problem.advance(t, x, dw, half)
    second = lambda x, dw: problem.advance(half, x, dw, half)
    whole = lambda dw: problem.advance(t, x, dw, problem.maturity)
    both = lambda dw: second(first(x, dw[0]), dw[1])
    dw = jnp.sqrt(half) * noise
    once, twice = jax.vmap(lambda dw: whole(dw[0] + dw[1]))(dw), jax.vmap(both)(dw)
    largest = lambda array: jnp.max(jnp.abs(array))
    move = largest(once - x[None])

    of_whole, of_both = jax.jacfwd(whole)(still), jax.jacfwd(both)(jnp.zeros_like(dw[0]))
    ends = whole(still), both(jnp.zeros_like(dw[0]))
    affine = [
        end[None] + jnp.einsum("ijk,pjk->pi", slopes.reshape(x.size, -1, x.size), noise)
        for end, slopes, noise in (
            (ends[0], of_whole, dw.sum(1, keepdims=True)),
            (ends[1], of_both, dw),
        )
    ]
    bent = jnp.maximum(largest(once - affine[0]), largest(twice - affine[1]))
    covariance = jnp.einsum("ijk,ljk->il", of_both, of_both) - 2.0 * of_whole @ of_whole.T
    of_law = bent / move + largest(ends[0] - ends[1]) / move + half * largest(covariance) / move**2
    return _Gaps(largest(once - twice) / move, of_law)


def over_blocks(function: Callable[[PRNGKeyArray], PyTree], num_blocks: int, key: PRNGKeyArray):
    """Return arrays [..., paths], concatenated from blocks of paths with separate keys."""
    of_block = lambda index: function(jax.random.fold_in(key, index))
    together = lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)
    return jax.tree.map(together, jax.lax.map(of_block, jnp.arange(num_blocks)))


def survival(
    problem: Problem, states: Float[Array, "dates paths dim"]
) -> Bool[Array, "dates paths"]:
    """Return True for each path and date if the path has not been stopped by then."""
    if problem.is_alive is None:
        return jnp.ones(states.shape[:2], bool)
    at_dates = jax.vmap(jax.vmap(problem.is_alive, (None, 0)))(problem.times, states)
    lives = at_dates | ~problem.is_stopping_date[:, None]
    return jnp.cumprod(lives, axis=0, dtype=jnp.int32).astype(bool)


def standardizer_by_date(states: Float[Array, "dates paths dim"]) -> Standardizer:
    """Fit mean and standard deviation of every coordinate by date; x0 has that of the first step."""
    found = Standardizer.by_coordinate(jnp.swapaxes(states, 1, 2))
    return Standardizer(found.mean, found.whitening.at[0].set(found.whitening[1]))


class AntitheticSteps(NamedTuple):
    """Steps from each of many states along antithetic increments.

    Half the sum over a pair determines the mean, half the difference the slope, without noise from each other.
    A path that is alive has weight 1, otherwise 0.
    """

    starts: Float[Array, "paths dim"]
    weights: Float[Array, " paths"]
    increments: Float[Array, "paths pairs dim"]
    ends: Float[Array, "2 paths pairs dim"]


class PathPool(NamedTuple):
    """The paths from which every date draws its batches.

    They are drawn once and stored, [dates, paths, dim] numbers: new paths at every iteration would need all
    steps from today, and the values at the ends of steps, computed once per date, would be needed for every
    batch. Increments are not stored: each date draws its own.
    """

    states: Float[Array, "dates paths dim"]
    alive: Bool[Array, "dates paths"]
    standardizer: Standardizer
    scale: Float[Array, " contracts"]  # the standard deviation of the payoff

    @classmethod
    def draw(
        cls, problem: Problem, num_paths: int, mesh: Mesh | None, *, key: PRNGKeyArray
    ) -> "PathPool":
        states = simulate(problem, num_paths, key=key, mesh=mesh).states
        scale = deviation(jax.vmap(problem.terminal)(states[-1]).reshape(num_paths, -1).T)
        return cls(states, survival(problem, states), standardizer_by_date(states), scale)


def over_steps(function: Callable) -> Callable:
    """Map a function of one state over arrays [2, paths, pairs, ...]."""
    return jax.vmap(jax.vmap(jax.vmap(function)))
