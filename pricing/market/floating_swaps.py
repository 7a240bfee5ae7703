"""Quoted swaps with a floating leg valued coupon by coupon: overnight swaps, or swaps on a forward curve."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import Converted, real
from ..numerics.safe_math import larger
from .curve import ZeroCurve
from .dates import Leg
from .instruments import CurveInstruments, CurvesBeside, check_periods, filled_in_front

Vector = Float[Array, " instruments"]
Payments = Float[Array, "instruments payments"]
Periods = Float[Array, "instruments periods"]


class FloatingSwaps(CurveInstruments):
    """Swaps with value 0 at their quoted par rates, valued coupon by coupon.

    rate sum_i accrual_i D(t_i) = sum_j (P(s_j) / P(e_j) - 1) D(p_j), with P from the forward curve and D from
    the discount curve. A coupon that compounds an overnight rate over a period has the same value as a coupon
    of the simple rate of that period (Henrard, *Interest Rate Modelling in the Multi-Curve Framework*, 2014,
    section 2.4). A shorter leg is padded in front with periods and accruals of 0.

    Attributes:
        payment_dates: The payment times of the fixed legs, in years, of shape (swaps, payments).
        accruals: The year fraction of each fixed coupon, of shape (swaps, payments).
        starts: The starts of the floating periods in years, of shape (swaps, periods).
        period_ends: The ends of the floating periods in years, of shape (swaps, periods).
        paid: The payment times of the floating coupons, in years, of shape (swaps, periods).
        rates: Par rates per year, as decimals, of shape (swaps,).

    Raises:
        ValueError: Shapes differ, or an instrument does not end after its start.

    Examples:
        >>> from pricing import CurveQuotes
        >>> from pricing.market import FloatingSwaps
        >>> lag = 0.01
        >>> swaps = FloatingSwaps([[1 + lag]], [[1.0]], [[0.0]], [[1.0]], [[1 + lag]], [0.03])
        >>> f"{CurveQuotes(swaps).discount(1.0):.6f}"
        '0.970874'
    """

    payment_dates: Converted[Payments] = real("payment_dates")
    accruals: Converted[Payments] = real("accruals")
    starts: Converted[Periods] = real("starts")
    period_ends: Converted[Periods] = real("period_ends")
    paid: Converted[Periods] = real("paid")
    rates: Converted[Vector] = real("rates")

    @classmethod
    def of_legs(
        cls, fixed: Sequence[Leg], floating: Sequence[tuple[np.ndarray, np.ndarray]], rates: Any
    ) -> "FloatingSwaps":
        """Return swaps with the given legs and par rates.

        Args:
            fixed: The fixed legs.
            floating: Each floating leg as the n + 1 boundaries of its periods in years, and its n payment
                times.
            rates: The par rates.
        """
        starts = [leg.start for leg in fixed]
        return cls(
            filled_in_front([leg.payment_dates for leg in fixed], starts),
            filled_in_front([leg.accruals for leg in fixed], [0.0] * len(fixed)),
            filled_in_front([days[:-1] for days, _ in floating], starts),
            filled_in_front([days[1:] for days, _ in floating], starts),
            filled_in_front([paid for _, paid in floating], starts),
            rates,
        )

    def __check_init__(self):
        legs = (self.payment_dates, self.accruals), (self.starts, self.period_ends, self.paid)
        for leg in legs:
            shapes = {values.shape for values in leg}
            if len(shapes) > 1 or leg[0].ndim != 2 or 0 in leg[0].shape:
                given = ", ".join(str(values.shape) for values in leg)
                raise ValueError(
                    f"the parts of a leg have the shapes {given}: give one row for each swap, with the same "
                    "number of entries in each part, shorter legs padded in front"
                )
        starts, accruals = self.starts[:, 0], jnp.sum(self.accruals, axis=1)
        check_periods(starts, self.period_ends[:, -1], accruals, self.rates)

    @property
    def quotes(self) -> Any:
        return self.rates

    @property
    def ends(self) -> Vector:
        last = larger(self.period_ends[:, -1], self.paid[:, -1])
        return larger(last, self.payment_dates[:, -1])

    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        discount = curve if beside.discount is None else beside.discount
        growth = curve.discount(self.starts) / curve.discount(self.period_ends)
        floating = jnp.sum((growth - 1.0) * discount.discount(self.paid), axis=1)
        annuity = jnp.sum(self.accruals * discount.discount(self.payment_dates), axis=1)
        return floating - self.rates * annuity
