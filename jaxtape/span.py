"""A view of some consecutive nodes of a tape."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .tape import Tape


class Node(NamedTuple):
    """One operation: `state[position + 1] = step(params, state[position])`."""

    position: int
    step: Callable
    params: Any

    def __call__(self, state):
        """The next state."""
        return self.step(self.params, state)


class Span:
    """The nodes [start, stop) of a tape, in topological order; `reversed(span)` is the order of the adjoint."""

    def __init__(self, tape: "Tape", start: int, stop: int):
        self.tape, self.start, self.stop = tape, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Node]:
        return map(self._node, range(self.start, self.stop))

    def __reversed__(self) -> Iterator[Node]:
        return map(self._node, reversed(range(self.start, self.stop)))

    def __repr__(self) -> str:
        return f"Span([{self.start}, {self.stop}) of {self.tape!r})"

    def replay(self, state):
        """The state after the span, from the state before it."""
        return self.tape[self.start : self.stop](state)

    def cut(self) -> tuple["Tape", "Tape"]:
        """The tape without the span, and the span as a tape of its own."""
        return self.tape.erase(self.start, self.stop), self.tape[self.start : self.stop]

    def _node(self, k: int) -> Node:
        number, start = self.tape._segment_at(k)
        segment = self.tape.segments[number]
        return Node(k, segment.step, segment.node(k - start))
