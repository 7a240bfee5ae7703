"""The tape: a chain of operations as an immutable value."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..schedules.schedule import AbstractSchedule, StoreAll
from .budget import divide_budget, measure_segments, resolve_budgets
from .edits import Edits
from .recording import Recording, Span
from .segment import Segment, operation_name

_ENDS = 10  # lines of a table at either end of a long tape


class Tape(eqx.Module):
    """A strict unary chain, `state[k+1] = step(params[k], state[k])`, as an immutable pytree.

    A node is one operation, a segment a run of nodes that share `step` and the structure of `params`. The
    leaves of a tape are the segments' stacked params and the arrays inside their steps. The latter are shared
    by the segment's nodes, and receive the sum of their cotangents.

    Edits (`append`, `drop`, `erase`, `truncate`, `split`, slicing, `mark`) return another tape without moving
    params: they change which places are live, and in what order. A program that takes the tape as an argument
    is compiled once for all edits within its capacity, which doubles when an `append` needs more. An edited
    tape has integer leaves: differentiate it by `eqx.filter_grad`. Positions count the nodes before them, 0 …
    len; negative ones count from the end, as in a list.

    Attributes:
        segments: The nodes, in runs.
        schedule: The schedule of segments appended later.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxtape as jt
        >>> tape = jt.Tape().append(lambda params, state: params * state, jnp.array([2.0, 3.0, 4.0]))
        >>> tape_bar = jax.grad(lambda tape: tape(1.0))(tape)
        >>> [float(bar) for bar in tape_bar.segments[0].params]
        [12.0, 8.0, 6.0]
    """

    segments: tuple[Segment, ...] = ()
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    def __call__(self, x):
        """Return the state after the last node, from state `x` before the first.

        A step that changes the structure, shape or dtype of the state raises `TypeError`.
        """
        x = jax.tree.map(jnp.asarray, x)
        if any(segment.edits is not None for segment in self.segments):
            return _run(_divided(self, x), x)  # here its nodes can be counted
        return _run_divided(self, x)

    def append(self, step: Callable, params: Any) -> "Tape":
        """Return this tape with n more nodes.

        The last segment grows if its step is this one and its params have this structure. `TypeError` is raised
        if `step` is not callable with two arguments, and `ValueError` if the leaves of `params` do not share a
        leading axis.

        Args:
            step: A function `(params, state) -> state`, or a callable pytree such as an `eqx.Module`; it keeps
                the structure, shapes and dtypes of the state.
            params: A pytree whose leaves have leading axis n, one entry per node.
        """
        new, segments = Segment.of(step, params, self.schedule), self.segments
        if segments and segments[-1].agrees(new):
            segments, new = segments[:-1], segments[-1].grow(new)
        return self._of((*filter(len, segments), new))

    def drop(self, n: int) -> "Tape":
        """Return this tape without its n oldest nodes.

        Raises:
            IndexError: If there are not n nodes.
        """
        if n < 0:
            raise IndexError(f"{n} nodes cannot be dropped: give 0 … {len(self)}.")
        return self.erase(0, n)

    def window(self, n: int) -> "Tape":
        """Return the n newest nodes, or all of them if there are fewer.

        Raises:
            IndexError: If n is negative.
        """
        if n < 0:
            raise IndexError(f"A window of {n} nodes: give 0 or more.")
        return self.drop(max(len(self) - n, 0))

    def erase(self, i: int, j: int) -> "Tape":
        """Return this tape without the nodes [i, j)."""
        i, j = self.interval(i, j)
        return self._kept([slice(0, i), slice(j, len(self))])

    def truncate(self, k: int) -> "Tape":
        """Return the nodes before position k, such as those of a contract knocked out there."""
        return self.erase(k, len(self))

    def split(self, k: int) -> "tuple[Tape, Tape]":
        """Return the nodes before position k, and those from k; both tapes share the params."""
        k = self.position(k)
        return self[:k], self[k:]

    def mark(self, k: int) -> "Tape":
        """Return this tape with the state at position k always kept, in addition to the schedule's slots.

        Raises:
            IndexError: If k is not the position before a node.
        """
        k = self.position(k)
        if k == len(self):
            raise IndexError(
                f"Position {k} is the end of the tape, whose state is the value: mark one before."
            )
        number, start = self.segment_at(k)
        segments = list(self.segments)
        segments[number] = segments[number].edited(Edits.with_mark, k - start)
        return self._of(segments)

    def detach(self, k: int) -> "Tape":
        """Return this tape with a node at position k that returns the state unchanged, and blocks cotangents.

        The nodes before it, and the first state, then have zero gradients; values do not change. The node is
        listed as `detach`, and `erase(k, k + 1)` removes it.
        """
        head, tail = self.split(k)
        return head.append(detach, jnp.zeros((1, 0))) + tail

    @property
    def marks(self) -> tuple[int, ...]:
        """The marked positions."""
        starts = (start for start, _ in self.bounds())
        pairs = zip(starts, self.segments, strict=True)
        return tuple(start + k for start, segment in pairs for k in segment.marks)

    def replace(self, i: int, j: int, params: Any) -> "Tape":
        """Return this tape with other params, stacked, for the nodes [i, j), all of one segment.

        Raises:
            ValueError: If the nodes are in several segments, or `params` differs from theirs in structure,
                shape or dtype.
        """
        i, j = self.interval(i, j)
        if i == j:
            return self
        number, start = self.segment_at(i)
        if j > start + len(self.segments[number]):
            raise ValueError(
                f"[{i}, {j}) crosses into another segment: replace one segment's nodes at a time."
            )
        segments = list(self.segments)
        segments[number] = segments[number].replaced(i - start, j - start, params)
        return self._of(segments)

    def with_schedule(self, schedule: AbstractSchedule | Sequence[AbstractSchedule]) -> "Tape":
        """Return this tape with other schedules for the reverse sweeps of its segments.

        A single schedule applies to every segment, and to segments appended later; a sequence, such as a
        plan's, has one for each segment.

        Raises:
            TypeError: If one is not a schedule.
            ValueError: If their number is not that of the segments.
        """
        if isinstance(schedule, Sequence):
            given, default = tuple(schedule), self.schedule
        else:
            given, default = (schedule,) * len(self.segments), schedule
        for one in (*given, default):
            if not isinstance(one, AbstractSchedule):
                raise TypeError(f"schedule is {one!r}: give one such as Revolve(slots=12).")
        if len(given) != len(self.segments):
            raise ValueError(
                f"{len(given)} schedules for {len(self.segments)} segments: give one for each, or plan again."
            )
        pairs = zip(self.segments, given, strict=True)
        segments = tuple(segment.scheduled(one) for segment, one in pairs)
        return dataclasses.replace(self, segments=segments, schedule=default)

    def kept_positions(self) -> set[int]:
        """Return the positions of states that the first sweep keeps: by schedule, mark or segment start."""
        positions = set(self.marks)
        for segment, (start, _) in zip(self.segments, self.bounds(), strict=True):
            if len(segment):
                positions |= {start, *(start + segment.kept_positions).tolist()}
        return positions

    def __add__(self, other: "Tape") -> "Tape":
        """Return the nodes of this tape followed by the other's; params are shared.

        Each segment keeps its own schedule and marks; the smallest of several budgets applies to the whole.
        Segments appended later take the schedule of the last tape that has nodes.
        """
        if not isinstance(other, Tape):
            return NotImplemented
        last = other if len(other) else self
        both = tuple(filter(len, (*self.segments, *other.segments)))
        return dataclasses.replace(self, segments=both, schedule=last.schedule)

    def __getitem__(self, part: slice) -> "Tape":
        """Return the nodes of a slice with step 1.

        Raises:
            TypeError: If `part` is not a slice with step 1.
        """
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError(
                f"A tape is sliced by tape[i:j], not by {part!r}; tape.traverse() lists its nodes."
            )
        i, j, _ = part.indices(len(self))
        return self._kept([slice(i, max(i, j))])

    def __len__(self) -> int:
        """Return the number of nodes."""
        return sum(map(len, self.segments))

    def bounds(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each segment."""
        stops = np.cumsum([len(segment) for segment in self.segments]).tolist()
        return list(zip([0, *stops], stops, strict=False))

    def segment_at(self, k: int) -> tuple[int, int]:
        """Return (number, start) of the segment of node k."""
        return next((n, a) for n, (a, b) in enumerate(self.bounds()) if a <= k < b)

    def position(self, k: int) -> int:
        """Return a position counted from the start.

        Raises:
            IndexError: If it is not on the tape.
        """
        n = len(self)
        if not -n <= k <= n:
            raise IndexError(f"Position {k} is not on a tape of {n} nodes: give one of {-n} … {n}.")
        return k + n if k < 0 else k

    def interval(self, i: int, j: int) -> tuple[int, int]:
        """Return two positions counted from the start.

        Raises:
            IndexError: If one is not on the tape, or the first is after the second.
        """
        i, j = self.position(i), self.position(j)
        if i > j:
            raise IndexError(
                f"[{i}, {j}) runs backwards on a tape of {len(self)} nodes: give i <= j."
            )
        return i, j

    def record(self, x) -> "Recording[Tape]":
        """Run the tape from state `x` and keep the states chosen by its schedule and its marks."""
        x = jax.tree.map(jnp.asarray, x)
        return Recording(with_slots(self, x), {0: x})

    def traverse(self, i: int = 0, j: int | None = None) -> "Span[Tape]":
        """Return a view of the nodes [i, j), to iterate, replay or cut out."""
        return Span(self, *self.interval(i, len(self) if j is None else j))

    def table(self) -> str:
        """Print the nodes as a Wengert list.

        A line shows the position, the operation, the number of states that the first sweep holds at that point,
        whether the state before this node is one of them, and the bytes of its params.
        """
        lines = [f"{'position':>8}  {'operation':<32}  {'live':>6}  {'kept':<6}  {'bytes':>10}"]
        marks, kept_at, position, live, n = set(self.marks), self.kept_positions(), 0, 0, len(self)
        for segment in self.segments:
            name = operation_name(segment.step)
            leaves = jax.tree.leaves(segment.params)
            size = sum(leaf.nbytes for leaf in leaves) // max(segment.capacity, 1)
            for _ in range(len(segment)):
                live += position in kept_at
                if position < _ENDS or position >= n - _ENDS:
                    kept = "mark" if position in marks else "slot" if position in kept_at else ""
                    lines.append(f"{position:>8}  {name:<32}  {live:>6}  {kept:<6}  {size:>10,}")
                elif position == _ENDS:
                    lines.append(f"{'…':>8}  {n - 2 * _ENDS:,} more")
                position += 1
        return "\n".join(lines)

    def __eq__(self, other) -> bool:
        """Return True if both have equal nodes in the same order, and the same marks and schedules."""
        if not isinstance(other, Tape):
            return NotImplemented
        mine, others = list(self.traverse()), list(other.traverse())
        same = self.marks == other.marks and _node_schedules(self) == _node_schedules(other)
        return same and len(mine) == len(others) and all(map(_same_node, mine, others))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equal by value, and arrays have no hash

    def __repr__(self) -> str:
        if not all(segment.is_known for segment in self.segments):
            return f"Tape({len(self.segments)} segments, nodes unknown here, {self.schedule})"
        nodes = f"{len(self)} nodes in {len(self.segments)} segments"
        marks = f", marks {', '.join(map(str, self.marks))}" if self.marks else ""
        schedules = dict.fromkeys(segment.schedule for segment in self.segments) or [self.schedule]
        return f"Tape({nodes}, {', '.join(map(repr, schedules))}{marks})"

    def _kept(self, parts: list[slice]) -> "Tape":
        """Keep the nodes of some slices in ascending order; remove segments that lose all of their nodes."""
        segments = []
        for (start, _), segment in zip(self.bounds(), self.segments, strict=True):
            n = len(segment)
            own = [slice(*np.clip([part.start - start, part.stop - start], 0, n)) for part in parts]
            left = sum(part.stop - part.start for part in own)
            alone = len(self.segments) == 1 and segment.capacity > 1
            if left == n and (n or alone):
                segments.append(segment)
            elif left or alone:
                segments.append(segment.edited(Edits.kept, own))
        return self._of(segments)

    def _of(self, segments: Iterable[Segment]) -> "Tape":
        return dataclasses.replace(self, segments=tuple(segments))


