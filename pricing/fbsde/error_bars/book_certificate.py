"""Value, Delta and Gamma of thousands of contracts on the same fresh paths, by Hermite moments of a step."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import ndtri, stdtrit

from jaxtape import stored_jit

from ...regression.polynomials import hermite_polynomials
from ...sampling import normals
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.ridge_functions import discount_factors
from ..solution import Solution
from ..solvers.projection_pursuit import RidgeExpansion, figures_of

_NUMBERS = 2**19  # entries of an array of contracts by paths, in memory at once
_FEWEST_BLOCKS = 64  # their means give the standard errors


class BookFigures(NamedTuple):
    """Means and standard errors of value, Delta and Gamma, and of the value less the solution's own."""

    means: tuple[Array, Array, Array]
    std_errors: tuple[Array, Array, Array]
    missed: Array


def book_figures(
    solution: Solution,
    key: PRNGKeyArray,
    num_paths: int,
    quantities: Float[Array, " contracts"] | None,
) -> BookFigures:
    """Return the figures of every contract of a `ProjectionPursuit`, or of a portfolio of them.

    A path's cash flow by the solution's rule, less its martingale, is multiplied by the Hermite polynomials of
    the first step's normals: the solution's own such moments are known, and the rest are means over fresh
    paths, whose first steps are opposite pairs. Derivatives are combinations of these moments. Blocks of paths
    are independent, and their means show the noise; with few blocks Student's law widens it.
    """
    contracts = math.prod(solution.problem.contracts)
    pairs = max(1, min(num_paths // (2 * _FEWEST_BLOCKS), _NUMBERS // (2 * contracts)))
    blocks = max(2, -(-num_paths // (2 * pairs)))
    wider = float(stdtrit(blocks - 1, 0.975) / ndtri(0.975))
    dtype = solution.problem.x0.dtype
    return _figures(
        solution, quantities, jnp.asarray(blocks), jnp.asarray(wider, dtype), key, pairs=pairs
    )


@stored_jit(quick_to_compile=True)
def _figures(
    solution: Solution,
    quantities: Array | None,
    blocks: Int[Array, ""],
    wider: Array,
    key: PRNGKeyArray,
    *,
    pairs: int,
) -> BookFigures:
    problem, found = solution.problem, solution.approximation
    assert isinstance(found, RidgeExpansion)
    floor = exercise_floor(problem)

    def figures(moments: Array) -> tuple[Array, Array, Array]:
        if quantities is not None:
            moments = (quantities @ moments)[None]
        return figures_of(problem, moments @ found.weights)

    def add(index, sums: tuple[Any, Any]):
        moments = _moments(solution, floor, pairs, jax.random.fold_in(key, index))
        of_block = figures(moments)
        squares = jax.tree.map(jnp.square, of_block)
        return jax.tree.map(jnp.add, sums, (of_block, squares))

    own = figures(found.moments())
    zero = jax.tree.map(jnp.zeros_like, own)
    first, second = jax.lax.fori_loop(0, blocks, add, (zero, zero))
    count = blocks.astype(wider.dtype)
    rest = jax.tree.map(lambda a: a / count, first)
    variance = lambda square, mean: jnp.maximum(square / count - mean**2, 0.0) / (count - 1.0)
    errors = jax.tree.map(lambda a, b: wider * jnp.sqrt(variance(a, b)), second, rest)
    shape = problem.contracts if quantities is None else ()
    shaped = lambda figures: tuple(a.reshape(*shape, *a.shape[1:]) for a in figures)
    means = jax.tree.map(jnp.add, own, rest)
    return BookFigures(shaped(means), shaped(errors), rest[0].reshape(shape))


def _moments(
    solution: Solution, floor: Array, pairs: int, key: PRNGKeyArray
) -> Float[Array, "contracts functions"]:
    """Return the Hermite moments of what the fit of today leaves, over a block of opposite pairs."""
    problem, found = solution.problem, solution.approximation
    assert isinstance(found, RidgeExpansion)
    noise = normals(key, (problem.num_steps, pairs, problem.dim), problem.x0.dtype)
    noise = jnp.swapaxes(noise, 1, 2)
    signs = jnp.where(jnp.arange(problem.num_steps) == 0, -1.0, 1.0).astype(noise.dtype)
    noise = jnp.concatenate([noise, signs[:, None, None] * noise], axis=2)
    start = jnp.broadcast_to(problem.x0[:, None], noise.shape[1:])
    dates = jnp.arange(problem.num_steps)

    def step(x, of_step):
        date, xi = of_step
        t, dw = problem.times[date], jnp.sqrt(problem.dt) * xi
        after = jax.vmap(problem.advance, (None, -1, -1), -1)(t, x, dw)
        return after, (x, discount_factors(problem, t, x, after))

    end, (states, discounts) = jax.lax.scan(step, start, (dates, noise))
    paid = jax.vmap(problem.terminal, -1, -1)(end)
    earned = paid.reshape(-1, paid.shape[-1])

    def back(earned, of_date):
        date, x, xi, discount = of_date
        fit = jax.tree.map(lambda rows: rows[date], found.fits)
        value, martingale = fit.both(found.coordinates.at(date)(x), xi)
        earned = discount[None] * earned - martingale
        if problem.exercise_value is None:
            return earned, None
        pays = jax.vmap(problem.exercise_value, (None, -1), -1)(problem.times[date], x)
        is_open = (date > 0) & jnp.asarray(problem.is_exercise_date)[date]
        pays = pays.reshape(earned.shape)
        exercised = is_open & (pays > jnp.maximum(value, floor[:, None]))
        return jnp.where(exercised, pays, earned), None

    steps = dates, states, noise, discounts
    later = jax.tree.map(lambda a: a[1:], steps)
    earned, _ = jax.lax.scan(back, earned, later, reverse=True)
    fit = jax.tree.map(lambda rows: rows[0], found.fits)
    value, martingale = fit.both(found.coordinates.at(0)(start), noise[0])
    rest = discounts[0][None] * earned - value - martingale
    return rest @ hermite_polynomials(noise[0], 2).T / rest.shape[1]
