"""The verb for many: each set of quotes gets a fit of its own, in blocks that processes and devices share."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PRNGKeyArray, PyTree

from pricing.models import AbstractModel, AbstractTransform
from pricing.progress import Progress

from ..objectives import AbstractObjective, objective_of
from ..optimizers import levenberg_marquardt
from ..parameters import Parameters, random_starts
from .batches import batches, misfit_of, power_of_two
from .calibrations import Calibrations
from .job import Job
from .searches import AXIS, FEWEST_SLOTS, End, Settings, searched


def calibrate_many(
    jobs: Iterable[Job],
    *,
    mesh: Mesh | None = None,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    num_starts: int = 1,
    key: PRNGKeyArray | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    block_size: int = 1024,
    num_slots: int = 64,
    progress: Progress | None = None,
) -> Calibrations:
    """Fit models of one type to many sets of quotes, each by itself, as `calibrate` does.

    Quotes may differ in shape, and some may be missing. A job that cannot be fitted has its reason in `status`,
    and the others are fitted all the same. A fit depends neither on the jobs beside it nor on the number of
    devices and processes. Where the mesh has devices of several processes (`jax.distributed`), each of them
    makes this call with the same jobs, fits its share, and returns all.

    Args:
        jobs: The quotes and the models, all of one type.
        mesh: Devices that share the jobs, on an axis "surfaces". None: the first device of the process.
        optimizer: As in `calibrate`.
        objective: As in `calibrate`; for all jobs.
        transform: As in `calibrate`; for all jobs.
        num_starts: Starting points of each job: its own model, and random ones, the same for all jobs.
        key: As in `calibrate`.
        max_steps: As in `calibrate`.
        rtol: As in `calibrate`.
        block_size: The jobs of a device in one call of a program, a power of two.
        num_slots: The searches that are in work at once on a device.
        progress: Called with the jobs done, those of this process, and an empty message, after every block.

    Returns:
        The parameters of every job, their standard errors, and how each search ended.

    Raises:
        ValueError: Two jobs have one id, there is none, their models are of several types or have arrays as
            parameters, or the mesh has no axis "surfaces".

    Examples:
        >>> from calibration import Job, calibrate_many
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, -0.21]])
        >>> found = calibrate_many([Job("A", surface, Heston(100.0, 0.0, 0.04, 1.0, 0.04, 0.5, -0.5))])
        >>> found.status[0]
        'failed: the vol of expiry 1 at strike 110 is -0.21: give one above 0, or NaN where there is none'
    """
    jobs = tuple(jobs)
    if misfit := _misfit(jobs, mesh):
        raise ValueError(misfit)
    parameters = _numbers_alone(jobs[0].model, transform)
    key = jax.random.key(0) if key is None else key
    settings = Settings(
        objective or objective_of(jobs[0].quotes),
        parameters,
        optimizer or levenberg_marquardt(),
        random_starts(parameters, jobs[0].model, num_starts, key=key)[1:],
        jnp.asarray(rtol),
        jnp.asarray(max_steps),
    )
    fewest = len(parameters.names)
    refused = {
        place: why
        for place, job in enumerate(jobs)
        if (why := job.refusal(fewest) or misfit_of(settings.objective, job.quotes))
    }
    shares = list(_shares(jobs, refused, mesh, block_size))
    done, total = 0, sum(share.places.size for share in shares)
    found = [(np.zeros(0, int), End.of_none(parameters))]
    for share in shares:
        found.append((share.places, share.ends(settings, num_slots)))
        done += share.places.size
        if progress is not None:
            progress(done, total, "")
    places, ends = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
    if _num_processes(mesh) > 1:
        places, ends = _of_all_processes(places, ends)
    return Calibrations.of(jobs, refused, places, ends, parameters)


class _Share(NamedTuple):
    """Jobs that the devices of this process fit in one call of a program.

    Attributes:
        places: Of the jobs, [jobs].
        counts: How many of them each device has, [devices].
        inputs: Quotes and models, [devices * rows, ...]: of each device its jobs, and what fills up its rows.
        mesh: The devices; None is the first one.
    """

    places: np.ndarray
    counts: np.ndarray
    inputs: PyTree
    mesh: Mesh | None

    def ends(self, settings: Settings, num_slots: int) -> End:
        """Return how each job ended, [jobs]."""
        rows = len(jax.tree.leaves(self.inputs)[0]) // self.counts.size
        inputs = self.inputs, self.counts
        if self.mesh is not None:
            inputs = jax.device_put(inputs, NamedSharding(self.mesh, P(AXIS)))
            settings = eqx.filter_shard(settings, NamedSharding(self.mesh, P()))
        ends = searched(*inputs, settings, num_slots=min(num_slots, rows), mesh=self.mesh)
        is_job = np.ravel(np.arange(rows) < self.counts[:, None])
        return jax.tree.map(lambda x: np.asarray(x)[is_job], ends)


def _shares(
    jobs: Sequence[Job], refused: Mapping[int, str], mesh: Mesh | None, most_rows: int
) -> Iterator[_Share]:
    """Yield the jobs of this process: every so many of those of one shape, as there are processes."""
    num_processes, num_devices = _num_processes(mesh), 1 if mesh is None else mesh.size
    own, a_process = jax.process_index() % num_processes, num_devices // num_processes
    here = mesh and Mesh(mesh.local_devices, (AXIS,))
    for places, batch in batches(jobs, refused):
        rows = power_of_two(-(-places.size // num_devices))
        rows = min(most_rows, max(rows, FEWEST_SLOTS))
        for start in range(0, places.size, rows * a_process)[own::num_processes]:
            size = min(rows * a_process, places.size - start)
            a_device = -(-size // a_process)
            firsts = a_device * np.arange(a_process)
            counts = np.clip(size - firsts, 0, a_device)
            within = firsts[:, None] + np.minimum(np.arange(rows), a_device - 1)
            taken = start + np.minimum(within.ravel(), size - 1)
            inputs = jax.tree.map(operator.itemgetter(taken), batch)
            yield _Share(places[start : start + size], counts, inputs, here)


def _of_all_processes(places: np.ndarray, ends: End) -> tuple[np.ndarray, End]:
    """Return what all processes have found, at each of them."""
    counts = multihost_utils.process_allgather(np.asarray(places.size))
    more = int(np.max(counts)) - places.size
    wide = lambda x: np.pad(x, [(0, more), *((0, 0),) * (x.ndim - 1)])  # noqa: E731
    gathered = multihost_utils.process_allgather(jax.tree.map(wide, (places, ends)))
    is_job = np.arange(np.max(counts)) < counts[:, None]
    return jax.tree.map(lambda x: np.asarray(x)[is_job], gathered)


def _num_processes(mesh: Mesh | None) -> int:
    return 1 if mesh is None else len({device.process_index for device in mesh.devices.flat})


def _misfit(jobs: Sequence[Job], mesh: Mesh | None) -> str | None:
    """Return why jobs cannot be calibrated together, or not on these devices."""
    if not jobs:
        return "there is no job to calibrate: give at least one"
    ids = Counter(job.id for job in jobs)
    if twice := [name for name, count in ids.items() if count > 1]:
        return f"several jobs have the id {twice[0]!r}: give each one of its own"
    kinds = sorted({type(job.model).__name__ for job in jobs})
    if len(kinds) > 1:
        return f"the jobs have models of {', '.join(kinds)}: calibrate one type at a time"
    if mesh is not None and mesh.axis_names != (AXIS,):
        return f"the mesh has axes {mesh.axis_names}: give one of the axis {AXIS!r} alone"
    if _num_processes(mesh) not in (1, jax.process_count()):
        return "the mesh has devices of some processes: give one of this process alone, or of all"
    return None


def _numbers_alone(
    model: AbstractModel, transform: Mapping[str, AbstractTransform] | None
) -> Parameters:
    """Return the free parameters of a model.

    Raises:
        ValueError: One of them is an array.
    """
    found = Parameters.of(model, transform)
    pairs = zip(found.names, found.shapes, strict=True)
    if arrays := ", ".join(name for name, shape in pairs if shape):
        kind = type(model).__name__
        raise ValueError(f"{kind} has arrays as parameters ({arrays}): calibrate each by itself")
    return found
