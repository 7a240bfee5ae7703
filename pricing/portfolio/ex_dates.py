"""Two markets across an ex-date: a dividend that has gone ex falls to nothing, and the spot by it."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..market import Dividends, Equity, Market


def with_passed_dividends(before: Market, after: Market) -> Market:
    """Return the later market with the dividends of the earlier one that its file no longer has.

    Their ex-dates have passed, so that they move nothing; both markets then have the same quotes.

    Args:
        before: The earlier market.
        after: The later market.
    """
    labels, equities = dict(after.labels), dict(after.equities)
    then = dict(before.labels)
    for name, old in before.equities.items():
        new = equities.get(name)
        if old.dividends is None or new is None:
            continue
        paths = [f".equities[{name!r}].dividends.{field}" for field in ("cash", "proportions")]
        known = {quote for path in paths for quote in labels.get(path, ())}
        ages = np.asarray(old.dividends.times) - (after.asof - before.asof).days / 365.0
        missing = [
            place
            for place, time in enumerate(ages)
            if time <= 1e-9
            and not any(then[path][place] in known for path in paths if path in then)
        ]
        if not missing:
            continue
        equities[name] = replace(
            new, dividends=_joined(old.dividends, new.dividends, ages, missing)
        )
        for path in paths:
            if path in then:
                kept = tuple(then[path][place] for place in missing)
                labels[path] = (*kept, *labels.get(path, ()))
    return replace(after, equities=equities, labels=tuple(labels.items()))


def _joined(
    old: Dividends, new: Dividends | None, ages: np.ndarray, places: list[int]
) -> Dividends:
    """Return some dividends of the earlier market, and then those of the later one."""

    def amounts(field: str) -> Any:
        first = getattr(old, field)
        second = None if new is None else getattr(new, field)
        if first is None and second is None:
            return None
        count = 0 if new is None else new.times.size
        head = jnp.zeros(len(places)) if first is None else first[jnp.asarray(places)]
        return jnp.concatenate([head, jnp.zeros(count) if second is None else second])

    times = jnp.asarray(ages[places])
    later = jnp.zeros(0) if new is None else new.times
    return Dividends(jnp.concatenate([times, later]), amounts("cash"), amounts("proportions"))


def ex_dividend_moves(moves: Market, before: Market, after: Market) -> Market:
    """Return the moves of all quotes, the amounts of dividends that went ex in between falling to 0.

    Args:
        moves: The numbers of the later market less those of the earlier one.
        before: The earlier market.
        after: The later market.
    """
    found = dict(moves.equities)
    for name, move in moves.equities.items():
        gone = _gone(before.equities[name], after.equities[name])
        if gone is None or move.dividends is None:
            continue
        old = before.equities[name].dividends
        assert old is not None
        amounts = {
            field: np.where(gone, -np.asarray(getattr(old, field)), getattr(move.dividends, field))
            for field in ("cash", "proportions")
            if getattr(old, field) is not None
        }
        found[name] = _replaced(move, amounts)
    return _with_equities(moves, found)


def falls_of_spots(before: Market, after: Market) -> dict[str, float]:
    """Return the falls of spots by dividends that went ex in between, by the name of the equity.

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
    """Return a mask of the dividends that went ex between two markets, or None without any."""
    if before.dividends is None or after.dividends is None:
        return None
    return (np.asarray(before.dividends.times) > 0.0) & (np.asarray(after.dividends.times) <= 0.0)


def _replaced(equity: Any, amounts: dict[str, np.ndarray]) -> Any:
    """Return moves of an equity with others of its dividends; moves obey no bounds, so none are checked."""
    where = lambda tree: [getattr(tree.dividends, field) for field in amounts]
    return eqx.tree_at(where, equity, list(amounts.values()))


def _with_equities(market: Market, equities: dict[str, Any]) -> Market:
    return eqx.tree_at(lambda tree: tree.equities, market, equities)
