"""The storage of kept states: which leaves, in which dtype, and in which memory."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ..jax_settings.platform import platforms_in_use
from . import host_memory
from .chain import AbstractExecutor, Chain
from .leaves import get, leaf_bytes, pick, put, shapes, with_bits_of


@dataclasses.dataclass(frozen=True, eq=False)
class StateStore:
    """The slots of a prepared chain.

    Slots are a pair `(host, device)` of tuples of stacks, with a stack for each needed leaf and an entry for
    each slot. The first slots are the host's, if its memory is separate from the device's.

    Attributes:
        chain: The chain. Its `needed` leaves are kept, in its executor's `checkpoint_dtype`.
        first: The needed leaves of the first state.
    """

    chain: Chain
    first: tuple

    @classmethod
    def of(cls, chain: Chain, init: tuple) -> "StateStore":
        """Return the store of a chain's states, the first of which is `init`."""
        return cls(chain, pick(chain.needed, init))

    def encode(self, leaves: tuple) -> tuple:
        """Return needed leaves as slots hold them: real numbers in the slots' dtype, keys as words."""
        return tuple(encoded(leaf, self.chain.executor.checkpoint_dtype) for leaf in leaves)

    def decode(self, leaves: tuple) -> tuple:
        """Return the needed leaves of a state from the content of a slot."""
        types = jax.eval_shape(self.encode, self.first)
        triples = zip(leaves, types, self.first, strict=True)
        return tuple(_decoded(with_bits_of(leaf, aval.dtype), like) for leaf, aval, like in triples)

    def empty(self) -> tuple:
        """Return the slots before a sweep: the first state on the device, uninitialised on the host."""
        leaves, on_host = self.encode(self.first), host_slots(self.chain.executor)
        host = host_memory.empty(leaves, on_host) if on_host else ()
        count = self.chain.executor.table.slots - on_host
        device = tuple(jnp.broadcast_to(leaf, (count, *leaf.shape)) for leaf in leaves)
        return packed(self.chain, (host, device))

    def put(self, slots: tuple, slot, leaves: tuple, on_host: bool | None = None) -> tuple:
        """Return the slots with the needed leaves of a state in one of them.

        `on_host` says whether it is on the host; None if that is known only when the program runs.
        """
        (host, device), leaves = slots, self.encode(leaves)
        if not host:
            return (), put(device, leaves, slot)
        if on_host is None:
            return host_memory.put_of_two(host, device, leaves, slot)
        if on_host:
            return host_memory.put_there(host, leaves, slot), device
        return host, put(device, leaves, slot - host[0].shape[0])

    def get(self, slots: tuple, slot, on_host: bool) -> tuple:
        """Return the needed leaves of the state in a slot that is known to be, or not to be, on the host."""
        host, device = slots
        if host and on_host:
            return self.decode(host_memory.get_there(host, slot))
        return self.decode(get(device, slot - host[0].shape[0] if host else slot))

    def get_at(self, slots: tuple, slot, position) -> tuple:
        """Return the needed leaves of the state at a position from its slot.

        The first state itself is in no slot on the host.
        """
        host, device = slots
        if not host:
            return self.decode(get(device, slot))
        pairs = zip(
            self.encode(self.first), host_memory.get_of_two(host, device, slot), strict=True
        )
        return self.decode(tuple(lax.select(position == 0, *pair) for pair in pairs))

    def unpack(self, slots: tuple) -> tuple:
        """Return slots with the integers of `packed` turned back into floats."""
        types = for_each_stack(slots, jax.eval_shape(self.encode, self.first))
        return jax.tree.map(lambda stack, aval: with_bits_of(stack, aval.dtype), slots, types)


def host_slots(executor: AbstractExecutor) -> int:
    """Return the number of slots in the host's memory, if that is separate from the device's, else 0."""
    on_host = executor.table.host_slots
    return on_host if on_host and host_is_separate() else 0


def host_is_separate() -> bool:
    """Return True if the host's memory is separate from the device's."""
    return "cpu" not in platforms_in_use()


def slot_bytes(chain: Chain, init: tuple) -> int:
    """Return the bytes of the needed leaves of one state in a slot."""
    store = StateStore.of(chain, shapes(init))
    return leaf_bytes(jax.eval_shape(store.encode, store.first))


def for_each_stack(slots: tuple, values: tuple) -> tuple:
    """Return a value for each stack of the slots, such as its batch axis, from those of the needed leaves."""
    host, _ = slots
    return values if host else (), values


def packed(chain: Chain, stacks):
    """Return stacks with narrow floats as integers, as a sweep holds them."""
    if not chain.in_bits or host_slots(chain.executor):
        return stacks
    return jax.tree.map(_as_bits, stacks)


@jax.custom_jvp
def _as_bits(stack):
    """Return a stack of floats narrower than 32 bits as integers: on CPUs XLA would widen the whole stack."""
    narrow = jnp.issubdtype(stack.dtype, jnp.floating) and stack.dtype.itemsize < 4
    return lax.bitcast_convert_type(stack, f"uint{8 * stack.dtype.itemsize}") if narrow else stack


@_as_bits.defjvp
def _(primals, tangents):
    (stack,), (dot,) = primals, tangents
    bits = _as_bits(stack)
    if bits.dtype != stack.dtype:
        raise NotImplementedError(
            "Bits have no tangent: use forward mode through a chain with in_bits=False."
        )
    return bits, dot


def encoded(leaf, dtype):
    """Return a leaf as a stack holds it: a real number in `dtype`, if that is given, and a key as its words."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)  # keys cannot be moved between memories
    lowers = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(dtype) if lowers else leaf


def _decoded(leaf, like):
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like))
    return leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype)
