"""Plan the gradient of a tape before it is run: count its step evaluations and its bytes."""

import dataclasses
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable

from ..jax_settings.kernels import kernels_are_on
from ..programs.targets import target_of
from ..schedules.schedule import AbstractSchedule, Budget, Revolve
from ..schedules.table import ScheduleTable, check_count, revolve_table, with_kept_nodes
from ..sweeps.footprint import FixedMeasure, Footprint, Measure, measured_for, peak_bytes
from ..sweeps.kernel_executor import kind_of_kernels
from ..sweeps.state_store import host_slots
from . import plot as picture
from .budget import (
    Measures,
    Size,
    footprints,
    measure_segments,
    resolve_budgets,
    shared_slots,
)
from .roofline import Roofline
from .segment import Segment, operation_name
from .tape import Tape

if TYPE_CHECKING:
    from ..kernels.sweeps import KernelSweeps

_MOST_DRAWN = 100_000  # evaluations that a figure can show


@dataclasses.dataclass(frozen=True)
class Part:
    """The cost of one segment of a plan.

    Attributes:
        operation: The name of its step.
        nodes: The number of nodes.
        schedule: Its schedule.
        advanced: The number of forward steps, including those of the value.
        taped: The number of steps that are pulled back.
        repetition: The number of times that the busiest step is advanced.
        slots: The number of states kept at a time.
        host_slots: The number of slots in the host's memory, if that is separate from the device's.
        footprint: The bytes of each state, and of the temporaries beside the states.
        table: The table that the sweeps follow; None for an empty segment.
        kernels: The kernels of its sweeps, or the reason why there are none; "" unless `jt.set_kernels` is on
            and the plan is for a GPU or a TPU.
        roofline: A lower bound on the time of those kernels, if there are any and the plan is for a target.
    """

    operation: str
    nodes: int
    schedule: AbstractSchedule
    advanced: int
    taped: int
    repetition: int
    slots: int
    host_slots: int
    footprint: Footprint
    table: ScheduleTable | None
    kernels: str = ""
    roofline: Roofline | None = None

    @property
    def kept_bytes(self) -> int:
        """The bytes kept on the device."""
        return (self.slots - self.host_slots) * self.footprint.state + self.footprint.residuals


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cost of one value and pullback of a tape: `jax.vjp(lambda tape, x: tape(x), tape, x)`.

    `tape.with_schedule(plan.schedule)` is the planned tape. Evaluations are exact: if no pullback reads a
    state, no step is run again. Bytes are those of temporaries.

    Attributes:
        parts: The cost of each segment.
    """

    parts: tuple[Part, ...]

    @property
    def schedules(self) -> tuple[AbstractSchedule, ...]:
        """The schedule of each segment."""
        return tuple(part.schedule for part in self.parts)

    @property
    def schedule(self) -> AbstractSchedule | tuple[AbstractSchedule, ...]:
        """The schedule, or one for each segment if they differ: the argument of `tape.with_schedule`."""
        return self.schedules[0] if len(set(self.schedules)) == 1 else self.schedules

    @property
    def advanced(self) -> int:
        """The number of forward steps."""
        return sum(part.advanced for part in self.parts)

    @property
    def taped(self) -> int:
        """The number of steps run once more for their pullback; under `StoreAll()` that is their only run.

        With a policy, the extra run covers what the policy does not keep.
        """
        return sum(part.taped for part in self.parts)

    @property
    def evaluations(self) -> int:
        """The number of evaluations of a step."""
        return self.advanced + self.taped

    @property
    def repetition(self) -> int:
        """The number of times that the busiest step is advanced."""
        return max((part.repetition for part in self.parts), default=0)

    @property
    def peak_bytes(self) -> int:
        """The bytes of temporaries on the device."""
        kept = [part.kept_bytes for part in self.parts]
        return peak_bytes(kept, [part.footprint for part in self.parts])

    @property
    def host_bytes(self) -> int:
        """The bytes of states kept in the host's memory."""
        return sum(part.host_slots * part.footprint.state for part in self.parts)

    def draw(self, axes: Any = None):
        """Draw the steps and the kept states over time, as a matplotlib figure.

        Args:
            axes: Two matplotlib axes, the upper one first; None makes a new figure.

        Raises:
            ValueError: If there are more than 100,000 evaluations.
        """
        if self.evaluations > _MOST_DRAWN:
            raise ValueError(
                f"{self.evaluations:,} evaluations are too many to draw: draw a plan of at most "
                f"{_MOST_DRAWN:,}."
            )
        tables = [part.table for part in self.parts if part.table is not None]
        title = f"{self.evaluations:,} evaluations of a step, {self.peak_bytes:,} bytes"
        return picture.draw(tables, title, axes)

    def __str__(self) -> str:
        nodes = sum(part.nodes for part in self.parts)
        text = TextTable("segment", "schedule", title=f"{nodes:,} nodes", title_justify="left")
        for title in ("nodes", "advanced", "taped", "busiest", "slots", "bytes each", "work"):
            text.add_column(title, justify="right")
        for part in self.parts:
            numbers = part.nodes, part.advanced, part.taped, part.repetition, part.slots
            numbers = *numbers, part.footprint.state, part.footprint.work
            figures = (f"{number:,}" for number in numbers)
            text.add_row(part.operation, repr(part.schedule), *figures)
        written = io.StringIO()
        Console(file=written, width=120).print(text)
        kernels = "".join(
            f"\n{p.operation}: {p.kernels}" + (f"\n{p.roofline}" if p.roofline else "")
            for p in self.parts
            if p.kernels
        )
        host = f", and {self.host_bytes:,} bytes on the host" if self.host_bytes else ""
        return (
            f"{written.getvalue()}{self.evaluations:,} evaluations of a step: {self.advanced:,} advanced "
            f"(the busiest {self.repetition} times), {self.taped:,} taped\n"
            f"peak of {self.peak_bytes:,} bytes{host}{kernels}"
        )


