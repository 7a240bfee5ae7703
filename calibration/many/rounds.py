"""Calibrate many sets of quotes, each independently, in rounds that processes and devices share."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from jaxtape.object_store import place_of
from pricing.models import AbstractModel, AbstractTransform, Quotes
from pricing.progress import Progress

from ..objectives import AbstractObjective, objective_of
from ..optimizers import levenberg_marquardt
from ..parameters import FreeParameters, random_starts
from ..results import RESULTS
from .calibrations import Calibrations
from .job import Job, jobs_of
from .job_blocks import blocks_of, misfit_of
from .kept_rounds import KeptRounds
from .searches import SearchResult, Settings
from .shards import Shard
from .workers import Workers

_IN_MEMORY = 8192  # jobs in a round
_MOST_WORDS = 400  # bytes of the reason why a job failed
_SIZES_OF_FEW = 8, 8  # rows of a block, and slots, when few jobs are left and some take many steps


def calibrate_many(
    quotes: Iterable[Job] | Quotes | Iterable[Quotes],
    model: AbstractModel | Iterable[AbstractModel] | None = None,
    *,
    mesh: Mesh | None = None,
    resume: str | os.PathLike | None = None,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    num_starts: int = 1,
    key: PRNGKeyArray | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    block_size: int = 64,
    num_slots: int = 8,
    round_size: int = _IN_MEMORY,
    shard: tuple[int, int] | None = None,
    progress: Progress | None = None,
    on_round: Callable[[Calibrations, bool], None] | None = None,
) -> Calibrations:
    """Fit models of one type to many sets of quotes, each independently, as `calibrate` does.

    Quotes may differ in shape, and some may be missing. If a job cannot be fitted, `status` has the reason, and
    the others are still fitted. A fit does not depend, to the last bit, on the other jobs or on the number of
    devices and processes. If the mesh has devices of several processes (`jax.distributed`), each process makes
    this call with the same jobs, fits its share, and returns all results.

    Args:
        quotes: Jobs; or quotes with a leading batch axis (arrays without it are shared), or an iterable of
            quotes, to which `model` is fitted and which are named "0", "1" and so on. An iterable is read
            lazily, one round at a time.
        model: With quotes instead of jobs, the model for all of them, or one for each.
        mesh: Devices that share the jobs, on an axis "surfaces"; None for the first device of the process.
        resume: A folder, or its URL in an object store (gs://, s3://), in which the first process stores each
            round as soon as it is done. A stopped run resumes from there, on any number of devices, with the
            same bits. None stores nothing.
        optimizer: Any optax transformation; the default is Levenberg-Marquardt.
        objective: The residuals for all jobs; by default, of implied vols with equal weights.
        transform: Field -> bounds of each free parameter, for all jobs; the default is the model's own.
        num_starts: The number of starting points of each job: its own model, then random ones, the same for all
            jobs.
        key: Key of the random starts; the default is seed 0.
        max_steps: Maximum number of steps of each start; doubled if a weak prior holds parameters.
        rtol: A search stops once a step would lower the loss by less than this fraction of it.
        block_size: The number of jobs that a device takes at once, at least eight.
        num_slots: The number of searches of a block that run at once: few on a CPU, because the last long
            search of a block leaves the other slots idle; more on an accelerator.
        round_size: The number of jobs in memory at once, and between checkpoints.
        shard: (index, count) to fit only the jobs that their ids assign to this one of several runs;
            `merge_shards` joins the results of all. None for all jobs.
        progress: Called after every block of this process with the number of jobs done, their total as far as
            known, and an empty message.
        on_round: Called with the results of each round once they are stored, and whether an earlier run had
            stored them. An exception ends the run, which `resume` can then complete.

    Returns:
        The parameters of every job, their standard errors, and the result of each search.

    `ValueError` is raised if no job can be read, the models have arrays as parameters, the mesh has no axis
    "surfaces", a count is below 1 or `rtol` below 0, there is no such shard, or `resume` holds another run or
    something else. It is also raised if two jobs of a sequence have the same id, or models of different types;
    from an iterator, which is read lazily, such jobs fail instead.

    Examples:
        >>> from calibration import Job, calibrate_many
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> found = calibrate_many([Job("A", surface, Heston(100.0, 0.0, 0.04, 1.0, 0.04, 0.5, -0.5))])
        >>> found.status[0]
        'failed: it has 4 quotes for 5 parameters: give at least as many'
    """
    _check_settings(
        rtol, max_steps=max_steps, block_size=block_size, num_slots=num_slots, round_size=round_size
    )
    folder = None if resume is None else place_of(resume)
    total, jobs = jobs_of(quotes, model)
    drawn = None if shard is None else Shard(*shard)
    total = None if drawn else total
    if isinstance(quotes, Sequence):
        _require_distinct([job for job in quotes if isinstance(job, Job)])
    before, first = _first_readable(jobs)
    start = first.model
    assert start is not None
    workers = Workers(mesh)
    parameters = _numbers_alone(start, transform)
    key = jax.random.key(0) if key is None else key
    settings = Settings(
        objective or _usual_objective(first.quotes),
        parameters,
        optimizer or levenberg_marquardt(),
        random_starts(parameters, start, num_starts, key=key)[1:],
        jnp.asarray(rtol),
        jnp.asarray(max_steps),
    )
    kept = None if folder is None else KeptRounds(folder, settings, round_size, workers)
    parts, end, again = [], 0, {}
    known = _placed_jobs(itertools.chain(before, [first], jobs), again)
    for round_of_jobs in _rounds(drawn.of(known) if drawn else known, round_size):
        begin, end = end, end + len(round_of_jobs)
        found = kept and kept.found(end, round_of_jobs)
        is_kept = found is not None
        if found is None:
            say = _from(progress, begin, total or end)
            found = _fitted(round_of_jobs, settings, workers, block_size, num_slots, say)
            if kept:
                kept.save(end, round_of_jobs, found)
        elif progress is not None:
            progress(end, total or end, "")
        parts.append(found)
        if on_round is not None:
            on_round(found, is_kept)
    parts = parts or [_fitted((), settings, workers, block_size, num_slots, None)]
    joined = Calibrations.joined(parts).without(again)
    return drawn.placed(joined, settings) if drawn else joined


def _check_settings(rtol: float, **counts: int) -> None:
    """Check the numbers of a call.

    Raises:
        ValueError: A count is below 1, or the tolerance is not a finite number of at least 0.
    """
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if not 0.0 <= rtol < np.inf:
        raise ValueError(f"rtol must be a finite number of at least 0, got {rtol:g}")


def _usual_objective(quotes: Quotes) -> AbstractObjective:
    """Return the default objective with a finer integral, without which some of many jobs would be refitted.

    `benchmarks.many_surfaces` counts them.
    """
    usual = objective_of(quotes)
    return usual.finer or usual


def _fitted(
    jobs: Sequence[Job],
    settings: Settings,
    workers: Workers,
    block_size: int,
    num_slots: int,
    progress: Progress | None,
) -> Calibrations:
    fewest = len(settings.parameters.names)
    refused = {
        place: job.at_its_place(why)
        for place, job in enumerate(jobs)
        if (why := job.refusal(fewest) or misfit_of(settings.objective, job.quotes))
    }
    sound = [place for place in range(len(jobs)) if place not in refused]
    done = len(refused)

    def say(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, len(jobs), "")

    sizes = block_size, num_slots
    places, ends, lost = _ends(jobs, sound, settings, workers, sizes, say)
    while (off := _is_off(ends)).any() and (finer := settings.objective.finer) is not None:
        moved = dict(zip(places[off].tolist(), ends.parameters[off], strict=True))
        again = [
            job._replace(model=_moved(job.model, settings.parameters, moved.get(place)))
            for place, job in enumerate(jobs)
        ]
        settings = dataclasses.replace(settings, objective=finer, starts=settings.starts[:0])
        later, closer, lost_later = _ends(again, moved, settings, workers, _SIZES_OF_FEW)
        lost |= lost_later
        ends = jax.tree.map(lambda x, new: np.concatenate([x[~off], new]), ends, closer)
        places = np.concatenate([places[~off], later])
    refused |= {place: jobs[place].at_its_place(why) for place, why in lost.items()}
    return Calibrations.of(jobs, refused, places, ends, settings.parameters)


def _ends(
    jobs: Sequence[Job],
    places: Iterable[int],
    settings: Settings,
    workers: Workers,
    sizes: tuple[int, int],
    say: Callable[[int], None] = lambda count: None,
) -> tuple[np.ndarray, SearchResult, dict[int, str]]:
    """Return the places and results of the jobs at these places, fitted by all processes.

    The dictionary maps the places of failed jobs to the reasons.
    """
    block_size, num_slots = sizes
    blocks = workers.share_of(list(blocks_of(jobs, places, block_size)))
    found = [(np.zeros(0, int), SearchResult.empty(settings.parameters))]
    lost = [(np.zeros(0, int), np.zeros((0, _MOST_WORDS), np.uint8))]
    for where, ends in workers.results(blocks, settings, num_slots):
        if isinstance(ends, SearchResult):
            found.append((where, ends))
        else:
            words = ends.encode()[:_MOST_WORDS].ljust(_MOST_WORDS)
            lost.append((where, np.tile(np.frombuffer(words, np.uint8), (where.size, 1))))
        say(where.size)
    joined = lambda *parts: np.concatenate(parts)
    failed, reasons = workers.gathered(*jax.tree.map(joined, *lost))
    reasons = (row.tobytes().decode(errors="ignore").strip() for row in reasons)
    return *workers.gathered(*jax.tree.map(joined, *found)), dict(
        zip(failed.tolist(), reasons, strict=True)
    )


def _is_off(ends: SearchResult) -> np.ndarray:
    (codes,), (off,) = jax.tree.leaves(ends.result), jax.tree.leaves(RESULTS.inaccurate_integral)
    return codes == np.asarray(off)


def _moved(
    model: AbstractModel | None, parameters: FreeParameters, to: np.ndarray | None
) -> AbstractModel | None:
    """Return a model at these parameters; unchanged if there are none, or one is at the end of its range."""
    if to is None or model is None:
        return model
    where = lambda m: [getattr(m, name) for name in parameters.names]
    moved = eqx.tree_at(where, model, list(map(jnp.asarray, to)))
    return moved if jnp.all(jnp.isfinite(parameters.free(moved))) else model


def _from(progress: Progress | None, begin: int, total: int) -> Progress | None:
    """Return a progress callback for a round that reports to the callback of the whole run."""
    if progress is None:
        return None
    return lambda done, _, message: progress(begin + done, total, message)


def _require_distinct(jobs: Sequence[Job]) -> None:
    """Check all jobs that are known before the first is fitted.

    Raises:
        ValueError: If two jobs have the same id, or models of different types.
    """
    twice = [name for name, count in Counter(job.id for job in jobs).items() if count > 1]
    if twice:
        raise ValueError(f"several jobs have the id {twice[0]!r}: give each its own")
    kinds = {type(job.model).__name__ for job in jobs if job.model is not None}
    if len(kinds) > 1:
        raise ValueError(
            f"the jobs have models of {', '.join(sorted(kinds))}: calibrate one type at a time"
        )


def _first_readable(jobs: Iterator[Job]) -> tuple[list[Job], Job]:
    """Return the first job that has a model, and those before it.

    Raises:
        ValueError: If there is none.
    """
    before: list[Job] = []
    for job in jobs:
        if job.model is not None:
            return before, job
        before.append(job)
    if before:
        raise ValueError(f"no job can be calibrated: {before[0].id}: {before[0].unreadable}")
    raise ValueError("there is no job to calibrate: give at least one")


def _rounds(jobs: Iterator[Job], size: int) -> Iterator[tuple[Job, ...]]:
    while several := tuple(itertools.islice(jobs, size)):
        yield several


def _placed_jobs(jobs: Iterator[Job], again: dict[str, str]) -> Iterator[Job]:
    """Yield the jobs; one that does not fit with the others is made unreadable.

    `again` collects, for each duplicate id, the reason why its jobs fail. The second one is named "ID (2)".
    """
    known: dict[str, str] = {}
    times: Counter[str] = Counter()
    kinds: set[type] = set()
    for job in jobs:
        yield _placed(job, known, times, kinds, again)


def _placed(
    job: Job,
    known: dict[str, str],
    times: Counter[str],
    kinds: set[type],
    again: dict[str, str],
) -> Job:
    """Return a job unchanged, or unreadable if its id is known or its model's type is not that of the first.

    `known` has the place of each id so far, `times` the number of repetitions of each, and `kinds` the type of
    the first model.
    """
    if job.id in known:
        first, second = (f" at {place}" if place else "" for place in (known[job.id], job.place))
        again[job.id] = (
            f"{job.id!r} appears{first or ' before'} and again{second}: keep the rows of a surface together, "
            "and give each surface its own name"
        )
        name = job.id
        while name in known:  # the results have each name once
            times[job.id] += 1
            name = f"{job.id} ({times[job.id] + 1})"
        known[name] = job.place
        return job._replace(id=name, unreadable=again[job.id])
    known[job.id] = job.place
    if job.model is None:
        return job
    kinds.update([type(job.model)] * (not kinds))
    (kind,) = kinds
    if type(job.model) is kind:
        return job
    other = type(job.model).__name__
    return job._replace(
        unreadable=f"its model is a {other}, and that of the first a {kind.__name__}: calibrate "
        f"one type at a time"
    )


def _numbers_alone(
    model: AbstractModel, transform: Mapping[str, AbstractTransform] | None
) -> FreeParameters:
    """Return the free parameters of a model.

    Raises:
        ValueError: If one of them is an array.
    """
    found = FreeParameters.of(model, transform)
    pairs = zip(found.names, found.shapes, strict=True)
    if arrays := ", ".join(name for name, shape in pairs if shape):
        kind = type(model).__name__
        raise ValueError(f"{kind} has arrays as parameters ({arrays}): calibrate each separately")
    return found
