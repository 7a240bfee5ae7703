"""Counter-based standard normals and uniforms: any row of an infinite array can be drawn separately.

Row r of an array [rows, ...] is drawn in pairs: pair j of half the row's length has the counter (r, j) in
float32, and the counters (r, 2 j) and (r, 2 j + 1) in float64. The first elements of the pairs fill the first
half of the row.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Integer, PRNGKeyArray

from .threefry import threefry_2x32, words_of
from .transforms import Real, Word, normal_pair

Part = tuple[int | Integer[Array, ""], int]
"""The index of a part, and the number of equal parts."""

_TILE = 8192  # pairs that a CPU draws at a time, to fit its cache


def normals(
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    dtype: Any = None,
    *,
    first_row: int | Integer[Array, ""] = 0,
    part: Part | None = None,
) -> Inexact[Array, "..."]:
    """Return standard normals: rows `first_row`, `first_row + 1`, ... of an infinite array of rows `shape[1:]`.

    An element depends on the key, the index of its row, its place in the row and the length of the row:
    `normals(key, (10, n))[3:5]` and `normals(key, (2, n), first_row=3)` are equal up to rounding. A vector is
    one row. No element is infinite. Other dtypes, and rows of 2**32 elements or more, raise ValueError.

    In complex64 or complex128, real and imaginary part are a pair, each a standard normal; the two halves of a
    real row are the parts of a complex row of half its length. Reading two motions as one complex array saves a
    pass over memory in loops.

    Args:
        key: A threefry key from `jax.random.key`.
        shape: The shape of the result, with rows first.
        dtype: float32 (32 bits for radius and angle of a pair), float64 (64 bits for each) or a complex dtype;
            None for JAX's default.
        first_row: The index of the first row.
        part: An index and a count: draw only the part with this index, out of `count` equal parts of both
            halves of every row, concatenated: `shape[1] / count` elements instead of `shape[1]`. Pairs are
            drawn once for any number of parts.

    Returns:
        The normals, of that shape.

    Examples:
        >>> normals(jax.random.key(0), (3, 4)).shape
        (3, 4)
    """
    dtype = _default(dtype)
    if dtype in (jnp.complex64, jnp.complex128):
        real = jnp.finfo(dtype).dtype
        return _rows(normal_pair, True, key, tuple(shape), real, first_row, *(part or ()))
    return _rows(
        normal_pair, False, key, tuple(shape), checked_dtype(dtype), first_row, *(part or ())
    )


def uniforms(
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    dtype: Any = None,
    *,
    first_row: int | Integer[Array, ""] = 0,
    part: Part | None = None,
) -> Float[Array, "..."]:
    """Return uniforms in the open interval (0, 1), in rows like `normals`.

    They are the midpoints of 2**23 (float32) or 2**52 (float64) cells, so that 1 - u is also one of them.

    Args:
        key: A threefry key from `jax.random.key`.
        shape: The shape of the result, with rows first.
        dtype: float32 or float64; None for JAX's default.
        first_row: The index of the first row.
        part: The part of every row, as in `normals`.

    Returns:
        The uniforms, of that shape.

    Examples:
        >>> uniforms(jax.random.key(0), (3, 4)).shape
        (3, 4)
    """
    dtype = checked_dtype(dtype)
    return _rows(_uniform_pair, False, key, tuple(shape), dtype, first_row, *(part or ()))


def uniform_of(words: tuple[Word, ...], dtype) -> Real:
    """Return the uniform in (0, 1) from the first 23 bits of one word (float32) or 52 bits of two."""
    if dtype == jnp.float32:
        top = (words[0] >> np.uint32(9)).astype(dtype)
        return (top + np.float32(0.5)) * np.float32(2.0**-23)
    top = words[0].astype(dtype) * np.float64(2.0**20)
    below = (words[1] >> np.uint32(12)).astype(dtype)
    return (top + below + np.float64(0.5)) * np.float64(2.0**-52)


def checked_dtype(dtype) -> jnp.dtype:
    """Return float32 or float64; None means JAX's default.

    Raises:
        ValueError: The dtype is another one.
    """
    dtype = _default(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}; convert what was drawn")
    return dtype


def _default(dtype) -> jnp.dtype:
    return jnp.dtype(jnp.result_type(float) if dtype is None else dtype)


def _uniform_pair(words: tuple[Word, ...], dtype) -> tuple[Real, Real]:
    half = len(words) // 2
    return uniform_of(words[:half], dtype), uniform_of(words[half:], dtype)


@functools.partial(jax.jit, static_argnames=("draw", "paired", "shape", "dtype", "parts"))
def _rows(
    draw: Callable,
    paired: bool,
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    dtype,
    first_row,
    part: int | Integer[Array, ""] | None = None,
    parts: int = 1,
) -> Array:
    """Return `draw` of the words of every pair, as complex numbers if `paired`, else in halves of rows.

    Raises:
        ValueError: A row has 2**32 elements or more, or its parts are not equal.
    """
    rows, row = (1, shape) if len(shape) < 2 else (shape[0], shape[1:])
    length = math.prod(row)
    half = length if paired else -(-length // 2)
    if half * dtype.itemsize // 4 >= 2**32:
        raise ValueError(f"a row must have less than 2**32 elements, got {length}; draw more rows")
    first_place = None
    if part is not None:
        if len(shape) < 2 or shape[1] % (parts if paired else 2 * parts):
            raise ValueError(f"rows of an array {shape} have no {parts} equal parts of both halves")
        half //= parts
        length, shape = length // parts, (rows, shape[1] // parts, *shape[2:])
        first_place = jnp.asarray(part).astype(jnp.uint32) * np.uint32(half)
    first = jnp.asarray(first_row), first_place
    pair = functools.partial(_pair, draw, words_of(key), first, dtype)
    whole = functools.partial(_at_once, pair, paired, rows, half)
    tiled = functools.partial(_by_tiles, pair, paired, rows, half, is_part=part is not None)
    each = functools.partial(_each_its_pair, pair, rows, half)
    is_one_tile = rows * half <= _TILE
    by_platform = {"cpu": tiled, "default": whole}
    if not paired and 2 * rows * half < 2**32:
        by_platform["cuda"] = each
        if dtype == jnp.float32:  # a TPU emulates float64, so that to draw twice takes long
            by_platform["tpu"] = functools.partial(each, in_rows=True)
    flat = functools.partial(_reshaped, (rows, half if paired else 2 * half))
    by_platform = {name: flat(draw) for name, draw in by_platform.items()}
    drawn = by_platform["default"]() if is_one_tile else lax.platform_dependent(**by_platform)
    return drawn[:, :length].reshape(shape)


def _reshaped(shape: tuple[int, int], draw: Callable) -> Callable:
    """Return a function that draws the same in another shape."""
    return lambda: draw().reshape(shape)


def _pair(draw, key_words, first, dtype, row: Word, place: Word) -> tuple[Real, Real]:
    """Return the pairs at given places of given rows, counted from the first row and place."""
    first_row, first_place = first
    row = row + first_row.astype(jnp.uint32)
    place = place if first_place is None else place + first_place
    if dtype == jnp.float32:
        return draw(threefry_2x32(key_words, (row, place)), dtype)
    counters = [(row, place * np.uint32(2) + np.uint32(i)) for i in (0, 1)]
    words = [word for counter in counters for word in threefry_2x32(key_words, counter)]
    return draw(tuple(words), dtype)


def _at_once(pair: Callable, paired: bool, rows: int, half: int) -> Array:
    """Return all pairs, as complex numbers [rows, half] or as [rows, 2, half]."""
    first, second = pair(*(lax.broadcasted_iota(jnp.uint32, (rows, half), axis) for axis in (0, 1)))
    return lax.complex(first, second) if paired else _halves(first, second)


def _each_its_pair(pair: Callable, rows: int, half: int, *, in_rows: bool = False) -> Array:
    """Return the numbers of `_at_once`, with every number drawing its own pair.

    This takes a single kernel. Otherwise one kernel would write both halves, and others read them. A GPU
    computes row and place from the number, and a TPU takes them from two arrays in rows.
    """
    size = np.uint32(2 * half)
    if in_rows:
        row, place = (lax.broadcasted_iota(jnp.uint32, (rows, 2 * half), axis) for axis in (0, 1))
    else:
        number = lax.iota(jnp.uint32, 2 * rows * half)
        row, place = number // size, number % size
    in_first = place < np.uint32(half)
    first, second = pair(row, jnp.where(in_first, place, place - np.uint32(half)))
    found = jnp.where(in_first, first, second)
    return lax.optimization_barrier(found) if in_rows else found  # or its consumers change the rows


def _by_tiles(pair: Callable, paired: bool, rows: int, half: int, is_part: bool) -> Array:
    """Return the result of `_at_once`, a tile at a time.

    A CPU compiler generates a loop per array, and would repeat all rounds for the second of each pair. A pair
    is therefore one complex number, and the loop carries a tile of pairs until they are separated.
    """
    shape = max(1, _TILE // half), min(half, _TILE)
    if is_part:  # short rows: tiles with equal numbers of rows
        shape = -(-rows // -(-rows // shape[0])), shape[1]
    down, across = (-(-size // tile) for size, tile in zip((rows, half), shape, strict=True))

    def corner(number):
        return number // across * shape[0], number % across * shape[1]

    def tile(number):
        starts = zip((0, 1), corner(number), strict=True)
        iota = functools.partial(lax.broadcasted_iota, jnp.uint32, shape)
        places = (iota(axis) + start.astype(jnp.uint32) for axis, start in starts)
        return lax.complex(*pair(*places))

    def whole(number, out):
        return lax.dynamic_update_slice(out, tile(number), corner(number))

    def parted(number, carry):
        out, pairs = carry
        row, place = corner(number - 1)
        halves = _halves(lax.real(pairs), lax.imag(pairs))
        out = lax.dynamic_update_slice(out, halves, (row, jnp.zeros_like(row), place))
        return out, tile(number)

    first, tiles = tile(jnp.int32(0)), down * across
    size = down * shape[0], across * shape[1]
    if paired:
        out = jnp.broadcast_to(first[0, 0], size)
        return lax.fori_loop(jnp.int32(0), jnp.int32(tiles), whole, out)[:rows, :half]
    out = jnp.broadcast_to(lax.real(first[0, 0]), (size[0], 2, size[1]))
    out, _ = lax.fori_loop(jnp.int32(1), jnp.int32(tiles + 1), parted, (out, first))
    return out[:rows, :, :half]


def _halves(first: Real, second: Real) -> Real:
    """Return [rows, 2, half] from two arrays [rows, half] by selection, faster than concatenation on CPUs."""
    in_first = lax.broadcasted_iota(jnp.int32, (1, 2, 1), 1) == 0
    return jnp.where(in_first, first[:, None], second[:, None])
