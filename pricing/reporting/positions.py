"""The book as a table: the figures of each position, raw and scaled to market shifts."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..market import Market
from ..market.caplet_vols import curve_of_caps
from ..portfolio.batching import currencies_in
from ..portfolio.book import Book, BookRow
from ..portfolio.book_risk import RiskResult
from ..portfolio.sweep.trade_risk import Measures, TradeRisk
from .formats import write_csv

MEASURES = ("value", "std_error", "delta", "gamma", "vega", "theta", "rho")

SCALED = {
    "delta_1pct": ("delta", lambda spot: 0.01 * spot),
    "gamma_1pct": ("gamma", lambda spot: 0.01 * spot**2),
    "vega_1volpt": ("vega", lambda spot: 0.01),
    "theta_1day": ("theta", lambda spot: 1.0 / 365.0),
    "rho_1bp": ("rho", lambda spot: 1e-4),
}
"""Column -> the raw derivative, and its factor given the spot.

gamma_1pct is the change of the currency Delta (delta * spot) for a 1 % move of the spot.
"""

SCALED_IN_RATES = {
    "delta_1bp": ("delta", lambda spot: 1e-4),
    "gamma_1bp": ("gamma", lambda spot: 1e-8),
    "vega_1bp": ("vega", lambda spot: 1e-4),
    "vega_rates_1volpt": ("vega", lambda spot: 0.01),
}
"""The same for trades on a curve, whose Delta and Gamma are to the level of its zero rates.

gamma_1bp is the change of delta_1bp for a 1 bp move of rates. vega_1bp refers to normal swaption vols,
vega_rates_1volpt to lognormal ones: a trade has the figure for its market's vols.
"""

COLUMNS = (*("id", "type", *MEASURES, "method", "status", *SCALED, *SCALED_IN_RATES), "currency")
"""The columns of every table of positions, followed by columns that only some books have.

`value:CURRENCY` is the value in the currency of the total, if some trades are in another; `settled` is for
trades that have ended; `rounding_error` and `rounding_error:MEASURE` are for single precision; `delta:NAME` and
`gamma:NAME:NAME` are for a basket's assets.
"""

_TO_QUOTES = ("vega", "theta", "rho")
_WORDS = ("id", "type", "method", "status", "currency")


@dataclass(frozen=True)
class Position:
    """One row of the book: quantity times one contract.

    Attributes:
        line: The line of the row in its file.
        id: The row's id.
        type: The kind of trade.
        trade: The trade; None if the row has no valid trade, or the trade has ended.
        figures: Column -> figure, without biased figures; empty if the trade failed or has ended.
        method: The name of the method that valued the trade.
        status: "ok", "failed: " and the reason, or the event that ended the trade, such as "expired".
        currency: The ISO code of the figures' currency.
        by_asset: For a basket, the columns of each asset's own spot.
        errors: Column -> standard error of the figure, if simulated; for a basket's Delta and Gamma, the sum of
            its assets' standard errors, an upper bound.
        is_over: Whether the trade has ended and is worthless.
        settled: The last payment of an ended trade to the position; None if unknown.
    """

    line: int
    id: str
    type: str
    trade: Any
    figures: dict[str, float]
    method: str
    status: str
    currency: str
    by_asset: dict[str, dict[str, float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    is_over: bool = False
    settled: float | None = None

    def converted(self, currency: str, rates: Mapping[str, float]) -> "Position":
        """Return the position with all figures in another currency.

        Args:
            currency: The ISO code of that currency.
            rates: ISO code -> units of that currency for one unit.
        """
        rate = rates.get(self.currency, 1.0)  # a position without a currency has no figures
        convert = lambda figures: {name: rate * figure for name, figure in figures.items()}
        by_asset = {name: convert(own) for name, own in self.by_asset.items()}
        own = {"figures": convert(self.figures), "errors": convert(self.errors)}
        return replace(self, currency=currency, by_asset=by_asset, **own)

    def on(self, name: str) -> "Position":
        """Return the position restricted to Delta and Gamma to the spot of one asset."""
        return replace(self, figures=self.by_asset[name]) if self.by_asset else self

    @property
    def reason(self) -> str:
        """The reason why the position failed."""
        return self.status.removeprefix("failed: ")


def by_currency(positions: Sequence[Position], market: Market) -> dict[str, Sequence[Position]]:
    """Return the positions by currency, within which figures can be added.

    If there is a single currency, it has all positions, including failed ones. Without a valued position, it is
    the market's currency.
    """
    valued = dict.fromkeys(position.currency for position in positions if position.figures)
    if len(valued) < 2:
        return {next(iter(valued), market.currency): positions}
    return {name: [p for p in positions if p.currency == name] for name in valued}


def positions_of(result: RiskResult, book: Book, market: Market) -> tuple[Position, ...]:
    """Return every row of the book, in order, with its figures in the currency of its underlying.

    If some trades are in another currency than the total, each also has its value in the total's currency.
    """
    served = book.checked(market)
    spot = functools.cache(lambda name: float(market.spot(name)))  # many trades, few assets
    currency_of = currencies_in(market)

    def position_of(row: BookRow, given: BookRow, risk: TradeRisk) -> Position:
        ended = row.history if row.is_over else None
        left = row.trade or (given.trade if risk.figures else None)
        trade: Any = ended.trade if ended else left
        figures, by_asset, errors = {}, {}, {}
        if risk.figures:
            spots = {name: 1.0 if trade.in_rates else spot(name) for name in trade.underlyings}
            columns = _columns(trade, market)
            figures, by_asset = _by_column(risk, columns, spots)
            errors = _errors(risk, columns, spots)
        currency = currency_of(trade) if trade else market.currency
        if figures and result.is_converted:
            figures[f"value:{result.currency}"] = result.fx_rates[currency] * figures["value"]
        return Position(
            *(row.line, row.id, row.type, left, figures, risk.method, risk.status),
            currency=currency,
            by_asset=by_asset,
            errors=errors,
            is_over=ended is not None,
            settled=ended.cash if ended else None,
        )

    return tuple(map(position_of, served.rows, book.rows, result.trades))


def _by_column(
    risk: TradeRisk, columns: dict[str, tuple], spots: dict[str, float]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the raw and scaled figures of a position, by column, and those of each asset of a basket.

    spots: The spots of its assets; 1 for a curve.
    """
    position: Any = risk.position
    errors: Any = risk.std_errors
    names = list(spots)
    raw = {name: getattr(position, name) for name in ("value", *_TO_QUOTES)}
    raw["std_error"] = abs(risk.quantity) * errors.value
    figures = _scaled({**raw, **_in_proportion(position, spots)}, columns, spots[names[0]])
    figures |= _rounding_errors(risk, spots)
    if len(names) == 1:
        return figures, {}
    by_asset = {
        name: {"delta": position.delta.get(name), "gamma": position.gamma.get((name, name))}
        for name in names
    }
    pairs = itertools.combinations_with_replacement(names, 2)  # one Gamma for each pair
    figures |= {f"delta:{name}": x for name, x in position.delta.items()}
    figures |= {f"gamma:{a}:{b}": position.gamma[a, b] for a, b in pairs if position.gamma}
    return figures, {name: _scaled(own, columns, spots[name]) for name, own in by_asset.items()}


