"""The tables that the sweeps follow: the slots of kept states, and the way to recompute the others.

A *position* counts states: k is before node k. A *place* is an entry of the nodes' stacked values, a *slot* an
entry of the kept states, and a *row* an entry of the columns `store_position` and `store_slot`.
"""

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_LONG = 2**14


def cached_by_length(function):
    """Cache the results of `function(length, ...)`: many short tables, few long ones."""
    short = functools.lru_cache(maxsize=256)(function)
    long = functools.lru_cache(maxsize=4)(function)

    @functools.wraps(function)
    def remembered(length: int, *rest):
        return (short if length <= _LONG else long)(length, *rest)

    return remembered


class ScheduleArrays(NamedTuple):
    """A table as int32 arrays, whose nodes can be edited in a compiled program.

    Attributes:
        length: The number of live nodes, a scalar.
        order: The index in `xs` that each node reads: first those of the live nodes in execution order, then
            the free places.
        sweep_rows: The two ends of the store rows of the first sweep.
        load_position, load_slot, first_row, last_row, store_position, store_slot: Columns of `ScheduleTable`,
            padded to the capacity.
    """

    length: Any
    order: Any
    load_position: Any
    load_slot: Any
    first_row: Any
    last_row: Any
    store_position: Any
    store_slot: Any
    sweep_rows: Any


@dataclasses.dataclass(frozen=True, eq=False)
class ScheduleTable:
    """The states that a chain of known length keeps and recomputes, as small int32 arrays.

    To reverse node k: load slot `load_slot[k]`, which holds position `load_position[k]`; for each
    store row in `[first_row[k], last_row[k])` advance to `store_position[row]` and keep that state
    in `store_slot[row]`; advance to k; pull the cotangent back through node k.

    The first sweep follows the rows of the last node, `sweep_rows`, from position 0 in slot 0, and
    leaves the state before the last node in slot `load_slot[-1]`. The first `host_slots` slots are in the
    host's memory. `is_weighted` says that nodes cost unequally.
    """

    slots: int
    load_position: np.ndarray
    load_slot: np.ndarray
    first_row: np.ndarray
    last_row: np.ndarray
    store_position: np.ndarray
    store_slot: np.ndarray
    sweep_rows: tuple[int, int]
    host_slots: int = 0
    is_weighted: bool = False

    def __len__(self) -> int:
        return len(self.load_position)

    @property
    def length(self) -> np.int32:
        """The number of nodes."""
        return np.int32(len(self))

    def count_advances(self) -> int:
        """Count the forward steps of the first sweep (the last node apart) and of every recomputation."""
        return len(self) - 1 + int((np.arange(len(self)) - self.load_position).sum())

    def count_work(self, costs: Sequence[float]) -> float:
        """Return the cost of the steps that `count_advances` counts, if node k costs `costs[k]`."""
        before = np.append(0.0, np.cumsum(costs))[: len(self)]
        return float(before[-1] + (before - before[self.load_position]).sum())

    def count_repetition(self) -> int:
        """Return the number of times that the busiest step is advanced."""
        begun = np.bincount(self.load_position, minlength=len(self))
        return int(np.cumsum(begun - 1).max(initial=0)) + int(len(self) > 1)


def beta(s: int, r: int) -> int:
    """Return the length of the longest chain that `s` slots reverse with no step advanced more than `r` times.

    `beta(s, r) = C(s + r, s)`, and 0 where `s` or `r` is negative.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26(1), 2000, Proposition 1.

    Args:
        s: The number of slots.
        r: The maximum number of times that a step is advanced.

    Returns:
        The number of steps, exactly.

    Examples:
        >>> import jaxtape as jt
        >>> jt.beta(3, 2)
        10
    """
    return math.comb(s + r, s) if s >= 0 and r >= 0 else 0


def repetition(n: int, s: int) -> int:
    """Return the smallest `r` with `n <= beta(s, r)`: the number of times that the busiest step is advanced."""
    enough = 1
    while beta(s, enough) < n:
        enough *= 2
    return bisect.bisect_left(range(enough), n, key=lambda r: beta(s, r))


def advances(n: int, s: int) -> int:
    """Return the fewest forward steps that reverse a chain of `n` steps with `s` slots.

    `advances(n, s) = r n - beta(s + 1, r - 1)`, `beta(s, r - 1) < n <= beta(s, r)`. It counts the first sweep
    up to the state before the last step, but not the `n` taped steps. The initial state occupies a slot.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26(1), 2000, equation 4.

    Args:
        n: The steps of the chain.
        s: The number of slots.

    Returns:
        The number of steps, exactly.

    Raises:
        ValueError: If `n` is negative or `s` below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.advances(365, 12)
        990
    """
    if n < 0:
        raise ValueError(f"A chain of {n} steps cannot be reversed: give n >= 0.")
    check_slots(s)
    s = max(1, min(s, n))
    r = repetition(n, s)
    return r * n - beta(s + 1, r - 1)


