"""European calls and puts."""

from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, positive, time
from ..market.observed import Observed
from .exercise_rights import SpotOption
from .product import CALL_OR_PUT, CallOrPut
from .terminal import TerminalClaim
from .trade import IsoDate, OptionTrade


class European(CallOrPut, TerminalClaim, SpotOption):
    """A European option pays max(side * (S_T - strike), 0) at expiry.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The time of payment in years, above 0.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.

    Examples:
        >>> put = European(100.0, 1.0, "put")
        >>> [float(units) for units in put.units]
        [-1.0, 100.0]
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")

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

    def payoff(self, observed: Observed) -> float:
        return self.intrinsic(observed.spot(self.underlying, self.expiry))
