"""Known payments and future floating coupons: swaps on two curves, FRAs."""

from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import Numeric, is_traced, non_negative, real_vector
from ..fields import dates as times
from ..time_order import check_order
from .product import Padded, extra_dates, front
from .trade import Column, Trade


class FloatingPayments(Padded):
    """Known payments, and coupons whose floating rates are not yet fixed.

    The contract pays amounts[j] at dates[j] and notionals[j] (P(starts[j]) / P(ends[j]) - 1) at paid[j], with P
    from the forward curve, under any rate model. This covers coupons of simple rates and of compounded
    overnight rates. A period may run backwards: an FRA, which pays notional (F - K) accrual / (1 + F accrual)
    at the start s of its period, is the amount - notional K accrual at s plus a coupon from its end to s on the
    notional - notional (1 + K accrual).

    Attributes:
        dates: The payment dates of the known amounts in years, non-decreasing, of shape (payments,).
        amounts: The known amounts in currency, of any sign, of shape (payments,).
        starts: The starts of the periods in years, at least 0, of shape (payments,).
        ends: The ends of the periods in years, non-decreasing, of shape (payments,).
        paid: The payment dates of the coupons in years, non-decreasing, of shape (payments,).
        notionals: The notionals of the coupons in currency, of any sign, of shape (payments,).
        places: The index of each coupon's curve in `RateCurves`, of shape (payments,): 0 for the discount
            curve, 1 for `forward_curve`, 2 for `other_curve`. None: the forward curve for all coupons.

    Raises:
        ValueError: The lists differ in length, or a coupon is paid before its rate is fixed.

    Examples:
        >>> from pricing import RateCurves, price
        >>> coupon = FloatingPayments([1.0], [0.0], [0.5], [1.0], [1.0], [100.0])
        >>> f"{price(coupon, RateCurves(curve=0.03, forward_curve=0.035)).value:.4f}"
        '1.7132'
    """

    dates: Numeric[Float[Array, "*batch payments"]] = times("dates", repeated=True)
    amounts: Numeric[Float[Array, "*batch payments"]] = real_vector("amounts")
    starts: Numeric[Float[Array, "*batch payments"]] = non_negative("starts", core=1, time=True)
    ends: Numeric[Float[Array, "*batch payments"]] = times("ends", repeated=True)
    paid: Numeric[Float[Array, "*batch payments"]] = times("paid", repeated=True)
    notionals: Numeric[Float[Array, "*batch payments"]] = real_vector("notionals")
    places: Numeric[Float[Array, "*batch payments"] | None] = real_vector(
        "places", optional=True, default=None
    )

    def __check_init__(self):
        lists = [self.amounts, self.starts, self.ends, self.paid, self.notionals]
        if self.places is not None:
            lists.append(self.places)
        if any(values.shape[-1:] != self.dates.shape[-1:] for values in lists):
            counts = ", ".join(str(values.shape[-1]) for values in (self.dates, *lists))
            raise ValueError(
                f"dates, amounts, starts, ends, paid, notionals (and places) have {counts} entries: give lists "
                "of one length, with amounts and notionals of 0 where one list is shorter"
            )
        if not is_traced((self.notionals, self.starts, self.ends)):
            pays = np.asarray(self.notionals) != 0.0
            fixed = np.where(pays, np.minimum(self.starts, self.ends), 0.0)
            remedy = "give a payment date on or after the fixing"
            check_order("its rate is fixed", fixed, "a coupon is paid", self.paid, remedy)

    def padded(self, num_dates: int) -> "FloatingPayments":
        """Return the same contract on `num_dates` dates, padded in front with payments of 0."""
        extra = extra_dates(self.dates, num_dates)
        nothing = jnp.zeros((*self.amounts.shape[:-1], extra), self.amounts.dtype)
        names = "amounts", "notionals"
        filled = {n: jnp.concatenate([nothing, getattr(self, n)], axis=-1) for n in names}
        own = ["places"] if self.places is not None else []
        longer = {
            n: front(getattr(self, n), extra) for n in ["dates", "starts", "ends", "paid", *own]
        }
        return replace(self, **longer, **filled)


class Coupon(NamedTuple):
    """A coupon on a notional, whose floating rate for the period from start to end is not yet fixed.

    place: the index of its curve, as in `FloatingPayments.places`.
    """

    start: date
    end: date
    paid: date
    notional: float
    place: int | None = None


class FloatingTrade(Trade):
    """The common part of the remainders of trades with future floating rates. Each ages like its row."""

    product = FloatingPayments
    dates_name = "fixed_days"

    fixed_days: tuple[date, ...]
    amounts: tuple[float, ...]
    starts: tuple[date, ...]
    period_ends: tuple[date, ...]
    paid: tuple[date, ...]
    notionals: tuple[float, ...]
    places: tuple[int, ...] | None = None

    @property
    def shape(self) -> str:
        return "floating"

    def products(self, column: Column) -> FloatingPayments:
        names = "fixed_days", "amounts", "starts", "period_ends", "paid", "notionals", "places"
        return FloatingPayments(*map(column, names))


def fields_of(amounts: dict[date, float], coupons: list[Coupon]) -> dict[str, Any]:
    """Return known amounts by day and coupons in order as the fields of a `FloatingTrade`.

    The shorter list is padded in front with entries that pay nothing.
    """
    known = sorted(amounts.items())
    if not known:
        known = [(coupons[0].paid, 0.0)]
    if not coupons:
        coupons = [Coupon(known[0][0], known[0][0], known[0][0], 0.0)]
    count = max(len(known), len(coupons))
    known = [(known[0][0], 0.0)] * (count - len(known)) + known
    first = coupons[0]._replace(notional=0.0)
    coupons = [first] * (count - len(coupons)) + coupons
    days, paid = zip(*known, strict=True)
    starts, ends, at, notionals, places = zip(*coupons, strict=True)
    lists: dict[str, Any] = {
        "starts": starts,
        "period_ends": ends,
        "paid": at,
        "notionals": notionals,
        "places": None if places[-1] is None else places,
    }
    return {"fixed_days": days, "amounts": paid, **lists}
