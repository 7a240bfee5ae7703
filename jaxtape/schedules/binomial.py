"""Closed forms of the binomial schedule, and the counts that schedules are given."""

import itertools
import math

import numpy as np


def beta(s: int, r: int) -> int:
    """Longest chain that `s` slots reverse with no step advanced more than `r` times.

    `beta(s, r) = C(s + r, s)`, and 0 where `s` or `r` is negative
    (Griewank & Walther 2000, ACM TOMS 26(1), Proposition 1).
    """
    return math.comb(s + r, s) if s >= 0 and r >= 0 else 0


def repetition(n: int, s: int) -> int:
    """The smallest `r` with `n <= beta(s, r)`: how often the busiest step is advanced."""
    below, r = -1, 1
    while beta(s, r) < n:
        below, r = r, 2 * r
    while r - below > 1:
        middle = (below + r) // 2
        below, r = (middle, r) if beta(s, middle) < n else (below, middle)
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


def first_part(size: np.ndarray, free: np.ndarray) -> np.ndarray:
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


class Binomial:
    """The closed forms of many chains at once, of up to `longest` nodes and with 2 … `most` slots each."""

    def __init__(self, longest: int, most: int):
        rows = [_until(longest, s) for s in range(2, most + 1)]
        self._first = np.cumsum([0, 0, 0, *map(len, rows)])
        self._keys = np.concatenate([s * _APART + np.array(row) for s, row in enumerate(rows, 2)])
        self._less = np.array(
            [beta(s + 1, r - 1) for s, row in enumerate(rows, 2) for r in range(len(row))]
        )

    def repetition(self, size: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """`repetition(n, s)` of each chain."""
        return np.searchsorted(self._keys, slots * _APART + size) - self._first[slots]

    def advances(self, size: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """`advances(n, s)` of each chain."""
        r = self.repetition(size, slots)
        return r * size - self._less[self._first[slots] + r]


_APART = 2**40  # between the keys of one number of slots and of the next


def _until(longest: int, s: int) -> list[int]:
    """`beta(s, r)` for r = 0, 1, … up to the first that is no less than `longest`."""
    short = itertools.takewhile(lambda n: n < longest, (beta(s, r) for r in itertools.count()))
    found = list(short)
    return [*found, beta(s, len(found))]
