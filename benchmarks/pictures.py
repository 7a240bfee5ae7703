"""Pictures of ratios: one line a comparison, on a logarithmic axis, with its quartiles."""

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pricing.reporting.figures import THEME, drawn

_LINE = 0.165  # inches
_LONGEST, _HEAD = 88, 34  # characters of a label, and of its head where it is cut


@dataclass(frozen=True)
class Bar:
    """A ratio and its quartiles, if they are known. group: the benchmark."""

    group: str
    label: str
    ratio: float
    low: float | None = None
    high: float | None = None


def bars(found: Iterable[Bar], title: str, axis: str) -> str:
    """The picture as SVG; nothing if there are no ratios."""
    rows = [bar for bar in found if bar.ratio > 0.0]
    if not rows:
        return ""
    return drawn(lambda figure: _draw(figure, rows, axis), 0.8 + _LINE * len(rows), title)


def _draw(figure: Figure, rows: list[Bar], axis: str) -> None:
    panel = figure.subplots()
    for place, bar in enumerate(rows):
        color = THEME["up"]
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
        if place and rows[place - 1].group != bar.group:
            panel.axhline(place - 0.5, color=THEME["line"], lw=0.6)
    panel.axvline(1.0, color=THEME["muted"], lw=0.9)
    panel.set_xscale("log")
    panel.grid(axis="x")
    panel.set_xlabel(axis, color=THEME["muted"])
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_yticks(range(len(rows)), [_label(bar) for bar in rows], fontsize=6.5)
    panel.set_ylim(len(rows) - 0.5, -0.5)


def _label(bar: Bar) -> str:
    """What is compared; of a long one the middle is left out, for the peer stands at the end."""
    text = f"{bar.group}: {bar.label}"
    return text if len(text) <= _LONGEST else f"{text[:_HEAD]}…{text[_HEAD + 1 - _LONGEST :]}"
