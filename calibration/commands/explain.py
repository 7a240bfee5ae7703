"""`jaxtape explain`: why did the value of a book change from one market to the next?"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.table import Table

from jaxtape.command_line import Precision, configure, refuse
from pricing.explain import Explanation
from pricing.explain import explain as explain_change
from pricing.market import Market
from pricing.reporting.positions import currency_of
from pricing.sweep.groups import BudgetTooSmall

from . import console
from .fit_report import write_json
from .fitting import PATHS, Model, fit_of, methods_of, only
from .valuing import (
    BUDGET,
    BudgetOption,
    ModelOption,
    PathsOption,
    SeedOption,
    calibrations_for,
    read,
)

_FILES = "explain.json", "explain.csv", "report.html"


def explain(
    trades: Annotated[Path, console.path_option(help="The book: CSV or JSON.")],
    before: Annotated[Path, console.path_option(help="The market before: JSON.")],
    after: Annotated[Path, console.path_option(help="The market after: JSON.")],
    out: Annotated[Path, console.path_option(help="Folder for the tables and the report.")],
    model: ModelOption = Model.heston,
    paths: PathsOption = PATHS,
    seed: SeedOption = 0,
    precision: Annotated[Precision, typer.Option(help="Of numbers.")] = Precision.double,
    budget: BudgetOption = BUDGET,
) -> None:
    """Explain the change of a book's value by time, spots, vols, rates, dividends and correlations.

    Writes explain.json, explain.csv, report.html, run.json and, if anything was wrong, errors.txt.
    Exit status: 0; 1 if some trade or some input failed (the others are there); 2 if nothing could be done.
    """
    configure(precision)
    output = console.Output(out, _FILES, inputs=(trades, before, after))
    stages = console.Stages()
    with stages.stage("read") as lines:
        book, then = read(trades, before)
        book, now = read(trades, after, book)
        if now.asof < then.asof:
            refuse(f"{after} is of {now.asof}, before {before} of {then.asof}: swap them")
        lines.append(
            f"read {len(book.rows):,} trades and two markets of {len(then.flat_quotes()):,} quotes"
        )
    served, calibrations = calibrations_for(book, then, model, str(before), stages)
    fit = fit_of(model, calibrations)
    settings = {"key": jax.random.key(seed), "methods": methods_of(paths), "budget": budget}
    with stages.progress("explain", "valuing") as (lines, progress):
        try:
            now_served = _served_as(served, now)
            found = explain_change(book, served, now_served, fit, progress=progress, **settings)
        except BudgetTooSmall as error:
            refuse(f"--budget: {error}")
        except ValueError as error:
            refuse(f"{before} and {after}: {error}")
        except RuntimeError as error:
            refuse(f"{after}: a model could not be fitted: {error}; check the quotes")
        lines.append(f"explained the change of {found.trades:,} trades")
    errors = [str(error) for error in dict.fromkeys((*served.errors, *now.errors, *book.errors))]
    checked = book.checked(served).checked(now_served)
    errors += [
        f"{book.file}:{row.line}: trade {row.id!r}: it has no value in one of the markets"
        for row in map(checked.rows.__getitem__, found.skipped_rows)
        if not row.errors
    ]
    output.print_errors(errors)
    left_out = set(found.skipped_rows)
    explained = [row.trade for place, row in enumerate(book.rows) if place not in left_out]
    currency = currency_of(explained, now)
    with stages.stage("write") as lines, output.written() as folder:
        from pricing.reporting import explanations  # matplotlib: not before it is needed
        from pricing.reporting.page import write_explanation

        console.write_errors(folder, errors)
        dates = {"asof_before": str(then.asof), "asof_after": str(now.asof)}
        write_json(folder / "explain.json", dates | explanations.as_json(found))
        explanations.write_explanation_parts(folder / "explain.csv", found)
        write_explanation(
            *(folder / "report.html", found, now, str(trades), currency, stages.seconds)
        )
        lines.append(f"wrote {out}")
    _summarize(found, currency, output.folder)
    console.exit_if(errors)


def _served_as(served: Market, now: Market) -> Market:
    """Return the market after, with the equities and the swaption vols that the one before is served with."""
    vols = None if served.swaption_vols is None else now.swaption_vols
    return replace(only(now, tuple(served.equities)), swaption_vols=vols, errors=())


def _summarize(found: Explanation, currency: str, folder: Path) -> None:
    """Print the change and its parts, in a few lines on stdout."""
    from pricing.reporting.explanations import PARTS

    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("Value before", f"{found.before:,.2f}", currency)
    table.add_row("Value after", f"{found.after:,.2f}", currency)
    error = f"± {found.error_bound:,.2g} at most" if found.error_bound else ""
    table.add_row("Change", f"{found.change:,.2f}", f"{currency} {error}".rstrip())
    for name, value in found.parts.items():
        table.add_row(f"  {PARTS[name]}", f"{value:,.2f}", "")
    table.add_row("Trades", f"{found.trades:,}", f"{len(found.skipped):,} in no number")
    console.summarize(table, folder / "report.html")
