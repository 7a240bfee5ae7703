"""Helpers for tuples of leaves: masks, stacks and types."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
from jax import lax

from ..jax_private import Zero, dce_jaxpr, instantiate_zeros

Mask = tuple[bool, ...]


def as_array(leaf):
    """Return a leaf as an array; return an array unchanged, unlike `jnp.asarray`, which may copy it."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


def first_node(xs):
    """Return the types of one node's part of `xs`."""
    return jax.eval_shape(lambda xs: jax.tree.map(lambda x: x[0], xs), xs)


def inputs_of_outputs(jaxpr) -> list[Mask]:
    """Return, for each output of a jaxpr, the mask of the inputs on which it depends."""
    n = len(jaxpr.outvars)
    return [tuple(dce_jaxpr(jaxpr, [i == j for i in range(n)])[1]) for j in range(n)]


def inexact(leaves: Sequence) -> Mask:
    """Return the mask of the inexact leaves, which can vary; integers, booleans and keys cannot."""
    return tuple(bool(jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves)


def merge(mask: Mask, picked: Sequence, leaves: Sequence) -> tuple:
    """Return `leaves` with the selected ones replaced by `picked`."""
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


def is_symbolic(tree) -> bool:
    """Return True if some size is known only when an exported program runs."""
    sizes = [size for leaf in jax.tree.leaves(tree) for size in jax.typeof(leaf).shape]
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
    """Return each stack with a new entry i."""
    pairs = zip(stacked, leaves, strict=True)
    return tuple(
        lax.dynamic_update_index_in_dim(a, with_bits_of(leaf, a.dtype), i, 0) for a, leaf in pairs
    )


def with_bits_of(leaf, dtype):
    """Return a leaf of this dtype unchanged, and any other as its bits in this dtype."""
    return leaf if leaf.dtype == dtype else lax.bitcast_convert_type(leaf, dtype)


def avals(tree):
    """Return the types of arrays."""
    return jax.tree.map(jax.typeof, tree)


def out_avals(f: Callable, *args):
    """Return the types of the outputs of `f(*args)`, as primitives need them."""
    jaxpr, out = jax.make_jaxpr(f, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(out), jaxpr.out_avals)


def is_zero(leaf) -> bool:
    """Return True if a tangent or cotangent is known to be 0."""
    return isinstance(leaf, Zero)


def leaves_or_zeros(tree) -> list:
    """Return the leaves of a tree of tangents or cotangents."""
    return jax.tree.leaves(tree, is_leaf=is_zero)


def merge_leaves(mask: Mask, picked, tree):
    """Return a tree with the selected leaves replaced."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_zero)
    return jax.tree.unflatten(structure, merge(mask, picked, leaves))


def instantiated(tree):
    """Turn symbolic zeros into arrays."""
    return jax.tree.map(instantiate_zeros, tree, is_leaf=is_zero)


def zero_tangents(types):
    """Return symbolic zeros as the tangents of values of these types."""
    return jax.tree.map(lambda aval: Zero(aval.to_tangent_aval()), types)


def zero_cotangents(types):
    """Return symbolic zeros for arguments of these types."""
    return jax.tree.map(lambda aval: Zero(aval.to_ct_aval()), types)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A hashable value among saved arrays."""

    value: Any
