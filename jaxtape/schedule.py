"""What is kept and what is recomputed: schedules, and the tables that the sweeps follow."""

import abc
import dataclasses
import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np


def beta(s: int, r: int) -> int:
    """Longest chain that `s` slots reverse with no step advanced more than `r` times.

    `beta(s, r) = C(s + r, s)`, and 0 where `s` or `r` is negative
    (Griewank & Walther 2000, ACM TOMS 26(1), Proposition 1).
    """
    return math.comb(s + r, s) if s >= 0 and r >= 0 else 0


def repetition(n: int, s: int) -> int:
    """The smallest `r` with `n <= beta(s, r)`: how often the busiest step is advanced."""
    r = 0
    while beta(s, r) < n:
        r += 1
    return r


def advances(n: int, s: int) -> int:
    """Fewest forward steps that reverse a chain of `n` steps with `s` slots.

    `advances(n, s) = r n - beta(s + 1, r - 1)`, `beta(s, r - 1) < n <= beta(s, r)`
    (Griewank & Walther 2000, equation 4). The first sweep, up to the state before the last step,
    is counted; the `n` taped steps are not. The initial state occupies a slot.

    **Errors**: `ValueError` unless `n >= 0` and `s >= 1`.
    """
    if n < 0:
        raise ValueError(f"A chain of {n} steps cannot be reversed: give n >= 0.")
    check_slots(s)
    s = max(1, min(s, n))
    r = repetition(n, s)
    return r * n - beta(s + 1, r - 1)


def check_slots(slots: int) -> None:
    """Raise `TypeError` unless `slots` is an int, `ValueError` unless it is at least 1."""
    check_count("slots", slots, "the initial state needs one")


def check_count(name: str, count: int, why: str) -> None:
    """Raise `TypeError` unless `count` is an int, `ValueError` unless it is at least 1."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise TypeError(
            f"{name} is {count!r}: it fixes the size of a buffer, so give a Python int."
        )
    if count < 1:
        raise ValueError(f"{name} is {count}: {why}, so give at least 1.")


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
    leaves the state before the last node in slot `load_slot[-1]`.
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

    def __len__(self) -> int:
        return len(self.load_position)

    def count_advances(self) -> int:
        """Forward steps of the first sweep (the last node apart) and of every recomputation."""
        return len(self) - 1 + int((np.arange(len(self)) - self.load_position).sum())


class AbstractSchedule(abc.ABC):
    """What a chain keeps for its reverse sweep. A schedule is a hashable value, not an array."""

    @abc.abstractmethod
    def compile(self, length: int) -> Table | None:
        """The table for a chain of `length` nodes; None leaves the chain to `lax.scan`."""

    def most_slots(self, length: int) -> int:
        """Slots enough for every chain of up to `length` nodes."""
        table = self.compile(length)
        return length if table is None else table.slots + 1


@dataclasses.dataclass(frozen=True)
class _Slots(AbstractSchedule):
    """A schedule that keeps states in slots, at the states' precision or a lower one.

    checkpoint_dtype: of real floating-point leaves in slots, such as `jnp.float32`. Inexact: the reverse
    sweep then starts from rounded states, so gradients carry that rounding; values do not.
    """

    checkpoint_dtype: Any = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self):
        if self.checkpoint_dtype is not None:
            if not jnp.issubdtype(self.checkpoint_dtype, jnp.floating):
                raise TypeError(
                    f"checkpoint_dtype is {self.checkpoint_dtype!r}: give a real floating-point dtype."
                )
            object.__setattr__(self, "checkpoint_dtype", jnp.dtype(self.checkpoint_dtype))

    def compile(self, length: int) -> Table | None:
        """The table, or None for an empty chain."""
        if not length:
            return None
        if self.checkpoint_dtype is None:
            return self._table(length)
        return _rounded(length, self)

    def __repr__(self) -> str:
        own = [
            f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self) if not f.kw_only
        ]
        inexact = [f"checkpoint_dtype={self.checkpoint_dtype}"] if self.checkpoint_dtype else []
        return f"{type(self).__name__}({', '.join(own + inexact)})"

    @abc.abstractmethod
    def _table(self, length: int) -> Table:
        """The table of a chain that is not empty."""


@cached_by_length
def _rounded(length: int, schedule: _Slots) -> Table:
    """The table of a schedule whose slots are of lower precision."""
    exact = schedule._table(length)
    return dataclasses.replace(exact, checkpoint_dtype=schedule.checkpoint_dtype)


@dataclasses.dataclass(frozen=True)
class StoreAll(AbstractSchedule):
    """Keep what every step's pullback reads: `lax.scan` itself. Fastest, memory grows with n."""

    def compile(self, length: int) -> None:
        del length
        return None


