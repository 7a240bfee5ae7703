"""What the gradient of a tape will cost, before it is run: step evaluations, and bytes."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from .binomial import advances, check_count
from .chain import trace
from .footprint import Footprint, footprint_of, step_footprint, stored_footprint
from .schedule import AbstractSchedule, Fit, Revolve, StoreAll
from .segment import Segment, operation_name
from .table import Budget, slots_within

if TYPE_CHECKING:
    from .tape import Tape


@dataclasses.dataclass(frozen=True)
class Part:
    """One segment of a plan.

    - **nodes**, **operation**, **schedule**: of the segment.
    - **advanced**: forward steps, those of the value among them; **taped**: steps that are pulled back.
    - **repetition**: how often the busiest step is advanced.
    - **slots**: states kept at a time, **host_slots** of them in the host's memory.
    - **footprint**: bytes of each of them, and of the work beside them.
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

    @property
    def kept_bytes(self) -> int:
        """Bytes of the states kept on the device."""
        return (self.slots - self.host_slots) * self.footprint.state


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one value and pullback of a tape take: `jax.vjp(lambda tape, x: tape(x), tape, x)`.

    `tape.with_schedule(plan.schedule)` is the tape that was planned. Evaluations are exact. Bytes are
    temporaries: what is kept and worked with between the arguments and the results.
    """

    parts: tuple[Part, ...]

    @property
    def schedules(self) -> tuple[AbstractSchedule, ...]:
        """One for each segment."""
        return tuple(part.schedule for part in self.parts)

    @property
    def schedule(self) -> AbstractSchedule | tuple[AbstractSchedule, ...]:
        """The schedule, or one for each segment where they differ: what `tape.with_schedule` takes."""
        return self.schedules[0] if len(set(self.schedules)) == 1 else self.schedules

    @property
    def advanced(self) -> int:
        """Forward steps."""
        return sum(part.advanced for part in self.parts)

    @property
    def taped(self) -> int:
        """Steps that are run once more for their pullback, or once and for all under `StoreAll`."""
        return sum(part.taped for part in self.parts)

    @property
    def evaluations(self) -> int:
        """All evaluations of a step."""
        return self.advanced + self.taped

    @property
    def repetition(self) -> int:
        """How often the busiest step is advanced."""
        return max((part.repetition for part in self.parts), default=0)

    @property
    def peak_bytes(self) -> int:
        """Bytes on the device: while a segment is reversed, the states kept of those before it are there."""
        kept, peak = 0, 0
        for part in self.parts:
            kept += part.kept_bytes
            peak = max(peak, kept + part.footprint.work)
        return peak

    @property
    def host_bytes(self) -> int:
        """Bytes of states kept in the host's memory."""
        return sum(part.host_slots * part.footprint.state for part in self.parts)

    def draw(self, axes=None):
        """What is advanced and kept when: a matplotlib figure. See `jaxtape.picture.draw`."""
        from .picture import draw  # matplotlib takes long to import

        return draw(self, axes)

    def __str__(self) -> str:
        from .picture import as_text

        return as_text(self)


def plan(tape: "Tape", x, *, bytes: int | None = None, slots: int | None = None) -> Plan:
    """The cheapest schedule for a tape within a budget, and what it costs; without a budget, the tape's own.

    - **x**: the first state, or its types (`jax.ShapeDtypeStruct`); nothing is run.
    - **bytes**: of the gradient's temporaries on the device.
    - **slots**: states kept at a time, counted over all segments; each needs one. The state before a
      segment's last node, which the value passes in any case, has a slot of its own beside them.

    Either is shared among the segments so that the steps recomputed are fewest: more go where one more
    slot saves most steps a byte.

    **Errors**: `TypeError` if both are given or one is no int; `ValueError` if they hold less than the
    first state of every segment.
    """
    if bytes is not None and slots is not None:
        raise TypeError(f"bytes is {bytes} and slots is {slots}: give one of them.")
    if bytes is not None:
        tape = tape.with_schedule(Fit(bytes))
    if slots is not None:
        check_count("slots", slots, "the first state needs one")
        sizes = [(len(segment), 1) for segment in tape.segments]
        tape = tape.with_schedule([Revolve(s) for s in shared_slots(sizes, int(slots))])
    tape, footprints = _settled(tape, x)
    return Plan(tuple(map(_part, tape.segments, footprints)))


def settled(tape: "Tape", x) -> "Tape":
    """The tape with a number of slots in the place of every budget."""
    return _settled(tape, x)[0] if any(map(_is_fit, tape.segments)) else tape


def shared(tape: "Tape", x) -> "Tape":
    """The tape with a share of the budget for each of its segments, and slots for one that is edited.

    A segment that is not edited sees its states, batched or not, when it is differentiated.
    """
    fits = [segment for segment in tape.segments if _is_fit(segment)]
    if not fits or (len(tape.segments) == 1 and fits[0].edits is None):
        return tape
    slots, footprints = _settled(tape, x)
    budget = min(segment.schedule.bytes for segment in fits)
    work = max(footprint.work for footprint in footprints)
    parts = tuple(map(_part, slots.segments, footprints))
    left = max(budget - work - sum(part.kept_bytes for part in parts), 0)
    size = [part.nodes * part.footprint.state for part in parts]
    schedules = []
    for segment, part, weight in zip(tape.segments, parts, size, strict=True):
        share = work + part.kept_bytes + left * weight // max(sum(size), 1)
        is_open = _is_fit(segment) and segment.edits is None
        schedules.append(
            dataclasses.replace(segment.schedule, bytes=share) if is_open else part.schedule
        )
    return tape.with_schedule(schedules)


