"""The schedule of a chain within a budget: states first, then residuals, where each byte saves most work.

One more slot saves at least one run of a step. With a slot for every state each node is still run twice: in
the first sweep, and again for its pullback. Further bytes hold the residuals of the last nodes, which spare
the second run.
"""

import dataclasses

import jax

from ..jax_private import dce_jaxpr
from ..schedules.schedule import AbstractSchedule, Revolve, StoreAll
from ..schedules.store_last import StoreLast
from .cost import flops
from .dependence import pullback_of_node, zeros_like
from .footprint import Footprint, Measure, footprint, is_manual
from .leaves import first_node, is_symbolic, pick
from .residual_executor import ResidualExecutor
from .residuals import Residuals

_KINDS = (
    StoreAll(jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
    StoreAll(jax.checkpoint_policies.dots_saveable),
    StoreAll(),
)
_ARE_PRODUCTS = "dot_general", "conv_general_dilated"
_WORTH = (
    8  # operations saved per byte: the number that a core does while it writes and reads a byte
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """The bytes that a schedule keeps of each node, and the operations of the node's pullback from them."""

    schedule: AbstractSchedule
    bytes: int
    work: int

    @classmethod
    def of_states(cls, measure: Measure, schedule: AbstractSchedule) -> "Kept":
        """Return a state of each node, from which the node is run again."""
        pullback = pullback_of_node(measure.chain, measure.active, measure.arrays)
        return cls(schedule, measure.state, _work(pullback))

    @classmethod
    def of_residuals(cls, measure: Measure, schedule: AbstractSchedule) -> "Kept":
        """Return residuals of each node; the pullback recomputes those that are not kept."""
        chain, active, arrays = measure.chain, measure.active, measure.arrays
        chain = dataclasses.replace(chain, pulled=active)
        residuals = Residuals.of(chain, arrays, schedule, chain.length)

        def pull(consts, state, x):
            new, y = chain.step(consts, state, x)
            bars = jax.tree.map(zeros_like, (pick(active.state, new), pick(active.ys, y)))
            return residuals.pull(consts, x, residuals.empty(1), 0, bars)

        pullback = jax.make_jaxpr(pull)(*arrays._replace(xs=first_node(arrays.xs)))
        return cls(schedule, residuals.bytes, _work(pullback.jaxpr))

    def worth(self, before: "Kept") -> float:
        """Return the operations that it saves over another, per additional byte."""
        return (before.work - self.work) / max(self.bytes - before.bytes, 1)


def schedule_within(
    measure: Measure, budget: int, length: int, marks: int = 0, residuals: bool = True
) -> tuple[AbstractSchedule, Footprint]:
    """Return the schedule of the least work within a budget, and its footprint.

    `ValueError` is raised if not one state fits.

    Args:
        measure: The measure of the chain's gradient.
        budget: The most bytes of temporaries.
        length: The number of live nodes.
        marks: The number of states that are kept in any case.
        residuals: Whether residuals may be kept.
    """
    slots = measure.slots_within(budget, length, marks)
    dtype = measure.chain.executor.checkpoint_dtype
    states, found = Revolve(max(slots, 1), checkpoint_dtype=dtype), measure.footprint(slots)
    if slots < length or not residuals or not _may_keep(measure):
        return states, found
    kept = Kept.of_states(measure, states)
    kinds = [Kept.of_residuals(measure, schedule) for schedule in _KINDS]
    while better := [kind for kind in kinds if kind.worth(kept) >= _WORTH]:
        best = max(better, key=lambda kind: kind.worth(kept))
        if length * best.bytes > budget:
            return _of_the_last(measure, budget, kept, found, best)
        whole = Footprint(_footprint(measure, best.schedule).work, best.bytes, False)
        if whole.work + length * best.bytes > budget:
            return _of_the_last(measure, budget, kept, found, best)
        kept, found = best, whole
    return kept.schedule, found


def _of_the_last(
    measure: Measure, budget: int, kept: Kept, found: Footprint, best: Kept
) -> tuple[AbstractSchedule, Footprint]:
    """Return the schedule that keeps the best of the most last nodes that fit in a budget."""
    length, more = measure.chain.length, max(best.bytes - kept.bytes, 1)
    count = min((budget - found.work - length * kept.bytes) // more, length - 1)
    while count > 0:
        last = StoreLast(count, kept.schedule, policy=best.schedule.policy)
        of_last = _footprint(measure, last)
        slots = 0 if kept.schedule.keeps_residuals else length - count
        excess = of_last.work + slots * of_last.state + of_last.residuals - budget
        if excess <= 0:
            return last, of_last
        count -= -(-excess // more)
    return kept.schedule, found


def _footprint(measure: Measure, schedule: AbstractSchedule) -> Footprint:
    """Return the footprint under a schedule that ends in residuals."""
    executor = ResidualExecutor.of(schedule, measure.chain.length)
    broadcasts = measure.broadcasts(executor.table.slots)
    chain = dataclasses.replace(measure.chain, executor=executor, broadcasts=broadcasts)
    return footprint(chain, measure.active, measure.arrays)


def _may_keep(measure: Measure) -> bool:
    """Return True if a step has products of matrices, and its bytes can be measured."""
    chain, arrays = measure.chain, measure.arrays
    if chain.executor.checkpoint_dtype is not None or is_symbolic(tuple(arrays)):
        return False
    return not is_manual(chain, arrays) and flops(chain.jaxpr, _ARE_PRODUCTS) > 0


def _work(jaxpr) -> int:
    """Return the operations on which the outputs of a jaxpr depend."""
    return flops(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0])
