"""Online checkpointing: the table that the sweeps of a chain of unknown length follow.

Every state is kept while a slot is free. After that, a new state replaces another. While no step need be
advanced more than twice, the optimal choice has a closed form (Stumm & Walther, *New algorithms for optimal
online checkpointing*, SIAM J. Sci. Comput. 32(2), 2010, algorithm I). Beyond that, evict the state whose loss
costs the fewest steps on the way back from the next position; if not storing the new state costs fewer still,
store nothing. Beyond a million steps, the last state moves along with the chain, and another is evicted at
longer and longer intervals: the table stays short.
"""

import dataclasses
import functools
import itertools
import math
import operator

import numpy as np

from .table import advances, beta, cached_by_length, check_slots, repetition

_GRAIN = 4096  # beyond it, positions are tried in steps of this fraction
REFRESH = 256  # steps between refreshes of the last state, beyond position `REFRESHED`
REFRESHED = REFRESH * _GRAIN
MOST_STEPS = 2**31 - 1  # a loop counts its steps in 32 bits


@dataclasses.dataclass(frozen=True, eq=False)
class OnlineTable:
    """The states that a chain keeps in its slots if it may stop at any of at most `length` nodes.

    The state before each of the first `dense_rows` nodes is kept in the slot given by `dense_slot`. After
    those, the state at `position[i]` is written to `slot[i]`; beyond `REFRESHED`, the current state is written
    to that slot every `REFRESH` steps until the next row. Wherever the chain stops, the states then held, and
    Revolve with the free slots, reach every other state. `betas[s, r]` is `min(beta(s, r), length)`, for all r
    that Revolve then needs. The number of rows grows with the logarithm of `length`.
    """

    length: int
    slots: int
    position: np.ndarray
    slot: np.ndarray
    betas: np.ndarray
    host_slots: int = 0

    def __len__(self) -> int:
        return self.length

    @property
    def dense_rows(self) -> int:
        """The number of first states that are all kept when they are passed."""
        return min(_most_twice(self.slots), self.length)

    @property
    def dense(self) -> bool:
        """Whether every state is kept when it is passed; then no step is advanced more than twice."""
        return self.dense_rows == self.length

    @property
    def refreshes(self) -> bool:
        """Whether there is a row whose state is refreshed every `REFRESH` steps."""
        return bool(np.any(self.position >= REFRESHED))

    def dense_slot(self, turn, part):
        """Return the slot of the state before node `part` of a turn, arrays of integers.

        Turn j = 0, 1, ... has `slots + 1 - j` nodes, the last one a single node. Turn 0 fills the slots. Each
        later turn keeps its first state permanently, in slot `slots - j`, and each later state temporarily, in
        the slots from 1 up to that of the next turn, to which the last state goes again.
        """
        flag = lambda holds: holds.astype(part.dtype)
        last = self.slots - 1 - turn
        among = part - flag(part > last)
        return flag(part > 0) * among + flag((part == 0) & (turn > 0)) * (last + 1)

    def held(self, n: int) -> np.ndarray:
        """Return the positions that are held after n steps."""
        held, kept = np.full(self.slots, -1), min(n, self.dense_rows)
        turns = np.arange(self.slots)
        first = turns * (self.slots + 1) - turns * (turns - 1) // 2
        first = first[first < kept]
        # of the turns before the last two, only the first states remain
        recent = np.arange(first[-2:].min(initial=kept), kept)
        turn = np.searchsorted(first, recent, side="right") - 1
        starts = turns[: len(first)]
        held[self.dense_slot(starts, 0 * starts)] = first
        np.maximum.at(held, self.dense_slot(turn, recent - first[turn]), recent)
        late = self.position[: np.searchsorted(self.position, n)].astype(np.int64)
        steps = np.append(late[1:], n)[: len(late)] - 1 - late
        late += np.where(late < REFRESHED, 0, _passed(steps))
        np.maximum.at(held, self.slot[: len(late)], late)
        return np.sort(held[held >= 0])

    def count_advances(self, n: int) -> int:
        """Count the forward steps of a gradient through n steps: those of the value and the repeated ones."""
        sizes = np.diff(np.append(self.held(n), n)).tolist()
        return n + sum(advances(m, self.slots - i) for i, m in enumerate(sizes) if m > 1)


