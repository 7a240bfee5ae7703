"""A chain: one step, traced once, and everything it reads laid out as flat tuples of arrays."""

import abc
import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.export
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad
from jax.interpreters.partial_eval import dce_jaxpr

Mask = tuple[bool, ...]


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


@dataclasses.dataclass(frozen=True, eq=False)
class Captured:
    """The values that the rules inside a derived step close over; in a traced chain, they are consts."""

    values: tuple


NOTHING = Captured(())


@dataclasses.dataclass(frozen=True)
class Chain:
    """`state[k+1], y[k] = step(consts, state[k], x[k])`, k = 0 … length-1; static and hashable.

    The step is a jaxpr: tracing it is the closure conversion, because the values that the user's function
    closes over become `consts`.

    Attributes:
        jaxpr: The step, from consts, state and x to the next state and y.
        num_state: The number of leaves of the state.
        executor: The executor, which runs and reverses the chain.
        reverse: Whether node k reads `xs[length-1-k]` and writes `ys` there.
        condition: The condition that ends the chain before `length` nodes, or None.
        captured: The values that the step closes over beside `consts`, in the order of the jaxpr's constants.
        needed: The mask of the leaves of the state that are kept and recomputed, once the chain is prepared to
            be reversed.
        broadcasts: Whether the pullback adds up the cotangents of shared values before it sums them (see
            `jaxtape/sweeps/pullback.py`).
        in_bits: Whether stacks of floats of less than 32 bits are held as integers, which have no tangent.
    """

    jaxpr: Any
    num_state: int
    executor: "AbstractExecutor"
    reverse: bool
    condition: "Condition | None" = None
    captured: Captured = NOTHING
    needed: Mask = ()
    broadcasts: bool = False
    in_bits: bool = True

    @property
    def length(self) -> int:
        """The most nodes that the chain may have."""
        return self.executor.length

    @property
    def y_avals(self) -> list:
        """The types of one node's y."""
        return [v.aval for v in self.jaxpr.outvars[self.num_state :]]

    def step(self, consts: tuple, state: tuple, x: tuple) -> tuple[tuple, tuple]:
        """Run one node: the next state and this node's y."""
        out = jax.core.eval_jaxpr(self.jaxpr, self.captured.values, *consts, *state, *x)
        return tuple(out[: self.num_state]), tuple(out[self.num_state :])

    def goes_on(self, consts: tuple, state: tuple):
        """Return True if a chain with a condition takes another step."""
        assert self.condition is not None
        return self.condition.holds(consts, state)

    @functools.partial(jax.jit, static_argnums=0, inline=True)
    def run(self, arrays: Arrays) -> tuple[tuple, tuple]:
        """Run the chain: the last state and ys."""
        return self.executor.run(self, arrays)

    @functools.partial(jax.jit, static_argnums=0)
    def first_sweep(self, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        """Run the prepared chain once while states are kept: return the last state, ys, and the kept states."""
        state, ys, kept = self.executor.first_sweep(self, arrays)
        dtypes = tuple(stored_dtype(x, self.executor) for x in pick(self.needed, arrays.init))
        kept = jax.tree.map(of_bits, kept, self.executor.kept_dims(kept, dtypes, jnp.int32))
        return (
            state,
            tuple(of_bits(y, aval.dtype) for y, aval in zip(ys, self.y_avals, strict=True)),
            kept,
        )

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def reverse_sweep(self, active: Active, arrays: Arrays, kept, bars: tuple) -> Arrays:
        """Pull cotangents back through the prepared chain, from the states that its first sweep has kept."""
        return self.executor.reverse_sweep(self, active, arrays, self.packed(kept), bars)

    def packed(self, stacks):
        """Return stacks as a sweep holds them."""
        apart = self.executor.slots_apart
        return jax.tree.map(as_bits, stacks) if self.in_bits and not apart else stacks

    def slot_bytes(self, arrays: Arrays) -> int:
        """Return the bytes of the needed leaves of one state in a slot."""
        dtype = self.executor.checkpoint_dtype
        slot = lambda leaves: tuple(stored(leaf, dtype) for leaf in leaves)  # noqa: E731
        return leaf_bytes(jax.eval_shape(slot, shapes(pick(self.needed, arrays.init))))

    def derive(self, step: Callable, arrays: Arrays) -> "Chain":
        """Return the chain of another flat `step(consts, state, x)`: same nodes, same executor."""
        closed = jax.make_jaxpr(step)(arrays.consts, arrays.init, first_node(arrays.xs))
        captured, num_state = Captured(tuple(closed.consts)), len(arrays.init)
        return dataclasses.replace(self, jaxpr=closed.jaxpr, num_state=num_state, captured=captured)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A predicate of a chain's first shared values and of its first state leaves, as a jaxpr."""

    jaxpr: Any
    num_consts: int
    num_state: int
    captured: Captured

    @classmethod
    def of(cls, holds: Callable, consts: tuple, state: tuple) -> "Condition":
        """Return the condition `holds(consts, state)`."""
        closed = jax.make_jaxpr(holds)(consts, state)
        return cls(closed.jaxpr, len(consts), len(state), Captured(tuple(closed.consts)))

    def holds(self, consts: tuple, state: tuple):
        """Return True if the condition is true of these values."""
        inputs = *consts[: self.num_consts], *state[: self.num_state]
        return jax.core.eval_jaxpr(self.jaxpr, self.captured.values, *inputs)[0]


class AbstractExecutor(abc.ABC):
    """The way in which a chain is run, run while states are kept, and reversed.

    An executor is a hashable value, and programs are compiled for it. Of every state, only the leaves in the
    chain's `needed` mask are kept; `bars` and the returned cotangents have only the active leaves.

    Attributes:
        table: The table of kept states. Every table has a length, `slots` and `host_slots`.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.
        budget: The most bytes of a gradient's temporaries, if the schedule is chosen by bytes; otherwise None.
        residuals: Whether a budget may keep what pullbacks read in the place of states.
        num_consts: The number of the chain's first shared values that are the executor's own.
    """

    table: Any
    checkpoint_dtype: Any = None
    budget: int | None = None
    residuals: bool = False
    num_consts: int = 0

    @property
    def length(self) -> int:
        """The most nodes that a chain may have."""
        return len(self.table)

    @property
    def slots(self) -> int:
        """The number of states kept at a time."""
        return self.table.slots

    @property
    def slots_apart(self) -> int:
        """The number of slots in the host's memory, if that is separate from the device's, else 0."""
        on_host = self.table.host_slots
        return on_host if on_host and host_is_apart() else 0

    @abc.abstractmethod
    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        """Run the chain: the last state and ys."""

    @abc.abstractmethod
    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        """Run the chain once while states are kept: return the last state, ys, and the kept states."""

    @abc.abstractmethod
    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        """Pull the cotangents of the last state and of ys back through the chain, the last node first.

        Returns the sum over all nodes for `consts`, the first state's for `init`, one a node for `xs`. Of
        `arrays.init`, it reads the leaves that no step changes and, if slots are in the host's memory, the
        needed leaves.
        """

    @abc.abstractmethod
    def kept_dims(self, kept, of_leaves: tuple, dim: Any):
        """Return a value for each array that is kept, such as its batch axis: `dim` for the steps taken."""

    def index(self, chain: Chain, k, consts: tuple):
        """Return the index at which node k reads `xs` and writes `ys`."""
        del consts
        return self.length - 1 - k if chain.reverse else k

    def short(self, nodes: int, slots: int) -> "AbstractExecutor":
        """Return an executor for fewer nodes and slots whose programs need the same memory."""
        raise NotImplementedError

    def settled(self, measure: Callable[[], Any] | None) -> "AbstractExecutor":
        """Return the executor that reverses the chain, now that its states are known.

        `measure()` is a `Measure` of `footprint.py`. It is None where a size is symbolic.
        """
        del measure
        return self


def first_node(xs):
    """Return the types of one node's part of `xs`."""
    return jax.eval_shape(lambda xs: jax.tree.map(lambda x: x[0], xs), xs)


def trace(f: Callable, init, xs, executor: AbstractExecutor, reverse: bool = False):
    """Trace `f(carry, x) -> (carry, y)` into a chain.

    Returns the chain, its arrays, and the tree structures of the carry and of y.

    Raises:
        TypeError: If `f` returns no pair, or changes the structure, shape or dtype of the carry.
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
    chain = Chain(_with_consts_as_inputs(closed.jaxpr), len(arrays.init), executor, reverse)
    return chain, arrays, jax.tree.structure(carry), jax.tree.structure(y)


def _with_consts_as_inputs(jaxpr):
    """Return a jaxpr that takes its constants first; the same one again for the same jaxpr.

    JAX traces a function once for arguments of the same types, so an eager call compiles its chain once.
    """
    if jaxpr not in _open_jaxprs:
        inputs, names = [*jaxpr.constvars, *jaxpr.invars], jaxpr.debug_info.with_unknown_names()
        _open_jaxprs[jaxpr] = jaxpr.replace(constvars=[], invars=inputs, debug_info=names)
    return _open_jaxprs[jaxpr]


_open_jaxprs = weakref.WeakKeyDictionary()


def as_array(leaf):
    """Return a leaf as an array; an array is returned as it is, where `jnp.asarray` would copy it."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


def _strengthen(before, after):
    """Give a weakly typed leaf (it was a Python scalar) the dtype that the step gives it."""
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
        TypeError: If it has not.
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


def inputs_of_outputs(jaxpr) -> list[Mask]:
    """Return, for each output of a jaxpr, the mask of the inputs on which it depends."""
    n = len(jaxpr.outvars)
    return [tuple(dce_jaxpr(jaxpr, [i == j for i in range(n)])[1]) for j in range(n)]


def inexact(leaves: Sequence) -> Mask:
    """Return the mask of the leaves that are numbers that can vary; integers, booleans and keys are not."""
    return tuple(bool(jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves)


def merge(mask: Mask, picked: Sequence, leaves: Sequence) -> tuple:
    """`leaves` with the selected ones replaced by `picked`."""
    replacements, pairs = iter(picked), zip(mask, leaves, strict=True)
    return tuple(next(replacements) if chosen else leaf for chosen, leaf in pairs)


def pick(mask: Mask, leaves: Sequence) -> tuple:
    """Return the leaves that the mask selects."""
    return tuple(leaf for chosen, leaf in zip(mask, leaves, strict=True) if chosen)


def leaf_bytes(leaves: Sequence) -> int:
    """Return the bytes of arrays, or of their types."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def shapes(tree):
    """Return the types of arrays without mesh axes."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def host_is_apart() -> bool:
    """Return True if the host's memory is separate from the device's."""
    return jax.default_backend() != "cpu"


def is_symbolic(arrays: Arrays) -> bool:
    """Return True if a size is known only when an exported program runs."""
    sizes = [size for leaf in jax.tree.leaves(tuple(arrays)) for size in jax.typeof(leaf).shape]
    return any(map(jax.export.is_symbolic_dim, sizes))


def zeros_stack(length: int, aval, axis: int = 0):
    """Return a stack of leaves along an axis, varying and sharded over the same mesh axes as a leaf."""
    spec = (*aval.sharding.spec[:axis], None, *aval.sharding.spec[axis:])
    shape = (*aval.shape[:axis], length, *aval.shape[axis:])
    stack = jnp.zeros(shape, aval.dtype, out_sharding=aval.sharding.update(spec=spec))
    varying = tuple(aval.manual_axis_type.varying)
    return lax.pcast(stack, varying, to="varying") if varying else stack


def get(stacked: tuple, i) -> tuple:
    """Return entry i of each stack."""
    return tuple(lax.dynamic_index_in_dim(a, i, keepdims=False) for a in stacked)


def put(stacked: tuple, leaves: tuple, i) -> tuple:
    """Return each stack with another entry i."""
    pairs = zip(stacked, leaves, strict=True)
    return tuple(
        lax.dynamic_update_index_in_dim(a, of_bits(leaf, a.dtype), i, 0) for a, leaf in pairs
    )


@jax.custom_jvp
def as_bits(stack):
    """Return a stack of floats of less than 32 bits as integers: on CPUs XLA widens a whole stack of floats."""
    narrow = jnp.issubdtype(stack.dtype, jnp.floating) and stack.dtype.itemsize < 4
    return lax.bitcast_convert_type(stack, f"uint{8 * stack.dtype.itemsize}") if narrow else stack


@as_bits.defjvp
def _(primals, tangents):
    (stack,), (dot,) = primals, tangents
    bits = as_bits(stack)
    if bits.dtype != stack.dtype:
        raise NotImplementedError(
            "Bits have no tangent: push forward through a chain with in_bits=False."
        )
    return bits, dot


def of_bits(leaf, dtype):
    """Return a leaf as its dtype, or the same bits as another."""
    return leaf if leaf.dtype == dtype else lax.bitcast_convert_type(leaf, dtype)


def stored_dtype(leaf, executor: AbstractExecutor):
    """Return the dtype of a leaf in an executor's slots."""
    return jax.eval_shape(lambda leaf: stored(leaf, executor.checkpoint_dtype), leaf).dtype


def stored(leaf, dtype):
    """Return a leaf in the form of slots: real numbers in `dtype` (None: unchanged), a key as its words."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)  # keys cannot be moved between memories
    lowers = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(dtype) if lowers else leaf


def avals(tree):
    """Return the types of arrays."""
    return jax.tree.map(jax.typeof, tree)


def out_avals(f: Callable, *args):
    """Return the types that `f(*args)` returns, as primitives want them."""
    jaxpr, out = jax.make_jaxpr(f, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(out), jaxpr.out_avals)


def is_zero(leaf) -> bool:
    """Return True if a tangent or cotangent is known to be 0."""
    return isinstance(leaf, ad.Zero)


def instantiated(tree):
    """Make arrays of symbolic zeros."""
    return jax.tree.map(ad.instantiate_zeros, tree, is_leaf=is_zero)


def zero_cotangents(types):
    """Return symbolic zeros for arguments of these types."""
    return jax.tree.map(lambda aval: ad.Zero(aval.to_ct_aval()), types)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A hashable value among saved arrays."""

    value: Any
