"""The abstract row of a book, the field types that kinds of trade share, and the registry of kinds."""

import dataclasses
from collections.abc import Callable, Hashable
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from ..ingestion.field_types import choice, iso_date, iso_dates, name, number, numbers, problem
from ..market.observed import UnknownPast
from .product import AbstractProduct

if TYPE_CHECKING:
    from ..market.observed import Observed

TRADE_TYPES: dict[str, type["Trade"]] = {}
"""The kinds of trade a book may hold, by their `type`: every subclass of `Trade` that has one."""

COLUMNS = [
    *("id", "type", "underlying", "quantity", "option", "strike", "expiry", "barrier"),
    *("barrier_type", "rebate", "payout", "amount", "averaging_dates", "exercise_dates"),
    *("notional", "fixed_rate", "monitoring_dates", "average", "lower", "upper", "coupons"),
    *("protection", "initial_spot", "weights"),
    *("side", "start", "maturity", "frequency", "day_count", "calendar"),
]
"""The columns of a trades file in header order; a new kind of trade appends its own."""

NEUTRAL: dict[str, Any] = {}
"""Neutral values, which a trade may give in a column that its kind does not have."""

Column = Callable[[str], Any]
ProductType = type[AbstractProduct]  # not `type`, which is a column

Name = Annotated[str, name]
IsoDate = Annotated[date, iso_date]
"""The type of a field that holds a date, written YYYY-MM-DD."""
IsoDates = Annotated[tuple[date, ...], iso_dates]
Quantity = Annotated[float, number("quantity")]
Strike = Annotated[float, number("strike", above=0.0)]
Level = Annotated[float, number("barrier", above=0.0)]
Rebate = Annotated[float, number("rebate", least=0.0)]
Spot = Annotated[float, number("spot", above=0.0)]
Lag = Annotated[float, number("settlement_lag", least=0.0, most=30.0)]
Notional = Annotated[float, number("notional", above=0.0)]
Coupons = Annotated[tuple[float, ...], numbers("coupon", least=0.0, likely=1.5)]
Option = Annotated[Literal["call", "put"], choice("call", "put")]


class Aged(NamedTuple):
    """A trade on a later day: the remaining trade, and the cash that one contract has paid.

    Attributes:
        cash: The cash paid after `Observed.since`, in currency; for a trade that ended, the whole last payment.
            None if unknown.
        trade: The remaining trade, or None.
        event: "expired", "exercised", "called", "knocked out" or "knocked in"; "" if there was none.
        day: The day of the event.
    """

    cash: float | None
    trade: "Trade | None"
    event: str = ""
    day: date | None = None


