"""Threefry-2x32 as plain elementwise operations, which compilers fuse into their consumers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray, UInt32

Words = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_GROUPS = 5  # of four rounds each


def threefry_2x32(key_words: Words, counters: Words) -> Words:
    """Return two random words for each pair of counter words, of the shape of the counters.

    There are 20 rounds. A round on the words (a, b) is a += b, b = rotate_left(b, r) ^ a, and a word of the key
    is added after every fourth (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2,
    3", section 3.3). `jax.random` has the same function, but on CPUs its rounds are a loop with its state in
    memory.
    """
    first, second = key_words
    schedule = (first, second, first ^ second ^ _PARITY)
    a, b = counters[0] + schedule[0], counters[1] + schedule[1]
    for group in range(_GROUPS):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = _rotated(b, rotation) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return a, b


def words_of(key: PRNGKeyArray) -> Words:
    """Return the two words of a threefry key from `jax.random.key`.

    Raises:
        TypeError: The key belongs to another generator.
    """
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = jax.random.key_data(key) if typed else key
    if words.shape != (2,):
        raise TypeError(
            f"key must be one key of the generator threefry2x32, got {key}; make it by "
            "jax.random.key(seed, impl='threefry2x32')"
        )
    return words[0], words[1]


def random_bits(key: PRNGKeyArray, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Return 32 random bits per element, equal to `jax.random.bits(key, shape)`.

    The counter of an element is its index; its word is the exclusive or of the counter's two words.

    Raises:
        ValueError: There are more than 2**32 elements.
    """
    size = math.prod(shape)
    if size > 2**32:
        raise ValueError(f"shape must have at most 2**32 elements, got {shape}; draw it in parts")
    index = lax.iota(jnp.uint32, size)
    a, b = threefry_2x32(words_of(key), (jnp.zeros_like(index), index))
    return (a ^ b).reshape(shape)


def _rotated(word: UInt32[Array, "..."], by: int) -> UInt32[Array, "..."]:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))
