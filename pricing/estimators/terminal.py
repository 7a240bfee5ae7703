"""Payoffs of the spot at expiry: Black's formula given the variance path."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LognormalSpots, MeanVariance
from ..numerics.black import exercise_probabilities
from ..numerics.safe_math import safe_sqrt
from ..products import AbstractProduct, TerminalClaim
from .estimator import AbstractEstimator, Draw, Needs, smooth
from .hedge import MOST_DATES, hedge_gains
from .score import Gaussian, pathwise_then_score

Paths = Float[Array, " paths"]

# for deterministic variance: balances the errors of Gamma of calls and digitals at the strike
_INTEGRATED = 0.25  # share of the variance that is integrated instead of sampled
_ALONG_PATHS = 0.6  # weight of pathwise second derivatives against those by the score


class Terminal(AbstractEstimator):
    """The spot is lognormal given the variance path (Willard 1997, eq. 7): samples are Black's formula.

    If the variance is deterministic, samples are conditional on the log-spot after three quarters of the
    variance. If it is random, the gains of a hedge on `hedges` dates are subtracted (`hedge_gains`).
    """

    hedges: int = eqx.field(static=True, default=0)

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, TerminalClaim)

    def last_step_is_enough(self, product: AbstractProduct) -> bool:
        del product
        return True

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
        return Needs((1,) if isinstance(model, LognormalSpots) else (0,))

    def values(self, product: TerminalClaim, model: ConditionallyGaussian, draw: Draw) -> Paths:
        walk = draw.walk
        forward = model.forward(product.expiry)

        mean, variance = jnp.sum(walk.mean, axis=0), jnp.sum(walk.variance, axis=0)
        samples = claim_samples(product, forward, mean, variance, draw.normals)
        if self.hedges and isinstance(model, MeanVariance):

            def value(factor: Array, variance: Array) -> Array:
                return _black(product, forward * factor, variance)

            samples = samples - hedge_gains(value, model, walk, product.expiry)
        return model.discount(product.expiry) * samples

    def _dates(self, product: TerminalClaim) -> Float[Array, " dates"]:
        """Return the dates of the hedge; the last is the expiry."""
        count = max(self.hedges, 1)
        return product.expiry * (jnp.arange(1, count + 1, dtype=product.expiry.dtype) / count)


def claim_samples(
    claim: TerminalClaim,
    forward: Float[Array, ""],
    mean: Paths,
    variance: Paths,
    normals: Float[Array, "*one paths"],
) -> Paths:
    """Return undiscounted samples of a claim on forward * exp(x), x ~ N(mean, variance).

    normals: none to integrate over x entirely. Otherwise a quarter of its variance is integrated, the value and
    first derivatives are pathwise in the rest, and a second derivative is a weighted mean of the pathwise and
    the score estimate, whose errors partly cancel.
    """
    if not normals.shape[0]:
        return _black(claim, forward * jnp.exp(mean + 0.5 * variance), variance)
    left = _INTEGRATED * variance
    center = jnp.log(forward) + mean  # so that the score includes the spot
    law = Gaussian(center[None], safe_sqrt(variance - left)[None])
    terms = claim, left
    along_paths = _value_given(terms, law.at(normals))
    by_score = pathwise_then_score(_value_given, terms, law, normals)
    return _ALONG_PATHS * along_paths + (1.0 - _ALONG_PATHS) * by_score


def _value_given(terms, log_spot: Float[Array, "1 paths"]) -> Paths:
    claim, variance = terms
    return _black(claim, jnp.exp(log_spot[0] + 0.5 * variance), variance)


def _black(claim: TerminalClaim, forward: Array, variance: Array) -> Array:
    """Return the undiscounted value of a terminal claim on a lognormal spot."""
    share, cash = exercise_probabilities(forward, claim.strike, safe_sqrt(variance), claim.side)
    asset_units, cash_units = claim.units
    return asset_units * forward * share + cash_units * cash
