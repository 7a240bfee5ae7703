"""The report of a book in scenarios: a map of spot and vol moves, ladders, named scenarios, top movers."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..market import Market
from ..portfolio.book_risk import RiskResult
from ..portfolio.scenarios import Revaluation, Scenario, ScenarioSet
from . import charts, tables
from .formats import counted, decimals_for, number, plain, write_csv
from .ladders import Ladder
from .positions import Position
from .tables import Number, TextTable
from .terms import terms

_MOVERS = 12
_AT_MOST = "Std.\N{NO-BREAK SPACE}error, at\N{NO-BREAK SPACE}most"
_COLUMNS = (
    *("scenario", "spots", "vols", "rates", "swaption_vols", "cap_vols", "fx"),
    *("group", "name", "trades"),
    *("pnl", "std_error", "status", "currency"),
)

Group = tuple[str, str, np.ndarray]
"""The kind of a group, its name, and the mask of its trades."""


@dataclass(frozen=True)
class Stress:
    """A book in the scenarios of a file, with positions in the order of the revaluation's trades.

    Totals are in one currency: for a book in several, use `of` for each currency, or `in_total`.
    """

    scenarios: ScenarioSet
    found: Revaluation
    positions: Sequence[Position]
    currency: str | None = None

    def __post_init__(self):
        """Exclude trades without figures today from totals, even if they have figures in a scenario."""
        pnl, errors = (
            np.where(self._valued, table, np.nan)
            for table in (self.found.pnl, self.found.std_error)
        )
        object.__setattr__(self, "found", replace(self.found, pnl=pnl, std_error=errors))

    @functools.cached_property
    def _valued(self) -> np.ndarray:
        names = self.currencies if self.currency is None else (self.currency,)
        return np.array([bool(p.figures) and p.currency in names for p in self.positions], bool)

    @property
    def currencies(self) -> tuple[str, ...]:
        """The currencies in which trades were valued."""
        return tuple(dict.fromkeys(p.currency for p in self.positions if p.figures))

    def of(self, currency: str) -> "Stress":
        """Return the part of the book in one currency."""
        return replace(self, currency=currency)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The book, then its parts by underlying and by product."""
        groups = [("book", "book", self._valued)]
        keys = {"underlying": tables.underlying_of, "product": lambda position: position.type}
        for kind, key in keys.items():
            pairs = zip(self.positions, self._valued, strict=True)
            names = np.array([key(position) if is_in else "" for position, is_in in pairs])
            groups += [
                (kind, name, names == name) for name in dict.fromkeys(names.tolist()) if name
            ]
        return tuple(groups)

    @functools.cached_property
    def totals(self) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
        """Kind and name of a group -> its P&L in each scenario, and a bound of the standard error."""
        return {
            (kind, name): (self.found.total(own), self.found.total(own, errors=True))
            for kind, name, own in self.groups
        }

    @classmethod
    def in_total(
        cls,
        scenarios: ScenarioSet,
        found: Revaluation,
        positions: Sequence[Position],
        result: RiskResult,
        market: Market,
    ) -> "Stress":
        """Return a book in scenarios, converted to the currency of its total if currencies differ."""
        if not result.is_converted:
            return cls(scenarios, found, positions)
        own = [position.figures.get("value", np.nan) for position in positions]
        found = found.converted(np.array(own), market, result.currency)
        positions = [p.converted(result.currency, result.fx_rates) for p in positions]
        return cls(scenarios, found, positions)

    @property
    def _places(self) -> dict[str, int]:
        return {scenario.name: place for place, scenario in enumerate(self.found.scenarios)}

    def pnl(self, scenario: Scenario) -> tuple[float, float]:
        """Return the book's P&L in a scenario, and a bound of its standard error."""
        place = self._places[scenario.name]
        pnl, errors = self.totals["book", "book"]
        return float(pnl[place]), float(errors[place])

    def title(self, scenario: Scenario) -> str:
        """Return the name of a scenario, or its moves in words if it belongs to the grid or the rate ladder."""
        return scenario.name if scenario in self.scenarios.named else words_of(scenario)

    @functools.cached_property
    def ordered(self) -> list[Scenario]:
        """The scenarios with a P&L, the worst first."""
        known = [each for each in self.found.scenarios if np.isfinite(self.pnl(each)[0])]
        return sorted(known, key=lambda scenario: self.pnl(scenario)[0])

    def tiles(self, currency: str) -> list[tuple[str, Number, str, str]]:
        """Return the headline figures: label, P&L, unit with the scenario, standard error."""
        if not self.ordered:
            return []
        shown = {"Worst scenario": self.ordered[0], "Best scenario": self.ordered[-1]}
        found = []
        for label, scenario in shown.items():
            pnl, error = self.pnl(scenario)
            text = tables.rounded(pnl, min(4, decimals_for([pnl])))
            found.append((label, text, f"{currency}: {self.title(scenario)}", tables.margin(error)))
        return found

    def grids(self) -> list[dict[str, Any]]:
        """Return the maps of spot and vol moves, for the book and each underlying."""
        rows = [f"{_signed(100 * spot)} %" for spot in self.scenarios.spots]
        columns = [_signed(100 * vol) for vol in self.scenarios.vols]
        shape = len(rows), len(columns)
        found = []
        for kind, name, own in self.groups:
            if kind != "product" and shape[0] and shape[1]:
                pnl, errors = (
                    x[: shape[0] * shape[1]].reshape(shape) for x in self.totals[kind, name]
                )
                heat = tables.heat_map(rows, columns, pnl, sums=False, errors=errors)
                trades = counted(int(own.sum()), "trade")
                found.append({"name": name, "trades": trades, "map": heat})
        return found[:1] if len(found) == 2 else found

    def ladders(self, currency: str) -> str:
        """Return the charts of the P&L for single moves of spots, vols and rates."""
        spots = [row[_still(self.scenarios.vols)] for row in self.scenarios.grid if row]
        vols = (
            list(self.scenarios.grid[_still(self.scenarios.spots)]) if self.scenarios.grid else []
        )
        titled = [
            (f"Spots, %, {currency}", spots, [_signed(100 * x) for x in self.scenarios.spots]),
            (f"Vols, points, {currency}", vols, [_signed(100 * x) for x in self.scenarios.vols]),
            (
                f"Zero rates, bp, {currency}",
                self.scenarios.rate_ladder,
                [_signed(1e4 * x) for x in self.scenarios.rates],
            ),
        ]
        drawn = [(title, self._ladder(ladder, labels)) for title, ladder, labels in titled]
        drawn = [(title, ladder) for title, ladder in drawn if ladder.totals.size > 1]
        return charts.ladders(drawn) if drawn else ""

    def _ladder(self, ladder: Iterable[Scenario], labels: Iterable[str]) -> Ladder:
        known = [
            (pnl, label)
            for pnl, label in zip((self.pnl(each)[0] for each in ladder), labels, strict=True)
            if np.isfinite(pnl)
        ]
        return Ladder(np.array([pnl for pnl, _ in known]), labels=tuple(x for _, x in known))

    def named(self) -> TextTable:
        """Return the P&L in the named scenarios, for the book and by underlying."""
        names = [name for kind, name, _ in self.groups if kind == "underlying"]
        keys = [("book", "book"), *(("underlying", name) for name in names)]
        scenarios = self.scenarios.named
        places = [self._places[scenario.name] for scenario in scenarios]
        columns = [tables.column(self.totals[key][0][places].tolist()) for key in keys]
        errors = [tables.std_error(self.pnl(scenario)[1]) for scenario in scenarios]
        heads = [(scenario.name, words_of(scenario)) for scenario in scenarios]
        rows = [
            (*head, book, error, *others)
            for head, error, (book, *others) in zip(
                heads, errors, zip(*columns, strict=True), strict=True
            )
        ]
        return TextTable(("Scenario", "Moves", "P&L", _AT_MOST, *names), tuple(rows), words=2)

    def movers(self) -> list[tuple[str, str, TextTable]]:
        """Return the trades with the largest gains or losses, in the worst and in each named scenario."""
        known = [each for each in self.scenarios.named if np.isfinite(self.pnl(each)[0])]
        shown = dict.fromkeys((*(each.name for each in self.ordered[:1]), *(s.name for s in known)))
        by_name = {scenario.name: scenario for scenario in self.found.scenarios}
        return [
            (self.title(each), number(self.pnl(each)[0]), self._movers(self._places[each.name]))
            for each in (by_name[name] for name in shown)
        ]

    def _movers(self, place: int) -> TextTable:
        pnl, errors = self.found.pnl[place], self.found.std_error[place]
        order = np.argsort(-np.abs(np.nan_to_num(pnl)), kind="stable")[:_MOVERS]
        shown = [(self.positions[i], pnl[i], errors[i]) for i in order if np.isfinite(pnl[i])]
        moves = tables.column([float(pnl) for _, pnl, _ in shown])
        values = tables.column([position.figures["value"] for position, *_ in shown])
        rows = [
            (
                p.id,
                p.type,
                terms(p.trade),
                tables.quantity(p),
                *numbers,
            )
            for (p, _, error), *moved in zip(shown, values, moves, strict=True)
            for numbers in [(*moved, tables.std_error(float(error)))]
        ]
        headers = ("Trade", "Product", "Terms", "Quantity", "Value", "P&L", "Std. error")
        return TextTable(headers, tuple(rows), words=3, left_out=0)

    def unvalued(self) -> TextTable:
        """Return the scenarios in which the book, or some trades, have no P&L, with the reasons."""
        reasons = {**self.found.failures, **self.found.lost(self._valued)}
        return TextTable(("Scenario", "Reason"), tuple(reasons.items()), words=2)


