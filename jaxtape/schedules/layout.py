"""Tables as data: the nodes of a chain can be edited without recompilation."""

import dataclasses

import numpy as np

from .schedule import AbstractSchedule
from .table import ScheduleArrays, ScheduleTable, cached_by_length

_PER_NODE = "load_position", "load_slot", "first_row", "last_row"
_PER_ROW = "store_position", "store_slot"


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """The static part of a table passed as data: its numbers of nodes and slots.

    Attributes:
        capacity: The maximum number of live nodes.
        slots: The maximum number of states kept at a time; the first `host_slots` are in the host's memory.
        mark_slots: The number of slots for marked states.
    """

    capacity: int
    slots: int
    mark_slots: int = 0
    host_slots: int = 0

    def __len__(self) -> int:
        return self.capacity

    @classmethod
    def of(
        cls, schedule: AbstractSchedule, capacity: int, length: int, marks: tuple, mark_slots: int
    ) -> "TableLayout":
        """Reserve the schedule's slots for any length within the capacity, and `mark_slots` for marks."""
        longest = int(np.diff([0, *marks, length]).max())
        slots = schedule.most_slots(capacity, longest) + mark_slots
        return cls(capacity, slots, mark_slots, schedule.host_slots(capacity))


def schedule_arrays(
    schedule: AbstractSchedule,
    order: np.ndarray,
    length: int,
    marks: tuple[int, ...],
    layout: TableLayout,
) -> ScheduleArrays:
    """Return the rows of the live nodes, `order[:length]`, with the states before `marks` always kept."""
    return ScheduleArrays(np.int32(length), order, *_padded(length, schedule, marks, layout))


@cached_by_length
def _padded(
    length: int, schedule: AbstractSchedule, marks: tuple[int, ...], layout: TableLayout
) -> tuple:
    if not length:
        nothing = np.zeros(layout.capacity, np.int32)
        return (nothing,) * 6 + (np.zeros(2, np.int32),)
    table = marked_table(length, schedule, marks, layout.slots - layout.mark_slots)
    columns = [getattr(table, name) for name in (*_PER_NODE, *_PER_ROW)]
    padded = tuple(np.pad(c, (0, layout.capacity - len(c))).astype(np.int32) for c in columns)
    return *padded, np.asarray(table.sweep_rows, np.int32)


@cached_by_length
def marked_table(
    length: int, schedule: AbstractSchedule, marks: tuple[int, ...], own: int | None = None
) -> ScheduleTable:
    """Join the tables of the chunks between marks, in order, into one.

    The first slot of each chunk holds the state where it starts, and belongs to its mark. The chunks share
    the other slots: `own` of the schedule, or the number that they need if that is None. The first sweep
    keeps the marked states on its way to the last chunk.
    """
    starts = [0, *(mark for mark in marks if 0 < mark < length)]
    sizes = np.diff([*starts, length]).tolist()
    tables = [schedule.table(size) for size in sizes]
    own = max(table.slots for table in tables) if own is None else own
    chunks, count = [], 0
    for i, (start, table) in enumerate(zip(starts, tables, strict=True)):
        chunk = _placed(table, start, own + i - 1 if i else 0, count)
        chunks.append(chunk if i + 1 == len(starts) else _entered_at_its_start(chunk))
        count += len(table.store_position)
    whole = {
        name: np.concatenate([getattr(chunk, name) for chunk in chunks])
        for name in (*_PER_NODE, *_PER_ROW)
    }
    # the last node's rows come last, after those of the marked states
    first, last = chunks[-1].sweep_rows
    kept = np.asarray(starts[1:], np.int64)
    whole["store_position"] = np.insert(whole["store_position"], first, kept)
    whole["store_slot"] = np.insert(whole["store_slot"], first, own + np.arange(len(kept)))
    sweep = first, last + len(kept)
    return dataclasses.replace(chunks[-1], slots=own + len(kept), sweep_rows=sweep, **whole)


def _placed(table: ScheduleTable, start: int, first_slot: int, rows: int) -> ScheduleTable:
    """Return a chunk's table numbered within the whole: its nodes start at `start`, its store rows at `rows`.

    The state where the chunk starts is in `first_slot` instead of slot 0.
    """
    in_own = lambda slot: np.where(slot == 0, first_slot, slot)
    first, last = table.sweep_rows
    return dataclasses.replace(
        table,
        load_position=table.load_position + start,
        load_slot=in_own(table.load_slot),
        first_row=table.first_row + rows,
        last_row=table.last_row + rows,
        store_position=table.store_position + start,
        store_slot=in_own(table.store_slot),
        sweep_rows=(first + rows, last + rows),
    )


def _entered_at_its_start(chunk: ScheduleTable) -> ScheduleTable:
    """Let the last node of a chunk reload its start, because the first sweep continues beyond the chunk."""
    at_the_end = {"load_position": chunk.load_position.min(), "load_slot": chunk.load_slot[0]}
    at_the_end["first_row"], at_the_end["last_row"] = chunk.sweep_rows
    columns = {name: getattr(chunk, name).copy() for name in at_the_end}
    for name, value in at_the_end.items():
        columns[name][-1] = value
    return dataclasses.replace(chunk, **columns)
