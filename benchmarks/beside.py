"""The common form of every benchmark's figures: our ratio to each peer with its spread, and known answers.

A benchmark adds them by `Run.beside` and `Run.answer`. Its file has them under `comparisons` and `answers`. In
older files, they are reconstructed from the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

_SECONDS, _BYTES = ("seconds", "ms"), ("peak_bytes", "temp_bytes")
_KNOWN = ("answer", "published", "known", "true")
_FOUND = ("value", "mean", "fitted", "lower", "upper")


@dataclass(frozen=True)
class Spread:
    """The median of a ratio over rounds, and its quartiles; None if only one number was kept."""

    median: float
    low: float | None = None
    high: float | None = None
    rounds: int | None = None


@dataclass(frozen=True)
class Comparison:
    """A task of ours and a peer's; `speed` is their seconds over ours, `memory` our bytes over theirs."""

    task: str
    ours: str
    peer: str
    speed: Spread
    memory: float | None = None


@dataclass(frozen=True)
class Answer:
    """A known figure; `error` is relative, `std_error` that of the measured figure, in its own unit."""

    figure: str
    error: float
    known: float | None = None
    found: float | None = None
    std_error: float | None = None


class Measured(Protocol):
    """Something timed in turn with others."""

    @property
    def by_turn(self) -> Mapping[int, float]:
        """Return the seconds of each turn that it took part in."""
        ...


@dataclass(frozen=True)
class Turns:
    """Seconds by turn, computed from others."""

    by_turn: Mapping[int, float]


def spread(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread:
    """Return their seconds over ours, turn by turn: whatever slows the machine for a while slows both."""
    ratios = [theirs[turn] / ours[turn] for turn in ours.keys() & theirs.keys()]
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
    return Spread(median, low, high, len(ratios))


def comparisons(
    task: str, ways: Mapping[str, Measured], size: Mapping[str, float | None] | None = None
) -> list[Comparison]:
    """Compare ways: the first, and others of its name, are ours; the rest are peers. `size` is bytes by way."""
    (first, ours), size = next(iter(ways.items())), size or {}
    return [
        Comparison(
            task,
            first,
            name,
            spread(ours.by_turn, way.by_turn),
            ratio(size.get(first), size.get(name)),
        )
        for name, way in ways.items()
        if not is_ours(name, first)
    ]


def is_ours(name: str, first: str) -> bool:
    return name.startswith(first.partition(",")[0])


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


# --- reading what was kept ------------------------------------------------------------------------------


def comparisons_of(kept: Mapping[str, Any]) -> list[Comparison]:
    """Return the comparisons of a file: as kept, or else derived from its rows."""
    if "comparisons" in kept:
        return [
            Comparison(**{**row, "speed": Spread(**row["speed"])}) for row in kept["comparisons"]
        ]
    return [found for rows in _lists(kept) for found in (*_in_ways(rows), *_in_pairs(rows))]


def answers_of(kept: Mapping[str, Any]) -> list[Answer]:
    """Return the answers of a file: as kept, or else derived from its rows."""
    if "answers" in kept:
        return [Answer(**row) for row in kept["answers"]]
    return [found for rows in _lists(kept) for row in rows for found in _answers_in(row)]


def as_kept(rows: Sequence[Comparison | Answer]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def _lists(kept: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield every list of rows, however deep; a file without one is a row itself."""
    found = list(_rows_in(kept))
    yield from found or [[kept]]


def _rows_in(kept: Any) -> Iterator[list[dict[str, Any]]]:
    if isinstance(kept, Mapping):
        for value in kept.values():
            yield from _rows_in(value)
    elif isinstance(kept, list) and kept and all(isinstance(row, Mapping) for row in kept):
        yield kept
        for row in kept:
            yield from _rows_in(row)


def _first(row: Mapping[str, Any], names: Sequence[str]) -> float | None:
    numbers = (row.get(name) for name in names)
    return next((x for x in numbers if isinstance(x, int | float) and x is not True), None)


def _words(row: Mapping[str, Any], but: Sequence[str] = ()) -> str:
    """Return the words of a row, which name it."""
    return ", ".join(x for key, x in row.items() if isinstance(x, str) and key not in but)


def _in_ways(rows: list[dict[str, Any]]) -> Iterator[Comparison]:
    """Compare rows with a `way` and seconds each; rows with the same other words belong to one task."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "way" in row and _first(row, _SECONDS):
            tasks.setdefault(_words(row, ["way"]), []).append(row)
    for task, (ours, *others) in tasks.items():
        for row in others:
            if not is_ours(row["way"], ours["way"]):
                speed = ratio(_first(row, _SECONDS), _first(ours, _SECONDS))
                memory = ratio(_first(ours, _BYTES), _first(row, _BYTES))
                yield Comparison(task, ours["way"], row["way"], Spread(speed or 0.0), memory)


def _in_pairs(rows: list[dict[str, Any]]) -> Iterator[Comparison]:
    """Compare the two sides of rows that hold the times of both."""
    for row in rows:
        ours, theirs = (row.get(f"{who}_time", {}).get("median") for who in ("our", "their"))
        ours, theirs = ours or row.get("our_seconds"), theirs or row.get("their_seconds")
        if ours and theirs:
            task = row.get("task") or _words(row, ["ours", "theirs"])
            sides = row.get("ours", "jaxtape"), row.get("theirs", "PyTorch")
            yield Comparison(task, *sides, Spread(theirs / ours))


def _answers_in(row: Mapping[str, Any]) -> Iterator[Answer]:
    name = _words(row, ["way", "ours", "verdicts"]) or row.get("way", "")
    if known := _first(row, _KNOWN):
        error = _first(row, ("std_error", "error"))
        for key in _FOUND:
            if (found := _first(row, [key])) is not None:
                own = _first(row, [f"{key}_error"])
                yield Answer(
                    f"{name}, {key}",
                    found / known - 1.0,
                    known,
                    found,
                    error if own is None else own,
                )
    errors = row.get("errors")
    if isinstance(errors, Mapping):
        for figure, (mean, std_error) in errors.items():
            yield Answer(f"{row.get('way', name)}, {figure}", mean, std_error=std_error)
    for key in ("value_error", "sensitivity_error"):
        if _first(row, [key]) is not None and "answer" not in row:
            yield Answer(f"{row.get('way', name)}, {key.partition('_')[0]}", row[key])
