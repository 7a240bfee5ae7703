"""Recordings, which hold a tape that was run and its kept states, and views of consecutive nodes."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

from ..schedules.schedule import AbstractSchedule, MultiStage, Revolve
from ..sweeps.differentiable import UNDEFINED, pull_leaves
from ..sweeps.leaves import inexact
from .edits import Edits
from .segment import Segment
from .wengert import wengert_list

TapeT = TypeVar("TapeT", bound=Any)  # a `Tape`, which imports this file
Hook = Callable[[int, Any], None]

_GATHERED = 32  # nodes gathered at a time
_LEAST_CHUNK = 32  # nodes; each chunk between kept states takes one run of a program


class Diagnosis(NamedTuple):
    """The first node, at `position`, to make a non-finite `what`, or a zero gradient.

    `what` is "state", "cotangent" (the first on the way back) or "zero cotangent" (the nodes before `position`
    have no gradient). `leaf` is the path of the leaf in the state.
    """

    position: int
    what: str
    leaf: str


class Recording(Generic[TapeT]):
    """The result of `tape.record(x)`: the tape, the first state, and the states at some positions.

    The positions are those that the schedule's first sweep keeps, the marks, the starts of segments, and the
    end. Edits return another recording, and rerun only the nodes after the last kept state that is still valid.
    Every valid state is kept, up to twice the number that the edited tape asks for; beyond that, the most
    closely spaced are dropped first. A recording exists outside of `jax.jit`; its runs are compiled.

    Attributes:
        tape: The tape that was run.

    Examples:
        >>> import jax.numpy as jnp, jaxtape as jt
        >>> tape = jt.Tape().append(lambda params, state: params * state, jnp.array([2.0, 3.0, 4.0]))
        >>> recording = tape.record(1.0)
        >>> float(recording.value), float(recording.truncate(2).value)
        (24.0, 6.0)
    """

    def __init__(self, tape: TapeT, kept: dict[int, Any]):
        """Run from the last kept state; `kept` must hold position 0 and the segment starts up to there."""
        wanted, start = tape.kept_positions() | {0, len(tape)}, max(kept)
        states, state = dict(kept), kept[start]
        for stop in sorted(p for p in wanted if p > start):
            state = states[stop] = run_chunk(Chunk.of(tape, start, stop), state)
            start = stop
        self.tape, self._kept = tape, _thinned(states, wanted)

    @property
    def value(self):
        """The state after the last node."""
        return self._kept[len(self.tape)]

    @property
    def kept(self) -> tuple[int, ...]:
        """The positions of the kept states."""
        return tuple(sorted(self._kept))

    def state(self, k: int):
        """Return the state at position k, computed from the nearest kept one at or before it."""
        k = self.tape.position(k)
        start = max(p for p in self._kept if p <= k)
        state = self._kept[start]
        return state if start == k else run_chunk(Chunk.of(self.tape, start, k), state)

    def pullback(self, y_bar: Any, stop: int = 0, hook: Hook | None = None) -> tuple[Any, TapeT]:
        """Pull cotangents back from the value to position `stop`.

        Args:
            y_bar: The cotangent of the value; None for a leaf without one.
            stop: The position to go back to.
            hook: A function `hook(position, state_bar)` called with the cotangent of every state on the way,
                the value's first; with a hook, the sweep goes node by node.

        Returns:
            The pair (state_bar at `stop`, tape_bar); the latter has the form of `eqx.filter_grad`, and is zero
            for the nodes before `stop`. None is the cotangent of a leaf that cannot be differentiated, because
            it passes through an operation without a derivative (`lax.while_loop`, `jax.pure_callback`).
        """
        stop = self.tape.position(stop)
        state_bar, bars = jax.tree.map(jnp.asarray, y_bar), _zero_bars(self.tape)
        chunks = self._chunks_back(stop)
        for i, j, state in chunks if hook is None else self._nodes_back(chunks):
            if hook is not None:
                hook(j, _defined(state_bar))
            number, _ = self.tape.segment_at(i)
            given = Chunk.of(self.tape, i, j), state, state_bar
            bars[number], state_bar = pull_chunk(given, bars[number])
        state_bar = _defined(state_bar)
        if hook is not None:
            hook(stop, state_bar)
        return state_bar, _tape_bar(self.tape, bars)

    def append(self, step: Callable, params: Any) -> "Recording[TapeT]":
        """Return the recording with more nodes; only those are run."""
        return Recording(self.tape.append(step, params), self._kept)

    def erase(self, i: int, j: int) -> "Recording[TapeT]":
        """Return the recording without the nodes [i, j); states up to position i stay valid."""
        return self._edited(self.tape.erase(i, j), i, j)

    def truncate(self, k: int) -> "Recording[TapeT]":
        """Return the recording of the nodes before position k."""
        return self.erase(k, len(self.tape))

    def drop(self, n: int) -> "Recording[TapeT]":
        """Return the recording without the n oldest nodes, starting from the state after them.

        Later states do not change.
        """
        tape = self.tape.drop(n)
        later = {p - n: state for p, state in self._kept.items() if p > n}
        return Recording(tape, {0: self.state(n), **later})

    def replace(self, i: int, j: int, params: Any) -> "Recording[TapeT]":
        """Return the recording with other params for the nodes [i, j); states up to position i stay valid."""
        return self._edited(self.tape.replace(i, j, params), i, j)

    def diagnose(self, y_bar: Any = None) -> Diagnosis | None:
        """Find the first node that makes a non-finite value, or stops the gradient.

        Args:
            y_bar: The cotangent of the value. If it is given and all states are finite, find the first node on
                the way back with a non-finite cotangent or, failing that, the first whose cotangent is zero in
                all leaves (a `detach`, or a payoff that does not depend on the state).

        Returns:
            The diagnosis, or None.

        Raises:
            ValueError: If the first state is not finite.
        """
        state = self._kept[0]
        if leaves := _not_finite(state):
            raise ValueError(
                f"The first state is not finite in {leaves[0]}, before any node: give finite "
                f"values."
            )
        for k in range(len(self.tape)):
            state = run_chunk(Chunk.of(self.tape, k, k + 1), state)
            if leaves := _not_finite(state):
                return Diagnosis(k, "state", leaves[0])
        found: list[Diagnosis] = []
        zeros: list[Diagnosis] = []

        def look(position, state_bar):
            if leaves := _not_finite(state_bar):
                found.append(Diagnosis(position, "cotangent", leaves[0]))
            if not any(map(np.any, jax.tree.leaves(state_bar))):
                zeros.append(Diagnosis(position, "zero cotangent", "state"))

        if y_bar is not None:
            self.pullback(y_bar, hook=look)
        return next(iter(found + zeros), None)

    def table(self, y_bar: Any = None) -> str:
        """Print the nodes as a Wengert list, with values and adjoints.

        A line shows a position, the state there, its cotangent if `y_bar` is given, the operation that reads
        the state, and the bytes that the pullback of this node reads. An array is shown by its shape and
        largest absolute entry, a long tape by both ends.
        """
        return wengert_list(self, y_bar)

    def __repr__(self) -> str:
        return f"Recording({self.tape!r}, {len(self._kept)} states kept)"

    def _chunks_back(self, stop: int) -> Iterator[tuple[int, int, Any]]:
        """Yield (start, end, state at start) of the chunks between kept states, the last first, to `stop`."""
        end, borders = len(self.tape), {start for start, _ in self.tape.bounds()}
        for start in sorted((p for p in self._kept if stop < p < end), reverse=True):
            if end - start >= _LEAST_CHUNK or start in borders:
                yield start, end, self._kept[start]
                end = start
        if stop < end:
            yield stop, end, self.state(stop)

    def _nodes_back(self, chunks) -> Iterator[tuple[int, int, Any]]:
        """Cut the chunks into single nodes, the last first."""
        for start, end, state in chunks:
            states = [state]
            for k in range(start, end - 1):
                states.append(run_chunk(Chunk.of(self.tape, k, k + 1), states[-1]))
            for k in reversed(range(start, end)):
                yield k, k + 1, states.pop()

    def _edited(self, tape: TapeT, i: int, j: int) -> "Recording[TapeT]":
        """Return the recording of a tape that differs from this one from node i, or the same if i is j."""
        i, j = self.tape.position(i), self.tape.position(j)
        right = {p: state for p, state in self._kept.items() if p <= i or i == j}
        return Recording(tape, right)


def _thinned(states: dict[int, Any], wanted: set[int]) -> dict[int, Any]:
    """Keep at most twice the number of wanted states; drop the most closely spaced of the others first."""
    positions, most = sorted(states), 2 * len(wanted)
    while len(positions) > most:
        gaps = {k: b - a for a, k, b in zip(positions, positions[1:], positions[2:], strict=False)}
        positions.remove(min(gaps.keys() - wanted, key=lambda k: (gaps[k], k)))
    return {k: states[k] for k in positions}


def _zero_bars(tape: Any) -> list[tuple]:
    """Return zero cotangents of the params of each segment and of its shared values."""
    inexact = eqx.filter(tape, eqx.is_inexact_array)
    zero = jax.tree.map(jnp.zeros_like, inexact)
    return [(segment.params, segment.shared) for segment in zero.segments]


def _tape_bar(tape: TapeT, bars: list[tuple]) -> TapeT:
    """Return the tape with cotangents in place of params and shared values, and None for the rest."""
    segments = [
        dataclasses.replace(segment, params=params, shared=shared)
        for segment, (params, shared) in zip(
            eqx.filter(tape.segments, False), _defined(bars), strict=True
        )
    ]
    return dataclasses.replace(tape, segments=tuple(segments))


def _not_finite(state) -> list[str]:
    """Return the paths of the leaves with a non-finite entry."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(state, eqx.is_inexact_array))
    return [f"state{keystr(path)}" for path, leaf in leaves if not np.all(np.isfinite(leaf))]


