"""American calls and puts."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, positive, time
from ..ingestion.field_types import problem
from ..market.observed import Observed
from .exercise_rights import EarlyExercise, SpotOption
from .product import CALL_OR_PUT, CallOrPut
from .trade import Aged, IsoDate, OptionTrade


class American(CallOrPut, EarlyExercise, SpotOption):
    """An American option pays side * (S - strike) when its holder exercises, at any time up to expiry.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The last exercise time in years, above 0.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.

    Examples:
        >>> American(100.0, 1.0).exercise_times(4).tolist()
        [0.25, 0.5, 0.75, 1.0]
    """

    any_time: ClassVar[bool] = True

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        shares = jnp.arange(1, num_dates + 1, dtype=self.expiry.dtype) / num_dates
        return jnp.multiply.outer(self.expiry, shares)


class AmericanTrade(OptionTrade):
    """A call or put that may be exercised at any time."""

    type = "american"
    product = American

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    exercised: IsoDate | None = None

    def check(self) -> None:
        if self.exercised is not None and self.exercised > self.expiry:
            message = f"it was exercised on {self.exercised}, after its expiry {self.expiry}"
            raise problem(message, "give the day on which it was exercised", "exercised")

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            return self.paid_on(self.exercised, observed)
        return super().aged(observed)

    def payoff(self, observed: Observed) -> float:
        return self.intrinsic(observed.spot(self.underlying, self.expiry))
