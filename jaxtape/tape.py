"""The tape: a chain of operations as a value."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .recording import Recording
from .schedules.schedule import AbstractSchedule, StoreAll
from .segment import Segment
from .sharing import shared, with_slots
from .span import Span
from .wengert import wengert_list


class Tape(eqx.Module):
    """A strict unary chain, `state[k+1] = step(params[k], state[k])`, as an immutable pytree.

    ```python
    tape = jt.Tape().append(step, params).with_schedule(jt.Revolve(slots=12))
    y = tape(x)
    tape_bar = jax.grad(lambda tape: loss(tape(x)))(tape)  # a tape of cotangents
    ```

    A node is one operation, a segment a run of nodes that share `step` and the structure of
    `params`. The leaves of a tape are the segments' params, stacked, and the arrays inside their
    steps, shared by the segment's nodes: these receive the sum of the nodes' cotangents.

    Edits (`drop`, `erase`, `truncate`, `split`, slicing, `mark`) return another tape and move no
    params: they change which places are live, and in what order. A program that takes the tape as an
    argument is compiled once for all edits within its capacity, which doubles when an `append`
    needs more. An edited tape has integer leaves: differentiate it by `eqx.filter_grad`. Positions
    count the nodes before them, 0 … len; negative ones count from the end, as in a list.
    """

    segments: tuple[Segment, ...] = ()
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    def append(self, step: Callable, params) -> "Tape":
        """This tape with n more nodes.

        - **step**: `(params, state) -> state`, a function or a callable pytree such as an
          `eqx.Module`; it keeps the structure, shapes and dtypes of the state.
        - **params**: a pytree whose leaves have leading axis n, one entry a node.

        The last segment grows if its step is this one and its params have this structure.

        **Errors**: `TypeError` if `step` is not callable with two arguments; `ValueError` if the leaves
        of `params` do not share a leading axis.
        """
        new, segments = Segment.of(step, params, self.schedule), self.segments
        if segments and segments[-1].agrees(new):
            segments, new = segments[:-1], segments[-1].grow(new)
        return Tape((*filter(len, segments), new), self.schedule)

    def drop(self, n: int) -> "Tape":
        """This tape without its n oldest nodes."""
        if n < 0:
            raise IndexError(f"{n} nodes cannot be dropped: give 0 … {len(self)}.")
        return self.erase(0, n)

    def window(self, n: int) -> "Tape":
        """The n newest nodes, or all of them if there are fewer."""
        if n < 0:
            raise IndexError(f"A window of {n} nodes: give 0 or more.")
        return self.drop(max(len(self) - n, 0))

    def erase(self, i: int, j: int) -> "Tape":
        """This tape without the nodes [i, j)."""
        i, j = self._bounds(i, j)
        return self._kept([slice(0, i), slice(j, len(self))])

    def truncate(self, k: int) -> "Tape":
        """The nodes before position k: what is left of a contract that is knocked out there."""
        return self.erase(k, len(self))

    def split(self, k: int) -> tuple["Tape", "Tape"]:
        """The nodes before position k, and those from there on; both share the params."""
        k = self.position(k)
        return self[:k], self[k:]

    def mark(self, k: int) -> "Tape":
        """This tape with the state at position k always kept, beside the schedule's slots."""
        k = self.position(k)
        if k == len(self):
            raise IndexError(
                f"Position {k} is the end of the tape, whose state is the value: mark one before."
            )
        number, start = self.segment_at(k)
        marked = lambda edits, schedule: edits.with_mark(k - start, schedule)  # noqa: E731
        segments = list(self.segments)
        segments[number] = segments[number].edited(marked)
        return Tape(tuple(segments), self.schedule)

    @property
    def marks(self) -> tuple[int, ...]:
        """The marked positions."""
        starts = (start for start, _ in self.bounds())
        pairs = zip(starts, self.segments, strict=True)
        return tuple(start + k for start, segment in pairs for k in segment.marks)

    def replace(self, i: int, j: int, params) -> "Tape":
        """This tape with other params, stacked, for the nodes [i, j), all of one segment.

        **Errors**: `ValueError` if they are of several segments, or `params` has another structure,
        shape or dtype than theirs.
        """
        i, j = self._bounds(i, j)
        if i == j:
            return self
        number, start = self.segment_at(i)
        if j > start + len(self.segments[number]):
            raise ValueError(
                f"[{i}, {j}) crosses into another segment: replace one segment's nodes at a time."
            )
        segments = list(self.segments)
        segments[number] = segments[number].replaced(i - start, j - start, params)
        return Tape(tuple(segments), self.schedule)

    def record(self, x) -> Recording:
        """Run the tape from state `x` and keep the states that its schedule and its marks say."""
        x = jax.tree.map(jnp.asarray, x)
        return Recording(with_slots(self, x), {0: x})

    def traverse(self, i: int = 0, j: int | None = None) -> Span:
        """A view of the nodes [i, j), to iterate, replay or cut out."""
        return Span(self, *self._bounds(i, len(self) if j is None else j))

    def with_schedule(self, schedule: AbstractSchedule | Sequence[AbstractSchedule]) -> "Tape":
        """This tape with another choice of what is kept for the reverse sweep of each segment.

        One schedule is every segment's, and that of segments to come; of several, such as a plan's, each
        segment takes its own.

        **Errors**: `TypeError` if it is no schedule; `ValueError` unless there are as many as segments.
        """
        given = tuple(schedule) if isinstance(schedule, Sequence) else (schedule,)
        for one in given:
            if not isinstance(one, AbstractSchedule):
                raise TypeError(f"schedule is {one!r}: give one such as Revolve(slots=12).")
        if not isinstance(schedule, Sequence):
            given = given * len(self.segments)
        if len(given) != len(self.segments):
            raise ValueError(
                f"{len(given)} schedules for {len(self.segments)} segments: give one for each, or plan again."
            )
        pairs = zip(self.segments, given, strict=True)
        default = (
            schedule if isinstance(schedule, AbstractSchedule) else (*given, self.schedule)[-1]
        )
        return Tape(tuple(segment.scheduled(one) for segment, one in pairs), default)

    def kept_positions(self) -> set[int]:
        """Where the first sweep keeps states: as the schedules say, at marks, where segments start."""
        positions = set(self.marks)
        for segment, (start, _) in zip(self.segments, self.bounds(), strict=True):
            if len(segment):
                positions |= {start, *(start + segment.kept_positions).tolist()}
        return positions

    def table(self) -> str:
        """The nodes as a Wengert list.

        position, operation, how many states the first sweep holds when it is there, whether the state
        before this node is one of them, bytes of its params.
        """
        return wengert_list(self)

    def __add__(self, other: "Tape") -> "Tape":
        """The nodes of both, one after the other, under this tape's schedule; params are shared."""
        if not isinstance(other, Tape):
            return NotImplemented
        both = (*self.segments, *other.with_schedule(self.schedule).segments)
        return Tape(tuple(filter(len, both)), self.schedule)

    def __getitem__(self, part: slice) -> "Tape":
        """The nodes of a slice of step 1."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError(
                f"A tape is sliced by tape[i:j], not by {part!r}; tape.traverse() lists its nodes."
            )
        i, j, _ = part.indices(len(self))
        return self._kept([slice(i, max(i, j))])

    def __len__(self) -> int:
        """The number of nodes."""
        return sum(map(len, self.segments))

    def __call__(self, x):
        """The state after the last node, from state `x` before the first.

        **Errors**: `TypeError` if a step changes the structure, shape or dtype of the state.
        """
        x = jax.tree.map(jnp.asarray, x)
        if any(segment.edits is not None for segment in self.segments):
            return _run(shared(self, x), x)  # while its nodes can be counted
        return _run_shared(self, x)

    def __eq__(self, other) -> bool:
        """Whether both have the same nodes, by value, in the same order, and the same marks and schedule."""
        if not isinstance(other, Tape):
            return NotImplemented
        mine, others = list(self.traverse()), list(other.traverse())
        same = self.marks == other.marks and _node_schedules(self) == _node_schedules(other)
        return same and len(mine) == len(others) and all(map(_same_node, mine, others))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equal by value, and arrays have no hash

    def __repr__(self) -> str:
        if not all(segment.is_known for segment in self.segments):
            return f"Tape({len(self.segments)} segments, nodes not known here, {self.schedule})"
        nodes = f"{len(self)} nodes in {len(self.segments)} segments"
        marks = f", marks {', '.join(map(str, self.marks))}" if self.marks else ""
        schedules = dict.fromkeys(segment.schedule for segment in self.segments) or [self.schedule]
        return f"Tape({nodes}, {', '.join(map(repr, schedules))}{marks})"

    def bounds(self) -> list[tuple[int, int]]:
        """(start, stop) of each segment."""
        stops = np.cumsum([len(segment) for segment in self.segments]).tolist()
        return list(zip([0, *stops], stops, strict=False))

    def segment_at(self, k: int) -> tuple[int, int]:
        """(number, start) of the segment of node k."""
        return next((n, a) for n, (a, b) in enumerate(self.bounds()) if a <= k < b)

    def _kept(self, parts: list[slice]) -> "Tape":
        """The nodes of some slices in ascending order; a segment that loses all of them goes."""
        segments = []
        for (start, _), segment in zip(self.bounds(), self.segments, strict=True):
            n = len(segment)
            own = [slice(*np.clip([part.start - start, part.stop - start], 0, n)) for part in parts]
            left = sum(part.stop - part.start for part in own)
            alone = len(self.segments) == 1 and segment.capacity > 1
            if left == n and (n or alone):
                segments.append(segment)
            elif left or alone:
                keep = lambda edits, schedule, own=own: edits.kept(own, schedule)  # noqa: E731
                segments.append(segment.edited(keep))
        return Tape(tuple(segments), self.schedule)

    def position(self, k: int) -> int:
        """A position counted from the start.

        **Errors**: `IndexError` if it is not on the tape.
        """
        n = len(self)
        if not -n <= k <= n:
            raise IndexError(f"Position {k} is not on a tape of {n} nodes: give one of {-n} … {n}.")
        return k + n if k < 0 else k

    def _bounds(self, i: int, j: int) -> tuple[int, int]:
        i, j = self.position(i), self.position(j)
        if i > j:
            raise IndexError(
                f"[{i}, {j}) runs backwards on a tape of {len(self)} nodes: give i <= j."
            )
        return i, j


@eqx.filter_jit
def _run(tape: Tape, x):
    """Compiled, so that a tape that is called outside of `jax.jit` is traced once for all its calls."""
    for segment in tape.segments:
        x = segment(x)
    return x


@eqx.filter_jit
def _run_shared(tape: Tape, x):
    """The same with a budget shared among the segments, which asks the compiler: once as well."""
    return _run(shared(tape, x), x)


def _node_schedules(tape: Tape) -> list[AbstractSchedule]:
    return [segment.schedule for segment in tape.segments for _ in range(len(segment))]


def _same_node(a, b) -> bool:
    trees = (a.step, a.params), (b.step, b.params)
    if jax.tree.structure(trees[0]) != jax.tree.structure(trees[1]):
        return False
    return bool(eqx.tree_equal(*trees))
