"""`jaxtape calibrate`: fit a model to the implied vols of one underlying, and report how well."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console
from rich.table import Table

from jaxtape.command_line import Precision, configure
from pricing.ingestion.errors import UnreadableFile
from pricing.ingestion.fields import closest
from pricing.market import Market

from ..calibrate import Calibration
from .console import SOME_FAILED, Output, Stages, fail
from .fitting import (
    as_json,
    calibrated,
    has_failed,
    message_of,
    parameter_table,
    summary_of,
    surface_fit,
    write_json,
)


class Model(StrEnum):
    """What may be calibrated."""

    heston = "heston"


def calibrate(
    market: Annotated[Path, typer.Option(help="The market: JSON.")],
    underlying: Annotated[str, typer.Option(help="An equity of the market.")],
    out: Annotated[Path, typer.Option(help="Folder for calibration.json and the report.")],
    model: Annotated[Model, typer.Option(help="The model.")] = Model.heston,
    starts: Annotated[
        int, typer.Option(min=1, help="Starting points: the standard one, then random ones.")
    ] = 1,
    max_steps: Annotated[int, typer.Option(min=1, help="Steps of a start at most.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random starts.")] = 0,
    precision: Annotated[Precision, typer.Option(help="Of numbers.")] = Precision.double,
) -> None:
    """Fit a model to a surface of implied vols, and say how well its parameters are known.

    Writes calibration.json, report.html and, if anything was wrong, errors.txt. Exit status: 0; 1 if the
    fit did not converge or some input was bad; 2 if nothing could be done.
    """
    del model  # one so far
    configure(precision)
    output, stages = Output(out), Stages()
    with stages.stage("read"):
        quotes = _read(market, underlying)
    with stages.stage("calibrate") as said:
        calibration = calibrated(
            *(quotes, underlying),
            starts=starts,
            max_steps=max_steps,
            key=jax.random.key(seed),
            progress=stages.is_live,
        )
        said.append(f"calibrated Heston to {underlying}: {summary_of(calibration)}")
    with stages.stage("write") as said:
        _write(output, quotes, underlying, calibration, stages)
        said.append(f"wrote {out}")
    errors = [str(error) for error in quotes.errors]
    if has_failed(calibration):
        errors.append(f"{market}: equity {underlying!r}: {message_of(calibration)}")
    output.write_errors(errors)
    _summarize(calibration, output.folder)
    if errors:
        raise typer.Exit(SOME_FAILED)


def _read(market: Path, underlying: str) -> Market:
    try:
        quotes = Market.read(market)
    except UnreadableFile as error:
        fail(str(error))
    if underlying not in quotes.equities:
        path = f"equities.{underlying}."
        for error in quotes.errors:
            if f"{error.field}.".startswith(path):
                fail(str(error))
        known = ", ".join(quotes.equities) or "none"
        hint = closest(underlying, quotes.equities)
        fail(f"{market}: there is no equity {underlying!r}; {hint}the equities are {known}")
    return quotes


def _write(
    output: Output, market: Market, name: str, calibration: Calibration, stages: Stages
) -> None:
    """The numbers and the report."""
    from pricing.report import write_fit_report  # matplotlib: not before it is needed

    fits, seconds = [surface_fit(market, name, calibration)], stages.seconds
    numbers = as_json(market, name, calibration)
    output.write("calibration.json", lambda path: write_json(path, numbers))
    output.write("report.html", lambda path: write_fit_report(path, market, fits, seconds))


def _summarize(calibration: Calibration, folder: Path) -> None:
    """The parameters, on stdout."""
    table = Table(box=None, pad_edge=False)
    table.add_column("Parameter")
    table.add_column("Value", justify="right")
    table.add_column("Std. error", justify="right")
    for name, (value, error) in parameter_table(calibration).items():
        table.add_row(name, f"{value:.6f}", f"{error:.2g}")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
