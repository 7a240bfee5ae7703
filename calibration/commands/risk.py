"""`jaxtape risk`: calibrate to a market, value a book with its Greeks, write tables and a report."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from jax.sharding import Mesh
from rich.table import Table

from jaxtape.command_line import Precision, configure
from pricing.book_risk import RiskResult
from pricing.book_risk import risk as value_book
from pricing.ingestion.errors import UnreadableFile
from pricing.market import Market
from pricing.models.surface_models import black_scholes
from pricing.reporting import positions_of, quote_risks, write_positions, write_quote_risks
from pricing.sweep.groups import BudgetTooSmall
from pricing.trades.book import Book

from . import console
from .fit_report import as_json, fit_sections, summary_of, write_json
from .fitting import (
    PATHS,
    Model,
    both,
    calibrated,
    calibrated_names,
    failure,
    fit_each,
    methods_of,
    only,
    standard_start,
    too_few,
    underlyings_of,
    without,
)

_TOP = 5  # quotes in the summary


def risk(
    trades: Annotated[Path, console.path_option(help="The book: CSV or JSON.")],
    market: Annotated[Path, console.path_option(help="The market: JSON.")],
    out: Annotated[Path, console.path_option(help="Folder for the tables and the report.")],
    model: Annotated[
        Model,
        typer.Option(
            help="Of equities: Heston is calibrated; Black-Scholes reads the surface. Of rates: Hull-White."
        ),
    ] = Model.heston,
    paths: Annotated[int, console.count_option(help="Paths of Monte Carlo methods.")] = PATHS,
    seed: Annotated[int, console.seed_option(help="Seed of Monte Carlo methods.")] = 0,
    precision: Annotated[Precision, typer.Option(help="Of numbers.")] = Precision.double,
    devices: Annotated[int, typer.Option(min=1, help="Devices that share the trades.")] = 1,
    budget: Annotated[
        int,
        console.size_option(
            help="Memory of the tiles of trades that run at once.", show_default="1GiB"
        ),
    ] = 2**30,
) -> None:
    """Value a book and its risk to every quote, and write a report.

    Writes npv.csv, sensitivity.csv, calibration.json, report.html, run.json and, if anything was wrong,
    errors.txt.
    Exit status: 0; 1 if some trade or some input failed (the others are there); 2 if nothing could be done.
    """
    configure(precision)
    output, stages, mesh = console.Output(out), console.Stages(), _mesh(devices)
    with stages.stage("read") as lines:
        book, quotes = _read(trades, market)
        lines.append(f"read {len(book.rows):,} trades and {len(quotes.flat_quotes()):,} quotes")
    served, calibrations = _calibrate(book, quotes, model, str(market), stages)
    fit = fit_each(calibrations)
    fit = both(black_scholes, fit) if model is Model.black_scholes else fit
    read = {} if model is Model.heston else dict.fromkeys(served.equities)
    with (
        ThreadPoolExecutor(1) as background,
        stages.progress("value the book", "valuing") as (lines, progress),
    ):
        fits = background.submit(fit_sections, quotes, {**read, **calibrations})
        random = {"key": jax.random.key(seed), "methods": methods_of(paths)}
        settings = {"mesh": mesh, "budget": budget, "progress": progress, **random}
        try:
            result = value_book(book, served, fit, **settings)
        except BudgetTooSmall as error:
            console.fail(f"--budget: {error}")
        said = ", ".join(f"{part} {length:.1f} s" for part, length in result.stats.items())
        lines.append(f"valued {len(result.trades) - len(result.failed):,} trades: {said}")
    errors = _errors(result, book)
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        from pricing.reporting.page import write_report  # matplotlib: not before it is needed

        numbers = {name: as_json(quotes, name, found) for name, found in calibrations.items()}
        parts = {f"value the book: {part}": length for part, length in result.stats.items()}
        console.write_errors(folder, errors)
        write_positions(folder / "npv.csv", positions_of(result, book, quotes))
        write_quote_risks(folder / "sensitivity.csv", quote_risks(result.sensitivities, quotes))
        write_json(folder / "calibration.json", numbers)
        seconds = {**stages.seconds, **parts}
        write_report(folder / "report.html", result, book, quotes, fits.result(), seconds)
        lines.append(f"wrote {out}")
    _summarize(result, quotes, output.folder)
    console.exit_if(errors)


def _mesh(devices: int) -> Mesh | None:
    """Return the devices that share the trades; None for one."""
    found = jax.devices()
    if devices > len(found):
        console.fail(console.too_many_devices(devices, found))
    return Mesh(np.array(found[:devices]), ("trades",)) if devices > 1 else None


def _read(trades: Path, market: Path) -> tuple[Book, Market]:
    """Return the book, with what the market cannot serve set aside, and the market."""
    try:
        quotes = Market.read(market)
        return Book.read(trades).checked(quotes), quotes
    except UnreadableFile as error:
        console.fail(str(error))


def _calibrate(book: Book, market: Market, model: Model, file: str, stages: console.Stages):
    """Return the market that the book needs, less what did not fit; and the calibrations, by underlying."""
    served, calibrations = only(market, underlyings_of(book, in_rates=False)), {}
    starts = {name: standard_start(market, name) for name in calibrated_names(book, market, model)}
    for name, (start, quotes) in starts.items():
        if not (error := too_few(start, quotes, name, file)):
            stage = stages.progress(f"calibrate {name}", f"calibrating {name}")
            with stage as (lines, _):
                calibration = calibrated(start, quotes)
                lines.append(summary_of(calibration, name))
                error = failure(market, name, calibration, file)
                calibrations[name] = calibration
        if error:
            served = without(served, name, error)
            calibrations.pop(name, None)
    return served, calibrations


def _errors(result: RiskResult, book: Book) -> list[str]:
    """Return one line for each mistake of the input, then for each other trade that failed."""
    reported = {error.line for error in result.errors if error.file == book.file}
    return [str(error) for error in result.errors] + [
        f"{book.file}:{row.line}: trade {row.id!r}: {risk.status}"
        for row, risk in zip(book.rows, result.trades, strict=True)
        if risk.figures is None and row.line not in reported
    ]


def _summarize(result: RiskResult, market: Market, folder: Path) -> None:
    """Print the outcome, in a few lines on stdout."""
    valued = len(result.trades) - len(result.failed)
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("Value", f"{result.value:,.2f}", market.currency)
    table.add_row("Trades valued", f"{valued:,}", "")
    table.add_row("Trades failed", f"{len(result.failed):,}", "")
    risks = quote_risks(result.sensitivities, market)
    for risk in sorted(risks, key=lambda risk: -abs(risk.scaled))[:_TOP]:
        table.add_row(risk.quote_id, f"{risk.scaled:,.2f}", risk.unit)
    console.summarize(table, folder / "report.html")
