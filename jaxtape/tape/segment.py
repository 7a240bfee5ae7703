"""Segments: runs of nodes that share their step and the structure of their params."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import sweeps
from ..schedules.layout import marked_table
from ..schedules.schedule import AbstractSchedule, StoreAll
from ..schedules.table import ScheduleTable
from ..sweeps.chain import check_state, same_state, trace
from ..sweeps.executor import TableExecutor
from ..sweeps.indexed_executor import IndexedExecutor, with_schedule_arrays
from ..sweeps.residual_executor import executor_of
from .edits import Edits


class Segment(eqx.Module):
    """`state[k+1] = step(params[k], state[k])` for consecutive nodes k.

    The arrays of the step are leaves beside `params`; the rest of it is static. So `jax.grad` accepts a segment
    whose arrays are floats, and the gradient is a segment too.

    `schedule` is the schedule of the reverse sweep. `edits` is None while the nodes are those of `params`, in
    order. For an edited segment it holds the live places of `params` and their order; the other places are
    free.
    """

    params: Any
    shared: list
    static: tuple = eqx.field(static=True)
    schedule: AbstractSchedule = eqx.field(static=True)
    edits: Edits | None = None

    @classmethod
    def of(cls, step: Callable, params, schedule: AbstractSchedule) -> "Segment":
        """Make a segment of the nodes of stacked `params`."""
        _check_step(step)
        leaves, tree = jax.tree.flatten(step)
        params = jax.tree.map(jnp.asarray, params)
        _check_stacked(params)
        shared = [leaf for leaf in leaves if eqx.is_array(leaf)]
        static = tree, tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        return cls(params, shared, static, schedule)

    @property
    def step(self) -> Callable:
        """The step; in a gradient, the cotangents of its arrays."""
        tree, leaves = self.static
        shared = iter(self.shared)
        return jax.tree.unflatten(tree, [next(shared) if x is None else x for x in leaves])

    @property
    def capacity(self) -> int:
        """The number of nodes that `params` has places for."""
        return jax.tree.leaves(self.params)[0].shape[0]

    @property
    def applied(self) -> AbstractSchedule:
        """The schedule that applies to its number of nodes."""
        return self.schedule.applied_to(self.capacity)

    @property
    def places(self) -> np.ndarray:
        """The places of the live nodes in `params`, in execution order."""
        return np.arange(self.capacity) if self.edits is None else self.edits.live

    @property
    def is_known(self) -> bool:
        """Whether the live nodes can be counted; for an edited segment, not under `jit` nor in a gradient."""
        return self.edits is None or self.edits.is_known

    @property
    def marks(self) -> tuple[int, ...]:
        """The positions, within the segment, of the marked nodes."""
        return () if self.edits is None else self.edits.marks

    def __len__(self) -> int:
        return self.capacity if self.edits is None else self.edits.count

    def __call__(self, state):
        """Return the state after the last node.

        A single node may change the structure of the state; then only that node is recomputed.
        """
        if self.is_bridge(state):
            if self.applied.keeps_residuals:
                return self._checkpointed(self.step)(self.node(0), state)
            chain, arrays, tree = self.bridge(state)
            return jax.tree.unflatten(tree, [y[0] for y in sweeps.run(chain, arrays)[1]])
        if self.keeps_residuals or not self.capacity:
            return lax.scan(self._checkpointed(self.scanned), state, self.params)[0]
        chain, arrays, tree, _ = trace(self.scanned, state, self.params, self.executor)
        if self.edits is not None:
            chain, arrays = with_schedule_arrays(chain, arrays, self.edits.arrays)
        return jax.tree.unflatten(tree, sweeps.run(chain, arrays)[0])

    @property
    def scanned(self) -> Callable:
        """One node in the form of `jax.lax.scan`: `(state, params) -> (state, None)`."""
        step = self.step

        def node(state, params):
            new_state = step(params, state)
            check_state(f"Step {step}", state, new_state)
            return new_state, None

        return node

    def _checkpointed(self, step: Callable) -> Callable:
        """Return a step whose pullback keeps the residuals chosen by the schedule's policy."""
        if self.applied.policy is None or not self.capacity:
            return step
        return self.applied.checkpointed(step, prevent_cse=self.capacity == 1)

    def is_bridge(self, state) -> bool:
        """Return True if this is a single node that changes the structure, shape or dtype of the state."""
        if self.capacity != 1:
            return False
        params = jax.tree.map(lambda leaf: leaf[0], self.params)
        before, after = jax.eval_shape(lambda *pair: (pair[1], self.step(*pair)), params, state)
        return not same_state(before, after)

    def bridge(self, state):
        """Return the node as a chain that leaves its state unchanged and returns the new one as y.

        Returns the chain, its arrays, and the tree structure of y.
        """
        node = lambda state, params: (state, self.step(params, state))
        chain, arrays, _, tree = trace(node, state, self.params, executor_of(StoreAll(), 1))
        return chain, arrays, tree

    @property
    def table(self) -> ScheduleTable:
        """The table that the sweeps follow, for `len(self)` >= 1 nodes."""
        return marked_table(len(self), self.schedule, tuple(filter(None, self.marks)))

    @property
    def executor(self) -> TableExecutor:
        """The executor that runs and reverses the nodes; the capacity must be at least 1."""
        if self.edits is None:
            return executor_of(self.applied, self.capacity)
        return IndexedExecutor(self.edits.layout, self.schedule.checkpoint_dtype)

    @property
    def keeps_residuals(self) -> bool:
        """Whether `lax.scan` keeps the residuals of every pullback; an edited segment keeps states instead."""
        return self.edits is None and self.applied.keeps_residuals

    @property
    def slots(self) -> int:
        """The number of states, or with `keeps_residuals` of nodes' residuals, kept at a time."""
        return self.executor.table.slots if self.capacity else 0

    @property
    def kept_positions(self) -> np.ndarray:
        """The positions where the first sweep keeps states, apart from the first."""
        return self.table.store_position[slice(*self.table.sweep_rows)]

    def node(self, k: int):
        """Return the params of the k-th live node."""
        place = k if self.capacity == 1 else int(self.places[k])
        return jax.tree.map(lambda leaf: leaf[place], self.params)

    def agrees(self, other: "Segment") -> bool:
        """Return True if the nodes of both run the same step on params of the same structure."""

        def one_node(segment):
            leaves, tree = jax.tree.flatten(segment.params)
            return tree, [(leaf.shape[1:], leaf.dtype) for leaf in leaves]

        same = self.static == other.static and one_node(self) == one_node(other)
        return same and all(a is b for a, b in zip(self.shared, other.shared, strict=True))

    def grow(self, other: "Segment") -> "Segment":
        """Return this segment followed by the nodes of another that agrees with it and is not edited.

        An edited segment puts them into free places, and doubles its capacity if they do not fit.
        """
        if self.edits is None:
            return self._with(_concatenated(self.params, other.params), None)
        spare = self.capacity - len(self)
        params, edits = self.params, self.edits
        if len(other) > spare:
            more = max(self.capacity, len(other) - spare)
            places = jax.tree.map(lambda leaf: _free_places(leaf, more), params)
            params, edits = _concatenated(params, places), edits.grown(more, self.schedule)
        places = edits.free[: len(other)]
        params = jax.tree.map(lambda old, new: old.at[places].set(new), params, other.params)
        return self._with(params, edits.appended(len(other), self.schedule))

    def replaced(self, i: int, j: int, params) -> "Segment":
        """Return this segment with other params for its live nodes [i, j).

        Raises:
            ValueError: If their number, structure, shape or dtype differs.
        """
        new = Segment.of(self.step, params, self.schedule)
        if not self.agrees(new) or len(new) != j - i:
            raise ValueError(
                f"The params that replace {j - i} nodes have {len(new)}, or another structure, shape or dtype: "
                f"give what tape.append would accept to extend this segment."
            )
        places = self.places[i:j]
        params = jax.tree.map(lambda old, new: old.at[places].set(new), self.params, new.params)
        return self._with(params, self.edits)

    def edited(self, change: Callable, *args) -> "Segment":
        """Return this segment with nodes changed by `change(edits, *args, schedule)`; params do not move."""
        n = self.capacity
        edits = Edits.first(n, n, self.schedule) if self.edits is None else self.edits
        return self._with(self.params, change(edits, *args, self.schedule))

    def scheduled(self, schedule: AbstractSchedule) -> "Segment":
        """Return this segment under another schedule."""
        edits = None if self.edits is None else self.edits.scheduled(schedule)
        return Segment(self.params, self.shared, self.static, schedule, edits)

    def _with(self, params, edits: Edits | None) -> "Segment":
        return Segment(params, self.shared, self.static, self.schedule, edits)


