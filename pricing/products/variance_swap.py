"""Variance and volatility swaps."""

import itertools
import math
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from ..fields import Numeric, between, dates, non_negative, positive, real, time, word
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number, problem
from ..market.observed import Observed, UnknownPast
from ..numerics.safe_math import safe_sqrt
from .path_claim import PaddedPathClaim
from .product import Real, check_last_date
from .trade import Aged, IsoDate, IsoDates, Notional, Spot, Trade
from .watched import check_watch

MEASURES = ("variance", "volatility")


class VarianceSwap(PaddedPathClaim):
    """Pays notional * (V - strike^2) or notional * (sqrt(V) - strike) at expiry, with V the realized variance.

    With dates, V = annualization * (accrued + sum of log(S_i / S_(i-1))^2) / (past_returns + number of
    returns). With continuous monitoring, the sum is the quadratic variation of log S, and the number is
    annualization * expiry.

    Attributes:
        strike: The volatility strike, per 1.00, from 0 to 5: 20 % is 0.2.
        expiry: The time of payment in years, above 0.
        dates: The monitoring dates in years, the expiry last, of shape (dates,); None for continuous
            monitoring.
        notional: The currency per 1.00 of variance, or of volatility.
        measure: "variance" or "volatility"; each word compiles its own program.
        annualization: The number of returns in a year.
        initial_spot: The spot from which the first return is measured; None for the spot at dates[0].
        accrued: The sum of squared past log returns.
        past_returns: The number of past returns.
        age: Minus the years since today; 0 except for theta. Time that passes with an unchanged spot adds
            nothing to the sum, but counts in the number.

    Raises:
        ValueError: There is no return, or the last date is not the expiry.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> swap = VarianceSwap(0.2, 1.0, notional=100.0)
        >>> f"{price(swap, BlackScholes(100.0, 0.0, 0.3)).value:.2f}"
        '5.00'
    """

    has_jumps: ClassVar[bool] = False

    strike: Numeric[Real] = between("strike", 0.0, 5.0)
    expiry: Numeric[Real] = time("expiry")
    dates: Numeric[Float[Array, "*batch dates"] | None] = dates(
        "dates", optional=True, repeated=True, default=None
    )
    notional: Numeric[Real] = positive("notional", default=1.0)
    measure: str = word("measure", MEASURES, default="variance")
    annualization: Numeric[Real] = positive("annualization", default=252.0)
    initial_spot: Numeric[Real | None] = positive("initial_spot", optional=True, default=None)
    accrued: Numeric[Real] = non_negative("accrued", default=0.0)
    past_returns: Numeric[Real] = non_negative("past_returns", default=0.0)
    age: Numeric[Real] = real("age", default=0.0, time=True)

    def __check_init__(self):
        too_few = self.dates is not None and self.dates.shape[-1] < 2
        if too_few and self.initial_spot is None:
            raise ValueError(
                "one return needs at least two dates: give another date, or an initial_spot"
            )
        check_last_date(self.dates, self.expiry)

    def paid(self, total: Real, count: Real) -> Real:
        """Return the payment for the sum of all future squared returns and their number."""
        variance = self.annualization * (self.accrued + total) / (self.past_returns + count)
        if self.measure == "variance":
            return self.notional * (variance - self.strike**2)
        return self.notional * (safe_sqrt(variance) - self.strike)

    @property
    def all_times(self) -> bool:
        return self.dates is None

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        logs = jnp.log(spots)
        if self.initial_spot is not None:
            logs = jnp.concatenate([jnp.log(self.initial_spot)[None], logs])
        return self.paid(jnp.sum(jnp.diff(logs) ** 2), self.num_returns)

    @property
    def num_returns(self) -> Real:
        """The number of returns between different dates."""
        is_counted = self.is_new if self.initial_spot is not None else self.is_new[..., 1:]
        return jnp.sum(is_counted, axis=-1)


