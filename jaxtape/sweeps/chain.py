"""A chain: one step, traced once, and all of its inputs as flat tuples of arrays."""

import abc
import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
from jax import lax

from ..jax_private import ClosedJaxpr
from .leaves import Mask, as_array, first_node


class Arrays(NamedTuple):
    """The inputs of a chain.

    Attributes:
        consts: The values that all nodes share.
        init: The first state.
        xs: Each node's own values, stacked.
    """

    consts: tuple
    init: tuple
    xs: tuple


class Active(NamedTuple):
    """Masks of the leaves that carry a cotangent: of consts, the state, each node's x, each node's y."""

    consts: Mask
    state: Mask
    xs: Mask
    ys: Mask

    @property
    def inputs(self) -> tuple[Mask, Mask, Mask]:
        """The masks of consts, state and x, which a step reads."""
        return self.consts, self.state, self.xs


@dataclasses.dataclass(frozen=True)
class Chain:
    """`state[k+1], y[k] = step(consts, state[k], x[k])`, k = 0 … length-1; static and hashable.

    The step is a jaxpr. Tracing performs closure conversion: the values that the user's function closes over
    become `consts`.

    Attributes:
        closed: The step, from consts, state and x to the next state and y. A derived step may have constants:
            values that rules inside it close over.
        num_state: The number of leaves of the state.
        executor: The executor, which runs and reverses the chain.
        reverse: Whether node k reads `xs[length-1-k]` and writes `ys` there.
        condition: The condition that ends the chain before `length` nodes, or None.
        needed: The mask of the leaves of the state that are kept and recomputed, once the chain is prepared for
            reversal.
        pulled: The active leaves whose cotangents can be pulled back, once it is prepared.
        broadcasts: Whether the cotangents of shared values are added up over the nodes before they are summed
            over the entries of a state (`jaxtape/sweeps/pullback.py`).
        in_bits: Whether stacks of floats narrower than 32 bits are held as integers, which have no tangent.
        sum_ys: The number of consecutive nodes whose y's are summed into one entry of `ys`.
    """

    closed: ClosedJaxpr
    num_state: int
    executor: "AbstractExecutor"
    reverse: bool
    condition: "LoopCondition | None" = None
    needed: Mask = ()
    pulled: Active | None = None
    broadcasts: bool = False
    in_bits: bool = True
    sum_ys: int = 1

    @property
    def jaxpr(self):
        """The step as a jaxpr without its constants."""
        return self.closed.jaxpr

    @property
    def length(self) -> int:
        """The maximum number of nodes of the chain."""
        return self.executor.length

    @property
    def num_outputs(self) -> int:
        """The number of leaves of the state and of y."""
        return len(self.jaxpr.outvars)

    @property
    def y_avals(self) -> list:
        """The types of one node's y."""
        return [v.aval for v in self.jaxpr.outvars[self.num_state :]]

    def step(self, consts: tuple, state: tuple, x: tuple) -> tuple[tuple, tuple]:
        """Run one node; return the next state and this node's y."""
        out = jax.core.eval_jaxpr(self.jaxpr, self.closed.consts, *consts, *state, *x)
        return tuple(out[: self.num_state]), tuple(out[self.num_state :])

    def continues(self, consts: tuple, state: tuple):
        """Return True if a chain with a condition takes another step."""
        assert self.condition is not None
        return self.condition.holds(consts, state)

    @functools.partial(jax.jit, static_argnums=0, inline=True)
    def run(self, arrays: Arrays) -> tuple[tuple, tuple]:
        """Run the chain; return the last state and ys."""
        return self.executor.run(self, arrays)

    @functools.partial(jax.jit, static_argnums=0)
    def first_sweep(self, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        """Run the prepared chain once and keep states; return the last state, ys, and the kept states."""
        return self.executor.first_sweep(self, arrays)

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def reverse_sweep(self, active: Active, arrays: Arrays, kept, bars: tuple) -> Arrays:
        """Pull cotangents back through the prepared chain, from the states that its first sweep kept."""
        return self.executor.reverse_sweep(self, active, arrays, kept, bars)

    def derive(self, step: Callable, arrays: Arrays) -> "Chain":
        """Return a chain with the same nodes and executor, and another flat `step(consts, state, x)`."""
        closed = jax.make_jaxpr(step)(arrays.consts, arrays.init, first_node(arrays.xs))
        return dataclasses.replace(self, closed=closed, num_state=len(arrays.init))


@dataclasses.dataclass(frozen=True)
class LoopCondition:
    """A predicate on a chain's first shared values and first state leaves, as a jaxpr."""

    closed: ClosedJaxpr
    num_consts: int
    num_state: int

    @classmethod
    def of(cls, holds: Callable, consts: tuple, state: tuple) -> "LoopCondition":
        """Return the condition `holds(consts, state)`."""
        return cls(jax.make_jaxpr(holds)(consts, state), len(consts), len(state))

    def holds(self, consts: tuple, state: tuple):
        """Return True if the condition holds for these values."""
        inputs = *consts[: self.num_consts], *state[: self.num_state]
        return jax.core.eval_jaxpr(self.closed.jaxpr, self.closed.consts, *inputs)[0]


class AbstractExecutor(abc.ABC):
    """An algorithm that runs a chain, with or without keeping states, and reverses it.

    An executor is a hashable value, and programs are compiled for it. Only the leaves in the chain's `needed`
    mask are kept of each state; `bars` and the returned cotangents have only the active leaves.

    Attributes:
        table: The table of kept states. Every table has a length, `slots` and `host_slots`.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.
        budget: The maximum bytes of a gradient's temporaries, if the schedule is chosen by bytes; else None.
        residuals: Whether a budget may keep residuals instead of states.
        num_consts: The number of the chain's first shared values that belong to the executor.
    """

    table: Any
    checkpoint_dtype: Any = None
    budget: int | None = None
    residuals: bool = False
    num_consts: int = 0

    @property
    def length(self) -> int:
        """The maximum number of nodes."""
        return len(self.table)

    @abc.abstractmethod
    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        """Run the chain; return the last state and ys."""

    @abc.abstractmethod
    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        """Run the chain once and keep states; return the last state, ys, and the kept states."""

    @abc.abstractmethod
    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        """Pull the cotangents of the last state and of ys back through the chain, the last node first.

        Returns cotangents of `consts`, summed over all nodes, of `init` and of `xs`. It reads the leaves of
        `arrays.init` that no step changes and, if slots are in the host's memory, the needed leaves.
        """

    @abc.abstractmethod
    def index(self, chain: Chain, k, consts: tuple):
        """Return the place at which node k reads `xs` and writes `ys`."""

    @abc.abstractmethod
    def kept_dims(self, kept, of_leaves: tuple, dim: Any, of_residuals: Any):
        """Return a value for each kept array, such as its batch axis.

        `of_leaves` are those of the states, `dim` is that of the number of steps, `of_residuals` of residuals.
        """

    def short(self, nodes: int, slots: int) -> "AbstractExecutor":
        """Return an executor for fewer nodes and slots whose programs need the same working memory."""
        raise NotImplementedError

    def residual_bytes(self, chain: Chain, arrays: Arrays) -> int:
        """Return the bytes of the residuals that are kept of a prepared chain."""
        del chain, arrays
        return 0


def trace(f: Callable, init, xs, executor: AbstractExecutor, reverse: bool = False):
    """Trace `f(carry, x) -> (carry, y)` into a chain.

    Returns the chain, its arrays, and the tree structures of the carry and of y.

    Raises:
        TypeError: If `f` does not return a pair, or changes the structure, shape or dtype of the carry.
    """
    init, xs = jax.tree.map(as_array, (init, xs))
    closed, out = jax.make_jaxpr(f, return_shape=True)(init, first_node(xs))
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(f"The scanned function returned {out}: return a pair (carry, y).")
    carry, y = out
    check_state("The scanned function", init, carry)
    strong = jax.tree.map(_strengthen, init, carry)
    if any(a is not b for a, b in zip(*map(jax.tree.leaves, (init, strong)), strict=True)):
        return trace(f, strong, xs, executor, reverse)
    arrays = Arrays(tuple(closed.consts), *(tuple(jax.tree.leaves(tree)) for tree in (init, xs)))
    chain = Chain(with_consts_as_inputs(closed.jaxpr), len(arrays.init), executor, reverse)
    return chain, arrays, jax.tree.structure(carry), jax.tree.structure(y)


def with_consts_as_inputs(jaxpr) -> ClosedJaxpr:
    """Return a jaxpr that takes its constants as first inputs; the result is cached per jaxpr.

    JAX traces a function once for arguments of the same types, so an eager call compiles its chain once.
    """
    if jaxpr not in _open_jaxprs:
        inputs, names = [*jaxpr.constvars, *jaxpr.invars], jaxpr.debug_info.with_unknown_names()
        opened = jaxpr.replace(constvars=[], invars=inputs, debug_info=names)
        _open_jaxprs[jaxpr] = ClosedJaxpr(opened, ())
    return _open_jaxprs[jaxpr]


_open_jaxprs = weakref.WeakKeyDictionary()


def _strengthen(before, after):
    """Give a weakly typed leaf (from a Python scalar) the dtype that the step returns."""
    weak = jax.typeof(before).weak_type and not after.weak_type
    return lax.convert_element_type(before, after.dtype) if weak else before


def same_state(before, after) -> bool:
    """Return True if a step from `before` to `after` can follow itself, as `check_state` requires."""
    try:
        check_state("The step", before, after)
    except TypeError:
        return False
    return True


def check_state(what: str, before, after) -> None:
    """Check that `after` has the structure, shapes and dtypes of `before`.

    A weakly typed leaf may take another dtype.

    Raises:
        TypeError: If it does not.
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