class Trade(BaseModel):
    """A row of a book. A kind of trade is a subclass with a `type`, defined in the file of its product.

    Every kind also has an `expiry`: the last date on which something is decided, often the last of its `dates`.
    Fields are columns of the trades file. The other class variables describe the conversion of rows to
    products.

    Attributes:
        type: The value of the column `type` in the trades file.
        product: The class of product that a row of this kind becomes.
        renamed: Product field -> row field, where the names differ.
        neutral: Columns whose default has no effect, so that trades of other kinds may give it.
        is_row: Whether a book may contain rows of this kind; other kinds only arise from ageing.
        in_rates: Whether the underlying is a curve of the market, not an equity.
        dates_name: The field that holds a list of dates, if the kind has one.
        drops_dates: Whether past dates can be dropped without changing the trade.
        line: The line of the trade in the file.
        id: The id of the trade.
        underlying: The name of an equity or a curve of the market.
        quantity: The number of contracts, negative when short.
        settlement_lag: The business days from the day of the last payment to its settlement.
        currency: The currency in which the row expects its value, or None. A market that values it in another
            currency refuses the row.

    Examples:
        >>> from pricing import Book
        >>> lines = "id,type,underlying,option,strike,expiry", "E1,european,DAX,put,90,2003-03-18"
        >>> book = Book.from_text(chr(10).join(lines))
        >>> book.trades[0].underlyings
        ('DAX',)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: ClassVar[str]
    product: ClassVar[ProductType]
    renamed: ClassVar[dict[str, str]] = {}
    neutral: ClassVar[tuple[str, ...]] = ()
    is_row: ClassVar[bool] = True
    in_rates: ClassVar[bool] = False
    dates_name: ClassVar[str] = ""
    drops_dates: ClassVar[bool] = False

    if TYPE_CHECKING:
        expiry: date

    line: int
    id: Name = Field(description="an id, a text that no other trade has")
    underlying: Name = Field(description="an underlying, the name of an equity of the market")
    quantity: Quantity = 1.0
    settlement_lag: Lag = 0.0
    currency: Name | None = None
    _row: "Trade | None" = PrivateAttr(None)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any):
        super().__pydantic_init_subclass__(**kwargs)
        if (
            "type" not in vars(cls) or not cls.is_row
        ):  # a base class of several kinds, or the remainder of one
            return
        TRADE_TYPES[cls.type] = cls
        own = (name for name in cls.model_fields if name not in ("line", *COLUMNS))
        COLUMNS.extend(own)
        NEUTRAL.update({name: cls.model_fields[name].default for name in cls.neutral})

    def products(self, column: Column) -> AbstractProduct:
        """Return a batch of products. column: field name -> its values in all rows, with dates as times."""
        terms = {}
        for field in dataclasses.fields(self.product):
            values = column(self.renamed.get(field.name, field.name))
            is_word = field.metadata.get("static", False)  # the same in all rows: see `shape`
            terms[field.name] = values[0] if is_word else values
        return self.product(**terms)

    @property
    def shape(self) -> Hashable:
        """The key shared by trades of one kind and number of dates that one program prices."""
        return len(self.underlyings)

    @property
    def underlyings(self) -> tuple[str, ...]:
        """The names in `underlying`: several for a basket."""
        return (self.underlying,)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The key of the model that values the trade: its underlyings, unless the kind overrides it."""
        return self.underlyings

    @property
    def level(self) -> float | None:
        """The characteristic level of the single underlying: the strike, if there is one."""
        return getattr(self, "strike", None)

    @property
    def end(self) -> date:
        """The last day on which the trade may still have value."""
        return self.expiry

    def aged(self, observed: "Observed") -> Aged:
        """Return the remaining trade on a later day, and the cash it has paid.

        Past exercise rights count as unused, because the trade is still in the book. The payment of a kind
        without `payoff` is unknown.

        Args:
            observed: The levels up to the later day. It raises `UnknownPast` if a required level is missing.
        """
        if self.expiry > observed.until:
            return Aged(0.0, self._with_dates(observed.until))
        return Aged(self.payoff(observed), None, "expired", self.expiry)

    def payoff(self, observed: "Observed") -> float | None:
        """Return the payment of one contract at its expiry, in currency; None if the kind does not define it.

        Args:
            observed: The levels up to the expiry.
        """
        del observed

    def _with_dates(self, after: date, **others: Any) -> "Trade":
        """Return the trade restricted to its dates after a day.

        Raises:
            UnknownPast: Dates have passed that the kind cannot drop.
        """
        left = tuple(day for day in self.dates or () if day > after)
        if self.dates is None or left == self.dates:
            return self
        if not self.drops_dates:
            message = f"{self.dates[0]} has passed, and a trade of type {self.type} needs all dates"
            raise UnknownPast(message, f"give only {self.dates_name} in the future")
        return self._as(type(self), **{self.dates_name: left, **others})

    def _as(self, kind: "type[Trade]", **changes: Any) -> Any:
        """Return a trade of another kind with the fields of this one and some changes."""
        own = {name: getattr(self, name) for name in kind.model_fields if hasattr(self, name)}
        return kind.model_construct(**(own | changes))

    @property
    def dates(self) -> tuple[date, ...] | None:
        """The dates of the contract, or None if it has no list of dates."""
        return getattr(self, self.dates_name) if self.dates_name else None

    def left_of(self, row: "Trade") -> "Trade":
        """Return this trade marked as the remainder of a trade of the book; see `row`.

        If the terms are unchanged, the trade of the book itself is returned, by which `explain` recognizes it.

        Args:
            row: The trade of the book.
        """
        terms = type(self).model_fields  # excludes cached properties
        if type(self) is type(row) and all(getattr(self, x) == getattr(row, x) for x in terms):
            return row
        found = self.model_copy()
        found._row = row.row
        return found

    @property
    def row(self) -> "Trade":
        """The trade of the book of which this is the remainder, or the trade itself if it is unchanged."""
        return self if self._row is None else self._row

    @property
    def num_dates(self) -> int:
        """The number of dates in the book, including past ones; 0 without a list. It does not change over time.

        Lists are padded to this number, so that an ageing trade keeps its program.
        """
        return 0 if self.dates is None else max(len(self.dates), len(self.row.dates or ()))

    @model_validator(mode="after")
    def _is_whole(self):
        if self.dates and self.dates[-1] != self.expiry:
            raise problem(
                f"the expiry is {self.expiry}, and the last of the {self.dates_name} is {self.dates[-1]}",
                "end the dates with the expiry",
                "expiry",
            )
        if self.settlement_lag % 1.0:
            message = f"{self.settlement_lag:g} is not a whole number of business days"
            raise problem(message, "give a settlement_lag such as 2", "settlement_lag")
        self.check()
        return self

    def check(self) -> None:
        """Check that the fields of the row are consistent; raise a `problem` otherwise."""


def last_of(dates_name: str) -> Any:
    """Return the default expiry: the last date of a list that was validated before, or None."""
    return Field(default_factory=lambda data: (data.get(dates_name) or (None,))[-1])


def split_names(value: str) -> tuple[str, ...]:
    """Return the names in a text with bars between them, such as DAX|SX5E.

    Raises:
        problem: A name is empty or repeated; a `PydanticCustomError` with a remedy.
    """
    names = tuple(name.strip() for name in value.split("|"))
    if not all(names):
        raise problem(f"{value!r} has an equity without a name", "give names such as DAX|SX5E")
    if len(set(names)) < len(names):
        raise problem(f"{value!r} names an equity twice", "give every equity once")
    return names


def check_count(
    values: tuple[float, ...] | None, places: tuple[str | date, ...], label: str, place: str
) -> None:
    """Check that a list has one value for each place.

    Raises:
        problem: The counts differ; a `PydanticCustomError` with a remedy.
    """
    if values is not None and len(values) != len(places):
        message = f"there are {len(values)} {label} and {len(places)} {place}"
        raise problem(message, f"give as many {label} as {place}", label)


class OptionTrade(Trade):
    """The row of a call or a put.

    Attributes:
        option: The word "call" or "put".
        strike: The strike, above 0.
    """

    option: Option = Field(description="an option, call or put")
    strike: Strike = Field(description="a strike > 0")

    def intrinsic(self, level: float) -> float:
        """Return the intrinsic value at a level of the underlying.

        Args:
            level: The level in the units of the strike.
        """
        return max(level - self.strike if self.option == "call" else self.strike - level, 0.0)

    def paid_on(self, day: date, observed: "Observed") -> Aged:
        """Return the payment of an exercise at the spot on that day.

        Args:
            day: The day of the exercise.
            observed: The levels up to a later day.
        """
        paid = self.intrinsic(observed.spot(self.underlying, day))
        return Aged(paid, None, "exercised", day)
