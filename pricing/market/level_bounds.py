"""The bounds that a later day's quotes set for the levels of fixings."""

import functools
import math
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from ..ingestion.errors import show
from ..ingestion.validation import ValidationIssue
from .bootstrap import zero_curve
from .fx import fx_rate
from .quote_bounds import far_from

_FACTOR, _DEVIATIONS = 5.0, 8.0
_MOVE, _MULTIPLE = 0.1, 3.0


class LevelBounds:
    """A check for fixings of equities, FX pairs and rates that are probably in another unit.

    A spot may differ from today's by a factor of five, or by eight standard deviations (at the median quoted
    vol) over the time since. A rate may be .1 plus three times the largest zero rate of its curve.

    Args:
        equities: Name -> equity.
        fx: Name -> FX pair.
        curves: Name -> curve.
        asof: The day of the quotes.
    """

    def __init__(
        self,
        equities: Mapping[str, Any],
        fx: Mapping[str, Any],
        curves: Mapping[str, Any],
        asof: date,
    ):
        self._equities, self._fx, self._curves, self._asof = equities, dict(fx), dict(curves), asof
        self._spot_and_vol = functools.cache(self._read_spot_and_vol)
        self._largest_rate = functools.cache(self._read_largest_rate)

    def wrong(self, name: str, day: date, level: float) -> str:
        """Return the reason why a level is wrong, or an empty text.

        Args:
            name: The name of the fixing: an equity, a pair, or a curve with a period.
            day: The fixing's day; days after `asof` are not checked.
            level: The level.
        """
        curve = name.rpartition(" ")[0]
        if day > self._asof:
            return ""
        if name in self._equities or name in self._fx:
            spot, vol = self._spot_and_vol(name)
            return "" if self._may_be(level, day, spot, vol) else f"the spot is {spot:g}"
        if curve not in self._curves:
            return ""
        largest = self._largest_rate(curve)
        if abs(level) <= min(_MOVE + _MULTIPLE * largest, 1.0):
            return ""
        return f"the zero rates of {curve} are at most {largest:.3g}"

    def issues(self, name: str, levels: Mapping[date, float]) -> tuple[ValidationIssue, ...]:
        """Return the issue of the first wrong level of a name in a market file, if any.

        Args:
            name: The name of the fixings.
            levels: The levels by day.
        """
        remedy = "give it in the unit of the market, or in a file of fixings with confirmed = yes"
        for day, level in levels.items():
            if why := self.wrong(name, day, level):
                message = f"{show(level)} is not a level of {name} on {day}: {why}"
                return (ValidationIssue((str(day),), show(level), message, remedy),)
        return ()

    def _may_be(self, level: float, day: date, spot: float, vol: float) -> bool:
        if level <= 0.0 or far_from(spot, level):
            return False
        deviation = vol * math.sqrt((self._asof - day).days / 365.0)
        return abs(math.log(level / spot)) <= max(math.log(_FACTOR), _DEVIATIONS * deviation)

    def _read_spot_and_vol(self, name: str) -> tuple[float, float]:
        """Return today's spot and the median vol; a pair without vols has 0."""
        if name in self._equities:
            equity = self._equities[name]
            return float(equity.spot), float(np.nanmedian(equity.surface.vols))
        pair = self._fx[name]
        spot = float(fx_rate(self._fx, pair.foreign, pair.domestic))
        return spot, 0.0 if pair.vols is None else float(np.median(pair.vols.at_the_money))

    def _read_largest_rate(self, name: str) -> float:
        rates = np.abs(np.asarray(zero_curve(name, self._curves, throw=False).zero_rates))
        return float(np.nanmax(rates, initial=0.0))