def detach(params, state):
    """Return the state unchanged; block its cotangent."""
    del params
    return jax.lax.stop_gradient(state)


@eqx.filter_jit
def _run(tape: Tape, x):
    """Run the tape, compiled; outside of `jax.jit` it is traced once for all calls."""
    for segment in tape.segments:
        x = segment(x)
    return x


@eqx.filter_jit
def _run_divided(tape: Tape, x):
    """Do the same after dividing a budget among the segments, which asks the compiler; also traced once."""
    return _run(_divided(tape, x), x)


def with_slots(tape: Tape, x) -> Tape:
    """Return the tape with slots in place of every budget, including that of segments appended later."""
    if all(segment.schedule.budget is None for segment in tape.segments):
        return tape
    schedules = resolve_budgets(tape.segments, measure_segments(tape.segments, x), residuals=False)
    if tape.schedule.budget is not None:
        tape = dataclasses.replace(tape, schedule=schedules[-1])
    return tape.with_schedule(schedules)


def _divided(tape: Tape, x) -> Tape:
    """Give each segment a share of the tape's budget; a single unedited segment gets all of it."""
    segments = tape.segments
    alone = len(segments) == 1 and segments[0].edits is None
    if alone or all(segment.schedule.budget is None for segment in segments):
        return tape
    return tape.with_schedule(divide_budget(segments, x))


def _node_schedules(tape: Tape) -> list[AbstractSchedule]:
    return [segment.schedule for segment in tape.segments for _ in range(len(segment))]


def _same_node(a, b) -> bool:
    trees = (a.step, a.params), (b.step, b.params)
    if jax.tree.structure(trees[0]) != jax.tree.structure(trees[1]):
        return False
    return bool(eqx.tree_equal(*trees))
