"""A driver that reads Gamma: what it adds to the variance of the state."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .problem import Problem

_MOST_ADDED = (
    2.0  # multiples of the paths' own variance: schemes that take f at known values are stable
)
_ROUNDING = 1e-3


def added_variance(problem: Problem, gamma: Array) -> Float[Array, "contracts dim"]:
    """Return what f adds to the variance today, by direction, in multiples of the paths' own.

    With small changes of Gamma f changes as if s s' were s s' + 2 f_Gamma: these are the eigenvalues of
    2 f_Gamma in the directions of s.
    """
    t, x0, dim = problem.times[0], problem.x0, problem.dim
    y = jnp.ravel(problem.terminal(x0))
    z = jnp.zeros((y.size, dim), x0.dtype)
    many = jnp.broadcast_to(gamma, (y.size, dim, dim))
    slopes = jax.jacrev(lambda gamma: problem.flat_driver(t, x0, y, z, gamma))(many)
    own = jnp.moveaxis(jnp.diagonal(slopes, axis1=0, axis2=1), -1, 0)
    inverse = jax.vmap(lambda row: problem.gradient_of(t, x0, row))  # of s', times a matrix' rows
    turned = jax.vmap(lambda a: inverse(inverse(0.5 * (a + a.T)).T))(own)
    return 2.0 * jnp.linalg.eigvalsh(turned)


def unstable(problem: Problem) -> str | None:
    """Return why a step that takes f at known values is not stable, in words; None where it is.

    By a look at today's state, where u bends one way, and the other.
    """
    if not problem.reads_gamma:
        return None
    t, x0 = problem.times[0], problem.x0
    bends = jnp.linalg.inv(problem.covariance(t, x0)) * (
        1.0 + jnp.max(jnp.abs(problem.terminal(x0)))
    )
    added = np.stack([np.asarray(added_variance(problem, sign * bends)) for sign in (1.0, -1.0)])
    low, high = added.min(), added.max()
    if low >= -1.0 - _ROUNDING and high <= _MOST_ADDED + _ROUNDING:
        return None
    return (
        f"a driver that makes the variance of the state {1.0 + low:.2g} to {1.0 + high:.2g} times that of its "
        "paths, where 0 to 3 are stable: give the problem another diffusion, and its driver the difference"
    )
