"""Assign the blocks of a round to processes in turn, and within a process to the next device that is free.

Every device runs the same program for one device, so that a fit has the same bits wherever it is made.
"""

import contextlib
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

from jaxtape.callers_code import in_words
from jaxtape.full_products import with_full_products

from .batches import Block, shape_of
from .searches import End, Settings, searched

AXIS = "surfaces"
_IN_WORK = (
    2  # blocks of a device: one is handed over, or at its last searches, while the other computes
)

_COMPILED: set[Hashable] = set()  # what tells programs of this process apart that have run


class Workers:
    """The devices of a mesh that are this process's, and the processes that share the work.

    Attributes:
        devices: Devices of this process; None is JAX's default device.
        num_processes: The number of processes that share the blocks; each of them makes the same calls.
    """

    def __init__(self, mesh: Mesh | None):
        """Take the devices of a mesh; of None, the first one of this process.

        Raises:
            ValueError: The mesh has other axes than "surfaces", or lacks the devices of some processes.
        """
        if mesh is None:
            self.devices, self.num_processes = [None], 1
            return
        if mesh.axis_names != (AXIS,):
            raise ValueError(
                f"the mesh has axes {mesh.axis_names}: give one of the axis {AXIS!r} alone"
            )
        usual = jax.local_devices()[0]
        self.devices = [device if device != usual else None for device in mesh.local_devices]
        self.num_processes = len({device.process_index for device in mesh.devices.flat})
        if self.num_processes not in (1, jax.process_count()) or not self.devices:
            raise ValueError(
                "the mesh has devices of some processes: give one of this process alone, or of all"
            )

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all have found."""
        return self.num_processes == 1 or jax.process_index() == 0

    def own(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Return the blocks that this process fits."""
        first = jax.process_index() % self.num_processes
        return blocks[first :: self.num_processes]

    def ends(
        self, blocks: Sequence[Block], settings: Settings, num_slots: int
    ) -> Iterator[tuple[np.ndarray, End | str]]:
        """Yield the places of each block's jobs, in the order of the blocks, and how they ended, or why not.

        What a device lacks, such as memory, is not the fault of a job, and is raised.
        """
        free: queue.SimpleQueue = queue.SimpleQueue()
        for device in self.devices * _IN_WORK:
            free.put((device, _on(device, settings)))

        def run(block: Block) -> tuple[np.ndarray, End | str]:
            device, settings = place = free.get()
            try:
                return block.places, _ends_on(device, block, settings, num_slots)
            except (MemoryError, jax.errors.JaxRuntimeError):
                raise
            except Exception as error:  # of an objective or a model on these quotes
                return block.places, in_words(error)
            finally:
                free.put(place)

        with ThreadPoolExecutor(_IN_WORK * len(self.devices)) as pool:
            for shape, group in itertools.groupby(blocks, key=lambda b: shape_of(b.inputs)):
                program, alike = (shape, shape_of(settings), num_slots), list(group)
                if program not in _COMPILED:
                    yield run(alike.pop(0))  # alone: the others find what it compiled
                    _COMPILED.add(program)
                yield from pool.map(run, alike)

    def gathered(self, places: np.ndarray, ends: Any) -> tuple[np.ndarray, Any]:
        """Gather places, and a tree of arrays for them, of all processes, at each of them."""
        if self.num_processes == 1:
            return places, ends
        with _named_if_lost():
            counts = multihost_utils.process_allgather(np.asarray(places.size))
            more = int(np.max(counts)) - places.size
            wide = lambda x: np.pad(x, [(0, more), *((0, 0),) * (x.ndim - 1)])  # noqa: E731
            found = multihost_utils.process_allgather(jax.tree.map(wide, (places, ends)))
        is_job = np.arange(np.max(counts)) < counts[:, None]
        return jax.tree.map(lambda x: np.asarray(x)[is_job], found)

    def told(self, value: Any) -> Any:
        """Return the first process's value, which JSON can hold, in every process."""
        if self.num_processes == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        with _named_if_lost():
            size = multihost_utils.broadcast_one_to_all(np.asarray(len(content)))
            wide = np.frombuffer(content.ljust(int(size)), np.uint8)
            return json.loads(multihost_utils.broadcast_one_to_all(wide).tobytes())


def _on(device: Any, tree: PyTree) -> PyTree:
    return tree if device is None else eqx.filter_shard(tree, device)


@with_full_products
def _ends_on(device: Any, block: Block, settings: Settings, num_slots: int) -> End:
    """Return the ends of the jobs of a block, fitted on one device."""
    rows = len(jax.tree.leaves(block.inputs)[0])
    inputs, count = _on(device, jax.tree.map(jnp.asarray, (block.inputs, block.places.size)))
    ends = searched(inputs, count, settings, num_slots=min(num_slots, rows))
    return jax.tree.map(lambda x: np.asarray(x)[: block.places.size], ends)


@contextlib.contextmanager
def _named_if_lost() -> Iterator[None]:
    """Explain the failure of a collective.

    Raises:
        RuntimeError: Another process has ended, or cannot be reached.
    """
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        raise RuntimeError(
            f"process {jax.process_index()} of {jax.process_count()} has lost another: it has ended, or cannot "
            "be reached; see what that one said, and run all of them again with the same `resume` folder, to "
            f"resume from the last round that was kept ({error})"
        ) from error
