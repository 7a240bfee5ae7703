"""Slots in the host's memory, if that is separate from the device's."""

import functools

import jax
import jax.custom_batching
import jax.numpy as jnp
from jax import lax

from .leaves import get, put, zeros_stack

_HOST, _DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def empty(leaves: tuple, count: int) -> tuple:
    """Return uninitialised stacks of `count` entries like the leaves, in the host's memory.

    XLA allocates memory for a broadcast there but discards the contents. So write every entry of a stack before
    reading it, even if `vmap` or a loop broadcasts the stack.
    """
    return tuple(map(_host_empty(count, 0), leaves))


def put_there(host: tuple, leaves: tuple, slot) -> tuple:
    """Return the host's stacks with new leaves, from the device, in a slot."""
    moved = (jax.device_put(leaf, _HOST) for leaf in leaves)
    return tuple(_host_put(0)(stack, leaf, slot) for stack, leaf in zip(host, moved, strict=True))


def get_there(host: tuple, slot) -> tuple:
    """Return the leaves in a slot of the host's stacks, on the device."""
    return tuple(jax.device_put(_host_get(0)(stack, slot), _DEVICE) for stack in host)


def put_of_two(host: tuple, device: tuple, leaves: tuple, slot) -> tuple[tuple, tuple]:
    """Return both stacks with new leaves in a slot; the first slots are the host's."""
    on_host, there, here = _split(host, slot)
    moved = lambda host: put_there(host, leaves, there)
    kept = lambda device: put(device, leaves, here)
    # a loop of 0 or 1 iterations writes in place; a branch would copy the stack
    return _if(on_host, moved, host), _if(1 - on_host, kept, device)


def get_of_two(host: tuple, device: tuple, slot) -> tuple:
    """Return the leaves in a slot, on the device; the first slots are the host's."""
    on_host, there, here = _split(host, slot)
    return _if(on_host, lambda _: get_there(host, there), get(device, here))


def _split(host: tuple, slot):
    """Return 1 if a slot is on the host, else 0, and its entry on the host and on the device."""
    count = host[0].shape[0]
    on_host = (slot < count).astype(jnp.int32)
    return on_host, jnp.minimum(slot, count - 1), jnp.maximum(slot - count, 0)


@functools.cache
def _host_empty(count: int, axis: int):
    """`leaf -> stack` of `count` entries along an axis; `vmap` would broadcast an existing one."""

    @jax.custom_jvp
    @jax.custom_batching.custom_vmap
    def stack(leaf):
        return jax.device_put(zeros_stack(count, jax.typeof(leaf), axis), _HOST)

    @stack.fun.def_vmap
    def batched(size, in_batch, leaf):
        del size, in_batch  # those of the leaf, its only argument
        return _host_empty(count, axis + 1)(leaf), True

    @stack.defjvp
    def tangent(primals, tangents):
        return stack(*primals), stack(*tangents)

    return stack


@functools.cache
def _host_get(axis: int):
    """`(stack, i) -> entry i` along an axis. `vmap` would make it a gather, which host memory lacks."""

    @jax.custom_jvp
    @jax.custom_batching.custom_vmap
    def entry(stack, i):
        return lax.dynamic_index_in_dim(stack, i, axis, keepdims=False)

    @entry.fun.def_vmap
    def batched(size, in_batch, stack, i):
        del size, in_batch  # those of the stack: a schedule is not batched
        return _host_get(axis + 1)(stack, i), True

    @entry.defjvp
    def tangent(primals, tangents):
        stack, i = primals
        return entry(stack, i), entry(tangents[0], i)

    return entry


@functools.cache
def _host_put(axis: int):
    """`(stack, leaf, i) -> stack` with a new entry i along an axis."""

    @jax.custom_jvp
    @jax.custom_batching.custom_vmap
    def replaced(stack, leaf, i):
        return lax.dynamic_update_index_in_dim(stack, leaf, i, axis)

    @replaced.fun.def_vmap
    def batched(size, in_batch, stack, leaf, i):
        stack, leaf = (
            value if is_batched else jnp.broadcast_to(value, (size, *value.shape))
            for value, is_batched in zip((stack, leaf), in_batch, strict=False)
        )
        return _host_put(axis + 1)(stack, leaf, i), True

    @replaced.defjvp
    def tangent(primals, tangents):
        stack, leaf, i = primals
        return replaced(stack, leaf, i), replaced(*tangents[:2], i)

    return replaced


def _if(flag, change, value):
    """`change(value)` if the flag is 1, `value` if it is 0."""
    return lax.fori_loop(0, flag, lambda _, value: change(value), value)
