"""Multilevel Picard iteration: an independent check of a solution."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ...sampling import normals, uniforms
from ..dynamics.forward_paths import has_exact_steps
from ..functions import with_traced_functions
from ..problem import Problem, reads_z
from .certificate import Estimate

Values = Float[Array, "contracts points"]


@full_matmul_precision
def multilevel_picard(
    problem: Problem, *, key: PRNGKeyArray, levels: int = 4, samples: int = 4, repeats: int = 64
) -> Estimate:
    """Estimate today's value without basis functions, networks or a time grid, in any dimension.

    The equation is u(t, x) = E[g(X_T) + integral of f(s, X_s, u) ds]. The n-th iterate is estimated by

        mean of g(X_T) + sum over l < n of (T - t) mean of f(R, X_R, U_l) - f(R, X_R, U_{l-1}),

    with samples**n paths, samples**(n - l) uniform times R, and independent iterates U_l at each. It serves to
    check solvers: it has no discretization or approximation error, only that of its last iterate, which shows
    when the number of levels is changed. E, Hutzenthaler, Jentzen, Kruse, J. Scientific Computing 79 (2019).

    Args:
        problem: The equation: a driver of y, states with exact steps over any time (an exact `step`, or
            constant drift and diffusion), and no exercise, stops or jumps.
        key: Key of all random numbers.
        levels: The number n of iterations.
        samples: The base of the number of samples, samples**n at level n.
        repeats: The number of independent estimates, whose mean and standard error are returned.

    Returns:
        The value of every contract, and its standard error.

    Raises:
        TypeError: The problem has a feature that this method cannot handle.
        ValueError: A number is too small.

    Examples:
        >>> import jax
        >>> from pricing.fbsde import multilevel_picard, problems
        >>> found = multilevel_picard(problems.allen_cahn(10), key=jax.random.key(0), levels=2, repeats=8)
        >>> found.mean.shape
        ()
    """
    for name, number, least in (
        ("levels", levels, 1),
        ("samples", samples, 1),
        ("repeats", repeats, 2),
    ):
        if number < least:
            raise ValueError(f"{name}={number}: give {least} or more.")
    if reason := _unsupported(problem):
        raise TypeError(f"multilevel_picard does not solve this problem. It has {reason}.")
    found = _estimates(with_traced_functions(problem), levels, samples, repeats, key=key)
    mean, error = jnp.mean(found, axis=0), jnp.std(found, axis=0, ddof=1) / repeats**0.5
    return Estimate(mean.reshape(problem.contracts), error.reshape(problem.contracts))


def _unsupported(problem: Problem) -> str | None:
    """Return the features of the problem that this method cannot handle, in words; None if it can."""
    solvers = "GradientRegression and GridQuadrature solve it"
    if problem.exercise_dates or problem.stopping_dates:
        return f"early exercise, switches or stopped paths: {solvers}"
    if problem.jumps is not None or problem.reads_gamma:
        return f"jumps, or a driver that reads Gamma: {solvers}"
    if reads_z(problem):
        return f"a driver that reads z: {solvers}"
    if not has_exact_steps(problem):
        return f"states without exact steps: {solvers}"
    return None


@stored_jit
def _estimates(
    problem: Problem, levels: int, samples: int, repeats: int, *, key: PRNGKeyArray
) -> Float[Array, "repeats contracts"]:
    keys = jax.random.split(key, repeats)
    t, x = jnp.zeros(1, problem.x0.dtype), problem.x0[None]
    return jax.lax.map(lambda key: _iterate(problem, levels, samples, t, x, key)[:, 0], keys)


def _iterate(
    problem: Problem,
    level: int,
    samples: int,
    t: Float[Array, " points"],
    x: Float[Array, "points dim"],
    key: PRNGKeyArray,
) -> Values:
    """Return independent estimates of the iterate of a level at points (t, x)."""
    count = len(jnp.ravel(problem.terminal(problem.x0)))
    if level == 0:
        return jnp.zeros((count, len(t)), t.dtype)
    at_end, *of_levels = jax.random.split(key, level + 1)
    _, ends = _moved(problem, t, x, jnp.ones((samples**level, len(t)), t.dtype), at_end)
    paid = jax.vmap(lambda x: jnp.ravel(problem.terminal(x)), 0, -1)(ends)
    value = jnp.mean(paid.reshape(count, -1, len(t)), axis=1)
    for lower, key_of in enumerate(of_levels):
        at, here, before, now = jax.random.split(key_of, 4)
        number = samples ** (level - lower)
        share = uniforms(at, (number, len(t)), t.dtype)
        when, where = _moved(problem, t, x, share, here)

        def driver(lower, key, when=when, where=where):
            y = _iterate(problem, lower, samples, when, where, key)
            z = jnp.zeros((count, problem.dim), y.dtype)
            f = lambda t, x, y: problem.flat_driver(t, x, y, z)
            return jax.vmap(f, (0, 0, -1), -1)(when, where, y)

        gain = driver(lower, now)
        if lower > 0:
            gain = gain - driver(lower - 1, before)
        mean = jnp.mean(gain.reshape(count, number, len(t)), axis=1)
        value = value + (problem.maturity - t)[None] * mean
    return value


def _moved(problem: Problem, t, x, share: Float[Array, "number points"], key) -> tuple[Any, Any]:
    """Return times (a fraction `share` of the time to maturity) and states there, `number` per point."""
    left = (problem.maturity - t)[None] * share
    noise = normals(key, (*share.shape, problem.dim), x.dtype) * jnp.sqrt(left)[..., None]
    over_points = jax.vmap(problem.advance, (0, 0, 0, 0))
    ends = jax.vmap(over_points, (None, None, 0, 0))(t, x, noise, left)
    return (t[None] + left).reshape(-1), ends.reshape(-1, problem.dim)
