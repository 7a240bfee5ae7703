"""Stacks of leaves, an entry a node or a slot."""

import jax.numpy as jnp
from jax import lax


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
    return tuple(lax.dynamic_update_index_in_dim(a, leaf, i, 0) for a, leaf in pairs)
