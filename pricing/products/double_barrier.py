"""Double-barrier knock-out options."""

from datetime import date
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, non_negative, positive, time
from ..ingestion.field_types import problem
from ..market.observed import Observed
from .barrier_option import TwoBarriers
from .discrete_barrier import Payoff, discrete_barrier
from .european import European
from .product import CALL_OR_PUT, AbstractProduct, Real, check_last_date, check_levels, side_of
from .trade import Aged, IsoDate, IsoDates, Level, OptionTrade, Rebate, last_of
from .watched import check_corridor, check_watch, first_touch


class DoubleBarrier(TwoBarriers):
    """A European option that ends when the spot is outside (lower, upper), on dates or continuously.

    Attributes:
        strike: The strike in units of the spot, above 0.
        lower: The lower barrier in units of the spot, above 0.
        upper: The upper barrier in units of the spot, above the lower one.
        dates: The monitoring dates in years, the expiry last, of shape (dates,). None means continuous
            monitoring from today to `until`, so that a spot already outside has ended the option.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        rebate: The payment at the hit, in currency, at least 0.
        until: The expiry in years, above 0, for an option without dates.

    Raises:
        ValueError: The lower barrier is not below the upper one, a barrier is given for each date, or neither
            dates nor `until` is given.

    Examples:
        >>> option = DoubleBarrier(100.0, 80.0, 125.0, [0.5, 1.0])
        >>> bool(option.is_inside(130.0))
        False
        >>> from pricing import BlackScholes, price
        >>> always = DoubleBarrier(100.0, 80.0, 125.0, until=1.0)
        >>> f"{price(always, BlackScholes(100.0, 0.03, 0.2)).value:.3f}"
        '2.028'
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    lower: Numeric[Float[Array, "..."]] = positive("lower")
    upper: Numeric[Float[Array, "..."]] = positive("upper")
    dates: Numeric[Float[Array, "*batch dates"] | None] = dates(
        "dates", optional=True, default=None
    )
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    rebate: Numeric[Float[Array, "..."]] = non_negative("rebate", default=0.0)
    until: Numeric[Float[Array, "..."] | None] = time("until", optional=True, default=None)

    def __check_init__(self):
        if self.dates is None and self.until is None:
            raise ValueError(
                "there is no expiry: give dates, or until=1.0 to be watched at all times"
            )
        check_levels(self.dates, lower=self.lower, upper=self.upper)
        if self.until is not None:
            check_last_date(self.dates, self.until)
        known = not isinstance(self.lower, Tracer) and not isinstance(self.upper, Tracer)
        if known and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    @property
    def expiry(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.dates is not None:
            return self.dates[..., -1]
        assert self.until is not None
        return self.until

    @property
    def side(self) -> Real:
        return side_of(self.option, self.strike)

    @property
    def monitoring_dates(self) -> Float[Array, "*batch dates"] | None:
        return self.dates

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.expiry, self.strike

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        return jnp.zeros_like(self.strike, bool)

    @property
    def vanilla(self) -> European:
        return European(self.strike, self.expiry, self.option)

    @property
    def canonical(self) -> AbstractProduct:
        if self.dates is None:
            return self
        zero = jnp.zeros_like(self.strike)
        claim = (self.strike, self.vanilla.side, *self.vanilla.units)
        nothing = (self.strike, zero + 1.0, zero, zero)
        return discrete_barrier(
            self.dates,
            lower=self.lower,
            upper=self.upper,
            paid_below=self.rebate,
            paid_above=self.rebate,
            alive=Payoff.sum(claim, nothing),
            always=Payoff.sum(nothing),
        )


class DoubleBarrierTrade(OptionTrade):
    """A European option that ends if the spot is not between two barriers, on dates or continuously."""

    type = "double_knock_out"
    product = DoubleBarrier
    renamed: ClassVar[dict[str, str]] = {"dates": "monitoring_dates", "until": "expiry"}
    neutral = ("rebate",)
    dates_name = "monitoring_dates"
    drops_dates = True

    lower: Level = Field(description="a lower barrier > 0")
    upper: Level = Field(description="an upper barrier > lower")
    rebate: Rebate = 0.0
    monitoring_dates: IsoDates | None = None
    expiry: IsoDate = last_of("monitoring_dates")
    start: IsoDate | None = None
    knocked: IsoDate | None = None

    def check(self) -> None:
        check_corridor(self.lower, self.upper)
        if self.expiry is None:
            raise problem(
                "there is neither an expiry nor a list of monitoring_dates",
                "give an expiry, YYYY-MM-DD, to be watched at all times, or monitoring_dates",
                "expiry",
            )
        check_watch(self.expiry, self.start, self.monitoring_dates, self.knocked)

    def aged(self, observed: Observed) -> Aged:
        hit = self.knocked
        if hit is None or hit > observed.until:
            hit = self._first_outside(observed)
        if hit is not None:
            return Aged(self.rebate, None, "knocked out", hit)
        if self.expiry <= observed.until:
            return Aged(self.payoff(observed), None, "expired", self.expiry)
        return Aged(0.0, self._with_dates(observed.until))

    def payoff(self, observed: Observed) -> float:
        return self.intrinsic(observed.spot(self.underlying, self.expiry))

    def _first_outside(self, observed: Observed) -> date | None:
        """Return the first known day on which the spot was not between the barriers, or None."""
        outside = lambda spot: not self.lower < spot < self.upper
        if self.monitoring_dates is None:
            return first_touch(observed, self.underlying, self.start, self.expiry, outside)
        past = (day for day in self.monitoring_dates if day <= observed.until)
        spots = [(day, observed.spot(self.underlying, day)) for day in past]
        return next((day for day, spot in spots if outside(spot)), None)
