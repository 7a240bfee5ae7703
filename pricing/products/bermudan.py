"""Bermudan options."""

from dataclasses import replace

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from pydantic import Field

from ..fields import Numeric, dates, object_of
from ..ingestion.field_types import problem
from ..market.observed import Observed
from ..market.state import MarketState
from .european import European, EuropeanTrade
from .exercise_rights import EarlyExercise, SpotOption
from .product import Padded, extra_dates, front
from .trade import Aged, Column, IsoDate, IsoDates, OptionTrade, last_of

_SAME_DAY = 1e-4  # years
_OPTION = "an option on the spot, such as European(100.0, 1.0), whose expiry is the last date"


class Bermudan(EarlyExercise, SpotOption, Padded):
    """A Bermudan option, exercised on one of its dates, pays as if `payoff_product` expired then.

    Attributes:
        payoff_product: A European option or a basket; its expiry is the last of the dates.
        dates: The exercise dates in years, non-decreasing, of shape (dates,).

    Raises:
        TypeError: The payoff is not an option on the spot.
        ValueError: The payoff does not expire on the last of the dates.

    Examples:
        >>> option = Bermudan(European(100.0, 1.0, "put"), [0.5, 1.0])
        >>> option.exercise_times().tolist()
        [0.5, 1.0]
    """

    payoff_product: SpotOption = object_of("payoff_product", SpotOption, _OPTION)
    dates: Numeric[Float[Array, "*#batch dates"]] = dates("dates", repeated=True)

    def __check_init__(self):
        expiry, last = self.payoff_product.exercise_times(), self.dates
        if isinstance(expiry, Tracer) or isinstance(last, Tracer):
            return
        expiry, last = np.asarray(expiry)[..., -1], np.asarray(last)[..., -1]
        if np.max(np.abs(last - expiry)) > _SAME_DAY:
            raise ValueError(
                f"the last exercise date is {last} and the payoff expires at {expiry}: give the same time"
            )

    @property
    def multi_asset(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.payoff_product.multi_asset

    @property
    def strike(self) -> Float[Array, "..."]:
        return self.payoff_product.strike

    @property
    def side(self) -> Float[Array, "..."]:
        return self.payoff_product.side

    @property
    def average(self) -> str:
        return self.payoff_product.average

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        return self.payoff_product.weights_of(num_spots)

    @property
    def has_own_payoff(self) -> bool:
        is_own = type(self).exercise_value is not Bermudan.exercise_value
        return is_own or self.payoff_product.has_own_payoff

    def exercise_value(self, t: Float[Array, ""], market: MarketState) -> Float[Array, ""]:
        return self.payoff_product.exercise_value(t, market)

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        del num_dates
        return self.dates

    def padded(self, num_dates: int) -> "Bermudan":
        """Return the same option on `num_dates` dates, padded by repeating the first."""
        return replace(self, dates=front(self.dates, extra_dates(self.dates, num_dates)))


class BermudanTrade(OptionTrade):
    """A call or put that may be exercised on some dates."""

    type = "bermudan"
    drops_dates = True
    product = Bermudan
    dates_name = "exercise_dates"

    exercise_dates: IsoDates = Field(description="exercise_dates, such as 2003-03-18|2003-06-15")
    expiry: IsoDate = last_of("exercise_dates")
    exercised: IsoDate | None = None

    def check(self) -> None:
        if self.exercised is not None and self.exercised not in self.exercise_dates:
            message = f"{self.exercised} is not one of the exercise_dates"
            raise problem(message, "give the date on which it was exercised", "exercised")

    def aged(self, observed: Observed) -> Aged:
        if self.exercised is not None and self.exercised <= observed.until:
            return self.paid_on(self.exercised, observed)
        if sum(day > observed.until for day in self.exercise_dates) == 1:
            return Aged(0.0, self._as(EuropeanTrade))
        return super().aged(observed)

    def payoff(self, observed: Observed) -> float:
        return self.intrinsic(observed.spot(self.underlying, self.expiry))

    def products(self, column: Column) -> Bermudan:
        payoff = European(column("strike"), column("expiry"), column("option"))
        return Bermudan(payoff, column("exercise_dates"))  # pyright: ignore
