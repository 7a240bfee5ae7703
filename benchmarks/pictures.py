"""Figures of ratios: one line per comparison, on a logarithmic axis, with its quartiles."""

import html
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

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
_TAG = re.compile("<[^>]*>")
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
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
    with matplotlib.rc_context(_SETTINGS):
        height = 0.8 + _LINE * len(lines)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        _draw(figure, lines, axis)
        return _svg(figure, title)


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


def _themed(tag: str) -> str:
    """Return a tag with the page's colors; only names and numbers are between tags."""
    for role, color in THEME.items():
        tag = tag.replace(color, f"var(--{role})")
    return tag


def _svg(figure: Figure, title: str) -> str:
    """Return the figure as an `<svg>` element that names itself and takes its colours from the page."""
    page = io.StringIO()
    figure.savefig(page, format="svg", metadata=_NO_METADATA)
    text = page.getvalue()
    text = text[text.index("<svg") :]
    text = _TAG.sub(lambda tag: _themed(tag[0]), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)