@dataclasses.dataclass(frozen=True, repr=False)
class Revolve(_Slots):
    """Keep `slots` states, recompute the others: the fewest steps possible (binomial schedule).

    Reversing n nodes takes `advances(n, slots)` forward steps and n taped ones. Besides the slots,
    the state before the last node is kept, which the value has to pass in any case.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26(1), 2000.
    **Errors**: `ValueError` if `slots < 1`.
    """

    slots: int

    def __post_init__(self):
        super().__post_init__()
        check_slots(self.slots)

    def most_slots(self, length: int) -> int:
        """The slots, and one for the state before the last node."""
        return min(self.slots, length) + 1

    def _table(self, length: int) -> Table:
        return _revolve(length, min(self.slots, length))


@dataclasses.dataclass(frozen=True, repr=False)
class Periodic(_Slots):
    """Keep every `every`-th state; a block between two of them is recomputed once, its states all kept.

    At most 2 n forward steps and ceil(n / every) + every - 1 slots, fewest at every = sqrt(n).

    **Errors**: `TypeError` unless `every` is an int, `ValueError` unless it is at least 1.
    """

    every: int

    def __post_init__(self):
        super().__post_init__()
        check_count("every", self.every, "a block has a node")

    def _table(self, length: int) -> Table:
        return _blocks(length, (self.every, 1))


@dataclasses.dataclass(frozen=True, repr=False)
class Recursive(_Slots):
    """Blocks within blocks, `levels` deep, each cut into about the `levels`-th root of n parts.

    At most levels n forward steps and about levels n^(1 / levels) slots, as with `jax.checkpoint` around
    nested loops. `Revolve` with as many slots takes fewer steps.

    **Errors**: `TypeError` unless `levels` is an int, `ValueError` unless it is at least 1.
    """

    levels: int

    def __post_init__(self):
        super().__post_init__()
        check_count("levels", self.levels, "nodes are one")

    def _table(self, length: int) -> Table:
        return _blocks(length, _equal_sizes(length, self.levels))


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks within blocks, for chains of up to `len(slot)` nodes.

    The state at position p is kept in `slot[p]`; the last node k of a block finds the start of the
    outermost block that ends there at `load_position[k]`. Blocks of one parent have slots of their
    own, which the next parent's use again; the first of them starts where the parent does.
    """

    slots: int
    slot: np.ndarray
    load_position: np.ndarray
    checkpoint_dtype: Any = None

    def __len__(self) -> int:
        return len(self.slot)

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


def blocks_for(length: int, slots: int) -> Blocks:
    """The fewest levels of blocks that `slots` slots hold.

    **Errors**: `ValueError` if there are none: halving needs about log2(length) + 1 slots.
    """
    for levels in range(1, max(2, length.bit_length() + 1)):
        blocks = _levels(length, levels)
        if blocks.slots <= slots:
            return blocks
    raise ValueError(
        f"{slots} slots do not hold a loop of up to {length} steps, whatever its blocks: give at "
        f"least {blocks.slots}, or fewer max_steps."
    )


def two_levels(length: int) -> Blocks:
    """About sqrt(n) blocks of as many nodes."""
    return _levels(length, 2)


@cached_by_length
def _levels(length: int, levels: int) -> Blocks:
    return Blocks.of(length, _equal_sizes(length, levels))


def _equal_sizes(length: int, levels: int) -> tuple[int, ...]:
    """Sizes that cut each block into about the `levels`-th root of n parts."""
    parts = max(2, math.ceil(length ** (1.0 / levels)))
    return tuple(parts**level for level in reversed(range(levels)))


@cached_by_length
def _blocks(length: int, sizes: tuple[int, ...]) -> Table:
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
def _revolve(length: int, slots: int) -> Table:
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
        m = _first_part(size, free)
        rows.append(np.stack([start + size - 1, start + m, slots - free + 1]))
        load[:, start + m - 1] = start, slots - free
        start = np.concatenate([start + m, start])
        size = np.concatenate([size - m, m])
        free = np.concatenate([free - 1, free])
    rows = np.concatenate(rows, axis=1)
    return _table(load, rows[:, np.lexsort(rows[1::-1])], length, slots)


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


def _first_part(size: np.ndarray, free: np.ndarray) -> np.ndarray:
    """How far to advance before the next checkpoint: the greatest m of the optimal ones.

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
