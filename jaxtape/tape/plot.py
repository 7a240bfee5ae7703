"""Plot the steps and the kept states of a plan over time."""

from collections.abc import Sequence

import numpy as np

from ..schedules.table import ScheduleTable


def draw(tables: Sequence[ScheduleTable], title: str, axes=None):
    """Draw the position against the steps of a gradient that follows these tables, and the states kept.

    Returns the figure of `axes`, two matplotlib axes, the upper one first; None makes a new figure.
    """
    import matplotlib.pyplot as plt  # slow to import

    if axes is None:
        sizes = {"height_ratios": (3, 1)}
        _, axes = plt.subplots(
            2, 1, sharex=True, figsize=(9, 6), gridspec_kw=sizes, layout="constrained"
        )
    upper, lower = axes
    path, kept = timeline(tables)
    position, begun, ended = kept.T
    upper.hlines(position, begun, ended, color="tab:orange", lw=1, label="kept")
    upper.plot(*path.T, color="tab:blue", lw=0.8, label="advanced, and pulled back")
    upper.set(ylabel="position", title=title)
    upper.legend(loc="upper right")
    changes = np.concatenate(
        [np.stack([begun, np.ones_like(begun)]), np.stack([ended, -np.ones_like(ended)])], 1
    )
    times, steps = changes[:, np.argsort(changes[0], kind="stable")]
    lower.step(times, np.cumsum(steps), where="post", color="tab:orange")
    lower.set(xlabel="steps advanced or pulled back", ylabel="states kept")
    return upper.figure


def timeline(tables: Sequence[ScheduleTable]) -> tuple[np.ndarray, np.ndarray]:
    """Follow the first sweeps of all segments, then their reverse sweeps, the last segment's first.

    Time counts steps advanced or pulled back, and positions are in the whole tape.

    Returns:
        The (time, position) of each step, NaN where a state is loaded; and the (position, start time, end time)
        of every kept state.
    """
    clock, starts = _Clock(), np.cumsum([0, *map(len, tables)]).tolist()
    pairs = zip(tables, starts, strict=False)
    swept = [(table, start, clock.sweep_first(table, start)) for table, start in pairs]
    for table, start, held in reversed(swept):
        clock.sweep_back(table, start, held)
    return np.array(clock.path, float), np.array(clock.kept, float)


class _Clock:
    """Follow tables and record the time of each event; `held` is slot -> (position, start time)."""

    def __init__(self):
        self.time, self.path, self.kept = 0, [(0.0, 0.0)], []

    def go(self, to: int, position: int) -> None:
        """Move by single steps to a position in the whole tape."""
        self.time += abs(to - position)
        self.path.append((self.time, to))

    def sweep_first(self, table: ScheduleTable, start: int) -> dict[int, tuple[int, int]]:
        """Advance through a segment; return the states left in slots."""
        rows = slice(*table.sweep_rows)
        position, slot = table.store_position[rows].tolist(), table.store_slot[rows].tolist()
        held = {0: (start, self.time)}
        held |= {s: (start + p, self.time + p) for p, s in zip(position, slot, strict=True)}
        last = len(table) - 1
        held.setdefault(int(table.load_slot[last]), (start + last, self.time + last))
        self.go(start + len(table), start)
        return held

    def sweep_back(
        self, table: ScheduleTable, start: int, held: dict[int, tuple[int, int]]
    ) -> None:
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
