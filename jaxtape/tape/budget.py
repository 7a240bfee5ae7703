"""Divide a budget among the segments of a tape."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ..schedules.schedule import (
    AbstractSchedule,
    Budget,
    Revolve,
    StoreAll,
)
from ..schedules.table import advances
from ..sweeps.chain import trace
from ..sweeps.differentiable import differentiable_leaves
from ..sweeps.footprint import (
    FixedMeasure,
    Footprint,
    Measure,
    most_work,
    peak_bytes,
    stored_bridge,
    stored_footprint,
)
from ..sweeps.indexed_executor import with_schedule_arrays
from ..sweeps.leaves import Mask, leaf_bytes
from ..sweeps.within_budget import schedule_within
from .segment import Segment

Segments = Sequence[Segment]
Measures = Sequence[Measure | FixedMeasure]


def divide_budget(segments: Segments, x) -> list[AbstractSchedule]:
    """Return the schedules, with a share of the budget for each segment, as slots if the segment is edited.

    An unedited segment resolves its share when it is differentiated, and its states, batched or not, are known.

    Raises:
        TypeError: If the nodes of an edited segment cannot be counted here.
    """
    if not all(segment.is_known for segment in segments):
        budget = next(s.schedule for s in segments if s.schedule.budget is not None)
        raise TypeError(
            f"{budget} of an edited tape cannot be resolved where its nodes are traced: outside "
            f"of "
            "jax.jit, tape.with_schedule(jt.plan(tape, x).schedule) turns it into a number "
            f"of slots."
        )
    measures = measure_segments(segments, x)
    schedules = resolve_budgets(segments, measures)
    stored = [schedule.ends_in_residuals for schedule in schedules]
    if any(stored):
        measures = measure_segments(list(map(Segment.scheduled, segments, schedules)), x)
    found = footprints(segments, schedules, measures)
    kept = _kept_bytes(segments, schedules, found)
    left = max(_budget(segments) - sum(kept) - most_work(found), 0)
    triples = zip(segments, found, stored, strict=True)
    sizes = [0 if all_of_it else len(s) * f.state for s, f, all_of_it in triples]
    shares = [left * size // max(sum(sizes), 1) for size in sizes]
    for i, segment in enumerate(segments):
        if segment.schedule.budget is not None and segment.edits is None:
            share, dtype = found[i].work + kept[i] + shares[i], segment.schedule.checkpoint_dtype
            share = max(share, 1)  # a node such as `detach` keeps nothing
            schedules[i] = Budget(share, residuals=stored[i], checkpoint_dtype=dtype)
    return schedules


def resolve_budgets(
    segments: Segments, measures: Measures, residuals: bool = True
) -> list[AbstractSchedule]:
    """Replace every budget by a number of slots, or by `StoreAll` if its `residuals` may be kept.

    `ValueError` is raised if the budget does not hold the first state of every segment and the work of a node.
    """
    budget = _budget(segments)
    if len(segments) == 1:
        ((segment,), (measure,)) = segments, measures
        if isinstance(measure, FixedMeasure):
            return _filled(segments, [len(segment)])
        marks, may_keep = len(segment.marks), residuals and measure.chain.executor.residuals
        return [schedule_within(measure, budget, len(segment), marks, may_keep)[0]]
    rich = [m.footprint(budget // max(m.state, 1)) for m in measures]
    costs = [measure.cost for measure in measures]
    try:
        given = _shared(segments, rich, costs, budget)
    except ValueError:  # fewer states may fit, because the work beside them is smaller
        given = _shared(segments, [m.footprint(1) for m in measures], costs, budget)
    excess = _peak(segments, given, measures) - budget
    least = budget
    while excess > 0:
        least -= excess
        given = _shared(segments, footprints(segments, given, measures), costs, least)
        excess = _peak(segments, given, measures) - budget
    return _stored_beside(segments, given, measures, budget) if residuals else given


def _stored_beside(
    segments: Segments, given: list[AbstractSchedule], measures: Measures, budget: int
) -> list[AbstractSchedule]:
    """Return the schedules, with `StoreAll` where it is worth its bytes and the slots leave room for it."""
    given, found = list(given), footprints(segments, given, measures)
    kept = _kept_bytes(segments, given, found)
    for i, (segment, measure) in enumerate(zip(segments, measures, strict=True)):
        spare = budget - peak_bytes(kept, found)
        if segment.schedule.budget is None or isinstance(measure, FixedMeasure):
            continue
        share = kept[i] + found[i].work + spare
        filled, works = list(given), list(found)
        may_keep = measure.chain.executor.residuals
        marks = len(segment.marks)
        filled[i], works[i] = schedule_within(measure, share, len(segment), marks, may_keep)
        fuller = _kept_bytes(segments, filled, works)
        if filled[i].ends_in_residuals and peak_bytes(fuller, works) <= budget:
            given, kept, found = filled, fuller, works
    return given


def _shared(
    segments: Segments, found: list[Footprint], costs: list[int], budget: int
) -> list[AbstractSchedule]:
    """Replace every budget by slots, from the measures of the segments; return the schedules."""
    reserved, sizes = most_work(found), []
    for segment, footprint, cost in zip(segments, found, costs, strict=True):
        if segment.schedule.budget is not None:
            sizes.append(Size(len(segment), footprint.state, cost))
            reserved += len(segment.marks) * footprint.state
        else:
            reserved += segment.slots * footprint.state
    last = sum(size.price for size in sizes)  # a segment's last state has a separate slot
    left = budget - reserved - last
    given = _filled(segments, shared_slots(sizes, left))
    # not all segments are at work at the peak
    spare = budget - peak_bytes(_kept_bytes(segments, given, found), found)
    for more in (spare, spare // 2, spare // 4):
        fuller = _filled(segments, shared_slots(sizes, left + more))
        if peak_bytes(_kept_bytes(segments, fuller, found), found) <= budget:
            return fuller
    return given


def _peak(segments: Segments, schedules: list[AbstractSchedule], measures: Measures) -> int:
    """Return the peak bytes under schedules without a budget."""
    found = footprints(segments, schedules, measures)
    return peak_bytes(_kept_bytes(segments, schedules, found), found)


def _filled(segments: Segments, slots: list[int]) -> list[AbstractSchedule]:
    """Return the schedules, with each budget replaced by a number of slots."""
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
    """Return the bytes that each segment keeps under its schedule."""
    triples = zip(segments, schedules, found, strict=True)
    return [segment.scheduled(one).slots * f.state + f.residuals for segment, one, f in triples]


def _budget(segments: Segments) -> int:
    budgets = (segment.schedule.budget for segment in segments)
    return min(budget for budget in budgets if budget is not None)


class Size(NamedTuple):
    """The size of a segment for a budget: its nodes, the price of a slot, and the cost of a repeated step."""

    nodes: int
    price: int
    cost: int | float = 1

    def work(self, slots: int) -> int | float:
        """Return the forward work with these slots."""
        return self.cost * advances(self.nodes, slots)


def shared_slots(sizes: Sequence[Size], budget: int) -> list[int]:
    """Return the slots per segment that minimize the forward work within a budget.

    Raises:
        ValueError: If the budget does not hold one slot per segment.
    """
    least = sum(size.price for size in sizes)
    if budget < least:
        raise ValueError(
            f"What is left of the budget is {budget:,}, and one state for each of {len(sizes)} segments takes "
            f"{least:,}: give at least {least - budget:,} more."
        )

    if sum(max(size.nodes, 1) * size.price for size in sizes) <= budget:
        return [max(size.nodes, 1) for size in sizes]

    def worth(saving: float) -> list[int]:
        """Return the slots of each segment that save at least `saving` of work per unit of price."""
        return [_slots_worth(size, saving) for size in sizes]

    def left(slots: list[int]) -> int:
        return budget - sum(count * size.price for count, size in zip(slots, sizes, strict=True))

    low, high = 0.0, 1.0 + max(size.nodes**2 * max(size.cost, 1.0) for size in sizes)
    for _ in range(64):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if left(worth(middle)) < 0 else (low, middle)
    return _exchanged(sizes, worth(high), left)


def _exchanged(sizes: Sequence[Size], slots: list[int], left: Callable) -> list[int]:
    """Use up the rest of a budget, and move slots between segments as long as that saves work.

    The savings of a segment decrease with every slot, apart from small irregularities, which this corrects.
    """

    def saved(i: int, to: int) -> int | float:
        return sizes[i].work(slots[i]) - sizes[i].work(to)

    while True:
        moves = []
        for i, size in enumerate(sizes):
            more = min(slots[i] + left(slots) // max(size.price, 1), size.nodes)
            moves.append((saved(i, more), {i: more}))
            for j, other in enumerate(sizes):
                if i == j or not other.price:  # free slots give nothing back
                    continue
                enough = -(-max(size.price - left(slots), 0) // other.price)
                if slots[i] < size.nodes and slots[j] > enough:
                    gain = saved(i, slots[i] + 1) + saved(j, slots[j] - enough)
                    moves.append((gain, {i: slots[i] + 1, j: slots[j] - enough}))
        gain, move = max(moves, key=lambda move: move[0])
        if gain <= 0:
            return slots
        slots = [move.get(i, count) for i, count in enumerate(slots)]


def _slots_worth(size: Size, saving: float) -> int:
    """Return the largest number of slots whose last one is worth its price. Savings decrease, so bisect."""
    low, high = 1, max(size.nodes, 1)
    while low < high:
        middle = (low + high + 1) // 2
        saves_enough = size.work(middle - 1) - size.work(middle) >= size.price * saving
        low, high = (middle, high) if saves_enough else (low, middle - 1)
    return low


def measure_segments(segments: Segments, x) -> Measures:
    """Return a measure of each segment, from the first state `x` or its types."""
    found = []

    def run(x):
        varied = None
        for segment in segments:
            measure, varied = _measured(segment, x, varied)
            found.append(measure)
            x = segment.scheduled(StoreAll())(x)

    jax.eval_shape(run, x)
    return found


def footprints(
    segments: Segments, schedules: Sequence[AbstractSchedule], measures: Measures
) -> list[Footprint]:
    """Return the footprints of the gradients of segments under schedules without a budget."""
    triples = zip(segments, schedules, measures, strict=True)
    return [m.footprint(segment.scheduled(schedule).slots) for segment, schedule, m in triples]


def _measured(segment: Segment, state, varied: Mask | None) -> tuple[Measure | FixedMeasure, Any]:
    """Return the measure of a segment, and the mask of the leaves of the state after it that vary."""
    if not segment.capacity:
        return FixedMeasure(Footprint(0, 0)), varied
    if segment.is_bridge(state):
        chain, arrays, _ = segment.bridge(state)
        active = differentiable_leaves(chain, arrays, varied)
        if segment.applied.keeps_residuals:
            return FixedMeasure(stored_bridge(chain, arrays, active, segment.applied)), active.ys
        work = Measure.of(chain, active, arrays).footprint(1).work
        return FixedMeasure(Footprint(work, leaf_bytes(jax.tree.leaves(state)))), active.ys
    chain, arrays, *_ = trace(segment.scanned, state, segment.params, segment.executor)
    if segment.edits is not None:
        chain, arrays = with_schedule_arrays(chain, arrays, segment.edits.arrays)
    active = differentiable_leaves(chain, arrays, varied)
    if segment.keeps_residuals:
        return FixedMeasure(stored_footprint(chain, arrays, active, segment.applied)), active.state
    return Measure.of(chain, active, arrays), active.state