def _still(moves: Sequence[float]) -> int:
    return moves.index(0.0)


def _signed(value: float) -> str:
    text = plain(abs(value))
    return text if value == 0.0 else f"+{text}" if value > 0.0 else f"\N{MINUS SIGN}{text}"


def words_of(scenario: Scenario) -> str:
    """Return the moves of a scenario in words, such as "spots −20 %, vols +5 points"."""
    units = {
        "spots": (100.0, "%"),
        "vols": (100.0, "points"),
        "rates": (1e4, "bp"),
        "fx": (100.0, "%"),
    }
    plural = {"fx": "FX rates"}
    words = [
        f"{plural.get(kind, kind) if name == 'all' else name + ' ' + kind.replace('fx', 'rate')} "
        f"{_signed(scale * move)} {unit}"
        for kind, (scale, unit) in units.items()
        for name, move in getattr(scenario, kind).items()
    ]
    for name, move in scenario.cap_vols.items():
        whose = "" if name == "all" else f"{name} "
        words.append(f"{whose}cap vols {_signed(move)}")
    if scenario.swaption_vols:
        words.append(f"swaption vols {_signed(scenario.swaption_vols)}")
    return ", ".join(words) or "nothing moves"


def _cells(moves: Mapping[str, float]) -> str:
    return "|".join(f"{name}={move!r}" for name, move in moves.items())


