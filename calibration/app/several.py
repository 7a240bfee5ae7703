"""Fit a model to every surface of a file or a folder, kept as it goes, by devices and processes together."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtape.cli.main import refuse
from pricing.ingestion.errors import UnreadableFile
from pricing.models import Calibratable
from pricing.progress import Progress
from pricing.reporting import ManyFits

from ..many import (
    Calibrations,
    Job,
    calibrate_many,
    finish,
    forget,
    read_jobs,
)
from . import console

TABLE = "calibrations.parquet"
_TABLES = (".csv", ".parquet")


def holds_many(path: Path) -> bool:
    """Return True if a path is a folder or a table of quotes."""
    return os.path.isdir(path) or path.suffix.lower() in _TABLES


def calibrate_all(
    source: Path,
    kind: type[Calibratable],
    output: console.Output,
    stages: console.Stages,
    *,
    resume: bool,
    devices: int | None,
    keep_every: int,
    **settings: Any,
) -> list[str]:
    """Fit all surfaces, write the results, and return the failures; one process of several writes."""
    mesh, is_first = _mesh(devices), jax.process_index() == 0
    jobs, results = _jobs(source, kind), output.folder / TABLE
    if is_first and not resume:
        _start_afresh(output.folder, results)
    with stages.progress("calibrate", f"calibrating {source.name}") as (lines, progress):
        try:
            found = calibrate_many(
                jobs,
                mesh=mesh,
                resume=output.folder,
                round_size=keep_every,
                progress=progress and _with_rate(progress),
                **settings,
            )
        except (UnreadableFile, ValueError, RuntimeError) as error:
            refuse(str(error))
        lines += [_summary(found, kind)] * is_first
    if not is_first:
        return []
    unsure = {**found.failed, **found.not_identified}
    errors = [f"{source}: {name}: {why}" for name, why in unsure.items()]
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        from pricing.reporting.page import (
            write_many_fits_report,  # matplotlib: not before it is needed
        )

        console.write_errors(folder, errors)
        found.write_parquet(folder / TABLE)
        fits = _fits(found, kind, source, stages.seconds["calibrate"])
        write_many_fits_report(folder / "report.html", fits, stages.seconds)
        lines.append(f"wrote {output.folder}")
    finish(output.folder, results)
    return errors


def _start_afresh(folder: Path, results: Path) -> None:
    """Remove the rounds of a run that has ended, or refuse."""
    try:
        forget(folder, results)
    except (OSError, ValueError) as error:
        refuse(str(error))


def _jobs(source: Path, kind: type[Calibratable]) -> Iterator[Job]:
    try:
        jobs = read_jobs(source, kind)
        first = next(jobs, None)
    except (UnreadableFile, ImportError, TypeError) as error:
        refuse(str(error))
    if first is None:
        refuse(f"{source}: has no surface; give one row for each quote")
    return itertools.chain([first], jobs)


def _mesh(devices: int | None) -> Mesh:
    """Return a mesh of `devices` devices of each process; if None, of all of them."""
    found = jax.local_devices()
    if devices is not None and devices > len(found):
        refuse(console.too_many_devices(devices, found))
    most = len(found) if devices is None else devices
    counts: dict[int, int] = {}
    chosen = []
    for device in jax.devices():
        counts[device.process_index] = counts.get(device.process_index, 0) + 1
        if counts[device.process_index] <= most:
            chosen.append(device)
    return Mesh(np.array(chosen), ("surfaces",))


def _with_rate(progress: Progress) -> Progress:
    """Return a progress callback that also shows the surfaces per second."""
    begun, start = 0, time.perf_counter()

    def with_rate(done: int, total: int, message: str) -> None:
        del message
        rate = (done - begun) / (time.perf_counter() - start)
        progress(done, total, f"{rate:,.0f} surfaces a second")

    return with_rate


def _summary(found: Calibrations, kind: type[Calibratable]) -> str:
    failed, held = len(found.failed), len(found.not_identified)
    summary = f"calibrated {kind.label} to {len(found.ids) - failed:,} surfaces, {failed:,} failed"
    return f"{summary}, {held:,} not identified" if held else summary


def _fits(found: Calibrations, kind: type[Calibratable], source: Path, seconds: float) -> ManyFits:
    with np.errstate(invalid="ignore", divide="ignore"):
        rms = {
            unit: np.sqrt(squares / found.num_quotes)
            for unit, squares in found.sums_of_squares.items()
        }
    facts = {
        "surfaces a second": f"{len(found.ids) / seconds:,.1f}",
        "devices": f"{jax.device_count()} ({jax.devices()[0].platform})",
        "processes": str(jax.process_count()),
    }
    return ManyFits(kind.label, source.name, found.parameters, rms, found.failed, facts)
