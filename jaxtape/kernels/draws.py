"""Rules for JAX's keys and random bits, so that each path draws its own random numbers.

JAX's default generator hashes a counter with a key: number i of an array is the hash of i, so a path computes
only its own numbers. The bits are those that `jax.random` draws outside a kernel. In a kernel, an entry of an
array of keys is a pair of tiles of words.

The hash is Threefry-2x32 with 20 rounds: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (2011). JAX's `threefry2x32.py` defines how keys are folded, split and drawn from.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..jax_private import Primitive
from ..jax_private import primitives as p
from .paths import Kind, NoKernelError, Value, paths_axis, without

_MOST = 256  # hashes in one operation
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def is_key(dtype) -> bool:
    """Return True for the dtype of the keys that a kernel can draw from: JAX's default."""
    return str(dtype) == "key<fry>"


def threefry(key: tuple, count: tuple, rolled: bool) -> tuple:
    """Return the two-word hash of a two-word counter under a two-word key.

    The CPU compiler takes minutes over unrolled rounds, so an interpreted kernel has a loop.
    """
    a, b = (jnp.asarray(word) for word in key)
    keys = a, b, a ^ b ^ np.uint32(_PARITY)
    x, y = count[0] + a, count[1] + b

    def turn(carry: tuple, distances: Sequence) -> tuple:
        x, y, keys, number = carry
        for distance in distances:
            x = x + y
            y = x ^ (y << distance | y >> (np.uint32(32) - distance))
        keys = *keys[1:], keys[0]
        return x + keys[0], y + keys[1] + number, keys, number + np.uint32(1)

    carry = x, y, keys, np.uint32(1)
    first, second = (tuple(map(np.uint32, each)) for each in _ROTATIONS)
    if not rolled:
        for distances in (first, second, first, second, first):
            carry = turn(carry, distances)
        return carry[:2]

    def either(carry: tuple, number) -> tuple:
        pairs = zip(second, first, strict=True)
        return turn(carry, [jnp.where(number % 2 == 1, *pair) for pair in pairs]), None

    (x, y, *_), _ = lax.scan(either, (x, y, keys, jnp.uint32(1)), jnp.arange(5))
    return x, y


def pairs(tiles: Sequence) -> list[tuple]:
    """Return the entries of an array of keys from their words in order."""
    return [*zip(tiles[::2], tiles[1::2], strict=True)]


def words(entries: np.ndarray) -> list:
    """Return the words of the entries of an array of keys, in order."""
    return [word for pair in entries.flat for word in pair]


def _wrap(walk: Any, eqn, value: Value) -> Value:
    del walk
    shape = eqn.outvars[0].aval.shape
    if not is_key(eqn.outvars[0].aval.dtype) or value.axis == len(shape):
        raise NoKernelError(f"an array is of {eqn.outvars[0].aval.dtype}")
    found = pairs([*value.entries.flat])
    return Value.of(found, without(shape, value.axis), value.axis, value.kind)


def _unwrap(walk: Any, eqn, keys: Value) -> Value:
    del walk, eqn
    return Value.of(words(keys.entries), (*keys.entries.shape, 2), keys.axis, keys.kind)


def _fold_in(walk: Any, eqn, keys: Value, data: Value) -> Value:
    """Return the keys that are the hashes of 32 bits of data.

    Raises:
        NoKernelError: If keys or data have axes that the other lacks.
    """
    _check(eqn)
    shapes = {v.aval.shape for v in eqn.invars} - {()}
    if len(shapes) > 1:
        raise NoKernelError("a key is folded in for each of several axes")
    return walk.each(
        eqn, [keys, data], lambda key, word: threefry(key, (word ^ word, word), walk.interpret)
    )


def _split(walk: Any, eqn, keys: Value) -> Value:
    """Return the keys that are the hashes of the numbers from 0."""
    return _hashes(walk, eqn, keys, lambda found: found)


def _bits(walk: Any, eqn, keys: Value) -> Value:
    """Return an array of random bits: the hashes of the indices of its entries.

    Raises:
        NoKernelError: If a number has neither 32 nor 64 bits.
    """
    if (width := eqn.params["bit_width"]) not in (32, 64):
        raise NoKernelError(f"a draw takes {width} bits")
    return _hashes(
        walk, eqn, keys, _of_64_bits if width == 64 else lambda found: found[0] ^ found[1]
    )


def _of_64_bits(found: tuple):
    high, low = (word.astype(jnp.uint64) for word in found)
    return high << np.uint64(32) | low


def _hashes(walk: Any, eqn, keys: Value, function) -> Value:
    """Return a function of the hashes of the indices of an array's entries, for each of the keys.

    Raises:
        NoKernelError: If there are too many, or paths do not draw their own.
    """
    _check(eqn)
    shape = tuple(eqn.params["shape"])
    dim, axis, kind = paths_axis(shape, walk.paths), keys.axis, keys.kind
    if dim is not None:
        if axis is not None:
            raise NoKernelError("each path draws as many numbers as there are paths")
        axis, kind = dim + keys.entries.ndim, Kind.OWN
    size, rest = math.prod(shape), without(shape, dim)
    if size >= 2**32 or math.prod(rest) * keys.entries.size > _MOST:
        raise NoKernelError(f"a node draws more than {_MOST} numbers for a path")
    step = 0 if dim is None else math.prod(shape[dim + 1 :])
    places = [(*place[:dim], 0, *place[dim:]) if step else place for place in np.ndindex(*rest)]
    counts = [int(np.ravel_multi_index(place, shape)) if place else 0 for place in places]
    of_path = walk.path * np.uint32(step) if step else None

    def hashed(key: tuple, count: int):
        low = jnp.full_like(key[0], np.uint32(count))
        low = low if of_path is None else low + of_path
        return function(threefry(key, (jnp.zeros_like(low), low), walk.interpret))

    found = [hashed(key, count) for key in keys.entries.flat for count in counts]
    return Value.of(found, (*keys.entries.shape, *rest), axis, kind)


def _check(eqn) -> None:
    """Check that a kernel can draw from keys of this kind.

    Raises:
        NoKernelError: If it cannot.
    """
    dtype, flag = eqn.invars[0].aval.dtype, "jax_threefry_partitionable"
    if not is_key(dtype):
        raise NoKernelError(f"an array is of {dtype}")
    if not getattr(jax.config, flag):
        raise NoKernelError(f"{flag} is off")


def _primitive(function: Callable, argument: Any) -> Primitive:
    """Return the primitive of a function of one argument."""
    (eqn,) = jax.make_jaxpr(function)(argument).jaxpr.eqns
    return eqn.primitive


_WORDS = jax.ShapeDtypeStruct((2,), "uint32")
_of_words = functools.partial(jax.random.wrap_key_data, impl="threefry2x32")
RULES = {
    _primitive(_of_words, _WORDS): _wrap,
    _primitive(jax.random.key_data, jax.eval_shape(_of_words, _WORDS)): _unwrap,
    p.random_fold_in_p: _fold_in,
    p.random_split_p: _split,
    p.random_bits_p: _bits,
}
