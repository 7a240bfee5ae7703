"""Swaps and rights to enter them: the abilities."""

import abc
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from ..fields import is_traced
from ..market.state import MarketState
from ..time_order import check_order
from .exercise_rights import Exercisable
from .product import AbstractProduct, side_of

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

PAYER_OR_RECEIVER = {"payer": 1, "receiver": -1}

# Years: a payment later than a date by less than this is on that date, up to rounding.
SAME_DAY = 1e-4


class EntryTerms(NamedTuple):
    """The terms of the swap entered at a date.

    Attributes:
        start: The start of the swap in years.
        accrued: The year fraction of its first coupon before the start, which is not paid.
    """

    start: Float[Array, ""]
    accrued: Float[Array, ""] | float = 0.0


class SwapEntry(AbstractProduct):
    """Ability: a swap is, or may be, entered at one or more dates.

    A swap that starts at s exchanges fixed coupons, coupon_rate * accrual_i at every payment date after s, for
    a floating leg worth P(t, s) - P(t, last payment date). The payer pays the fixed leg.

    Attributes:
        payment_dates: The payment dates of the fixed leg in years, of shape (payments,).
        accruals: The year fraction of each coupon, of shape (payments,).
        side: +1 for a payer of the fixed leg, -1 for a receiver.
        notional: The notional in currency.

    Raises:
        ValueError: Accruals and payment dates differ in number, or no payment follows the last entry.

    Examples:
        >>> from pricing import Swap
        >>> times, amounts = Swap(0.03, 0.5, [1.5, 2.5], [1.0, 1.0]).payments(0.5)
        >>> [f"{float(amount):.2f}" for amount in amounts]
        ['1.00', '-0.03', '-1.03']
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

    def terms_at(self, entry: Float[Array, ""]) -> EntryTerms:
        """Return the terms of the swap that is entered, and starts, at an entry date."""
        return EntryTerms(entry)

    @property
    def last_start(self) -> Float[Array, "..."]:
        """The start, in years, of the swap of the last entry date."""
        return self.entry_dates[..., -1]

    def payments(
        self, entry: Float[Array, ""]
    ) -> tuple[Float[Array, " all"], Float[Array, " all"]]:
        """Return times and amounts of the swap entered at `entry`: its start, then each payment date."""
        start, accrued = self.terms_at(entry)
        notional = self.sign * self.notional
        last = jnp.zeros_like(self.accruals).at[-1].set(1.0)
        due = self.payment_dates > start + SAME_DAY
        first = jnp.diff(due, prepend=False).astype(last.dtype)
        accruals = self.accruals - accrued * first
        later = -notional * due.astype(last.dtype) * (self.coupon_rate * accruals + last)
        times = jnp.concatenate([jnp.atleast_1d(start), self.payment_dates])
        return times, jnp.concatenate([jnp.atleast_1d(notional), later])

    def __check_init__(self):
        paid, accruals = self.payment_dates, self.accruals
        if paid.shape[-1:] != accruals.shape[-1:]:
            raise ValueError(
                f"payment_dates of shape {list(paid.shape)} and accruals of shape {list(accruals.shape)}: "
                "give one accrual for each payment date"
            )
        if is_traced((paid, self.last_start, accruals)):
            return
        last = self.last_start, np.asarray(paid)[..., -1]
        starts, ends = map(np.ravel, np.broadcast_arrays(*map(np.asarray, last)))
        late = starts >= ends - SAME_DAY
        if late.any():
            start, end = starts[late][0], ends[late][0]
            raise ValueError(
                f"the swap may be entered at {start:g}, and its last payment is at {end:g}: nothing would be "
                "left to exchange; give dates before the last payment"
            )


def check_coupons(swap: SwapEntry) -> None:
    """Refuse coupons before the start of a swap, which would never be paid; traced dates are not checked."""
    if is_traced((swap.accruals, swap.payment_dates)):
        return
    paid = np.where(np.asarray(swap.accruals) > 0.0, np.asarray(swap.payment_dates), np.inf)
    remedy = "give the payments of the swap that begins then"
    check_order("the start", swap.last_start[..., None], "a coupon is paid", paid, remedy)


class SwapOption(SwapEntry, Exercisable):
    """Ability: the right to enter a swap; exercise pays the value of the swap.

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
        times, amounts = self.payments(t)
        return amounts @ market.bonds(times)

    def check_starts(self, starts: Array | None) -> None:
        """Check that no swap starts before its exercise date.

        Args:
            starts: The start, in years, of the swap of each entry date, or None.

        Raises:
            ValueError: A swap starts before its exercise date.
        """
        entries = self.entry_dates
        if starts is None or is_traced((starts, entries)):
            return
        if np.any(np.asarray(starts) < np.asarray(entries) - SAME_DAY):
            raise ValueError(
                f"a swap starts at {np.asarray(starts).tolist()}, and is entered at "
                f"{np.asarray(entries).tolist()}: give starts that are not before the exercise dates"
            )