def check_slots(slots: int) -> None:
    """Check that `slots` is a number of slots, as `check_count` does."""
    check_count("slots", slots, "the initial state needs one")


def check_count(name: str, count: int, why: str) -> None:
    """Check that a count is an int of at least 1; `why` explains the minimum.

    Raises:
        TypeError: If it is not an int.
        ValueError: If it is below 1.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise TypeError(
            f"{name} is {count!r}: it fixes the size of a buffer, so give a Python int."
        )
    if count < 1:
        raise ValueError(f"{name} is {count}: {why}, so give at least 1.")


def first_part(size: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the number of nodes to advance before the next checkpoint: the greatest optimal m.

    Every m in `[max(beta(s, r-2), n - beta(s-1, r)), min(beta(s, r-1), n - beta(s-1, r-1))]` is
    optimal (Griewank & Walther 2000, section 3); the greatest needs the fewest generations.
    """
    m = np.empty_like(size)
    for s in np.unique(free):
        here = free == s
        n, s = size[here], int(s)
        top = repetition(int(n.max()), s)
        left, right = (np.array([beta(i, r) for r in range(top)]) for i in (s, s - 1))
        r = np.searchsorted(left, n)
        m[here] = np.minimum(left[r - 1], n - right[r - 1])
    return m


@cached_by_length
def revolve_table(length: int, slots: int) -> ScheduleTable:
    """Bisect the chain repeatedly, one generation of segments at a time.

    A segment `[start, start + size)` owns `free` slots, the first of which holds its start. It is advanced by m
    and cut there; the right part is reversed first, with one slot fewer, then the left part, with all of them.
    So every cut is a store row of the segment's last node, and every left part reloads its start. A segment
    with a slot for every node but one is laid out at once.
    """
    return table_of_cuts(length, slots, lambda start, size, free: first_part(size, free))


def table_of_cuts(length: int, slots: int, cut: Callable) -> ScheduleTable:
    """Return the table with segments cut after `cut(start, size, free)` nodes, as in `revolve_table`."""
    load = np.zeros((2, length), np.int32)  # position, slot
    rows = []  # (node, position, slot) of the store rows, a generation at a time
    start, size, free = (np.array([i]) for i in (0, length, slots))
    while start.size:
        flat = (free == 1) | (size <= free + 1)
        rows.append(_lay_flat(load, start[flat], size[flat], free[flat], slots))
        start, size, free = start[~flat], size[~flat], free[~flat]
        m = cut(start, size, free)
        rows.append(np.stack([start + size - 1, start + m, slots - free + 1]))
        load[:, start + m - 1] = start, slots - free
        start = np.concatenate([start + m, start])
        size = np.concatenate([size - m, m])
        free = np.concatenate([free - 1, free])
    rows = np.concatenate(rows, axis=1)
    return _laid_out(load, rows[:, np.lexsort(rows[1::-1])], length, slots)


