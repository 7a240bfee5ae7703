"""The documents of a service, as its pages of OpenAPI and its client know them."""

from typing import Any

from pydantic import BaseModel

from pricing.portfolio.book_risk import RiskResult
from pricing.reporting import positions_of, quote_risks

from .session_state import Format, QuotedMarket, StoredBook


class BookEntry(BaseModel):
    """A book that is kept.

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
    """Every book that is kept, by name."""

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
    """The outcome of a move: the version of the quotes, and the number moved since the market's file."""

    version: int
    moved: int


class SolutionEntry(BaseModel):
    """A solution of a backward equation that is evaluated.

    Attributes:
        name: Name of the solution.
        dimension: The number of coordinates of a state.
        figures: The names of its figures: value, delta, gamma.
    """

    name: str
    dimension: int
    figures: list[str]


class SolutionList(BaseModel):
    """Every solution that is evaluated, by name."""

    solutions: list[SolutionEntry]


class SolutionFigures(BaseModel):
    """Figures of a solution at one time and some states.

    Attributes:
        name: Name of the solution.
        t: The time, in years.
        figures: Name -> the figure at each state, in their order.
        extrapolated: For each state, whether it lies beyond those that paths reach, so that figures are
            extrapolated; None where the solution was exported without its reach.
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
        derivative: The derivative of the book's value per 1.00 of the quote; None where it is not finite.
        shift: A usual move of the quote, in its own units.
        scaled: `derivative` times `shift`; None likewise.
        unit: The unit of `scaled`.
        currency: The ISO code of the values that it moves: the total's, or, without a total, one of those that
            the quote moves, with a row for each.
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
        currency: The ISO code of the value's currency; None where trades are in several that no FX rates
            convert.
        value: The sum over all trades that were valued; None where they are in several such currencies, or
            where none was.
        values: The same by currency, each in its own.
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
        positions: The rows of the book, in its order.
    """

    positions: list[TradeFigures]


class BookSensitivities(BookValue):
    """Sensitivities of the value of a book to every quote.

    Attributes:
        sensitivities: The quotes of the market, in its order.
    """

    sensitivities: list[QuoteSensitivity]


class BookRisk(BookGreeks, BookSensitivities):
    """All that is known of a book, of one state of the market."""


PARTS: dict[str, type[BookValue]] = {
    "value": BookValue,
    "greeks": BookGreeks,
    "sensitivities": BookSensitivities,
    "risk": BookRisk,
}
"""The name of a document of a book -> its content."""


def book_risk(stored: StoredBook, state: QuotedMarket, result: RiskResult) -> BookRisk:
    """Return all that was found of a book."""
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
    """Return the bytes of every document of a book, by its name; a number that is not finite is null."""
    return {
        name: risk.model_dump_json(include=set(kind.model_fields)).encode()
        for name, kind in PARTS.items()
    }
