"""Sobol' points with a random linear scramble, generated inside a compiled program."""

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from .gaussian import uniform_of
from .threefry import random_bits

_BITS = 32
MAX_DIMENSION = 21201  # dimensions of the direction numbers of Joe and Kuo (2008) in scipy


def uniform_of_sobol(words: UInt32[Array, "..."], dtype) -> Float[Array, "..."]:
    """Return the midpoint of a word's cell of size 2**-32 (float64) or 2**-23 (float32)."""
    if dtype == jnp.float32:
        return uniform_of((words,), dtype)
    return (words.astype(dtype) + np.float64(0.5)) * np.float64(2.0**-_BITS)


def sobol_words(
    key: PRNGKeyArray | None, num_points: int, dimension: int
) -> UInt32[Array, "dimension high low"]:
    """Return the first `num_points` Sobol' points as the first 32 bits of their binary fractions.

    The high bits of a point's index are on one axis, the low bits on another.

    key: the key of the scramble, a random lower triangular matrix over the bits of each coordinate and a random
    digital shift (Matousek 1998). Each point is then uniform, and elementary nets are preserved: each
    coordinate has one point in each of `num_points` equal cells. None: no scramble.

    Raises:
        ValueError: num_points is not a power of two, or the dimension has no direction numbers.
    """
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ValueError(
            f"dimension must be from 1 to {MAX_DIMENSION}, got {dimension}; use fewer steps, or "
            f"PseudoRandom(), which has no such limit"
        )
    log2 = max(int(num_points), 1).bit_length() - 1
    if num_points != 2**log2 or log2 > _BITS:
        near = 2 ** max(0, min(_BITS, round(math.log2(max(num_points, 1)))))
        raise ValueError(f"num_points must be a power of 2, got {num_points}; {near} is near")
    directions = jnp.asarray(direction_numbers(dimension, log2))
    if key is None:
        shift = jnp.zeros((dimension,), jnp.uint32)
    else:
        rows = random_bits(key, (_BITS + 1, dimension))
        directions, shift = _scrambled(directions, rows[:_BITS]), rows[_BITS]
    low = _span(directions[:, : log2 // 2])
    high = _span(directions[:, log2 // 2 :]) ^ shift[:, None]
    return high[:, :, None] ^ low[:, None, :]


@functools.lru_cache(maxsize=64)
def direction_numbers(dimension: int, count: int) -> np.ndarray:
    """Return the first `count` direction numbers of each dimension, uint32 [dimension, count].

    In Gray-code order, as in scipy, the point with index 2**(k + 1) - 1 is direction number k.
    """
    from scipy.stats import qmc  # imported here: it takes half a second

    engine = qmc.Sobol(dimension, scramble=False, bits=_BITS)
    table = np.empty((dimension, count), np.uint32)
    for k in range(count):
        engine.fast_forward(2 ** (k + 1) - 1 - engine.num_generated)
        table[:, k] = np.ldexp(engine.random(1)[0], _BITS).astype(np.uint32)
    return table


def _scrambled(
    directions: UInt32[Array, "dimension log2"], rows: UInt32[Array, "32 dimension"]
) -> UInt32[Array, "dimension log2"]:
    """Apply a lower triangular matrix to each direction number.

    Bit i, from the first, becomes the parity of bit i and a random subset of the bits before it.
    """
    first = np.uint32(2**31) >> np.arange(_BITS, dtype=np.uint32)
    before = ~(first | (first - np.uint32(1)))
    masks = (rows & before[:, None]) | first[:, None]
    parity = lax.population_count(masks[:, :, None] & directions[None]) & np.uint32(1)
    return jnp.sum(parity * first[:, None, None], axis=0, dtype=jnp.uint32)


def _span(directions: UInt32[Array, "dimension k"]) -> UInt32[Array, "dimension 2**k"]:
    """Return the exclusive or of every subset of direction numbers; index i selects those of its bits."""
    count = directions.shape[1]
    chosen = (np.arange(2**count)[None] >> np.arange(count)[:, None]) & 1 > 0
    terms = jnp.where(chosen[None], directions[:, :, None], np.uint32(0))
    return lax.reduce(terms, np.uint32(0), lax.bitwise_xor, (1,))
