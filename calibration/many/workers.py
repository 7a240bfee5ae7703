"""Assign the blocks of a round to processes in turn, and within a process to the next free device.

Every device runs the same single-device program, so that a fit has the same bits everywhere.
"""

import contextlib
import dataclasses
import itertools
import json
import queue
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxtape.cli.user_code import describe_error
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from jaxtape.jax_settings.single_on_devices import (
    devices_are_single,
    in_device_precision,
    on_devices,
)

from ..calibration import least_rtol
from ..results import RESULTS
from .job_blocks import FEWEST_ROWS, Block, shape_of
from .searches import SearchResult, Settings, polished, searched, where_rows

AXIS = "surfaces"
_IN_WORK = (
    2  # blocks per device: one is in transfer, or at its last searches, while the other computes
)

_NO_MEMORY = "RESOURCE_EXHAUSTED"  # XLA's code

_COMPILED: set[Hashable] = set()  # keys of the programs that this process has run


class Workers:
    """This process's devices in a mesh, and the processes that share the work.

    Attributes:
        devices: Devices of this process; None is JAX's default device.
        num_processes: The number of processes that share the blocks; each of them makes the same calls.
    """

    def __init__(self, mesh: Mesh | None):
        """Take the devices of a mesh, or the first device of this process if None.

        Raises:
            ValueError: If the mesh has other axes than "surfaces", or lacks the devices of some processes.
        """
        if mesh is None:
            self.devices, self.num_processes = [None], 1
            return
        if mesh.axis_names != (AXIS,):
            raise ValueError(
                f"the mesh has axes {mesh.axis_names}: give one with only the axis {AXIS!r}"
            )
        usual = jax.local_devices()[0]
        self.devices = [device if device != usual else None for device in mesh.local_devices]
        self.num_processes = len({device.process_index for device in mesh.devices.flat})
        if self.num_processes not in (1, jax.process_count()) or not self.devices:
            raise ValueError(
                "the mesh has devices of some processes: give one of this process only, or of all"
            )

    @property
    def is_first(self) -> bool:
        """Whether this process writes the results of all processes."""
        return self.num_processes == 1 or jax.process_index() == 0

    def share_of(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Return the blocks that this process fits."""
        first = jax.process_index() % self.num_processes
        return blocks[first :: self.num_processes]

    def results(
        self, blocks: Sequence[Block], settings: Settings, num_slots: int
    ) -> Iterator[tuple[np.ndarray, SearchResult | str]]:
        """Yield the places of each block's jobs, and their results or the reason of a failure.

        A block that runs out of memory is refitted after the others, alone and in halves. A lost device ends
        the run with JAX's error.
        """
        in_work = _IN_WORK
        while blocks:
            smaller: list[Block] = []
            for block, found in self._tried(blocks, settings, num_slots, in_work):
                if not isinstance(found, MemoryError):
                    yield block.places, found
                elif in_work == 1 and block.size == FEWEST_ROWS:
                    yield block.places, _no_memory(block, str(found))
                else:
                    smaller += block.halves()
            blocks, in_work = smaller, 1

    def _tried(
        self, blocks: Sequence[Block], settings: Settings, num_slots: int, in_work: int
    ) -> Iterator[tuple[Block, "SearchResult | str | MemoryError"]]:
        """Yield each block with its results or the reason of its failure; a device runs `in_work` at a time."""
        free: queue.SimpleQueue = queue.SimpleQueue()
        for device in self.devices * in_work:
            free.put((device, _on(device, _for_devices(settings))))

        def run(block: Block) -> tuple[Block, SearchResult | str | MemoryError]:
            device, of_device = place = free.get()
            try:
                return block, _ends_on(device, block, of_device, num_slots, settings)
            except Exception as error:
                if _is_short_of_memory(error):
                    return block, MemoryError(describe_error(error))
                if isinstance(error, jax.errors.JaxRuntimeError):
                    _require_alive(device)
                return block, describe_error(error)  # raised for these quotes
            finally:
                free.put(place)

        with ThreadPoolExecutor(in_work * len(self.devices)) as pool:
            for shape, group in itertools.groupby(blocks, key=lambda b: shape_of(b.inputs)):
                program, alike = (shape, shape_of(settings), num_slots), list(group)
                if program not in _COMPILED:
                    yield run(alike.pop(0))  # alone: the others reuse its compiled program
                    _COMPILED.add(program)
                yield from pool.map(run, alike)

    def gathered(self, places: np.ndarray, ends: Any) -> tuple[np.ndarray, Any]:
        """Gather the places from all processes, and a tree of arrays for them, in every process."""
        if self.num_processes == 1:
            return places, ends
        with _named_if_lost():
            counts = multihost_utils.process_allgather(np.asarray(places.size))
            more = int(np.max(counts)) - places.size
            of_all = jax.tree.map(np.ascontiguousarray, (places, ends))
            wide = lambda x: np.pad(_in_words(x), [(0, more), *((0, 0),) * x.ndim])
            found = multihost_utils.process_allgather(jax.tree.map(wide, of_all))
        is_job = np.arange(np.max(counts)) < counts[:, None]
        whole = lambda words, x: np.asarray(words)[is_job].view(x.dtype)[..., 0]
        return jax.tree.map(whole, found, of_all)

    def broadcast(self, value: Any) -> Any:
        """Return the first process's value, which must be valid JSON, in every process."""
        if self.num_processes == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        with _named_if_lost():
            size = multihost_utils.broadcast_one_to_all(np.asarray(len(content)))
            wide = np.frombuffer(content.ljust(int(size)), np.uint8)
            return json.loads(multihost_utils.broadcast_one_to_all(wide).tobytes())


def _in_words(x: np.ndarray) -> np.ndarray:
    """Return an array as words of at most 32 bits, on an extra axis: devices may lack 64-bit numbers."""
    return x[..., None].view(np.uint32) if x.itemsize > 4 else x[..., None]


def _for_devices(settings: Settings) -> Settings:
    """Return the settings in the precision of the devices."""
    if not devices_are_single():
        return settings
    rtol = jnp.maximum(settings.rtol, least_rtol(jnp.float32))
    return in_device_precision(dataclasses.replace(settings, rtol=rtol))


def _is_short_of_memory(error: Exception) -> bool:
    is_of_device = isinstance(error, jax.errors.JaxRuntimeError)
    return isinstance(error, MemoryError) or (is_of_device and _NO_MEMORY in str(error))


def _no_memory(block: Block, error: str) -> str:
    quotes = " by ".join(map(str, jax.tree.leaves(block.inputs[0])[-1].shape[1:]))
    return (
        f"not enough memory for {block.size} searches with {quotes} quotes each ({error}): give "
        f"fewer quotes, a "
        "cheaper objective or a device with more memory"
    )


def _require_alive(device: Any) -> None:
    """Run a computation on a device: JAX raises an error if the device is lost."""
    jax.block_until_ready(_on(device, jnp.zeros(1)) + 1.0)


def _on(device: Any, tree: PyTree) -> PyTree:
    return tree if device is None else eqx.filter_shard(tree, device)


@full_matmul_precision
def _ends_on(
    device: Any, block: Block, settings: Settings, num_slots: int, on_host: Settings
) -> SearchResult:
    """Return the results of a block, fitted on one device; polished on the host if in single precision.

    `settings` are on the device, and in its precision.
    """
    slots = min(num_slots, block.size)
    with on_devices():
        inputs, count = _on(device, jax.tree.map(jnp.asarray, (block.inputs, block.places.size)))
        ends = searched(inputs, count, settings, num_slots=slots)
    if devices_are_single():
        ends = _polished(block, ends, on_host, slots)
    return jax.tree.map(lambda x: np.asarray(x)[: block.places.size], ends)


def _polished(block: Block, ends: SearchResult, settings: Settings, slots: int) -> SearchResult:
    """Return the optima near the ends of searches in single precision, computed by the host in double.

    A job that did not converge or is not identified is searched again in double precision.
    """
    ends = jax.tree.map(np.asarray, ends)
    found, is_good = _optima(block.inputs, ends, settings, slots)
    found = found._replace(steps=found.steps + ends.steps)
    retried = np.flatnonzero(~is_good[: block.places.size])
    if retried.size == 0:
        return found
    rows = retried[np.minimum(np.arange(block.size), retried.size - 1)]
    some = jax.tree.map(lambda x: jnp.asarray(x)[rows], block.inputs)
    in_double = searched(some, jnp.asarray(retried.size), settings, num_slots=slots)
    in_double = jax.tree.map(np.asarray, in_double)
    closer, is_good = _optima(some, in_double, settings, slots)
    closer = closer._replace(steps=closer.steps + in_double.steps)
    new = jax.tree.map(np.asarray, where_rows(is_good, closer, in_double))

    def with_rows(x: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
        x[retried] = of_rows[: retried.size]
        return x

    return jax.tree.map(with_rows, found, new)


def _optima(
    inputs: PyTree, ends: SearchResult, settings: Settings, slots: int
) -> tuple[SearchResult, np.ndarray]:
    """Return the optimum near the end of each search, and whether it was found.

    Where the integral is too coarse, it is the optimum of a finer one: a correction of the residuals leaves
    their Jacobian as it is.
    """
    batch, start = jax.tree.map(jnp.asarray, (inputs, ends.parameters.astype(float)))

    def optima(settings: Settings) -> SearchResult:
        return jax.tree.map(np.array, polished(batch, start, settings, num_slots=slots))

    found = optima(settings)
    is_near = _has_ended(ends, RESULTS.converged) | _has_ended(ends, RESULTS.inaccurate_integral)
    is_coarse = is_near & _has_ended(found, RESULTS.inaccurate_integral)
    finer = settings.objective.finer
    if is_coarse.any() and finer is not None:
        closer = optima(dataclasses.replace(settings, objective=finer))
        found = jax.tree.map(np.array, where_rows(is_coarse, closer, found))
    return found, is_near & _has_ended(found, RESULTS.converged)


def _has_ended(ends: SearchResult, result: RESULTS) -> np.ndarray:
    """Return True for each search with this result."""
    codes, code = (np.asarray(jax.tree.leaves(each)[0]) for each in (ends.result, result))
    return codes == code


@contextlib.contextmanager
def _named_if_lost() -> Iterator[None]:
    """Explain the failure of a collective.

    Raises:
        RuntimeError: If another process has ended, or cannot be reached.
    """
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        raise RuntimeError(
            f"process {jax.process_index()} of {jax.process_count()} has lost another: it has "
            f"ended, or cannot "
            "be reached; see its output, and run all of them again with the "
            f"same `resume` folder, to "
            f"resume from the last stored round ({error})"
        ) from error
