"""What a chain of unknown length keeps on its way: the table that its sweeps follow.

Every state is kept while a slot is free. From then on a new one takes the slot of another. While no
step need be advanced more than twice, the best of these is known in closed form (Stumm & Walther, *New
algorithms for optimal online checkpointing*, SIAM J. Sci. Comput. 32(2), 2010, algorithm I). Beyond that,
the one goes without which the way back from the next position takes fewest steps; and if it takes
fewer still without the new one, the chain goes on and nothing changes.
"""

import dataclasses
import itertools
import math
import operator
from typing import NamedTuple

import numpy as np

from .table import advances, beta, cached_by_length, check_slots

_GRAIN = 4096  # beyond it, positions are looked at in steps of this part of them


@dataclasses.dataclass(frozen=True, eq=False)
class OnlineTable:
    """What a chain of at most `length` nodes, which stops when it likes, keeps in its slots.

    The state at `position[i]` is kept in `slot[i]`, over what that slot held. Wherever the chain stops,
    what is then held, and Revolve with the slots that are free, reach every other state. `betas[s, r]`
    is `beta(s, r)`, or length + 1 if that is less, for all r that Revolve then meets.
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
    def dense(self) -> bool:
        """Whether each state is kept as it is passed; then no step is advanced more than twice."""
        return len(self.position) == self.length

    def held(self, n: int) -> np.ndarray:
        """Return the positions that are held after n steps."""
        held, rows = np.full(self.slots, -1), np.searchsorted(self.position, n)
        np.maximum.at(held, self.slot[:rows], self.position[:rows])
        return np.sort(held[held >= 0])

    def count_advances(self, n: int) -> int:
        """Count the forward steps of a gradient through n steps: those of the value, and those run again."""
        sizes = np.diff(np.append(self.held(n), n)).tolist()
        return n + sum(advances(m, self.slots - i) for i, m in enumerate(sizes) if m > 1)


def loop_advances(n: int, slots: int) -> int:
    """Return the forward steps of the gradient of a `while_loop` that takes n steps and has `slots` slots.

    Those of the value are counted, the n taped steps are not. No algorithm that knows n beforehand
    needs fewer than `advances(n, slots) + 1`. `max_steps` does not matter.

    Args:
        n: The steps that are taken.
        slots: How many states may be kept.

    Returns:
        The number of steps, exactly.

    Raises:
        ValueError: If n is negative or `slots` below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.loop_advances(365, 12)
        994
    """
    check_slots(slots)
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"A loop does not take {n} steps: give n >= 0.")
    longest = 1 << n.bit_length()  # one table for many n
    return online_table(longest, int(slots)).count_advances(n)


def two_sweeps(length: int) -> int:
    """Return the fewest slots with which no step of at most `length` is advanced more than twice."""
    slots = max(1, math.isqrt(2 * length) - 2)
    while _most_twice(slots) < length:
        slots += 1
    return slots


@cached_by_length
def online_table(length: int, slots: int) -> OnlineTable:
    """Return the table of a chain of at most `length` nodes with `slots` slots."""
    slots = min(slots, length)
    rows, betas = _twice(length, slots), np.ones((slots + 1, 1))
    if slots > 1 and _most_twice(slots) < length:
        late, most = _more_often(length, slots)
        rows = np.concatenate([rows, late], axis=1)
        betas = [[min(beta(s, r), length + 1) for r in range(most + 1)] for s in range(slots + 1)]
    position, slot = rows.astype(np.int32)
    return OnlineTable(length, slots, position, slot, np.asarray(betas, np.int32))


def _most_twice(slots: int) -> int:
    """Return how many nodes there may be for none to be advanced more than twice."""
    return beta(slots, 2) - 2


def _twice(length: int, slots: int) -> np.ndarray:
    """Return the rows (position, slot) as long as no step is advanced more than twice.

    The first turn fills the slots. Turn j = 1, 2, ... keeps one state for good, in slot `slots - j`, and
    each of those after it for a while, in the slots from 1 up to that of the next turn, and there the
    last again.
    """
    count = np.array([*range(slots + 1, 2, -1), 1])
    first = np.cumsum(count) - count
    count, first = count[first < length], first[first < length]
    turn, node = np.repeat(np.arange(len(count)), count), np.arange(count.sum())
    part = node - first[turn]
    for_good = np.where(turn > 0, np.maximum(count - 1, 1)[turn], 0)
    rows = np.stack([node, np.where(part > 0, np.minimum(part, count[turn] - 2), for_good)])
    return rows[:, :length]


def _more_often(length: int, slots: int) -> tuple[np.ndarray, int]:
    """Return the rows that follow, and how often the busiest step is run again."""
    sums = BinomialForms(length, slots)
    twice = sums.advances(np.arange(length + 1), np.array(2)).tolist()
    position = np.cumsum([0, *range(slots + 1, 2, -1)])
    slot = np.append(0, np.arange(slots - 1, 0, -1))
    n, rows = int(position[-1]) + 2, []
    choice = _Choice.among(position, sums)
    most = choice.repetition
    while True:
        n, index = choice.next_exchange(n, length, twice)
        if n >= length:
            return np.array(rows, int).reshape(-1, 2).T, most
        rows.append((n, slot[index]))
        position = np.concatenate([position[:index], position[index + 1 :], [n]])
        slot = np.concatenate([slot[:index], slot[index + 1 :], slot[index : index + 1]])
        choice = _Choice.among(position, sums)
        most, n = max(most, choice.repetition), n + _stride(n)


def _stride(n: int) -> int:
    return max(1, n // _GRAIN)


class BinomialForms:
    """The closed forms of many chains at once, of up to `longest` nodes and with 2 … `most` slots each."""

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


_APART = 2**40  # between the keys of one number of slots and of the next


def _until(longest: int, s: int) -> list[int]:
    """Return `beta(s, r)` for r = 0, 1, … up to the first that is no less than `longest`."""
    short = itertools.takewhile(lambda n: n < longest, (beta(s, r) for r in itertools.count()))
    found = list(short)
    return [*found, beta(s, len(found))]


class _Choice(NamedTuple):
    """What it takes to give up a state that is held, for one after the last of them.

    `steps` more on the way back without state `index`, the best of those between the first and the last;
    without the last, those of the `gap` before it and of all since are run together.
    """

    last: int
    start: int
    gap: int
    gap_steps: int
    steps: float
    index: int
    repetition: int

    @classmethod
    def among(cls, position: np.ndarray, sums: BinomialForms) -> "_Choice":
        """Choose among the states at these positions, in as many slots."""
        size, free = np.diff(position), np.arange(len(position), 1, -1)
        steps = sums.advances(size, free)
        joined = sums.advances(size[:-1] + size[1:], free[:-1]) - steps[:-1] - steps[1:]
        saved = steps[1:] - sums.advances(size[1:], free[:-1])  # with the slot that is given up
        more = joined - (saved.sum() - saved.cumsum())
        index = int(more.argmin()) if more.size else -1
        least = int(more[index]) if more.size else math.inf
        repetition = int(sums.repetition(size, free).max())
        last = len(size), int(position[-1]), int(size[-1]), int(steps[-1])
        return cls(*last, least, index + 1, repetition)

    def next_exchange(self, n: int, length: int, twice: list[int]) -> tuple[int, int]:
        """Return the next position that is worth it, from n on, and the index of the state that goes.

        `twice[k]` steps reverse k nodes with two slots, as the nodes since the last state then have.
        """
        while n < length:
            since = n - self.start
            between = self.steps + twice[since]
            last = twice[self.gap + since] - self.gap_steps
            ahead = _stride(n)
            kept_on, anew = ((k * (k - 1)) // 2 for k in (since + ahead, ahead))
            if min(between, last) + anew < kept_on:
                return n, self.index if between <= last else self.last
            n += ahead
        return n, 0
