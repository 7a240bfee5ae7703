"""Swaps as they are entered, and rights to enter them: the abilities."""

import abc
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from ..fields import is_traced
from ..market.state import MarketState
from ..time_order import check_order
from .exercise import Exercisable
from .product import AbstractProduct, side_of

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # to checkers of types no argument of `__init__`
else:
    from equinox import AbstractVar

PAYER_OR_RECEIVER = {"payer": 1, "receiver": -1}

# Years: a payment that is later than a date by less than this is on that date, but for rounding.
_SAME_DAY = 1e-4


class SwapEntry(AbstractProduct):
    """Ability: at one date or more a swap is entered, or may be.

    Entered at t, the swap exchanges fixed coupons, coupon_rate * accrual_i at every payment date after t,
    for a floating leg that is worth 1 - P(t, last payment date); the payer pays the fixed leg.

    Attributes:
        payment_dates: The payment dates of the fixed leg in years, of shape (payments,).
        accruals: The year fraction of each coupon, of shape (payments,).
        side: +1 for a payer of the fixed leg, -1 for a receiver.
        notional: The notional in currency.

    Raises:
        ValueError: If accruals and payment dates differ in number, or no payment is left after the last
            entry.

    Examples:
        >>> from pricing import Swap
        >>> Swap(0.03, 0.5, [1.5, 2.5], [1.0, 1.0]).entry_dates.tolist()
        [0.5]
    """

    payment_dates: AbstractVar[Float[Array, "*#batch payments"]]
    accruals: AbstractVar[Float[Array, "*#batch payments"]]
    side: AbstractVar[Int8[Array, "..."]]
    notional: AbstractVar[Float[Array, "..."]]

    @property
    @abc.abstractmethod
    def coupon_rate(self) -> Float[Array, "..."]:
        """The fixed rate, per year."""

    @property
    @abc.abstractmethod
    def entry_dates(self) -> Float[Array, "*#batch entries"]:
        """The times at which the swap may be entered, in years, of shape (entries,)."""

    @property
    def sign(self) -> Float[Array, "..."]:
        """+1 for a payer, -1 for a receiver."""
        return side_of(self.side, self.notional)

    def payments(
        self, entry: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, " payments"]]:
        """Return the value of a swap entered at `entry` as payments: at once, and at each payment date."""
        at_once = self.sign * self.notional
        last = jnp.zeros_like(self.accruals).at[-1].set(1.0)
        due = jnp.where(self.payment_dates > entry + _SAME_DAY, 1.0, 0.0).astype(last.dtype)
        return at_once, -at_once * due * (self.coupon_rate * self.accruals + last)

    def __check_init__(self):
        paid, accruals = self.payment_dates, self.accruals
        if paid.shape[-1:] != accruals.shape[-1:]:
            raise ValueError(
                f"payment_dates of shape {list(paid.shape)} and accruals of shape {list(accruals.shape)}: "
                "give one accrual for each payment date"
            )
        if is_traced((paid, self.entry_dates, accruals)):
            return
        last = (np.asarray(dates)[..., -1] for dates in (self.entry_dates, paid))
        entries, ends = map(np.ravel, np.broadcast_arrays(*last))
        late = entries >= ends - _SAME_DAY
        if late.any():
            entry, end = entries[late][0], ends[late][0]
            raise ValueError(
                f"the swap may be entered at {entry:g}, and its last payment is at {end:g}: nothing would be "
                "left to exchange; give dates before the last payment"
            )


def check_coupons(swap: SwapEntry) -> None:
    """Refuse the coupons of a swap before its one start, which would never be paid, unless they are traced."""
    if is_traced((swap.accruals, swap.payment_dates)):
        return
    paid = np.where(np.asarray(swap.accruals) > 0.0, np.asarray(swap.payment_dates), np.inf)
    remedy = "give the payments of the swap that begins then"
    check_order("the start", swap.entry_dates, "a coupon is paid", paid, remedy)


class SwapOption(SwapEntry, Exercisable):
    """Ability: the right to enter a swap; exercising pays the value of the swap then.

    Attributes:
        strike: The fixed rate of the swap, per year.
    """

    strike: AbstractVar[Float[Array, "..."]]

    @property
    def coupon_rate(self) -> Float[Array, "..."]:
        return self.strike

    @property
    def has_own_payoff(self) -> bool:
        return type(self).exercise_value is not SwapOption.exercise_value

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        del num_dates
        return self.entry_dates

    def exercise_value(self, t: Float[Array, ""], market: MarketState) -> Float[Array, ""]:
        assert market.bonds is not None
        at_once, payments = self.payments(t)
        return at_once + payments @ market.bonds(self.payment_dates)
