"""The residuals of nodes: the values that the first sweep keeps for their pullbacks."""

import dataclasses
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from ..jax_private import ClosedJaxpr, Var
from ..schedules.schedule import AbstractSchedule
from .chain import Arrays, Chain
from .leaves import first_node, get, leaf_bytes, merge, pick, put, with_bits_of, zeros_stack
from .state_store import encoded, packed


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """The residuals of a prepared chain's nodes that a schedule such as `StoreAll(policy)` keeps.

    A pullback reads shared values and the node's own x where they are: they are not kept.

    Attributes:
        chain: The chain. Its `pulled` leaves have cotangents.
        taped: A node, from consts, state and x to the next state, y and the leaves of its pullback.
        pullback: The structure of that pullback, and for each leaf that is a key its implementation.
        kept: The variables of `taped` that are kept.
    """

    chain: Chain
    taped: ClosedJaxpr
    pullback: tuple[Any, list]
    kept: tuple[Any, ...]

    @classmethod
    def of(
        cls, chain: Chain, arrays: Arrays, schedule: AbstractSchedule, nodes: int
    ) -> "Residuals":
        """Return the residuals of `nodes` consecutive nodes."""
        active, found = chain.pulled, []
        assert active is not None
        step = schedule.checkpointed(chain.step, prevent_cse=nodes == 1)

        def tape(*inputs):
            def run(*varied):
                state, y = step(*map(merge, active.inputs, varied, inputs))
                return (pick(active.state, state), pick(active.ys, y)), (state, y)

            _, pullback, out = jax.vjp(run, *map(pick, active.inputs, inputs), has_aux=True)
            leaves, structure = jax.tree.flatten(pullback)
            found.append((structure, [_key_impl(leaf) for leaf in leaves]))
            return out, [encoded(leaf, None) for leaf in leaves]

        taped = jax.make_jaxpr(tape)(*arrays._replace(xs=first_node(arrays.xs)))
        jaxpr, first = taped.jaxpr, len(arrays.consts)
        state = jaxpr.invars[first : first + chain.num_state]
        read_again = {*jaxpr.constvars, *jaxpr.invars} - {*state}
        leaves = [v for v in jaxpr.outvars[chain.num_outputs :] if isinstance(v, Var)]
        kept = dict.fromkeys(v for v in leaves if v not in read_again)
        return cls(chain, taped, found[-1], tuple(kept))

    @property
    def bytes(self) -> int:
        """The bytes of one node's residuals."""
        return leaf_bytes([v.aval for v in self.kept])

    def empty(self, nodes: int) -> tuple:
        """Return the stacks for residuals of some nodes."""
        return packed(self.chain, tuple(zeros_stack(nodes, v.aval) for v in self.kept))

    def unpack(self, stacks: tuple) -> tuple:
        """Return stacks with the integers that `packed` makes turned back into floats."""
        pairs = zip(stacks, self.kept, strict=True)
        return tuple(with_bits_of(stack, v.aval.dtype) for stack, v in pairs)

    def tape(self, inputs: tuple, stacks: tuple, i) -> tuple[tuple, tuple, tuple]:
        """Run a node and put its residuals in entry i: return the next state, y and the stacks."""
        jaxpr, chain = self.taped.jaxpr, self.chain
        leaves = [leaf for part in inputs for leaf in part]
        out = jax.core.eval_jaxpr(jaxpr, self.taped.consts, *leaves)
        state, y = out[: chain.num_state], out[chain.num_state : chain.num_outputs]
        pairs = zip(jaxpr.invars + jaxpr.outvars, leaves + out, strict=True)
        values = {v: value for v, value in pairs if isinstance(v, Var)}
        stacks = put(stacks, tuple(values[v] for v in self.kept), i)
        return tuple(state), tuple(y), stacks

    def pull(self, consts: tuple, x: tuple, stacks: tuple, i, bars: tuple) -> tuple:
        """Pull cotangents of the state and of y back, to those of the active consts, state and x."""
        jaxpr, (structure, impls) = self.taped.jaxpr, self.pullback
        first = len(jaxpr.invars) - len(x)
        values = dict(zip(jaxpr.constvars, self.taped.consts, strict=True))
        values |= zip(jaxpr.invars, consts, strict=False)
        values |= zip(jaxpr.invars[first:], x, strict=True)
        values |= zip(self.kept, self.unpack(get(stacks, i)), strict=True)
        leaves = jaxpr.outvars[self.chain.num_outputs :]
        read = [_value(*pair, values) for pair in zip(leaves, impls, strict=True)]
        return jax.tree.unflatten(structure, read)(bars)


def _key_impl(leaf) -> Any:
    """Return the implementation of a key, None of another leaf."""
    return jax.random.key_impl(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None


def _value(v: Any, impl, values: dict):
    leaf = values[v] if isinstance(v, Var) else jnp.asarray(v.val, v.aval.dtype)
    return leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl)
