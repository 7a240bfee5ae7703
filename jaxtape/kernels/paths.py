"""The values of a jaxpr within a tile of paths."""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np


class NoKernelError(Exception):
    """A chain cannot run as a kernel; the message is the reason."""


class Kind(enum.Enum):
    """The dependence of a value on the paths."""

    SHARED = "the same for all paths"
    OWN = "each path has its own"
    SUM = "the sum over paths of what each tile holds"


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A value of the jaxpr.

    Attributes:
        entries: A tile for each entry on the axes other than the paths': an array of objects.
        axis: The axis of the paths, or None.
        kind: Its dependence on the paths.
    """

    entries: np.ndarray
    axis: int | None
    kind: Kind

    @classmethod
    def of(cls, tiles: Sequence, shape: tuple[int, ...], axis: int | None, kind: Kind) -> "Value":
        """Return a value from its tiles in order; `shape` is without the axis of the paths."""
        return cls(objects(tiles).reshape(shape), axis, kind)

    def moved(self, entries: np.ndarray, axis: int | None) -> "Value":
        """Return a value of the same kind with its entries rearranged."""
        return Value(entries, axis, self.kind)


def paths_axis(shape: Sequence[int], paths: int) -> int | None:
    """Return the axis with one entry per path, or None; the walk checks that it keeps paths apart.

    Raises:
        NoKernelError: If there are two.
    """
    found = [axis for axis, size in enumerate(shape) if size == paths]
    if len(found) > 1:
        raise NoKernelError(f"two axes of {tuple(shape)} have as many entries as there are paths")
    return found[0] if found else None


def without(items: Sequence, axis: int | None) -> tuple:
    """Return one item per axis, such as the sizes, without the item of `axis`."""
    return tuple(item for i, item in enumerate(items) if i != axis)


def objects(tiles: Sequence) -> np.ndarray:
    """Return a vector of objects; NumPy would make one array of a list of arrays."""
    found = np.empty(len(tiles), object)
    for i, tile in enumerate(tiles):
        found[i] = tile
    return found
