"""`jaxtape risk`: calibrate to a market, value a book with its Greeks, and write tables and a report."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.table import Table

from jaxtape.cli.dry_run import with_dry_run
from jaxtape.cli.main import PrecisionOption, configure, refuse
from jaxtape.object_store import Place
from pricing.ingestion.errors import UnreadableFile
from pricing.market import Market, MissingRate
from pricing.portfolio.book import Book
from pricing.portfolio.book_risk import RiskResult
from pricing.portfolio.book_risk import risk as value_book
from pricing.portfolio.scenarios import Revaluation, ScenarioSet, revalue
from pricing.portfolio.sweep.groups import BudgetTooSmall
from pricing.reporting import (
    positions_of,
    quote_risks,
    stress,
    write_positions,
    write_quote_risks,
    write_report,
)
from pricing.reporting.formats import by_size

from . import console
from .fit_report import as_json, write_json
from .valuing import (
    BUDGET,
    PATHS,
    BudgetOption,
    FixingsOption,
    ModelOption,
    OptionQuotesOption,
    PathsOption,
    SeedOption,
    mesh_of,
    methods_of,
    models_of,
    read,
)

_TOP = 5  # quotes in the summary
_OF_SCENARIOS = "scenarios.csv", "scenario_trades.csv"
_FILES = "npv.csv", "sensitivity.csv", "calibration.json", "report.html", *_OF_SCENARIOS


@with_dry_run()
def risk(
    trades: Annotated[Path, console.path_option(help="The book: CSV or JSON.")],
    market: Annotated[Path, console.path_option(help="The market: JSON.")],
    out: Annotated[Path, console.path_option(help="Folder for the tables and the report.")],
    scenarios: Annotated[
        Path | None,
        console.path_option(
            help="Scenarios, in JSON: every trade is revalued in each.", show_default="none"
        ),
    ] = None,
    fixings: FixingsOption = None,
    option_quotes: OptionQuotesOption = None,
    model: ModelOption = "heston",
    paths: PathsOption = PATHS,
    seed: SeedOption = 0,
    starts: console.StartsOption = 1,
    max_steps: console.MaxStepsOption = 100,
    precision: PrecisionOption = None,
    devices: Annotated[
        int, typer.Option(min=1, help="Number of devices that share the trades.")
    ] = 1,
    budget: BudgetOption = BUDGET,
    currency: Annotated[
        str | None,
        typer.Option(
            help="Currency of the totals, by the FX rates of the market.",
            show_default="the market's",
        ),
    ] = None,
    grid_errors: Annotated[
        bool,
        typer.Option(
            "--grid-errors",
            help="Estimate the errors of trades on grids, by comparison with grids of half the "
            "size.",
        ),
    ] = False,
) -> None:
    """Value a book and its risk to every quote, and write a report.

    Writes npv.csv, sensitivity.csv, calibration.json, report.html, run.json, with scenarios scenarios.csv and
    scenario_trades.csv, and, if anything was wrong, errors.txt.
    Exit status: 0; 1 if some trade or some input failed (the others have figures); 2 if nothing could be done.
    """
    configure(precision)
    output = console.Output(out, _FILES, inputs=(trades, market, scenarios, fixings, option_quotes))
    stages, mesh = console.Stages(), mesh_of(devices)
    with stages.stage("read") as lines:
        book, quotes = read(trades, market, fixings, option_quotes)
        moves = _scenarios(scenarios, quotes)
        lines.append(f"read {len(book.rows):,} trades and {len(quotes.flat_quotes()):,} quotes")
    fitting = {"num_starts": starts, "max_steps": max_steps, "key": jax.random.key(seed)}
    models = models_of(quotes, book, model, stages, file=str(market), **fitting)
    fit = models.fit
    random = {"key": jax.random.key(seed), "methods": methods_of(paths)}
    settings = {"mesh": mesh, "budget": budget, **random}
    with (
        ThreadPoolExecutor(1) as background,
        stages.progress("value the book", "valuing") as (lines, progress),
    ):
        fits = background.submit(models.surface_fits)
        try:
            errors_too: dict[str, Any] = {"grid_errors": grid_errors, "rounding_errors": True}
            errors_too["currency"] = currency
            result = value_book(
                book, models.market, fit, progress=progress, **errors_too, **settings
            )
        except BudgetTooSmall as error:
            refuse(f"--budget: {error}")
        except MissingRate as error:
            refuse(f"--currency: {error}")
        durations = ", ".join(f"{part} {length:.1f} s" for part, length in result.stats.items())
        lines.append(f"valued {result.counts.get('ok', 0):,} trades: {durations}")
        lines.extend(f"note: {note}" for note in result.notes)
    found = moves and _revalued(book, models.market, fit, moves, stages, settings)
    errors = _errors(result, book.checked(models.market), moves, found)
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        numbers = {name: as_json(quotes, name, each) for name, each in models.calibrations.items()}
        parts = {f"value the book: {part}": length for part, length in result.stats.items()}
        positions = positions_of(result, book, quotes)
        console.write_errors(folder, errors)
        write_positions(folder / "npv.csv", positions)
        write_quote_risks(folder / "sensitivity.csv", quote_risks(result, quotes))
        write_json(folder / "calibration.json", numbers)
        view = moves and found and stress.Stress.in_total(moves, found, positions, result, quotes)
        if view:
            of_groups, of_trades = (folder / name for name in _OF_SCENARIOS)
            stress.write_scenarios(of_groups, view)
            stress.write_scenario_trades(of_trades, view)
        seconds = {**stages.seconds, **parts}
        write_report(folder / "report.html", result, book, quotes, fits.result(), seconds, view)
        lines.append(f"wrote {out}")
    _summarize(result, quotes, output.folder)
    console.exit_if(errors)


def _scenarios(path: Path | None, market: Market) -> ScenarioSet | None:
    """Return the scenarios of a file that apply to the market; None without a file."""
    try:
        return None if path is None else ScenarioSet.read(path).checked(market)
    except UnreadableFile as error:
        refuse(str(error))


def _revalued(
    book: Book,
    market: Market,
    fit: Any,
    moves: ScenarioSet,
    stages: console.Stages,
    settings: Mapping[str, Any],
) -> Revaluation:
    with stages.progress("scenarios", "scenarios") as (lines, progress):
        found = revalue(book, market, fit, moves.scenarios, progress=progress, **settings)
        lines.append(f"valued them in {len(moves.scenarios):,} scenarios")
    return found


def _errors(
    result: RiskResult, book: Book, moves: ScenarioSet | None, found: Revaluation | None
) -> list[str]:
    """Return one line for each input error, each failed scenario and each other failed trade."""
    failures = found.failures if found else {}
    of_scenarios = [str(error) for error in moves.errors] if moves else []
    of_scenarios += [f"scenario {name!r}: {why}" for name, why in failures.items()]
    if found:
        lost = found.lost(np.array([trade.figures is not None for trade in result.trades], bool))
        of_scenarios += [f"scenario {name!r}: {why}" for name, why in lost.items()]
    return (
        [str(error) for error in result.errors]
        + of_scenarios
        + [
            f"{book.file}:{row.line}: trade {row.id!r}: {risk.status}"
            for row, risk in zip(book.rows, result.trades, strict=True)
            if risk.has_failed and not row.errors
        ]
    )


def _summarize(result: RiskResult, market: Market, folder: Place) -> None:
    valued = result.counts.get("ok", 0)
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    values = [("Value", name, part.value) for name, part in result.by_currency.items()]
    if result.is_converted:
        values.append(("Value in all", result.currency, result.value))
    for label, currency, value in values:
        has_value = valued or not result.trades
        text = f"{value:,.2f}" if has_value else "\N{EN DASH}"
        table.add_row(label, text, currency or "currency")
    table.add_row("Trades valued", f"{valued:,}", "")
    table.add_row("Trades failed", f"{len(result.failed):,}", "")
    for event, count in result.counts.items():
        if event not in ("ok", "failed"):
            table.add_row(f"Trades {event}", f"{count:,}", "")
    risks = sorted(quote_risks(result, market), key=lambda risk: by_size(risk.scaled))
    parts = (result.currency,) if result.is_converted else result.by_currency
    for currency in parts if valued else ():
        own = [risk for risk in risks if risk.currency == currency]
        for risk in own[:_TOP]:
            table.add_row(risk.quote_id, f"{risk.scaled:,.2f}", risk.unit)
    console.summarize(table, folder / "report.html")
