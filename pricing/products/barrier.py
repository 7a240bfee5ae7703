"""Single-barrier options, monitored continuously or on dates."""

from datetime import date
from typing import Annotated, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, dates, non_negative, positive, time
from ..ingestion.field_types import choice as one_of
from ..market.observed import Observed
from .barrier_option import SingleBarrier
from .discrete_barrier import Payoff, discrete_barrier
from .european import European, EuropeanTrade
from .product import CALL_OR_PUT, AbstractProduct, CallOrPut, check_last_date, check_levels
from .trade import Aged, IsoDate, IsoDates, Level, OptionTrade, Rebate
from .watched import check_watch, first_touch

BarrierType = Annotated[str, one_of("down-and-out", "down-and-in", "up-and-out", "up-and-in")]
BARRIER_KINDS = {"down-and-out": 0, "up-and-out": 1, "down-and-in": 2, "up-and-in": 3}


class Barrier(CallOrPut, SingleBarrier):
    """A European option that is knocked out, or knocked in, when the spot touches a barrier.

    A knock-out pays its rebate when hit; a knock-in that is never hit pays it at expiry.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The time of payment in years, above 0.
        barrier: The barrier in units of the spot, above 0.
        kind: One of "down-and-out", "up-and-out", "down-and-in" and "up-and-in", stored as a code.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        rebate: The rebate in currency, at least 0.
        dates: The monitoring dates in years, the expiry last, of shape (dates,). None means continuous
            monitoring from today, so that a spot already beyond the barrier has touched it.

    Raises:
        ValueError: The last date is not the expiry, or a barrier is given for each date.

    Examples:
        >>> option = Barrier(100.0, 1.0, 80.0, "down-and-in", "put")
        >>> bool(option.knocks_in), bool(option.is_inside(90.0))
        (True, True)
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    barrier: Numeric[Float[Array, "..."]] = positive("barrier")
    kind: Word[Int8[Array, "..."]] = choice("kind", BARRIER_KINDS, default="down-and-out")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    rebate: Numeric[Float[Array, "..."]] = non_negative("rebate", default=0.0)
    dates: Numeric[Float[Array, "*batch dates"] | None] = dates(
        "dates", optional=True, default=None
    )

    def __check_init__(self):
        check_levels(self.dates, barrier=self.barrier)
        check_last_date(self.dates, self.expiry)

    @property
    def barrier_direction(self) -> Float[Array, "..."]:
        return 1.0 - 2.0 * (self.kind & 1).astype(self.strike.dtype)

    @property
    def knocks_in(self) -> Bool[Array, "..."]:
        return jnp.asarray(self.kind >= 2)

    @property
    def knocked_out(self) -> "Barrier":
        if isinstance(self.kind, Tracer) or not np.any(self.kind >= 2):
            return self
        return eqx.tree_at(lambda barrier: barrier.kind, self, self.kind & 1)

    @property
    def monitoring_dates(self) -> Float[Array, "*batch dates"] | None:
        return self.dates

    @property
    def smile_point(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.expiry, self.strike

    @property
    def vanilla(self) -> European:
        return European(self.strike, self.expiry, self.option)

    @property
    def canonical(self) -> AbstractProduct:
        """A knock-in is the vanilla option less its knock-out, plus the rebate if the barrier is never hit."""
        if self.dates is None:
            return self
        one = jnp.ones_like(self.strike)
        asset, cash = self.vanilla.units
        out = jnp.where(self.knocks_in, -one, one)
        into = jnp.where(self.knocks_in, one, 0.0 * one)
        at_hit, at_end = (1.0 - into) * self.rebate, into * self.rebate
        everywhere = 1e-6 * self.strike  # the spot is certain to end above
        return discrete_barrier(
            self.dates,
            lower=jnp.where(self.barrier_direction > 0.0, self.barrier, 0.0),
            upper=jnp.where(self.barrier_direction > 0.0, jnp.inf, self.barrier),
            paid_below=at_hit,
            paid_above=at_hit,
            alive=Payoff.sum(
                (self.strike, self.side, out * asset, out * cash),
                (everywhere, one, 0.0 * one, at_end),
            ),
            always=Payoff.sum((self.strike, self.side, into * asset, into * cash)),
        )


class BarrierTrade(OptionTrade):
    """A European option with a knock-in or knock-out barrier, monitored on dates or, without dates, always."""

    type = "barrier"
    product = Barrier
    renamed: ClassVar[dict[str, str]] = {"kind": "barrier_type", "dates": "monitoring_dates"}
    neutral = ("rebate",)
    dates_name = "monitoring_dates"
    drops_dates = True

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    barrier: Level = Field(description="a barrier > 0")
    barrier_type: BarrierType = Field(
        description="a barrier_type: down-and-out, down-and-in, up-and-out or up-and-in"
    )
    rebate: Rebate = 0.0
    monitoring_dates: IsoDates | None = None
    start: IsoDate | None = None
    knocked: IsoDate | None = None

    @property
    def _knocks_in(self) -> bool:
        return self.barrier_type.endswith("in")

    def check(self) -> None:
        check_watch(self.expiry, self.start, self.monitoring_dates, self.knocked)

    def aged(self, observed: Observed) -> Aged:
        is_over = self.expiry <= observed.until
        knock = self.knocked
        if knock is None or knock > observed.until:
            knock = self._first_hit(observed)
        if knock is not None and not self._knocks_in:
            return Aged(self.rebate, None, "knocked out", knock)
        if is_over:
            is_alive = knock is not None or not self._knocks_in
            paid = self._at_expiry(observed) if is_alive else self.rebate
            return Aged(paid, None, "expired", self.expiry)
        if knock is not None:
            return Aged(0.0, self._as(EuropeanTrade), "knocked in", knock)
        return Aged(0.0, self._with_dates(observed.until))

    def _first_hit(self, observed: Observed) -> date | None:
        """Return the first known day with the spot on or beyond the barrier, or None.

        A continuously monitored barrier is compared with the fixings since its start. Today's spot is left to
        the product, unless the option expires today.
        """
        if self.monitoring_dates is None:
            return first_touch(observed, self.underlying, self.start, self.expiry, self._is_hit)
        days = (day for day in self.monitoring_dates if day <= observed.until)
        hits = (day for day in days if self._is_hit(observed.spot(self.underlying, day)))
        return next(hits, None)

    def _is_hit(self, spot: float) -> bool:
        is_down = self.barrier_type.startswith("down")
        return spot <= self.barrier if is_down else spot >= self.barrier

    def _at_expiry(self, observed: Observed) -> float:
        return self.intrinsic(observed.spot(self.underlying, self.expiry))
