"""Cliquets: sums of floored and capped returns."""

import itertools
import math
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from ..fields import Numeric, dates, is_traced, positive, real
from ..ingestion.field_types import number, problem
from ..market.observed import Observed
from ..numerics.safe_math import larger, smaller
from .path_claim import PaddedPathClaim
from .product import Real
from .trade import Aged, IsoDate, IsoDates, Notional, Spot, Trade, last_of


class Cliquet(PaddedPathClaim):
    """Pays notional * (sum of returns) at its last date; each return, and the sum, may be floored and capped.

    The return of a period is S_i / S_(i-1) - 1, floored at local_floor and capped at local_cap; the sum of all
    returns and `accrued` is floored at floor and capped at cap.

    Attributes:
        dates: The dates of the spots, in years, increasing, of shape (dates,).
        local_floor: The floor of each return, above -1; None for no floor.
        local_cap: The cap of each return; None for no cap.
        floor: The floor of the sum; None for no floor.
        cap: The cap of the sum; None for no cap.
        notional: The notional in currency, above 0.
        initial_spot: The spot from which the first return is measured; None for the spot at dates[0].
        accrued: The sum of past returns, each floored and capped.

    Raises:
        ValueError: There is no return, or a floor is not below its cap.

    Examples:
        >>> import jax.numpy as jnp
        >>> cliquet = Cliquet([0.5, 1.0, 1.5], local_floor=-0.05, local_cap=0.05, floor=0.0)
        >>> f"{cliquet.payoff(jnp.array([100.0, 90.0, 91.8])):.2f}"
        '0.00'
    """

    has_jumps: ClassVar[bool] = False

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", repeated=True)
    local_floor: Numeric[Real | None] = real("local_floor", optional=True, default=None)
    local_cap: Numeric[Real | None] = real("local_cap", optional=True, default=None)
    floor: Numeric[Real | None] = real("floor", optional=True, default=None)
    cap: Numeric[Real | None] = real("cap", optional=True, default=None)
    notional: Numeric[Real] = positive("notional", default=1.0)
    initial_spot: Numeric[Real | None] = positive("initial_spot", optional=True, default=None)
    accrued: Numeric[Real] = real("accrued", default=0.0)

    def __check_init__(self):
        if self.dates.shape[-1] < 2 and self.initial_spot is None:
            raise ValueError(
                "one return needs at least two dates: give another date, or an initial_spot"
            )
        if is_traced(tuple(vars(self).values())):
            return
        if self.local_floor is not None and not jnp.all(self.local_floor > -1.0):
            raise ValueError(
                f"local_floor must be above -1, got {self.local_floor}: leave it out for none"
            )
        for low, high in (("local_floor", "local_cap"), ("floor", "cap")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and not jnp.all(least < most):
                raise ValueError(f"{low} must be below {high}, got {least} and {most}: swap them")

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        if self.initial_spot is not None:
            spots = jnp.concatenate([self.initial_spot[None], spots])
        returns = within(spots[1:] / spots[:-1] - 1.0, self.local_floor, self.local_cap)
        total = self.accrued + self.is_counted @ returns
        return self.notional * within(total, self.floor, self.cap)

    @property
    def is_counted(self) -> Float[Array, "*batch returns"]:
        """1 for each return between different dates, 0 for one from a date to itself."""
        return self.is_new if self.initial_spot is not None else self.is_new[..., 1:]


def within(x: Array, least: Real | None, most: Real | None) -> Array:
    """Return x floored at `least` and capped at `most`, where given."""
    x = x if least is None else larger(x, least)
    return x if most is None else smaller(x, most)


Percent = Annotated[float, number("return", above=-1.0, likely=10.0)]


class CliquetTrade(Trade):
    """A sum of returns between dates; each return, and the sum, may be floored and capped."""

    type = "cliquet"
    product = Cliquet
    renamed: ClassVar[dict[str, str]] = {"dates": "monitoring_dates"}
    neutral = ("accrued",)
    dates_name = "monitoring_dates"

    monitoring_dates: IsoDates = Field(
        description="monitoring_dates, such as 2003-03-18|2003-06-15"
    )
    local_floor: Percent | None = None
    local_cap: Percent | None = None
    floor: Annotated[float, number("floor", likely=10.0)] | None = None
    cap: Annotated[float, number("cap", likely=10.0)] | None = None
    notional: Notional = 1.0
    initial_spot: Spot | None = None
    accrued: Annotated[float, number("accrued", likely=10.0)] = 0.0
    expiry: IsoDate = last_of("monitoring_dates")

    @property
    def shape(self) -> Any:
        given = self.local_floor, self.local_cap, self.floor, self.cap, self.initial_spot
        return tuple(each is None for each in given)

    def check(self) -> None:
        if len(self.monitoring_dates) < 2 and self.initial_spot is None:
            raise problem("one date has no return", "give at least two", "monitoring_dates")
        for low, high in (("local_floor", "local_cap"), ("floor", "cap")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least >= most:
                message = f"the {low}, {least:g}, is not below the {high}, {most:g}"
                raise problem(message, f"give a {low} < {high}", low)

    def aged(self, observed: Observed) -> Aged:
        past = [day for day in self.monitoring_dates if day <= observed.until]
        if not past:
            return Aged(0.0, self)
        spots = [observed.spot(self.underlying, day) for day in past]
        levels = [*(() if self.initial_spot is None else (self.initial_spot,)), *spots]
        returns = [new / old - 1.0 for old, new in itertools.pairwise(levels)]
        bounded = [_bounded(x, self.local_floor, self.local_cap) for x in returns]
        accrued = self.accrued + math.fsum(bounded)
        if self.expiry <= observed.until:
            paid = self.notional * _bounded(accrued, self.floor, self.cap)
            return Aged(paid, None, "expired", self.expiry)
        left = self.monitoring_dates[len(past) :]
        changes = {"accrued": accrued, "initial_spot": spots[-1], "monitoring_dates": left}
        return Aged(0.0, self._as(type(self), **changes))


def _bounded(x: float, least: float | None, most: float | None) -> float:
    """Return x within the given bounds."""
    x = x if least is None else max(x, least)
    return x if most is None else min(x, most)