@cached_by_length
def multi_stage_table(length: int, device: int, host: int) -> ScheduleTable:
    """Return Revolve's table with `device + host` slots, the least used ones in the host's memory.

    Slot 0 still holds the first state. The last slot, which the first sweep fills and the reverse sweep starts
    from, is on the device.
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
    """Keep one state per slot; restart the nodes beyond the last slot from it. Return the store rows."""
    inner = size - 1  # the last node is loaded when the segment is made
    offset = np.arange(inner.sum()) - np.repeat(np.cumsum(inner) - inner, inner)
    a, n, s = (np.repeat(v, inner) for v in (start, size, free))
    held = np.minimum(offset, s - 1)
    load[:, a + offset] = a + held, slots - s + held
    stored = offset + 1 < s
    rows = np.stack([a + n - 1, a + offset + 1, slots - s + offset + 1])
    return rows[:, stored]


def _laid_out(load: np.ndarray, rows: np.ndarray, length: int, slots: int) -> ScheduleTable:
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
    return ScheduleTable(slots + spare, load[0], load[1], first, last, position, slot, sweep)


def slots_within(
    budget: int,
    length: int,
    work: Callable[[int], int],
    state: int,
    more_from: int | float = math.inf,
) -> int:
    """Return the number of states of a chain that fit in a budget, besides the one before the last node.

    Args:
        budget: The bytes available.
        length: The number of nodes.
        work: A function from a number of states to the bytes that the work of one node takes beside them. It
            jumps up at `more_from` states.
        state: The bytes of one state.
        more_from: The number of states from which the work takes more bytes.

    Raises:
        ValueError: If not even one state fits.
    """
    least, least_bytes = min(2, length), math.inf
    ranges = [(max(more_from, least), length), (least, min(more_from - 1, length))]
    ranges = [(int(first), int(last)) for first, last in ranges if first <= last]
    for first, last in ranges:
        if first > least and first * state > budget:
            continue  # saves computing the work
        needed = work(first)
        fit = (budget - needed) // state if state else length + 1
        if fit >= first:
            is_whole = last == length and (fit > length or length == 1)
            return length if is_whole else min(fit, last) - 1
        least_bytes = min(least_bytes, needed + first * state)
    raise ValueError(
        f"A budget of {budget:,} bytes does not hold a gradient through these nodes: every state kept takes "
        f"{state:,} bytes, beside the work of one node, so give at least {least_bytes:,}."
    )


def no_nodes() -> ScheduleTable:
    """Return the table of no nodes, in which nothing is kept."""
    none = np.zeros(0, np.int32)
    return ScheduleTable(0, none, none, none, none, none, none, (0, 0))


def with_kept_nodes(table: ScheduleTable, more: int) -> ScheduleTable:
    """Return the table of more nodes, the last of which each have a slot of their own in the first sweep."""
    if not len(table):
        return revolve_table(more, more)
    before, own = len(table), np.arange(more)
    first, last = table.sweep_rows
    load = np.stack([before + own, table.slots + own])
    reached = [[table.load_position[-1]], [table.load_slot[-1]]]
    rows = np.concatenate([[table.store_position, table.store_slot], reached, load], axis=1)
    load = np.concatenate([[table.load_position, table.load_slot], load], axis=1)
    none = np.zeros(more, np.int32)
    return dataclasses.replace(
        table,
        slots=table.slots + more,
        load_position=load[0].astype(np.int32),
        load_slot=load[1].astype(np.int32),
        first_row=np.append(table.first_row, none),
        last_row=np.append(table.last_row, none),
        store_position=rows[0].astype(np.int32),
        store_slot=rows[1].astype(np.int32),
        sweep_rows=(first, last + 1 + more),
    )


def nested_blocks(length: int, sizes: tuple[int, ...]) -> tuple[int, np.ndarray, np.ndarray]:
    """Cut a chain into blocks of `sizes[0]` nodes, each into blocks of `sizes[1]`, and so on down to 1.

    Returns the number of slots, the slot of the state at each position, and the start of the outermost block
    that ends at each node. The blocks of one parent have separate slots, which the blocks of the next parent
    reuse; the first block starts where its parent does.
    """
    node = np.arange(length)
    start, slot, slots = np.full(length, -1), np.full(length, -1), 0
    for parent, size in zip((length, *sizes), sizes, strict=False):
        shared = int(slots > 0)  # the slot of the parent's start
        within = node % parent // size
        slot = np.where((slot < 0) & (node % size == 0), slots + within - shared, slot)
        start = np.where((start < 0) & ((node + 1) % size == 0), node - node % size, start)
        slots += -(-min(parent, length) // size) - shared
    return slots, slot.astype(np.int32), start.astype(np.int32)


def equal_sizes(length: int, levels: int) -> tuple[int, ...]:
    """Return sizes that cut each block into about the `levels`-th root of n parts."""
    parts = max(2, math.ceil(length ** (1.0 / levels)))
    return tuple(parts**level for level in reversed(range(levels)))


@cached_by_length
def block_table(length: int, sizes: tuple[int, ...]) -> ScheduleTable:
    """Return the table of blocks within blocks.

    The last node of a block keeps the starts of the blocks inside it, down to its own state.
    """
    slots, slot, load_position = nested_blocks(length, sizes)
    node, rows = np.arange(length), []
    for parent, size in zip((length, *sizes), sizes, strict=False):
        last = node[((node + 1) % parent == 0) | (node == length - 1)]
        count = last % parent // size
        part = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1
        position = np.repeat(last - last % parent, count) + part * size
        rows.append(np.stack([np.repeat(last, count), position, slot[position]]))
    rows = np.concatenate(rows, axis=1)
    load = np.stack([load_position, slot[load_position]])
    return _laid_out(load, rows[:, np.lexsort(rows[1::-1])], length, slots)
