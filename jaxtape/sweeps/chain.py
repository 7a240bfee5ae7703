"""A chain: one step, traced once, and everything it reads laid out as flat tuples of arrays."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.interpreters.partial_eval import dce_jaxpr

from ..schedules.online import Online
from ..schedules.rows import Room, Rows, rows_of_table
from ..schedules.table import Budget, Table
from .masks import Mask


class Arrays(NamedTuple):
    """What a chain reads: values shared by all nodes, the first state, and each node's own."""

    consts: tuple
    init: tuple
    xs: tuple


@dataclasses.dataclass(frozen=True)
class Chain:
    """`state[k+1], y[k] = step(consts, state[k], x[k])`, k = 0 … length-1; static and hashable.

    The step is a jaxpr: tracing it is the closure conversion, for what the user's function closes
    over becomes `consts`. With `reverse`, node k reads `xs[length-1-k]` and writes `ys` there.
    `spread`: its pullback adds up the cotangents of shared values as `jaxtape.sweeps.spread` says.
    """

    jaxpr: Any
    num_state: int
    table: Table | Online | Room | Budget
    reverse: bool
    condition: "Condition | None" = None
    captured: "Captured | None" = None
    spread: bool = False

    @property
    def length(self) -> int:
        """The number of nodes."""
        return len(self.table)

    @property
    def y_avals(self) -> list:
        """The types of one node's y."""
        return [v.aval for v in self.jaxpr.outvars[self.num_state :]]

    def step(self, consts: tuple, state: tuple, x: tuple) -> tuple[tuple, tuple]:
        """One node: the next state and this node's y."""
        closed, rest = self.closed_over(consts)
        out = jax.core.eval_jaxpr(self.jaxpr, closed, *rest, *state, *x)
        return tuple(out[: self.num_state]), tuple(out[self.num_state :])

    def closed_over(self, consts: tuple) -> tuple[tuple, tuple]:
        """The values of the jaxpr's constants, and of the shared values among its arguments."""
        n = len(self.jaxpr.constvars)
        return (consts[:n], consts[n:]) if self.captured is None else (self.captured.values, consts)

    def inputs_of_outputs(self) -> list[Mask]:
        """For each leaf of the next state and of y: which leaves of consts, state and x it depends on."""
        closed = self.jaxpr.constvars
        whole = self.jaxpr.replace(
            constvars=[],
            invars=[*closed, *self.jaxpr.invars],
            debug_info=self.jaxpr.debug_info.with_unknown_names(),
        )
        first = 0 if self.captured is None else len(closed)
        return [mask[first:] for mask in inputs_of_outputs(whole)]

    def goes_on(self, consts: tuple, state: tuple):
        """Whether a chain with a condition takes another step."""
        assert self.condition is not None
        return self.condition.holds(consts, state)

    def rows(self, consts: tuple) -> Rows:
        """The table as arrays: constants, or the first of `consts` where the nodes may be edited."""
        if self.is_edited:
            return Rows(*consts[: len(Rows._fields)])
        assert isinstance(self.table, Table)
        return rows_of_table(self.table)

    @property
    def online(self) -> Online:
        """What the sweeps of a chain with a condition follow."""
        assert isinstance(self.table, Online)
        return self.table

    @property
    def is_edited(self) -> bool:
        """Whether the live nodes and their order come as data."""
        return isinstance(self.table, Room)

    def index(self, k, consts: tuple):
        """Where node k reads `xs` and writes `ys`."""
        if self.is_edited:
            return jnp.asarray(self.rows(consts).order)[k]
        return self.length - 1 - k if self.reverse else k

    def scan(self, consts: tuple, init: tuple, xs: tuple) -> tuple[tuple, tuple]:
        """The whole chain by `lax.scan`: the last state and `ys`."""
        step = functools.partial(self.step, consts)
        return lax.scan(step, init, xs, self.length, reverse=self.reverse)

    def derive(self, step: Callable, arrays: Arrays) -> "Chain":
        """The chain of another flat `step(consts, state, x)`: same nodes, same table."""
        closed = jax.make_jaxpr(step)(arrays.consts, arrays.init, first_node(arrays.xs))
        captured, num_state = Captured(tuple(closed.consts)), len(arrays.init)
        return dataclasses.replace(self, jaxpr=closed.jaxpr, num_state=num_state, captured=captured)


@dataclasses.dataclass(frozen=True, eq=False)
class Captured:
    """What the rules inside a derived step close over; of a traced chain, that is among its consts."""

    values: tuple


@dataclasses.dataclass(frozen=True)
class Condition:
    """A predicate of a chain's first shared values and of its first state leaves, as a jaxpr."""

    jaxpr: Any
    num_consts: int
    num_state: int
    captured: Captured

    @classmethod
    def of(cls, holds: Callable, consts: tuple, state: tuple) -> "Condition":
        """The condition `holds(consts, state)`."""
        closed = jax.make_jaxpr(holds)(consts, state)
        return cls(closed.jaxpr, len(consts), len(state), Captured(tuple(closed.consts)))

    def holds(self, consts: tuple, state: tuple):
        """Whether it is true of these values."""
        inputs = *consts[: self.num_consts], *state[: self.num_state]
        return jax.core.eval_jaxpr(self.jaxpr, self.captured.values, *inputs)[0]


