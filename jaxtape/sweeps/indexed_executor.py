"""The executor of a chain whose nodes are edited without compiling again."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..schedules.layout import TableLayout
from ..schedules.table import ScheduleArrays
from .chain import Arrays, Chain
from .executor import TableExecutor, step_of_all
from .leaves import get, pick, put


@dataclasses.dataclass(frozen=True)
class IndexedExecutor(TableExecutor):
    """The executor of a chain whose live nodes, their order and their table are data: its first consts."""

    table: TableLayout
    checkpoint_dtype: Any = None
    num_consts = len(ScheduleArrays._fields)

    @property
    def keeps_all(self) -> bool:
        return False

    @property
    def is_unrolled(self) -> bool:
        return False

    def columns(self, consts: tuple) -> ScheduleArrays:
        return ScheduleArrays(*consts[: self.num_consts])

    def index(self, chain: Chain, k, consts: tuple):
        del chain
        return jnp.asarray(self.columns(consts).order)[k]

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        length = jnp.asarray(self.columns(arrays.consts).length)
        start = arrays.init, ()
        return lax.fori_loop(jnp.int32(0), length, step_of_all(chain, arrays), start)

    def scan_reverse(self, chain, active, arrays, pull, start, ys_bar):
        """Call `pull` of the live nodes, where they lie; places that no node has keep a zero."""
        del ys_bar
        length = jnp.asarray(self.columns(arrays.consts).length)

        def node(i, carry):
            pulled, xs_bar = carry
            k = length - 1 - i
            at = self.index(chain, k, arrays.consts)
            pulled, x_bar = pull(k, get(arrays.xs, at), (), pulled)
            return pulled, put(xs_bar, x_bar, at)

        xs_bar = tuple(map(jnp.zeros_like, pick(active.xs, arrays.xs)))
        return lax.fori_loop(0, length, node, (start, xs_bar))

    def short(self, nodes: int, slots: int) -> "IndexedExecutor":
        on_host = min(self.table.host_slots, 1)
        return IndexedExecutor(TableLayout(nodes, slots + 1, 0, on_host), self.checkpoint_dtype)


def with_schedule_arrays(
    chain: Chain, arrays: Arrays, columns: ScheduleArrays
) -> tuple[Chain, Arrays]:
    """Return the chain that finds its table and the order of its nodes in its first consts."""
    n = len(columns)
    arrays = arrays._replace(consts=(*map(jnp.asarray, columns), *arrays.consts))
    return chain.derive(lambda consts, state, x: chain.step(consts[n:], state, x), arrays), arrays
