"""The scenarios of a file: a grid of spot and vol moves, a ladder of rate moves, and named scenarios."""

import functools
import itertools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, RootModel

from ...ingestion.errors import InputError, show, unreadable
from ...ingestion.field_types import (
    check_increasing,
    number,
    numbers,
    problem,
)
from ...ingestion.files import parse_json, read_text
from ...ingestion.locator import Locator, Place
from ...ingestion.validation import ValidationIssue, validate
from ...market import Market
from ...market.records import Name, Record
from .scenario import ALL, BOUNDS, Scenario

SPOTS = (-0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2)
VOLS = (-0.05, -0.025, 0.0, 0.025, 0.05)
RATES = (-0.01, -0.005, 0.0, 0.005, 0.01)
_MOST = 40
"""The largest number of moves in a ladder."""


def _ladder(value: tuple[float, ...]) -> tuple[float, ...]:
    """Return the moves, with 0 added if it is missing.

    Raises:
        problem: The moves do not increase, or are too many.
    """
    check_increasing(value, "sort the moves in increasing order")
    if len(value) > _MOST:
        raise problem(f"there are {len(value)} moves", f"give at most {_MOST}")
    return tuple(sorted({0.0, *value}))


def _by_name(value: object) -> object:
    """Return moves by name; a single number applies to all."""
    return {ALL: value} if isinstance(value, int | float) and not isinstance(value, bool) else value


_SpotLadder = Annotated[
    tuple[float, ...], AfterValidator(_ladder), numbers("move", **BOUNDS["spots"])
]
_VolLadder = Annotated[
    tuple[float, ...], AfterValidator(_ladder), numbers("move", **BOUNDS["vols"])
]
_RateLadder = Annotated[
    tuple[float, ...], AfterValidator(_ladder), numbers("move", **BOUNDS["rates"])
]
_SpotMove = Annotated[float, number("move", **BOUNDS["spots"])]
_VolMove = Annotated[float, number("move", **BOUNDS["vols"])]
_RateMove = Annotated[float, number("move", **BOUNDS["rates"])]
_SpotMoves = Annotated[dict[Name, _SpotMove], BeforeValidator(_by_name)]
_VolMoves = Annotated[dict[Name, _VolMove], BeforeValidator(_by_name)]
_RateMoves = Annotated[dict[Name, _RateMove], BeforeValidator(_by_name)]


class _Grid(Record):
    spots: _SpotLadder = SPOTS
    vols: _VolLadder = VOLS


class _Document(Record):
    grid: _Grid = _Grid()
    rates: _RateLadder = RATES
    scenarios: dict[str, Any] = Field(default_factory=dict)


class _Scenario(Record):
    spots: _SpotMoves = Field(default_factory=dict)
    vols: _VolMoves = Field(default_factory=dict)
    rates: _RateMoves = Field(default_factory=dict)
    swaption_vols: _VolMove = 0.0
    fx: _SpotMoves = Field(default_factory=dict)
    cap_vols: _VolMoves = Field(default_factory=dict)


