"""Figures of ratios: one line per comparison, on a logarithmic axis, with its quartiles."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pricing.reporting.charts import THEME, drawn

_LINE = 0.165  # inches
_SPAN = 2.0  # decades; on shorter axes, 2 and 5 times powers of ten are labelled, too


@dataclass(frozen=True)
class Bar:
    """A ratio and its quartiles, if they are known.

    `group` is the benchmark and its task, shown above the bars of all their peers; `label` is the peer.
    """

    group: str
    label: str
    ratio: float
    low: float | None = None
    high: float | None = None


def bars(found: Iterable[Bar], title: str, axis: str) -> str:
    """Return the figure as SVG; an empty string if there are no ratios."""
    rows = [bar for bar in found if bar.ratio > 0.0]
    if not rows:
        return ""
    lines = _lines(rows)
    return drawn(lambda figure: _draw(figure, lines, axis), 0.8 + _LINE * len(lines), title)


def _lines(rows: list[Bar]) -> list[Bar | str]:
    """Return the bars, with each group's name before its first bar."""
    lines: list[Bar | str] = []
    for place, bar in enumerate(rows):
        if not place or rows[place - 1].group != bar.group:
            lines.append(bar.group)
        lines.append(bar)
    return lines


def _draw(figure: Figure, lines: list[Bar | str], axis: str) -> None:
    panel = figure.subplots()
    rows = [bar for bar in lines if isinstance(bar, Bar)]
    for place, bar in enumerate(lines):
        color = THEME["up"]
        if isinstance(bar, str):
            across = panel.get_yaxis_transform()
            panel.text(0.004, place, bar, transform=across, va="center", fontsize=6.5)
            panel.axhline(place - 0.5, color=THEME["line"], lw=0.6)
            continue
        if bar.low is not None and bar.high is not None:
            panel.plot([bar.low, bar.high], [place, place], color=color, lw=3.0, alpha=0.45)
        filled = color if bar.low is not None else "none"
        panel.plot([bar.ratio], [place], "o", ms=4.0, mec=color, mfc=filled, mew=1.0)
        panel.annotate(
            f"{bar.ratio:.3g}",
            (max(bar.ratio, bar.high or 0.0), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color=THEME["muted"],
        )
    panel.axvline(1.0, color=THEME["muted"], lw=0.9)
    panel.set_xscale("log")
    panel.grid(axis="x")
    panel.set_xlabel(axis, color=THEME["muted"])
    ratios = [1.0, *(x for bar in rows for x in (bar.ratio, bar.low, bar.high) if x)]
    is_short = math.log10(max(ratios) / min(ratios)) < _SPAN
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    labels = ["" if isinstance(bar, str) else bar.label for bar in lines]
    panel.set_yticks(range(len(lines)), labels, fontsize=6.5)
    panel.set_ylim(len(lines) - 0.5, -0.5)
