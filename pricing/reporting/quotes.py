"""The book's derivative to every quote as a table, scaled to the shift that its kind is quoted in."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ..market import Market
from .formats import write_csv

_SHIFTS = {
    "EQUITY_OPTION/RATE_LNVOL": (0.01, "1 vol point"),
    "SWAPTION/RATE_LNVOL": (0.01, "1 vol point"),
    "SWAPTION/RATE_NVOL": (1e-4, "1 bp"),
    "ZERO/RATE": (1e-4, "1 bp"),
    "MM/RATE": (1e-4, "1 bp"),
    "MM_FUTURE/PRICE": (0.01, "0.01 of price"),
    "IR_SWAP/RATE": (1e-4, "1 bp"),
    "EQUITY_DIVIDEND/RATE": (1e-4, "1 bp"),
    "EQUITY/PRICE": (0.01, "1 % of spot"),
    "CORRELATION": (0.01, "1 % of correlation"),
}
"""Kind of quote -> its shift (of a price: as a fraction of it) and the words for it."""


@dataclass(frozen=True)
class QuoteRisk:
    """What one quote does to the book.

    Attributes:
        quote_id: The quote's id in the market.
        derivative: The derivative of the book's value per 1.00 of the quote.
        shift: A usual move of the quote, in its own units.
        scaled: `derivative` times `shift`.
        unit: The unit of `scaled`, with the shift in words.
    """

    quote_id: str
    derivative: float
    shift: float
    scaled: float
    unit: str


def quote_risks(sensitivities: Mapping[str, float], market: Market) -> tuple[QuoteRisk, ...]:
    """Return one row for each quote of the market; a quote that no valued trade depends on has 0."""
    currencies = _currencies(market)

    def risk_of(quote: str, value: float) -> QuoteRisk:
        kind = next(kind for kind in _SHIFTS if quote.startswith(f"{kind}/"))
        shift, words = _SHIFTS[kind]
        shift *= value if kind == "EQUITY/PRICE" else 1.0
        derivative = sensitivities.get(quote, 0.0)
        unit = f"{currencies.get(quote) or market.currency or 'currency'} per {words}"
        return QuoteRisk(quote, derivative, shift, derivative * shift, unit)

    return tuple(risk_of(quote, value) for quote, value in market.flat_quotes())


def _currencies(market: Market) -> dict[str, str]:
    """Return quote -> currency of the values that it moves; for a curve, those of the equities on it."""
    ids, found = market.quote_ids(), {}
    for name, curve in ids.curves.items():
        on_it = (equity.currency for equity in market.equities.values() if equity.curve == name)
        currency = "/".join(dict.fromkeys(filter(None, on_it)))
        found |= dict.fromkeys(np.concatenate(curve.quotes), currency)
    for name, equity in ids.equities.items():
        quotes = (equity.spot, equity.dividend_yield, equity.surface.vols)
        currency = market.equities[name].currency
        found |= {quote: currency for leaf in quotes for quote in np.ravel(leaf)}
    for pair, quote in ids.correlations.items():
        equity = market.equities.get(pair[0])
        found[quote.item()] = equity.currency if equity else ""
    return found


def write_quote_risks(path: Path, risks: Iterable[QuoteRisk]) -> None:
    """Write the rows as CSV, numbers with every digit."""
    write_csv(path, [column.name for column in fields(QuoteRisk)], (asdict(risk) for risk in risks))
