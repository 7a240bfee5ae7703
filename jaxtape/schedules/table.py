"""The tables that the sweeps follow: which states are kept where, and what is recomputed from which."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from .binomial import first_part

_LONG = 2**14


def cached_by_length(function):
    """Remember what `function(length, ...)` made: a lot of short tables, few long ones."""
    short, long = (
        functools.lru_cache(maxsize=256)(function),
        functools.lru_cache(maxsize=4)(function),
    )

    @functools.wraps(function)
    def remembered(length: int, *rest):
        return (short if length <= _LONG else long)(length, *rest)

    return remembered


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A schedule for a chain of known length, as small int32 arrays.

    To reverse node k: load slot `load_slot[k]`, which holds position `load_position[k]`; for each
    store row in `[first_row[k], last_row[k])` advance to `store_position[row]` and keep that state
    in `store_slot[row]`; advance to k; pull the cotangent back through node k.

    The first sweep follows the rows of the last node, `sweep_rows`, from position 0 in slot 0, and
    leaves the state before the last node in slot `load_slot[-1]`. The first `host_slots` slots lie
    in the host's memory, real floating-point leaves in `checkpoint_dtype` (None: as they are).
    """

    slots: int
    load_position: np.ndarray
    load_slot: np.ndarray
    first_row: np.ndarray
    last_row: np.ndarray
    store_position: np.ndarray
    store_slot: np.ndarray
    sweep_rows: tuple[int, int]
    checkpoint_dtype: Any = None
    host_slots: int = 0

    def __len__(self) -> int:
        return len(self.load_position)

    def count_advances(self) -> int:
        """Forward steps of the first sweep (the last node apart) and of every recomputation."""
        return len(self) - 1 + int((np.arange(len(self)) - self.load_position).sum())

    def count_repetition(self) -> int:
        """How often the busiest step is advanced."""
        begun = np.bincount(self.load_position, minlength=len(self))
        return int(np.cumsum(begun - 1).max(initial=0)) + int(len(self) > 1)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Bytes for the temporaries of a gradient: what table that is, the size of the states will say."""

    length: int
    bytes: int
    checkpoint_dtype: Any = None
    host_slots: int = 0

    def __len__(self) -> int:
        return self.length

    def table(self, work: int, state: int) -> Table:
        """The table that takes the fewest steps with `work` bytes at work and `state` bytes a slot.

        **Errors**: `ValueError` if the bytes do not hold the first state and the last one.
        """
        slots = slots_within(self.bytes, self.length, work, state)
        exact = revolve_table(self.length, slots)
        return dataclasses.replace(exact, checkpoint_dtype=self.checkpoint_dtype)


def slots_within(budget: int, length: int, work: int, state: int) -> int:
    """How many states of a chain fit in a budget beside what is at work, one for the last left apart.

    **Errors**: `ValueError` if it is none.
    """
    fit = (budget - work) // state if state else length + 1
    if fit > length or (fit == length == 1):
        return length
    if fit < 2:
        raise ValueError(
            f"A budget of {budget:,} bytes does not hold a gradient through these nodes: the work of one node "
            f"takes {work:,} bytes and every state kept {state:,}, so give at least {work + 2 * state:,}."
        )
    return fit - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks within blocks.

    The state at position p is kept in `slot[p]`; the last node k of a block finds the start of the
    outermost block that ends there at `load_position[k]`. Blocks of one parent have slots of their
    own, which the next parent's use again; the first of them starts where the parent does.
    """

    slots: int
    slot: np.ndarray
    load_position: np.ndarray

    @classmethod
    def of(cls, length: int, sizes: tuple[int, ...]) -> "Blocks":
        """Blocks of `sizes[0]` nodes, each cut into blocks of `sizes[1]`, and so on down to 1."""
        node = np.arange(length)
        start, slot, slots = np.full(length, -1), np.full(length, -1), 0
        for parent, size in zip((length, *sizes), sizes, strict=False):
            shared = int(slots > 0)  # the slot of the parent's start
            within = node % parent // size
            slot = np.where((slot < 0) & (node % size == 0), slots + within - shared, slot)
            start = np.where((start < 0) & ((node + 1) % size == 0), node - node % size, start)
            slots += -(-min(parent, length) // size) - shared
        return cls(slots, slot.astype(np.int32), start.astype(np.int32))


def equal_sizes(length: int, levels: int) -> tuple[int, ...]:
    """Sizes that cut each block into about the `levels`-th root of n parts."""
    parts = max(2, math.ceil(length ** (1.0 / levels)))
    return tuple(parts**level for level in reversed(range(levels)))


@cached_by_length
def block_table(length: int, sizes: tuple[int, ...]) -> Table:
    """The table of blocks within blocks.

    The last node of a block keeps the starts of the blocks inside it, down to its own state.
    """
    blocks, node, rows = Blocks.of(length, sizes), np.arange(length), []
    for parent, size in zip((length, *sizes), sizes, strict=False):
        last = node[((node + 1) % parent == 0) | (node == length - 1)]
        count = last % parent // size
        part = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1
        position = np.repeat(last - last % parent, count) + part * size
        rows.append(np.stack([np.repeat(last, count), position, blocks.slot[position]]))
    rows = np.concatenate(rows, axis=1)
    load = np.stack([blocks.load_position, blocks.slot[blocks.load_position]])
    return _table(load, rows[:, np.lexsort(rows[1::-1])], length, blocks.slots)


@cached_by_length
def revolve_table(length: int, slots: int) -> Table:
    """Cut the chain in two again and again, a generation of segments at a time.

    A segment `[start, start + size)` owns `free` slots, the first of which holds its start. It is
    advanced by m and cut there; the right part is reversed first, with one slot fewer, then the
    left part, with all of them. So every cut is a store row of the segment's last node, and every
    left part reloads its start. A segment with a slot for every node but one is laid out at once.
    """
    load = np.zeros((2, length), np.int32)  # position, slot
    rows = []  # (node, position, slot) of the store rows, a generation at a time
    start, size, free = (np.array([i]) for i in (0, length, slots))
    while start.size:
        flat = (free == 1) | (size <= free + 1)
        rows.append(_lay_flat(load, start[flat], size[flat], free[flat], slots))
        start, size, free = start[~flat], size[~flat], free[~flat]
        m = first_part(size, free)
        rows.append(np.stack([start + size - 1, start + m, slots - free + 1]))
        load[:, start + m - 1] = start, slots - free
        start = np.concatenate([start + m, start])
        size = np.concatenate([size - m, m])
        free = np.concatenate([free - 1, free])
    rows = np.concatenate(rows, axis=1)
    return _table(load, rows[:, np.lexsort(rows[1::-1])], length, slots)


@cached_by_length
def multi_stage_table(length: int, device: int, host: int) -> Table:
    """Revolve's table with the slots of both, those that are touched least in the host's memory.

    Slot 0 holds the first state as ever, and the last slot, which the first sweep leaves full and the
    reverse sweep starts from, is the device's.
    """
    table = revolve_table(length, min(device + host, length))
    touched = np.bincount(np.append(table.load_slot, table.store_slot), minlength=table.slots)
    touched[0], touched[-1] = -1, np.iinfo(touched.dtype).max
    renumbered = np.argsort(np.argsort(touched, kind="stable")).astype(np.int32)
    return dataclasses.replace(
        table,
        load_slot=renumbered[table.load_slot],
        store_slot=renumbered[table.store_slot],
        host_slots=min(host, max(table.slots - device - 1, 0)),
    )


def _lay_flat(load, start, size, free, slots):
    """Keep one state a slot; the nodes beyond the last slot restart from it. Returns store rows."""
    inner = size - 1  # the last node is loaded by whoever made the segment
    offset = np.arange(inner.sum()) - np.repeat(np.cumsum(inner) - inner, inner)
    a, n, s = (np.repeat(v, inner) for v in (start, size, free))
    held = np.minimum(offset, s - 1)
    load[:, a + offset] = a + held, slots - s + held
    stored = offset + 1 < s
    rows = np.stack([a + n - 1, a + offset + 1, slots - s + offset + 1])
    return rows[:, stored]


def _table(load: np.ndarray, rows: np.ndarray, length: int, slots: int) -> Table:
    """Lay out loads and sorted store rows; the last node's rows belong to the first sweep."""
    node, position, slot = rows.astype(np.int32)
    edges = np.searchsorted(node, np.arange(length + 1)).astype(np.int32)
    first, last = edges[:-1].copy(), edges[1:].copy()
    sweep = int(first[-1]), int(last[-1])
    first[-1] = last[-1] = 0
    reached = position[-1] if position.size else 0
    spare = int(reached != length - 1)  # the state before the last node is not yet in a slot
    held = slot[-1] if slot.size else 0
    load[:, -1] = length - 1, slots if spare else held
    return Table(slots + spare, load[0], load[1], first, last, position, slot, sweep)