def plan(
    tape: Tape | Callable,
    x: Any,
    *,
    budget: int | str | None = None,
    slots: int | None = None,
    target: str | None = None,
) -> Plan:
    """Find the cheapest schedule for a tape within a budget, and its cost.

    A budget is divided among the segments to minimize recomputation: the next slot goes where it saves the most
    operations per byte. Without a budget, the plan is for the tape's own schedules. The gradient is with
    respect to everything that can be differentiated: a leaf that passes through an operation without a
    derivative (`lax.while_loop`, `jax.pure_callback`) is held fixed.

    Args:
        tape: The tape, which is not run.
        x: The first state, or its types (`jax.ShapeDtypeStruct`).
        budget: The bytes of the gradient's temporaries on the device, an int or a size such as "8MiB".
        slots: The number of states kept at a time, over all segments; each needs one. The state before a
            segment's last node, which the value passes anyway, has a slot in addition.
        target: The accelerator whose compiler measures the bytes, such as "tpu:v5e:2x2" or "gpu:h100" (see
            `compile_for`); by default, the device in use.

    Returns:
        The schedules and their costs.

    Raises:
        TypeError: If `tape` is not a tape, both `budget` and `slots` are given, or one is not a number. It is a
            `ValueError` if they do not hold the first state of every segment.

    Examples:
        >>> import jaxtape as jt
        >>> print(jt.plan(jt.Tape(), 1.0).peak_bytes)
        0
    """
    if not isinstance(tape, Tape):
        raise TypeError(
            f"tape is {operation_name(tape)}, and a plan is for a jt.Tape: give "
            f"jt.Tape().append(step, params). "
            "For a function with a jt.scan(f, init, xs) in it, that is jt.Tape().append(lambda x, "
            "carry: "
            "f(carry, x)[0], xs), and its first state is init."
        )
    if budget is not None and slots is not None:
        raise TypeError(f"budget is {budget} and slots is {slots}: give one of them.")
    if budget is not None:
        tape = tape.with_schedule(Budget(budget))
    if slots is not None:
        check_count("slots", slots, "the first state needs one")
        tape = tape.with_schedule(Revolve(int(slots)))
    with measured_for(target):
        found, measures = _planned(tape, x, slots)
        kind = kind_of_kernels() if kernels_are_on() else None
        parts = zip(
            found.parts, tape.with_schedule(found.schedules).segments, measures, strict=True
        )
        if kind is None:
            return found
        return Plan(tuple(_with_kernels(*part, kind, target) for part in parts))


