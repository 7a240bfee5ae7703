"""Autocallable notes with barrier coupons and a knock-in, on one asset or the worst of several."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8
from pydantic import Field, field_validator

from ..fields import (
    Numeric,
    Word,
    above_zero,
    choice,
    dates,
    is_traced,
    non_negative,
    positive,
    word,
)
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number, numbers, problem
from ..market.observed import Observed
from .callable_note import CallableNote
from .discrete_barrier import DiscreteBarrier, Payoff
from .product import AbstractProduct, Real, check_levels
from .trade import (
    Aged,
    Coupons,
    IsoDate,
    IsoDates,
    Level,
    Notional,
    Spot,
    Trade,
    check_count,
    last_of,
    split_names,
)
from .watched import check_watch, first_touch

NO_OR_YES = {"no": 0, "yes": 1}
WATCHED = ("dates", "always")


class Autocallable(AbstractProduct):
    """A note that is redeemed early, with a coupon, on the first date with the spot at or above its call level.

    At dates[k] with spot >= call_level it pays notional * (1 + coupons[k]) and ends. If it was never redeemed,
    it pays at the last date the notional if spot >= protection, else notional * spot / initial_spot.

    With a `coupon_barrier` (a phoenix note) it pays notional * coupons[k] at every date up to its end with spot
    >= coupon_barrier, whether called or not; with memory, also the coupons missed before. With a `knock_in`,
    capital is lost below the protection only if the spot has touched that level. On several assets the worst
    performer counts: the spot of asset i is scaled by initial_spot over its own initial spot.

    Attributes:
        dates: The call dates in years, increasing, of shape (dates,).
        coupons: The coupon at each date as a fraction of the notional, of shape (dates,). A date with a coupon
            of 0 is not a coupon date: missed coupons are paid there only at redemption.
        call_level: The level of early redemption in units of the spot, above 0.
        protection: The level below which capital is lost, in units of the spot, above 0.
        initial_spot: The spot from which the loss is measured, above 0; for several assets, that of the first.
        notional: The notional in currency, above 0.
        call_steps: The call level at each date in units of `call_level`, of shape (dates,), infinity for no
            redemption; None for 1 on all dates.
        coupon_barrier: The level of the coupons in units of the spot, at most the call level of any coupon
            date; None for the call level.
        memory: "yes" if a coupon also pays the coupons missed before, else "no"; stored as a code.
        missed: The coupons already missed, as a fraction of the notional; 0 without memory.
        knock_in: The knock-in level in units of the spot, below all call levels; None if capital loss needs no
            knock-in.
        watched: When the knock-in is monitored, "dates" or "always"; each word compiles its own program.
            "always" is for one asset; a spot below the level today has touched it.
        other_initial_spots: The initial spots of all assets but the first, of shape (assets - 1,); None for a
            note on one asset.

    Raises:
        ValueError: Coupons or steps and dates differ in number, a level is given for each date, a level is not
            below the call level as required, or a knock-in on several assets is monitored always.

    Examples:
        >>> note = Autocallable([0.5, 1.0], [0.03, 0.06], 105.0, 80.0, 100.0)
        >>> [f"{float(paid):.2f}" for paid in note.canonical.paid_above]
        ['1.03', '1.06']
    """

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates")
    coupons: Numeric[Float[Array, "*batch dates"]] = non_negative("coupons", core=1)
    call_level: Numeric[Real] = positive("call_level")
    protection: Numeric[Real] = positive("protection")
    initial_spot: Numeric[Real] = positive("initial_spot")
    notional: Numeric[Real] = positive("notional", default=1.0)
    call_steps: Numeric[Float[Array, "*batch dates"] | None] = above_zero(
        "call_steps", core=1, optional=True, default=None
    )
    coupon_barrier: Numeric[Real | None] = positive("coupon_barrier", optional=True, default=None)
    memory: Word[Int8[Array, "..."]] = choice("memory", NO_OR_YES, default="no")
    missed: Numeric[Real] = non_negative("missed", default=0.0)
    knock_in: Numeric[Real | None] = positive("knock_in", optional=True, default=None)
    watched: str = word("watched", WATCHED, default="dates")
    other_initial_spots: Numeric[Float[Array, "*batch others"] | None] = positive(
        "other_initial_spots", core=1, optional=True, default=None
    )

    def __check_init__(self):
        levels = {"call_level": self.call_level, "protection": self.protection}
        optional = {"coupon_barrier": self.coupon_barrier, "knock_in": self.knock_in}
        levels |= {name: level for name, level in optional.items() if level is not None}
        check_levels(self.dates, **levels)
        for name, what in (("coupons", "coupon"), ("call_steps", "step")):
            given = getattr(self, name)
            if given is not None and given.shape[-1:] != self.dates.shape[-1:]:
                raise ValueError(
                    f"{name} of shape {list(given.shape)} and dates of shape {list(self.dates.shape)}: "
                    f"give one {what} for each date"
                )
        if self.watched == "always" and self.multi_asset and self.knock_in is not None:
            raise ValueError(
                "the knock-in of a note on several assets cannot be watched always: the "
                "distribution of the worst between dates is not known; give watched='dates' and "
                "more dates, with coupon 0 and call step inf"
            )
        if is_traced(tuple(vars(self).values())):
            return
        if self.coupon_barrier is None and np.any(np.asarray(self.memory) != 0):
            raise ValueError(
                "memory needs a coupon_barrier: give call_level for coupons that are paid only at "
                "redemption"
            )
        if np.any((np.asarray(self.missed) > 0.0) & (np.asarray(self.memory) == 0)):
            raise ValueError("missed coupons need memory: give memory='yes', or no missed coupons")
        steps = 1.0 if self.call_steps is None else np.asarray(self.call_steps)
        called = np.asarray(self.call_level)[..., None] * steps
        paying = np.where(np.asarray(self.coupons) > 0.0, called, np.inf)
        _check_below("coupon_barrier", self.coupon_barrier, paying, "not above")
        _check_below("knock_in", self.knock_in, called, "below")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def multi_asset(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.other_initial_spots is not None

    @property
    def _call_levels(self) -> Float[Array, "*batch dates"]:
        steps = jnp.ones_like(self.dates) if self.call_steps is None else self.call_steps
        return self.call_level[..., None] * steps

    @property
    def canonical(self) -> AbstractProduct:
        if self.coupon_barrier is None and self.knock_in is None and not self.multi_asset:
            return (
                self._barrier_on_dates
            )  # without a coupon_barrier, a coupon is paid only at redemption
        call = self._call_levels
        level = call if self.coupon_barrier is None else self.coupon_barrier[..., None]
        pays = self.coupons > 0.0
        nothing = jnp.zeros_like(self.initial_spot)
        knock_in = nothing if self.knock_in is None else self.knock_in
        first = self.initial_spot[..., None]
        others = () if self.other_initial_spots is None else (first / self.other_initial_spots,)
        one = jnp.ones_like(first)
        shapes = [x.shape[:-1] for x in others]
        one = jnp.broadcast_to(one, (*jnp.broadcast_shapes(one.shape[:-1], *shapes), 1))
        return CallableNote(
            self.dates,
            call_levels=call,
            coupon_levels=jnp.where(pays, level, call),
            coupons=self.notional[..., None] * self.coupons,
            memory=self.memory.astype(self.dates.dtype),
            missed=self.notional * self.missed,
            knock_in=knock_in[..., None] + jnp.zeros_like(call),
            needs_knock_in=nothing + (0.0 if self.knock_in is None else 1.0),
            protection=self.protection,
            initial=self.initial_spot,
            notional=self.notional,
            scales=jnp.concatenate([one, *others], axis=-1),
            added=nothing,
            all_times=self.watched == "always" and self.knock_in is not None,
            multi_asset=self.multi_asset,
        )

    @property
    def _barrier_on_dates(self) -> DiscreteBarrier:
        one = jnp.ones_like(self.notional)
        zero = 0.0 * one
        redeemed = self.notional[..., None] * (1.0 + self.coupons)
        lost = (self.protection, -one, self.notional / self.initial_spot, zero)
        kept = (self.protection, one, zero, self.notional)
        nowhere = jnp.zeros_like(redeemed)
        return DiscreteBarrier(
            self.dates,
            lower=nowhere,
            upper=self._call_levels + nowhere,
            paid_below=nowhere,
            paid_above=redeemed,
            alive=Payoff.sum(lost, kept),
            always=Payoff.sum((self.protection, one, zero, zero)),
        )


def _check_below(name: str, level: Array | None, tops: np.ndarray, relation: str) -> None:
    """Check that a level is below, or not above, the call levels.

    Raises:
        ValueError: The level is too high.
    """
    if level is None:
        return
    apart = np.asarray(level)[..., None]
    if np.any(apart > tops if relation == "not above" else apart >= tops):
        raise ValueError(
            f"{name} must be {relation} the call level of each date, got {level} and {np.min(tops):g}: lower "
            "it, or raise call_level or call_steps"
        )


_NEVER = 1000.0  # a call step of at least this is never reached


class AutocallableTrade(Trade):
    """A note redeemed on the first date with the spot, or the worst of several, at or above `barrier`.

    Coupons are paid at redemption, or at every date at or above `coupon_barrier`. At maturity it pays the
    notional if the spot is at or above `protection`, or never touched `knock_in`; else the notional times spot
    over `initial_spot`.
    """

    type = "autocallable"
    product = Autocallable
    renamed: ClassVar[dict[str, str]] = {"dates": "exercise_dates", "call_level": "barrier"}
    neutral = ("memory", "missed", "watched")
    dates_name = "exercise_dates"
    drops_dates = True

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-03-18|2003-06-15")
    coupons: Coupons = Field(description="coupons, one for each date, such as 0.05|0.1")
    barrier: Level = Field(description="a barrier > 0, the level of the early redemption")
    protection: Level = Field(description="a protection > 0, the level below which capital is lost")
    initial_spot: Spot = Field(description="an initial_spot > 0")
    notional: Notional = 1.0
    call_steps: Annotated[tuple[float, ...], numbers("call step", above=0.0)] | None = None
    coupon_barrier: Level | None = None
    memory: Annotated[str, one_of(*NO_OR_YES)] = "no"
    missed: Annotated[float, number("missed coupon", least=0.0, likely=5.0)] = 0.0
    knock_in: Level | None = None
    watched: Annotated[str, one_of(*WATCHED)] = "dates"
    other_initial_spots: Annotated[tuple[float, ...], numbers("spot", above=0.0)] | None = None
    start: IsoDate | None = None
    knocked: IsoDate | None = None
    expiry: IsoDate = last_of("exercise_dates")

    @property
    def underlyings(self) -> tuple[str, ...]:
        return split_names(self.underlying)

    @property
    def level(self) -> float:
        return self.barrier

    @property
    def shape(self) -> Any:
        kinds = (self.call_steps, self.coupon_barrier, self.knock_in)
        return len(self.underlyings), self.watched, *(kind is None for kind in kinds)

    @field_validator("underlying", mode="after")
    @classmethod
    def _are_named(cls, value: str) -> str:
        return "|".join(split_names(value))

    def check(self) -> None:
        others = self.underlyings[1:]
        if odd := [step for step in self.call_steps or () if 10.0 < step < _NEVER]:
            message = f"{odd[0]:g} is {odd[0]:.0%}, too large for a call step"
            hint = f"give a decimal, such as {odd[0] / 100:g}, or {_NEVER:g} for no redemption"
            raise problem(message, hint, "call_steps")
        check_watch(self.expiry, self.start, knocked=self.knocked)
        check_count(self.coupons, self.exercise_dates, "coupons", "exercise_dates")
        check_count(self.call_steps, self.exercise_dates, "call_steps", "exercise_dates")
        if others or self.other_initial_spots:
            check_count(
                self.other_initial_spots or (), others, "other_initial_spots", "other equities"
            )
        if self.coupon_barrier is None and self.memory == "yes":
            message = "coupons paid only at redemption have no memory"
            raise problem(
                message, "give a coupon_barrier, such as that of the redemption", "memory"
            )
        if self.missed and self.memory == "no":
            message = "missed coupons are given, but the note has no memory"
            raise problem(message, "give memory = yes, or no missed coupons", "missed")
        if others and self.knock_in is not None and self.watched == "always":
            message = "the knock-in of several equities cannot be watched always"
            raise problem(message, "give watched = dates, and the dates", "watched")
        steps = self.call_steps or (1.0,) * len(self.exercise_dates)
        for step, coupon in zip(steps, self.coupons, strict=True):
            called = step * self.barrier
            if self.coupon_barrier is not None and coupon and self.coupon_barrier > called:
                message = f"the coupon_barrier is above a call level, {called:g}"
                raise problem(message, "give one that is not above", "coupon_barrier")
            if self.knock_in is not None and self.knock_in >= called:
                message = f"the knock_in is not below a call level, {called:g}"
                raise problem(message, "give one below", "knock_in")

    def aged(self, observed: Observed) -> Aged:
        knock = self.knocked
        if knock is None or knock > observed.until:
            knock = self._first_knock(observed)
        cash, missed, level = 0.0, self.missed, 0.0
        past = [day for day in self.exercise_dates if day <= observed.until]
        for day, called, coupon in zip(past, self._call_levels(), self.coupons, strict=False):
            level = self._worst(observed, day)
            is_called = level >= called
            pays = coupon > 0.0 and self.coupon_barrier is not None
            if is_called or (pays and level >= self.coupon_barrier):  # pyright: ignore
                paid, missed = self.notional * (coupon + missed), 0.0
            else:
                paid = 0.0
                missed += coupon if self.memory == "yes" else 0.0
            is_last = is_called or day == self.expiry
            cash += paid if is_last or day > observed.since else 0.0
            if is_called:
                return Aged(cash + self.notional, None, "called", day)
        is_lost = level < self.protection and (self.knock_in is None or knock is not None)
        if self.expiry <= observed.until:
            share = level / self.initial_spot if is_lost else 1.0
            return Aged(cash + self.notional * share, None, "expired", self.expiry)
        changes: dict[str, Any] = {"missed": missed}
        if self.knock_in is not None and knock is not None:
            changes |= {"knock_in": None, "knocked": None, "start": None, "watched": "dates"}
        left = self._as(type(self), **changes)
        if past:
            steps = self.call_steps and self.call_steps[len(past) :]
            rest = {"coupons": self.coupons[len(past) :], "call_steps": steps}
            left = left._with_dates(observed.until, **rest)
        event = "knocked in" if "knock_in" in changes else ""
        return Aged(cash, left, event, knock if event else None)

    def _worst(self, observed: Observed, day: date) -> float:
        """Return the spot of the worst performer, scaled to the initial spot of the first asset."""
        firsts = (self.initial_spot, *(self.other_initial_spots or ()))
        spots = zip(self.underlyings, firsts, strict=True)
        return min(observed.spot(name, day) * self.initial_spot / first for name, first in spots)

    def _call_levels(self) -> Iterator[float]:
        steps = self.call_steps or (1.0,) * len(self.exercise_dates)
        return (step * self.barrier for step in steps)

    def _first_knock(self, observed: Observed) -> date | None:
        """Return the first known day on which the knock-in was touched, or None."""
        level = self.knock_in
        if level is None:
            return None
        if self.watched == "always":
            touches = lambda spot: spot <= level
            return first_touch(observed, self.underlying, self.start, self.expiry, touches)
        days = (day for day in self.exercise_dates if day <= observed.until)
        return next((day for day in days if self._worst(observed, day) <= level), None)
