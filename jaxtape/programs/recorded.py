"""Record the programs that a block of code runs, to compile them for a target."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from ..jax_settings.single_on_devices import is_on_host


@dataclasses.dataclass
class RecordedProgram:
    """A program that was run while programs were recorded.

    Attributes:
        function: The function.
        args: Its arguments, with shapes in place of arrays.
        kwargs: Its keyword arguments likewise.
        calls: The number of runs.
    """

    function: Callable
    args: tuple
    kwargs: dict[str, Any]
    calls: int = 0


_lock = threading.Lock()
_recorded: dict[Any, RecordedProgram] | None = None


@contextlib.contextmanager
def recorded_programs() -> Iterator[dict[Any, RecordedProgram]]:
    """Yield a dictionary that collects the `stored_jit` programs run within the block, in all threads."""
    global _recorded
    before, _recorded = _recorded, {}
    try:
        yield _recorded
    finally:
        _recorded = before


def record(function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Note the run of a device program, if programs are being recorded."""
    if (programs := _recorded) is None or is_on_host():
        return
    args, kwargs = jax.tree.map(lambda leaf: shape_of_leaf(leaf), (args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    key = function, structure, tuple((type(leaf), leaf) for leaf in leaves)
    with _lock:
        programs.setdefault(key, RecordedProgram(function, args, kwargs)).calls += 1


def is_array_or_shape(leaf: Any) -> bool:
    """Return True for an array, including NumPy's, and for a `jax.ShapeDtypeStruct`."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def shape_of_leaf(leaf: Any) -> Any:
    """Return an array's shape, type and sharding over several devices; return other leaves unchanged."""
    if not is_array_or_shape(leaf):
        return leaf
    place = getattr(leaf, "sharding", None)
    is_shared = isinstance(place, NamedSharding) and getattr(leaf, "committed", True)
    weak = getattr(leaf, "weak_type", False)
    sharding = place if is_shared else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)
