"""The book's sensitivity to every quote as a table, scaled to the typical shift of its kind."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ..market import Market
from ..portfolio.book_risk import RiskResult
from .formats import write_csv

_SHIFTS = {
    "EQUITY_OPTION/RATE_LNVOL": (0.01, "1 vol point"),
    "SWAPTION/RATE_LNVOL": (0.01, "1 vol point"),
    "SWAPTION/RATE_NVOL": (1e-4, "1 bp"),
    "CAPFLOOR/RATE_LNVOL": (0.01, "1 vol point"),
    "CAPFLOOR/RATE_SLNVOL": (0.01, "1 vol point"),
    "CAPFLOOR/RATE_NVOL": (1e-4, "1 bp"),
    "CAPFLOOR/PRICE": (1e-4, "1 bp of notional"),
    "ZERO/RATE": (1e-4, "1 bp"),
    "MM/RATE": (1e-4, "1 bp"),
    "FRA/RATE": (1e-4, "1 bp"),
    "OIS/RATE": (1e-4, "1 bp"),
    "MM_FUTURE/PRICE": (0.01, "0.01 of price"),
    "IR_SWAP/RATE": (1e-4, "1 bp"),
    "BASIS_SWAP/BASIS_SPREAD": (1e-4, "1 bp"),
    "EQUITY_DIVIDEND/RATE": (1e-4, "1 bp"),
    "DIVIDEND/CASH": (0.1, "0.1 of dividend"),
    "DIVIDEND/PROPORTION": (1e-4, "1 bp of the spot"),
    "EQUITY/PRICE": (0.01, "1 % of spot"),
    "FX/RATE": (0.01, "1 % of the rate"),
    "FX_OPTION": (0.01, "1 vol point"),
    "CORRELATION": (0.01, "1 % of correlation"),
}
"""Kind of quote -> its shift (for a price, relative), and the shift in words."""


@dataclass(frozen=True)
class QuoteRisk:
    """The effect of one quote on the book.

    Attributes:
        quote_id: The quote's id in the market.
        derivative: The derivative of the book's value per 1.00 of the quote, in `currency`.
        shift: A typical move of the quote, in its own units.
        scaled: `derivative` times `shift`.
        unit: The unit of `scaled`, with the shift in words.
        currency: The ISO code of the currency of `derivative`: that of the total, if there is one.
    """

    quote_id: str
    derivative: float
    shift: float
    scaled: float
    unit: str
    currency: str = ""


def quote_risks(result: RiskResult, market: Market) -> tuple[QuoteRisk, ...]:
    """Return the rows of every quote of the market: one per quote, for a total in one currency.

    Without a total, a quote has a row for each currency whose trades it moves; a quote without any effect has a
    single row of 0 in its own currency.
    """
    own = _currencies(market)
    parts = result.by_currency or {None: result}  # one unnamed currency
    totals = {result.currency: result} if result.is_converted else parts

    def rows_of(quote: str, value: float) -> Iterator[QuoteRisk]:
        kind = next(kind for kind in _SHIFTS if quote.startswith(f"{kind}/"))
        shift, words = _SHIFTS[kind]
        shift *= value if kind in ("EQUITY/PRICE", "FX/RATE") else 1.0
        found = {name: total.sensitivities.get(quote, 0.0) for name, total in totals.items()}
        if not result.is_converted:
            found = {name: x for name, x in found.items() if x != 0.0} or {None: 0.0}
        for name, derivative in found.items():
            currency = own[quote] if name is None else name
            unit = f"{currency or 'currency'} per {words}"
            yield QuoteRisk(quote, derivative, shift, derivative * shift, unit, currency)

    return tuple(row for quote, value in market.flat_quotes() for row in rows_of(quote, value))


def _currencies(market: Market) -> dict[str, str]:
    """Return quote -> the currency of its curve or equity."""
    ids, found = market.quote_ids(), {}
    for name, curve in ids.curves.items():
        currency = market.currency_of(name, in_rates=True)
        found |= dict.fromkeys(np.concatenate(curve.quotes), currency)
    for name, equity in ids.equities.items():
        quotes = (equity.spot, *equity.dividend_quotes, equity.surface.vols)
        found |= {x: market.currency_of(name) for leaf in quotes for x in np.ravel(leaf)}
    for (name, _), quote in ids.correlations.items():
        found[quote.item()] = market.currency_of(name)
    for name, pair in ids.fx.items():
        spots = () if pair.spot is None else (pair.spot.item(),)
        quotes = () if pair.vols is None else pair.vols.quotes
        found |= dict.fromkeys((*spots, *quotes), market.fx[name].domestic)
    for name, caps in ids.cap_vols.items():
        found |= dict.fromkeys(np.ravel(caps.quotes), market.currency_of(name, in_rates=True))
    if market.swaption_vols is not None and ids.swaption_vols is not None:
        currency = market.currency_of(market.swaption_vols.curve, in_rates=True)
        found |= dict.fromkeys(np.ravel(ids.swaption_vols.vols), currency)
    return found


def write_quote_risks(path: Path, risks: Iterable[QuoteRisk]) -> None:
    """Write the rows as CSV with full precision."""
    write_csv(path, [column.name for column in fields(QuoteRisk)], (asdict(risk) for risk in risks))
