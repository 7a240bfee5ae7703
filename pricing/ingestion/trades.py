"""The kinds of trade a book may hold: a new kind is one more pydantic class in `TRADE_TYPES`."""

from datetime import date
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from .fields import choice, iso_date, name, number

Name = Annotated[str, name]
IsoDate = Annotated[date, iso_date]
Quantity = Annotated[float, number("quantity")]
Strike = Annotated[float, number("strike", above=0.0)]
Barrier = Annotated[float, number("barrier", above=0.0)]
Rebate = Annotated[float, number("rebate", least=0.0)]
Amount = Annotated[float, number("amount", above=0.0)]
Option = Annotated[Literal["call", "put"], choice("call", "put")]
Payout = Annotated[Literal["cash", "asset"], choice("cash", "asset")]
BarrierType = Annotated[
    Literal["down-and-out", "down-and-in", "up-and-out", "up-and-in"],
    choice("down-and-out", "down-and-in", "up-and-out", "up-and-in"),
]


class Trade(BaseModel):
    """What every trade has.

    `quantity`: contracts, negative when short. `line`: where the trade stands in its file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: ClassVar[str]

    line: int
    id: Name = Field(description="an id, a text that no other trade has")
    underlying: Name = Field(description="an underlying, the name of an equity of the market")
    quantity: Quantity = 1.0
    expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")


class EuropeanTrade(Trade):
    """A European call or put."""

    type: ClassVar[str] = "european"

    option: Option = Field(description="an option, call or put")
    strike: Strike = Field(description="a strike > 0")


class DigitalTrade(Trade):
    """A European option that pays `amount` of cash, or `amount` shares, when in the money."""

    type: ClassVar[str] = "digital"

    option: Option = Field(description="an option, call or put")
    strike: Strike = Field(description="a strike > 0")
    payout: Payout = "cash"
    amount: Amount = 1.0


class BarrierTrade(Trade):
    """A European option that a continuously watched barrier knocks in or out."""

    type: ClassVar[str] = "barrier"

    option: Option = Field(description="an option, call or put")
    strike: Strike = Field(description="a strike > 0")
    barrier: Barrier = Field(description="a barrier > 0")
    barrier_type: BarrierType = Field(
        description="a barrier_type: down-and-out, down-and-in, up-and-out or up-and-in"
    )
    rebate: Rebate = 0.0


TRADE_TYPES: dict[str, type[Trade]] = {
    kind.type: kind for kind in (EuropeanTrade, DigitalTrade, BarrierTrade)
}

COLUMNS = (
    *("id", "type", "underlying", "quantity", "option", "strike", "expiry", "barrier"),
    *("barrier_type", "rebate", "payout", "amount", "averaging_dates", "exercise_dates"),
    *("notional", "fixed_rate"),
)
"""Every column a trades file may have, of this and of other kinds of trade."""

NEUTRAL = {"rebate": 0.0, "payout": "cash", "amount": 1.0}
"""Values that say nothing: a trade may give them in a column that its kind does not have."""
