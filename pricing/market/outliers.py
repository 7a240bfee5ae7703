"""Vols and rates that are far from their neighbours, such as 2.3 among vols of .23."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..ingestion.field_types import problem

_FACTOR = 5.0
"""Wings and short expiries of listed options stay within it; a slip of the decimal point does not."""

_BESIDE = -2, -1, 1, 2
_MOVE, _MULTIPLE = 0.05, 2.0


class Outlier(NamedTuple):
    """A quote that is far from its neighbours.

    Attributes:
        place: Its place among the quotes.
        message: A description.
    """

    place: int
    message: str


def outlier(rows: Any, columns: Any, vols: Any) -> Outlier | None:
    """Return the vol that is five times the median of its neighbours, or a fifth, or None.

    The neighbours of a vol are the two on each side in its row. A row is compared as a whole, by its median
    logarithm, with the rows beside it. Of several outliers the one that is furthest from all vols is returned.

    Args:
        rows: The expiry of each vol, or another number by which rows are sorted, of shape (quotes,).
        columns: The strike of each, or another number that sorts a row, of the same shape.
        vols: The vols, above 0, NaN where one is missing, of the same shape.
    """
    rows, columns, vols = (np.ravel(np.asarray(x, float)) for x in (rows, columns, vols))
    places = np.lexsort((columns, rows))
    places = places[~np.isnan(vols[places])]
    logs = np.log(vols[places])
    if not logs.size or np.ptp(logs) <= np.log(_FACTOR):
        return None
    _, first, which = np.unique(rows[places], return_index=True, return_inverse=True)
    medians = np.array([np.median(row) for row in np.split(logs, first[1:])])
    in_row = _medians_beside(logs, which, _BESIDE)
    beside = _medians_beside(medians, np.zeros_like(first), (-1, 1))
    is_far_in_row = _far(logs, in_row)
    is_far = is_far_in_row | _far(medians, beside)[which]
    if not np.any(is_far):
        return None
    worst = int(np.argmax(np.where(is_far, np.abs(logs - np.median(logs)), -1.0)))
    usual = in_row[worst] if is_far_in_row[worst] else beside[which[worst]]
    place, usual = int(places[worst]), float(np.exp(usual))
    message = f"the vol {vols[place]:g} is far from {usual:.3g}, the median of its neighbours"
    return Outlier(place, message)


def _far(logs: Float[np.ndarray, " quotes"], usual: Float[np.ndarray, " quotes"]) -> np.ndarray:
    return np.abs(logs - usual) > np.log(_FACTOR)


def _medians_beside(
    logs: Float[np.ndarray, " quotes"], groups: np.ndarray, steps: tuple[int, ...]
) -> np.ndarray:
    """Return the median of the numbers some steps beside each in its group; NaN where there is none."""
    at = np.arange(logs.size)[:, None] + np.array(steps)
    inside = np.clip(at, 0, logs.size - 1)
    is_there = (at == inside) & (groups[inside] == groups[:, None])
    beside = np.sort(np.where(is_there, logs[inside], np.inf), axis=1)
    count = np.sum(is_there, axis=1)
    low, high = (
        np.take_along_axis(beside, np.maximum(k, 0)[:, None], axis=1)[:, 0]
        for k in ((count - 1) // 2, count // 2 - (count == 0))
    )
    return np.where(count > 0, 0.5 * (low + high), np.nan)


def check_outlier(vols: Sequence[Any], label: str, remedy: str = "correct it") -> None:
    """Check that no vol of a field is far from its neighbours.

    Args:
        vols: A row (or a number) an expiry, in the order of expiries and strikes; None where one is missing.
        label: The name of the field.
        remedy: The way to correct it.

    Raises:
        problem: If a vol is far from its neighbours.
    """
    matrix = np.array(vols, float)
    rows, *columns = np.indices(matrix.shape)
    if found := outlier(rows, columns[0] if columns else np.zeros_like(rows), matrix):
        place = map(int, np.unravel_index(found.place, matrix.shape))
        raise problem(found.message, remedy, label, *place)


def odd_rate(rates: Any) -> Outlier | None:
    """Return the rate that is far from its neighbours, or None.

    Its distance from the median m of the two on each side is more than .05 + 2 |m|.

    Args:
        rates: The rates of a curve, in the order of their ends, NaN where one is missing.
    """
    places = np.flatnonzero(~np.isnan(np.asarray(rates, float)))
    found = np.array(rates, float)[places]
    usual = _medians_beside(found, np.zeros(found.shape), _BESIDE)
    is_far = np.abs(found - usual) > _MOVE + _MULTIPLE * np.abs(usual)
    if not np.any(is_far):
        return None
    place = int(np.argmax(np.where(is_far, np.abs(found - np.median(found)), -1.0)))
    message = (
        f"the rate {found[place]:g} is far from {usual[place]:.3g}, the median of its neighbours"
    )
    return Outlier(int(places[place]), message)


def odd_wing(quotes: Any, at_the_money: Any) -> Outlier | None:
    """Return the first risk reversal or butterfly that is larger than the at-the-money vol, or None.

    Args:
        quotes: The quotes of one kind and delta, one an expiry.
        at_the_money: The at-the-money vols.
    """
    for place, (quote, vol) in enumerate(zip(quotes, at_the_money, strict=True)):
        if abs(quote) > vol:
            return Outlier(place, f"{quote:g} is larger than the at-the-money vol {vol:g}")
    return None


def check_wing(quotes: Sequence[float], at_the_money: Sequence[float], label: str) -> None:
    """Check that no risk reversal or butterfly is larger than the at-the-money vol.

    Args:
        quotes: The quotes of a field, one an expiry.
        at_the_money: The at-the-money vols.
        label: The name of the field.

    Raises:
        problem: If a quote is larger.
    """
    if odd := odd_wing(quotes, at_the_money):
        raise problem(odd.message, "give a decimal: 0.2 % is 0.002", label, odd.place)
