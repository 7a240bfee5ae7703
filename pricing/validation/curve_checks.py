"""Bootstrapped curves, caplet vols and trades on them against known figures (`jaxtape validate`)."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from jaxtape.cli.check import Check, Group
from jaxtape.cli.reference_tables import read_tables

from ..market import Market
from ..portfolio.book import Book
from ..portfolio.book_risk import risk

_TABLES = files("pricing.validation") / "tables"
_FIXED = {"underlying": "EUR", "notional": 100.0}


def _find(checks: Sequence[Check]) -> list[Check]:
    """Return checks with their figures; tables name a market, rows a point on a curve or a trade."""
    by_market: dict[str, list[int]] = defaultdict(list)
    for at, known in enumerate(checks):
        by_market[known.source.settings["market"]].append(at)
    found: dict[int, Check] = {}
    for text, places in by_market.items():
        market = Market.from_text(text).bootstrapped()
        found |= _discounts(market, {at: checks[at] for at in places})
        found |= _vols(market, {at: checks[at] for at in places})
        found |= _trades(market, {at: checks[at] for at in places})
    return [found[at] for at in range(len(checks))]


def _discounts(market: Market, checks: dict[int, Check]) -> dict[int, Check]:
    """Return the checks of discount factors with their figures."""
    own = {at: known for at, known in checks.items() if known.figure == "discount"}
    factor = lambda cells: float(market.curve(cells["curve"]).discount(float(cells["time"])))
    return {at: known.found(factor(known.cells), "CurveQuotes") for at, known in own.items()}


def _vols(market: Market, checks: dict[int, Check]) -> dict[int, Check]:
    """Return the checks of caplet vols with their figures."""
    own = {at: known for at, known in checks.items() if known.figure == "vol"}

    def vol(cells: Mapping[str, str]) -> float:
        place = float(cells["time"]), float(cells["strike"])
        return float(market.caplet_vols(cells["curve"]).vol(*place))

    return {at: known.found(vol(known.cells), "strip_caps") for at, known in own.items()}


def _trades(market: Market, checks: dict[int, Check]) -> dict[int, Check]:
    """Return the checks of trade values with their figures, valued in one book."""
    own = {at: known for at, known in checks.items() if known.figure == "value"}
    if not own:
        return {}
    rows: list[dict[str, Any]] = [
        {"id": f"T{at}", **_FIXED, **_cells(known)} for at, known in own.items()
    ]
    book = Book.from_text(json.dumps(rows), "trades.json")
    result = risk(book, market, lambda _: {}, greeks=False)
    pairs = zip(own.items(), result.trades, strict=True)
    return {
        at: known.not_found(trade.status)
        if trade.figures is None
        else known.found(float(trade.figures.value), trade.method)
        for (at, known), trade in pairs
    }


def _cells(known: Check) -> dict[str, Any]:
    """Return the cells of a row of a book; overnight swaps in the tables pay one day after their periods."""
    given = {name: word for name, word in known.cells.items() if word != "-"}
    for name in ("fixed_rate", "strike", "spread"):
        if name in given:
            given[name] = float(given[name])  # pyright: ignore[reportArgumentType]
    return given | ({"payment_lag": 1.0} if given["type"] == "overnight_swap" else {})


curves = Group(
    "Curves and caplet vols of quotes, and trades on them",
    partial(read_tables, _TABLES / "curves.toml", {"discount", "vol", "value"}),
    _find,
)