@dataclass(frozen=True)
class ScenarioSet:
    """The scenarios of one file.

    Attributes:
        file: The name of the file.
        spots: Relative moves of all spots, increasing and including 0: the rows of the grid.
        vols: Parallel moves of the implied vols of all equities, per 1.00, increasing and including 0: the
            columns.
        rates: Parallel moves of the zero rates of all curves, per 1.00, increasing and including 0.
        named: The named scenarios.
        errors: The errors of the file and, once checked, of its scenarios in the market.

    Examples:
        >>> from pricing.portfolio.scenarios import ScenarioSet
        >>> found = ScenarioSet.from_text('{"scenarios": {"crash": {"spots": -0.3, "vols": {"DAX": 0.1}}}}')
        >>> found.named[0].spot("DAX"), len(found.scenarios)
        (-0.3, 51)
    """

    file: str = "scenarios.json"
    spots: tuple[float, ...] = SPOTS
    vols: tuple[float, ...] = VOLS
    rates: tuple[float, ...] = RATES
    named: tuple[Scenario, ...] = ()
    errors: tuple[InputError, ...] = ()
    _place: Callable[[tuple[str | int, ...]], Place] = field(
        default=lambda path: (None, None), repr=False, compare=False
    )

    @classmethod
    def read(cls, path: str | os.PathLike) -> "ScenarioSet":
        """Return the scenarios in a JSON file (format: docs/data.md).

        A bad scenario is left out and reported in `errors`. A file without any usable part raises
        `UnreadableFile`.

        Args:
            path: The path of the file.
        """
        return cls.from_text(read_text(path), os.fspath(path))

    @classmethod
    def from_text(cls, text: str, file: str = "scenarios.json") -> "ScenarioSet":
        """Return the scenarios in JSON text.

        Args:
            text: The content of the file.
            file: The name for error messages.

        Raises:
            unreadable: No part is usable (an `UnreadableFile`).
        """
        document, locator = parse_json(text, file), Locator(text)
        if not isinstance(document, dict):
            message = f"{show(document)} is not a set of scenarios"
            raise unreadable(file, message, "give an object with grid, rates and scenarios")
        record, problems = validate(_Document, document)
        if record is None:
            first = problems[0]
            facts = {"place": locator.place(first.path), "field": ".".join(map(str, first.path))}
            raise unreadable(file, first.message, first.remedy, value=first.value, **facts)
        found = cls(file, record.grid.spots, record.grid.vols, record.rates, _place=locator.place)
        named, errors = [], []
        taken = {scenario.name for scenario in found.scenarios}
        for name, value in record.scenarios.items():
            moves, problems = validate(_Scenario, value)
            problems = (*_name_problems(name, taken), *problems)
            taken.add(name.strip())
            errors += [found._error(each, "scenarios", name) for each in problems]
            if moves is not None and not problems:
                named.append(Scenario(name.strip(), **moves.model_dump()))
        return replace(found, named=tuple(named), errors=tuple(errors))

    def checked(self, market: Market) -> "ScenarioSet":
        """Return the scenarios that are possible in the market, and the errors of the others.

        Args:
            market: The market that moves.
        """
        axes, errors = {}, list(self.errors)
        places = {"spots": ("grid", "spots"), "vols": ("grid", "vols"), "rates": ("rates",)}
        for axis, path in places.items():
            kept = []
            for move in getattr(self, axis):
                problems = list(replace(Scenario(""), **{axis: {ALL: move}}).problems(market))
                errors += [self._error(replace(each, path=()), *path) for each in problems[:1]]
                kept += [] if problems else [move]
            axes[axis] = tuple(kept)
        named = []
        for scenario in self.named:
            problems = list(scenario.problems(market))
            errors += [self._error(each, "scenarios", scenario.name) for each in problems]
            named += [] if problems else [scenario]
        return replace(self, **axes, named=tuple(named), errors=tuple(errors))

    @functools.cached_property
    def grid(self) -> tuple[tuple[Scenario, ...], ...]:
        """The scenarios of the grid: one row per spot move, one column per vol move."""
        return tuple(
            tuple(Scenario(_grid_name(spot, vol), {ALL: spot}, {ALL: vol}) for vol in self.vols)
            for spot in self.spots
        )

    @functools.cached_property
    def rate_ladder(self) -> tuple[Scenario, ...]:
        """The scenarios of the ladder of rates."""
        return tuple(
            Scenario(f"rates {1e4 * move:+g} bp", rates={ALL: move}) for move in self.rates
        )

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """All scenarios: the grid row by row, the ladder of rates, the named ones."""
        return (*itertools.chain(*self.grid), *self.rate_ladder, *self.named)

    def _error(self, found: ValidationIssue, *prefix: str) -> InputError:
        path = (*prefix, *found.path)
        facts = found.value, found.message, found.remedy
        return InputError(self.file, *self._place(path), ".".join(map(str, path)), *facts)


def _grid_name(spot: float, vol: float) -> str:
    return f"spots {100.0 * spot:+g} %, vols {100.0 * vol:+g} points"


def _name_problems(name: str, taken: Collection[str]) -> tuple[ValidationIssue, ...]:
    """Return the reasons why a text cannot name a scenario; empty if it can."""
    _, problems = validate(RootModel[Name], name)
    if name.strip() in taken:
        message = f"{show(name.strip())} is the name of another scenario"
        problems = (*problems, ValidationIssue((), show(name), message, "give it another name"))
    return problems
