"""The executor of a chain whose nodes are edited without compiling again."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..schedules.arena import Arena
from ..schedules.table import Rows
from .chain import Arrays, Chain, get, pick, put
from .executor import AbstractTableExecutor, Forward, ForwardState, Slots


@dataclasses.dataclass(frozen=True)
class Edited(AbstractTableExecutor):
    """The executor of a chain whose live nodes, their order and their table are data: its first consts."""

    table: Arena
    checkpoint_dtype: Any = None
    num_consts = len(Rows._fields)

    def rows(self, consts: tuple) -> Rows:
        return Rows(*consts[: self.num_consts])

    def index(self, chain: Chain, k, consts: tuple):
        del chain
        return jnp.asarray(self.rows(consts).order)[k]

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        forward = Forward.of_all(chain, ())
        start = ForwardState(Slots(), jnp.int32(0), arrays.init, ())
        length = jnp.asarray(self.rows(arrays.consts).length)
        return forward.advance(arrays, start, length).state, ()

    def over_nodes(self, chain, active, arrays, pull, start, ys_bar):
        """Call `pull` of the live nodes, where they lie; places that no node has keep a zero."""
        del ys_bar
        length = jnp.asarray(self.rows(arrays.consts).length)

        def node(i, carry):
            pulled, xs_bar = carry
            k = length - 1 - i
            at = self.index(chain, k, arrays.consts)
            pulled, x_bar = pull(k, get(arrays.xs, at), (), pulled)
            return pulled, put(xs_bar, x_bar, at)

        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        return lax.fori_loop(0, length, node, (start, xs_bar))

    def short(self, nodes: int, slots: int) -> "Edited":
        on_host = min(self.table.host_slots, 1)
        return Edited(Arena(nodes, slots + 1, 0, on_host), self.checkpoint_dtype)


def with_rows(chain: Chain, arrays: Arrays, rows: Rows) -> tuple[Chain, Arrays]:
    """Return the chain that finds its table and the order of its nodes in its first consts."""
    n = len(rows)
    arrays = arrays._replace(consts=(*map(jnp.asarray, rows), *arrays.consts))
    return chain.derive(lambda consts, state, x: chain.step(consts[n:], state, x), arrays), arrays
