"""Sweeps that follow a `LockstepPlan`: every loop has a known length, and slots are written in place."""

import dataclasses

import jax.numpy as jnp
from jax import lax

from ..schedules.lockstep import LockstepPlan, LockstepRun
from .chain import Arrays, Chain
from .executor import Forward, TableExecutor
from .leaves import get, merge, pick, put
from .pullback import SharedValues
from .state_store import host_slots


@dataclasses.dataclass(frozen=True)
class LockstepExecutor(TableExecutor):
    """The executor of unedited nodes that follows a plan.

    The first slots hold the states before the plan's blocks, and the others those of a block or of the tail.

    Attributes:
        plan: The plan, with the slots of the table.
    """

    plan: LockstepPlan = dataclasses.field(kw_only=True)

    @property
    def first_place(self) -> int:
        """The first slot after those of the states before blocks."""
        return self.table.host_slots or self.plan.starts

    def keep_states(self, chain: Chain, arrays: Arrays, forward: Forward, start: tuple) -> tuple:
        del chain, arrays
        plan, (slots, carry) = self.plan, start
        size = len(plan.block)

        def block(j, reached):
            slots, position, carry = forward.keep(reached, j, on_host=True)
            node = lambda i, carry: forward.step(position + i, carry)
            return slots, position + size, lax.fori_loop(0, size, node, carry)

        reached = slots, jnp.int32(0), carry
        if plan.starts:
            reached = lax.fori_loop(0, plan.starts, block, reached)
        places = self.first_place + plan.tail.keep
        slots, _, carry = forward.keep_each(reached, places, on_host=False)
        return slots, carry

    def pull_nodes(
        self, shared: SharedValues, arrays: Arrays, start: tuple, ys_bar: tuple
    ) -> tuple[tuple, tuple, tuple]:
        """Pull back the tail, then rerun and pull back each block.

        If a block's first state is in the host's memory, it is read while the block after it is pulled back.
        """
        plan, chain, active = self.plan, shared.chain, shared.active
        forward = Forward.of_needed(chain, arrays)
        store, size, base = forward.store, len(plan.block), self.first_place

        def pull_run(run: LockstepRun, first, carry: tuple) -> tuple:
            """Pull back the nodes of a run whose first node is `first`."""
            places, sources = base + jnp.asarray(run.slot), jnp.asarray(run.source)

            def pull_node(i, carry: tuple, takes_step: bool) -> tuple:
                (slots, state_bar, shared_bar), xs_bar = carry
                leaves = store.get(slots, places[i], on_host=False)
                if takes_step:
                    source = sources[i]
                    origin = store.get(slots, places[source], on_host=False)
                    # read both before writing the slot, or XLA would copy the slots
                    leaves, origin, slots = lax.optimization_barrier((leaves, origin, slots))
                    new = forward.step(first + source, origin)
                    slots = store.put(slots, places[i], new, on_host=False)
                at = chain.executor.index(chain, first + i, arrays.consts)
                state = merge(chain.needed, leaves, arrays.init)  # other leaves are not read
                bars = state_bar, get(ys_bar, at)
                node_bar, state_bar, x_bar = shared.pull(state, get(arrays.xs, at), bars)
                shared_bar = tuple(map(jnp.add, shared_bar, node_bar))
                return (slots, state_bar, shared_bar), put(xs_bar, x_bar, at)

            ends = len(run), len(run) - run.late, run.first, 0
            for end, begin, takes_step in zip(ends, ends[1:], (False, True, False), strict=False):
                node = lambda t, carry, end=end, takes=takes_step: pull_node(
                    end - 1 - t, carry, takes
                )
                carry = lax.fori_loop(0, end - begin, node, carry) if end > begin else carry
            return carry

        def run_again(first, slots: tuple, leaves: tuple) -> tuple:
            """Run a block from its first state; keep the states needed to pull it back."""
            places = base + jnp.asarray(plan.block.keep)
            keep = lambda i, slots, leaves: store.put(slots, places[i], leaves, on_host=False)

            def node(i, carry):
                slots, leaves = carry
                return keep(i, slots, leaves), forward.step(first + i, leaves)

            slots, leaves = lax.fori_loop(0, size - 1, node, (slots, leaves))
            return keep(size - 1, slots, leaves)

        def pull_block(t, carry: tuple) -> tuple:
            ((slots, *bars), xs_bar), ahead = carry
            j = plan.starts - 1 - t
            leaves = ahead or store.get(slots, j, on_host=True)
            if ahead:
                ahead = store.get(slots, jnp.maximum(j - 1, 0), on_host=True)
            slots = run_again(j * size, slots, leaves)
            return pull_run(plan.block, j * size, ((slots, *bars), xs_bar)), ahead

        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        ahead = ()
        if host_slots(chain.executor):
            ahead = store.get(start[0], plan.starts - 1, on_host=True)
        carry = pull_run(plan.tail, plan.starts * size, (start, xs_bar))
        if plan.starts:
            carry, _ = lax.fori_loop(0, plan.starts, pull_block, (carry, ahead))
        (_, state_bar, shared_bar), xs_bar = carry
        return state_bar, shared_bar, xs_bar
