"""`jaxtape explain`: explain the change of a book's value from one market to the next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.table import Table

from jaxtape.cli.main import PrecisionOption, configure, refuse
from jaxtape.object_store import Place
from pricing.market import Market, MissingRate
from pricing.portfolio.aged_book import AgedBook
from pricing.portfolio.comparable_days import on_both_days
from pricing.portfolio.explained_total import explain_total
from pricing.portfolio.explanation import Explanation, explain_aged
from pricing.portfolio.sweep.groups import BudgetTooSmall
from pricing.reporting import explanations
from pricing.reporting.page import write_explanation

from . import console
from .fit_report import write_json
from .valuing import (
    BUDGET,
    PATHS,
    BudgetOption,
    FixingsOption,
    ModelOption,
    PathsOption,
    SeedOption,
    methods_of,
    models_of,
    read,
    read_market,
)

_FILES = "explain.json", "explain.csv", "report.html"
_NO_VALUE = "it has no value in one of the markets"


def explain(
    trades: Annotated[Path, console.path_option(help="The book: CSV or JSON.")],
    before: Annotated[Path, console.path_option(help="The market before: JSON.")],
    after: Annotated[Path, console.path_option(help="The market after: JSON.")],
    out: Annotated[Path, console.path_option(help="Folder for the tables and the report.")],
    fixings: FixingsOption = None,
    model: ModelOption = "heston",
    paths: PathsOption = PATHS,
    seed: SeedOption = 0,
    starts: console.StartsOption = 1,
    max_steps: console.MaxStepsOption = 100,
    precision: PrecisionOption = None,
    budget: BudgetOption = BUDGET,
    full_revaluation: Annotated[
        bool,
        typer.Option(
            "--full-revaluation",
            help="Revalue the trades after each group of quotes has moved: nothing is left "
            "unexplained.",
        ),
    ] = False,
) -> None:
    """Explain the change of a book's value by time, spots, vols, rates, dividends and correlations.

    Writes explain.json, explain.csv, report.html, run.json and, if anything was wrong, errors.txt. Exit status:
    0; 1 if some trade or some input failed (the others have figures); 2 if nothing could be done.
    """
    configure(precision)
    output = console.Output(out, _FILES, inputs=(trades, before, after, fixings))
    stages = console.Stages()
    with stages.stage("read") as lines:
        book, market_before = read(trades, before, fixings)
        market_after = read_market(after, fixings)
        if market_after.asof < market_before.asof:
            refuse(
                f"{after} is of {market_after.asof}, before {before} of {market_before.asof}: swap them"
            )
        lines.append(
            f"read {len(book.rows):,} trades and two markets of {len(market_before.flat_quotes()):,} quotes"
        )
    fitting = {"num_starts": starts, "max_steps": max_steps, "key": jax.random.key(seed)}
    models = models_of(market_before, book, model, stages, file=str(before), **fitting)
    served, now_served = models.market, models.restrict(market_after)
    settings: dict[str, Any] = {"key": jax.random.key(seed), "methods": methods_of(paths)}
    settings |= {"budget": budget}
    with stages.progress("explain", "valuing") as (lines, progress):
        try:
            settings |= {"full_revaluation": full_revaluation, "progress": progress}
            aged_book, now_served = on_both_days(book, served, now_served)
            found = explain_aged(aged_book, served, now_served, models.fit, **settings)
        except BudgetTooSmall as error:
            refuse(f"--budget: {error}")
        except ValueError as error:
            refuse(f"{before} and {after}: {error}")
        except RuntimeError as error:
            refuse(f"{after}: a model could not be fitted: {error}; check the quotes")
        count = sum(explanation.trades for explanation in found.values())
        lines.append(f"explained the change of {count:,} trades")
    total = _total(found, served, now_served)
    reasons = _reasons(aged_book, next(iter(found.values())).skipped_rows)
    errors = [
        str(error)
        for error in dict.fromkeys((*served.errors, *market_after.errors, *aged_book.errors))
    ]
    unnamed = (row for row in map(aged_book.after.rows.__getitem__, reasons) if not row.errors)
    errors += [f"{book.file}:{row.line}: trade {row.id!r}: {_NO_VALUE}" for row in unnamed]
    output.print_errors(errors)
    with stages.stage("write") as lines, output.written() as folder:
        console.write_errors(folder, errors)
        dates = {"asof_before": str(market_before.asof), "asof_after": str(market_after.asof)}
        write_json(folder / "explain.json", dates | explanations.as_json(found, total))
        explanations.write_explanation_parts(folder / "explain.csv", found, total)
        page = found, market_after, aged_book.before, reasons, stages.seconds, total
        write_explanation(folder / "report.html", *page)
        lines += [*_assumed(found, after), f"wrote {out}"]
    _summarize(found, total, output.folder)
    console.exit_if(errors)


def _total(
    found: Mapping[str, Explanation], before: Market, after: Market
) -> tuple[str, Explanation] | None:
    """Return the currency and the change of all trades; None if rates are missing or not needed."""
    currency = before.currency
    try:
        return None if [*found] == [currency] else (currency, explain_total(found, before, after))
    except MissingRate:
        return None


def _assumed(found: Mapping[str, Explanation], after: Path) -> list[str]:
    return [
        f"{payment.id}: {place}: no such fixing in {after}, and its own quote replaces it"
        for explanation in found.values()
        for payment in explanation.payments
        for place in payment.assumed
    ]


def _reasons(two: AgedBook, skipped: Sequence[int]) -> dict[int, str]:
    """Return the reasons of the rows without figures, by their indices."""
    errors = {place: two.after.rows[place].errors for place in skipped}
    return {place: "; ".join(map(str, own)) or _NO_VALUE for place, own in errors.items()}


def _summarize(
    found: Mapping[str, Explanation], total: tuple[str, Explanation] | None, folder: Place
) -> None:
    from pricing.reporting.explanations import PARTS, STEPS

    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)

    def add(label: str, value: float, unit: str) -> None:
        text = f"{value:,.2f}" if explanation.trades else "\N{EN DASH}"
        table.add_row(label, text, unit)

    shown = [*([] if total is None else [total]), *found.items()]
    for place, (name, explanation) in enumerate(shown):
        currency = name or "currency"
        if total is not None:
            table.add_row("All trades" if place == 0 else f"Trades in {currency}")
        add("Value before", explanation.before, currency)
        add("Value after", explanation.after, currency)
        if explanation.payments:
            add("Paid in between", explanation.cash, currency)
        error = f"± {explanation.error_bound:,.2g} at most" if explanation.error_bound else ""
        add("Change", explanation.change, f"{currency} {error}".rstrip())
        for part, value in explanation.parts.items():
            add(f"  {PARTS[part]}", value, currency)
        for step, value in explanation.steps.items():
            add(f"  step by step: {STEPS[step]}", value, currency)
    counts = [explanation.trades for explanation in found.values()]
    skipped = len(next(iter(found.values())).skipped)
    table.add_row("Trades", f"{sum(counts):,}", f"{skipped:,} in no number")
    console.summarize(table, folder / "report.html")
