"""Sobol' points under a random linear scramble, drawn inside a compiled program."""

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from .gaussian import uniform_of
from .threefry import random_bits

_BITS = 32
MAX_DIMENSION = 21201  # of Joe and Kuo's direction numbers (2008), which scipy has


def uniform_of_sobol(words: UInt32[Array, "..."], dtype) -> Float[Array, "..."]:
    """Return the middle of the cell of 2**-32 (float64) or 2**-23 (float32) given by a word."""
    if dtype == jnp.float32:
        return uniform_of((words,), dtype)
    return (words.astype(dtype) + np.float64(0.5)) * np.float64(2.0**-_BITS)


def sobol_words(
    key: PRNGKeyArray | None, num_points: int, dimension: int
) -> UInt32[Array, "dimension high low"]:
    """Return the first `num_points` Sobol' points: the first 32 bits of their fractions.

    Of the index of a point the high bits are on one axis, the low ones on another.

    key: another scramble for another key, a random lower triangular matrix over the bits of each coordinate and
    a random digital shift (Matousek 1998), so that each point is uniform and any 2**k of these points that
    were an elementary net still are one: each coordinate has one in each of `num_points` equal cells. None
    leaves them as they are.

    Raises:
        ValueError: If num_points is no power of two, or the dimension has no direction numbers.
    """
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ValueError(
            f"dimension must be from 1 to {MAX_DIMENSION}, got {dimension}; take fewer steps, or "
            "PseudoRandom(), which has no such limit"
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

    In Gray-code order, which is scipy's, the point of index 2**(k + 1) - 1 is the direction number k alone.
    """
    from scipy.stats import qmc  # here, for it takes half a second

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

    Bit i, from the first, becomes the parity of bit i and of a random choice of the bits before it.
    """
    first = np.uint32(2**31) >> np.arange(_BITS, dtype=np.uint32)
    before = ~(first | (first - np.uint32(1)))
    masks = (rows & before[:, None]) | first[:, None]
    parity = lax.population_count(masks[:, :, None] & directions[None]) & np.uint32(1)
    return jnp.sum(parity * first[:, None, None], axis=0, dtype=jnp.uint32)


def _span(directions: UInt32[Array, "dimension k"]) -> UInt32[Array, "dimension 2**k"]:
    """Return the exclusive or of every choice of direction numbers, that of index i of the bits of i."""
    count = directions.shape[1]
    chosen = (np.arange(2**count)[None] >> np.arange(count)[:, None]) & 1 > 0
    terms = jnp.where(chosen[None], directions[:, :, None], np.uint32(0))
    return lax.reduce(terms, np.uint32(0), lax.bitwise_xor, (1,))
