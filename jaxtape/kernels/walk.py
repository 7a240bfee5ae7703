"""Turn the step of all paths into the step of one: evaluate a jaxpr without the axis of the paths.

A value of the jaxpr has a tile of paths for each entry on its other axes. So an elementwise operation becomes
one on tiles, a small matrix product becomes sums of products of tiles, and moving entries costs nothing. Each
primitive that keeps paths apart has a rule here. A primitive without a rule, or with params that mix paths,
raises `NoKernelError` with the reason.

One operation may combine paths: their sum, in which the pullback of a shared value ends. Its value holds the
terms of the sum, one per path. Linear operations apply to the terms, and the terms of all nodes are added up
before the sum is taken.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import jax.numpy as jnp
import numpy as np

from ..jax_private import Jaxpr, Literal, Primitive, split_p, stack_p, unstack_p
from ..jax_private import primitives as p
from .draws import RULES as _RULES_OF_DRAWS
from .pallas import SCALAR, Tile, full
from .paths import Kind, NoKernelError, Value, objects, without
from .per_path_functions import function_on, has_dtype, is_for_words


@dataclasses.dataclass(frozen=True)
class Walk:
    """The evaluation of a jaxpr on tiles.

    Attributes:
        tile: The tile.
        paths: The number of paths.
        path: The indices of the tile's paths, unsigned; a function of shared values only needs none.
        interpret: Whether Pallas interprets the kernel.
    """

    tile: Tile
    paths: int
    path: Any = None
    interpret: bool = False

    def evaluate(self, jaxpr: Jaxpr, values: Sequence[Value | None]) -> list[Value]:
        """Return the outputs of a jaxpr without calls from its inputs; unread ones may be None.

        `NoKernelError` is raised if an operation has no rule.
        """
        known: dict = dict(zip(jaxpr.invars, values, strict=True))

        def read(v: Any) -> Value:
            return self.literal(v) if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            out = self.applied(eqn, [read(v) for v in eqn.invars])
            known |= zip(eqn.outvars, out, strict=True)
        return [read(v) for v in jaxpr.outvars]

    def literal(self, v: Literal) -> Value:
        """Return the value of a literal."""
        tile = full(self.tile, v.val, jnp.result_type(v.aval))
        return Value.of([tile], (), None, Kind.SHARED)

    def summed(self, value: Value) -> Value:
        """Return a value as a sum over the paths; the first path carries all of a shared value."""
        if value.kind is not Kind.SHARED or value.axis is not None:
            return value
        tiles = [
            jnp.where(self.path == 0, each, jnp.zeros_like(each)) for each in value.entries.flat
        ]
        return Value.of(tiles, value.entries.shape, None, Kind.SUM)

    def applied(self, eqn, values: list[Value]) -> list[Value]:
        """Return the outputs of one operation.

        Raises:
            NoKernelError: If it has no rule.
        """
        if rule := _RULES.get(eqn.primitive):
            found = rule(self, eqn, *values)
            return found if isinstance(found, list) else [found]
        function = function_on(self.tile.platform, eqn.primitive)
        if function is None or (self.tile == SCALAR and eqn.primitive is p.pow_p):
            raise NoKernelError(f"{eqn.primitive} has no rule in a kernel")
        for v in (*eqn.invars, *eqn.outvars):
            if not has_dtype(self.tile.platform, v.aval.dtype):
                raise NoKernelError(f"{eqn.primitive} computes in {v.aval.dtype}")
        if not is_for_words(eqn):
            raise NoKernelError(f"{eqn.primitive} computes in unsigned integers")
        return [self.each(eqn, values, functools.partial(function, **eqn.params))]

    def each(self, eqn, values: list[Value], function: Callable) -> Value:
        """Apply a function to each entry; an array without axes, or with one entry on an axis, is broadcast.

        Raises:
            NoKernelError: If it brings paths together.
        """
        kind, axis = self._kind(eqn, values), max((v.axis for v in values), key=_or_less)
        parts = []
        for value, x in zip(values, eqn.invars, strict=True):
            shape, entries = x.aval.shape, value.entries
            if axis is not None and shape and value.axis is None and shape[axis] == 1:
                entries = entries.reshape(without(shape, axis))
            elif shape and value.axis != axis:
                raise NoKernelError(f"{eqn.primitive} brings paths together")
            parts.append(entries)
        shape = np.broadcast_shapes(*(entries.shape for entries in parts))
        flat = (np.broadcast_to(entries, shape).flat for entries in parts)
        return Value.of([function(*each) for each in zip(*flat, strict=True)], shape, axis, kind)

    def _kind(self, eqn, values: list[Value]) -> Kind:
        """Return the kind of the result of an elementwise operation or of a product.

        Raises:
            NoKernelError: If it is not linear in a sum over the paths.
        """
        kinds = [v.kind for v in values]
        if Kind.SUM not in kinds:
            return Kind.OWN if Kind.OWN in kinds else Kind.SHARED
        others = [kind for kind in kinds if kind is not Kind.SUM]
        if eqn.primitive in _LINEAR:
            linear = not others
        elif eqn.primitive in (p.mul_p, p.dot_general_p):
            linear = others == [Kind.SHARED]
        elif eqn.primitive in (p.div_p, p.select_n_p):
            at = int(eqn.primitive is p.div_p)  # divisor or predicate: no paths
            linear = others == [kinds[at]] == [Kind.SHARED]
        else:
            real = eqn.primitive is p.convert_element_type_p
            linear = real and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
        if not linear:
            raise NoKernelError(f"{eqn.primitive} takes a sum over the paths")
        return Kind.SUM

    def _new_axis(self, sizes: dict[int, int], value: Value | None) -> int | None:
        """Return the new axis that becomes the paths' when axes of these sizes are added.

        Raises:
            NoKernelError: If there are two, or the value is a sum over the paths.
        """
        found = [axis for axis, size in sizes.items() if size == self.paths]
        if len(found) > 1 or (found and value is not None and value.kind is Kind.SUM):
            raise NoKernelError("a value is broadcast over the paths that is a sum over them")
        return found[0] if found else None

    def broadcast_in_dim(self, eqn, value: Value, *_) -> Value:
        shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
        if value.axis is None:
            pairs = zip(places, eqn.invars[0].aval.shape, strict=True)
            kept = [place for place, size in pairs if size == shape[place]]
            added = {i: size for i, size in enumerate(shape) if i not in kept}
            axis = self._new_axis(added, value)
        else:
            axis = int(places[value.axis])
        whole = [1] * len(shape)
        for place, size in zip(without(places, value.axis), value.entries.shape, strict=True):
            whole[place] = size
        entries = value.entries.reshape(without(whole, axis))
        return value.moved(np.broadcast_to(entries, without(shape, axis)), axis)

    def iota(self, eqn) -> Value:
        shape, dimension = eqn.params["shape"], eqn.params["dimension"]
        axis = self._new_axis(dict(enumerate(shape)), None)
        if axis == dimension:
            raise NoKernelError("the number of a path is read")
        numbers = np.indices(without(shape, axis))[_place(dimension, axis)]
        tiles = [full(self.tile, int(i), eqn.params["dtype"]) for i in numbers.flat]
        return Value.of(tiles, numbers.shape, axis, Kind.SHARED)

    def reshape(self, eqn, value: Value, *_) -> Value:
        shape, axis = eqn.params["new_sizes"], value.axis
        if axis is not None:
            before = math.prod(eqn.invars[0].aval.shape[:axis])
            kept = [
                i
                for i, size in enumerate(shape)
                if size == self.paths and math.prod(shape[:i]) == before
            ]
            if len(kept) != 1:
                raise NoKernelError("reshape mixes the paths with other axes")
            axis = kept[0]
        return value.moved(value.entries.reshape(without(shape, axis)), axis)

    def squeeze(self, eqn, value: Value) -> Value:
        axis = _left(value.axis, eqn.params["dimensions"])
        return value.moved(value.entries.reshape(without(eqn.outvars[0].aval.shape, axis)), axis)

    def transpose(self, eqn, value: Value) -> Value:
        order = eqn.params["permutation"]
        places = [_place(dim, value.axis) for dim in order if dim != value.axis]
        axis = None if value.axis is None else order.index(value.axis)
        return value.moved(value.entries.transpose(places), axis)

    def slice(self, eqn, value: Value) -> Value:
        shape, params = eqn.invars[0].aval.shape, eqn.params
        steps = params["strides"] or (1,) * len(shape)
        parts = [*zip(params["start_indices"], params["limit_indices"], steps, strict=True)]
        if value.axis is not None and parts[value.axis] != (0, self.paths, 1):
            raise NoKernelError("some of the paths are sliced from the others")
        index = tuple(slice(*part) for part in without(parts, value.axis))
        return value.moved(value.entries[index] if index else value.entries, value.axis)

    def split(self, eqn, value: Value) -> list[Value]:
        axis, sizes = eqn.params["axis"], eqn.params["sizes"]
        self._apart(eqn, value, axis)
        cuts = np.cumsum(sizes)[:-1]
        parts = np.split(value.entries, cuts, _place(axis, value.axis))
        return [value.moved(part, value.axis) for part in parts]

    def stack(self, eqn, *values: Value) -> Value:
        if len(axes := {v.axis for v in values}) > 1:
            raise NoKernelError("stack brings paths together")
        dim, axis, kind = eqn.params["axis"], axes.pop(), self._kind(eqn, list(values))
        axis = None if axis is None else axis + (axis >= dim)
        return Value(np.stack([v.entries for v in values], _place(dim, axis)), axis, kind)

    def unstack(self, eqn, value: Value) -> list[Value]:
        dim = eqn.params["axis"]
        self._apart(eqn, value, dim)
        first = np.moveaxis(value.entries, _place(dim, value.axis), 0)
        axis = _left(value.axis, (dim,))
        parts = [part.reshape(first.shape[1:]) for part in np.split(first, len(first))]
        return [value.moved(part, axis) for part in parts]

    def rev(self, eqn, value: Value) -> Value:
        self._apart(eqn, value, *eqn.params["dimensions"])
        places = tuple(_place(dim, value.axis) for dim in eqn.params["dimensions"])
        return value.moved(np.flip(value.entries, places), value.axis)

    def concatenate(self, eqn, *values: Value) -> Value:
        dimension, axes = eqn.params["dimension"], {v.axis for v in values}
        if len(axes) > 1:
            raise NoKernelError("concatenate brings paths together")
        self._apart(eqn, values[0], dimension)
        kind, axis = self._kind(eqn, list(values)), axes.pop()
        parts = [v.entries for v in values]
        return Value(np.concatenate(parts, _place(dimension, axis)), axis, kind)

    def pad(self, eqn, value: Value, padding: Value) -> Value:
        config = eqn.params["padding_config"]
        if value.axis is not None and any(config[value.axis]):
            raise NoKernelError("paths are added to those there are")
        config = without(config, value.axis)
        kind = self._kind(eqn, [value] if _is_zero(eqn.invars[1]) else [value, padding])
        if any(low < 0 or high < 0 for low, high, _ in config):
            raise NoKernelError("entries are cut off by a negative padding")
        sizes = zip(value.entries.shape, config, strict=True)
        shape = [low + high + size + max(size - 1, 0) * inner for size, (low, high, inner) in sizes]
        entries = np.empty(shape, object)
        for place in np.ndindex(*shape):
            entries[place] = padding.entries[()]
        inside = zip(config, shape, strict=True)
        entries[tuple(slice(low, n - high, inner + 1) for (low, high, inner), n in inside)] = (
            value.entries
        )
        return Value(entries, value.axis, kind)

    def reduce(self, eqn, value: Value) -> Value:
        axes = eqn.params["axes"]
        axis, kind, function = value.axis, value.kind, _REDUCED[eqn.primitive]
        if isinstance(function, Primitive):
            function = function_on(self.tile.platform, function) or function.bind
        if axis in axes:
            if eqn.primitive is not p.reduce_sum_p:
                raise NoKernelError(f"{eqn.primitive} brings paths together")
            axis, kind = None, Kind.SUM
        else:
            axis = _left(axis, axes)
        if kind is Kind.SUM and eqn.primitive is not p.reduce_sum_p:
            raise NoKernelError(f"{eqn.primitive} takes a sum over the paths")
        places = [_place(dim, value.axis) for dim in axes if dim != value.axis]
        rest = [i for i in range(value.entries.ndim) if i not in places]
        shape = tuple(value.entries.shape[i] for i in rest)
        rows = value.entries.transpose(rest + places).reshape(math.prod(shape), -1)
        return Value.of([functools.reduce(function, row) for row in rows], shape, axis, kind)

    def cumsum(self, eqn, value: Value) -> Value:
        self._apart(eqn, value, eqn.params["axis"])
        place = _place(eqn.params["axis"], value.axis)
        turned = np.flip(value.entries, place) if eqn.params["reverse"] else value.entries
        last = np.moveaxis(turned, place, -1)
        tiles = [
            tile
            for row in last.reshape(-1, last.shape[-1])
            for tile in itertools.accumulate(row, jnp.add)
        ]
        summed = np.moveaxis(objects(tiles).reshape(last.shape), -1, place)
        return value.moved(np.flip(summed, place) if eqn.params["reverse"] else summed, value.axis)

    def dot_general(self, eqn, left: Value, right: Value) -> Value:
        """Return a product of small matrices, as sums of products of entries.

        Raises:
            NoKernelError: If it brings paths together.
        """
        contracted, batched = eqn.params["dimension_numbers"]
        kind, axes = self._kind(eqn, [left, right]), (left.axis, right.axis)
        if axes in zip(*contracted, strict=True):
            kind = Kind.SUM
        elif axes not in zip(*batched, strict=True) and (
            None not in axes
            or left.axis in (*contracted[0], *batched[0])
            or right.axis in (*contracted[1], *batched[1])
        ):
            raise NoKernelError("dot_general brings paths together")
        dtype = eqn.outvars[0].aval.dtype
        parts, free = [], []
        for v, x, sums, same in zip((left, right), eqn.invars, contracted, batched, strict=True):
            rest = [dim for dim in range(x.aval.ndim) if dim not in (*sums, *same)]
            groups = [[dim for dim in dims if dim != v.axis] for dims in (same, rest, sums)]
            places = [_place(dim, v.axis) for dims in groups for dim in dims]
            sizes = [math.prod(x.aval.shape[dim] for dim in dims) for dims in groups]
            parts.append(v.entries.transpose(places).reshape(sizes))
            free.append(rest)
        order = [*zip(*batched, strict=True), *((dim, -1) for dim in free[0])]
        order += [(-1, dim) for dim in free[1]]
        found = [i for i, pair in enumerate(order) if _is_of(pair, axes)]
        axis = found[0] if found and kind is not Kind.SUM else None
        tiles = [
            functools.reduce(jnp.add, map(jnp.multiply, row, column))
            for rows, columns in zip(*parts, strict=True)
            for row in rows
            for column in columns
        ]
        tiles = [tile.astype(dtype) for tile in tiles]
        return Value.of(tiles, without(eqn.outvars[0].aval.shape, axis), axis, kind)

    def _apart(self, eqn, value: Value, *axes: SupportsIndex) -> None:
        """Check that an operation along some axes keeps the paths apart.

        Raises:
            NoKernelError: If one of them is the axis of the paths.
        """
        if value.axis in axes:
            raise NoKernelError(f"{eqn.primitive} brings paths together")


def has_rule(platform: str, primitive: Primitive) -> bool:
    """Return True if a kernel on a kind of accelerator may compute a primitive."""
    return primitive in _RULES or function_on(platform, primitive) is not None


def _place(dim: SupportsIndex, axis: int | None) -> int:
    """Return an axis of a value as an axis of its entries."""
    return int(dim) - (axis is not None and int(dim) > axis)


def _is_of(pair: tuple, axes: tuple) -> bool:
    """Return True if an axis of a product is the paths'; `pair` holds its axis in each factor, -1 for none."""
    return any(dim == axis for dim, axis in zip(pair, axes, strict=True))


