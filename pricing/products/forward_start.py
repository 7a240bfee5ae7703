"""Forward-start options."""

from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, is_traced, positive, time
from ..ingestion.field_types import choice as one_of
from ..ingestion.field_types import number, problem
from ..market.observed import Observed
from ..numerics.safe_math import larger
from .european import EuropeanTrade
from .path_claim import PathClaim
from .product import CALL_OR_PUT, Real, side_of
from .trade import Aged, IsoDate, Trade


class ForwardStart(PathClaim):
    """A forward start option pays max(side * (S_T - moneyness * S_start), 0) at expiry.

    Attributes:
        moneyness: The strike as a fraction of the spot at the start, above 0.
        start: The time at which the strike is set, in years, above 0.
        expiry: The time of payment in years, after the start.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.

    Raises:
        ValueError: The start is not before the expiry.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> model = BlackScholes(60.0, 0.08, 0.3, 0.04)
        >>> f"{price(ForwardStart(1.1, 0.25, 1.0), model).value:.4f}"
        '4.4065'
    """

    has_jumps: ClassVar[bool] = False

    moneyness: Numeric[Real] = positive("moneyness")
    start: Numeric[Real] = time("start")
    expiry: Numeric[Real] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")

    def __check_init__(self):
        if is_traced((self.start, self.expiry)):
            return
        if not jnp.all(self.start < self.expiry):
            raise ValueError(
                f"start must be before the expiry, got {self.start} and {self.expiry}: swap them, or give a "
                "European option"
            )

    @property
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.expiry)

    @property
    def dates(self) -> Float[Array, "*batch dates"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jnp.stack(jnp.broadcast_arrays(self.start, self.expiry), axis=-1)

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        return larger(self.side * (spots[1] - self.moneyness * spots[0]), 0.0)


class ForwardStartTrade(Trade):
    """A call or put whose strike is a fraction of the spot on a later date."""

    type = "forward_start"
    product = ForwardStart

    option: Annotated[str, one_of("call", "put")] = Field(description="an option, call or put")
    moneyness: Annotated[float, number("moneyness", above=0.0, likely=10.0)] = Field(
        description="a moneyness > 0, the strike over the spot at the start"
    )
    start: IsoDate = Field(description="a start, YYYY-MM-DD")
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    def check(self) -> None:
        if self.start >= self.expiry:
            message = f"the start, {self.start}, is not before the expiry, {self.expiry}"
            raise problem(message, "give a start before the expiry", "start")

    def aged(self, observed: Observed) -> Aged:
        if self.start > observed.until:
            return Aged(0.0, self)
        strike = self.moneyness * observed.spot(self.underlying, self.start)
        return self._as(EuropeanTrade, strike=strike).aged(observed)
