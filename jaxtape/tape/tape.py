"""The tape: a chain of operations as a value."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from ..schedules.schedule import AbstractSchedule
from .budget import divided, measured, settled
from .node_list import AbstractTape
from .recording import Recording
from .segment import operation_name
from .span import Span

_ENDS = 10  # lines that a table shows at either end of a long tape


class Tape(AbstractTape):
    """A strict unary chain, `state[k+1] = step(params[k], state[k])`, as an immutable pytree.

    A node is one operation, a segment a run of nodes that share `step` and the structure of
    `params`. The leaves of a tape are the segments' params, stacked, and the arrays inside their
    steps, shared by the segment's nodes: these receive the sum of the nodes' cotangents.

    Edits (`append`, `drop`, `erase`, `truncate`, `split`, slicing, `mark`) return another tape and move no
    params: they change which places are live, and in what order. A program that takes the tape as an
    argument is compiled once for all edits within its capacity, which doubles when an `append`
    needs more. An edited tape has integer leaves: differentiate it by `eqx.filter_grad`. Positions
    count the nodes before them, 0 … len; negative ones count from the end, as in a list.

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

    def record(self, x) -> "Recording[Tape]":
        """Run the tape from state `x` and keep the states chosen by its schedule and its marks."""
        x = jax.tree.map(jnp.asarray, x)
        return Recording(with_slots(self, x), {0: x})

    def traverse(self, i: int = 0, j: int | None = None) -> "Span[Tape]":
        """Return a view of the nodes [i, j), to iterate, replay or cut out."""
        return Span(self, *self.interval(i, len(self) if j is None else j))

    def table(self) -> str:
        """Print the nodes as a Wengert list.

        A line has the position, the operation, how many states the first sweep holds when it is there, whether
        the state before this node is one of them, and the bytes of its params.
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

    def __call__(self, x):
        """Return the state after the last node, from state `x` before the first.

        A step that changes the structure, shape or dtype of the state raises `TypeError`.
        """
        x = jax.tree.map(jnp.asarray, x)
        if any(segment.edits is not None for segment in self.segments):
            return _run(_divided(self, x), x)  # while its nodes can be counted
        return _run_divided(self, x)

    def __eq__(self, other) -> bool:
        """Return True if both have equal nodes, in the same order, and the same marks and schedules."""
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


@eqx.filter_jit
def _run(tape: Tape, x):
    """Run the tape, compiled: outside of `jax.jit` it is traced once for all its calls."""
    for segment in tape.segments:
        x = segment(x)
    return x


@eqx.filter_jit
def _run_divided(tape: Tape, x):
    """Do the same with a budget divided among the segments, which asks the compiler: once as well."""
    return _run(_divided(tape, x), x)


def with_slots(tape: Tape, x) -> Tape:
    """Return the tape with slots in place of every budget, also for segments appended later."""
    if all(segment.schedule.budget is None for segment in tape.segments):
        return tape
    schedules = settled(tape.segments, measured(tape.segments, x), residuals=False)
    if tape.schedule.budget is not None:
        tape = dataclasses.replace(tape, schedule=schedules[-1])
    return tape.with_schedule(schedules)


def _divided(tape: Tape, x) -> Tape:
    """Give each segment a share of the tape's budget; one that is alone and not edited has it all."""
    segments = tape.segments
    alone = len(segments) == 1 and segments[0].edits is None
    if alone or all(segment.schedule.budget is None for segment in segments):
        return tape
    return tape.with_schedule(divided(segments, x))


def _node_schedules(tape: Tape) -> list[AbstractSchedule]:
    return [segment.schedule for segment in tape.segments for _ in range(len(segment))]


def _same_node(a, b) -> bool:
    trees = (a.step, a.params), (b.step, b.params)
    if jax.tree.structure(trees[0]) != jax.tree.structure(trees[1]):
        return False
    return bool(eqx.tree_equal(*trees))
