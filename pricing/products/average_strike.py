"""Average-strike (floating-strike) Asian options."""

import math
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import (
    Numeric,
    Word,
    choice,
    dates,
    is_traced,
    non_negative,
    not_below_zero,
    positive,
    real,
    word,
)
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number, problem
from ..market.observed import Observed
from ..numerics.safe_math import larger
from .path_claim import PaddedPathClaim
from .product import CALL_OR_PUT, Real, side_of
from .trade import Aged, IsoDate, IsoDates, Trade, last_of


class AverageStrike(PaddedPathClaim):
    """Pays max(side * (S_T - moneyness * A), 0) at its last date T, with A the average spot on the dates.

    Past fixings enter the average through their sum, or the sum of their logarithms if it is geometric.

    Attributes:
        dates: The observation times in years, non-decreasing, of shape (dates,). A repeated date counts once.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        average: The word "arithmetic" or "geometric"; each word compiles its own program.
        moneyness: The strike as a fraction of the average, above 0.
        past_sum: The sum of past fixings, above 0, or of their logarithms, of any sign.
        num_past: The number of past fixings.

    Examples:
        >>> import jax.numpy as jnp
        >>> float(AverageStrike([0.5, 1.0]).payoff(jnp.array([90.0, 110.0])))
        10.0
    """

    has_jumps: ClassVar[bool] = False

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", repeated=True)
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")
    moneyness: Numeric[Real] = positive("moneyness", default=1.0)
    past_sum: Numeric[Real] = real("past_sum", default=0.0)
    num_past: Numeric[Real] = non_negative("num_past", default=0.0)

    def __check_init__(self):
        if self.average == "arithmetic" and not is_traced(self.past_sum):
            not_below_zero("past_sum", self.past_sum)

    @property
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.moneyness)

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        levels = jnp.log(spots) if self.average == "geometric" else spots
        mean = (self.past_sum + self.is_new @ levels) / (self.num_past + jnp.sum(self.is_new))
        if self.average == "geometric":
            mean = jnp.exp(mean)
        return larger(self.side * (spots[-1] - self.moneyness * mean), 0.0)


class AverageStrikeTrade(Trade):
    """A call or put on the spot at the last of some dates, struck at the average spot on the dates."""

    type = "average_strike"
    product = AverageStrike
    renamed: ClassVar[dict[str, str]] = {"dates": "averaging_dates"}
    neutral = ("average", "moneyness", "past_sum", "num_past")
    dates_name = "averaging_dates"

    option: Annotated[str, one_of("call", "put")] = Field(description="an option, call or put")
    averaging_dates: IsoDates = Field(description="averaging_dates, such as 2003-03-18|2003-06-15")
    average: Annotated[str, one_of("arithmetic", "geometric")] = "arithmetic"
    moneyness: Annotated[float, number("moneyness", above=0.0, likely=10.0)] = 1.0
    past_sum: Annotated[float, number("past_sum")] = 0.0
    num_past: Annotated[float, number("number of past fixings", least=0.0)] = 0.0
    expiry: IsoDate = last_of("averaging_dates")

    @property
    def shape(self) -> str:
        return self.average

    def check(self) -> None:
        if self.average == "arithmetic" and self.past_sum < 0.0:
            message = f"{self.past_sum:g} is below 0, and the average is arithmetic"
            raise problem(message, "give a past_sum >= 0", "past_sum")
        if self.past_sum and not self.num_past:
            message = "a past_sum is given without its number of fixings"
            raise problem(message, "give it as num_past", "num_past")
        if self.num_past and not self.past_sum and self.average == "arithmetic":
            message = "a num_past is given without the sum of those fixings"
            raise problem(message, "give it as past_sum", "past_sum")

    def aged(self, observed: Observed) -> Aged:
        past = [day for day in self.averaging_dates if day <= observed.until]
        if not past:
            return Aged(0.0, self)
        spots = [observed.spot(self.underlying, day) for day in past]
        is_geometric = self.average == "geometric"
        total = self.past_sum + math.fsum(map(math.log, spots) if is_geometric else spots)
        count = self.num_past + len(spots)
        if self.expiry > observed.until:
            left = self.averaging_dates[len(past) :]
            changes = {"past_sum": total, "num_past": count, "averaging_dates": left}
            return Aged(0.0, self._as(type(self), **changes))
        mean = math.exp(total / count) if is_geometric else total / count
        side = 1.0 if self.option == "call" else -1.0
        paid = max(side * (spots[-1] - self.moneyness * mean), 0.0)
        return Aged(paid, None, "expired", self.expiry)
