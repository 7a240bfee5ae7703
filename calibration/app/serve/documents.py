"""The documents of a service, for its OpenAPI description and its client."""

from typing import Any

from pydantic import BaseModel

from pricing.portfolio.book_risk import RiskResult
from pricing.reporting import positions_of, quote_risks

from .session_state import Format, QuotedMarket, StoredBook


class BookEntry(BaseModel):
    """A stored book.

    Attributes:
        name: Name of the book.
        version: The version of its text, for If-Match.
        format: The format of its text.
        trades: The number of its rows.
    """

    name: str
    version: str
    format: Format
    trades: int

    @classmethod
    def of(cls, stored: StoredBook) -> "BookEntry":
        """Return the entry of a book."""
        count = len(stored.book.rows)
        return cls(name=stored.name, version=stored.version, format=stored.format, trades=count)


class BookList(BaseModel):
    """Every stored book, by name."""

    books: list[BookEntry]


class Quotes(BaseModel):
    """The quotes of the market.

    Attributes:
        version: The version of the quotes, for If-Match.
        asof: The day of the market.
        currency: The ISO code of the market's currency.
        quotes: Quote id -> number.
    """

    version: int
    asof: str
    currency: str
    quotes: dict[str, float]

    @classmethod
    def of(cls, state: QuotedMarket) -> "Quotes":
        """Return the quotes of a state of the market."""
        market = state.market
        facts = {"asof": str(market.asof), "currency": market.currency}
        return cls(version=state.version, quotes=dict(market.flat_quotes()), **facts)


class QuotesUpdated(BaseModel):
    """The result of a move: the version of the quotes, and the number moved since the market's file."""

    version: int
    moved: int


class SolutionEntry(BaseModel):
    """A solution of a backward equation that can be evaluated.

    Attributes:
        name: Name of the solution.
        dimension: The number of coordinates of a state.
        figures: The names of its figures: value, delta, gamma.
    """

    name: str
    dimension: int
    figures: list[str]


class SolutionList(BaseModel):
    """Every solution that can be evaluated, by name."""

    solutions: list[SolutionEntry]


class SolutionFigures(BaseModel):
    """Figures of a solution at one time and some states.

    Attributes:
        name: Name of the solution.
        t: The time, in years.
        figures: Name -> the figure at each state, in order.
        extrapolated: For each state, whether figures are extrapolated, because it lies beyond the paths' reach;
            None if the solution was exported without its reach.
    """

    name: str
    t: float
    figures: dict[str, list[Any]]
    extrapolated: list[bool] | None = None


class TradeFigures(BaseModel):
    """One row of a book: quantity times one contract.

    Attributes:
        id: The row's id.
        type: The kind of trade.
        method: The name of the method that valued it.
        status: "ok", or "failed: " and the reason.
        currency: The ISO code of the figures' currency.
        figures: Column -> figure, the columns of npv.csv; empty if the trade failed.
    """

    id: str
    type: str
    method: str
    status: str
    currency: str
    figures: dict[str, float]


class QuoteSensitivity(BaseModel):
    """Sensitivity of a book to one quote: a row of sensitivity.csv.

    Attributes:
        quote_id: The quote's id.
        derivative: The derivative of the book's value per 1.00 of the quote; None if not finite.
        shift: A typical move of the quote, in its own units.
        scaled: `derivative` times `shift`; None if not finite.
        unit: The unit of `scaled`.
        currency: The ISO code of the value's currency: that of the total or, without a total, one of those that
            the quote affects, with a row for each.
    """

    quote_id: str
    derivative: float | None
    shift: float
    scaled: float | None
    unit: str
    currency: str


class BookValue(BaseModel):
    """Value of a book.

    Attributes:
        book: The name of the book.
        book_version: The version of its text.
        market_version: The version of the quotes.
        asof: The day of the market.
        currency: The ISO code of the value's currency; None if trades are in several without FX rates to
            convert them.
        value: The sum over all valued trades; None if there are none, or they are in several such currencies.
        values: Currency -> the sum over its trades, in that currency.
        trades: The number of rows.
        failed: The number of rows without figures.
    """

    book: str
    book_version: str
    market_version: int
    asof: str
    currency: str | None
    value: float | None
    values: dict[str, float]
    trades: int
    failed: int


class BookGreeks(BookValue):
    """Value and Greeks of every trade of a book.

    Attributes:
        positions: The rows of the book, in order.
    """

    positions: list[TradeFigures]


class BookSensitivities(BookValue):
    """Sensitivities of the value of a book to every quote.

    Attributes:
        sensitivities: One row for each quote of the market, in order.
    """

    sensitivities: list[QuoteSensitivity]


class BookRisk(BookGreeks, BookSensitivities):
    """Value, Greeks and sensitivities of a book, in one state of the market."""


PARTS: dict[str, type[BookValue]] = {
    "value": BookValue,
    "greeks": BookGreeks,
    "sensitivities": BookSensitivities,
    "risk": BookRisk,
}
"""The name of a document of a book -> its content."""


def book_risk(stored: StoredBook, state: QuotedMarket, result: RiskResult) -> BookRisk:
    """Return all results of a book."""
    market = state.market
    positions = positions_of(result, stored.book, market)
    found = quote_risks(result, market)
    failed = sum(position.status != "ok" for position in positions)
    parts = result.by_currency or {market.currency: result}
    totals = {name: part.value for name, part in parts.items()}
    values = totals if failed < len(positions) or not positions else {}
    return BookRisk(
        book=stored.name,
        book_version=stored.version,
        market_version=state.version,
        asof=str(market.asof),
        currency=result.currency if result.fx_rates else None,
        value=result.value if values and result.fx_rates else None,
        values=values,
        trades=len(positions),
        failed=failed,
        positions=[
            TradeFigures(**{name: getattr(p, name) for name in TradeFigures.model_fields})
            for p in positions
        ],
        sensitivities=[QuoteSensitivity(**vars(one)) for one in found],
    )


def encoded(risk: BookRisk) -> dict[str, bytes]:
    """Return the bytes of every document of a book, by name; a number that is not finite becomes null."""
    return {
        name: risk.model_dump_json(include=set(kind.model_fields)).encode()
        for name, kind in PARTS.items()
    }
