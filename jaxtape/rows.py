"""A schedule's table as data: what a chain follows whose nodes are edited without compiling again."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from .schedule import AbstractSchedule, Revolve, Table, cached_by_length


class Rows(NamedTuple):
    """A `Table` padded to a capacity, the number of live nodes, and where each of them reads its x.

    All are int32 arrays: `length` a scalar, `sweep` the first sweep's two ends, the others as long as
    the capacity. `order` holds the live nodes first, in execution order, and then the free places.
    """

    length: Any
    order: Any
    load_position: Any
    load_slot: Any
    first_row: Any
    last_row: Any
    store_position: Any
    store_slot: Any
    sweep: Any


@dataclasses.dataclass(frozen=True)
class Room:
    """The static part of a table that comes as data: how many nodes and slots there is room for."""

    capacity: int
    slots: int
    marks: int = 0
    checkpoint_dtype: Any = None

    def __len__(self) -> int:
        return self.capacity

    @classmethod
    def of(cls, schedule: AbstractSchedule, capacity: int, marks: int) -> "Room":
        """Room for the schedule's slots at any length within the capacity, and one for each mark."""
        slots = schedule.most_slots(capacity) + marks
        return cls(capacity, slots, marks, getattr(schedule, "checkpoint_dtype", None))


def kept_positions(tape) -> set[int]:
    """Where a tape's first sweep keeps states: as its schedule says, at marks, where segments start."""
    positions = set(tape.marks)
    for segment, (start, _) in zip(tape.segments, tape.bounds(), strict=True):
        if len(segment):
            stored = segment.kept_positions(tape.schedule)
            positions |= {start, *(start + stored).tolist()}
    return positions


def rows_of(
    schedule: AbstractSchedule, order: np.ndarray, length: int, marks: tuple[int, ...], room: Room
) -> Rows:
    """The rows of the live nodes, `order[:length]`, with the states before `marks` always kept."""
    return Rows(np.int32(length), order, *_padded(length, schedule, marks, room))


def rows_of_table(table: Table) -> Rows:
    """The rows of a table of known length, whose nodes lie in order."""
    per_node = table.load_position, table.load_slot, table.first_row, table.last_row
    store = table.store_position, table.store_slot
    return Rows(np.int32(len(table)), None, *per_node, *store, np.asarray(table.sweep_rows))


@cached_by_length
def _padded(length: int, schedule: AbstractSchedule, marks: tuple[int, ...], room: Room) -> tuple:
    if not length:
        nothing = np.zeros(room.capacity, np.int32)
        return (nothing,) * 6 + (np.zeros(2, np.int32),)
    table = _marked(schedule, length, marks, room)
    per_node = table.load_position, table.load_slot, table.first_row, table.last_row
    columns = *per_node, table.store_position, table.store_slot
    padded = tuple(np.pad(c, (0, room.capacity - len(c))).astype(np.int32) for c in columns)
    return *padded, np.asarray(table.sweep_rows, np.int32)


def table_of(schedule: AbstractSchedule, length: int) -> Table:
    """The schedule's table; to store everything is to have a slot for every state."""
    table = schedule.compile(length)
    return Revolve(max(length, 1)).compile(max(length, 1)) if table is None else table


def _marked(schedule: AbstractSchedule, length: int, marks: tuple[int, ...], room: Room) -> Table:
    """The tables of the pieces between marks, one after the other.

    The pieces share their slots but for the first of each, which holds where it starts: that is the
    mark's own slot. The first sweep keeps the marked states on its way to the last piece.
    """
    starts = [0, *(mark for mark in marks if 0 < mark < length)]
    pieces = [table_of(schedule, b - a) for a, b in zip(starts, [*starts[1:], length], strict=True)]
    own = room.slots - room.marks
    columns, rows, count = [], [], 0
    for i, (start, table) in enumerate(zip(starts, pieces, strict=True)):
        in_own = functools.partial(_renumbered, first=own + i - 1 if i else 0)
        first, last = table.first_row + count, table.last_row + count
        load_position, load_slot = table.load_position + start, in_own(table.load_slot)
        sweep = tuple(count + row for row in table.sweep_rows)
        if i + 1 < len(pieces):  # the first sweep does not stop here: reload where the piece starts
            load_position[-1], load_slot[-1] = start, in_own(np.zeros(1, int))[0]
            first[-1], last[-1] = sweep
        columns.append((load_position, load_slot, first, last))
        rows.append((table.store_position + start, in_own(table.store_slot)))
        count += len(table.store_position)
    per_node = map(np.concatenate, zip(*columns, strict=True))
    positions, slots = map(np.concatenate, zip(*rows, strict=True))
    # the rows of the last node come last: the marked states are kept just before
    passed = np.asarray(starts[1:], np.int64)
    positions = np.insert(positions, sweep[0], passed)
    slots = np.insert(slots, sweep[0], own + np.arange(len(passed)))
    return Table(room.slots, *per_node, positions, slots, (sweep[0], len(positions)))


def _renumbered(slot: np.ndarray, first: int) -> np.ndarray:
    """The slots of a piece, the first of them replaced by the slot that holds where it starts."""
    return np.where(slot == 0, first, slot)
