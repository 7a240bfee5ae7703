"""Fit a model to every surface in a file or a folder, with checkpoints, on many devices and processes."""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtape.cli.escaping import escaped
from jaxtape.cli.main import refuse
from jaxtape.object_store import Place
from jaxtape.output_folder import mismatched_files
from pricing.models import Calibratable
from pricing.progress import Progress
from pricing.reporting import ManyFits
from pricing.reporting.page import write_many_fits_report

from ..many import (
    Calibrations,
    Job,
    bytes_by_file,
    calibrate_many,
    finish,
    forget,
    is_folder,
    merge_shards,
    read_jobs,
)
from . import console
from .rounds_watch import RoundsWatch

TABLE = "calibrations.parquet"
_FILES = TABLE, "report.html"
_TABLES = (".csv", ".parquet")


def holds_many(place: Place) -> bool:
    """Return True if a place is a folder or a table of quotes."""
    return is_folder(place) or place.suffix.lower() in _TABLES


def calibrate_all(
    source: Place,
    kind: type[Calibratable],
    out: Place,
    stages: console.Stages,
    watch: RoundsWatch,
    *,
    resume: bool,
    devices: int | None,
    keep_every: int,
    shard: tuple[int, int] | None,
    **settings: Any,
) -> list[str]:
    """Fit all surfaces, write the results in the first process, and return the failures beyond --max-failed."""
    folder = out if shard is None else out / _name_of(*shard)
    output = console.Output(folder, _FILES, inputs=[source])
    mesh, is_first = _mesh(devices), jax.process_index() == 0
    with console.refusing():
        jobs = watch.following(_jobs(source, kind), bytes_by_file(source))
        results = folder / TABLE
        if is_first and not resume:
            forget(folder, results)
    with stages.progress("calibrate", f"calibrating {source.name}") as (lines, progress):
        with console.refusing(), watch.ending_on_sigterm():
            found = calibrate_many(
                jobs,
                mesh=mesh,
                resume=folder,
                round_size=keep_every,
                shard=shard,
                progress=progress and _with_rate(progress),
                on_round=watch,
                **settings,
            )
        lines += [_summary(found, kind)] * is_first
    if not is_first:
        return []
    seconds = stages.seconds["calibrate"]
    facts = {
        "surfaces a second": f"{len(found.ids) / seconds:,.1f}",
        "devices": f"{jax.device_count()} ({jax.devices()[0].platform})",
        "processes": str(jax.process_count()),
    }
    errors = _write(found, kind, source, output, stages, facts)
    with console.refusing():
        finish(folder, results)
    if shard is not None:
        _write_whole(out, shard[1], kind, source, stages)
    return watch.not_allowed(found, errors)


def _write(
    found: Calibrations,
    kind: type[Calibratable],
    source: Place,
    output: console.Output,
    stages: console.Stages,
    facts: Mapping[str, str],
) -> list[str]:
    """Write the results and the report, print and return the failures."""
    unsure = {**found.failed, **found.not_identified}
    errors = [f"{source}: {name}: {why}" for name, why in unsure.items()]
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        console.write_errors(folder, errors)
        found.write_parquet(folder / TABLE)
        fits = _fits(found, kind, source, facts)
        write_many_fits_report(folder / "report.html", fits, stages.seconds)
        lines.append(f"wrote {output.folder}")
    return errors


def _write_whole(
    out: Place, count: int, kind: type[Calibratable], source: Place, stages: console.Stages
) -> None:
    """Write the results of all shards, if this one is the last."""
    folders = [out / _name_of(index, count) for index in range(count)]
    with console.refusing():
        done = [folder for folder in folders if _is_complete(folder)]
        if len(done) < count:
            lines = f"{len(done)} of {count} shards are complete; the last one writes {out / TABLE}"
            stages.console.print(escaped(lines), soft_wrap=True)
            return
        try:
            found = merge_shards([Calibrations.read_parquet(folder / TABLE) for folder in folders])
        except ValueError as error:
            message = f"{out}: the shards cannot be merged: {error}"
            stages.console.print(escaped(message), soft_wrap=True)
            return
    _write(found, kind, source, console.Output(out, _FILES), stages, {"shards": str(count)})


def _name_of(index: int, count: int) -> str:
    return f"shard-{index}-of-{count}"


def _is_complete(folder: Place) -> bool:
    """Return True if a folder holds the complete results of a run."""
    try:
        return not mismatched_files(folder)
    except (FileNotFoundError, ValueError):
        return False


def _jobs(source: Place, kind: type[Calibratable]) -> Iterator[Job]:
    try:
        jobs = read_jobs(source, kind)
        first = next(jobs, None)
    except TypeError as error:
        refuse(str(error))
    if first is None:
        refuse(f"{source}: has no surface; give one row for each quote")
    return itertools.chain([first], jobs)


def _mesh(devices: int | None) -> Mesh:
    """Return a mesh of `devices` devices from each process, or of all if None."""
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
    if found.num_bid_ask is not None and found.num_within_bid_ask is not None:
        is_known = np.isfinite(found.num_within_bid_ask)
        inside, all_two_sided = (
            np.sum(x, where=is_known) for x in (found.num_within_bid_ask, found.num_bid_ask)
        )
        summary += f", {inside:,.0f} of {all_two_sided:,.0f} quotes within bid and ask"
    return f"{summary}, {held:,} not identified" if held else summary


def _fits(
    found: Calibrations, kind: type[Calibratable], source: Place, facts: Mapping[str, str]
) -> ManyFits:
    with np.errstate(invalid="ignore", divide="ignore"):
        rms = {
            unit: np.sqrt(squares / found.num_quotes)
            for unit, squares in found.sums_of_squares.items()
        }
    return ManyFits(kind.label, source.name, found.parameters, rms, found.failed, facts)
