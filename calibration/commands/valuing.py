"""What the commands that value a book share: the book, its market, its models and its methods."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from pricing.ingestion.errors import UnreadableFile
from pricing.market import Market
from pricing.methods import METHODS, AbstractMethod, MonteCarlo
from pricing.models.surface_models import black_scholes
from pricing.sweep.fitted_models import Fit
from pricing.trades.book import Book

from ..calibration import Calibration
from . import console
from .fit_report import summary_of
from .fitting import both, calibrated, failure, fit_each, only, standard_start, too_few, without

PATHS = next(m.num_paths for m in METHODS if isinstance(m, MonteCarlo))
"""The paths of Monte Carlo methods where nothing else is said."""


class Model(StrEnum):
    """What a book is valued under."""

    heston = "heston"
    black_scholes = "black-scholes"


def mesh_of(devices: int) -> Mesh | None:
    """Return the devices that share the trades; None for one."""
    found = jax.devices()
    if devices > len(found):
        console.fail(console.too_many_devices(devices, found))
    return Mesh(np.array(found[:devices]), ("trades",)) if devices > 1 else None


def methods_with(paths: int) -> tuple[AbstractMethod, ...]:
    """Return every method, those of Monte Carlo with that many paths."""
    return tuple(replace(m, num_paths=paths) if hasattr(m, "num_paths") else m for m in METHODS)


def read(trades: Path, market: Path, book: Book | None = None) -> tuple[Book, Market]:
    """Return the book, with what the market cannot serve set aside, and the market.

    book: the book, where it was read before.
    """
    try:
        quotes = Market.read(market)
        return (book or Book.read(trades)).checked(quotes), quotes
    except UnreadableFile as error:
        console.fail(str(error))


def _underlyings(book: Book, *, in_rates: bool) -> tuple[str, ...]:
    """Return the curves, or the equities, that the book is on."""
    names = (trade.underlyings for trade in book.trades if trade.in_rates == in_rates)
    return tuple(dict.fromkeys(itertools.chain(*names)))


def calibrations_for(book: Book, market: Market, model: Model, file: str, stages: console.Stages):
    """Return the market that the book needs, less what did not fit; and the calibrations, by underlying."""
    equities = _underlyings(book, in_rates=False)
    quoted = [] if market.swaption_vols is None else [market.swaption_vols.curve]
    curves = [name for name in _underlyings(book, in_rates=True) if name in quoted]
    served, calibrations = only(market, equities), {}
    names = (*(equities if model is Model.heston else ()), *curves)
    starts = {name: standard_start(market, name) for name in names}
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


def fit_of(model: Model, calibrations: Mapping[str, Calibration]) -> Fit:
    """Return what a book is valued under: each calibrated model, and the surfaces that are read."""
    fitted = fit_each(calibrations)
    return both(black_scholes, fitted) if model is Model.black_scholes else fitted
