"""Options that end outside two barriers."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, non_negative, positive
from ..ingestion.fields import problem
from ..market.observed import Observed
from .barrier_option import BarrierOption
from .discrete_barrier import DiscreteBarrier, Payoff, discrete_barrier
from .european import European
from .product import CALL_OR_PUT, check_levels
from .trade import Aged, IsoDate, IsoDates, Level, OptionTrade, Rebate, last_of
from .watched import check_watch


class DoubleBarrier(BarrierOption):
    """A European option that ends when the spot is outside (lower, upper) on one of its dates.

    Attributes:
        strike: The strike in units of the spot, above 0.
        lower: The lower barrier in units of the spot, above 0.
        upper: The upper barrier in units of the spot, above the lower one.
        dates: The monitoring dates in years, the expiry last, of shape (dates,).
        option: The word "call" (side = +1) or "put" (side = -1), kept as that code.
        rebate: The payment at the hit, in currency, not below 0.

    Raises:
        ValueError: If the lower barrier is not below the upper one, or one is given for each date.

    Examples:
        >>> option = DoubleBarrier(100.0, 80.0, 125.0, [0.5, 1.0])
        >>> bool(option.is_inside(130.0))
        False
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    lower: Numeric[Float[Array, "..."]] = positive("lower")
    upper: Numeric[Float[Array, "..."]] = positive("upper")
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    rebate: Numeric[Float[Array, "..."]] = non_negative("rebate", default=0.0)

    def __check_init__(self):
        check_levels(self.dates, lower=self.lower, upper=self.upper)
        known = not isinstance(self.lower, Tracer) and not isinstance(self.upper, Tracer)
        if known and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def monitoring_dates(self) -> Float[Array, "*batch dates"]:
        return self.dates

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        return jnp.zeros_like(self.strike, bool)

    @property
    def vanilla(self) -> European:
        return European(self.strike, self.expiry, self.option)

    def is_inside(self, spot: Float[Array, "..."]) -> Bool[Array, "..."]:
        return (self.lower < spot) & (spot < self.upper)

    @property
    def canonical(self) -> DiscreteBarrier:
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
    """A European option that ends if the spot is not between two barriers on one of some dates."""

    type = "double_knock_out"
    product = DoubleBarrier
    renamed: ClassVar[dict[str, str]] = {"dates": "monitoring_dates"}
    neutral = ("rebate",)
    dates_name = "monitoring_dates"
    drops_dates = True

    lower: Level = Field(description="a lower barrier > 0")
    upper: Level = Field(description="an upper barrier > lower")
    rebate: Rebate = 0.0
    monitoring_dates: IsoDates = Field(
        description="monitoring_dates, such as 2003-03-18|2003-06-15"
    )
    expiry: IsoDate = last_of("monitoring_dates")
    knocked: IsoDate | None = None

    def check(self) -> None:
        if self.lower >= self.upper:
            message = (
                f"the upper barrier, {self.upper:g}, is not above the lower one, {self.lower:g}"
            )
            raise problem(message, "give an upper barrier > lower", "upper")
        check_watch(self.expiry, None, knocked=self.knocked)

    def aged(self, observed: Observed) -> Aged:
        if self.knocked is not None and self.knocked <= observed.until:
            return Aged(self.rebate, None, "knocked out", self.knocked)
        past = [day for day in self.monitoring_dates if day <= observed.until]
        spots = [observed.spot(self.underlying, day) for day in past]
        for day, spot in zip(past, spots, strict=True):
            if not self.lower < spot < self.upper:
                return Aged(self.rebate, None, "knocked out", day)
        if self.expiry <= observed.until:
            return Aged(self.intrinsic(spots[-1]), None, "expired", self.expiry)
        return Aged(0.0, self._with_dates(observed.until))
