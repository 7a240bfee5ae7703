"""Lookback options on the highest or lowest spot, monitored continuously or on dates."""

from datetime import date
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, positive, time
from ..ingestion.field_types import number
from ..market.observed import Observed
from ..numerics.safe_math import larger
from .path_claim import PaddedPathClaim
from .product import CALL_OR_PUT, Real, check_last_date, side_of
from .trade import Aged, IsoDate, IsoDates, OptionTrade
from .watched import check_watch, days_watched


class Lookback(PaddedPathClaim):
    """A lookback option, whose payoff depends on the highest spot M or the lowest spot m over its life.

    Without a strike, a call pays S_T - m and a put M - S_T. With a strike, a call pays max(M - strike, 0) and a
    put max(strike - m, 0).

    Attributes:
        expiry: The time of payment in years, above 0.
        strike: The strike in units of the spot, above 0; None for a floating strike.
        option: The word "call" or "put", stored as a code.
        dates: The monitoring dates in years, the expiry last, of shape (dates,). None means continuous
            monitoring from today.
        extreme: The extreme so far, M or m, in units of the spot; None if there is none yet.

    Raises:
        ValueError: The last date is not the expiry.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> f"{price(Lookback(0.5, 95.0), BlackScholes(100.0, 0.1, 0.1)).value:.4f}"
        '13.2687'
    """

    has_jumps: ClassVar[bool] = False

    expiry: Numeric[Real] = time("expiry")
    strike: Numeric[Real | None] = positive("strike", optional=True, default=None)
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    dates: Numeric[Float[Array, "*batch dates"] | None] = dates(
        "dates", optional=True, repeated=True, default=None
    )
    extreme: Numeric[Real | None] = positive("extreme", optional=True, default=None)

    def __check_init__(self):
        check_last_date(self.dates, self.expiry)

    @property
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.expiry)

    @property
    def reads_highest(self) -> Bool[Array, "..."]:
        """Whether the payoff depends on the highest spot instead of the lowest."""
        floats = self.strike is None
        return jnp.asarray(self.side < 0.0 if floats else self.side > 0.0)

    @property
    def smile_point(self) -> tuple[Real, Real] | None:
        return None if self.strike is None else (self.expiry, self.strike)

    @property
    def all_times(self) -> bool:
        return self.dates is None

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        sign = jnp.where(self.reads_highest, 1.0, -1.0).astype(spots.dtype)
        count = spots.shape[0]
        extreme = sign * spots[0]
        for k in range(1, count):
            extreme = larger(extreme, sign * spots[k])
        if self.extreme is not None:
            extreme = larger(extreme, sign * self.extreme)
        extreme = sign * extreme
        if self.strike is None:
            return self.side * (spots[-1] - extreme)
        return larger(self.side * (extreme - self.strike), 0.0)


class LookbackTrade(OptionTrade):
    """An option with a fixed or floating strike on the highest or lowest spot, at all times or on dates."""

    type = "lookback"
    product = Lookback
    renamed: ClassVar[dict[str, str]] = {"dates": "monitoring_dates"}
    dates_name = "monitoring_dates"
    drops_dates = True

    strike: Annotated[float, number("strike", above=0.0)] | None = None  # pyright: ignore
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    monitoring_dates: IsoDates | None = None
    extreme: Annotated[float, number("extreme", above=0.0)] | None = None
    start: IsoDate | None = None

    @property
    def shape(self) -> tuple[bool, ...]:
        given = self.strike, self.monitoring_dates, self.extreme
        return tuple(each is None for each in given)

    def check(self) -> None:
        check_watch(self.expiry, self.start, self.monitoring_dates)

    def aged(self, observed: Observed) -> Aged:
        days = self._days_that_count(observed)
        spots = [observed.spot(self.underlying, day) for day in days]
        highest = (self.option == "call") == (self.strike is not None)
        so_far = [*spots, *(() if self.extreme is None else (self.extreme,))]
        extreme = (max if highest else min)(so_far) if so_far else None
        if self.expiry > observed.until:
            left = self if extreme is None else self._as(type(self), extreme=extreme)
            return Aged(0.0, left._with_dates(observed.until))
        assert extreme is not None
        spot = observed.spot(self.underlying, self.expiry)
        of_spot = spot - extreme if self.option == "call" else extreme - spot
        paid = of_spot if self.strike is None else self.intrinsic(extreme)
        return Aged(paid, None, "expired", self.expiry)

    def _days_that_count(self, observed: Observed) -> tuple[date, ...]:
        """Return the past monitoring days; with continuous monitoring, the known days since the start."""
        if self.monitoring_dates is not None:
            return tuple(day for day in self.monitoring_dates if day <= observed.until)
        days = days_watched(observed, self.underlying, self.start, self.expiry)
        if self.start is None:  # earlier spots are in `extreme`
            days = tuple(day for day in days if day >= observed.since or day == self.expiry)
        return days
