"""A plan to look at: as a table of text, and as a picture of what is advanced and kept when."""

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable

from .schedules.table import Table

if TYPE_CHECKING:
    from .planning import Plan

_MOST = 100_000  # evaluations that a picture shows


def as_text(plan: "Plan") -> str:
    """One line a segment, and the sums."""
    text = TextTable(
        title=f"{sum(part.nodes for part in plan.parts):,} nodes", title_justify="left"
    )
    titles = (
        "segment",
        "schedule",
        "nodes",
        "advanced",
        "taped",
        "busiest",
        "slots",
        "bytes each",
        "work",
    )
    for title in titles:
        text.add_column(title, justify="left" if title in titles[:2] else "right")
    for part in plan.parts:
        numbers = part.nodes, part.advanced, part.taped, part.repetition, part.slots
        figures = (f"{number:,}" for number in (*numbers, *reversed(part.footprint)))
        text.add_row(part.operation, repr(part.schedule), *figures)
    written = io.StringIO()
    Console(file=written, width=120).print(text)
    host = f", and {plan.host_bytes:,} bytes on the host" if plan.host_bytes else ""
    return (
        f"{written.getvalue()}{plan.evaluations:,} evaluations of a step: {plan.advanced:,} advanced "
        f"(the busiest {plan.repetition} times), {plan.taped:,} taped\n"
        f"peak of {plan.peak_bytes:,} bytes{host}"
    )


class Timeline(NamedTuple):
    """A gradient as it goes: time counts steps advanced or pulled back, positions those of the whole tape.

    - **path**: (time, position) along the way; NaN where a state is loaded.
    - **kept**: (position, from when, until when) of every state that was kept.
    """

    path: np.ndarray
    kept: np.ndarray


def draw(plan: "Plan", axes=None):
    """What is advanced and kept when: the position against steps, and how many states are kept.

    - **axes**: two matplotlib axes above one another; None makes a figure.

    Returns the figure. **Errors**: `ValueError` if there are more than 100,000 evaluations.
    """
    import matplotlib.pyplot as plt  # takes long to import

    if plan.evaluations > _MOST:
        raise ValueError(
            f"{plan.evaluations:,} evaluations make no picture: draw a plan of at most {_MOST:,}."
        )
    if axes is None:
        sizes = {"height_ratios": (3, 1)}
        _, axes = plt.subplots(
            2, 1, sharex=True, figsize=(9, 6), gridspec_kw=sizes, layout="constrained"
        )
    upper, lower = axes
    line = timeline(plan)
    position, begun, ended = line.kept.T
    upper.hlines(position, begun, ended, color="tab:orange", lw=1, label="kept")
    upper.plot(*line.path.T, color="tab:blue", lw=0.8, label="advanced, and pulled back")
    upper.set(ylabel="position")
    upper.set_title(f"{plan.evaluations:,} evaluations of a step, {plan.peak_bytes:,} bytes")
    upper.legend(loc="upper right")
    changes = np.concatenate(
        [np.stack([begun, np.ones_like(begun)]), np.stack([ended, -np.ones_like(ended)])], 1
    )
    times, steps = changes[:, np.argsort(changes[0], kind="stable")]
    lower.step(times, np.cumsum(steps), where="post", color="tab:orange")
    lower.set(xlabel="steps advanced or pulled back", ylabel="states kept")
    return upper.figure


def timeline(plan: "Plan") -> Timeline:
    """The first sweeps of all segments, then their reverse sweeps, the last segment's first."""
    clock = _Clock()
    starts = np.cumsum([0, *(part.nodes for part in plan.parts)]).tolist()
    tables = ((part.table, start) for part, start in zip(plan.parts, starts, strict=False))
    swept = [(t, start, clock.sweep_first(t, start)) for t, start in tables if t is not None]
    for table, start, held in reversed(swept):
        clock.sweep_back(table, start, held)
    return Timeline(np.array(clock.path, float), np.array(clock.kept, float))


class _Clock:
    """Follows tables and writes down when what happens. `held`: slot -> (position, since when)."""

    def __init__(self):
        self.time, self.path, self.kept = 0, [(0.0, 0.0)], []

    def go(self, to: int, position: int) -> None:
        """Move by single steps to a position of the whole tape."""
        self.time += abs(to - position)
        self.path.append((self.time, to))

    def sweep_first(self, table: Table, start: int) -> dict[int, tuple[int, int]]:
        """Advance through a segment; the states it leaves in slots."""
        rows = slice(*table.sweep_rows)
        position, slot = table.store_position[rows].tolist(), table.store_slot[rows].tolist()
        held = {0: (start, self.time)}
        held |= {s: (start + p, self.time + p) for p, s in zip(position, slot, strict=True)}
        last = len(table) - 1
        held.setdefault(int(table.load_slot[last]), (start + last, self.time + last))
        self.go(start + len(table), start)
        return held

    def sweep_back(self, table: Table, start: int, held: dict[int, tuple[int, int]]) -> None:
        """Load, advance, keep and pull back, the last node first."""
        columns = table.load_position, table.first_row, table.last_row
        nodes = list(zip(*(column.tolist() for column in columns), strict=True))
        store = list(zip(table.store_position.tolist(), table.store_slot.tolist(), strict=True))
        for k, (loaded, first, last) in reversed(list(enumerate(nodes))):
            if loaded != k:
                self.path += [(np.nan, np.nan), (self.time, start + loaded)]
            position = loaded
            for to, slot in store[first:last]:
                self.go(start + to, start + position)
                held[slot], position = (start + to, self.time), to
            self.go(start + k, start + position)
            self.path += [(np.nan, np.nan), (self.time, start + k + 1)]
            self.go(start + k, start + k + 1)
            for slot in [slot for slot, (at, _) in held.items() if at == start + k]:
                self.kept.append((start + k, held.pop(slot)[1], self.time))
