"""A forward equation whose drift reads Y and Z, as a problem whose forward equation does not."""

from collections.abc import Callable

import equinox as eqx
from jax.tree_util import Partial
from jaxtyping import Array, Float

from .problem import Problem, Real, State


def coupled(problem: Problem, drift: Callable) -> Problem:
    """Return the equation of a problem with another drift, which reads Y and Z.

    The decoupling field u of dX = c(t, X, Y, Z) dt + s dW, -dY = f dt - Z dW solves

        u_t + c . grad u + tr(s s' Hess u) / 2 + f = 0,

    which is that of the problem's own drift b and the driver f + (c - b) . grad u. So paths keep the drift b,
    any solver solves it, and an exact `step` of b stays exact. The nearer b is to c, the better paths lie.
    Pardoux, Tang, Probability Theory and Related Fields 114 (1999).

    Args:
        problem: The problem of one contract, whose diffusion has an inverse.
        drift: c(t, x, y, z), of shape [dim].

    Returns:
        The problem without coupling, of the same u.

    Raises:
        ValueError: The problem has many contracts: each would have paths of its own.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Problem, coupled
        >>> still = Problem(1, 1.0, 0.0, drift=lambda t, x: 0.0 * x, diffusion=lambda t, x: 1.0,
        ...     driver=lambda t, x, y, z: 0.0 * y, terminal=lambda x: jnp.tanh(x[0]), num_steps=4)
        >>> burgers = coupled(still, lambda t, x, y, z: y + 0.0 * x)
        >>> float(burgers.driver(0.0, still.x0, 0.5, jnp.ones(1)))
        0.5
    """
    if problem.contracts:
        raise ValueError(
            f"contracts of shape {problem.contracts}: a drift that reads Y has other paths for each; couple "
            "one at a time."
        )
    driver = Partial(_coupled_driver, problem, Partial(drift))
    return eqx.tree_at(lambda p: p.driver, problem, driver)


def _coupled_driver(
    problem: Problem, drift: Callable, t: Real, x: State, y: Array, z: Array
) -> Float[Array, ""]:
    """Return f + (c - b) . grad u."""
    more = drift(t, x, y, z) - problem.drift(t, x)
    return problem.driver(t, x, y, z) + more @ problem.gradient_of(t, x, z)
