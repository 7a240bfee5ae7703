"""Ridge functions: piecewise linear along one direction of state and noise for each contract.

A ridge function is a function of one projection a . z. Together with functions shared by all contracts, ridge
functions represent a value and the martingale of the next step (projection pursuit, Friedman, Stuetzle (1981)).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...numerics.standardizer import whitening
from ...regression.polynomials import hermite_polynomials
from ..path_shares import ALL_PATHS, PathShare
from ..problem import Problem, Real
from .linear_pieces import NARROWEST, clipped, cubic, linear, smoothed

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
    def of(cls, states: Float[Array, "dates dim paths"], share: PathShare) -> "Coordinates":
        """Return the coordinates of the states of a simulation, of which this share of the paths is given."""
        num_paths = states.shape[2] * share.count
        is_positive = share.minimum(jnp.min(states, axis=(0, 2))) > 0.0
        own = jax.vmap(lambda x: _logs(is_positive, x))(states)
        mean = share.total(jnp.sum(own, axis=2)) / num_paths
        rest = own - mean[:, :, None]
        covariance = share.total(rest @ jnp.swapaxes(rest, 1, 2)) / num_paths
        least = _LEAST_VARIANCE * jnp.diagonal(covariance[-1])
        return cls(is_positive, mean, jax.vmap(whitening, (0, None))(covariance, least))

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

    With p = a . z + b . xi of variance 1, the value is E[v(p) | z] + shared functions of z, and the martingale
    v(p) - E[v(p) | z] + shared functions: z are the coordinates, xi the normals of the step, v is piecewise
    linear. The mean of the martingale over xi is 0 for any z. Where |b| is very small v(p) is not used for it.

    Attributes:
        along_state: The direction a.
        along_noise: The direction b.
        after: v at its knots.
        before: E[v(p) | z] at 129 points of a . z.
        slope: Its slope in a . z.
        shared_value: Coefficients of `value_functions`.
        shared_martingale: Coefficients of `martingale_functions`.
    """

    along_state: Float[Array, "*dates contracts dim"]
    along_noise: Float[Array, "*dates contracts dim"]
    after: Float[Array, "*dates contracts knots"]
    before: Float[Array, "*dates contracts means"]
    slope: Float[Array, "*dates contracts means"]
    shared_value: Float[Array, "*dates contracts functions"]
    shared_martingale: Float[Array, "*dates contracts functions"]

    def with_means(self, share: PathShare = ALL_PATHS) -> "RidgeFit":
        """Return the fit with E[v(p) | z] of its v."""
        before, slope = smoothed(self.after, jnp.linalg.norm(self.along_noise, axis=1), share)
        return self._replace(before=before, slope=slope)

    def projection(self, z: States, xi: States) -> Values:
        """Return p, with a . z within the range of the knots."""
        return clipped(self.along_state @ z) + self.along_noise @ xi

    def value(self, z: States) -> Values:
        """Return the value at states, without the martingale."""
        own = cubic(self.before, self.slope, self.along_state @ z)
        return own + self._shared(self.shared_value, lambda: value_functions(z), own)

    def both(self, z: States, xi: States) -> tuple[Values, Values]:
        """Return the value, and the martingale of the step."""
        own = cubic(self.before, self.slope, self.along_state @ z)
        is_wide = jnp.linalg.norm(self.along_noise, axis=1)[:, None] >= NARROWEST
        martingale = jnp.where(is_wide, linear(self.after, self.projection(z, xi)) - own, 0.0)
        value = own + self._shared(self.shared_value, lambda: value_functions(z), own)
        more = self._shared(self.shared_martingale, lambda: martingale_functions(z, xi), own)
        return value, martingale + more

    @staticmethod
    def _shared(coefficients: Array, functions, like: Values) -> Values:
        """Return a combination of shared functions; skipped if no contract uses any."""
        return jax.lax.cond(
            jnp.any(coefficients != 0.0),
            lambda: coefficients @ functions(),
            lambda: jnp.zeros_like(like),
        )


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
