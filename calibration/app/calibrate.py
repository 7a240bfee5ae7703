"""`jaxtape calibrate`: fit a model to the vols of one underlying or of many, and report the quality of fit."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import typer
from rich.table import Table

from jaxtape.cli.dry_run import with_dry_run
from jaxtape.cli.main import PrecisionOption, configure, refuse
from jaxtape.object_store import Place, place_of
from pricing.formulas.stock import market_above_cash
from pricing.ingestion.errors import UnreadableFile, listed
from pricing.ingestion.field_types import closest
from pricing.market import Market
from pricing.models import G2, Bates, Calibratable, Heston, HullWhite, Sabr, Ssvi
from pricing.reporting.page import fit_section, write_fit_report

from ..calibration import Calibration
from ..market_models import calibrate_precisely, standard_start, too_few
from ..surface_fits import parameter_table, surface_fit
from . import console, fit_report
from .processes import joined, started
from .rounds_watch import RoundsWatch
from .several import calibrate_all, holds_many
from .valuing import OptionQuotesOption

Log = Literal["text", "json"]
Model = Literal["heston", "bates", "sabr", "ssvi", "hull-white", "g2"]
_KINDS: dict[Model, type[Calibratable]] = {
    "heston": Heston,
    "bates": Bates,
    "sabr": Sabr,
    "ssvi": Ssvi,
    "hull-white": HullWhite,
    "g2": G2,
}
"""The models that can be calibrated; the first with quotes of the underlying is its default."""


def _shard_of(text: str | None) -> tuple[int, int] | None:
    """Return the number of a shard and the number of shards, given as 0/4; None for None.

    Raises:
        BadParameter: If the text is not such a pair.
    """
    if text is None:
        return None
    index, _, count = text.partition("/")
    is_pair = index.isdecimal() and count.isdecimal() and len(text) < 12
    if not is_pair or int(index) >= int(count):
        raise typer.BadParameter(
            f"{text!r} is not a shard: give 0/4, 1/4, 2/4 or 3/4", param_hint="--shard"
        )
    return int(index), int(count)


@with_dry_run(processes=1, coordinator=None, cluster=False, resume=False, metrics_file=None)
def calibrate(
    market: Annotated[
        os.PathLike,  # a `Place`: typer takes no unions
        console.place_option(
            help="The market: JSON; or for many, a table of quotes (CSV, Parquet), or a folder of "
            "tables."
        ),
    ],
    out: Annotated[
        os.PathLike, console.place_option(help="Folder for the parameters and the report.")
    ],
    underlying: Annotated[
        str | None,
        typer.Option(help="Underlying in a market: an equity, or the curve of its swaption vols."),
    ] = None,
    model: Annotated[
        Model | None, typer.Option(help="The model.", show_default="heston; of a curve, hull-white")
    ] = None,
    option_quotes: OptionQuotesOption = None,
    starts: console.StartsOption = 1,
    max_steps: console.MaxStepsOption = 100,
    seed: Annotated[int, console.seed_option(help="Seed of the random starts.")] = 0,
    precision: PrecisionOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="With a table of quotes: resume an earlier run from what it kept in OUT.",
        ),
    ] = False,
    keep_every: Annotated[
        int,
        console.count_option(
            help="With a table of quotes: number of surfaces between checkpoints."
        ),
    ] = 1024,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With a table of quotes: number of devices per process that share the work.",
            show_default="all",
        ),
    ] = None,
    processes: Annotated[
        int,
        console.count_option(
            max=4096,
            help="With a table of quotes: number of processes to start, which share the work.",
        ),
    ] = 1,
    coordinator: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the first process, if processes are started elsewhere.",
            metavar="ADDRESS",
        ),
    ] = None,
    process_id: Annotated[
        int, typer.Option(min=0, help="Number of this process, from 0; with --coordinator.")
    ] = 0,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="One process of a TPU pod or a SLURM job, found by JAX."),
    ] = False,
    join_timeout: Annotated[
        int, console.count_option(help="Seconds in which the processes must find one another.")
    ] = 60,
    heartbeat: Annotated[
        int, console.count_option(help="Seconds after which a silent process counts as lost.")
    ] = 30,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="With a table of quotes: fit shard I, from 0, of N; the last one writes the "
            "whole.",
        ),
    ] = None,
    max_failed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With a table of quotes: number of surfaces that may fail.",
            show_default="any, with status 1",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, help="With a table of quotes: seconds after which no round starts."),
    ] = None,
    log: Annotated[
        Log | None,
        typer.Option(
            help="With a table of quotes: format of the line after each round.",
            show_default="text on a terminal, else json",
        ),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        console.path_option(
            help="With a table of quotes: a metrics file for Prometheus, such as jaxtape.prom."
        ),
    ] = None,
) -> None:
    """Fit a model to implied vols, of options or of swaptions, and report how well its parameters are known.

    Writes calibration.json (calibrations.parquet for many), report.html, run.json and, if anything was wrong,
    errors.txt. Exit status: 0; 1 if a fit did not converge, if quotes do not identify it, or if some input was
    bad; 2 if nothing could be done. For many also 3, if more failed than --max-failed, and 75, to run again
    with --resume.
    """
    share, source, folder = _shard_of(shard), place_of(market), place_of(out)
    with console.refusing():
        is_many = holds_many(source)
    if is_many == (underlying is not None):
        refuse(
            f"{source} is {'a table or a folder: leave out' if is_many else 'one market: give'} --underlying"
        )
    if is_many and option_quotes is not None:
        refuse("--option-quotes: belongs to one market; a table of quotes is --market itself")
    if processes > 1 and coordinator is None:
        started(processes)
    timeouts = {"join_timeout": join_timeout, "heartbeat": heartbeat}
    with joined(processes, coordinator, process_id, cluster=cluster, **timeouts):
        configure(precision)
        stages = console.Stages()
        settings = {"num_starts": starts, "max_steps": max_steps, "key": jax.random.key(seed)}
        if is_many:
            kind = _KINDS[model or "heston"]
            shared = {"resume": resume, "devices": devices, "keep_every": keep_every}
            as_json = log == "json" or (log is None and not stages.console.is_terminal)
            limits = {"max_failed": max_failed, "time_limit": time_limit}
            with console.refusing():
                watch = RoundsWatch(shard=share, as_json=as_json, metrics=metrics_file, **limits)
            settings |= {"shard": share, **shared}
            errors = calibrate_all(source, kind, folder, stages, watch, **settings)
        else:
            inputs = [source, option_quotes]
            output = console.Output(folder, ("calibration.json", "report.html"), inputs=inputs)
            sources = source, option_quotes
            errors = _calibrate_one(sources, underlying or "", model, output, stages, settings)
        console.exit_if(errors)


def _calibrate_one(
    sources: tuple[Place, Path | None],
    underlying: str,
    model: Model | None,
    output: console.Output,
    stages: console.Stages,
    settings: dict[str, Any],
) -> list[str]:
    market, option_quotes = sources
    with console.refusing(), stages.stage("read"):
        quotes, kind = _read(market, option_quotes, underlying, model)
        start = standard_start(quotes, underlying, kind)
        if error := too_few(*start, underlying, str(market)):
            refuse(str(error))
    with stages.progress("calibrate", f"calibrating {underlying}") as (lines, _):
        calibration = calibrate_precisely(*start, **settings)
        lines.append(fit_report.summary_of(calibration, underlying, start[1]))
    errors = [str(error) for error in quotes.errors]
    if calibration.has_failed or calibration.is_held:
        errors.append(f"{market}: {underlying!r}: {calibration.message}")
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        fits = [fit_section(surface_fit(quotes, underlying, calibration))]
        numbers = fit_report.as_json(quotes, underlying, calibration)
        console.write_errors(folder, errors)
        fit_report.write_json(folder / "calibration.json", numbers)
        write_fit_report(folder / "report.html", quotes, fits, stages.seconds)
        lines.append(f"wrote {output.folder}")
    _summarize(calibration, output.folder)
    return errors


def _read(
    market: Place, option_quotes: Path | None, underlying: str, model: Model | None
) -> tuple[Market, type[Calibratable]]:
    """Return the market, and the model to fit to the underlying, of which it must have quotes."""
    try:
        quotes = Market.read(market, option_quotes=option_quotes)
    except UnreadableFile as error:
        refuse(str(error))
    above = market_above_cash(quotes)
    quoted: dict[Model, Any] = {name: kind.quotes_in(above) for name, kind in _KINDS.items()}
    models: list[Model] = [name for name in quoted if underlying in quoted[name]]
    if not models:
        paths = [f"equities.{underlying}.", f"curves.{underlying}."]
        if underlying in quotes.curves:
            paths.append("swaption_vols.")
        for error in quotes.errors:
            if f"{error.field}.".startswith(tuple(paths)):
                refuse(str(error))
        names = dict.fromkeys(name for found in reversed(quoted.values()) for name in found)
        known, hint = listed(names), closest(underlying, names)
        refuse(f"{market}: there are no vols of {underlying!r}; {hint}the underlyings are {known}")
    chosen = models[0] if model is None else model
    if chosen not in models:
        refuse(
            f"--model {model}: {underlying} has vols for {listed(models)}; take one of these, or leave it out"
        )
    return quotes, _KINDS[chosen]


def _summarize(calibration: Calibration, folder: Place) -> None:
    table = Table("Parameter", box=None, pad_edge=False)
    for title in ("Value", "Std. error"):
        table.add_column(title, justify="right")
    for name, (value, error) in parameter_table(calibration).items():
        table.add_row(name, f"{value:.6f}", f"{error:.2g}")
    console.summarize(table, folder / "report.html")
