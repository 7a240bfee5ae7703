"""The report's charts, as SVG whose colours follow the page's light or dark theme."""

import itertools
from collections.abc import Sequence

import numpy as np

from ..market.vol_unit import BASIS_POINTS
from .formats import plain, significant
from .ladders import Ladder
from .panels import Axis, Bars, Curve, Dots, Panel, picture, without_labels
from .surface_fit import ManyFits, SurfaceFit

_TITLE = 80  # largest number of characters: half the width
_SHORT = 5  # largest number of characters of horizontal labels
_ROW, _REST = 140.4, 14.4  # the heights of a row of panels, and of what is beside them, in points
_LADDER = 187.2


def smiles(fit: SurfaceFit) -> str:
    """Draw the model's smile (line) and the market's vols (dots), one panel per expiry."""
    spot = [] if fit.spot is None else [fit.spot]
    across = Axis.over([*fit.curve_strikes.tolist(), *fit.strikes.tolist(), *spot], 4)
    panels = [_smile(fit, index, across) for index in range(len(fit.expiries))]
    columns = min(4, len(panels))
    panels = [*map(without_labels, panels[:-columns]), *panels[-columns:]]
    height = _ROW * -(-len(panels) // columns) + _REST
    return picture(panels, columns, height, f"Market and model smiles of {fit.underlying}")


def _smile(fit: SurfaceFit, index: int, across: Axis) -> Panel:
    unit = "bp" if fit.unit is BASIS_POINTS else "%"
    curve = (fit.unit.per_one * fit.curve_vols[index]).tolist()
    is_there = np.isfinite(fit.market_vols[index])
    strikes = np.asarray(fit.strikes)[is_there].tolist()
    vols = (fit.unit.per_one * fit.market_vols[index][is_there]).tolist()
    expiry, pairs = fit.rows[index], zip(strikes, vols, strict=True)
    hints = [f"{expiry}, {plain(k)}: {plain(round(v, 2))} {unit}" for k, v in pairs]
    marks = Curve(fit.curve_strikes.tolist(), curve), Dots(strikes, vols, hints)
    up = Axis.over([*curve, *vols], 4, lambda vol: f"{vol:g} {unit}")
    return Panel(expiry, marks, across, up, spot=fit.spot)


def histograms(fits: ManyFits) -> str:
    """Draw histograms of the parameters and residuals over the surfaces, one panel each."""
    panels = [_histogram(name, *binned(values)) for name, values in fits.columns.items()]
    columns = min(3, len(panels))
    height = _ROW * -(-len(panels) // columns) + _REST
    return picture(panels, columns, height, f"Parameters of {fits.model} by number of surfaces")


def _histogram(name: str, counts: np.ndarray, edges: np.ndarray) -> Panel:
    starts, heights = edges.tolist(), counts.astype(float).tolist()
    bars = Bars(starts[:-1], starts[1:], heights)
    up = Axis.over([0.0, *heights], 4, whole=True, fixed=0.0)
    return Panel(name.replace("_", " "), [bars], Axis.over(starts, 4), up)


def binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of the finite values in 32 bins, and the bins' edges.

    So that outliers do not hide the others, the outer half per cent on either side is in the outermost bins.
    """
    known = values[np.isfinite(values)]
    if known.size:
        ends = zip((0.005, 0.995), ("lower", "higher"), strict=True)
        low, high = (np.quantile(known, share, method=method) for share, method in ends)
        known = np.clip(known, low, high)
    return np.histogram(known, bins=32)


def ladders(titled: Sequence[tuple[str, Ladder]], spot: float | None = None) -> str:
    """Draw the bars of one or more ladders side by side; ladders by strike also show the spot."""
    panels = [_bars(title, ladder, spot) for title, ladder in titled]
    return picture(panels, len(panels), _LADDER, "; ".join(title for title, _ in titled))


def _bars(title: str, ladder: Ladder, spot: float | None) -> Panel:
    totals = ladder.totals.tolist()
    if ladder.edges is None:
        spot, names = None, ladder.labels
        middles = np.arange(len(totals), dtype=float)
        starts, ends = (middles - 0.36).tolist(), (middles + 0.36).tolist()
        is_crowded = len(names) > 4 and max(map(len, names)) > _SHORT
        across = Axis.over([*starts, *ends], 1)
        labels = tuple(zip(middles.tolist(), names, strict=True))
        across = across._replace(labels=labels, is_slanted=is_crowded)
    else:
        edges = ladder.edges.tolist()
        pairs = itertools.pairwise([plain(edge) for edge in edges])
        names = [f"{low} to {high}" for low, high in pairs]
        starts = edges[:-1]
        ends = (ladder.edges[:-1] + 0.86 * np.diff(ladder.edges)).tolist()
        across = Axis.over([*starts, *ends, *([] if spot is None else [spot])], 5)
    hints = [f"{name}: {significant(total, 6)}" for name, total in zip(names, totals, strict=True)]
    up = Axis.over([0.0, *totals], 5, fixed=0.0)
    short = title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"
    return Panel(short, [Bars(starts, ends, totals, hints)], across, up, spot=spot, zero=True)
