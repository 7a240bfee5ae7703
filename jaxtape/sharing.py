"""Slots shared among the segments of a tape."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from .schedules.binomial import advances
from .schedules.schedule import AbstractSchedule, Fit, Revolve, StoreAll
from .schedules.table import slots_within
from .segment import Segment
from .sweeps.chain import trace
from .sweeps.footprint import Footprint, footprint_of, peak_bytes, step_footprint, stored_footprint

if TYPE_CHECKING:
    from .tape import Tape


def shared(tape: "Tape", x) -> "Tape":
    """The tape with a share of its budget for each segment, and slots for one that is edited.

    A segment that is not edited sees its states, batched or not, when it is differentiated.
    """
    fits = _fits(tape)
    if not fits or (len(tape.segments) == 1 and tape.segments[0].edits is None):
        return tape
    if not all(segment.is_known for segment in tape.segments):
        raise TypeError(
            f"{fits[0]} of a tape that was edited cannot be taken up where its nodes are traced: outside of "
            "jax.jit, tape.with_schedule(jt.plan(tape, x).schedule) makes it a number of slots."
        )
    found = footprints(tape, x)
    slots = settled(tape, found)
    kept = [s.slots * f.state for s, f in zip(slots.segments, found, strict=True)]
    left = max(_budget(fits) - sum(kept) - max(f.work for f in found), 0)
    sizes = [len(s) * f.state for s, f in zip(tape.segments, found, strict=True)]
    shares = [left * size // max(sum(sizes), 1) for size in sizes]
    schedules: list[AbstractSchedule] = []
    for i, segment in enumerate(tape.segments):
        schedule = slots.segments[i].schedule
        if isinstance(segment.schedule, Fit) and segment.edits is None:
            share = found[i].work + kept[i] + shares[i]
            schedule = dataclasses.replace(segment.schedule, bytes=share)
        schedules.append(schedule)
    return tape.with_schedule(schedules)


def with_slots(tape: "Tape", x) -> "Tape":
    """The tape with a number of slots in the place of every budget."""
    return settled(tape, footprints(tape, x)) if _fits(tape) else tape


def settled(tape: "Tape", found: list[Footprint]) -> "Tape":
    """The tape with a number of slots in the place of every budget, from the footprints of its segments."""
    fits = _fits(tape)
    if not fits:
        return tape
    budget, reserved, sizes = _budget(fits), max(footprint.work for footprint in found), []
    for segment, (_, state) in zip(tape.segments, found, strict=True):
        if isinstance(segment.schedule, Fit):
            sizes.append((len(segment), state))
            reserved += len(segment.marks) * state
        else:
            reserved += segment.slots * state
    if len(sizes) == 1:
        return _filled(tape, [slots_within(budget, sizes[0][0], reserved, sizes[0][1])])
    last = sum(state for _, state in sizes)  # a segment's last state has a slot of its own
    room = budget - reserved - last
    given = _filled(tape, shared_slots(sizes, room))
    spare = budget - _peak(given, found)  # the work of all segments is not there at the peak
    for more in (spare, spare // 2, spare // 4):
        fuller = _filled(tape, shared_slots(sizes, room + more))
        if _peak(fuller, found) <= budget:
            return fuller
    return given


def _filled(tape: "Tape", slots: list[int]) -> "Tape":
    """The tape with these numbers of slots in the place of its budgets."""
    left = iter(slots)
    schedules = [
        Revolve(next(left), checkpoint_dtype=s.schedule.checkpoint_dtype)
        if isinstance(s.schedule, Fit)
        else s.schedule
        for s in tape.segments
    ]
    return tape.with_schedule(schedules)


def _peak(tape: "Tape", found: list[Footprint]) -> int:
    kept = [s.slots * f.state for s, f in zip(tape.segments, found, strict=True)]
    return peak_bytes(kept, found)


def _fits(tape: "Tape") -> list[Fit]:
    return [s.schedule for s in tape.segments if isinstance(s.schedule, Fit)]


def _budget(fits: list[Fit]) -> int:
    return min(fit.bytes for fit in fits)


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


def footprints(tape: "Tape", x) -> list[Footprint]:
    """Of each segment of a tape from state `x`, or from one of its types."""
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
    chain, arrays, *_ = trace(segment.scanned, state, segment.params, segment.room, False)
    return stored_footprint(chain, arrays) if segment.keeps_all else footprint_of(chain, arrays)
