"""All uses of Pallas in one file, because its interface still changes.

Tested with JAX 0.10.2 and 0.12.0.1. No other file of the library imports Pallas. It is imported with the first
kernel: a program without kernels does not pay for it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Tile(NamedTuple):
    """The paths of one kernel instance, on one kind of accelerator.

    Attributes:
        platform: "gpu", whose kernels Triton compiles, or "tpu", whose kernels Mosaic compiles.
        shape: The shape in which they are laid out.
    """

    platform: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of paths."""
        return math.prod(self.shape)

    def folded(self, paths: int) -> tuple[int, ...]:
        """Return the shape in which all paths are laid out."""
        return paths // math.prod(self.shape[1:]), *self.shape[1:]

    def share_at_once(self, paths: int, multiprocessors: int) -> float:
        """Return the largest share of the tiles of all paths that run at once on a GPU."""
        at_once = multiprocessors * _WARPS * _PATHS_OF_A_WARP // self.size
        return min(1.0, at_once / (paths // self.size))


_WARPS = 64  # that a multiprocessor runs at once
_PATHS_OF_A_WARP = 64  # two paths per thread: on an H200 faster than one, by a quarter in float64

TILES = {"gpu": Tile("gpu", (128,)), "tpu": Tile("tpu", (8, 128))}
SCALAR = Tile("tpu", ())
"""The tile of a kernel that computes what paths share, from vectors in scalar memory."""


def call(
    name: str,
    kernel: Callable,
    tile: Tile,
    paths: int,
    args: Sequence[Any],
    types: Sequence[jax.ShapeDtypeStruct],
    scratch: Sequence[jax.ShapeDtypeStruct],
    interpret: bool,
) -> list[jax.Array]:
    """Run a kernel over the tiles of all paths.

    The last axes of an array are cut into tiles; each tile reads a vector whole.

    Args:
        name: The kernel's name in profiles.
        kernel: The function of references to the arguments, the results and the scratch of a tile.
        tile: The tile.
        paths: The number of paths, a multiple of the tile's.
        args: The arguments.
        types: The types of the results.
        scratch: The types of the arrays that a tile writes and reads back, for all paths.
        interpret: Whether to run the kernel as a program of JAX, on any platform.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu, triton

    rank, tiles = len(tile.shape), paths // tile.size

    def spec(array) -> Any:
        if array.ndim == 1:
            if tile.platform == "tpu":
                return pl.BlockSpec(memory_space=tpu.SMEM)
            return pl.BlockSpec(array.shape, lambda i: (i * 0,))
        head = array.ndim - rank
        index = lambda i: (*(i * 0,) * head, i, *(i * 0,) * (rank - 1))
        rows = array.shape[head] // tiles
        return pl.BlockSpec((*array.shape[:head], rows, *tile.shape[1:]), index)

    memory, results = [], [*types]
    if tile.platform == "tpu":
        options = tpu.CompilerParams()
        memory = [tpu.VMEM((*x.shape[:-rank], *tile.shape), x.dtype) for x in scratch]
    else:
        options = triton.CompilerParams(num_warps=tile.size // _PATHS_OF_A_WARP, num_stages=1)
        results += scratch  # Triton has no scratch that a loop can index
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    with jax.enable_x64(wide and tile.platform == "gpu"):  # Mosaic indexes in 32 bits
        out = pl.pallas_call(
            kernel,
            grid=(tiles,),
            in_specs=[*map(spec, args)],
            out_specs=[*map(spec, results)],
            out_shape=results,
            scratch_shapes=memory,
            compiler_params=None if interpret else options,
            interpret=interpret,
            name=name,
        )(*args)
    return list(out[: len(types)])


def barrier(tile: Tile, interpret: bool) -> None:
    """Make all writes to a tile's scratch visible to all of its threads."""
    if tile.platform == "gpu" and not interpret:
        from jax.experimental.pallas import triton

        triton.debug_barrier()


def when(condition: jax.Array, body: Callable[[], None]) -> None:
    """Run a body that writes to references if a condition holds."""
    from jax.experimental import pallas as pl

    pl.when(condition)(body)


def full(tile: Tile, value: Any, dtype: Any) -> jax.Array:
    """Return a tile with the same value for every path."""
    return jnp.full(tile.shape, value, dtype)


def number_of_tile() -> jax.Array:
    """Return the index of the tile that this kernel instance runs."""
    from jax.experimental import pallas as pl

    return pl.program_id(0)


def numbers_of_paths(tile: Tile) -> jax.Array:
    """Return the indices, unsigned, of the paths in the tile of this kernel instance."""
    parts = [jax.lax.broadcasted_iota(jnp.int32, tile.shape, dim) for dim in range(len(tile.shape))]
    within = sum(
        part * (tile.size // math.prod(tile.shape[: dim + 1])) for dim, part in enumerate(parts)
    )
    return (number_of_tile() * jnp.int32(tile.size) + within).astype(jnp.uint32)


def every(tile: Tile, start: Any, stride: int) -> Any:
    """Return the index of every `stride`-th row of a tile, from the row `start`."""
    from jax.experimental import pallas as pl

    return pl.ds(start, tile.shape[0], stride=stride)


def loop(turns: int, body: Callable, carry):
    """Return the carry after `turns` runs of `body(i, carry)`; i has 32 bits, unlike in `lax.fori_loop`."""
    if turns < 2:
        return body(np.int32(0), carry) if turns else carry

    def turn(numbered: tuple, _) -> tuple:
        i, carry = numbered
        return (i + np.int32(1), body(i, carry)), None

    return lax.scan(turn, (np.int32(0), carry), length=turns)[0][1]
