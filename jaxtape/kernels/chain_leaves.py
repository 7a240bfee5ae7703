"""The leaves of a chain as its kernels read and write them."""

import functools
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from .leaf import Leaf
from .pallas import TILES, Tile
from .paths import NoKernelError


class ChainTypes(NamedTuple):
    """The types of the leaves of a chain: of consts, a state, one node's x and one node's y."""

    consts: tuple
    state: tuple
    x: tuple
    y: tuple


class ChainLayout(NamedTuple):
    """The leaves of a chain.

    Attributes:
        tile: The paths of one kernel instance.
        paths: The number of paths.
        state: The leaves of the state.
        xs: The leaves of xs.
        ys: The leaves of ys.
        slots: The leaves kept in slots.
        y_bars: The leaves of the cotangents of ys that the second sweep reads.
        bars: The leaves of the cotangents that it writes: those of consts, the state and xs.
    """

    tile: Tile
    paths: int
    state: tuple[Leaf, ...]
    xs: tuple[Leaf, ...]
    ys: tuple[Leaf, ...]
    slots: tuple[Leaf, ...]
    y_bars: tuple[Leaf, ...]
    bars: tuple[tuple[Leaf, ...], ...]

    @classmethod
    def of(
        cls,
        platform: str,
        types: ChainTypes,
        length: int,
        slots: int,
        needed: tuple[bool, ...],
        active: tuple[tuple[bool, ...], ...],
        sum_ys: int = 1,
    ) -> "ChainLayout":
        """Return the leaves of a chain whose paths lie on the largest axis of its state.

        Raises:
            NoKernelError: If a kernel cannot read or write one, or the paths do not fill a whole number of
                tiles.
        """
        tile = TILES[platform]
        paths = max((size for leaf in types.state for size in leaf.shape), default=1)
        if paths % tile.size:
            raise NoKernelError(
                f"{paths:,} paths are not a multiple of the {tile.size:,} of a tile"
            )
        leaf = functools.partial(Leaf.of, tile=tile, paths=paths)
        state, xs, ys = (
            tuple(leaf(aval, stack=stack) for aval in part)
            for part, stack in ((types.state, 1), (types.x, length), (types.y, length // sum_ys))
        )
        kept = compress(state, needed)
        kept = tuple(x.in_words._replace(stack=slots, sublanes=1) for x in kept)
        y_bars = tuple(compress(ys, active[3]))
        bars = _cotangents(map(leaf, compress(types.consts, active[0])), state, xs, active)
        if any(each.axis is None for each in (*bars[1], *y_bars)):
            raise NoKernelError("a state or y that all paths share has a cotangent")
        return cls(tile, paths, state, xs, ys, kept, y_bars, bars)


def _cotangents(consts: Iterable[Leaf], state, xs, active) -> tuple[tuple[Leaf, ...], ...]:
    """Return the leaves of the cotangents of consts, of the state and of xs."""
    of_consts, of_xs = (
        tuple(each._replace(is_sum=each.axis is None) for each in part)
        for part in (consts, compress(xs, active[2]))
    )
    return of_consts, tuple(compress(state, active[1])), of_xs