class VarianceSwapTrade(Trade):
    """A swap of the realized variance or volatility of an equity against a strike."""

    type = "variance_swap"
    product = VarianceSwap
    renamed: ClassVar[dict[str, str]] = {"strike": "vol_strike", "dates": "monitoring_dates"}
    neutral = ("measure", "accrued", "past_returns", "annualization")
    dates_name = "monitoring_dates"

    vol_strike: Annotated[float, number("vol_strike", least=0.0, likely=3.0)] = Field(
        description="a vol_strike >= 0, a decimal: 20 % is 0.2"
    )
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    monitoring_dates: IsoDates | None = None
    notional: Notional = 1.0
    measure: Annotated[str, one_of(*MEASURES)] = "variance"
    annualization: Annotated[float, number("annualization", above=0.0)] = 252.0
    initial_spot: Spot | None = None
    accrued: Annotated[float, number("accrued", least=0.0)] = 0.0
    past_returns: Annotated[float, number("number of past_returns", least=0.0)] = 0.0
    start: IsoDate | None = None

    @property
    def age(self) -> float:
        """The age of the product: 0 today."""
        return 0.0

    def check(self) -> None:
        dated = self.monitoring_dates
        if dated is not None and len(dated) < 2 and self.initial_spot is None:
            raise problem("one date has no return", "give at least two", "monitoring_dates")
        if dated is not None and len(dated) > 1:
            a_year = 365.0 * (len(dated) - 1) / (dated[-1] - dated[0]).days
            if not 0.25 < a_year / self.annualization < 4.0:
                message = f"there are {a_year:.3g} returns a year, and the annualization is "
                remedy = "give the number of returns in a year as annualization"
                raise problem(f"{message}{self.annualization:g}", remedy, "annualization")
        if self.accrued and not self.past_returns:
            message = "accrued is given without its number of returns"
            raise problem(message, "give it as past_returns", "past_returns")
        check_watch(self.expiry, self.start, dated)

    @property
    def shape(self) -> Any:
        return self.measure, self.monitoring_dates is None, self.initial_spot is None

    def aged(self, observed: Observed) -> Aged:
        if self.monitoring_dates is None:
            return self._aged_at_all_times(observed)
        past = [day for day in self.monitoring_dates if day <= observed.until]
        spots = [observed.spot(self.underlying, day) for day in past]
        levels = [*(() if self.initial_spot is None else (self.initial_spot,)), *spots]
        accrued = self.accrued + _squares(levels)
        returns = self.past_returns + max(len(levels) - 1, 0)
        if self.expiry <= observed.until:
            return Aged(self._paid(accrued, returns), None, "expired", self.expiry)
        if not past:
            return Aged(0.0, self)
        left = self.monitoring_dates[len(past) :]
        changes = {"accrued": accrued, "past_returns": returns, "initial_spot": levels[-1]}
        return Aged(0.0, self._as(type(self), monitoring_dates=left, **changes))

    def _aged_at_all_times(self, observed: Observed) -> Aged:
        """Return the swap with the returns between known days since its start, or since the earlier market.

        Raises:
            UnknownPast: The swap has not started, or has expired without a return.
        """
        end = min(self.expiry, observed.until)
        start = self.start or min(observed.since, end)
        if start > observed.until:
            message = f"the swap starts on {start}, after the market's as-of date {observed.until}"
            raise UnknownPast(message, "give monitoring_dates, the first of them the start")
        known = {start, *observed.days(self.underlying), end}
        days = sorted(day for day in known if start <= day <= end)
        spots = [observed.spot(self.underlying, day) for day in days if len(days) > 1]
        accrued = self.accrued + _squares(spots)
        returns = self.past_returns + self.annualization * (end - start).days / 365.0
        if self.expiry <= observed.until:
            if not returns:
                message = f"no return of {self.underlying} counts up to the expiry {self.expiry}"
                raise UnknownPast(message, "give a start before it, or accrued and past_returns")
            return Aged(self._paid(accrued, returns), None, "expired", self.expiry)
        changes = {"accrued": accrued, "past_returns": returns, "start": None}
        return Aged(0.0, self._as(type(self), **changes))

    def _paid(self, accrued: float, returns: float) -> float:
        """Return the payment for a sum of squared returns and their number."""
        variance = self.annualization * accrued / returns
        if self.measure == "variance":
            return self.notional * (variance - self.vol_strike**2)
        return self.notional * (variance**0.5 - self.vol_strike)


def _squares(levels: list[float]) -> float:
    """Return the sum of the squared log returns between levels."""
    return math.fsum(math.log(new / old) ** 2 for old, new in itertools.pairwise(levels))
