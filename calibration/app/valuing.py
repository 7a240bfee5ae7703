"""Shared parts of the commands that value a book: options, the book, its market and its calibrations."""

from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from jax.sharding import Mesh

from jaxtape.cli.main import refuse
from pricing.ingestion.errors import UnreadableFile
from pricing.market import Market
from pricing.portfolio.book import Book

from . import console
from .fit_report import summary_of
from .fitting import (
    Model,
    calibrated,
    calibrated_names,
    failure,
    only,
    standard_start,
    too_few,
    underlyings_of,
    without,
)

ModelOption = Annotated[
    Model,
    typer.Option(
        help="Model of equities: calibrated Heston, or Black-Scholes on the surface; rates have Hull-White."
    ),
]
PathsOption = Annotated[int, console.count_option(help="Number of paths of Monte Carlo methods.")]
SeedOption = Annotated[
    int, console.seed_option(help="Seed of Monte Carlo methods and of random starts.")
]
BudgetOption = Annotated[
    int,
    console.size_option(
        help="Largest memory of the tiles of trades that run at once.", show_default="1GiB"
    ),
]
BUDGET = 2**30


def mesh_of(devices: int) -> Mesh | None:
    """Return the devices that share the trades; None for one."""
    found = jax.devices()
    if devices > len(found):
        refuse(console.too_many_devices(devices, found))
    return Mesh(np.array(found[:devices]), ("trades",)) if devices > 1 else None


def read(trades: Path, market: Path) -> tuple[Book, Market]:
    """Return the book, with the trades that the market cannot value set aside, and the market."""
    quotes = read_market(market)
    try:
        return Book.read(trades).checked(quotes), quotes
    except UnreadableFile as error:
        refuse(str(error))


def read_market(file: Path) -> Market:
    """Return the market in a file."""
    try:
        return Market.read(file)
    except UnreadableFile as error:
        refuse(str(error))


def calibrations_for(
    book: Book,
    market: Market,
    model: Model,
    file: str,
    stages: console.Stages,
    **settings: Any,
):
    """Return the market that the book needs, less what did not fit; and the calibrations, by underlying.

    settings: arguments of `calibrate`.
    """
    served, calibrations = only(market, underlyings_of(book, in_rates=False)), {}
    starts = {name: standard_start(market, name) for name in calibrated_names(book, market, model)}
    for name, (start, quotes) in starts.items():
        if not (error := too_few(start, quotes, name, file)):
            stage = stages.progress(f"calibrate {name}", f"calibrating {name}")
            with stage as (lines, _):
                calibration = calibrated(start, quotes, **settings)
                lines.append(summary_of(calibration, name, quotes))
                error = failure(market, name, calibration, file)
                calibrations[name] = calibration
        if error:
            served = without(served, name, error)
            calibrations.pop(name, None)
    return served, calibrations
