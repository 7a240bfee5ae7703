"""The tables of the report, as text for the page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf, isnan, nan

import numpy as np

from ..portfolio.book_risk import RiskResult
from .formats import by_size, decimals_for, number, plain, significant
from .positions import SCALED, SCALED_IN_RATES, Position
from .quotes import QuoteRisk
from .surface_fit import ManyFits, SurfaceFit
from .terms import terms


@dataclass(frozen=True)
class Heading:
    """The heading of a figure: its name, the trades that it covers (all if empty), and its shift."""

    name: str
    of: str = ""
    shift: str = ""

    @property
    def label(self) -> str:
        """The heading of a key figure, such as "Delta, equities"."""
        return f"{self.name}, {self.of}" if self.of else self.name

    @property
    def header(self) -> str:
        """The heading of a column, such as "Delta, 1 % of spot"; it breaks only after the comma."""
        return f"{self.name}, {self.shift.replace(' ', _KEEP)}" if self.shift else self.name


_KEEP = "\N{NO-BREAK SPACE}"
FIGURES = {
    "value": Heading("Value"),
    "delta_1pct": Heading("Delta", "equities", "1 % of spot"),
    "gamma_1pct": Heading("Gamma", "equities", "1 % of spot"),
    "vega_1volpt": Heading("Vega", "equities", "1 vol point"),
    "theta_1day": Heading("Theta", shift="1 day"),
    "rho_1bp": Heading("Rho", shift="1 bp of rates"),
    "delta_1bp": Heading("Delta", "rates", "1 bp of rates"),
    "gamma_1bp": Heading("Gamma", "rates", "1 bp of rates"),
    "vega_1bp": Heading("Vega", "rates", "1 bp of vol"),
    "vega_rates_1volpt": Heading("Vega", "rates", "1 vol point of swaptions"),
}
_NO_TRADE, _ENDED = "unknown", "ended"
_BUCKETS = (
    *(("to 1 month", 31), ("to 3 months", 92), ("to 6 months", 183), ("to 1 year", 366)),
    *(("to 2 years", 731), ("to 5 years", 1827), ("to 10 years", 3653), ("later", inf)),
)
"""Time to expiry -> the last day of the bucket."""
_OF_EQUITIES = ("delta_1pct", "gamma_1pct", "vega_1volpt")
_VEGAS_OF_RATES = ("vega_1bp", "vega_rates_1volpt")


class Number(str):
    """A formatted number that keeps its value in full precision."""

    value: float

    def __new__(cls, text: str, value: float | int) -> "Number":
        """Return the text with its value attached."""
        found = super().__new__(cls, text)
        found.value = float(value)
        return found


@dataclass(frozen=True)
class TextTable:
    """Rows of text under headers; the first `words` columns are text, the others numbers.

    `has_total`: the last row is the sum. `left_out`: the number of rows left out.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    has_total: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class Cell:
    """A cell of a map: its text, its sign as the name of a color, and the intensity of the color, in [0, 1].

    hint: The tooltip.
    """

    text: Number
    color: str
    strength: float
    hint: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A map of numbers by expiry and strike; `totals` are the sums of its rows, or empty."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    totals: tuple[str, ...] = ()
    column_totals: tuple[str, ...] = ()


def heat_map(
    rows: Iterable[str],
    columns: Iterable[str],
    values: np.ndarray,
    sums: bool,
    errors: np.ndarray | None = None,
) -> HeatMap:
    """Return a map of `values`, colored by sign and size; `sums` adds totals of rows and columns.

    errors: The standard errors, for the tooltips of the cells.
    """
    largest = float(np.max(np.abs(np.nan_to_num(values)), initial=0.0)) or 1.0
    decimals = min(2, decimals_for([largest]))

    def cell(row: str, column: str, value: float, error: float) -> Cell:
        strength = 0.0 if isnan(value) else round(float(abs(value) / largest) ** 0.7, 3)
        hint = f"{row}, {column}: {significant(value, 8)}{margin(error)}"
        text = Number("", value) if isnan(value) else rounded(value, decimals)
        return Cell(text, "up" if value >= 0 else "down", strength, hint)

    rows, columns = tuple(rows), tuple(columns)
    errors = np.zeros_like(values) if errors is None else errors
    cells = tuple(
        tuple(map(cell, [row] * len(columns), columns, *of_row))
        for row, *of_row in zip(rows, values.tolist(), errors.tolist(), strict=True)
    )
    if not sums:
        return HeatMap(columns, rows, cells)
    both = values.sum(axis=1), [*values.sum(axis=0), values.sum()]
    totals = (tuple(rounded(float(x), decimals) for x in side) for side in both)
    return HeatMap(columns, rows, cells, *totals)


