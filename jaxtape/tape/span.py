"""A view of some consecutive nodes of a tape."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple

import jax
import numpy as np

from .node_list import TapeT
from .segment import Segment

_GATHERED = 32  # nodes at a time


class Node(NamedTuple):
    """One operation: `state[position + 1] = step(params, state[position])`."""

    position: int
    step: Callable
    params: Any

    def __call__(self, state):
        """Return the next state."""
        return self.step(self.params, state)


class Span(Generic[TapeT]):
    """The nodes [start, stop) of a tape, in topological order; `reversed(span)` is the order of the adjoint."""

    def __init__(self, tape: TapeT, start: int, stop: int):
        self.tape, self.start, self.stop = tape, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Node]:
        return self._nodes(1)

    def __reversed__(self) -> Iterator[Node]:
        return self._nodes(-1)

    def __repr__(self) -> str:
        return f"Span([{self.start}, {self.stop}) of {self.tape!r})"

    def replay(self, state):
        """Return the state after the span, from the state before it."""
        return self.tape[self.start : self.stop](state)

    def cut(self) -> tuple[TapeT, TapeT]:
        """Return the tape without the span, and the span as a tape of its own."""
        return self.tape.erase(self.start, self.stop), self.tape[self.start : self.stop]

    def _nodes(self, direction: int) -> Iterator[Node]:
        """Yield one node after the other, in direction 1 or -1."""
        pairs = zip(self.tape.bounds(), self.tape.segments, strict=True)
        for (start, stop), segment in list(pairs)[::direction]:
            positions = range(max(start, self.start), min(stop, self.stop))
            yield from _nodes_of(segment, start, positions[::direction])


def _nodes_of(segment: Segment, start: int, positions: range) -> Iterator[Node]:
    """Yield the nodes of a segment at some positions, their params gathered a few nodes at a time."""
    if not positions:
        return
    step, places = segment.step, segment.places[np.asarray(positions) - start]
    count = min(_GATHERED, 1 << (len(positions) - 1).bit_length())
    for first in range(0, len(positions), count):
        few = places[first : first + count]
        few = np.pad(few, (0, count - len(few)), "edge")  # one shape, or each would be compiled
        leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf, at=few: leaf[at], segment.params))
        for position, *own in zip(positions[first : first + count], *leaves, strict=False):
            yield Node(position, step, jax.tree.unflatten(tree, own))
