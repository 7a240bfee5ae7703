"""Equal shares of the paths, one for each device of a mesh or each part within a budget, and sums over them.

A stage of a solver runs once on every device, on the device's own paths (`per_device`). All that a device needs
from the others' paths is a sum or a minimum: one all-reduce each. Within a memory budget it evaluates a part of
its paths at a time (`PathShare.within`).
"""

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from jaxtape.sweeps.footprint import live_bytes

_AXIS = "paths"  # of a mesh
_EXCHANGE_BYTES = 2**26  # size of the batches exchanged at once

Index = int | Int[Array, ""]


class PathShare(NamedTuple):
    """One of `count` equal shares of the paths: equal parts of their first and second halves.

    Normals are drawn in pairs, one for each half (`sampling.normals`), so no pair is drawn twice.

    at_once: the most paths to evaluate together; None for all.
    """

    index: Index = 0
    count: int = 1
    is_on_mesh: bool = False
    at_once: int | None = None

    @property
    def part(self) -> tuple[Index, int] | None:
        """The part of rows of random numbers for this share; None for whole rows."""
        return None if self.count == 1 else (self.index, self.count)

    def rows(self, draw: Callable[..., Array], shape: tuple[int, ...]) -> Array:
        """Draw an array [paths, ...], with one row of random numbers for each path."""
        if self.count == 1:
            return draw(shape)
        size, second = shape[0] // (2 * self.count), shape[0] // 2
        first = jnp.asarray(self.index, jnp.int32) * size
        halves = [
            draw((size, *shape[1:]), first_row=first + start) for start in (jnp.int32(0), second)
        ]
        return jnp.concatenate(halves)

    def micro_batch(self, index: Index, count: int) -> "PathShare":
        """Return one of `count` equal parts of this share."""
        return PathShare(self.index * count + index, self.count * count, self.is_on_mesh)

    def num_parts(self, num_paths: int) -> int:
        """Return the number of parts, a power of two, in which this share of `num_paths` paths is evaluated."""
        own = num_paths // self.count
        if self.at_once is None or own <= self.at_once:
            return 1
        wanted = 2 ** math.ceil(math.log2(own / self.at_once))
        return min(wanted, most_parts(own))

    def within(
        self,
        budget: float | int | None,
        function: Callable[..., PyTree],
        num_paths: int,
        *args: Any,
        least: int = 2,
    ) -> "PathShare | None":
        """Return this share with as many paths at once as fit a budget; None if `least` do not fit.

        Bytes are those of a program that holds each value from first to last use.

        Args:
            budget: The budget in bytes; None for no limit.
            function: The program, function(share, *args).
            num_paths: The number of paths of all shares.
            *args: Arguments of the program.
            least: The fewest paths at once.
        """
        if budget is None:
            return self
        own = num_paths // self.count
        counts = [1]
        while 2 * counts[-1] <= min(most_parts(own), own // least):
            counts.append(2 * counts[-1])

        def fits(count: int) -> bool:
            program = partial(function, self._replace(at_once=own // count))
            return live_bytes(jax.make_jaxpr(program)(*args).jaxpr) <= budget

        place = bisect.bisect_left(counts, True, key=fits)
        return None if place == len(counts) else self._replace(at_once=own // counts[place])

    def by_parts(
        self, function: Callable[["PathShare", PyTree[Array]], PyTree[Array]], rows: PyTree[Array]
    ) -> PyTree[Array]:
        """Return function(share, rows), arrays [paths, ...], evaluated for a part of the paths at a time."""
        own = len(jax.tree.leaves(rows)[0])
        count = self.num_parts(own * self.count)
        if count == 1:
            return function(self, rows)
        halves = jax.tree.map(lambda x: x.reshape(2, count, -1, *x.shape[1:]), rows)

        def of_part(index: Array) -> PyTree[Array]:
            part = jax.tree.map(lambda x: x[:, index].reshape(-1, *x.shape[3:]), halves)
            found = function(self.micro_batch(index, count), part)
            return jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), found)

        def keep(index: Array, kept: PyTree[Array]) -> PyTree[Array]:
            set_part = lambda rows, part: rows.at[:, index].set(part)
            return jax.tree.map(set_part, kept, of_part(index))

        room = lambda x: jnp.zeros((2, count, *x.shape[1:]), x.dtype)
        empty = jax.tree.map(room, jax.eval_shape(of_part, jnp.int32(0)))
        kept = jax.lax.fori_loop(jnp.int32(0), jnp.int32(count), keep, empty)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), kept)

    def total(self, tree: PyTree[Array]) -> PyTree[Array]:
        """Return the sum over all devices: one all-reduce."""
        if not self.is_on_mesh:
            return tree
        flat, restore = ravel_pytree(tree)
        return restore(jax.lax.psum(flat, _AXIS))

    def minimum(self, x: Array) -> Array:
        """Return the minimum over all devices: one all-reduce."""
        return jax.lax.pmin(x, _AXIS) if self.is_on_mesh else x

    def map_rows(self, function: Callable, rows: PyTree[Array], batch_size: int) -> PyTree[Array]:
        """Return `jax.lax.map(function, rows)`: each device evaluates its own rows and gathers the others."""
        if not self.is_on_mesh:
            return jax.lax.map(function, rows, batch_size=batch_size)
        length = len(jax.tree.leaves(rows)[0])
        size = -(-length // self.count)
        places = jnp.minimum(self.index * size + jnp.arange(size, dtype=jnp.int32), length - 1)
        own = jax.tree.map(lambda x: x[places], rows)
        found = jax.lax.map(function, own, batch_size=min(batch_size, size))
        gather = lambda x: jax.lax.all_gather(x, _AXIS, tiled=True)[:length]
        return jax.tree.map(gather, found)

    def batches(
        self,
        paths: PyTree[Array],
        num_paths: int,
        batch_size: int,
        num_iterations: int,
        *,
        key: PRNGKeyArray,
    ) -> Callable[[Index, "PathShare"], PyTree[Array]]:
        """Return a function from an iteration and a share to the share's part of a random batch of paths.

        Every device holds its own paths and uses its share of each batch, which it receives for all iterations
        in advance. A batch has the same paths on any number of devices.

        Args:
            paths: Arrays [paths, ...] of this share.
            num_paths: Number of paths of all shares.
            batch_size: Number of paths of an iteration.
            num_iterations: Number of iterations.
            key: Key of the random choice; iteration i has `fold_in(key, i)`.
        """

        def rows_of(index: Index) -> Int[Array, " batch"]:
            return jax.random.randint(jax.random.fold_in(key, index), (batch_size,), 0, num_paths)

        exchanged = None
        if self.is_on_mesh and self.count > 1:
            rows = self.map_rows(rows_of, jnp.arange(num_iterations), num_iterations)
            exchanged = self._exchanged(paths, rows, num_paths // (2 * self.count))

        def of_iteration(index: Index, share: PathShare) -> PyTree[Array]:
            if exchanged is None:
                whole, rows = paths, rows_of(index)
            else:
                whole = jax.tree.map(lambda x: x[index], exchanged)
                rows = jnp.arange(batch_size // self.count)
            count = share.count // self.count  # of micro-batches
            if count > 1:
                rows = rows.reshape(count, -1)[share.index % count]
            elif exchanged is not None:
                return whole
            return jax.tree.map(lambda leaf: leaf[rows], whole)

        return of_iteration

    def _exchanged(
        self, paths: PyTree[Array], rows: Int[Array, "iterations batch"], size: int
    ) -> PyTree[Array]:
        """Return this device's share of the rows of every iteration, exchanged between devices."""
        count, rows = self.count, rows.astype(jnp.int32)
        flattened = jax.vmap(lambda path: ravel_pytree(path)[0])(paths)
        _, restore = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], paths))

        def of_iteration(rows: Int[Array, " batch"]) -> Array:
            half, place = rows // (count * size), rows % (count * size)
            is_own = (place // size == self.index).reshape(count, -1)
            found = flattened[(half * size + place % size).reshape(is_own.shape)]
            sent = jnp.where(is_own[..., None], found, jnp.zeros((), found.dtype))
            return jax.lax.psum_scatter(sent, _AXIS)

        iteration_bytes = rows.shape[1] * flattened.shape[1] * flattened.dtype.itemsize
        at_once = max(1, min(len(rows), _EXCHANGE_BYTES // iteration_bytes))
        received = jax.lax.map(of_iteration, rows, batch_size=at_once)
        return jax.vmap(jax.vmap(restore))(received)


ALL_PATHS = PathShare()


def most_parts(num_paths: int) -> int:
    """Return the largest power of two that divides the pairs of some paths; 1 if their number is odd."""
    return 1 if num_paths % 2 else math.gcd(num_paths // 2, 2**30)


def _unchanged(rows: PyTree[Array]) -> PyTree[Array]:
    return rows


@dataclass(frozen=True)
class PathRows:
    """A function of a share's arrays [paths, ...], for sums over the paths of all devices.

    It is computed once; or, if the share is evaluated in parts, again for each sum, a part at a time.
    """

    share: PathShare
    rows: PyTree[Array]
    function: Callable[[PyTree[Array]], PyTree[Array]] = _unchanged

    def map(self, function: Callable[[PyTree[Array]], PyTree[Array]]) -> "PathRows":
        """Return the rows of a function of these."""
        if self._num_parts == 1:
            return replace(self, rows=function(self.rows))
        return replace(self, function=lambda rows: function(self.function(rows)))

    def sum(self, function: Callable[[PyTree[Array]], PyTree[Array]]) -> PyTree[Array]:
        """Return the sum of a function of these rows: one all-reduce."""
        count = self._num_parts
        if count == 1:
            return self.share.total(function(self.rows))
        of_part = lambda part: function(self.function(part))
        parts = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), self.rows)
        like = jax.eval_shape(of_part, jax.tree.map(lambda x: x[0], parts))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        add = lambda total, part: (jax.tree.map(jnp.add, total, of_part(part)), None)
        return self.share.total(jax.lax.scan(add, zero, parts)[0])

    @property
    def _num_parts(self) -> int:
        return self.share.num_parts(len(jax.tree.leaves(self.rows)[0]) * self.share.count)


def on_axis(axis: int) -> Any:
    """Return the partition spec of arrays with paths on axis `axis`."""
    return PartitionSpec(*(None,) * axis, _AXIS)


ON_EVERY_DEVICE = PartitionSpec()


def per_device(
    function: Callable, mesh: Mesh | None, in_specs: tuple[Any, ...], out_specs: Any
) -> Callable:
    """Return a function that runs `function(share, *args)` on each device for its share of the paths.

    Arrays of paths are in device order.

    Args:
        function: A pytree (`eqx.Partial`, a method) whose arrays are replicated on every device.
        mesh: The devices that share the paths; None for a single device.
        in_specs: Partition specs of the arguments.
        out_specs: Partition specs of the results.
    """
    if mesh is None:
        return partial(function, ALL_PATHS)
    arrays, others = eqx.partition(function, eqx.is_array)
    count = mesh.shape[_AXIS]

    def on_device(arrays: PyTree, *args: PyTree):
        share = PathShare(jax.lax.axis_index(_AXIS), count, is_on_mesh=True)
        return eqx.combine(arrays, others)(share, *args)

    shared = jax.shard_map(
        on_device,
        mesh=Mesh(mesh.devices, mesh.axis_names),  # explicit axes do not matter inside
        in_specs=(ON_EVERY_DEVICE, *in_specs),
        out_specs=out_specs,
        check_vma=False,
    )
    return partial(shared, arrays)


def in_first_order(array: Array, mesh: Mesh | None) -> Array:
    """Return an array [paths, ...] in single-device order: the first halves of all shares come first."""
    return _swapped(array, mesh, lambda count: (count, 2))


def in_device_order(array: Array, mesh: Mesh | None) -> Array:
    """Return an array [paths, ...] from single-device order in device order."""
    return _swapped(array, mesh, lambda count: (2, count))


def _swapped(array: Array, mesh: Mesh | None, axes: Callable[[int], tuple[int, int]]) -> Array:
    if mesh is None or mesh.shape[_AXIS] == 1:
        return array
    halves = array.reshape(*axes(mesh.shape[_AXIS]), -1, *array.shape[1:])
    return halves.swapaxes(0, 1).reshape(array.shape)


def check_shares(mesh: Mesh | AbstractMesh | None, **sizes: int) -> None:
    """Check that numbers of paths, named by their settings, can be shared equally.

    Raises:
        ValueError: The mesh has no axis "paths", or a number is not a multiple of twice the shares.
    """
    count = 1
    if mesh is not None:
        if _AXIS not in mesh.axis_names:
            raise ValueError(
                f"the mesh has axes {mesh.axis_names}: give one with an axis {_AXIS!r}."
            )
        count = mesh.shape[_AXIS]
    for name, size in sizes.items():
        if count > 1 and size % (2 * count):
            raise ValueError(
                f"{name}={size} over {count} equal shares of paths: give a multiple of {2 * count}, "
                "as normals are drawn in pairs."
            )
