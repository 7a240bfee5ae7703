"""Calibrate the underlyings of a market, and return failures as data."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxtape.jax_settings.matmul_precision import chosen_precision
from pricing.formulas.stock import market_above_cash
from pricing.ingestion.errors import InputError, listed
from pricing.market import Market
from pricing.models import (
    AbstractModel,
    AbstractRateModel,
    Calibratable,
    Heston,
    HullWhite,
    Quotes,
    WithDividends,
)
from pricing.models.surface_models import black_scholes, garman_kohlhagen
from pricing.portfolio.book import Book
from pricing.progress import Progress
from pricing.reporting import SurfaceFit

from .calibration import Calibration, calibrate, least_rtol
from .market_fit import fit_again
from .objectives import objective_of
from .parameters import FreeParameters
from .results import RESULTS
from .surface_fits import surface_fit
from .unit_forwards import is_of_forwards, on_market_of, on_unit_forwards

ModelName = Literal["heston", "black-scholes"]
"""The models of equities. Rates are valued under Hull-White."""

_AT_ONCE = 2
"""The number of concurrent calibrations: a first run compiles the programs of two models at once."""

_DEFAULT_MODELS: tuple[type[Calibratable], ...] = (Heston, HullWhite)  # the first with quotes


@dataclass(frozen=True)
class MarketModels:
    """The models of a market, as returned by `calibrate_market`.

    Attributes:
        market: The market with only the equities of the book, less whatever could not be calibrated, which its
            `errors` list. Give it to `risk`, `explain` and `revalue`.
        calibrations: Underlying -> successful calibration.
        failed: Underlying -> the reason of a failed one.
        model: The model of equities.
        seconds: Underlying -> duration of its calibration.
    """

    market: Market
    calibrations: Mapping[str, Calibration]
    failed: Mapping[str, InputError] = field(default_factory=dict)
    model: ModelName = "heston"
    seconds: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def fit(self) -> Callable[[Market], dict[str, AbstractModel]]:
        """The function market -> {underlying: model}, differentiable through the fits.

        Each search starts at the end of its calibration. With the model "black-scholes", equities use their
        surfaces; currency pairs always do.
        """
        fits = {name: fit_again(found) for name, found in self.calibrations.items()}
        of_surfaces = black_scholes if self.model == "black-scholes" else garman_kohlhagen

        def fitted(market: Market) -> dict[str, AbstractModel]:
            read = of_surfaces(market)
            return {**read, **{name: again(market, name) for name, again in fits.items()}}

        return fitted

    def restrict(self, market: Market) -> Market:
        """Return another market, such as a later one, restricted to the equities and vols with models in `fit`.

        Args:
            market: The market, with the names of the calibrated market.
        """
        served = served_market(market, self.market.underlyings, self.failed)
        vols = None if self.market.swaption_vols is None else served.swaption_vols
        return replace(served, swaption_vols=vols)

    def surface_fits(self) -> list[SurfaceFit]:
        """Return the fit of each underlying, for `write_report`."""
        read = dict.fromkeys(self.market.equities) if self.model == "black-scholes" else {}
        fits = {**read, **self.calibrations}
        return [surface_fit(self.market, name, found) for name, found in fits.items()]


def calibrate_market(
    market: Market,
    book: Book | None = None,
    *,
    model: ModelName = "heston",
    num_starts: int = 1,
    max_steps: int = 100,
    key: PRNGKeyArray | None = None,
    file: str = "market.json",
    progress: Progress | None = None,
) -> MarketModels:
    """Calibrate the models that a book needs, and return failures as data.

    Heston is fitted to the surfaces of equities, Hull-White to the swaption vols of a curve; currency pairs
    have Black-Scholes on their vols. An underlying that cannot be calibrated raises no error: it is left out of
    the market with its error, so that its trades are set aside with that reason and the others are valued.

    Args:
        market: The quotes.
        book: The trades. Without a book, every quoted underlying is calibrated.
        model: The model of equities: "heston", or "black-scholes", which uses the surface without calibration.
        num_starts: The number of starting points of each calibration: the first at the money, the others
            random.
        max_steps: Maximum number of steps of each start.
        key: Key of the random starts; the default is seed 0.
        file: The name of the market in errors.
        progress: Called with the number of underlyings done, their total and the name of the next one.

    Returns:
        The market that the book needs, the calibrations, the failures, and the differentiable `fit`.

    Raises:
        ValueError: If there is no such model.

    Examples:
        >>> from calibration import calibrate_market
        >>> from pricing import Market
        >>> calibrate_market(Market.read("pricing/samples/dax_2002-07-05.json"), model="sabr")
        Traceback (most recent call last):
        ValueError: there is no model 'sabr' of equities: give one of heston, black-scholes
    """
    if model not in get_args(ModelName):
        known = listed(get_args(ModelName))
        raise ValueError(f"there is no model {model!r} of equities: give one of {known}")
    names = calibrated_names(market, book, model)
    settings = {"num_starts": num_starts, "max_steps": max_steps, "key": key}
    calibrations, failed, seconds = {}, {}, {}
    precision = chosen_precision()

    def found(name: str) -> "_Found":
        with jax.default_matmul_precision(precision):
            return _calibrated(market, name, file, settings)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = {
            name: pool.submit(found, name) for name in _one_of_each_kind_first(names, market)
        }
        for count, name in enumerate(names):
            if progress is not None:
                progress(count, len(names), name)
            calibration, error, seconds[name] = results[name].result()
            if calibration is not None:
                calibrations[name] = calibration
            if error is not None:
                failed[name] = error
    if progress is not None:
        progress(len(names), len(names), "")
    served = served_market(market, underlyings_of(market, book, in_rates=False), failed)
    return MarketModels(served, calibrations, failed, model, seconds)


def _one_of_each_kind_first(names: Sequence[str], market: Market) -> list[str]:
    """Return the names with the first equity and the first curve first: two equities share their programs."""
    first = {name in market.equities: name for name in reversed(names)}
    return sorted(names, key=lambda name: name not in first.values())


class _Found(NamedTuple):
    """A calibration, or the reason why there is none, and its duration in seconds."""

    calibration: Calibration | None
    error: InputError | None
    seconds: float


def _calibrated(market: Market, name: str, file: str, settings: Mapping[str, Any]) -> _Found:
    """Calibrate one underlying of a market."""
    begun, found = time.perf_counter(), None
    start, quotes = standard_start(market, name)
    error = too_few(start, quotes, name, file)
    if error is None:
        found = calibrate_precisely(start, quotes, **settings)
        error = _failure(market, name, found, file)
    return _Found(None if error else found, error, time.perf_counter() - begun)


def underlyings_of(market: Market, book: Book | None, *, in_rates: bool) -> tuple[str, ...]:
    """Return the curves with swaption vols, or the other underlyings, of a book, or all without a book.

    An equity in another currency needs the equity and the currency pair.
    """
    vols = market.swaption_vols
    curves = () if vols is None else (vols.curve,)
    quoted = curves if in_rates else market.underlyings
    if book is None:
        return quoted
    parts = map(market.parts_of, _names(book, in_rates))
    return tuple(name for name in dict.fromkeys(itertools.chain(*parts)) if name in quoted)


def _names(book: Book, in_rates: bool) -> dict[str, None]:
    """Return the names of the underlyings of a book, in order."""
    names = (trade.underlyings for trade in book.trades if trade.in_rates == in_rates)
    return dict.fromkeys(itertools.chain(*names))


def calibrated_names(market: Market, book: Book | None, model: ModelName) -> tuple[str, ...]:
    """Return the underlyings to calibrate: equities under Heston, a curve to its swaption vols."""
    names = market.underlyings if book is None else _names(book, False)
    equities = (name for name in names if name in market.equities and model == "heston")
    return tuple(dict.fromkeys((*equities, *underlyings_of(market, book, in_rates=True))))


def standard_start(
    market: Market, name: str, kind: type[Calibratable] | None = None
) -> tuple[Calibratable, Quotes]:
    """Return the model of one underlying at the start of its search, and the quotes to fit.

    For an equity with discrete dividends, they are those of the spot less their present value.
    """
    above = market_above_cash(market, name)
    kind = kind or next(usual for usual in _DEFAULT_MODELS if name in usual.quotes_in(above))
    return kind.starting_on(above, name), kind.quotes_in(above)[name]


def calibrate_precisely(start: Calibratable, quotes: Quotes, **settings) -> Calibration:
    """Calibrate as precisely as the dtype of the quotes allows, without raising.

    The search is that of `fit_again`, on forwards 1, whose programs all equities share. It takes no `progress`:
    a calibration that reports progress runs other programs than `fit`, which runs next.
    """
    posed, template = quotes, start
    if is_of_forwards(objective_of(quotes), start):
        posed, template = on_unit_forwards(quotes, start)
    rtol = least_rtol(quotes.vols.dtype)
    found = calibrate(posed, template, rtol=rtol, throw=False, **settings)
    problem = replace(found.solved_problem, quotes=quotes, template=start)
    return replace(found, model=on_market_of(found.model, start), problem=problem)


def served_market(
    market: Market, underlyings: Iterable[str], failed: Mapping[str, InputError]
) -> Market:
    """Return the market with some of its underlyings, less the failed ones, whose errors it lists."""
    in_use = frozenset(underlyings) - set(failed)
    has_failed = any(name not in market.equities for name in failed)
    pairs = {
        name: pair if name in in_use else replace(pair, vols=None)
        for name, pair in market.fx.items()
    }
    return replace(
        market,
        equities={name: equity for name, equity in market.equities.items() if name in in_use},
        fx=pairs,
        swaption_vols=None if has_failed else market.swaption_vols,
        errors=(*market.errors, *failed.values()),
    )


def only(market: Market, name: str) -> Market:
    """Return the market with only the quotes of one underlying, an equity or the curve of the swaption vols."""
    vols = market.swaption_vols
    own = vols if vols is not None and vols.curve == name else None
    return replace(served_market(market, [name], {}), swaption_vols=own)


def too_few(start: Calibratable, quotes: Quotes, name: str, file: str) -> InputError | None:
    """Return an error if there are fewer quotes than free parameters, or None."""
    count, free = int(jnp.sum(~jnp.isnan(quotes.vols))), len(FreeParameters.of(start).labels)
    if count >= free:
        return None
    why = f"the {free} free parameters of {start.label} need more quotes: there are {count}"
    return _error(start, name, str(count), why, f"give at least {free}", file)


def _failure(market: Market, name: str, calibration: Calibration, file: str) -> InputError | None:
    """Return the error of a calibration that cannot value a book, or None.

    A calibration held by a weak prior can value it: it has a minimum, and derivatives there.
    """
    if calibration.has_failed:
        why = calibration.message
    else:
        fitted: Any = fit_again(calibration)(market, name)
        fitted = fitted.base if isinstance(fitted, WithDividends) else fitted
        names = FreeParameters.of(fitted).names
        if all(jnp.isfinite(getattr(fitted, parameter)) for parameter in names):
            return None
        why = RESULTS[RESULTS.not_a_minimum]
    why = f"{calibration.label} could not be calibrated: {why}".rstrip(".")
    return _error(calibration.model, name, "", why, "check the quotes", file)


def _error(
    model: AbstractModel, name: str, value: str, why: str, remedy: str, file: str
) -> InputError:
    if isinstance(model, AbstractRateModel):
        where, other = "swaption_vols", "leave out the trades on the curve"
    else:
        where, other = f"equities.{name}.implied_vols", "use the model black-scholes"
    return InputError(file, None, None, where, value, why, f"{remedy}, or {other}")
