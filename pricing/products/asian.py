"""Options on the average of one asset's spots over dates."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, positive, word
from ..ingestion.field_types import choice as one_of
from ..market.observed import Observed
from .average import Average, AverageClaim
from .average_forward import AverageForward
from .product import CALL_OR_PUT, CallOrPut
from .trade import Aged, Column, IsoDate, IsoDates, OptionTrade, last_of


class Asian(CallOrPut, Average):
    """An Asian option pays max(side * (A - strike), 0) at its last date, with A the average spot on the dates.

    Attributes:
        strike: The strike in units of the spot, above 0.
        dates: The observation times in years, increasing, of shape (dates,); the first may be today.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        average: The word "arithmetic" or "geometric"; each word compiles its own program.

    Examples:
        >>> float(Asian(100.0, [0.25, 0.5]).expiry)
        0.5
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", today=True)
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    def weights_of(self, num_spots: int) -> Float[Array, " spots"]:
        return jnp.full(num_spots, 1.0 / num_spots, self.strike.dtype)

    @property
    def canonical(self) -> AverageClaim:
        weights = jnp.broadcast_to(self.weights_of(self.dates.shape[-1]), self.dates.shape)
        return AverageClaim(
            strike=self.strike,
            dates=self.dates,
            side=self.side,
            weights=weights,
            average=self.average,
            added=jnp.zeros_like(self.strike),
        )


class AsianTrade(OptionTrade):
    """A call or put on the average of an equity's spots on some dates."""

    type = "asian"
    product = Asian
    renamed: ClassVar[dict[str, str]] = {"dates": "averaging_dates"}
    neutral = ("average",)
    dates_name = "averaging_dates"

    averaging_dates: IsoDates = Field(description="averaging_dates, such as 2003-03-18|2003-06-15")
    average: Annotated[str, one_of("arithmetic", "geometric")] = "arithmetic"
    expiry: IsoDate = last_of("averaging_dates")

    @property
    def shape(self) -> str:
        return self.average

    @property
    def num_fixings(self) -> int:
        """The number of fixings of the whole average, past ones included."""
        return len(self.averaging_dates)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each remaining date."""
        return (1.0 / self.num_fixings,) * len(self.averaging_dates)

    def aged(self, observed: Observed) -> Aged:
        """Return the option on the remaining dates, with their weights, given the fixings so far.

        For an arithmetic average the strike is reduced by the weighted sum of the fixings. For a geometric
        average, with G their weighted product, it is G options of strike K / G.
        """
        past = tuple(day for day in self.averaging_dates if day <= observed.until)
        if not past:
            return Aged(0.0, self)
        known = self._level([observed.spot(self.underlying, day) for day in past])
        if self.expiry <= observed.until:
            return Aged(self.intrinsic(known), None, "expired", self.expiry)
        if self.average == "geometric":
            rest = {"strike": self.strike / known, "quantity": self.quantity * known}
        else:
            rest = {"strike": self.strike - known}
        kind = StartedAsianTrade if rest["strike"] > 0.0 else CertainAsianTrade
        left = self.averaging_dates[len(past) :]
        rest |= {"count": self.num_fixings, "averaging_dates": left}
        return Aged(0.0, self._as(kind, **rest))

    def _level(self, spots: Sequence[float]) -> float:
        """Return the weighted sum, or product, of the spots on the first dates."""
        pairs = list(zip(self.weights, spots, strict=False))
        if self.average == "geometric":
            return math.prod(spot**weight for weight, spot in pairs)
        return math.fsum(weight * spot for weight, spot in pairs)


class StartedAsianTrade(AsianTrade):
    """The rest of an Asian option of which some dates have passed; see `AsianTrade.aged`."""

    product = AverageClaim
    is_row = False

    count: int

    @property
    def num_fixings(self) -> int:
        return self.count

    @property
    def sign(self) -> float:
        """+1 for a call, -1 for a put."""
        return float(CALL_OR_PUT[self.option])

    def products(self, column: Column) -> AverageClaim:
        names = ("strike", "averaging_dates", "sign", "weights")
        return AverageClaim(*map(column, names), average=self.average)


class CertainAsianTrade(StartedAsianTrade):
    """An option whose past fixings exceed the strike: a call is certain to be exercised, a put is worthless."""

    product = AverageForward

    @property
    def shape(self) -> str:
        return "certain"

    @property
    def level(self) -> None:
        return None

    @property
    def units(self) -> float:
        """1 for a call, 0 for a put."""
        return 1.0 if self.option == "call" else 0.0

    def products(self, column: Column) -> AverageForward:
        return AverageForward(*map(column, ("strike", "averaging_dates", "weights", "units")))
