"""Reverse sweeps of static length: each pullback is paired with a step for a node that is pulled back later.

Revolve's table for two sweeps cuts a chain into blocks whose sizes fall by one. While a block of b nodes is
pulled back, the block before it needs b steps: one for each node. The state after a step goes to the slot that
the pulled-back node has freed. So every node does the same: read a slot, pull back, read a slot, take a step,
write a slot. The loop over the nodes has a known length, and no inner loop.

Schoenmakers, *Explicit optimal binary pebbling for one-way hash chain reversal*, Financial Cryptography 2016,
takes more than one step per node in the same way, with a logarithmic number of slots.
"""

import functools
from typing import NamedTuple

import numpy as np

from .table import cached_by_length


class LockstepRun(NamedTuple):
    """Consecutive nodes whose first sweep keeps some states; the others are recomputed on the way back.

    Attributes:
        keep: For each node, the slot to which the first sweep writes the state before it. A state that is not
            kept goes to the slot of the next kept state, which overwrites it.
        slot: For each node, the slot that holds the state before it when it is pulled back.
        source: For each node, the node whose step is paired with its pullback. The state before that one is in
            `slot[source]`, and the new one goes to the slot that the pulled-back node frees.
        late: The number of nodes at the end that are pulled back without a paired step.
        first: The number of nodes at the start that are pulled back without a paired step.
    """

    keep: np.ndarray
    slot: np.ndarray
    source: np.ndarray
    late: int
    first: int

    def __len__(self) -> int:
        return len(self.keep)

    def count_steps(self) -> int:
        """Count the steps paired with pullbacks."""
        return len(self) - self.late - self.first


class LockstepPlan(NamedTuple):
    """A chain cut into equal blocks and a tail.

    The first sweep keeps the states before the blocks, and in the tail those given by `tail.keep`. The tail is
    pulled back first, then the blocks, the last one first: each is run again and pulled back.

    Attributes:
        starts: The number of blocks. A slot for each holds the state before it.
        block: The nodes of a block.
        tail: The nodes of the tail, which uses the same slots as a block.
    """

    starts: int
    block: LockstepRun
    tail: LockstepRun

    def count_advances(self) -> int:
        """Count the forward steps of the first sweep (the last node apart) and of every recomputation."""
        of_a_block = len(self.block) - 1 + self.block.count_steps()
        first_sweep = self.starts * len(self.block) + len(self.tail) - 1
        return first_sweep + self.tail.count_steps() + self.starts * of_a_block


@cached_by_length
def lockstep_plan(length: int, slots: int, host_slots: int) -> LockstepPlan | None:
    """Return the plan with the fewest blocks for a number of slots; None if three sweeps do not suffice.

    If some slots are in the host's memory, exactly those hold the states before blocks.
    """
    for starts in range(1 if host_slots else 0, (host_slots or slots - 1) + 1):
        free = slots - (host_slots or starts)
        size = -(-(length - _capacity(free)) // max(starts, 1))
        if size <= (_capacity(free) if starts else 0):
            size = max(size, min(starts, 1))
            tail = length - starts * size
            return LockstepPlan(starts, lockstep_run(size, free), lockstep_run(tail, free))
    return None


@functools.lru_cache(maxsize=64)
def lockstep_run(length: int, slots: int) -> LockstepRun:
    """Return the run of `length` nodes, for which two sweeps with these slots must suffice."""
    slot, source, keep = (np.zeros(length, np.int32) for _ in range(3))
    sizes = _falling_sizes(length, slots)
    if len(sizes) < 2:
        slot[:] = np.arange(length)
        return LockstepRun(slot, slot, source, 0, length)
    starts, blocks = [0, *np.cumsum(sizes).tolist()], np.arange(len(sizes))
    keep[:] = np.repeat(blocks + 1, sizes)
    keep[starts[-2] :] += np.arange(sizes[-1]) - 1
    keep[starts[:-1]] = blocks
    slot[starts[:-2]], slot[starts[-2] :] = blocks[:-1], keep[starts[-2] :]
    late = sizes[-1] - (sizes[-2] - 1)
    for j in reversed(range(1, len(sizes))):
        pulled = np.arange(starts[j + 1] - 1, starts[j] - 1, -1)
        needed = sizes[j - 1] - 1
        slot[starts[j - 1] + 1 : starts[j]] = slot[pulled[len(pulled) - needed :]]
        idle = np.arange(len(pulled)) - (len(pulled) - needed)
        source[pulled] = starts[j - 1] + np.maximum(idle, 0)
    return LockstepRun(keep, slot, source, late, sizes[0])


def _capacity(slots: int) -> int:
    """Return the most nodes that two sweeps can reverse: blocks of `slots`, `slots` - 1, ..., 1 nodes."""
    return slots * (slots + 1) // 2


def _falling_sizes(length: int, slots: int) -> list[int]:
    """Return the sizes of the fewest blocks; each but the last is at most one node longer than the next."""
    count = 1
    while count * slots - _capacity(count - 1) < length:
        count += 1
    if count == 1:
        return [length]
    last, number = slots - count + 1, np.arange(count - 1)
    longest = -(-(length - last + _capacity(count - 2)) // len(number))
    over = len(number) * longest - _capacity(count - 2) - (length - last)
    return [*(longest - number - (number < over)).tolist(), last]