class Chunk(eqx.Module):
    """The nodes [i, j) of a tape, all of one segment.

    Their params are gathered into a capacity that is the next power of two. So a few programs serve every chunk
    of a tape, and each holds only the params, the cotangents and the states of its own nodes, whatever the
    capacity of the segment.
    """

    segment: Segment
    places: np.ndarray
    edits: Edits

    @classmethod
    def of(cls, tape: Any, i: int, j: int) -> "Chunk":
        """Take the nodes [i, j) of one segment, i < j."""
        number, start = tape.segment_at(i)
        segment, count = tape.segments[number], j - i
        least = min(segment.capacity, 2)  # only a segment with one place may be a bridge
        capacity = 1 << (max(count, least) - 1).bit_length()
        schedule = _schedule_of_chunk(segment, capacity)
        places = np.pad(segment.places[i - start : j - start], (0, capacity - count), "edge")
        whole = Segment(segment.params, segment.shared, segment.static, schedule)
        return cls(whole, places, Edits.first(count, capacity, schedule))

    @property
    def nodes(self) -> Segment:
        """The nodes as a segment."""
        params = jax.tree.map(lambda leaf: leaf[self.places], self.segment.params)
        return dataclasses.replace(self.segment, params=params, edits=self.edits)


@eqx.filter_jit
def run_chunk(chunk: Chunk, state):
    """Return the state after the chunk."""
    return chunk.nodes(state)


