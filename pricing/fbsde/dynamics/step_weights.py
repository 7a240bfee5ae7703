"""The weights of the first step's density as polynomials of its noise, for Hermite moments."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...regression.polynomials import hermite_polynomials
from ..problem import Problem
from .step_density import NoiseForm, StepDensity, noise_form

_PROBES = 2  # points per polynomial
_ROUNDING = 2e3  # in rounding errors of a weight


def polynomial_weights(problem: Problem) -> Float[np.ndarray, "functions figures"] | None:
    """Return the weights of the first step as Hermite polynomials of its normals, of degree 2.

    None if they do not have degree 2.

    With c_f = E[V(X_1) h_f(xi)], the value E[V(X_1)], its gradient and its Hessian in x0, flattened, are c @
    weights. The weights are polynomials of degree 2 if a function of each coordinate has a Gaussian step
    shifted by its state, like prices under Black-Scholes and Gaussian factors.
    """
    form, dim = noise_form(problem), problem.dim
    count = math.comb(dim + 2, 2)
    xi = jax.random.normal(jax.random.key(1), (dim, _PROBES * count), problem.x0.dtype)
    found = np.asarray(_weights(problem, form, xi), float)
    functions = np.asarray(hermite_polynomials(xi, 2), float)
    if not np.all(np.isfinite(found)):
        return None
    weights = np.linalg.lstsq(functions.T, found, rcond=None)[0]
    scale = np.asarray(form.scale, float)
    units = np.concatenate([scale, (scale[:, None] * scale).ravel()])
    rest = np.abs(found - functions.T @ weights) * units
    most = _ROUNDING * np.finfo(xi.dtype).eps * np.max(np.abs(found * units))
    if not np.max(rest) <= most:
        return None
    value = np.zeros((count, 1))
    value[0] = 1.0
    return np.concatenate([value, weights], axis=1)


@eqx.filter_jit
def _weights(problem: Problem, form: NoiseForm, xi: Array) -> Float[Array, "points figures"]:
    t, x0 = problem.times[0], problem.x0
    noise = jnp.sqrt(problem.dt) * xi.T
    return jax.vmap(lambda dw: _row(StepDensity(problem, t, x0, dw, form)))(noise)


def _row(step: StepDensity) -> Float[Array, " figures"]:
    weights = step.weights()
    return jnp.concatenate([weights.first, weights.second.reshape(-1)])
