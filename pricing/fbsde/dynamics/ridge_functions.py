"""Ridge functions: polynomials along one direction of state and noise for each contract.

A ridge function is a function of one projection a . z. Together with functions shared by all contracts, ridge
functions represent a value and the martingale of the next step (projection pursuit, Friedman, Stuetzle (1981)).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...regression.polynomials import hermite_polynomials
from ..problem import Problem, Real

_FURTHEST = 3.5  # standard deviations at which a projection of the state is clipped
_MOST_PAIRED = 12  # dimensions up to which shared functions include pairs of coordinates
_LEAST_VARIANCE = 1e-8  # smallest variance of a coordinate relative to the last date

States = Float[Array, "dim paths"]
Values = Float[Array, "contracts paths"]


class Coordinates(NamedTuple):
    """Standardized coordinates of the states (logarithms if positive) at every date.

    They have mean 0 and covariance 1; a coordinate without noise, like all today, is 0.
    """

    is_positive: Bool[Array, " dim"]
    mean: Float[Array, "*dates dim"]
    whitening: Float[Array, "*dates dim dim"]

    @classmethod
    def of(cls, states: Float[Array, "dates dim paths"]) -> "Coordinates":
        """Return the coordinates of the states of a simulation."""
        is_positive = jnp.all(states > 0.0, axis=(0, 2))
        own = jax.vmap(lambda x: _logs(is_positive, x))(states)
        mean = jnp.mean(own, axis=2)
        rest = own - mean[:, :, None]
        covariance = rest @ jnp.swapaxes(rest, 1, 2) / states.shape[2]
        last = jnp.diagonal(covariance[-1])
        scale = jax.lax.rsqrt(jnp.where(last > 0.0, last, 1.0))
        values, vectors = jnp.linalg.eigh(covariance * (scale[:, None] * scale[None])[None])
        has_noise = values > _LEAST_VARIANCE
        parts = jnp.where(has_noise, jax.lax.rsqrt(jnp.where(has_noise, values, 1.0)), 0.0)
        whitening = parts[:, :, None] * jnp.swapaxes(vectors, 1, 2) * scale[None, None]
        return cls(is_positive, mean, whitening)

    def at(self, date) -> "Coordinates":
        """Return the coordinates of one date."""
        return Coordinates(self.is_positive, self.mean[date], self.whitening[date])

    def __call__(self, x: States) -> States:
        """Return the coordinates of states at one date."""
        return self.whitening @ (_logs(self.is_positive, x) - self.mean[:, None])


def _logs(is_positive: Bool[Array, " dim"], x: States) -> States:
    positive = is_positive[:, None]
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), x)


class RidgeFit(NamedTuple):
    """The value at one date, and the martingale of the next step, for every contract.

    The value is sum_m own[m, 0] h_m(a . z) + shared functions of z, the martingale sum_mn own[m, n] h_m(a . z)
    h_n(b . xi), n >= 1, + shared functions: z are the coordinates, xi the normals of the step, h_n the
    orthonormal Hermite polynomials. The mean of the martingale over xi is 0 for any z.
    """

    along_state: Float[Array, "*dates contracts dim"]
    along_noise: Float[Array, "*dates contracts dim"]
    own: Float[Array, "*dates contracts degrees orders"]
    shared_value: Float[Array, "*dates contracts functions"]
    shared_martingale: Float[Array, "*dates contracts functions"]

    def polynomials(self, z: States, xi: States) -> tuple[list[Values], list[Values]]:
        """Return h_m(a . z) and h_n(b . xi), with projections of the state clipped far out."""
        _, degrees, orders = self.own.shape
        s = jnp.clip(self.along_state @ z, -_FURTHEST, _FURTHEST)
        return hermite_row(s, degrees), hermite_row(self.along_noise @ xi, orders)

    def value(self, z: States) -> Values:
        """Return the value at states, without the martingale."""
        along, _ = self.polynomials(z, jnp.zeros_like(z))
        own = _combined(self.own[:, :, 0], along)
        return own + self._shared(self.shared_value, lambda: value_functions(z), own)

    def both(self, z: States, xi: States) -> tuple[Values, Values]:
        """Return the value, and the martingale of the step."""
        along, of_noise = self.polynomials(z, xi)
        value, *of_orders = (_combined(self.own[:, :, n], along) for n in range(len(of_noise)))
        zero = jnp.zeros_like(value)
        martingale = sum((c * h for c, h in zip(of_orders, of_noise[1:], strict=True)), zero)
        value = value + self._shared(self.shared_value, lambda: value_functions(z), zero)
        more = self._shared(self.shared_martingale, lambda: martingale_functions(z, xi), zero)
        return value, martingale + more

    @staticmethod
    def _shared(coefficients: Array, functions, like: Values) -> Values:
        """Return a combination of shared functions; skipped if no contract uses any."""
        return jax.lax.cond(
            jnp.any(coefficients != 0.0),
            lambda: coefficients @ functions(),
            lambda: jnp.zeros_like(like),
        )


def hermite_row(x: Values, count: int) -> list[Values]:
    """Return the orthonormal Hermite polynomials of degree 0 to count - 1."""
    row = [jnp.ones_like(x), x]
    for k in range(1, count - 1):
        row.append((x * row[k] - math.sqrt(k) * row[k - 1]) * (1.0 / math.sqrt(k + 1)))
    return row[:count]


def linearization(count: int) -> Float[np.ndarray, "count count degrees"]:
    """Return c with h_i h_j = sum_k c[i, j, k] h_k for orthonormal Hermite polynomials."""
    table = np.zeros((count, count, 2 * count - 1))
    for i in range(count):
        for j in range(count):
            for r in range(min(i, j) + 1):
                k = i + j - 2 * r
                scale = math.factorial(k) / (math.factorial(i) * math.factorial(j))
                table[i, j, k] = math.comb(i, r) * math.comb(j, r) * math.factorial(r) * scale**0.5
    return table


def value_functions(z: States) -> Float[Array, "functions paths"]:
    """Return the shared functions of the state: polynomials of degree 2, or 1 in many dimensions."""
    return hermite_polynomials(z, 2 if len(z) <= _MOST_PAIRED else 1)


def martingale_functions(z: States, xi: States) -> Float[Array, "functions paths"]:
    """Return the shared functions of state and noise, which have zero mean over the noise.

    Polynomials of the noise come first, without the constant; products with the state follow.
    """
    of_noise = value_functions(xi)[1:]
    if len(z) > _MOST_PAIRED:
        return of_noise
    products = (z[:, None] * xi[None]).reshape(-1, z.shape[1])
    return jnp.concatenate([of_noise, products])


def discount_factors(problem: Problem, t: Real, x: States, after: States) -> Float[Array, " paths"]:
    """Return exp(-(r(t, x) + r(t + dt, after)) dt / 2) over a step, for a driver -r y."""
    growth = rate(problem, t, x) + rate(problem, t + problem.dt, after)
    return jnp.exp(-0.5 * problem.dt * growth)


def rate(problem: Problem, t: Real, x: States) -> Float[Array, " paths"]:
    """Return r of a driver f = -r(t, x) y."""
    one = jnp.ones(problem.contracts, x.dtype)
    z = jnp.zeros((*problem.contracts, problem.dim), x.dtype)
    return -jax.vmap(lambda x: jnp.ravel(problem.driver(t, x, one, z))[0], -1)(x)


def _combined(coefficients: Float[Array, "contracts functions"], row: list[Values]) -> Values:
    terms = (coefficients[:, m, None] * h for m, h in enumerate(row))
    return sum(terms, jnp.zeros_like(row[0]))
