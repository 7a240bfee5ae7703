"""A product in one file, with its row in a book: the gap option.

1. Its numbers are fields; words are integer codes (`choice`), so that one program serves mixed contracts.
2. A payoff of the spot at expiry alone is a `TerminalClaim`: it says how many units of asset and cash it pays.
3. The row is a pydantic class with a `type`. Its fields are columns of a trades file; its descriptions are
   what an error says is needed.
4. `payoff` is what a contract paid at its expiry, by which `explain` counts a trade that ended. Without it
   such a trade is named, and in no number. A kind whose value depends on the past overrides `aged`.
"""

from typing import Annotated

from jaxtyping import Array, Float, Int8
from pydantic import Field

from pricing.fields import Numeric, Word, choice, positive, time
from pricing.ingestion import number
from pricing.market import Observed
from pricing.products import CALL_OR_PUT, IsoDate, OptionTrade, TerminalClaim, side_of

Real = Float[Array, "..."]


class Gap(TerminalClaim):
    """Pays side * (S_T - payment_strike) at expiry if side * (S_T - strike) > 0, be it negative.

    Hull, *Options, Futures, and Other Derivatives*, the chapter on exotic options.
    """

    strike: Numeric[Real] = positive("strike")
    expiry: Numeric[Real] = time("expiry")
    payment_strike: Numeric[Real] = positive("payment_strike")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")

    @property
    def side(self) -> Real:
        return side_of(self.option, self.strike)

    @property
    def units(self) -> tuple[Real, Real]:
        return self.side, -self.side * self.payment_strike


class GapTrade(OptionTrade):
    """An option that is exercised beyond one strike and pays against another."""

    type = "gap"
    product = Gap

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    payment_strike: Annotated[float, number("payment_strike", above=0.0)] = Field(
        description="a payment_strike > 0, what is paid for the asset"
    )

    def payoff(self, observed: Observed) -> float:
        spot = observed.spot(self.underlying, self.expiry)
        paid = spot - self.payment_strike if self.option == "call" else self.payment_strike - spot
        return paid if self.intrinsic(spot) > 0.0 else 0.0
