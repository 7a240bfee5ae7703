"""Report after each round of a run over many surfaces, and end the run early if necessary."""

import contextlib
import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxtape.cli.main import TOO_MANY_FAILED, TRY_AGAIN, refuse

from ..many import Calibrations, Job


class RoundsWatch:
    """A callback after each round: print a line on stderr, write the metrics, and end the run if it is due.

    A run ends after the round in which SIGTERM arrived or its time ran out (exit status 75), or the failures
    exceeded --max-failed (3). All its rounds are kept. Several processes end after the same round.
    """

    def __init__(
        self,
        *,
        shard: tuple[int, int] | None,
        max_failed: int | None,
        time_limit: float | None,
        as_json: bool,
        metrics: Path | None,
    ):
        self._shard, self._max_failed, self._time_limit = shard, max_failed, time_limit
        self._as_json, self._metrics = as_json, metrics
        self._counts = {"done": 0, "failed": 0, "not_identified": 0}
        self._num_fitted, self._share = 0, 0.0
        self._failed: dict[str, str] = {}
        self._start = time.perf_counter()
        # the start of the first round not kept by an earlier run, and the share of the files read
        # by then
        self._first_fit = self._start, 0.0
        self._is_terminated = False
        if jax.process_index() == 0:
            self._write_metrics()

    @contextlib.contextmanager
    def ending_on_sigterm(self) -> Iterator[None]:
        """End the run after the current round on SIGTERM; a second SIGTERM ends the process at once."""

        def end_after_round(*_: object) -> None:
            self._is_terminated = True
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

        try:
            before = signal.signal(signal.SIGTERM, end_after_round)
        except ValueError:  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def following(self, jobs: Iterator[Job], sizes: Mapping[str, int]) -> Iterator[Job]:
        """Yield jobs, and note the share, by size, of their files before the one being read."""
        begins = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
        total = max(1, sum(sizes.values()))
        for job in jobs:
            begin = begins.get(job.place, begins.get(job.place.rpartition(":")[0]))
            self._share = self._share if begin is None else begin / total
            yield job

    def _seconds_left(self) -> float | None:
        """Estimate the remaining seconds from the bytes of the files read so far, or return None."""
        start, share = self._first_fit
        if self._share <= share:
            return None
        seconds = time.perf_counter() - start
        return round(seconds * (1.0 - self._share) / (self._share - share), 1)

    def __call__(self, found: Calibrations, is_kept: bool) -> None:
        """Report a round, kept by an earlier run or fitted now, and exit if the run is due to end."""
        self._counts["done"] += len(found.ids)
        self._num_fitted += 0 if is_kept else len(found.ids)
        if is_kept:
            self._first_fit = time.perf_counter(), self._share
        self._failed |= found.failed
        self._counts["failed"] = len(self._failed)
        self._counts["not_identified"] += len(found.not_identified)
        if jax.process_index() == 0:
            self._print()
            self._write_metrics()
        self._end_if_due(is_kept)

    def _facts(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self._start
        rate = self._num_fitted / seconds
        return {**self._counts, "seconds": round(seconds, 3), "surfaces_per_second": round(rate, 1)}

    def _print(self) -> None:
        facts = self._facts()
        index, count = self._shard or (0, 1)
        if self._as_json:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            facts |= {"seconds_left": self._seconds_left()}
            text = json.dumps({"event": "round", "time": now, "shard": f"{index}/{count}", **facts})
        else:
            name = f"shard {index}/{count}: " if count > 1 else ""
            text = (
                f"{name}{facts['done']:,} surfaces, {facts['failed']:,} failed, "
                f"{facts['surfaces_per_second']:,.1f} a second"
            )
            left = self._seconds_left()
            text += "" if left is None else f", about {left:,.0f} s left"
        print(text, file=sys.stderr, flush=True)

    def _write_metrics(self) -> None:
        """Write the counts atomically, in the format of node_exporter's textfile collector."""
        if self._metrics is None:
            return
        prometheus: Any = prometheus_client()
        registry = prometheus.CollectorRegistry()
        index, count = self._shard or (0, 1)
        facts = {**self._facts(), "last_report_timestamp_seconds": time.time()}
        for name, value in facts.items():
            unit = "" if name.endswith(("second", "seconds")) else "_surfaces"
            gauge = prometheus.Gauge(
                f"jaxtape_calibrate_{name}{unit}", _HELP[name], ["shard"], registry=registry
            )
            gauge.labels(f"{index}/{count}").set(value)
        prometheus.write_to_textfile(str(self._metrics), registry)

    def not_allowed(self, found: Calibrations, errors: Sequence[str]) -> list[str]:
        """Return the failures of a complete run, or none if --max-failed allows them; exit if it does not."""
        if self._max_failed is None:
            return list(errors)
        self._refuse_too_many(found.failed, len(found.ids))
        return []

    def _refuse_too_many(self, failed: Mapping[str, str], done: int) -> None:
        if self._max_failed is not None and len(failed) > self._max_failed:
            name, why = next(iter(failed.items()))
            refuse(
                f"{len(failed):,} of {done:,} surfaces have failed, more than --max-failed "
                f"{self._max_failed:,}; the first is {name}: {why}; correct the input, or run again with "
                "--resume and a larger --max-failed",
                TOO_MANY_FAILED,
            )

    def _end_if_due(self, is_kept: bool) -> None:
        self._refuse_too_many(self._failed, done := self._counts["done"])
        seconds = time.perf_counter() - self._start
        is_over = self._time_limit is not None and seconds > self._time_limit and not is_kept
        is_terminated, is_over = _of_any_process(self._is_terminated, is_over)
        if is_terminated or is_over:
            why = "was terminated" if is_terminated else f"ran for {self._time_limit:g} seconds"
            refuse(
                f"the run {why}; {done:,} surfaces are kept; run the same command again with --resume",
                TRY_AGAIN,
            )


_HELP = {
    "done": "Surfaces fitted or failed",
    "failed": "Surfaces that failed",
    "not_identified": "Surfaces whose quotes do not identify the model",
    "seconds": "Seconds since the run began",
    "surfaces_per_second": "Surfaces fitted per second by this run",
    "last_report_timestamp_seconds": "Time of the end of the last round, or of the start of the run",
}


def prometheus_client() -> Any:
    """Return the package prometheus_client, or exit with status 2."""
    try:
        import prometheus_client
    except ImportError:
        refuse("--metrics-file needs prometheus-client: pip install 'jaxtape[many]'")
    return prometheus_client


def _of_any_process(*flags: bool) -> list[bool]:
    """Return the logical or of each flag over all processes, all of which must make this call."""
    if jax.process_count() == 1:
        return list(flags)
    found = multihost_utils.process_allgather(np.array(flags))
    return np.any(found.reshape(-1, len(flags)), axis=0).tolist()