def _is_fit(segment: Segment) -> bool:
    return isinstance(segment.schedule, Fit)


def _settled(tape: "Tape", x) -> tuple["Tape", list[Footprint]]:
    """The tape with every budget made a number of slots, and the footprints of its segments."""
    footprints = _footprints(tape, x)
    pairs = list(zip(tape.segments, footprints, strict=True))
    fits = [(segment, footprint.state) for segment, footprint in pairs if _is_fit(segment)]
    if not fits:
        return tape, footprints
    budget = min(segment.schedule.bytes for segment, _ in fits)
    work = max(footprint.work for footprint in footprints)
    own = sum(f.state * segment.slots for segment, f in pairs if not _is_fit(segment))
    own += sum(state * len(segment.marks) for segment, state in fits)
    if len(fits) == 1:
        ((segment, state),) = fits
        given = [slots_within(budget - own, len(segment), work, state)]
    else:
        last = sum(state for _, state in fits)  # the last state of each has a slot of its own
        sizes = [(len(segment), state) for segment, state in fits]
        given = shared_slots(sizes, budget - own - work - last)
    given = iter(given)
    slots = lambda old: Revolve(next(given), checkpoint_dtype=old.checkpoint_dtype)  # noqa: E731
    schedules = [slots(s.schedule) if _is_fit(s) else s.schedule for s in tape.segments]
    return tape.with_schedule(schedules), footprints


def shared_slots(sizes: list[tuple[int, int]], budget: int) -> list[int]:
    """Slots for segments of `(nodes, price of a slot)` that take the fewest steps within a budget.

    **Errors**: `ValueError` if the budget does not hold one slot each.
    """
    least = sum(price for _, price in sizes)
    if budget < least:
        raise ValueError(
            f"What is left of the budget is {budget:,}, and one state for each of {len(sizes)} segments takes "
            f"{least:,}: give at least {least - budget:,} more."
        )

    if sum(max(n, 1) * price for n, price in sizes) <= budget:
        return [max(n, 1) for n, _ in sizes]

    def worth(saving: float) -> list[int]:
        """The slots of each segment that save at least so many steps for their price."""
        return [_slots_worth(max(n, 1), price * saving) for n, price in sizes]

    def left(slots: list[int]) -> int:
        return budget - sum(count * price for count, (_, price) in zip(slots, sizes, strict=True))

    low, high = 0.0, 1.0 + max(n * n for n, _ in sizes)
    for _ in range(64):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if left(worth(middle)) < 0 else (low, middle)
    return _exchanged(sizes, worth(high), left)


def _exchanged(sizes: list[tuple[int, int]], slots: list[int], left: Callable) -> list[int]:
    """Take up what is left of a budget, and move slots between segments as long as that saves steps.

    The savings of a segment fall with every slot but for small dents, which this evens out.
    """

    def saved(i: int, to: int) -> int:
        return advances(sizes[i][0], slots[i]) - advances(sizes[i][0], to)

    while True:
        moves = []
        for i, (n, price) in enumerate(sizes):
            more = min(slots[i] + left(slots) // max(price, 1), n)
            moves.append((saved(i, more), {i: more}))
            for j, (_, other) in enumerate(sizes):
                enough = -(-max(price - left(slots), 0) // max(other, 1))
                if i != j and slots[i] < n and slots[j] > enough:
                    gain = saved(i, slots[i] + 1) + saved(j, slots[j] - enough)
                    moves.append((gain, {i: slots[i] + 1, j: slots[j] - enough}))
        gain, move = max(moves, key=lambda move: move[0])
        if gain <= 0:
            return slots
        slots = [move.get(i, count) for i, count in enumerate(slots)]


def _slots_worth(n: int, saving: float) -> int:
    """The most slots the last of which saves at least so many steps; the savings fall, so halve."""
    low, high = 1, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _saving(n, middle) >= saving else (low, middle - 1)
    return low


def _saving(n: int, slots: int) -> int:
    """Steps saved by the last of so many slots."""
    return advances(n, slots - 1) - advances(n, slots)


def _footprints(tape: "Tape", x) -> list[Footprint]:
    found = []

    def run(x):
        for segment in tape.segments:
            found.append(_footprint(segment, x))
            x = segment.scheduled(StoreAll())(x)

    jax.eval_shape(run, x)
    return found


def _footprint(segment: Segment, state) -> Footprint:
    if segment.is_bridge(state):
        return step_footprint(segment.step, segment.node(0), state)
    budget = Budget(segment.capacity, 1)
    chain, arrays, *_ = trace(segment.scanned, state, segment.params, budget, False)
    if segment.keeps_all:
        return stored_footprint(chain, arrays)
    return footprint_of(chain, arrays, getattr(segment.schedule, "checkpoint_dtype", None))


def _part(segment: Segment, footprint: Footprint) -> Part:
    n, name = len(segment), operation_name(segment.step)
    if segment.keeps_all or not n:
        return Part(name, n, segment.schedule, 0, n, 0, segment.slots, 0, footprint)
    table = segment.table
    advanced, repetition = table.count_advances() + 1, table.count_repetition()
    counts = advanced, n, repetition, segment.slots, segment.host_slots
    return Part(name, n, segment.schedule, *counts, footprint)
