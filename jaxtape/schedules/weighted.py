"""Tables for chains with nodes of unequal cost, cut by dynamic programming."""

import dataclasses

import numpy as np

from .table import (
    ScheduleTable,
    advances,
    cached_by_length,
    first_part,
    revolve_table,
    table_of_cuts,
)

_MOST_BLOCKS = 512  # cuts are chosen among their borders
_BESIDE = 4  # cuts tried on either side of the expected best one


@cached_by_length
def weighted_table(length: int, slots: int, costs: tuple[float, ...]) -> ScheduleTable:
    """Return the table with the least forward work, if node k costs `costs[k]`.

    A segment [i, j) with s slots, one of which holds its start, takes

        t(i, j, s) = min over m of  cost of [i, m) + t(m, j, s - 1) + t(i, m, s),

    as for equal costs. Beyond 512 nodes, m is chosen among 512 borders, and the blocks between two of them are
    cut as if all their nodes cost the same; `revolve_table` is returned if it takes less work.
    """
    block = -(-length // _MOST_BLOCKS)
    cuts = _best_cuts(np.asarray(costs), block, min(slots, length))

    def cut(start: np.ndarray, size: np.ndarray, free: np.ndarray) -> np.ndarray:
        m, long = first_part(size, free), size > block
        count = -(-size[long] // block)
        m[long] = cuts[free[long], count, start[long] // block] * block
        return m

    found, alike = table_of_cuts(length, slots, cut), revolve_table(length, slots)
    best = min(found, alike, key=lambda table: table.count_work(costs))
    return dataclasses.replace(best, is_weighted=True)


def _best_cuts(costs: np.ndarray, block: int, slots: int) -> np.ndarray:
    """Return the number of blocks to advance first, by slots, the number of blocks, and the first block."""
    border = np.append(np.arange(0, len(costs), block), len(costs))
    n, before = len(border) - 1, np.append(0.0, np.cumsum(costs))
    sums = np.append(0.0, np.cumsum(before))
    work, cuts = np.full((slots + 1, n + 1, n + 1), np.inf), np.ones((slots + 1, n + 1, n + 1), int)
    for count in range(1, n + 1):  # with one slot, every node is reached from the first state
        start, stop = border[: n + 1 - count], border[count:]
        again = sums[stop] - sums[start + 1] - (stop - 1 - start) * before[start]
        work[1, count, : n + 1 - count] = again
    for s in range(2, slots + 1):
        size = np.diff(border)
        alike = np.array([advances(int(k), s) for k in size]) / size
        work[s, 1, :n] = alike * np.diff(before[border])
        for count in range(2, n + 1):
            i = np.arange(n + 1 - count)
            # the best cut lies between those of the segments without the last block and without the first
            low = np.maximum(cuts[s, count - 1, i] - _BESIDE, 1)
            high = np.minimum(cuts[s, count - 1, i + 1] + 1 + _BESIDE, count - 1)
            m = np.minimum(low + np.arange(max(np.max(high - low), 0) + 1)[:, None], count - 1)
            forward = before[border[i + m]] - before[border[i]]
            found = forward + work[s - 1, count - m, i + m] + work[s, m, i]
            best = found.argmin(0)
            cuts[s, count, i], work[s, count, i] = m[best, i], found[best, i]
    return cuts
