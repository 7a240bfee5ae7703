"""The form of a driver: whether it is affine, discounts, reads one contract alone, or Gamma's diagonal alone.

A driver is any function, so its form is told by a look: at the dates and states of some paths, with random y, z
and Gamma of the payoff's size.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit

from .problem import Problem, Real, State
from .simulation import simulate

_PATHS = 8
_ROUNDING = 1e-4  # of f, in single precision
_LEAST = 64.0  # multiples of a rounding error, of a derivative

Missed = tuple[Array, Array]  # what f has beyond a form, and f


def is_affine(problem: Problem) -> bool:
    """Return whether f is affine in y and z; not where it reads Gamma."""
    return not problem.reads_gamma and _has(problem, _bend)


def discounts(problem: Problem) -> bool:
    """Return whether f is -r(t, x) y with one rate for all contracts; not where it reads Gamma."""
    return not problem.reads_gamma and _has(problem, _beside_discounting)


def is_of_each(problem: Problem) -> bool:
    """Return whether the driver of each contract reads that contract's own y, z and Gamma alone."""
    return not problem.contracts or _has(problem, _of_others)


def reads_diagonal(problem: Problem) -> bool:
    """Return whether f reads nothing of Gamma but its diagonal."""
    return _has(problem, _off_diagonal, _LEAST * float(jnp.finfo(problem.x0.dtype).eps))


def _bend(f: Callable, x: State, y: Array, z: Array) -> Missed:
    del x
    return f(y, z) + f(-y, -z) - 2.0 * f(0.0 * y, 0.0 * z), f(y, z)


def _beside_discounting(f: Callable, x: State, y: Array, z: Array) -> Missed:
    del x
    rate = f(jnp.ones_like(y), 0.0 * z)[0]
    return f(y, z) - rate * y, f(y, z)


def _of_others(f: Callable, x: State, *at: Array) -> Missed:
    """By derivatives along y, z and Gamma, and along multiples of them, another for each contract."""
    count = at[0].size
    weights = 1.0 + jnp.arange(count, dtype=x.dtype) / count
    weighted = tuple(a * weights.reshape(-1, *(1,) * (a.ndim - 1)) for a in at)
    along = lambda direction: jax.jvp(f, at, direction)[1]  # noqa: E731
    own = along(at)
    return along(weighted) - weights * own, own


def _off_diagonal(f: Callable, x: State, y: Array, z: Array, gamma: Array) -> Missed:
    slopes = jax.grad(lambda gamma: jnp.sum(f(y, z, gamma)))(gamma)
    off = ~jnp.eye(x.size, dtype=bool)[None]
    return jnp.where(off, slopes, jnp.zeros_like(slopes)), slopes


def _has(problem: Problem, missed: Callable[..., Missed], share: float = _ROUNDING) -> bool:
    """Return whether f has a form: what it has beyond that is a small share of f."""
    return bool(_is_small(problem, missed, jnp.asarray(share, problem.x0.dtype)))


@stored_jit
def _is_small(problem: Problem, missed: Callable[..., Missed], share: Real) -> Bool[Array, ""]:
    paths, numbers = jax.random.split(jax.random.key(0))
    states = jnp.swapaxes(simulate(problem, _PATHS, key=paths).states, 0, 1)[:, :-1]  # by path
    count, dim = math.prod(problem.contracts), problem.dim
    width = 1 + dim + (dim**2 if problem.reads_gamma else 0)
    size = 1.0 + jnp.max(jnp.abs(problem.terminal(problem.x0)))
    probes = size * jax.random.normal(numbers, (_PATHS, count, width), problem.x0.dtype)

    def on_path(given: tuple[Array, Array]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        states, probe = given
        y, z, gamma = probe[:, 0], probe[:, 1 : 1 + dim], probe[:, 1 + dim :]
        at = (y, z, gamma.reshape(count, dim, dim)) if problem.reads_gamma else (y, z)

        def on_date(t, x):
            return missed(lambda *at: problem.flat_driver(t, x, *at), x, *at)

        more, whole = jax.vmap(on_date)(problem.times[:-1], states)
        return jnp.max(jnp.abs(more)), jnp.max(jnp.abs(whole))

    more, whole = jax.lax.map(on_path, (states, probes))
    return jnp.max(more) <= share * jnp.max(whole)