def _with_kernels(
    part: Part, segment: Segment, measure: Measure | FixedMeasure, kind: str, target: str | None
) -> Part:
    """Return a part with its kernels on a kind of accelerator, and their roofline on a target."""
    if isinstance(measure, FixedMeasure) or segment.edits is not None:
        return dataclasses.replace(
            part, kernels="no kernel: its nodes are kept or edited, or there are none"
        )
    kernels: KernelSweeps | str = measure.kernels(segment.executor, kind)
    if isinstance(kernels, str):
        return dataclasses.replace(part, kernels=f"no kernel: {kernels}")
    part = dataclasses.replace(part, kernels=str(kernels))
    if target is None:
        return part
    report, work = measure.compiled(segment.executor), dict(kernels.work())
    if report is not None and not report.compiles:
        return dataclasses.replace(part, kernels=f"{kernels}, refused: {report.reason}")
    device, share = target_of(target), 1.0
    if device.kind is not None:
        share = kernels.layout.tile.share_at_once(kernels.layout.paths, device.kind[1])
    roofline = Roofline(
        target,
        work,
        {limit.name: limit.seconds(work) for limit in device.limits},
        kernels.tile_bytes() if kind == "tpu" else 0,
        report.registers if report is not None else {},
        kernels.repeated_bytes(),
        int(share * kernels.block_bytes()) if kernels.repeated_bytes() else 0,
    )
    return dataclasses.replace(part, roofline=roofline)


def _planned(tape: Tape, x: Any, slots: int | None) -> tuple[Plan, Measures]:
    """Return the plan of a tape, under its schedules or with `slots` over all segments, and its measures."""
    measures = measure_segments(tape.segments, x)
    if slots is not None:
        pairs = zip(tape.segments, measures, strict=True)
        sizes = [Size(len(segment), 1, measure.cost) for segment, measure in pairs]
        tape = tape.with_schedule([Revolve(s) for s in shared_slots(sizes, int(slots))])
    if any(segment.schedule.budget is not None for segment in tape.segments):
        tape = tape.with_schedule(resolve_budgets(tape.segments, measures))
        if any(segment.schedule.ends_in_residuals for segment in tape.segments):
            measures = measure_segments(tape.segments, x)
    schedules = [segment.schedule for segment in tape.segments]
    found = footprints(tape.segments, schedules, measures)
    return Plan(tuple(map(_part, tape.segments, found))), measures


def _once(n: int) -> ScheduleTable:
    """Return the table of n nodes that are run once, because no pullback reads a state."""
    table, none = revolve_table(n, n), np.zeros(0, np.int32)
    rows = {"first_row": table.first_row * 0, "last_row": table.last_row * 0, "sweep_rows": (0, 0)}
    return dataclasses.replace(table, slots=0, store_position=none, store_slot=none, **rows)


def _part(segment: Segment, footprint: Footprint) -> Part:
    n, name = len(segment), operation_name(segment.step)
    if n and segment.edits is None and segment.executor.length > len(segment.executor.table):
        return _part_with_residuals(segment, footprint)
    table = segment.table if n else None
    if table is None or segment.keeps_residuals:
        again = 0 if segment.applied.policy is None else n
        counts = again, n, min(again, 1), segment.slots, 0
        return Part(name, n, segment.schedule, *counts, footprint, table)
    if not footprint.repeats:
        return Part(name, n, segment.schedule, n, n, 1, 0, 0, footprint, _once(n))
    advanced, repetition = table.count_advances() + 1, table.count_repetition()
    counts = advanced, n, repetition, segment.slots, host_slots(segment.executor)
    return Part(name, n, segment.schedule, *counts, footprint, table)


def _part_with_residuals(segment: Segment, footprint: Footprint) -> Part:
    """Return the part of a segment whose last nodes keep residuals, with a slot for each in its picture."""
    n, executor = len(segment), segment.executor
    before = len(executor.table)
    table = executor.table if footprint.repeats or not before else _once(before)
    table, stored = with_kept_nodes(table, n - before), segment.schedule.parts(n)[bool(before) :]
    once = sum(count for count, schedule in stored if schedule.policy is None)
    advanced, repetition = table.count_advances() + 1 - once, table.count_repetition()
    numbers = advanced, n, min(repetition, advanced), segment.slots, host_slots(executor)
    return Part(operation_name(segment.step), n, segment.schedule, *numbers, footprint, table)
