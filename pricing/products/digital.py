"""Digital (binary) options: cash-or-nothing and asset-or-nothing."""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, positive, real, time
from ..ingestion.field_types import choice as word
from ..ingestion.field_types import number
from ..market.observed import Observed
from .product import CALL_OR_PUT, CallOrPut
from .terminal import TerminalClaim
from .trade import IsoDate, OptionTrade

CASH_OR_ASSET = {"cash": 0, "asset": 1}


class Digital(CallOrPut, TerminalClaim):
    """A digital option pays cash, or units of the asset, at expiry if side * (S_T - strike) > 0.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The time of payment in years, above 0.
        option: "call" (side = +1) or "put" (side = -1), stored as that code.
        payout: The word "cash" or "asset", stored as the code 0 or 1.
        amount: The amount paid: currency, or units of the asset.

    Examples:
        >>> [float(units) for units in Digital(100.0, 1.0, payout="asset").units]
        [1.0, 0.0]
    """

    strike: Numeric[Float[Array, "..."]] = positive("strike")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    option: Word[Int8[Array, "..."]] = choice("option", CALL_OR_PUT, default="call")
    payout: Word[Int8[Array, "..."]] = choice("payout", CASH_OR_ASSET, default="cash")
    amount: Numeric[Float[Array, "..."]] = real("amount", default=1.0)

    @property
    def units(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        pays_asset = self.payout == CASH_OR_ASSET["asset"]
        zero = jnp.zeros_like(self.amount)
        return jnp.where(pays_asset, self.amount, zero), jnp.where(pays_asset, zero, self.amount)


class DigitalTrade(OptionTrade):
    """A European option that pays `amount` of cash, or `amount` shares, when in the money."""

    type = "digital"
    product = Digital
    neutral = ("payout", "amount")

    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")
    payout: Annotated[str, word(*CASH_OR_ASSET)] = "cash"
    amount: Annotated[float, number("amount", above=0.0)] = 1.0

    def payoff(self, observed: Observed) -> float:
        spot = observed.spot(self.underlying, self.expiry)
        paid = self.amount * (spot if self.payout == "asset" else 1.0)
        return paid if self.intrinsic(spot) > 0.0 else 0.0