def write_scenarios(path: Path, stress: Stress) -> None:
    """Write the P&L of each scenario as CSV: one row for the book, each underlying and each product.

    A book in several currencies has rows for each currency.

    Args:
        path: The file.
        stress: The scenarios to write.
    """
    parts = [stress.of(currency) for currency in stress.currencies] or [stress]
    lost = [
        {(kind, name): part.found.lost(own) for kind, name, own in part.groups} for part in parts
    ]

    def rows() -> Iterator[dict[str, Any]]:
        for place, scenario in enumerate(stress.found.scenarios):
            reason = stress.found.failures.get(scenario.name) or (
                None if stress.currencies else "no trade has a value today"
            )
            head = {"scenario": scenario.name, "swaption_vols": scenario.swaption_vols}
            kinds = "spots", "vols", "rates", "cap_vols", "fx"
            head |= {kind: _cells(getattr(scenario, kind)) for kind in kinds}
            for part, missing in zip(parts, lost, strict=True):
                yield from (head | row for row in _groups(part, place, reason, missing))

    write_csv(path, _COLUMNS, rows())


def _groups(
    part: Stress, place: int, reason: str | None, lost: Mapping[Any, Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield the P&L of each group of trades in one currency, in the scenario with an index."""
    scenario = part.found.scenarios[place]
    for kind, name, own in part.groups:
        missing = lost[kind, name].get(scenario.name)
        in_part = f"in part: {missing}" if missing else "ok"
        status = f"failed: {reason}" if reason else in_part
        row = {"group": kind, "name": name, "trades": int(own.sum()), "status": status}
        pnl, error = (float(column[place]) for column in part.totals[kind, name])
        numbers = {"pnl": pnl, "std_error": error} if np.isfinite(pnl) and not reason else {}
        yield row | numbers | {"currency": part.currency or ""}


def write_scenario_trades(path: Path, stress: Stress) -> None:
    """Write the P&L of each trade as CSV: `pnl:NAME` for each scenario, and its standard error if there is one.

    Args:
        path: The file.
        stress: The scenarios to write.
    """
    names = [scenario.name for scenario in stress.found.scenarios]
    numbers_of = [f"{kind}:{name}" for name in names for kind in ("pnl", "std_error")]
    columns = ["id", "type", "currency", *numbers_of]

    def rows() -> Iterable[dict[str, Any]]:
        numbers = np.stack([stress.found.pnl, stress.found.std_error], axis=1).reshape(
            2 * len(names), -1
        )
        for position, row in zip(stress.positions, numbers.T.tolist(), strict=True):
            cells = dict(zip(numbers_of, (x if x == x else None for x in row), strict=True))
            head = {name: getattr(position, name) for name in ("id", "type", "currency")}
            yield head | cells

    write_csv(path, columns, rows())
