"""Coupled equations: a forward equation that depends on Y and Z, rewritten as an uncoupled problem."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from .problem import Problem, Real, State


def coupled(
    problem: Problem, drift: Callable | None = None, diffusion: Callable | None = None
) -> Problem:
    """Return the problem with a drift that depends on Y and Z, or another diffusion, in uncoupled form.

    The decoupling field u of dX = c(t, X, Y, Z) dt + a(t, X, Y) dW, -dY = f dt - Z dW solves

        u_t + c . grad u + tr(a a' Hess u) / 2 + f = 0,   Z = a' grad u,

    which is the equation of the problem's drift b and diffusion s with the driver

        f + (c - b) . grad u + tr((a a' - s s') Hess u) / 2.

    Paths therefore keep b and s, and an exact `step` stays exact. The closer b and s are to c and a, the better
    the paths cover the solution. Another diffusion gives a driver that reads Gamma. Pardoux, Tang, Probability
    Theory and Related Fields 114 (1999).

    Args:
        problem: The problem of one contract, with an invertible diffusion.
        drift: c(t, x, y, z), of shape [dim]; None for that of the problem.
        diffusion: a(t, x, y), a number, a vector or a matrix, as in `Problem`; None for that of the problem.

    Returns:
        The uncoupled problem with the same u.

    Raises:
        ValueError: The problem has many contracts, each of which would need its own paths.

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
            f"contracts of shape {problem.contracts}: a forward equation that reads Y has "
            f"different paths for each; couple one at a time."
        )
    functions = (None if f is None else Partial(f) for f in (drift, diffusion))
    driver = Partial(_coupled_driver, problem, *functions)
    return problem.replace(driver=driver, reads_gamma=problem.reads_gamma or diffusion is not None)


def _coupled_driver(
    problem: Problem,
    drift: Callable | None,
    diffusion: Callable | None,
    t: Real,
    x: State,
    y: Array,
    z: Array,
    *gamma: Array,
) -> Float[Array, ""]:
    """Return f with the additional terms of drift and diffusion."""
    gradient, more = problem.gradient_of(t, x, z), 0.0
    if diffusion is not None:
        a = diffusion(t, x, y)
        square = a @ a.T if jnp.ndim(a) == 2 else jnp.diag(jnp.broadcast_to(a, x.shape) ** 2)
        more = 0.5 * jnp.sum((square - problem.covariance(t, x)) * gamma[0])
        z = gradient @ a if jnp.ndim(a) == 2 else gradient * a
    if drift is not None:
        more = more + (drift(t, x, y, z) - problem.drift(t, x)) @ gradient
    own = gamma if problem.reads_gamma else ()
    return problem.driver(t, x, y, z, *own) + more
