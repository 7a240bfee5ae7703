"""Two markets across an ex-date: a dividend that has gone ex becomes 0, and the spot falls by it."""

import itertools
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np

from ..market import Dividends, Equity, Market

_AMOUNTS = "cash", "proportions"


def with_passed_dividends(before: Market, after: Market) -> Market:
    """Return the later market with the dividends of the earlier market that its file no longer lists.

    Their ex-dates have passed, so they change no value; both markets then have the same quotes. If the dividend
    quotes of an equity differ in any other way, its dividends are left unchanged.

    Args:
        before: The earlier market.
        after: The later market.
    """
    then, labels, equities = dict(before.labels), dict(after.labels), dict(after.equities)
    for name, old in before.equities.items():
        new = equities.get(name)
        if old.dividends is None or new is None:
            continue
        paths = [f".equities[{name!r}].dividends.{field}" for field in _AMOUNTS]
        own, later = ({p: ids[p] for p in paths if p in ids} for ids in (then, labels))
        if not own:
            continue
        known = set(itertools.chain(*later.values()))
        ages = np.asarray(old.dividends.times) - before.time(after.asof)
        of_each = zip(*own.values(), strict=True)
        stays = [
            age > 1e-9 or not known.isdisjoint(ids) for age, ids in zip(ages, of_each, strict=True)
        ]
        left = {path: tuple(itertools.compress(ids, stays)) for path, ids in own.items()}
        is_same = later.items() <= left.items() and (later or not any(stays))
        if is_same and not all(stays):
            paid = _joined(old.dividends, new.dividends, ages, np.array(stays))
            equities[name] = replace(new, dividends=paid)
            labels |= own
    return replace(after, equities=equities, labels=tuple(labels.items()))


def _joined(
    old: Dividends, new: Dividends | None, ages: np.ndarray, stays: np.ndarray
) -> Dividends:
    """Return the dividends of the earlier market; those still to come have the later market's amounts."""

    def merged(first: Any, field: str) -> np.ndarray:
        found, later = np.array(first), getattr(new, field, None)
        found[stays] = 0.0 if later is None else later
        return found

    kinds = [field for field in _AMOUNTS if getattr(old, field) is not None]
    amounts: dict[str, Any] = {field: merged(getattr(old, field), field) for field in kinds}
    return Dividends(merged(ages, "times"), **amounts)


def ex_dividend_moves(moves: Market, before: Market, after: Market) -> Market:
    """Return the moves of all quotes, in which the dividends that went ex in between fall to 0.

    Ex-dates do not move: their approach is part of theta.

    Args:
        moves: The numbers of the later market less those of the earlier one.
        before: The earlier market.
        after: The later market.
    """
    found = dict(moves.equities)
    for name, move in moves.equities.items():
        gone, old = _gone(before.equities[name], after.equities[name]), before.equities[name]
        if gone is None or old.dividends is None:
            continue
        paid = {"times": np.zeros(gone.shape)}
        for field in _AMOUNTS:
            if (amounts := getattr(old.dividends, field)) is not None:
                paid[field] = np.where(gone, -np.asarray(amounts), getattr(move.dividends, field))
        found[name] = _replaced(move, paid)
    return eqx.tree_at(lambda tree: tree.equities, moves, found)


def falls_of_spots(before: Market, after: Market) -> dict[str, float]:
    """Return the fall of each equity's spot from dividends that went ex in between, by name.

    Args:
        before: The earlier market.
        after: The later market.
    """
    falls = {}
    for name, equity in before.equities.items():
        gone = _gone(equity, after.equities[name])
        if gone is None or equity.dividends is None:
            continue
        zeros = np.zeros(gone.shape)
        cash, shares = (
            zeros if x is None else np.asarray(x)
            for x in (equity.dividends.cash, equity.dividends.proportions)
        )
        falls[name] = float(np.sum(np.where(gone, cash + shares * float(equity.spot), 0.0)))
    return falls


def _gone(before: Equity, after: Equity) -> np.ndarray | None:
    """Return the mask of the dividends that went ex between two markets, or None if there are none."""
    if before.dividends is None or after.dividends is None:
        return None
    return (np.asarray(before.dividends.times) > 0.0) & (np.asarray(after.dividends.times) <= 0.0)


def _replaced(equity: Any, paid: dict[str, np.ndarray]) -> Any:
    """Return the moves of an equity with its dividend moves replaced, unchecked: moves obey no bounds."""
    where = lambda tree: [getattr(tree.dividends, field) for field in paid]
    return eqx.tree_at(where, equity, list(paid.values()))