def loop_advances(n: int, slots: int) -> int:
    """Return the forward steps of the gradient of a `while_loop` that takes n steps and has `slots` slots.

    The result counts the steps of the value, but not the n taped steps. It is n if no pullback reads a state,
    because no step is run again. Even an algorithm that knows n beforehand needs at least
    `advances(n, slots) + 1`. `max_steps` does not matter.

    Args:
        n: The number of steps that the loop takes.
        slots: The number of states that may be kept.

    Returns:
        The number of steps, exactly.

    Raises:
        ValueError: If n is negative or above 2^31 - 1, or `slots` below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.loop_advances(365, 12)
        994
    """
    check_slots(slots)
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"A loop does not take {n} steps: give n >= 0.")
    check_steps("n", n)
    longest = min(1 << n.bit_length(), MOST_STEPS)  # many n share a table
    return online_table(longest, int(slots)).count_advances(n)


def two_sweeps(length: int) -> int:
    """Return the fewest slots with which none of at most `length` steps is advanced more than twice."""
    slots = max(1, math.isqrt(2 * length) - 2)
    while _most_twice(slots) < length:
        slots += 1
    return slots


@cached_by_length
def online_table(length: int, slots: int) -> OnlineTable:
    """Return the table of a chain of at most `length` nodes, with `slots` slots."""
    slots = min(slots, length)
    rows, betas = np.zeros((2, 0)), np.ones((slots + 1, 1))
    if slots > 1 and _most_twice(slots) < length:
        rows, most = _more_often(length, slots)
        betas = [[min(beta(s, r), length) for r in range(most + 1)] for s in range(slots + 1)]
    position, slot = rows.astype(np.int32)
    return OnlineTable(length, slots, position, slot, np.asarray(betas, np.int32))


@cached_by_length
def revolve_sizes(length: int, slots: int) -> np.ndarray:
    """Return `min(beta(s, r), length)` for the s > 1 and the r of at most `length` nodes."""
    most = repetition(length, 2)
    sizes = [[min(beta(s, r), length) for r in range(most + 1)] for s in range(slots + 1)]
    return np.asarray(sizes, np.int32)


def check_steps(name: str, steps: int) -> None:
    """Check that a loop can count its steps.

    Raises:
        ValueError: If the count needs more than 32 bits.
    """
    if steps > MOST_STEPS:
        raise ValueError(
            f"{name} is {steps:,}, and a loop counts its steps in 32 bits: give at most {MOST_STEPS:,}."
        )


def _most_twice(slots: int) -> int:
    """Return the maximum number of nodes with no step advanced more than twice."""
    return beta(slots, 2) - 2


def _more_often(length: int, slots: int) -> tuple[np.ndarray, int]:
    """Return the rows after the dense ones, and how often the busiest step is run again."""
    held = _Held.at_first(slots, BinomialForms(length, slots))
    end = min(length, REFRESHED)
    n = int(held.position[-1]) + 2
    while True:
        n, index = held.next_exchange(n, end)
        if n >= end:
            break
        held = held.exchanged(index, n)
        n += _stride(n)
    if length <= REFRESHED:
        return np.array(held.rows, int).reshape(-1, 2).T, held.most
    index, steps, *_ = held.costs
    between = steps < held.last_instead(REFRESHED - held.start)
    held = held.exchanged(index if between else len(held.position) - 1, REFRESHED)
    return _refreshed(held, length)


def _refreshed(held: "_Held", length: int) -> tuple[np.ndarray, int]:
    """Continue from position `REFRESHED`, with the last state refreshed every `REFRESH` steps.

    Few nodes then follow the last state, so exchanges are considered only at long intervals.
    """
    n = REFRESHED + _stride(REFRESHED)
    while n < length:
        held = held.refreshed(n)
        (index, steps, *_), reach = held.costs, n + _stride(n) - held.start
        if steps + _with_two_slots(reach) < held.last_instead(reach):
            held = held.exchanged(index, n)
        n += _stride(n)
    most = held.refreshed(length).most
    return np.array(held.rows, int).reshape(-1, 2).T, most