def operation_name(step: Callable) -> str:
    """Return the name of a step in tables."""
    return getattr(step, "__qualname__", type(step).__name__)


def _concatenated(*parts):
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _free_places(leaf, count: int):
    """Add places for `count` more nodes, filled with copies of the first one, whatever its dtype."""
    return jnp.broadcast_to(leaf[:1], (count, *leaf.shape[1:]))


def _check_step(step: Callable) -> None:
    if not callable(step):
        raise TypeError(f"step is {step!r}: give a callable (params, state) -> state.")
    try:
        # not that of a wrapped function: its decorator may supply other arguments
        signature = inspect.signature(step, follow_wrapped=False)
    except (TypeError, ValueError):  # some callables have none
        return
    try:
        signature.bind("params", "state")
    except TypeError as error:
        raise TypeError(
            f"step is {operation_name(step)}{signature}, which does not take two arguments ({error}): give a "
            "callable (params, state) -> state, which may close over other values."
        ) from None


def _check_stacked(params) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(
            f"params is {params!r}, which has no leaves, so the number of nodes is unknown: give "
            "one value per node, such as jnp.arange(n)."
        )
    shapes = {f"params{jax.tree_util.keystr(path)}": leaf.shape for path, leaf in leaves}
    if any(not shape for shape in shapes.values()) or len({s[0] for s in shapes.values()}) > 1:
        listed = ", ".join(f"{name}: {list(shape)}" for name, shape in shapes.items())
        raise ValueError(
            f"The leaves of params do not share a leading axis ({listed}): stack every leaf along "
            "axis 0, one entry per node."
        )
