"""A leaf of a chain as a kernel reads and writes it: a row of all paths for each entry, in a stack."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .functions import has_dtype
from .pallas import Tile, full
from .paths import Kind, NoKernelError, Value, paths_axis, without


class Leaf(NamedTuple):
    """A stack of arrays of one type.

    An array with an axis of paths lies as `(stack, entries, *paths)`. One without lies as a vector if a kernel
    reads it; if a kernel writes it, every path has a copy, or the term of a sum.

    Attributes:
        shape: The shape of an array.
        dtype: Its dtype.
        axis: The axis of the paths, or None.
        stack: The number of arrays.
        is_sum: Whether the leaf is the sum of what the paths write.
    """

    shape: tuple[int, ...]
    dtype: jnp.dtype
    axis: int | None
    stack: int = 1
    is_sum: bool = False

    @classmethod
    def of(cls, aval, tile: Tile, paths: int, stack: int = 1) -> "Leaf":
        """Return the leaf of a type.

        Raises:
            NoKernelError: If a kernel cannot read it.
        """
        if not has_dtype(tile.platform, aval.dtype):
            raise NoKernelError(f"an array is of {aval.dtype}")
        if not aval.size:
            raise NoKernelError("an array is empty")
        return cls(aval.shape, aval.dtype, paths_axis(aval.shape, paths), stack)

    @property
    def entries(self) -> tuple[int, ...]:
        """The shape without the axis of the paths."""
        return without(self.shape, self.axis)

    @property
    def rows(self) -> int:
        """The number of entries."""
        return math.prod(self.entries)

    @property
    def held(self) -> jnp.dtype:
        """The dtype in memory and in loops: flags are numbers there."""
        return jnp.dtype("int32") if self.dtype == jnp.bool_ else self.dtype

    def written(self, tile: Tile, paths: int) -> jax.ShapeDtypeStruct:
        """Return the type in which a kernel writes the leaf."""
        return jax.ShapeDtypeStruct((self.stack, self.rows, *tile.folded(paths)), self.held)

    def laid(self, stack: jax.Array, tile: Tile) -> jax.Array:
        """Return a stack as a kernel reads it."""
        stack = stack.astype(self.held)
        if self.axis is None:
            return stack.reshape(-1)
        paths = self.shape[self.axis]
        last = jnp.moveaxis(stack, self.axis + 1, -1)
        return last.reshape(self.stack, self.rows, *tile.folded(paths))

    def taken(self, written: jax.Array) -> jax.Array:
        """Return the stack of what a kernel has written."""
        flat = written.reshape(self.stack, *self.entries, -1)
        if self.axis is None:
            found = flat.sum(-1) if self.is_sum else flat[..., 0]
        else:
            found = jnp.moveaxis(flat, -1, self.axis + 1)
        return found.astype(self.dtype)

    def load(self, ref, k, tile: Tile) -> tuple:
        """Return the tiles of array k of a stack that was laid or written."""
        if len(ref.shape) > 1:
            return tuple(ref[k, row] for row in range(self.rows))
        first = k * np.int32(self.rows)
        rows = (ref[first + np.int32(row)] for row in range(self.rows))
        return tuple(full(tile, row, self.held) for row in rows)

    def store(self, ref, k, tiles: Sequence) -> None:
        """Write the tiles of array k."""
        for row, tile in enumerate(tiles):
            ref[k, row] = tile

    def value(self, tiles: Sequence) -> Value:
        """Return the value of the tiles in memory."""
        kind = Kind.SHARED if self.axis is None else Kind.OWN
        tiles = [tile != 0 if self.dtype == jnp.bool_ else tile for tile in tiles]
        return Value.of(tiles, self.entries, self.axis, kind)

    def tiles(self, value: Value) -> tuple:
        """Return the tiles in memory of a value.

        Raises:
            NoKernelError: If the value is no such leaf.
        """
        if (value.kind is Kind.SUM) != self.is_sum or value.axis != self.axis:
            raise NoKernelError(f"a result is {value.kind.value}")
        return tuple(tile.astype(self.held) for tile in value.entries.flat)
