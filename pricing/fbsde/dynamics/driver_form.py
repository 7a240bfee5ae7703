"""The form of a driver: whether it is affine, discounts, reads one contract alone, or Gamma's diagonal alone.

A driver is arbitrary code, so its form is tested at sample points: the dates and states of some paths, with
random y, z and Gamma, of the payoff's size and down to a thousandth of it. Points where f is not finite do not
count.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxtape import stored_jit

from ..problem import Problem, Real, State
from .simulation import simulate

_PATHS = 8
_ROUNDING = 1e-4  # of f, in single precision
_LEAST = 64.0  # multiples of a rounding error, of a derivative
_SMALLEST = 1e-3  # of the payoff's size

Missed = tuple[Array, Array]  # deviation of f from a form, and its scale: [kinds, ...]


def is_affine(problem: Problem) -> bool:
    """Return True if f is affine in y and z; False where it reads Gamma."""
    return not problem.reads_gamma and _has(problem, _bend)


def discounts(problem: Problem) -> bool:
    """Return True if f is -r(t, x) y with one rate for all contracts; False where it reads Gamma."""
    return not problem.reads_gamma and _has(problem, _beside_discounting)


def is_of_each(problem: Problem) -> bool:
    """Return True if the driver of each contract reads that contract's own y, z and Gamma alone."""
    return not problem.contracts or _has(problem, _of_others)


def reads_diagonal(problem: Problem) -> bool:
    """Return True if f reads nothing of Gamma but its diagonal."""
    return _has(problem, _off_diagonal, _LEAST * float(jnp.finfo(problem.x0.dtype).eps))


def _bend(f: Callable, x: State, y: Array, z: Array) -> Missed:
    """Return the deviation from being affine: f(y) + 2 f(-y / 2) - 3 f(0) vanishes if f is."""
    del x
    values = f(y, z), 2.0 * f(-0.5 * y, -0.5 * z), -3.0 * f(0.0 * y, 0.0 * z)
    stacked = jnp.stack(values)
    return jnp.sum(stacked, axis=0)[None], jnp.sum(jnp.abs(stacked), axis=0)[None]


def _beside_discounting(f: Callable, x: State, y: Array, z: Array) -> Missed:
    del x
    found, discounted = f(y, z), f(jnp.ones_like(y), 0.0 * z)[0] * y
    return (found - discounted)[None], (jnp.abs(found) + jnp.abs(discounted))[None]


def _of_others(f: Callable, x: State, *at: Array) -> Missed:
    """By derivatives along each of y, z and Gamma, and along multiples of it, another for each contract."""
    weights = 1.0 + jnp.arange(at[0].size, dtype=x.dtype) / at[0].size

    def along(place, direction):
        rest = [jnp.zeros_like(a) for a in at]
        return jax.jvp(f, at, (*rest[:place], direction, *rest[place + 1 :]))[1]

    own = [along(place, a) for place, a in enumerate(at)]
    weighted = [
        along(place, a * weights.reshape(-1, *(1,) * (a.ndim - 1))) for place, a in enumerate(at)
    ]
    return jnp.stack(weighted) - weights[None] * jnp.stack(own), jnp.stack(own)


def _off_diagonal(f: Callable, x: State, y: Array, z: Array, gamma: Array) -> Missed:
    slopes = jax.grad(lambda gamma: jnp.sum(f(y, z, gamma)))(gamma)
    off = ~jnp.eye(x.size, dtype=bool)[None]
    return jnp.where(off, slopes, jnp.zeros_like(slopes))[None], slopes[None]


def _has(problem: Problem, missed: Callable[..., Missed], share: float = _ROUNDING) -> bool:
    """Return True if f has a form: its deviation from it is a small fraction of f, at every point."""
    return bool(_is_small(problem, missed, jnp.asarray(share, problem.x0.dtype)))


@stored_jit
def _is_small(problem: Problem, missed: Callable[..., Missed], share: Real) -> Bool[Array, ""]:
    paths, numbers = jax.random.split(jax.random.key(0))
    states = jnp.swapaxes(simulate(problem, _PATHS, key=paths).states, 0, 1)[:, :-1]  # by path
    count, dim = math.prod(problem.contracts), problem.dim
    width = 1 + dim + (dim**2 if problem.reads_gamma else 0)
    size = 1.0 + jnp.max(jnp.abs(problem.terminal(problem.x0)))
    sizes = size * jnp.geomspace(1.0, _SMALLEST, _PATHS, dtype=size.dtype)
    probes = jax.random.normal(numbers, (_PATHS, count, width), problem.x0.dtype)

    def on_path(given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        states, size, probe = given
        y, z, gamma = jnp.split(size * probe, (1, 1 + dim), axis=1)
        at = (y[:, 0], z, gamma.reshape(count, dim, dim)) if problem.reads_gamma else (y[:, 0], z)

        def on_date(t, x):
            more, whole = missed(lambda *at: problem.flat_driver(t, x, *at), x, *at)
            most = lambda a: jnp.max(jnp.abs(a).reshape(len(a), -1), axis=1)  # noqa: E731
            return most(more), most(whole)

        return jax.vmap(on_date)(problem.times[:-1], states)

    more, whole = jax.lax.map(on_path, (states, sizes, probes))
    is_told = jnp.isfinite(more) & jnp.isfinite(whole)
    return jnp.any(is_told) & jnp.all(~is_told | (more <= share * whole))