@functools.partial(eqx.filter_jit, donate="all-except-first")
def pull_chunk(given: tuple, bars: tuple) -> tuple[tuple, Any]:
    """Add the cotangents of a chunk to the segment's in place; return them and its first state's cotangent.

    `given` is (chunk, the state before it, the cotangent of the state after it); `bars` are the cotangents of
    the segment's params and shared values, whose buffers are donated.
    """
    chunk, state, state_bar = given
    varying, still = eqx.partition((chunk.nodes, state), eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(varying)

    def run(*leaves):
        nodes, state = eqx.combine(jax.tree.unflatten(tree, leaves), still)
        return list(filter(eqx.is_inexact_array, jax.tree.leaves(nodes(state))))

    after = eqx.filter_eval_shape(lambda: chunk.nodes(state))
    asked = []
    jax.tree.map(
        lambda leaf, bar: asked.append(bar) if inexact([leaf])[0] else None, after, state_bar
    )
    nodes_bar, state_bar = jax.tree.unflatten(tree, pull_leaves(run, leaves, asked))
    params_bar, shared_bar = bars
    scatter = lambda bar, new: bar.at[chunk.places].add(new)
    params_bar = _added(scatter, params_bar, nodes_bar.params)
    return (params_bar, _added(jnp.add, shared_bar, nodes_bar.shared)), state_bar


def _added(add: Callable, bars, more):
    """Return the sums of cotangents; `UNDEFINED` plus anything is `UNDEFINED`."""

    def leaf(bar, new):
        if bar is UNDEFINED or new is UNDEFINED:
            return UNDEFINED
        return bar if new is None else add(bar, new)

    return jax.tree.map(leaf, bars, more, is_leaf=_is_undefined)


def _is_undefined(bar) -> bool:
    return bar is UNDEFINED


def _defined(bars):
    """Return cotangents with None for leaves that cannot be differentiated."""
    return jax.tree.map(lambda bar: None if bar is UNDEFINED else bar, bars, is_leaf=_is_undefined)


def _schedule_of_chunk(segment: Segment, capacity: int) -> AbstractSchedule:
    """Return the schedule with the fewest steps in the segment's slots; a chunk needs at most one per node."""
    dtype = segment.schedule.checkpoint_dtype
    slots = max(min(segment.slots, capacity) - 1, 1)  # the last node has its own
    device = max(segment.slots - segment.executor.table.host_slots - 1, 1)
    if slots <= device:
        return Revolve(slots, checkpoint_dtype=dtype)
    return MultiStage(device, slots - device, checkpoint_dtype=dtype)


class Node(NamedTuple):
    """One operation: `state[position + 1] = step(params, state[position])`."""

    position: int
    step: Callable
    params: Any

    def __call__(self, state):
        """Return the next state."""
        return self.step(self.params, state)


class Span(Generic[TapeT]):
    """The nodes [start, stop) of a tape, in topological order; `reversed(span)` iterates in adjoint order."""

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
        """Return the tape without the span, and the span as a separate tape."""
        return self.tape.erase(self.start, self.stop), self.tape[self.start : self.stop]

    def _nodes(self, direction: int) -> Iterator[Node]:
        """Yield the nodes in direction 1 or -1."""
        pairs = zip(self.tape.bounds(), self.tape.segments, strict=True)
        for (start, stop), segment in list(pairs)[::direction]:
            positions = range(max(start, self.start), min(stop, self.stop))
            yield from _nodes_of(segment, start, positions[::direction])


def _nodes_of(segment: Segment, start: int, positions: range) -> Iterator[Node]:
    """Yield the nodes of a segment at some positions; gather their params a few nodes at a time."""
    if not positions:
        return
    step, places = segment.step, segment.places[np.asarray(positions) - start]
    count = min(_GATHERED, 1 << (len(positions) - 1).bit_length())
    for first in range(0, len(positions), count):
        few = places[first : first + count]
        few = np.pad(few, (0, count - len(few)), "edge")  # one shape, one program
        leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf, at=few: leaf[at], segment.params))
        for position, *own in zip(positions[first : first + count], *leaves, strict=False):
            yield Node(position, step, jax.tree.unflatten(tree, own))