def _stride(n: int) -> int:
    return max(1, n // _GRAIN)


def _passed(steps):
    """Return the distance that the last state has moved after this number of steps."""
    return steps - steps % REFRESH


def _with_two_slots(n: int) -> int:
    """Return `advances(n, 2)` for n >= 1 nodes, in closed form."""
    r = (math.isqrt(8 * n) - 1) // 2
    r += (r + 1) * (r + 2) < 2 * n
    return r * n - r * (r + 1) * (r + 2) // 6


class BinomialForms:
    """Closed forms for many chains at once, of up to `longest` nodes and with 2 … `most` slots each."""

    def __init__(self, longest: int, most: int):
        rows = [_until(longest, s) for s in range(2, most + 1)]
        self._first = np.cumsum([0, 0, 0, *map(len, rows)])
        self._keys = np.concatenate([s * _APART + np.array(row) for s, row in enumerate(rows, 2)])
        self._less = np.array(
            [beta(s + 1, r - 1) for s, row in enumerate(rows, 2) for r in range(len(row))]
        )

    def repetition(self, size: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return `repetition(n, s)` of each chain."""
        return np.searchsorted(self._keys, slots * _APART + size) - self._first[slots]

    def advances(self, size: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return `advances(n, s)` of each chain."""
        r = self.repetition(size, slots)
        return r * size - self._less[self._first[slots] + r]


_APART = 2**40  # between the keys of consecutive numbers of slots


def _until(longest: int, s: int) -> list[int]:
    """Return `beta(s, r)` for r = 0, 1, … up to the first that is at least `longest`."""
    short = itertools.takewhile(lambda n: n < longest, (beta(s, r) for r in itertools.count()))
    found = list(short)
    return [*found, beta(s, len(found))]


@dataclasses.dataclass(frozen=True)
class _Held:
    """The held states, by position, and the rows that led to them."""

    position: np.ndarray
    slot: np.ndarray
    rows: list
    sums: BinomialForms
    most_before: int = 0

    @classmethod
    def at_first(cls, slots: int, sums: BinomialForms) -> "_Held":
        """Return the states held at the last position up to which no step need be advanced more than twice."""
        position = np.cumsum([0, *range(slots + 1, 2, -1)])
        return cls(position, np.append(0, np.arange(slots - 1, 0, -1)), [], sums)

    @functools.cached_property
    def costs(self) -> tuple[int, int | float, int, int]:
        """Find the cheapest state to evict between the first and the last, and its cost.

        Returns its index, the extra steps of the way back without it, the steps of the nodes before the last
        state, and the maximum repetitions of a step.
        """
        size, free = np.diff(self.position), np.arange(len(self.position), 1, -1)
        steps = self.sums.advances(size, free)
        joined = self.sums.advances(size[:-1] + size[1:], free[:-1]) - steps[:-1] - steps[1:]
        saved = steps[1:] - self.sums.advances(size[1:], free[:-1])  # with the freed slot
        more = joined - (saved.sum() - saved.cumsum())
        index = int(more.argmin()) if more.size else -1
        least = int(more[index]) if more.size else math.inf
        return index + 1, least, int(steps[-1]), int(self.sums.repetition(size, free).max())

    @property
    def start(self) -> int:
        """The last position."""
        return int(self.position[-1])

    @property
    def most(self) -> int:
        """The maximum repetitions of a step so far."""
        return max(self.most_before, self.costs[-1])

    def last_instead(self, since: int) -> int:
        """Return the extra steps of moving the last state `since` nodes later, with two slots.

        The nodes before it and all nodes since are then run together.
        """
        gap = self.start - int(self.position[-2])
        return _with_two_slots(gap + since) - self.costs[2]

    def next_exchange(self, n: int, end: int) -> tuple[int, int]:
        """Return the next position in [n, end) worth an exchange, and the state to evict.

        The nodes since the last state then have two slots.
        """
        index, steps, *_ = self.costs
        while n < end:
            since = n - self.start
            between, last = steps + _with_two_slots(since), self.last_instead(since)
            ahead = _stride(n)
            kept_on, restarted = ((k * (k - 1)) // 2 for k in (since + ahead, ahead))
            if min(between, last) + restarted < kept_on:
                return n, index if between <= last else len(self.position) - 1
            n += ahead
        return n, 0

    def exchanged(self, index: int, n: int) -> "_Held":
        """Replace state `index` by the one at position n."""
        slot = self.slot[index]
        self.rows.append((n, slot))
        position = np.concatenate([self.position[:index], self.position[index + 1 :], [n]])
        return self._with(position, np.append(np.delete(self.slot, index), slot))

    def refreshed(self, n: int) -> "_Held":
        """Return the states held just before position n."""
        position = self.position.copy()
        position[-1] += _passed(n - 1 - position[-1])
        return self._with(position, self.slot)

    def _with(self, position: np.ndarray, slot: np.ndarray) -> "_Held":
        return dataclasses.replace(self, position=position, slot=slot, most_before=self.most)
