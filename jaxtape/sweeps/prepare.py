"""Prepare a chain for reversal: find the leaves to keep, resolve a budget, decide on shared values."""

import dataclasses

from .chain import AbstractExecutor, Active, Arrays, Chain
from .dependence import needed_state
from .differentiable import pulled_leaves
from .footprint import Measure
from .leaves import is_symbolic
from .pullback import fewest_to_broadcast
from .residual_executor import ResidualExecutor
from .state_store import host_slots
from .static_executor import StaticExecutor
from .within_budget import schedule_within


def prepare_for_reverse(chain: Chain, active: Active, arrays: Arrays) -> tuple[Chain, Active]:
    """Return the prepared chain, and the active leaves whose cotangents can be pulled back.

    `ValueError` is raised if a budget is too small, or is given while a shape is symbolic (`jax.export`), or if
    states are in the host's memory and the step has ordered side effects.
    """
    try:
        needed = needed_state(chain, active, arrays)
    except Exception:
        active = pulled_leaves(chain, active, arrays)
        needed = needed_state(chain, active, arrays)
    chain = dataclasses.replace(chain, needed=needed, pulled=active)
    chain = dataclasses.replace(chain, executor=resolve_budget(chain, active, arrays))
    if not is_symbolic(tuple(arrays)):  # bytes are known
        least = fewest_to_broadcast(chain, active, arrays)
        chain = dataclasses.replace(chain, broadcasts=chain.executor.table.slots >= least)
    _check_effects(chain)
    return chain, active


def resolve_budget(chain: Chain, active: Active, arrays: Arrays) -> AbstractExecutor:
    """Return the executor with its budget replaced by slots, which needs the types of the states.

    Raises:
        ValueError: If a shape is symbolic.
    """
    executor, budget = chain.executor, chain.executor.budget
    if budget is None:
        return executor
    if is_symbolic(tuple(arrays)):
        raise ValueError(
            f"A budget of {budget:,} bytes needs concrete shapes, and the shape of an array "
            "is symbolic: give a number of slots, such as Revolve(slots=12), or export a program "
            "for each size."
        )
    measure = Measure(chain, active, arrays)
    schedule, _ = schedule_within(measure, budget, chain.length, residuals=executor.residuals)
    if schedule.ends_in_residuals:
        return ResidualExecutor.of(schedule, chain.length)
    assert isinstance(executor, StaticExecutor)
    table = schedule.table(chain.length)
    return dataclasses.replace(executor, table=table, budget=None, residuals=False)


def _check_effects(chain: Chain) -> None:
    ordered = [effect for effect in chain.jaxpr.effects if str(effect).startswith("Ordered")]
    if ordered and host_slots(chain.executor):
        raise ValueError(
            f"The step has ordered side effects ({', '.join(map(str, ordered))}), which JAX does not compile "
            "beside states in the host's memory: give ordered=False, or Revolve(slots) for MultiStage."
        )
