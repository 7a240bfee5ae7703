"""Quoted basis swaps: two floating legs, with a spread on one of them."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import Converted, real
from .curve import ZeroCurve
from .instruments import CurveInstruments, CurvesBeside, check_periods, filled_in_front

Vector = Float[Array, " instruments"]
Periods = Float[Array, "instruments periods"]
Others = Float[Array, "instruments others"]
Legs = Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]


class BasisSwaps(CurveInstruments):
    """Swaps of two floating legs with value 0 at their quoted spreads, valued coupon by coupon.

    sum_j (P(s_j) / P(e_j) - 1 + spread accrual_j) D(e_j) = sum_k (Q(s_k) / Q(e_k) - 1) D(e_k), with P from the
    curve that is built, Q from the curve of the other floating leg and D from the discount curve. The spread
    may be on the other leg instead. A shorter leg is padded in front with periods and accruals of 0.

    Attributes:
        starts: The starts of the periods of the curve's own leg, in years, of shape (swaps, periods).
        period_ends: The ends of these periods, in years, of shape (swaps, periods).
        accruals: The year fraction of the spread in each of these periods, of shape (swaps, periods); 0 if the
            spread is on the other leg.
        other_starts: The starts of the periods of the other leg, in years, of shape (swaps, others).
        other_ends: The ends of these periods, in years, of shape (swaps, others).
        other_accruals: The year fraction of the spread in each of these periods, of shape (swaps, others); 0 if
            the spread is on the curve's own leg.
        spreads: Spreads per year, as decimals, of shape (swaps,).

    Raises:
        ValueError: Shapes differ, or an instrument does not end after its start.

    Examples:
        >>> from pricing import CurveQuotes, ZeroCurve
        >>> from pricing.market import BasisSwaps, CurvesBeside
        >>> swaps = BasisSwaps([[0.0]], [[1.0]], [[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.001])
        >>> found = CurveQuotes(swaps, discount_curve="EUR")
        >>> curve = found.bootstrapped(CurvesBeside(ZeroCurve([1.0], [0.03])))
        >>> f"{1 / curve.discount(1.0) - 1.0:.5f}"
        '0.02945'
    """

    starts: Converted[Periods] = real("starts")
    period_ends: Converted[Periods] = real("period_ends")
    accruals: Converted[Periods] = real("accruals")
    other_starts: Converted[Others] = real("other_starts")
    other_ends: Converted[Others] = real("other_ends")
    other_accruals: Converted[Others] = real("other_accruals")
    spreads: Converted[Vector] = real("spreads")

    @classmethod
    def of_legs(cls, own: Legs, other: Legs, spreads: Any) -> "BasisSwaps":
        """Return swaps with the given legs and spreads.

        Args:
            own: The legs on the curve: starts and ends of the periods, in years, and accruals of the spread.
            other: The other legs.
            spreads: The spreads.
        """
        columns = []
        for legs in (own, other):
            firsts = [float(starts[0]) for starts, _, _ in legs]
            fills = firsts, firsts, [0.0] * len(legs)
            parts = zip(zip(*legs, strict=True), fills, strict=True)
            columns += [filled_in_front(part, x) for part, x in parts]
        starts, ends, accruals, other_starts, other_ends, other_accruals = columns
        return cls(starts, ends, accruals, other_starts, other_ends, other_accruals, spreads)

    def __check_init__(self):
        legs = (
            (self.starts, self.period_ends, self.accruals),
            (self.other_starts, self.other_ends, self.other_accruals),
        )
        for leg in legs:
            shapes = {values.shape for values in leg}
            if len(shapes) > 1 or leg[0].ndim != 2 or 0 in leg[0].shape:
                given = ", ".join(str(values.shape) for values in leg)
                raise ValueError(
                    f"the parts of a leg have the shapes {given}: give one row for each swap, "
                    f"with the same number of entries in each part, shorter legs padded in front"
                )
        accrued = jnp.sum(self.accruals, axis=1) + jnp.sum(self.other_accruals, axis=1)
        check_periods(self.starts[:, 0], self.period_ends[:, -1], accrued, self.spreads)

    @property
    def quotes(self) -> Any:
        return self.spreads

    @property
    def rates(self) -> Vector:
        """The zero rates at which the bootstrap starts: the spreads, because the other leg is unknown here."""
        return self.spreads

    @property
    def ends(self) -> Vector:
        return self.period_ends[:, -1]

    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        discount = curve if beside.discount is None else beside.discount
        basis = discount if beside.basis is None else beside.basis
        own = curve.discount(self.starts) / curve.discount(self.period_ends) - 1.0
        other = basis.discount(self.other_starts) / basis.discount(self.other_ends) - 1.0
        spreads = self.spreads[:, None]
        own = (own + spreads * self.accruals) * discount.discount(self.period_ends)
        other = (other + spreads * self.other_accruals) * discount.discount(self.other_ends)
        return jnp.sum(own, axis=1) - jnp.sum(other, axis=1)