def margin(error: float) -> str:
    """Format a standard error to follow its figure; "" if there is none."""
    return f" ± {significant(error, 2)}" if error > 0.0 else ""


def figures_of(positions: Iterable[Position]) -> tuple[str, ...]:
    """Return the figures to show; those of equities or rates only if such a trade was valued."""
    valued = [position for position in positions if position.figures]
    in_rates = [position for position in valued if position.trade.in_rates]
    has_equities = not valued or len(in_rates) < len(valued)
    figures = [name for name in SCALED if has_equities or name not in _OF_EQUITIES]
    read = {name for name in _VEGAS_OF_RATES if any(name in p.figures for p in in_rates)}
    others = [name for name in SCALED_IN_RATES if name not in _VEGAS_OF_RATES or name in read]
    return ("value", *figures, *(others if in_rates else ()))


def _headers(figures: Iterable[str]) -> tuple[str, ...]:
    return tuple(FIGURES[figure].header for figure in figures)


def by_product(positions: Sequence[Position]) -> TextTable:
    """Return the sums by type of product, and over the book."""
    return _grouped("Product", positions, lambda position: position.type)


def by_underlying(positions: Sequence[Position]) -> TextTable:
    """Return the sums by underlying; a basket has its own row."""
    return _grouped("Underlying", positions, underlying_of)


def underlying_of(position: Position) -> str:
    """Return the name of a position's underlying."""
    if position.is_over:
        return _ENDED
    return position.trade.underlying.replace("|", " and ") if position.trade else _NO_TRADE


def by_expiry(positions: Sequence[Position], asof: date) -> TextTable:
    """Return the sums by time to expiry (for a swap, to its last payment)."""
    order = {name: place for place, (name, _) in enumerate(_BUCKETS)}

    def bucket_of(position: Position) -> str:
        if position.trade is None:
            return _ENDED if position.is_over else _NO_TRADE
        days = (position.trade.expiry - asof).days
        return next(name for name, last in _BUCKETS if days <= last)

    place = lambda position: order.get(bucket_of(position), len(order))
    return _grouped("Expiry", sorted(positions, key=place), bucket_of)


def _grouped(
    title: str, positions: Sequence[Position], key: Callable[[Position], str]
) -> TextTable:
    members: dict[str, list[Position]] = {}
    for position in positions:
        members.setdefault(key(position), []).append(position)
    shown, groups = figures_of(positions), [*members.items(), ("total", list(positions))]
    sums = [[total(own, figure) for figure in shown] for _, own in groups]
    columns = [column(figures) for figures in zip(*sums, strict=True)]
    rows = [
        (
            name,
            rounded(len(own)),
            rounded(sum(not p.figures and not p.is_over for p in own)),
            *figures,
        )
        for (name, own), figures in zip(groups, zip(*columns, strict=True), strict=True)
    ]
    headers = (title, "Trades", "Failed", *_headers(shown))
    return TextTable(headers, tuple(rows), has_total=True)


def by_currency(positions: Sequence[Position], result: RiskResult) -> TextTable:
    """Return the value of the trades in each currency, also in the currency of the total."""
    rows = []
    for name, rate in result.fx_rates.items():
        own = [p for p in positions if p.currency == name and p.figures]
        value = result.by_currency[name].value
        numbers = rounded(len(own)), *column([value]), Number(significant(rate, 6), rate)
        rows.append((name or "currency", *numbers, *column([rate * value])))
    count = sum(1 for position in positions if position.figures)
    rows.append(("total", rounded(count), "", "", *column([result.value])))
    headers = ("Currency", "Trades", "Value in it", f"{result.currency} for one", result.currency)
    return TextTable(headers, tuple(rows), has_total=True)


def largest(positions: Iterable[Position], count: int) -> TextTable:
    """Return the positions with the largest absolute values."""
    valued = [position for position in positions if position.figures]
    valued.sort(key=lambda position: -abs(position.figures["value"]))
    shown = valued[:count]
    figures = figures_of(shown)
    columns = [column([p.figures.get(figure, nan) for p in shown]) for figure in figures]
    words = [(p.id, p.type, terms(p.trade), quantity(p)) for p in shown]
    rows = tuple((*head, *row) for head, row in zip(words, zip(*columns, strict=True), strict=True))
    headers = ("Trade", "Product", "Terms", "Quantity", *_headers(figures))
    return TextTable(headers, rows, words=3, left_out=len(valued) - len(shown))


