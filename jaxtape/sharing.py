"""How a budget is divided among the segments of a tape."""

from collections.abc import Callable, Sequence

import jax

from .schedules.schedule import AbstractSchedule, Budget, Revolve, StoreAll
from .schedules.table import advances, slots_within
from .segment import Segment
from .sweeps.chain import trace
from .sweeps.executor import Scheduled
from .sweeps.footprint import Footprint, footprint_of, peak_bytes, step_footprint, stored_footprint

Segments = Sequence[Segment]


def divided(segments: Segments, x) -> list[AbstractSchedule]:
    """Return the schedules, with a share of the budget for each segment, and slots for one that is edited.

    A segment that is not edited sees its states, batched or not, when it is differentiated.

    Raises:
        TypeError: If the nodes of an edited segment cannot be counted here.
    """
    if not all(segment.is_known for segment in segments):
        budget = next(s.schedule for s in segments if s.schedule.budget is not None)
        raise TypeError(
            f"{budget} of a tape that was edited cannot be taken up where its nodes are traced: outside of "
            "jax.jit, tape.with_schedule(jt.plan(tape, x).schedule) makes it a number of slots."
        )
    found = footprints(segments, x)
    schedules = settled(segments, found)
    kept = _kept_bytes(segments, schedules, found)
    left = max(_budget(segments) - sum(kept) - max(f.work for f in found), 0)
    sizes = [len(s) * f.state for s, f in zip(segments, found, strict=True)]
    shares = [left * size // max(sum(sizes), 1) for size in sizes]
    for i, segment in enumerate(segments):
        if segment.schedule.budget is not None and segment.edits is None:
            share, dtype = found[i].work + kept[i] + shares[i], segment.schedule.checkpoint_dtype
            schedules[i] = Budget(share, checkpoint_dtype=dtype)
    return schedules


def settled(segments: Segments, found: list[Footprint]) -> list[AbstractSchedule]:
    """Return the schedules, with slots in the place of every budget, from the footprints of the segments."""
    budget, reserved, sizes = _budget(segments), max(footprint.work for footprint in found), []
    for segment, (_, state) in zip(segments, found, strict=True):
        if segment.schedule.budget is not None:
            sizes.append((len(segment), state))
            reserved += len(segment.marks) * state
        else:
            reserved += segment.slots * state
    if len(sizes) == 1:
        return _filled(segments, [slots_within(budget, sizes[0][0], reserved, sizes[0][1])])
    last = sum(state for _, state in sizes)  # a segment's last state has a slot of its own
    left = budget - reserved - last
    given = _filled(segments, shared_slots(sizes, left))
    # the work of all segments is not there at the peak
    spare = budget - peak_bytes(_kept_bytes(segments, given, found), found)
    for more in (spare, spare // 2, spare // 4):
        fuller = _filled(segments, shared_slots(sizes, left + more))
        if peak_bytes(_kept_bytes(segments, fuller, found), found) <= budget:
            return fuller
    return given


def _filled(segments: Segments, slots: list[int]) -> list[AbstractSchedule]:
    """Return the schedules, with these numbers of slots in the place of the budgets."""
    numbers = iter(slots)
    return [
        schedule
        if schedule.budget is None
        else Revolve(max(next(numbers), 1), checkpoint_dtype=schedule.checkpoint_dtype)
        for schedule in (segment.schedule for segment in segments)
    ]


def _kept_bytes(
    segments: Segments, schedules: list[AbstractSchedule], found: list[Footprint]
) -> list[int]:
    """Return the bytes of the states that each segment keeps under its schedule."""
    triples = zip(segments, schedules, found, strict=True)
    return [segment.scheduled(one).slots * f.state for segment, one, f in triples]


def _budget(segments: Segments) -> int:
    budgets = (segment.schedule.budget for segment in segments)
    return min(budget for budget in budgets if budget is not None)


def shared_slots(sizes: list[tuple[int, int]], budget: int) -> list[int]:
    """Return slots for segments of `(nodes, price of a slot)` that take the fewest steps within a budget.

    Raises:
        ValueError: If the budget does not hold one slot each.
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
        """Return the slots of each segment that save at least so many steps for their price."""
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
    """Return the most slots the last of which saves at least so many steps; the savings fall, so halve."""
    low, high = 1, n
    while low < high:
        middle = (low + high + 1) // 2
        saves_enough = advances(n, middle - 1) - advances(n, middle) >= saving
        low, high = (middle, high) if saves_enough else (low, middle - 1)
    return low


def footprints(segments: Segments, x) -> list[Footprint]:
    """Measure each segment, from state `x` or from one of its types."""
    found = []

    def run(x):
        for segment in segments:
            found.append(_footprint(segment, x))
            x = segment.scheduled(StoreAll())(x)

    jax.eval_shape(run, x)
    return found


def _footprint(segment: Segment, state) -> Footprint:
    if not segment.capacity:
        return Footprint(0, 0)
    if segment.is_bridge(state):
        return step_footprint(segment.step, segment.node(0), state)
    executor = segment.executor
    if segment.schedule.budget is not None:  # though the segment is edited
        executor = Scheduled.of(segment.schedule, segment.capacity)
    chain, arrays, *_ = trace(segment.scanned, state, segment.params, executor)
    measured = stored_footprint if segment.keeps_residuals else footprint_of
    return measured(chain, arrays)
