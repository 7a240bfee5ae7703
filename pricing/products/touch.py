"""One-touch and no-touch contracts: cash paid if a barrier is, or is never, touched."""

import abc
from typing import TYPE_CHECKING, Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, positive, real, time
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number
from ..market.observed import Observed
from .barrier_option import BarrierOption, SingleBarrier
from .european import European
from .fixed_payments import PendingTrade
from .product import CALL_OR_PUT, Real, side_of
from .trade import Aged, IsoDate, Level, Trade
from .watched import check_watch, first_touch

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

TOUCH_KINDS = {"one-touch": 0, "one-touch-at-expiry": 1, "no-touch": 2}
TOUCHED_FROM = {"above": 1, "below": -1}


class PaidByTouch(BarrierOption):
    """The common part of touch contracts with one or two barriers: the payment and its time.

    Attributes:
        kind: The code of a word of `TOUCH_KINDS`.
        amount: The amount, in currency.
    """

    kind: AbstractVar[Int8[Array, "..."]]
    amount: AbstractVar[Real]

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        return jnp.asarray(self.kind == TOUCH_KINDS["one-touch-at-expiry"])

    @property
    def rebate(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        at_hit = jnp.asarray(self.kind == TOUCH_KINDS["one-touch"])
        return jnp.where(at_hit, self.amount, jnp.zeros_like(self.amount))

    @property
    def cash(self) -> Real:
        return self.amount - self.rebate

    @property
    def monitoring_dates(self) -> None:
        return None


class Touch(PaidByTouch, SingleBarrier):
    """Pays an amount if the spot touches a barrier by expiry, or if it never does; monitored continuously.

    A one-touch pays at the hit, a one-touch-at-expiry and a no-touch at expiry. A spot that is on or beyond the
    barrier today has touched it.

    Attributes:
        barrier: The barrier in units of the spot, above 0.
        expiry: The end of the monitoring in years, above 0.
        kind: One of "one-touch", "one-touch-at-expiry" and "no-touch", stored as a code.
        touched_from: The word "below" (the barrier is above the spot) or "above", stored as a code.
        amount: The amount, in currency.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> found = price(Touch(110.0, 1.0, "no-touch"), BlackScholes(100.0, 0.03, 0.2))
        >>> f"{found.value:.4f}"
        '0.3409'
    """

    barrier: Numeric[Float[Array, "..."]] = positive("barrier")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    kind: Word[Int8[Array, "..."]] = choice("kind", TOUCH_KINDS, default="one-touch")
    touched_from: Word[Int8[Array, "..."]] = choice("touched_from", TOUCHED_FROM, default="below")
    amount: Numeric[Float[Array, "..."]] = real("amount", default=1.0)

    @property
    def strike(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.barrier

    @property
    def side(self) -> Real:
        return self.barrier_direction

    @property
    def barrier_direction(self) -> Real:
        return side_of(self.touched_from, self.barrier)

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.expiry, self.barrier

    @property
    def vanilla(self) -> European:
        return European(self.barrier, self.expiry, jnp.full_like(self.kind, CALL_OR_PUT["call"]))


class TouchingTrade(Trade):
    """The row of a touch contract.

    Attributes:
        expiry: The last day.
        touch_kind: One of the words of `TOUCH_KINDS`.
        amount: The amount of one contract, in currency.
        start: The first day, or None.
        knocked: The day of the touch, or None.
    """

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    touch_kind: Annotated[str, one_of(*TOUCH_KINDS)] = Field(
        description="a touch_kind: one-touch, one-touch-at-expiry or no-touch"
    )
    amount: Annotated[float, number("amount", above=0.0)] = 1.0
    start: IsoDate | None = None
    knocked: IsoDate | None = None

    def check(self) -> None:
        check_watch(self.expiry, self.start, knocked=self.knocked)

    def aged(self, observed: Observed) -> Aged:
        hit = self.knocked
        if hit is None or hit > observed.until:
            hit = first_touch(observed, self.underlying, self.start, self.expiry, self.touches)
        if hit is not None and self.touch_kind != "one-touch-at-expiry":
            is_paid = self.touch_kind == "one-touch"
            return Aged(self.amount if is_paid else 0.0, None, "knocked out", hit)
        if self.expiry <= observed.until:
            is_paid = hit is not None or self.touch_kind == "no-touch"
            return Aged(self.amount if is_paid else 0.0, None, "expired", self.expiry)
        if hit is not None:
            sure = self._as(PendingTrade, amounts=(self.amount,))
            return Aged(0.0, sure, "knocked in", hit)
        return Aged(0.0, self)

    @abc.abstractmethod
    def touches(self, spot: float) -> bool:
        """Return True if a spot is on or beyond a barrier."""


class TouchTrade(TouchingTrade):
    """Cash that is paid if an equity touches a barrier at any time up to expiry, or if it never does."""

    type = "touch"
    product = Touch
    renamed: ClassVar[dict[str, str]] = {"kind": "touch_kind"}
    neutral = ("amount",)

    barrier: Level = Field(description="a barrier > 0")
    touched_from: Annotated[str, one_of(*TOUCHED_FROM)] = Field(
        description="a touched_from: below (the barrier is above the spot) or above"
    )

    @property
    def level(self) -> float:
        return self.barrier

    def touches(self, spot: float) -> bool:
        from_below = self.touched_from == "below"
        return spot >= self.barrier if from_below else spot <= self.barrier