def inputs_of_outputs(jaxpr) -> list[Mask]:
    """Which inputs each output of a jaxpr depends on."""
    n = len(jaxpr.outvars)
    return [tuple(dce_jaxpr(jaxpr, [i == j for i in range(n)])[1]) for j in range(n)]


def check_varying(arrays: Arrays) -> None:
    """Raise `ValueError` unless shared floats vary over the mesh axes that the state varies over.

    Devices stop after different numbers of steps, and the cotangent of a replicated value would be
    added up over the devices at every step: those that go on would wait for ever.
    """
    axes = frozenset().union(*map(_axes, arrays.init))
    for leaf in arrays.consts:
        missing = tuple(sorted(axes - _axes(leaf)))
        if missing and jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"The loop's state varies over the mesh axes {missing}, and a value that its body closes over, "
                f"{jax.typeof(leaf)}, does not: give it value = jax.lax.pcast(value, {missing}, "
                "to='varying'), made before the loop."
            )


def _axes(leaf) -> frozenset:
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def with_rows(chain: Chain, arrays: Arrays, rows: Rows) -> tuple[Chain, Arrays]:
    """The chain that finds its table and the order of its nodes in its first consts."""
    n = len(rows)
    arrays = arrays._replace(consts=(*map(jnp.asarray, rows), *arrays.consts))
    return chain.derive(lambda consts, state, x: chain.step(consts[n:], state, x), arrays), arrays


def with_condition(chain: Chain, arrays: Arrays, cond) -> tuple[Chain, Arrays]:
    """The chain that goes on while `cond`, a closed jaxpr of the state, holds; it shares what that reads."""
    n = len(arrays.consts)
    arrays = arrays._replace(consts=(*arrays.consts, *cond.consts))
    check_varying(arrays)
    derived = chain.derive(lambda consts, state, x: chain.step(consts[:n], state, x), arrays)
    holds = lambda consts, state: jax.core.eval_jaxpr(cond.jaxpr, consts[n:], *state)[0]  # noqa: E731
    condition = Condition.of(holds, arrays.consts, arrays.init)
    return dataclasses.replace(derived, condition=condition), arrays


def first_node(xs):
    """The types of one node's part of `xs`."""
    return jax.eval_shape(lambda xs: jax.tree.map(lambda x: x[0], xs), xs)


def trace(f: Callable, init, xs, table: Table | Online | Room | Budget, reverse: bool):
    """Trace `f(carry, x) -> (carry, y)` into a chain.

    Returns the chain, its arrays, and the tree structures of the carry and of y.

    **Errors**: `TypeError` if `f` returns no pair, or changes the structure, shape or dtype of
    the carry.
    """
    init = jax.tree.map(as_array, init)
    jaxpr, out = jax.make_jaxpr(f, return_shape=True)(init, first_node(xs))
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(f"The scanned function returned {out}: return a pair (carry, y).")
    carry, y = out
    check_state("The scanned function", init, carry)
    strong = jax.tree.map(_strengthen, init, carry)
    if any(a is not b for a, b in zip(*map(jax.tree.leaves, (init, strong)), strict=True)):
        return trace(f, strong, xs, table, reverse)
    arrays = Arrays(tuple(jaxpr.consts), *(tuple(jax.tree.leaves(tree)) for tree in (init, xs)))
    chain = Chain(jaxpr.jaxpr, len(arrays.init), table, reverse)
    return chain, arrays, jax.tree.structure(carry), jax.tree.structure(y)


def as_array(leaf):
    """A leaf as an array; one that is an array already is itself, where `jnp.asarray` would copy it."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


def _strengthen(before, after):
    """A weakly typed leaf (it was a Python scalar) takes the dtype that the step gives it."""
    weak = jax.typeof(before).weak_type and not after.weak_type
    return lax.convert_element_type(before, after.dtype) if weak else before


def same_state(before, after) -> bool:
    """Whether a step that makes `after` of `before` can follow itself; a weakly typed leaf takes any dtype."""
    try:
        check_state("The step", before, after)
    except TypeError:
        return False
    return True


def check_state(what: str, before, after) -> None:
    """Raise `TypeError` unless `after` has the structure, shapes and dtypes of `before`.

    A weakly typed leaf may take another dtype.
    """
    before, after = (jax.eval_shape(lambda tree: tree, tree) for tree in (before, after))
    tree, new_tree = jax.tree.structure(before), jax.tree.structure(after)
    if tree != new_tree:
        raise TypeError(
            f"{what} changes the structure of the state from {tree} to {new_tree}: "
            "return the structure it receives."
        )
    leaves = jax.tree_util.tree_leaves_with_path(before)
    for (path, a), b in zip(leaves, jax.tree.leaves(after), strict=True):
        if a.shape != b.shape or (a.dtype != b.dtype and not a.weak_type):
            raise TypeError(
                f"{what} changes leaf state{jax.tree_util.keystr(path)} from "
                f"{a.dtype}{list(a.shape)} to {b.dtype}{list(b.shape)}: return the shape and "
                "dtype it receives, or start from a state that already has them."
            )
