"""Close-out costs along paths, and the sign of the claim for a risky close-out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...models.rate_model import mean_exponential
from ...numerics.safe_math import larger
from ...numerics.standardizer import Standardizer, deviation
from ...regression.polynomials import hermite_polynomials
from ...regression.solve import least_squares
from .credit_curve import CreditCurve
from .exposure_paths import Exposure

_DEGREES = (4, 4, 3, 2)  # degrees of the polynomials of the state by number of factors; 2 for more


class Weights(NamedTuple):
    """The weights of each interval, (dates,), for e^+ (cva, borrowing) and e^- (dva, lending).

    carry: 1 if claims are settled on the risky value, so that the adjustment is subtracted from e, else 0.
    """

    cva: Array
    borrowing: Array
    dva: Array
    lending: Array
    carry: Array


def weights_of(
    edges: Float[Array, " edges"],
    counterparty: CreditCurve,
    own: CreditCurve | None,
    spreads: tuple[Array, Array],
    is_risky: bool,
) -> Weights:
    """Return the weights of exposures, from integrals of intensities and spreads over each interval.

    Intensities are constant within an interval. clean: survival to its start times mean survival over it;
    risky: (1 - exp(-A)) / A with A the cost rate for the sign of e.
    """
    borrowed, lent = (spread * jnp.diff(edges) for spread in spreads)
    before, risk = jnp.zeros_like(edges), []
    for curve in (counterparty, own):
        hazard = jnp.zeros_like(edges) if curve is None else curve.cumulative_hazard(edges)
        lost = 0.0 if curve is None else 1.0 - curve.recovery
        risk.append(lost * jnp.diff(hazard))
        before = before + hazard
    if is_risky:
        up, down = (mean_exponential(-(a + b)) for a, b in zip(risk, (borrowed, lent), strict=True))
    else:
        up = down = jnp.exp(-before[:-1]) * mean_exponential(-jnp.diff(before))
    carry = jnp.full_like(borrowed, float(is_risky))
    return Weights(up * risk[0], up * borrowed, down * risk[1], down * lent, carry)


def cost_samples(
    seen: Exposure, level: Float[Array, "dates paths"] | None, weights: Weights
) -> Float[Array, "paths parts"]:
    """Return samples of cva, borrowing, dva and lending; level: that of V - C above which e is positive."""
    level = jnp.zeros_like(seen.value) if level is None else level

    def back(later, here):
        seen, level, weight = here
        left = seen.value - weight.carry * later.sum(0)
        is_owed = seen.value > level
        gain = jnp.where(is_owed, left, 0.0) + seen.gain
        loss = jnp.where(is_owed, 0.0, -left) + seen.loss
        parts = [
            weight.cva * gain,
            weight.borrowing * gain,
            -weight.dva * loss,
            -weight.lending * loss,
        ]
        return later + jnp.stack(parts), None

    nothing = jnp.zeros((4, seen.value.shape[1]), seen.value.dtype)
    parts, _ = jax.lax.scan(back, nothing, (seen, level, weights), reverse=True)
    return (parts * jnp.array([1.0, 1.0, -1.0, -1.0], parts.dtype)[:, None]).T


class Rule(NamedTuple):
    """The fitted level of each date: the mean of later adjustments, given the state and V - C."""

    states: Standardizer
    unit: Array
    coefficients: Array

    def level(self, seen: Exposure) -> Float[Array, " paths"]:
        return self.unit * (self.coefficients @ self.features(seen))

    def features(self, seen: Exposure) -> Float[Array, "functions paths"]:
        """Return polynomials of the state, and V - C and its positive part."""
        degree = _DEGREES[min(len(seen.state), len(_DEGREES)) - 1]
        value = seen.value[None] / self.unit
        return jnp.concatenate(
            [hermite_polynomials(self.states(seen.state), degree), value, larger(value, 0.0)]
        )


def fitted_rule(seen: Exposure, weights: Weights) -> Rule:
    """Return the rule, stacked over dates, fitted backward like Longstaff and Schwartz (2001)."""

    def back(later, here):
        seen, weight = here
        states, unit = Standardizer.by_coordinate(seen.state), deviation(seen.value)
        rule = Rule(states, unit, jnp.zeros((), unit.dtype))
        columns = rule.features(seen)
        rule = rule._replace(coefficients=least_squares(columns, later / unit))
        up, down = weight.cva + weight.borrowing, weight.dva + weight.lending
        rate = jnp.where(seen.value > rule.level(seen), up, down)
        return later + rate * (seen.value - weight.carry * later), rule

    nothing = jnp.zeros_like(seen.value[0])
    return jax.lax.scan(back, nothing, (seen, weights), reverse=True)[1]
