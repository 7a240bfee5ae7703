"""European calls and puts."""

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import choice, positive, time
from .exercise import SpotOption
from .product import CALL_OR_PUT, side_of
from .terminal import TerminalClaim
from .trade import IsoDate, OptionTrade


class European(TerminalClaim, SpotOption):
    """Pays max(side * (S_T - strike), 0) at expiry, side = +1 for a call and -1 for a put.

    strike: units of the spot; expiry: years; option: "call" or "put".
    """

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = time("expiry")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="call")

    @property
    def side(self) -> Float[Array, "..."]:
        return side_of(self.option, self.strike)

    @property
    def units(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.side, -self.side * self.strike

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        del num_dates
        return self.expiry[..., None]


class EuropeanTrade(OptionTrade):
    """A European call or put."""

    type = "european"
    product = European

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
