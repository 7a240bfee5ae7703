"""What every trade has, and the field types that kinds of trades share."""

from datetime import date
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..ingestion.fields import choice, iso_date, iso_dates, name, number, numbers, problem

Name = Annotated[str, name]
IsoDate = Annotated[date, iso_date]
IsoDates = Annotated[tuple[date, ...], iso_dates]
Quantity = Annotated[float, number("quantity")]
Strike = Annotated[float, number("strike", above=0.0)]
Barrier = Annotated[float, number("barrier", above=0.0)]
Rebate = Annotated[float, number("rebate", least=0.0)]
Amount = Annotated[float, number("amount", above=0.0)]
Spot = Annotated[float, number("spot", above=0.0)]
Notional = Annotated[float, number("notional", above=0.0)]
Coupons = Annotated[tuple[float, ...], numbers("coupon", least=0.0)]
Weights = Annotated[tuple[float, ...], numbers("weight", above=0.0)]
Option = Annotated[Literal["call", "put"], choice("call", "put")]


class Trade(BaseModel):
    """What every trade has.

    `quantity`: contracts, negative when short. `line`: where the trade stands in its file. Every kind has an
    `expiry` too, the last date on which something is decided, which may be the last of its `dates`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: ClassVar[str]
    in_rates: ClassVar[bool] = False
    """Whether its underlying is a curve of the market, not an equity."""
    dates_name: ClassVar[str] = ""
    """The field that holds a list of dates, if the kind has one."""
    why_not_past: ClassVar[str] = "take the dates out that have passed"
    """What to do about a date of the list that is not after the market's as-of date."""

    if TYPE_CHECKING:
        expiry: date

    line: int
    id: Name = Field(description="an id, a text that no other trade has")
    underlying: Name = Field(description="an underlying, the name of an equity of the market")
    quantity: Quantity = 1.0

    @property
    def underlyings(self) -> tuple[str, ...]:
        """The names that `underlying` is made of: more than one of a basket."""
        return (self.underlying,)

    @property
    def level(self) -> float | None:
        """The price of the one underlying at which the trade turns: its strike, if it has one."""
        return getattr(self, "strike", None)

    @property
    def deadlines(self) -> dict[str, tuple[date, str]]:
        """What must come after the market's as-of date, beside `dates`: field -> (date, what to do if not)."""
        remedy = "give an expiry that is still to come, or take the trade out"
        return {"expiry": (self.expiry, remedy)}

    @property
    def dates(self) -> tuple[date, ...] | None:
        """The dates the contract looks at, if it has a list of them."""
        return getattr(self, self.dates_name) if self.dates_name else None

    @model_validator(mode="after")
    def _ends_with_its_expiry(self):
        if self.dates and self.dates[-1] != self.expiry:
            raise problem(
                f"the expiry is {self.expiry}, and the last of the {self.dates_name} is {self.dates[-1]}",
                "end the dates with the expiry",
                "expiry",
            )
        return self


def last_of(dates_name: str):
    """The default of an expiry: the last date of a list that is validated before it."""
    return Field(default_factory=lambda data: data[dates_name][-1])


class OptionTrade(Trade):
    """What calls and puts have."""

    option: Option = Field(description="an option, call or put")
    strike: Strike = Field(description="a strike > 0")
