"""The panels of a chart, each with marks, a horizontal and a vertical axis, as SVG.

Coordinates are in points, from the left and the top. Colours are CSS variables of the page; the font is the
page's.
"""

import html
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .formats import plain

WIDTH = 792.0
_TEXT, _TITLE = 8.0, 8.5  # font sizes
_LETTER = 0.64  # the width of a letter over the font size
_SLOPE = math.radians(35.0)
_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_MARGIN = 0.05
_ABOVE, _BELOW, _BESIDE, _GAP = 15.0, 14.0, 4.0, 6.0

Scale = Callable[[float], float]
"""A number on an axis -> its coordinate."""


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> np.ndarray:
    """Return multiples of a round step that cover [low, high]; `most` steps are at least high - low.

    whole: Whether the step is a whole number.
    """
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    steps = (power * step for step in (*_ROUND, 20.0))
    if whole:
        power = max(power, 1.0)
        steps = (power * step for step in (*_ROUND, 20.0) if (power * step).is_integer())
    step = next(step for step in steps if step >= least * (1.0 - 1e-10))
    first, last = math.floor(low / step + 1e-10), math.ceil(high / step - 1e-10)
    return step * np.arange(first, last + 1)


class Axis(NamedTuple):
    """The ends of an axis, and its labels. is_slanted: Whether the labels are slanted."""

    low: float
    high: float
    labels: tuple[tuple[float, str], ...]
    is_slanted: bool = False

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        most: int,
        write: Callable[[float], str] = plain,
        *,
        whole: bool = False,
        fixed: float | None = None,
    ) -> "Axis":
        """Return an axis over the finite numbers in `values`, with a margin at both ends.

        There are at most `most` steps between labels. fixed: An end that has no margin.
        """
        known = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(known), max(known)
        if low == high:
            fixed = None
        margin = _MARGIN * ((high - low) or abs(low) or 1.0)
        low, high = (
            end if end == fixed else end + move for end, move in ((low, -margin), (high, margin))
        )
        within = [at for at in ticks(low, high, most, whole=whole).tolist() if low <= at <= high]
        return cls(low, high, tuple((at, write(at)) for at in within))

    def scale(self, start: float, end: float) -> Scale:
        return lambda value: start + (value - self.low) / (self.high - self.low) * (end - start)

    @property
    def longest(self) -> float:
        """The width of the widest label."""
        return _LETTER * _TEXT * max((len(text) for _, text in self.labels), default=0)


@dataclass(frozen=True)
class Curve:
    """A line through points, with gaps at points that are not finite."""

    xs: Sequence[float]
    ys: Sequence[float]

    def svg(self, x: Scale, y: Scale) -> str:
        pairs = list(zip(self.xs, self.ys, strict=True))
        runs = itertools.groupby(pairs, lambda pair: all(map(math.isfinite, pair)))
        return "".join(
            f'<polyline points="{" ".join(f"{x(a):.2f},{y(b):.2f}" for a, b in run)}" fill="none" '
            'stroke="var(--up)" stroke-width="1.5" stroke-linejoin="round"/>'
            for is_there, run in runs
            if is_there
        )


@dataclass(frozen=True)
class Dots:
    """Points, each with a hint."""

    xs: Sequence[float]
    ys: Sequence[float]
    hints: Sequence[str]

    def svg(self, x: Scale, y: Scale) -> str:
        return "".join(
            f'<circle cx="{x(a):.2f}" cy="{y(b):.2f}" r="1.6" fill="var(--ink)">{_hint(hint)}</circle>'
            for a, b, hint in zip(self.xs, self.ys, self.hints, strict=True)
        )


@dataclass(frozen=True)
class Bars:
    """Bars from zero to `heights` between their ends, in another colour below zero; each may have a hint."""

    starts: Sequence[float]
    ends: Sequence[float]
    heights: Sequence[float]
    hints: Sequence[str] = ()

    def svg(self, x: Scale, y: Scale) -> str:
        bars = zip(self.starts, self.ends, self.heights, strict=True)
        hints = itertools.chain(map(_hint, self.hints), itertools.repeat(""))
        zero = y(0.0)
        return "".join(
            f'<rect x="{x(start):.2f}" y="{min(zero, y(height)):.2f}" '
            f'width="{x(end) - x(start):.2f}" height="{abs(zero - y(height)):.2f}" '
            f'fill="var(--{"up" if height >= 0.0 else "down"})">{hint}</rect>'
            for (start, end, height), hint in zip(bars, hints, strict=False)
            if math.isfinite(height)
        )


