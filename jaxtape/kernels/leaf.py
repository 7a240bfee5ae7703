"""A leaf of a chain as a kernel reads and writes it: a stack with one row, of all paths, per entry."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from .draws import is_key, pairs, words
from .pallas import Tile, every, full
from .paths import Kind, NoKernelError, Value, paths_axis, without
from .per_path_functions import has_dtype

_MOST_CONSTANTS = 4096  # entries of an array that stays on the host


class Leaf(NamedTuple):
    """A stack of arrays of one type.

    An array with an axis of paths is laid out as `(stack * rows, *paths)`. An array without one is a vector if
    a kernel reads it; if a kernel writes it, every path has a copy, or each tile the sum over its paths.

    A TPU holds the last two axes of an array in tiles, such as 2 x 128, and a tile of paths is 8 x 128 of one
    row. A kernel picks that row from among `sublanes` rows of tiles in place: nothing is copied.

    Attributes:
        shape: The shape of an array.
        dtype: Its dtype.
        axis: The axis of the paths, or None.
        stack: The number of arrays.
        is_sum: Whether the leaf is the sum of the paths' contributions.
        sublanes: The number of rows in a tile of a TPU's memory.
    """

    shape: tuple[int, ...]
    dtype: jnp.dtype
    axis: int | None
    stack: int = 1
    is_sum: bool = False
    sublanes: int = 1

    @classmethod
    def of(cls, aval, tile: Tile, paths: int, stack: int = 1) -> "Leaf":
        """Return the leaf of a type.

        Raises:
            NoKernelError: If a kernel cannot read it.
        """
        if not is_key(aval.dtype) and not has_dtype(tile.platform, aval.dtype):
            raise NoKernelError(f"an array is of {aval.dtype}")
        if not aval.size:
            raise NoKernelError("an array is empty")
        axis = paths_axis(aval.shape, paths)
        leaf = cls(aval.shape, aval.dtype, axis, stack)
        if tile.platform == "gpu" or axis is None:
            return leaf
        return leaf._replace(sublanes=_sublanes((stack, *leaf.entries, *leaf.words)[-1]))

    @property
    def entries(self) -> tuple[int, ...]:
        """The shape without the axis of the paths."""
        return without(self.shape, self.axis)

    @property
    def words(self) -> tuple[int, ...]:
        """The shape of an entry: a key has two words."""
        return (2,) if is_key(self.dtype) else ()

    @property
    def rows(self) -> int:
        """The number of entries, or of words of keys."""
        return math.prod(self.entries + self.words)

    @property
    def in_words(self) -> "Leaf":
        """The leaf of the words of keys; any other leaf as it is."""
        if not self.words:
            return self
        return self._replace(shape=(*self.shape, 2), dtype=self.held)

    @property
    def held(self) -> jnp.dtype:
        """The dtype in memory and in loops: flags become integers there, and keys words."""
        if self.words:
            return jnp.dtype("uint32")
        return jnp.dtype("int32") if self.dtype == jnp.bool_ else self.dtype

    def written(self, tile: Tile, paths: int) -> jax.ShapeDtypeStruct:
        """Return the type in which a kernel writes the leaf."""
        if self.is_sum:
            rows, tiles = self.stack * self.rows, paths // tile.size
            return jax.ShapeDtypeStruct(
                (rows, tiles) if tile.platform == "gpu" else (rows,), self.held
            )
        above, *lanes = tile.folded(paths)
        rows = self.stack * self.rows // self.sublanes
        return jax.ShapeDtypeStruct((rows, above * self.sublanes, *lanes), self.held)

    def bytes(self, tile: Tile, paths: int) -> int:
        """Return the bytes of the stack in memory."""
        if self.axis is None and not self.is_sum:
            return self.stack * self.rows * self.held.itemsize
        written = self.written(tile, paths)
        return written.size * self.held.itemsize

    def laid(self, stack: Any, tile: Tile) -> Any:
        """Return a stack as a kernel reads it."""
        stack = jax.random.key_data(stack) if self.words else stack.astype(self.held)
        if self.axis is None:
            return jnp.reshape(stack, -1)
        paths = self.shape[self.axis]
        last = jnp.moveaxis(stack, self.axis + 1, -1)
        rows = last.reshape(-1, self.sublanes, *tile.folded(paths))
        return jnp.swapaxes(rows, 1, 2).reshape(self.written(tile, paths).shape)

    def unlaid(self, vector: jax.Array) -> jax.Array:
        """Return the stack from the vector as which a kernel reads what all paths share."""
        found = vector.reshape(self.stack, *self.entries, *self.words)
        if self.words:
            return jax.random.wrap_key_data(found, impl="threefry2x32")
        return found.astype(self.dtype)

    def taken(self, written: jax.Array, tile: Tile) -> jax.Array:
        """Return the stack from what a kernel has written, after the sums of tiles are added up."""
        if self.is_sum:
            return written.reshape(self.stack, *self.entries)
        shape = -1, written.shape[1] // self.sublanes, self.sublanes, *tile.shape[1:]
        rows = jnp.swapaxes(written.reshape(shape), 1, 2)
        flat = rows.reshape(self.stack, *self.entries, *self.words, -1)
        found = flat[..., 0] if self.axis is None else jnp.moveaxis(flat, -1, self.axis + 1)
        return (
            jax.random.wrap_key_data(found, impl="threefry2x32")
            if self.words
            else found.astype(self.dtype)
        )

    def load(self, ref, k, tile: Tile) -> tuple:
        """Return the tiles of array k of a stack in the kernel's layout."""
        if len(ref.shape) > 1:
            return tuple(ref[self._place(k, row, tile)] for row in range(self.rows))
        first = k * np.int32(self.rows)
        rows = (ref[first + np.int32(row)] for row in range(self.rows))
        return tuple(full(tile, row, self.held) for row in rows)

    def store(self, ref, k, tiles: Sequence, tile: Tile, number: Any = None) -> None:
        """Write the tiles of array k, or their sums over the paths; sums need the `number` of the tile."""
        for row, each in enumerate(tiles):
            at = k * np.int32(self.rows) + np.int32(row)
            if not self.is_sum:
                ref[self._place(k, row, tile)] = each
            elif tile.platform == "gpu":
                ref[at, 0] = jnp.sum(each, dtype=self.held)
            else:  # tiles run one after another
                before = jnp.where(number == 0, jnp.zeros((), self.held), ref[at])
                ref[at] = before + jnp.sum(each, dtype=self.held)

    def _place(self, k, row: int, tile: Tile) -> tuple:
        """Return the index of a tile in a reference."""
        size = self.sublanes
        if size == 1:
            return (k * np.int32(self.rows) + np.int32(row),)
        if self.rows > 1:
            at = k * np.int32(self.rows // size) + np.int32(row // size)
            return at, every(tile, row % size, size)
        # a tile holds rows of several nodes
        at = k >> np.int32(size.bit_length() - 1)
        return at, every(tile, k & np.int32(size - 1), size)

    def value(self, tiles: Sequence) -> Value:
        """Return the value of tiles in memory, or of tiles before they are written."""
        kind = Kind.SUM if self.is_sum else Kind.SHARED if self.axis is None else Kind.OWN
        tiles = [tile != 0 if self.dtype == jnp.bool_ else tile for tile in tiles]
        entries = pairs(tiles) if self.words else tiles
        return Value.of(entries, self.entries, self.axis, kind)

    def tiles(self, value: Value) -> tuple:
        """Return a value's tiles as they lie in memory.

        Raises:
            NoKernelError: If the value does not fit the leaf.
        """
        if (value.kind is Kind.SUM) != self.is_sum or value.axis != self.axis:
            raise NoKernelError(f"a result is {value.kind.value}")
        tiles = words(value.entries) if self.words else value.entries.flat
        return tuple(tile.astype(self.held) for tile in tiles)


def stacks(arrays: Iterable) -> tuple:
    """Return stacks of one array each; small constants remain constants."""
    return tuple(np.asarray(x)[None] if _is_constant(x) else x[None] for x in arrays)


def _is_constant(x: Any) -> bool:
    return not isinstance(x, Tracer) and not is_key(x.dtype) and x.size <= _MOST_CONSTANTS


def summed(leaves: Sequence[Leaf], written: Sequence[jax.Array]) -> list[jax.Array]:
    """Return the arrays that a kernel has written, with sums over tiles added up by one kernel per shape."""
    found = list(written)
    of_tiles = [i for i, x in enumerate(leaves) if x.is_sum and found[i].ndim > 1]
    for shape in dict.fromkeys(found[i].shape for i in of_tiles):
        places = [i for i in of_tiles if written[i].shape == shape]
        parts = [written[i] for i in places]
        zeros = [np.zeros((), x.dtype) for x in parts]
        totals = lax.reduce(parts, zeros, lambda a, b: jax.tree.map(lax.add, a, b), (1,))
        for i, total in zip(places, totals, strict=True):
            found[i] = total
    return found


def _sublanes(size: int) -> int:
    """Return the number of rows in a tile of a TPU's memory, from their axis' size; 1 if the TPU pads them."""
    found = min(8, 1 << (size - 1).bit_length())
    return 1 if size % found else found
