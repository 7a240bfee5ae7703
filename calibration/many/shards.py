"""Shards: shares of a run's jobs, chosen by their ids, and the merging of their results."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from .calibrations import Calibrations, ShardPlace
from .job import Job
from .kept_rounds import digest_of_jobs, facts_of
from .searches import Settings


class Shard:
    """The jobs that run number `index`, from 0, of `count` runs fits.

    Every run reads all jobs. An id always belongs to the same shard, whatever the other jobs are.
    """

    def __init__(self, index: int, count: int):
        """Take shard `index` of `count`.

        Raises:
            ValueError: If there is no such shard.
        """
        if not 0 <= index < count:
            raise ValueError(f"shard {index} of {count}: give 0 to {count - 1} of {count}")
        self._index, self._count, self._num_jobs = index, count, 0
        self._positions: list[int] = []
        self._digest = hashlib.sha256()

    def of(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs of this shard, and note their positions among all."""
        for position, job in enumerate(jobs):
            self._num_jobs += 1
            self._digest.update(digest_of_jobs([job]).encode())
            if zlib.crc32(job.id.encode(errors="surrogatepass")) % self._count == self._index:
                self._positions.append(position)
                yield job

    def placed(self, found: Calibrations, settings: Settings) -> Calibrations:
        """Return the results of this shard with the data that `merge_shards` needs."""
        self._digest.update(json.dumps(facts_of(settings)).encode())
        positions, run = np.array(self._positions, int), self._digest.hexdigest()
        return replace(found, shard=ShardPlace(positions, self._num_jobs, run))


def merge_shards(parts: Sequence[Calibrations]) -> Calibrations:
    """Return the results of all shards of a run, in the order of the jobs, as from a run without shards.

    Args:
        parts: The results of `calibrate_many(..., shard=(index, count))` for each index, in any order.

    Raises:
        ValueError: If they are not the shards of one run, or one is missing.

    Examples:
        >>> from calibration import calibrate_many, merge_shards
        >>> def in_two(jobs):
        ...     return merge_shards([calibrate_many(jobs, shard=(index, 2)) for index in range(2)])
    """
    marks = [found.shard for found in parts if found.shard is not None]
    if len(marks) < len(parts) or len({mark[1:] for mark in marks}) != 1:
        raise ValueError(
            "the parts are of several runs: fit all shards of the same quotes, with the same settings and the "
            "same version of jaxtape and JAX"
        )
    positions = np.concatenate([mark.positions for mark in marks])
    order = np.argsort(positions, kind="stable")
    if not np.array_equal(positions[order], np.arange(marks[0].num_jobs)):
        raise ValueError("a shard is missing, or given twice: give each shard of the run once")
    joined = Calibrations.joined([replace(found, shard=None) for found in parts])
    return Calibrations.of_columns({name: x[order] for name, x in joined.columns.items()})
