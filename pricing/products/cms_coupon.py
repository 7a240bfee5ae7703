"""Coupons of constant maturity swaps (CMS), plain, capped or floored."""

from jaxtyping import Array, Float, Int8

from ..fields import Numeric, Word, accruals, choice, dates, real, time
from ..time_order import check_order
from .product import AbstractProduct

RATE_CAP_OR_FLOOR = {"rate": 0, "cap": 1, "floor": -1}


class CmsCoupon(AbstractProduct):
    """A coupon pays notional accrual R, a caplet of max(R - strike, 0), a floorlet of max(strike - R, 0).

    R is the par swap rate at the fixing: the value of the floating leg over the annuity of the fixed leg. The
    convexity-adjusted rate is the value of a coupon divided by notional, accrual and the discount factor.

    Attributes:
        fixing: The time of the fixing in years, above 0.
        payment: The time of the payment in years, not before the fixing.
        payment_dates: The payment dates of the swap's fixed leg in years, increasing, of shape (payments,).
        accruals: The year fraction of each payment, of shape (payments,).
        accrual: The year fraction of the coupon itself.
        strike: The strike of a caplet or a floorlet, a rate per year; ignored for a coupon.
        option: The word "rate", "cap" or "floor", stored as the code 0, +1 or -1.
        notional: The notional in currency.
        resets: The starts of the floating periods in years, increasing, of shape (resets,); each period ends
            where the next begins, the last with the last payment. None: one period from the fixing, which
            suffices if one curve both projects and discounts.

    Raises:
        ValueError: Accruals and payment dates differ in number, or times are before the fixing.

    Examples:
        >>> from pricing import CmsCoupon, ForwardRates, price
        >>> coupon = CmsCoupon(5.0, 5.0, [6.0, 7.0, 8.0, 9.0, 10.0], [1.0] * 5, notional=100.0)
        >>> [f"{price(coupon, ForwardRates(0.03, vol)).value:.4f}" for vol in (1e-4, 0.3)]
        ['2.6212', '2.7507']
    """

    fixing: Numeric[Float[Array, "..."]] = time("fixing")
    payment: Numeric[Float[Array, "..."]] = time("payment")
    payment_dates: Numeric[Float[Array, "*#batch payments"]] = dates("payment_dates")
    accruals: Numeric[Float[Array, "*#batch payments"]] = accruals()
    accrual: Numeric[Float[Array, "..."]] = real("accrual", default=1.0)
    strike: Numeric[Float[Array, "..."]] = real("strike", default=0.0)
    option: Word[Int8[Array, "..."]] = choice("option", RATE_CAP_OR_FLOOR, default="rate")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)
    resets: Numeric[Float[Array, "*#batch resets"] | None] = dates(
        "resets", optional=True, default=None
    )

    def __check_init__(self):
        if self.accruals.shape[-1:] != self.payment_dates.shape[-1:]:
            raise ValueError(
                f"accruals of shape {self.accruals.shape} for payment dates of shape "
                f"{self.payment_dates.shape}: give one for each payment"
            )
        fixing = "the fixing", self.fixing
        check_order(*fixing, "the coupon is paid", self.payment, "give a later payment")
        pays = "the swap has its first payment", self.payment_dates[..., 0]
        check_order(*fixing, *pays, "give the payments of the swap that starts then")
        if self.resets is not None:
            starts = "the floating leg begins", self.resets[..., 0]
            check_order(*fixing, *starts, "give the periods of the swap that starts then")
            last = "the last floating period begins", self.resets[..., -1]
            ends = "the swap ends", self.payment_dates[..., -1]
            check_order(*last, *ends, "give only the starts of the periods")
