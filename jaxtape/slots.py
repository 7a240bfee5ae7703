"""Where kept states lie: stacks of leaves, one entry a slot, on the device and in the host's memory."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Mask = tuple[bool, ...]


class Slots(NamedTuple):
    """The needed leaves of every state that is kept. Of `n` slots in all, the first are the host's."""

    host: tuple = ()
    device: tuple = ()

    @classmethod
    def empty(cls, table, leaves: tuple) -> "Slots":
        """As many slots as a table has, at its precision; each holds a first state's `leaves`."""
        leaves = tuple(_rounded(leaf, table.checkpoint_dtype) for leaf in leaves)

        def stacked(count: int) -> tuple:
            return tuple(jnp.broadcast_to(leaf, (count, *leaf.shape)) for leaf in leaves)

        host = _moved(stacked(table.host_slots), _HOST) if table.host_slots else ()
        return cls(host, stacked(table.slots - table.host_slots))

    def put(self, leaves: tuple, slot) -> "Slots":
        """With other leaves in a slot."""
        leaves = tuple(map(_as, leaves, self.device))
        if not self.host:
            return Slots((), put(self.device, leaves, slot))
        on_host, there, here = self._split(slot)
        # a loop of one or no turn writes in place, where a branch would copy the stack
        return Slots(
            _if(on_host, lambda host: put(host, _moved(leaves, _HOST), there), self.host),
            _if(1 - on_host, lambda device: put(device, leaves, here), self.device),
        )

    def get(self, slot, like: tuple) -> tuple:
        """The leaves in a slot, at the precision of `like`."""
        if not self.host:
            leaves = get(self.device, slot)
        else:
            on_host, there, here = self._split(slot)
            fetch = lambda _: _moved(get(self.host, there), _DEVICE)  # noqa: E731
            leaves = _if(on_host, fetch, get(self.device, here))
        return tuple(map(_as, leaves, like))

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


def pick(mask: Mask, leaves: Sequence) -> tuple:
    """The leaves that the mask selects."""
    return tuple(leaf for chosen, leaf in zip(mask, leaves, strict=True) if chosen)


_HOST, _DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def _moved(leaves: tuple, space) -> tuple:
    return tuple(jax.device_put(leaf, space) for leaf in leaves)


def _if(flag, change, value):
    """`change(value)` if the flag is 1, `value` if it is 0."""
    return lax.fori_loop(0, flag, lambda _, value: change(value), value)


def _rounded(leaf, dtype):
    """A real floating-point leaf at the precision of the slots."""
    lowers = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(dtype) if lowers else leaf


def _as(leaf, like):
    """A leaf at the precision of another."""
    return leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype)