def _rounding_errors(risk: TradeRisk, spots: dict[str, float]) -> dict[str, float]:
    """Return the rounding errors of a position by column, the value's first; empty if unknown."""
    if risk.rounding_errors is None:
        return {}
    errors: Any = risk.rounding_errors.scaled(abs(risk.quantity))
    raw = {**_in_proportion(errors, spots), **{name: getattr(errors, name) for name in _TO_QUOTES}}
    of_greeks = {f"rounding_error:{name}": x for name, x in raw.items() if x is not None}
    return {"rounding_error": errors.value, **of_greeks}


def _errors(
    risk: TradeRisk, columns: dict[str, tuple], spots: dict[str, float]
) -> dict[str, float]:
    errors: Any = risk.std_errors
    errors = errors.scaled(abs(risk.quantity))
    raw = {name: getattr(errors, name) for name in ("value", *_TO_QUOTES)}
    raw |= _in_proportion(errors, spots)
    scaled = _scaled(raw, columns, next(iter(spots.values())))
    return {name: error for name, error in scaled.items() if error}


def _columns(trade: Any, market: Market) -> dict[str, tuple]:
    if not trade.in_rates:
        return SCALED
    curve = curve_of_caps(trade.model_names[-1])
    vols = market.swaption_vols if curve is None else market.cap_vols.get(curve)
    other_vega = "vega_rates_1volpt" if vols and vols.kind == "normal" else "vega_1bp"
    columns = {name: SCALED[name] for name in ("theta_1day", "rho_1bp")} | SCALED_IN_RATES
    return {name: column for name, column in columns.items() if name != other_vega}


def _scaled(raw: dict[str, Any], columns: dict[str, tuple], spot: float) -> dict[str, float]:
    given = {name: figure for name, figure in raw.items() if figure is not None}
    made = {name: given[of] * factor(spot) for name, (of, factor) in columns.items() if of in given}
    return {**given, **made}


def _in_proportion(figures: Measures, spots: dict[str, float]) -> dict[str, float | None]:
    """Return Delta and Gamma for proportional moves of all spots, per 1.00 of the first."""
    first = next(iter(spots.values()))
    ratios = {name: spot / first for name, spot in spots.items()}
    delta = sum(x * ratios[name] for name, x in figures.delta.items())
    gamma = sum(x * (ratios[a] * ratios[b]) for (a, b), x in figures.gamma.items())
    return {"delta": delta if figures.delta else None, "gamma": gamma if figures.gamma else None}


def write_positions(path: Path, positions: Sequence[Position]) -> None:
    """Write the positions as CSV with full precision; a failed row has no figures.

    An ended trade has the value 0, and its last payment in the column `settled`.
    """
    cells = [_ended(p) if p.is_over else p.figures for p in positions]
    of_some = (name for own in cells for name in own if name not in COLUMNS)
    columns = (*COLUMNS, *dict.fromkeys(of_some))
    words = ({name: getattr(p, name) for name in _WORDS} for p in positions)
    write_csv(path, columns, (said | own for said, own in zip(words, cells, strict=True)))


def _ended(position: Position) -> dict[str, float]:
    settled = {} if position.settled is None else {"settled": position.settled}
    return {"value": 0.0, "std_error": 0.0, **settled}
