"""Payoffs of the spot at expiry: Black's formula given the variance path."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..black import exercise_probabilities
from ..models import ConditionallyGaussian
from ..products import AbstractProduct, TerminalClaim
from .estimator import AbstractEstimator, Draw, Needs, safe_sqrt, smooth

Paths = Float[Array, " paths"]

CONDITIONED = 0.2  # share of a known variance that is integrated instead of sampled


class Terminal(AbstractEstimator):
    """Given the variance path the spot is lognormal (Willard 1997, eq. 7): Black's formula, averaged.

    Where the variance is not random, given the log-spot when 80 % of it has passed.
    """

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, TerminalClaim)

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return smooth(model)

    def dates(self, product: TerminalClaim, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return product.expiry[None]

    def needs(self, product: TerminalClaim, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, num_dates
        return Needs((0,) if model.variance_is_random else (1,))

    def values(self, product: TerminalClaim, model: ConditionallyGaussian, draw: Draw) -> Paths:
        walk = draw.walk(model, product.expiry[None])
        mean, std = conditioned(walk.mean[0], walk.variance[0], model, draw.normals)
        forward = model.forward(product.expiry) * jnp.exp(mean + 0.5 * std**2)
        return model.discount(product.expiry) * claim_value(product, forward, std)


def conditioned(
    mean: Paths, variance: Paths, model: ConditionallyGaussian, normals: Float[Array, "*one paths"]
) -> tuple[Paths, Paths]:
    """Mean and standard deviation of what is left to integrate: all of it if the variance is random."""
    if not model.variance_is_random:
        sampled = (1.0 - CONDITIONED) * variance
        mean = mean + safe_sqrt(sampled) * normals[0]
        variance = CONDITIONED * variance
    return mean, safe_sqrt(variance)


def claim_value(claim: TerminalClaim, forward: Paths, std: Paths) -> Paths:
    """Undiscounted value of a terminal claim on a lognormal spot."""
    share, cash = exercise_probabilities(forward, claim.strike, std, claim.side)
    asset_units, cash_units = claim.units
    return asset_units * forward * share + cash_units * cash
