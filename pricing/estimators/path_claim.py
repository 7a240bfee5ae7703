"""Payoffs that are a function of the spots on some dates."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LocalVolatility, LogSpotSteps
from ..numerics.safe_math import safe_sqrt
from ..products import AbstractProduct, PathClaim
from .estimator import AbstractEstimator, Draw, Needs, smooth
from .score import Gaussian, by_score, pathwise_then_score

Paths = Float[Array, " paths"]
Walks = Float[Array, "dates *assets paths"]


class PathClaimEstimator(AbstractEstimator):
    """Given the variance path, the steps of the log-spots are Gaussian with a known density.

    First derivatives of a payoff without jumps are pathwise, and second derivatives use the score
    (`pathwise_then_score`); for other payoffs all derivatives use the score (`by_score`). Under a
    `LocalVolatility` only the last step has a density: there are only pathwise first derivatives.
    """

    def last_step_is_enough(self, product: AbstractProduct) -> bool:
        assert isinstance(product, PathClaim)
        return not product.has_jumps

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, PathClaim) and not product.all_times

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return frozenset() if isinstance(model, LocalVolatility) else smooth(model)

    def dates(self, product: Any, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return product.dates

    def needs(self, product: PathClaim, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product
        return Needs((num_dates, *model.underlying.shape))

    def values(self, product: Any, model: ConditionallyGaussian, draw: Draw) -> Paths:
        law = log_spot_steps(product.dates, model, draw.walk)
        terms = product, model.discount(product.dates[-1])
        if isinstance(model, LocalVolatility):
            return _discounted_payoff(terms, law.at(draw.normals))
        samples = by_score if product.has_jumps else pathwise_then_score
        return samples(_discounted_payoff, terms, law, draw.normals)


def log_spot_steps(
    dates: Float[Array, " dates"], model: ConditionallyGaussian, walk: LogSpotSteps
) -> Gaussian:
    """Return the law of the log-spot steps to each date (the first from 0), given the variance path."""
    forwards = jnp.log(jax.vmap(model.forward)(dates))
    steps = jnp.diff(forwards, axis=0, prepend=jnp.zeros_like(forwards[:1]))
    several = model.underlying.ndim > 0
    factor = jnp.linalg.cholesky(model.residual_correlation) if several else None
    return Gaussian(steps[..., None] + walk.mean, safe_sqrt(walk.variance), factor)


def spots_of(steps: Walks) -> Walks:
    """Return the spots on each date."""
    return jnp.exp(jnp.cumsum(steps, axis=0))


def _discounted_payoff(terms, steps: Walks) -> Paths:
    product, discount = terms
    return discount * jax.vmap(product.payoff, in_axes=-1)(spots_of(steps))
