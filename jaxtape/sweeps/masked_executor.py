"""The executor of a chain of unknown length: by its table on CPUs, by masked ticks on GPUs and TPUs."""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp

from ..schedules import online
from .by_platform import by_platform
from .chain import Active, Arrays, Chain
from .leaves import get, pick, put
from .masked_ticks import MaskedReverse, count_of, masked_loop, where
from .pullback import SharedValues
from .state_store import StateStore, packed
from .while_executor import WhileExecutor, end_of_row, row_after, slot_of_row


@dataclasses.dataclass(frozen=True)
class MaskedExecutor(WhileExecutor):
    """The executor, on any platform, of a chain that runs until its condition fails."""

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
        return self._swept("first_sweep", _first_sweep, (chain,), arrays)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        return self._swept("reverse_sweep", _reverse_sweep, (chain, active), arrays, kept, bars)

    def _swept(self, name: str, masked: Callable, static: tuple, *args):
        """Call the platform's sweep; a step with side effects, which are not masked, follows the table."""
        by_table = functools.partial(getattr(super(), name), *static)
        if static[0].jaxpr.effects:
            return by_table(*args)
        return by_platform(by_table, functools.partial(masked, *static), *args)


def _first_sweep(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, tuple]:
    """Run a chain, and return its state, no ys, and `(slots, position, steps)`."""
    consts, table = arrays.consts, chain.executor.table
    store = StateStore.of(chain, arrays.init)

    def lives(carry):
        *_, steps, _, more = carry
        return more & (steps < chain.length)

    def tick(_, carry):
        row, slots, position, steps, state, more = carry
        at, start = (*row[:3],), row[3]
        live = lives(carry)
        keeps = live & (steps == start)
        slot = slot_of_row(table, at)
        kept = store.encode(pick(chain.needed, state)), (steps,)
        slots, (position,) = (
            put(stacks, where(keeps, new, get(stacks, slot)), slot)
            for stacks, new in zip((slots, (position,)), kept, strict=True)
        )
        end = end_of_row(table, at)
        if table.refreshes:
            near = steps + jnp.minimum(end - steps, online.REFRESH)
            end = jnp.where(steps < online.REFRESHED, end, near)
        row = jnp.where(keeps, jnp.stack([*row_after(table, at, end), end]), row)
        # the step may have no derivative at the state where the loop stopped
        moved, _ = chain.step(consts, where(live, state, arrays.init), ())
        state = where(live, moved, state)
        more = live & chain.continues(consts, state)
        return row, slots, position, steps + count_of(live), state, more

    none, (_, slots) = jnp.full(table.slots, -1, jnp.int32), store.empty()
    more = chain.continues(consts, arrays.init)
    start = jnp.zeros(4, jnp.int32), slots, none, jnp.int32(0), arrays.init, more
    _, slots, position, steps, state, _ = masked_loop(lives, tick, start)
    return state, (), (store.unpack(((), slots)), position, steps)


def _reverse_sweep(chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
    """Pull back the cotangent of the last state, from what the first sweep kept."""
    shared = SharedValues.of(chain, active, arrays.consts)
    (slots, position, steps), (state_bar, _) = kept, bars
    table = chain.executor.table
    sweep = MaskedReverse(shared, arrays, table.slots, None if table.dense else table.betas)
    start = packed(chain, slots), position, steps, (state_bar, shared.init())
    init_bar, shared_bar, _ = sweep.pull_nodes(*start)
    return Arrays(shared.finish(shared_bar), init_bar, ())
