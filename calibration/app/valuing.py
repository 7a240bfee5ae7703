"""Shared parts of the commands that value a book: options, the book, its market and its models."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from jax.sharding import Mesh

from jaxtape.cli.main import progress_bar, refuse
from pricing.ingestion.errors import UnreadableFile
from pricing.market import Fixings, Market
from pricing.methods import METHODS, AbstractMethod, MonteCarlo
from pricing.portfolio.book import Book

from ..market_models import MarketModels, ModelName, calibrate_market
from . import console
from .fit_report import summary_of

PATHS = next(m.num_paths for m in METHODS if isinstance(m, MonteCarlo))
"""Default number of paths of Monte Carlo methods."""

ModelOption = Annotated[
    ModelName,
    typer.Option(
        help="Model of equities: calibrated Heston, or Black-Scholes on the surface; rates use "
        "Hull-White."
    ),
]
PathsOption = Annotated[int, console.count_option(help="Number of paths of Monte Carlo methods.")]
SeedOption = Annotated[
    int, console.seed_option(help="Seed of Monte Carlo methods and of random starts.")
]
FixingsOption = Annotated[
    Path | None,
    console.path_option(
        help="Past fixings, in CSV: name, date, value.", show_default="those of the market"
    ),
]
OptionQuotesOption = Annotated[
    Path | None,
    console.path_option(
        help="Option quotes, in CSV or Parquet, one row per quote; they replace the market's.",
        show_default="those of the market",
    ),
]
BudgetOption = Annotated[
    int,
    console.size_option(
        help="Largest memory of the tiles of trades that run at once.", show_default="1GiB"
    ),
]
BUDGET = 2**30


def methods_of(paths: int) -> tuple[AbstractMethod, ...]:
    """Return every method, with `paths` paths for Monte Carlo methods."""
    return tuple(replace(m, num_paths=paths) if hasattr(m, "num_paths") else m for m in METHODS)


def mesh_of(devices: int) -> Mesh | None:
    """Return the mesh of devices that share the trades; None for one device."""
    found = jax.devices()
    if devices > len(found):
        refuse(console.too_many_devices(devices, found))
    return Mesh(np.array(found[:devices]), ("trades",)) if devices > 1 else None


def read(
    trades: Path, market: Path, fixings: Path | None = None, option_quotes: Path | None = None
) -> tuple[Book, Market]:
    """Return the book as of the market's day, and the market with its fixings and option quotes."""
    quotes = read_market(market, fixings, option_quotes)
    try:
        return Book.read(trades).checked(quotes), quotes
    except UnreadableFile as error:
        refuse(str(error))


def read_market(
    file: Path, fixings: Path | None = None, option_quotes: Path | None = None
) -> Market:
    """Return the market in a file, with fixings and option quotes from other files."""
    try:
        market = Market.read(file, option_quotes=option_quotes)
        return market if fixings is None else market.with_fixings(Fixings.read(fixings))
    except UnreadableFile as error:
        refuse(str(error))


def models_of(
    market: Market, book: Book, model: ModelName, stages: console.Stages, **settings: Any
) -> MarketModels:
    """Return the models of a book; each calibration is a stage.

    `settings` are other arguments of `calibrate_market`.
    """
    with progress_bar("calibrating", stages.console) as progress:
        models = calibrate_market(market, book, model=model, progress=progress, **settings)
    for name, seconds in models.seconds.items():
        stages.record(f"calibrate {name}", seconds, [_outcome(models, name)])
    return models


def _outcome(models: MarketModels, name: str) -> str:
    if name in models.failed:
        return models.failed[name].message
    found = models.calibrations[name]
    return summary_of(found, name, found.solved_problem.quotes)
