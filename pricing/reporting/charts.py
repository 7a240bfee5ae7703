"""The report's pictures, as SVG text whose colours follow the page's light or dark theme."""

import html
import io
import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..market.vol_unit import BASIS_POINTS
from .formats import plain, significant
from .ladders import Ladder
from .surface_fit import ManyFits, SurfaceFit

THEME = {
    "ink": "#1c2430",
    "muted": "#667085",
    "line": "#d9dee6",
    "up": "#1f6fb2",
    "down": "#c8553d",
}
"""Role -> the colour drawn; on the page each is the CSS variable of that name."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxtape",
    "text.parse_math": False,  # a name with dollars is a name
    "text.usetex": False,
    "font.size": 8.0,
    "text.color": THEME["ink"],
    "axes.edgecolor": THEME["line"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 6.0,
    "axes.axisbelow": True,
    "grid.color": THEME["line"],
    "grid.linewidth": 0.6,
    "xtick.color": THEME["line"],
    "ytick.color": THEME["line"],
    "xtick.labelcolor": THEME["muted"],
    "ytick.labelcolor": THEME["muted"],
    "ytick.major.size": 0.0,
    "xtick.major.size": 3.0,
}
_WIDTH = 11.0  # inches
_TITLE = 80  # characters at most: half the width
_SHORT = 5  # characters of labels that stand side by side
_TAG = re.compile("<[^>]*>")
_SHAPE = re.compile(r"(<(path|use)(?! id=)\b[^>]*?)/>", re.S)  # one that others use has an id
_HINTED = re.compile(r'<g id="(hint-\d+)">(.*?)</g>\n', re.S)
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def drawn(draw: Callable[[Figure], None], height: float, title: str) -> str:
    """Draw a picture of the page's width, in the page's style.

    Args:
        draw: A function that draws on the figure, in colours of `THEME`.
        height: The height in inches; the width is 11.
        title: A description of the picture, for readers who do not see it.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        return _svg(figure, title)


def smiles(fit: SurfaceFit) -> str:
    """Draw the model's smile (line) through the market's vols (dots), one panel an expiry."""
    unit = "bp" if fit.unit is BASIS_POINTS else "%"
    columns = min(4, len(fit.expiries))
    rows = -(-len(fit.expiries) // columns)
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, 1.95 * rows + 0.2), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
        hints = _Hints()
        for index, expiry in enumerate(fit.rows):
            panel = panels[index]
            if fit.spot is not None:
                _spot_line(panel, fit.spot)
            curve = fit.unit.per_one * fit.curve_vols[index]
            panel.plot(fit.curve_strikes, curve, color=THEME["up"], lw=1.5)
            is_there = ~np.isnan(fit.market_vols[index])
            strikes = np.asarray(fit.strikes)[is_there]
            vols = fit.unit.per_one * fit.market_vols[index][is_there]
            dots = panel.plot(strikes, vols, "o", ms=3.2, color=THEME["ink"], mew=0)
            pairs = zip(strikes.tolist(), vols.tolist(), strict=True)
            hints.add(
                dots[0], [f"{expiry}, {plain(k)}: {plain(round(v, 2))} {unit}" for k, v in pairs]
            )
            panel.set_title(expiry)
            panel.grid(axis="y")
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.xaxis.set_major_formatter(_plain())
            panel.yaxis.set_major_locator(MaxNLocator(4))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda vol, _: f"{vol:g} {unit}"))
            panel.tick_params(labelbottom=index + columns >= len(fit.expiries))
        for panel in panels[len(fit.expiries) :]:
            panel.set_axis_off()
        return _svg(figure, f"Market and model smiles of {fit.underlying}", hints)


def histograms(fits: ManyFits) -> str:
    """Draw how each parameter, and the residuals, spread over the surfaces, one panel each."""
    shown = fits.columns
    columns = min(3, len(shown))
    with matplotlib.rc_context(_SETTINGS):
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(_WIDTH, 1.95 * rows + 0.2), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, (name, values) in zip(panels, shown.items(), strict=False):
            counts, edges = binned(values)
            panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=THEME["up"])
            panel.set_title(name.replace("_", " "))
            panel.grid(axis="y")
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            panel.xaxis.set_major_formatter(_plain())
        for panel in panels[len(shown) :]:
            panel.set_axis_off()
        return _svg(figure, f"Parameters of {fits.model} by number of surfaces")


def binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of the finite values in 32 bins, and the bins' edges.

    A few far out would hide the others: values beyond half a per cent on either side are in the outermost bins.
    """
    known = values[np.isfinite(values)]
    if known.size:
        ends = zip((0.005, 0.995), ("lower", "higher"), strict=True)
        low, high = (np.quantile(known, share, method=method) for share, method in ends)
        known = np.clip(known, low, high)
    return np.histogram(known, bins=32)


def ladders(titled: Sequence[tuple[str, Ladder]], spot: float | None = None) -> str:
    """Draw the bars of one or more ladders, side by side; those by strike also show where the spot is."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, 2.6), layout="constrained")
        panels = figure.subplots(1, len(titled), squeeze=False).ravel()
        hints = _Hints()
        for panel, (title, ladder) in zip(panels, titled, strict=True):
            _bars(panel, ladder, hints)
            if ladder.edges is not None and spot is not None:
                _spot_line(panel, spot)
            panel.set_title(title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…")
        return _svg(figure, "; ".join(title for title, _ in titled), hints)


def _bars(panel: Axes, ladder: Ladder, hints: "_Hints") -> None:
    totals = ladder.totals
    colors = [THEME["up"] if total >= 0 else THEME["down"] for total in totals]
    if ladder.edges is None:
        names = ladder.labels
        bars = panel.bar(range(len(totals)), totals, width=0.72, color=colors)
        panel.set_xticks(range(len(totals)), ladder.labels)
        is_crowded = len(names) > 4 and max(map(len, names)) > _SHORT
        panel.tick_params("x", labelrotation=35 if is_crowded else 0)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right" if is_crowded else "center")
            label.set_rotation_mode("anchor")
    else:
        widths = ladder.edges[1:] - ladder.edges[:-1]
        edges = [plain(edge) for edge in ladder.edges]
        names = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
        bars = panel.bar(ladder.edges[:-1], totals, 0.86 * widths, align="edge", color=colors)
        panel.xaxis.set_major_formatter(_plain())
    for bar, name, total in zip(bars, names, totals.tolist(), strict=True):
        hints.add(bar, [f"{name}: {significant(total, 6)}"])
    panel.axhline(0.0, color=THEME["muted"], lw=0.8)
    panel.grid(axis="y")
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.yaxis.set_major_formatter(_plain())


class _Hints:
    """Tooltips of marks: SVG's `<title>`, put in after the figure is drawn."""

    def __init__(self):
        self._of: dict[str, Sequence[str]] = {}

    def add(self, mark: Artist, texts: Sequence[str]) -> None:
        """Give each shape of a mark its text."""
        name = f"hint-{len(self._of)}"
        mark.set_gid(name)
        self._of[name] = texts

    def put_into(self, svg: str) -> str:
        """Return the picture with its hints."""

        def with_titles(group: re.Match[str]) -> str:
            texts = iter(self._of[group[1]])

            def titled(shape: re.Match[str]) -> str:
                return f"{shape[1]}><title>{html.escape(next(texts))}</title></{shape[2]}>"

            return f"<g>{_SHAPE.sub(titled, group[2])}</g>\n"

        return _HINTED.sub(with_titles, svg) if self._of else svg


def _spot_line(panel: Axes, spot: float) -> None:
    panel.axvline(spot, color=THEME["muted"], lw=0.8, ls=(0, (3, 3)))


def _plain() -> FuncFormatter:
    return FuncFormatter(lambda value, _: plain(value))


def _themed(tag: str) -> str:
    """Return a tag with the page's colors; only names and numbers are between tags."""
    for role, color in THEME.items():
        tag = tag.replace(color, f"var(--{role})")
    return tag


def _svg(figure: Figure, title: str, hints: _Hints | None = None) -> str:
    """Return the figure as an `<svg>` element that names itself and takes its colours from the page."""
    page = io.StringIO()
    with warnings.catch_warnings():  # the page's reader has fonts of his own
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(page, format="svg", metadata=_NO_METADATA)
    text = page.getvalue()
    text = text[text.index("<svg") :]
    text = _TAG.sub(lambda tag: _themed(tag[0]), hints.put_into(text) if hints else text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)
