"""Payoffs of the spot at expiry: Black's formula given the variance path."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..black import exercise_probabilities
from ..models import ConditionallyGaussian, MeanVariance
from ..products import AbstractProduct, TerminalClaim
from .estimator import AbstractEstimator, Draw, Needs, safe_sqrt, smooth
from .hedge import MOST_DATES, hedge_gains

Paths = Float[Array, " paths"]

CONDITIONED = 0.2  # share of a known variance that is integrated instead of sampled


class Terminal(AbstractEstimator):
    """Given the variance path the spot is lognormal (Willard 1997, eq. 7): Black's formula, averaged.

    Where the variance is not random, given the log-spot when 80 % of it has passed; where it is, the gains of a
    hedge on `hedges` dates are subtracted (`hedge_gains`).
    """

    hedges: int = eqx.field(static=True, default=0)

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, TerminalClaim)

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return smooth(model)

    def controlled(
        self, product: TerminalClaim, model: ConditionallyGaussian, num_steps: int
    ) -> Any:
        del product
        fitting = [count for count in range(1, MOST_DATES + 1) if num_steps % count == 0]
        return Terminal(fitting[-1]) if isinstance(model, MeanVariance) else self

    def dates(self, product: TerminalClaim, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return self._dates(product)

    def needs(self, product: TerminalClaim, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, num_dates
        return Needs((0,) if model.variance_is_random else (1,))

    def values(self, product: TerminalClaim, model: ConditionallyGaussian, draw: Draw) -> Paths:
        walk = draw.walk(model, self._dates(product))
        forward = model.forward(product.expiry)

        def value(factor: Array, variance: Array) -> Array:
            return claim_value(product, forward * factor, safe_sqrt(variance))

        mean, variance = jnp.sum(walk.mean, axis=0), jnp.sum(walk.variance, axis=0)
        mean, variance = conditioned(mean, variance, model, draw.normals)
        samples = value(jnp.exp(mean + 0.5 * variance), variance)
        if self.hedges and isinstance(model, MeanVariance):
            samples = samples - hedge_gains(value, model, walk)
        return model.discount(product.expiry) * samples

    def _dates(self, product: TerminalClaim) -> Float[Array, " dates"]:
        """Those of the hedge, the last one the expiry."""
        count = max(self.hedges, 1)
        return product.expiry * (jnp.arange(1, count + 1, dtype=product.expiry.dtype) / count)


def conditioned(
    mean: Paths, variance: Paths, model: ConditionallyGaussian, normals: Float[Array, "*one paths"]
) -> tuple[Paths, Paths]:
    """Mean and variance of what is left to integrate: all of it if the variance is random."""
    if not model.variance_is_random:
        sampled = (1.0 - CONDITIONED) * variance
        mean = mean + safe_sqrt(sampled) * normals[0]
        variance = CONDITIONED * variance
    return mean, variance


def claim_value(claim: TerminalClaim, forward: Array, std: Array) -> Array:
    """Undiscounted value of a terminal claim on a lognormal spot."""
    share, cash = exercise_probabilities(forward, claim.strike, std, claim.side)
    asset_units, cash_units = claim.units
    return asset_units * forward * share + cash_units * cash
