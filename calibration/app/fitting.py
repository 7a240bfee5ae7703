"""Calibrate the underlyings of a market for a command, and leave out those that cannot be calibrated."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

import jax.numpy as jnp

from pricing.ingestion.errors import InputError
from pricing.market import Market
from pricing.methods import METHODS, AbstractMethod, MonteCarlo
from pricing.models import AbstractModel, AbstractRateModel, Calibratable, Heston, HullWhite, Quotes
from pricing.models.surface_models import black_scholes
from pricing.portfolio.book import Book
from pricing.portfolio.sweep.fitted_models import Fit

from ..calibration import Calibration, calibrate
from ..market_fit import fit_again
from ..parameters import Parameters
from ..results import RESULTS
from .fit_report import has_failed, label_of, message_of

PATHS = next(m.num_paths for m in METHODS if isinstance(m, MonteCarlo))
"""Of Monte Carlo methods, where nobody asks for another number."""

_USUAL: tuple[type[Calibratable], ...] = (Heston, HullWhite)
"""What a book is valued under: the first that the market has quotes of the underlying for."""


class Model(StrEnum):
    """Models that value a book."""

    heston = "heston"
    black_scholes = "black-scholes"


def methods_of(paths: int) -> tuple[AbstractMethod, ...]:
    """Return every method, with `paths` paths for Monte Carlo methods."""
    return tuple(replace(m, num_paths=paths) if hasattr(m, "num_paths") else m for m in METHODS)


def underlyings_of(book: Book, *, in_rates: bool) -> tuple[str, ...]:
    """Return the curves, or the equities, that the book is on."""
    names = (trade.underlyings for trade in book.trades if trade.in_rates == in_rates)
    return tuple(dict.fromkeys(itertools.chain(*names)))


def calibrated_names(book: Book, market: Market, model: Model) -> tuple[str, ...]:
    """Return the underlyings of a book whose models are calibrated: equities to Heston, a curve to its vols."""
    equities = underlyings_of(book, in_rates=False) if model is Model.heston else ()
    quoted = [] if market.swaption_vols is None else [market.swaption_vols.curve]
    curves = (name for name in underlyings_of(book, in_rates=True) if name in quoted)
    return (*equities, *curves)


def standard_start(
    market: Market, name: str, kind: type[Calibratable] | None = None
) -> tuple[Calibratable, Quotes]:
    """Return the model of one underlying at the start of its search, and the quotes to fit."""
    kind = kind or next(usual for usual in _USUAL if name in usual.quotes_in(market))
    return kind.starting_on(market, name), kind.quotes_in(market)[name]


def calibrated(start: Calibratable, quotes: Quotes, **settings: Any) -> Calibration:
    """Return a calibration as far as the precision of the quotes goes; it does not raise.

    It takes no `progress`: a calibration that reports is made of other programs than `fit`, which comes next.
    """
    rtol = max(1e-10, 100.0 * float(jnp.finfo(quotes.vols.dtype).eps))
    return calibrate(quotes, start, rtol=rtol, throw=False, **settings)


def only(market: Market, names: tuple[str, ...]) -> Market:
    """Return the market with some of its equities."""
    kept = {name: equity for name, equity in market.equities.items() if name in names}
    return replace(market, equities=kept)


def too_few(start: Calibratable, quotes: Quotes, name: str, file: str) -> InputError | None:
    """Return an error if there are fewer quotes than free parameters, or None."""
    count, free = quotes.vols.size, len(Parameters.of(start).labels)
    if count >= free:
        return None
    why = f"the {free} free parameters of {start.label} need more quotes: there are {count}"
    return _error(start, name, str(count), why, f"give at least {free}", file)


def failure(market: Market, name: str, calibration: Calibration, file: str) -> InputError | None:
    """Return the error of a calibration that cannot value a book, or None.

    A calibration whose parameters a weak prior holds can: it has a minimum, and derivatives there.
    """
    if has_failed(calibration):
        why = message_of(calibration)
    else:
        fitted = fit_again(calibration)(market, name)
        names = Parameters.of(fitted).names
        if all(jnp.isfinite(getattr(fitted, parameter)) for parameter in names):
            return None
        why = RESULTS[RESULTS.not_a_minimum]
    why = f"{label_of(calibration)} could not be calibrated: {why}".rstrip(".")
    return _error(calibration.model, name, "", why, "check the quotes", file)


def _error(
    model: AbstractModel, name: str, value: str, why: str, remedy: str, file: str
) -> InputError:
    if isinstance(model, AbstractRateModel):
        field, other = "swaption_vols", "leave out the trades on the curve"
    else:
        field, other = f"equities.{name}.implied_vols", "take --model black-scholes"
    return InputError(file, None, None, field, value, why, f"{remedy}, or {other}")


def without(market: Market, name: str, error: InputError) -> Market:
    """Return the market without the quotes that no model could be calibrated to, and with the error."""
    if name in market.equities:
        rest = only(market, tuple(set(market.equities) - {name}))
    else:
        rest = replace(market, swaption_vols=None)
    return replace(rest, errors=(*market.errors, error))


def fit_each(calibrations: Mapping[str, Calibration]):
    """Return the fit market -> {underlying: model}; each search starts at the end of its calibration."""
    fits = {name: fit_again(found) for name, found in calibrations.items()}
    return lambda market: {name: again(market, name) for name, again in fits.items()}


def both(first: Fit, second: Fit) -> Fit:
    """Return the fit market -> the models of two fits; where both have one, the second's."""
    return lambda market: {**first(market), **second(market)}


def fit_of(model: Model, calibrations: Mapping[str, Calibration]) -> Fit:
    """Return the fit that values a book: each calibrated model, with Black-Scholes where it is asked for."""
    fitted = fit_each(calibrations)
    return both(black_scholes, fitted) if model is Model.black_scholes else fitted
