"""The quoted instruments of a curve (deposits, FRAs, futures and swaps), and their pricing errors."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..fields import Converted, real
from ..time_order import check_accruals
from .curve import ZeroCurve
from .dates import Leg

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

Vector = Float[Array, " instruments"]


class CurvesBeside(NamedTuple):
    """The other curves that a bootstrapped curve depends on.

    Attributes:
        discount: The discount curve; None for the curve itself.
        basis: The curve of the other floating leg of basis swaps; None for the discount curve.
    """

    discount: ZeroCurve | None = None
    basis: ZeroCurve | None = None


class CurveInstruments(eqx.Module):
    """Ability: quoted curve instruments of one kind, in the order of their ends.

    Times are years (ACT/365) from today.

    Attributes:
        needs_one_curve: Whether a single curve must both discount and give the floating rates.
        rates: The rate implied by each quote, as a decimal per year, of shape (instruments,).
    """

    needs_one_curve: ClassVar[bool] = False
    rates: AbstractVar[Vector]

    @property
    @abc.abstractmethod
    def quotes(self) -> Any:
        """The leaf of quotes as quoted in the market, one for each instrument."""

    @property
    @abc.abstractmethod
    def ends(self) -> Vector:
        """The last time at which each instrument reads a discount factor of the curve."""

    @abc.abstractmethod
    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        """Return the pricing error of each quote, in any measure that is 0 when it is repriced.

        Args:
            curve: The curve that the instruments quote, which gives the floating rates.
            beside: The other curves for the valuation of the instruments.
        """


class Deposits(CurveInstruments):
    """Money lent from a start to an end at a simple rate: P(start) = P(end) (1 + rate accrual).

    Attributes:
        start: The start of accrual in years, of shape (deposits,).
        end: The repayment time in years, increasing, of shape (deposits,).
        accruals: The year fraction of each deposit, of shape (deposits,).
        rates: Simple rates per year, as decimals, of shape (deposits,).

    Raises:
        ValueError: Shapes differ, or an instrument does not end after its start.

    Examples:
        >>> from pricing import CurveQuotes
        >>> from pricing.market import Deposits
        >>> quotes = CurveQuotes(Deposits([0.0], [0.5], [0.5], [0.04]))
        >>> f"{quotes.discount(0.5):.6f}"
        '0.980392'
    """

    start: Converted[Vector] = real("start")
    end: Converted[Vector] = real("end")
    accruals: Converted[Vector] = real("accruals")
    rates: Converted[Vector] = real("rates")

    def __check_init__(self):
        check_periods(self.start, self.end, self.accruals, self.rates)

    @property
    def quotes(self) -> Any:
        return self.rates

    @property
    def ends(self) -> Vector:
        return self.end

    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        del beside
        return _growth(curve, self.start, self.end) - jnp.log1p(self.rates * self.accruals)


class Futures(CurveInstruments):
    """Futures on the simple rate of a future period: 1 + rate accrual = P(start) / P(end).

    The rate is (100 - price) / 100 - convexity (Hull, *Options, Futures, and Other Derivatives*, section 6.3).

    Attributes:
        start: The start of the period, in years, of shape (futures,).
        end: The end of the period, in years, increasing, of shape (futures,).
        accruals: The year fraction of each period, of shape (futures,).
        prices: 100 less the futures' rate in percent, of shape (futures,).
        convexity: The futures' rate less the forward rate, as a decimal; one for all, or one for each.

    Raises:
        ValueError: Shapes differ, or an instrument does not end after its start.

    Examples:
        >>> from pricing.market import Futures
        >>> futures = Futures([0.25], [0.5], [0.25], [96.0], 0.0001)
        >>> [f"{float(rate):.4f}" for rate in futures.rates]
        ['0.0399']
    """

    start: Converted[Vector] = real("start")
    end: Converted[Vector] = real("end")
    accruals: Converted[Vector] = real("accruals")
    prices: Converted[Vector] = real("prices")
    convexity: Converted[Float[Array, "*instruments"]] = real("convexity", default=0.0)

    def __check_init__(self):
        check_periods(self.start, self.end, self.accruals, self.prices)
        if self.convexity.shape not in ((), self.prices.shape):
            raise ValueError(
                f"convexity of shape {self.convexity.shape} for {self.prices.size} futures: give one number, "
                "or one for each of the futures"
            )

    @property
    def quotes(self) -> Any:
        return self.prices

    @property
    def rates(self) -> Vector:
        return (100.0 - self.prices) / 100.0 - self.convexity

    @property
    def ends(self) -> Vector:
        return self.end

    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        del beside
        return _growth(curve, self.start, self.end) - jnp.log1p(self.rates * self.accruals)


class ParSwaps(CurveInstruments):
    """Swaps with value 0 at their quoted rates: rate sum_i accrual_i P(t_i) = P(start) - P(end).

    One curve discounts and gives the floating rates; see `FloatingSwaps` for two curves. A shorter leg is
    padded in front with payments of accrual 0 at its start. A swap ends with its last payment.

    Attributes:
        start: The time from which interest accrues, in years, of shape (swaps,).
        payment_dates: The payment times of the fixed legs, in years, of shape (swaps, payments).
        accruals: The year fraction of each coupon, of shape (swaps, payments).
        rates: Par rates per year, as decimals, of shape (swaps,).

    Raises:
        ValueError: Shapes differ, or an instrument does not end after its start.

    Examples:
        >>> from pricing.market import ParSwaps
        >>> swaps = ParSwaps([0.0, 0.0], [[0.0, 1.0], [1.0, 2.0]], [[0.0, 1.0], [1.0, 1.0]], [0.03, 0.035])
        >>> swaps.ends.tolist()
        [1.0, 2.0]
    """

    needs_one_curve: ClassVar[bool] = True

    start: Converted[Vector] = real("start")
    payment_dates: Converted[Float[Array, "instruments payments"]] = real("payment_dates")
    accruals: Converted[Float[Array, "instruments payments"]] = real("accruals")
    rates: Converted[Vector] = real("rates")

    @classmethod
    def of_legs(cls, legs: Sequence[Leg], rates: Any) -> "ParSwaps":
        """Return swaps with the given fixed legs and par rates."""
        starts = [leg.start for leg in legs]
        dates = filled_in_front([leg.payment_dates for leg in legs], starts)
        accruals = filled_in_front([leg.accruals for leg in legs], [0.0] * len(legs))
        return cls(starts, dates, accruals, rates)

    def __check_init__(self):
        paid, accruals = self.payment_dates, self.accruals
        if paid.ndim != 2 or paid.shape != accruals.shape or 0 in paid.shape:
            raise ValueError(
                f"payment_dates of shape {paid.shape} and accruals of shape {accruals.shape}: give one row for "
                "each swap, with one accrual for each payment, shorter legs padded in front"
            )
        check_periods(self.start, self.ends, jnp.sum(accruals, axis=1), self.rates)

    @property
    def quotes(self) -> Any:
        return self.rates

    @property
    def ends(self) -> Vector:
        return self.payment_dates[:, -1]

    def misses(self, curve: ZeroCurve, beside: CurvesBeside) -> Vector:
        del beside
        paid = curve.discount(self.payment_dates)
        annuity = jnp.sum(self.accruals * paid, axis=1)
        return curve.discount(self.start) - paid[:, -1] - self.rates * annuity


def filled_in_front(rows: Sequence[np.ndarray], values: Sequence[float]) -> np.ndarray:
    """Return rows of equal length: shorter rows are padded in front with their value."""
    most = max(row.size for row in rows)
    pairs = zip(rows, values, strict=True)
    return np.array([np.pad(row, (most - row.size, 0), constant_values=x) for row, x in pairs])


def _growth(curve: ZeroCurve, start: Vector, end: Vector) -> Vector:
    """Return log(P(start) / P(end))."""
    return curve.zero_rate(end) * end - curve.zero_rate(start) * start


def check_periods(start: Array, end: Array, accruals: Array, quotes: Array) -> None:
    """Check that the periods of instruments are valid.

    Raises:
        ValueError: Shapes differ, or an instrument starts in the past, has no length or an accrual of 0.
    """
    shapes = [values.shape for values in (start, end, accruals, quotes)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1 or quotes.size == 0:
        given = ", ".join(map(str, shapes))
        raise ValueError(
            f"starts, ends, accruals and quotes have the shapes {given}: give one of each for each instrument, "
            "and at least one instrument"
        )
    if any(isinstance(values, Tracer) for values in (start, end, accruals)):
        return
    bad = (start < 0.0) | (end <= start) | (accruals <= 0.0)
    if np.any(bad):
        at = int(np.argmax(bad))
        raise ValueError(
            f"an instrument from {start[at]:g} to {end[at]:g} years accrues {accruals[at]:g}: give a start "
            "from today onwards, a later end, and a positive accrual"
        )
    check_accruals(start, end, accruals)