Mark = Curve | Dots | Bars


@dataclass(frozen=True)
class Panel:
    """A title, marks and two axes. spot: A dashed vertical line; zero: Whether to draw a line at 0."""

    title: str
    marks: Sequence[Mark]
    across: Axis
    up: Axis
    spot: float | None = None
    zero: bool = False

    def svg(self, left: float, top: float, right: float, bottom: float) -> str:
        """Return the panel with its axes between four coordinates, its labels outside."""
        x, y = self.across.scale(left, right), self.up.scale(bottom, top)
        parts = [_text(left, top - 6.0, self.title, size=_TITLE, color="ink")]
        for at, label in self.up.labels:
            parts += _line(left, y(at), right, y(at), "line", 0.6)
            parts += _text(left - _BESIDE, y(at) + 0.35 * _TEXT, label, anchor="end")
        if self.spot is not None:
            parts += _line(x(self.spot), top, x(self.spot), bottom, "muted", 0.8, "2.4 2.4")
        parts += (mark.svg(x, y) for mark in self.marks)
        if self.zero:
            parts += _line(left, y(0.0), right, y(0.0), "muted", 0.8)
        parts += _line(left, bottom, right, bottom, "line", 0.8)
        for at, label in self.across.labels:
            parts += _line(x(at), bottom, x(at), bottom + 3.0, "line", 0.8)
            if self.across.is_slanted:
                parts += _text(
                    x(at) + 0.3 * _TEXT, bottom + 10.0, label, anchor="end", slanted=True
                )
            else:
                parts += _text(x(at), bottom + 12.0, label, anchor="middle")
        return "".join(parts)

    @property
    def beside(self) -> float:
        """The width of the labels on the left, including slanted labels below that reach there."""
        under = 0.5 * math.cos(_SLOPE) * self.across.longest if self.across.is_slanted else 0.0
        return 2.0 * _BESIDE + max(self.up.longest, under)

    @property
    def below(self) -> float:
        """The height of the labels below it."""
        if self.across.is_slanted:
            return _BELOW + math.sin(_SLOPE) * self.across.longest
        return _BELOW if any(label for _, label in self.across.labels) else _BESIDE


def picture(panels: Sequence[Panel], columns: int, height: float, title: str) -> str:
    """Return panels in rows as an `<svg>` element of the page's width, with an accessible name.

    Args:
        panels: The panels, row by row.
        columns: The number of panels per row.
        height: The height in points.
        title: A description of the chart, for screen readers.
    """
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    below = [max(panel.below for panel in row) for row in rows]
    free = height - sum(below) - len(rows) * _ABOVE
    parts, top = [], 0.0
    for row, under in zip(rows, below, strict=True):
        top += _ABOVE
        bottom = top + free / len(rows)
        for place, panel in enumerate(row):
            beside = max(other.beside for other in panels[place::columns])
            left, right = (WIDTH / columns * edge for edge in (place, place + 1))
            parts.append(panel.svg(left + beside, top, right - _GAP, bottom))
        top = bottom + under
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" xmlns="http://www.w3.org/2000/svg" '
        f'width="{WIDTH:g}pt" height="{height:g}pt" viewBox="0 0 {WIDTH:g} {height:g}">{"".join(parts)}</svg>'
    )


def without_labels(panel: Panel) -> Panel:
    """Return a panel with horizontal ticks, but no labels."""
    silent = tuple((at, "") for at, _ in panel.across.labels)
    return replace(panel, across=panel.across._replace(labels=silent))


def _hint(text: str) -> str:
    return f"<title>{html.escape(text)}</title>"


def _line(
    x1: float, y1: float, x2: float, y2: float, color: str, width: float, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" '
        f'stroke="var(--{color})" stroke-width="{width}"{dashed}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float = _TEXT,
    color: str = "muted",
    anchor: str = "start",
    slanted: bool = False,
) -> str:
    turned = f' transform="rotate(-{math.degrees(_SLOPE):g} {x:.2f} {y:.2f})"' if slanted else ""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="var(--{color})"{turned}>{html.escape(text)}</text>'
    )