def largest_risks(positions: Iterable[Position], count: int) -> TextTable:
    """Return the positions with the largest absolute figures, for each figure except the value."""
    valued = [position for position in positions if position.figures]
    rows = []
    for figure in figures_of(valued)[1:]:
        own = [p for p in valued if abs(p.figures.get(figure, 0.0)) > 0.0]
        own.sort(key=lambda position, figure=figure: -abs(position.figures[figure]))
        name, shown = FIGURES[figure], own[:count]
        texts = column([p.figures[figure] for p in shown])
        label = f"{name.label}, {name.shift}" if name.shift else name.label
        rows += [
            (
                label,
                p.id,
                p.type,
                terms(p.trade),
                quantity(p),
                text,
                std_error(p.errors.get(figure, nan)),
            )
            for p, text in zip(shown, texts, strict=True)
        ]
    headers = ("Figure", "Trade", "Product", "Terms", "Quantity", "Amount", "Std. error")
    return TextTable(headers, tuple(rows), words=4)


def failed(positions: Iterable[Position], count: int) -> TextTable:
    """Return the rows without figures, and the reasons."""
    rows = [
        (str(p.line), p.id, p.type, p.reason) for p in positions if not p.figures and not p.is_over
    ]
    headers = ("Line", "Trade", "Product", "Reason")
    return TextTable(headers, tuple(rows[:count]), words=4, left_out=max(0, len(rows) - count))


def top_quotes(risks: Iterable[QuoteRisk], count: int) -> TextTable:
    """Return the quotes with the largest scaled sensitivities."""
    shown = sorted(risks, key=lambda risk: by_size(risk.scaled))[:count]
    figures = column([risk.scaled for risk in shown])
    rows = [
        (risk.quote_id, risk.unit, text, Number(significant(risk.derivative, 6), risk.derivative))
        for risk, text in zip(shown, figures, strict=True)
    ]
    return TextTable(("Quote", "Unit", "Sensitivity", "Derivative, per 1.00"), tuple(rows), words=2)


def parameters(fit: SurfaceFit) -> TextTable:
    """Return the calibrated parameters and how well the quotes identify them."""
    rows = [
        (name.replace("_", " "), significant(value, 5), significant(error, 2))
        for name, (value, error) in fit.parameters.items()
    ]
    return TextTable(("Parameter", "Value", "Std. error"), tuple(rows))


def quantiles(fits: ManyFits) -> TextTable:
    """Return the spread of each parameter, and of the residuals, over the surfaces that were fitted."""
    shares = (0.0, 0.05, 0.5, 0.95, 1.0)
    rows = [
        (
            name.replace("_", " "),
            *(significant(x, 4) for x in np.quantile(values[np.isfinite(values)], shares)),
        )
        for name, values in fits.columns.items()
        if np.any(np.isfinite(values))
    ]
    return TextTable(("Parameter", "Least", "5 %", "Median", "95 %", "Largest"), tuple(rows))


def unfitted(fits: ManyFits, count: int) -> TextTable:
    """Return the surfaces without a fit, and why."""
    rows = tuple(fits.failed.items())
    return TextTable(
        ("Surface", "Reason"), rows[:count], words=2, left_out=max(0, len(rows) - count)
    )


def facts(pairs: Mapping[str, str], headers: tuple[str, str]) -> TextTable:
    """Return a table of labels and texts."""
    return TextTable(headers, tuple(pairs.items()), words=2)


def total(positions: Sequence[Position], figure: str) -> float:
    """Return the sum of a figure over the positions that have it; NaN where none of them has."""
    found = [position.figures[figure] for position in positions if figure in position.figures]
    return sum(found, 0.0) if found or not positions else nan


def column(values: Sequence[float]) -> list[Number]:
    """Write some figures with the same decimals, as many as the largest one needs."""
    decimals = min(4, decimals_for(values))
    return [rounded(value, decimals) for value in values]


def rounded(value: float | int, decimals: int = 0) -> Number:
    """Return a number with some decimals."""
    return Number(number(value, decimals), value)


def quantity(position: Position) -> Number:
    """Return the quantity of a position's contracts."""
    return Number(plain(position.trade.quantity), position.trade.quantity)


def std_error(value: float) -> Number:
    """Return a standard error; a dash where nothing is simulated."""
    return Number(significant(value, 2) if value else "\N{EN DASH}", value)
