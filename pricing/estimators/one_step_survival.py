"""Barriers on dates, by one-step survival."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape

from ..models import ConditionallyGaussian, LognormalSpots
from ..products import AbstractProduct, DiscreteBarrier
from .continuation import Continuation, TerminalPayoff, date_of
from .corridor import MonitoringDate, Paths, monitoring_dates, paid_always, truncated_normal
from .estimator import AbstractEstimator, Draw, Needs, smooth


class OneStepSurvival(AbstractEstimator):
    """One-step survival: the probability of leaving the corridor at the next date is known.

    A path pays this probability times the exit payment, continues with the survival probability as its weight,
    and draws its next position conditional on staying inside. It never leaves, so samples are smooth. The last
    step is integrated. (Glasserman and Staum 2001, sec. 2; Alm et al. 2013 for derivatives.)

    With the control variate, paths only correct the errors of a fitted value function; see `Continuation`.
    """

    control: Continuation | None = None

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, DiscreteBarrier)

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        return smooth(model)

    def controlled(
        self, product: DiscreteBarrier, model: ConditionallyGaussian, num_steps: int
    ) -> Any:
        del num_steps
        plain = product.dates.size == 1 or not isinstance(model, LognormalSpots)
        return self if plain else OneStepSurvival(Continuation.fit(product, model))

    def dates(self, product: DiscreteBarrier, num_steps: int) -> Float[Array, " dates"]:
        del num_steps
        return product.dates

    def needs(
        self, product: DiscreteBarrier, model: ConditionallyGaussian, num_dates: int
    ) -> Needs:
        del product, model
        return Needs((0,), num_dates - 1 if self.control is None else num_dates)

    def values(self, product: DiscreteBarrier, model: ConditionallyGaussian, draw: Draw) -> Paths:
        walk = draw.walk
        dates, end = monitoring_dates(product, model, walk), TerminalPayoff.of(product, model)
        (position, weight), (states, paid) = _follow(dates, draw.uniforms[: product.dates.size - 1])
        if self.control is not None:
            return self.control.controlled_samples(dates, end, states, draw.uniforms[-1])
        ended = jnp.sum(paid, axis=0) + weight * end.ahead(date_of(dates, -1), position)
        return ended + end.discount * paid_always(product.always, end.forward, walk)


def _follow(dates: MonitoringDate, uniforms: Float[Array, "dates paths"]):
    """Return (position, weight) of the paths at the penultimate date and, with `paid`, at all dates."""

    def step(carry: tuple[Paths, Paths], of_date):
        (position, weight), (date, uniform) = carry, of_date
        low, high = date.bounds(position)
        paid = weight * date.paid_outside(low, high)
        inside, chance = truncated_normal(low, high, uniform)
        new = date.moved(position, inside), weight * chance
        return new, (new, paid)

    early = jax.tree.map(lambda x: x[:-1], dates)
    start = jnp.zeros_like(dates.mean[0]), jnp.ones_like(dates.mean[0])
    return jaxtape.scan(step, start, (early, uniforms))
