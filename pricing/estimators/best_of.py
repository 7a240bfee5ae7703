"""Options on the best or the worst of several assets."""

import functools
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian
from ..numerics.safe_math import larger, safe_sqrt, smaller
from ..products import Average
from .average import AverageEstimator
from .estimator import Draw, Needs
from .score import Gaussian, pathwise_then_score


class BestOf(AverageEstimator):
    """max(side (max_j S_j - K), 0), or min_j; it has kinks at the strike and where assets are equal.

    First derivatives are pathwise; second derivatives use the score of the terminal log-spots given their
    variance.
    """

    averages: ClassVar[tuple[str, ...]] = ("max", "min")

    def needs(self, product: Average, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, num_dates
        return Needs((1, model.underlying.size))

    def values(
        self, product: Average, model: ConditionallyGaussian, draw: Draw
    ) -> Float[Array, " paths"]:
        expiry = product.fixings[-1]
        walk = draw.walk
        log_spot = Gaussian(
            jnp.log(model.forward(expiry))[:, None] + walk.mean[0],
            safe_sqrt(walk.variance[0]),
            jnp.linalg.cholesky(model.residual_correlation),
        )
        payoff = _best_payoff if product.average == "max" else _worst_payoff
        terms = product.side, product.strike
        return model.discount(expiry) * pathwise_then_score(
            payoff, terms, log_spot, draw.normals[0]
        )


def _payoff(choose, terms, log_spot: Float[Array, "assets paths"]) -> Float[Array, " paths"]:
    side, strike = terms
    return larger(side * (jnp.exp(functools.reduce(choose, log_spot)) - strike), 0.0)


_best_payoff, _worst_payoff = (functools.partial(_payoff, choose) for choose in (larger, smaller))