def _left(axis: int | None, removed: Sequence[SupportsIndex]) -> int | None:
    """Return the index of an axis after others are removed."""
    return None if axis is None else axis - sum(int(dim) < axis for dim in removed)


def _or_less(axis: int | None) -> int:
    """Return an axis, or -1 for none."""
    return -1 if axis is None else axis


def _is_zero(v: Any) -> bool:
    return isinstance(v, Literal) and not np.any(v.val)


_LINEAR = {p.add_p, p.sub_p, p.add_jaxvals_p, p.neg_p, p.concatenate_p, p.pad_p, stack_p}
_LINEAR |= {p.copy_p, p.stop_gradient_p}
_REDUCED = {
    p.reduce_sum_p: jnp.add,
    p.reduce_max_p: p.max_p,
    p.reduce_min_p: p.min_p,
    p.reduce_prod_p: jnp.multiply,
    p.reduce_and_p: jnp.bitwise_and,
    p.reduce_or_p: jnp.bitwise_or,
}
_RULES = {
    p.broadcast_in_dim_p: Walk.broadcast_in_dim,
    p.iota_p: Walk.iota,
    p.reshape_p: Walk.reshape,
    p.squeeze_p: Walk.squeeze,
    p.transpose_p: Walk.transpose,
    p.slice_p: Walk.slice,
    split_p: Walk.split,
    stack_p: Walk.stack,
    unstack_p: Walk.unstack,
    p.rev_p: Walk.rev,
    p.concatenate_p: Walk.concatenate,
    p.pad_p: Walk.pad,
    p.cumsum_p: Walk.cumsum,
    p.dot_general_p: Walk.dot_general,
} | dict.fromkeys(_REDUCED, Walk.reduce)
_RULES |= _RULES_OF_DRAWS
