"""Where kept states lie: stacks of leaves, one entry a slot, on the device and in the host's memory."""

import functools
from typing import NamedTuple

import jax
import jax.custom_batching
import jax.numpy as jnp
from jax import lax


class Slots(NamedTuple):
    """The needed leaves of every state that is kept. Of `n` slots in all, the first are the host's."""

    host: tuple = ()
    device: tuple = ()

    @classmethod
    def empty(cls, table, leaves: tuple) -> "Slots":
        """As many slots as a table has, at its precision; each holds a first state's `leaves`."""
        leaves = tuple(stored(leaf, table.checkpoint_dtype) for leaf in leaves)
        on_host = table.host_slots if host_is_apart() else 0

        def stacked(count: int) -> tuple:
            return tuple(jnp.broadcast_to(leaf, (count, *leaf.shape)) for leaf in leaves)

        return cls(
            _moved(stacked(on_host), _HOST) if on_host else (), stacked(table.slots - on_host)
        )

    def each(self, values: tuple) -> "Slots":
        """A value for each stack, from one for each leaf."""
        return Slots(values if self.host else (), values)

    def put(self, leaves: tuple, slot) -> "Slots":
        """With other leaves in a slot."""
        leaves = tuple(
            stored(leaf, stack.dtype) for leaf, stack in zip(leaves, self.device, strict=True)
        )
        if not self.host:
            return Slots((), put(self.device, leaves, slot))
        on_host, there, here = self._split(slot)
        moved = lambda host: tuple(  # noqa: E731
            _host_put(0)(stack, leaf, there)
            for stack, leaf in zip(host, _moved(leaves, _HOST), strict=True)
        )
        # a loop of one or no turn writes in place, where a branch would copy the stack
        return Slots(
            _if(on_host, moved, self.host),
            _if(1 - on_host, lambda device: put(device, leaves, here), self.device),
        )

    def get(self, slot, like: tuple) -> tuple:
        """The leaves in a slot, at the precision of `like`."""
        if not self.host:
            leaves = get(self.device, slot)
        else:
            on_host, there, here = self._split(slot)
            fetched = lambda: tuple(_host_get(0)(stack, there) for stack in self.host)  # noqa: E731
            leaves = _if(on_host, lambda _: _moved(fetched(), _DEVICE), get(self.device, here))
        return tuple(map(_restored, leaves, like))

    def _split(self, slot):
        """Whether a slot is the host's (0 or 1), and which entry it is there and here."""
        count = self.host[0].shape[0]
        on_host = (slot < count).astype(jnp.int32)
        return on_host, jnp.minimum(slot, count - 1), jnp.maximum(slot - count, 0)


def get(stacked: tuple, i) -> tuple:
    """Entry i of each stack."""
    return tuple(lax.dynamic_index_in_dim(a, i, keepdims=False) for a in stacked)


def put(stacked: tuple, leaves: tuple, i) -> tuple:
    """Each stack with another entry i."""
    return tuple(
        lax.dynamic_update_index_in_dim(a, leaf, i, 0)
        for a, leaf in zip(stacked, leaves, strict=True)
    )


def host_is_apart() -> bool:
    """Whether the host's memory is another than the device's."""
    return jax.default_backend() != "cpu"


_HOST, _DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def _moved(leaves: tuple, space) -> tuple:
    return tuple(jax.device_put(leaf, space) for leaf in leaves)


@functools.cache
def _host_get(axis: int):
    """`(stack, i) -> entry i` along an axis. `vmap` would make it a gather, which host memory has not."""

    @jax.custom_jvp
    @jax.custom_batching.custom_vmap
    def entry(stack, i):
        return lax.dynamic_index_in_dim(stack, i, axis, keepdims=False)

    @entry.fun.def_vmap
    def batched(size, in_batch, stack, i):
        del size, in_batch  # of the stack alone: a schedule is not batched
        return _host_get(axis + 1)(stack, i), True

    @entry.defjvp
    def tangent(primals, tangents):
        stack, i = primals
        return entry(stack, i), entry(tangents[0], i)

    return entry


@functools.cache
def _host_put(axis: int):
    """`(stack, leaf, i) -> stack` with another entry i along an axis."""

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


def stored(leaf, dtype):
    """A leaf as slots hold it: real numbers at their precision (None: as they are), a key as its words."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)  # keys cannot be moved between memories
    lowers = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(dtype) if lowers else leaf


def _restored(leaf, like):
    """A leaf of a slot as one of the state."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like))
    return leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype)
