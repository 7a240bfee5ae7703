"""Samples with score-based derivatives: all of them, or only the second after a pathwise first."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..numerics.mixing import mixed, unmixed
from ..numerics.safe_math import divisor, nan_where

Vectors = Float[Array, "*dates n paths"]


class Gaussian(NamedTuple):
    """The law of x = mean + std * (factor @ z), z standard normal, factor lower triangular, or None for 1.

    With an axis of dates before n, vectors of different dates are independent. Where std is 0, x has no
    density: it equals its mean and is not part of the score.
    """

    mean: Vectors
    std: Vectors
    factor: Float[Array, "n n"] | None = None

    def at(self, z: Vectors) -> Vectors:
        """Return x for z."""
        return self.mean + self.std * self._mixed(z)

    def normals(self, x: Vectors, z: Vectors) -> Vectors:
        """Return the normals for x; z where x has no density."""
        scaled = (x - self.mean) / divisor(self.std)
        scaled = jnp.where(self.std > 0.0, scaled, self._mixed(z))
        if self.factor is None:
            return scaled
        solve = functools.partial(unmixed, self.factor)
        return solve(scaled) if scaled.ndim == 2 else jax.vmap(solve)(scaled)

    def log_density(self, x: Vectors, z: Vectors) -> Float[Array, " paths"]:
        """Return the logarithm of the density at x, up to a constant; z as in `normals`."""
        scales = divisor(self.std)
        if self.factor is not None:
            scales = scales * jnp.broadcast_to(jnp.diag(self.factor)[:, None], scales.shape)
        parts = -0.5 * self.normals(x, z) ** 2 - jnp.log(scales)
        parts = jnp.where(self.std > 0.0, parts, 0.0)
        return jnp.sum(parts, axis=tuple(range(parts.ndim - 1)))

    def held(self, z: Vectors) -> tuple[Vectors, Float[Array, " paths"]]:
        """Return x for z, fixed where it has a density, and the weight p(x) / p(x fixed), which is 1."""
        x = self.at(z)
        x = jnp.where(self.std > 0.0, jax.lax.stop_gradient(x), x)
        log_density = self.log_density(x, z)
        return x, jnp.exp(log_density - jax.lax.stop_gradient(log_density))

    def _mixed(self, z: Vectors) -> Vectors:
        return z if self.factor is None else mixed(self.factor, z)


def pathwise_then_score(
    payoff: Callable[[PyTree, Vectors], Float[Array, " paths"]],
    terms: PyTree,
    law: Gaussian,
    normals: Vectors,
) -> Float[Array, " paths"]:
    """Return payoff(terms, law.at(normals)), for a payoff that is continuous but has kinks.

    The first derivative of a sample is the payoff's slope times dx, which is unbiased. A second pathwise
    derivative would miss the kinks. Instead, x is fixed and its density p moves: the second derivative is that
    of slope(x) dx(z) p(x) / p(x fixed), with z the normals for x. (Mixed estimators: Glasserman 2003, sec.
    7.3.3.)
    """
    return _samples(payoff, terms, law, normals)


def by_score(
    payoff: Callable[[PyTree, Vectors], Float[Array, " paths"]],
    terms: PyTree,
    law: Gaussian,
    normals: Vectors,
) -> Float[Array, " paths"]:
    """Return payoff(terms, law.at(normals)), for any payoff, with all derivatives by the score.

    x is fixed and its density p moves: (payoff(x) - c) p(x) / p(x fixed) + c is differentiated, where c is the
    fixed payoff at the mean of x, which reduces noise without bias. (Likelihood ratio method: Glasserman 2003,
    sec. 7.3.) If a step of a path has no density, the derivative is NaN.
    """
    x, weight = law.held(normals)
    center = jax.lax.stop_gradient(payoff(terms, law.at(jnp.zeros_like(normals))))
    is_still = jnp.any(law.std <= 0.0, axis=tuple(range(law.std.ndim - 1)))
    weight = _without_derivative(is_still, weight)
    paid = payoff(terms, x)
    return paid + (paid - center) * (weight - 1.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _samples(payoff, terms, law, normals):
    return payoff(terms, law.at(normals))


@_samples.defjvp
def _samples_jvp(payoff, primals, tangents):
    terms, law, normals = primals
    d_terms, d_law, _ = tangents
    x, weight = law.held(normals)
    z = law.normals(x, normals)
    _, moved = jax.jvp(lambda law: law.at(z), (law,), (d_law,))
    _, slope = jax.jvp(payoff, (terms, x), (d_terms, moved))
    return _samples(payoff, terms, law, normals), weight * slope


@jax.custom_jvp
def _without_derivative(failed: Bool[Array, " paths"], x: Float[Array, " paths"]):
    return x


@_without_derivative.defjvp
def _without_derivative_jvp(primals, tangents):
    failed, x = primals
    return _without_derivative(failed, x), nan_where(failed, tangents[1])
