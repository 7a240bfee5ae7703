"""The figures of books in a market whose quotes move: those of `jaxtape risk`, where something has changed."""

from typing import Any

import jax

from pricing.book_risk import RiskEngine, RiskResult
from pricing.ingestion.errors import InputError
from pricing.market import Market
from pricing.trades.book import Book

from ..calibration import Calibration
from ..commands.fitting import (
    Model,
    calibrated,
    calibrated_names,
    failure,
    fit_of,
    methods_of,
    only,
    standard_start,
    too_few,
    underlyings_of,
    without,
)
from .state import StoredBook

_Names = tuple[tuple[str, ...], tuple[str, ...]]  # the equities, and what is calibrated


class Pricers:
    """An engine for each book; books on the same underlyings share the models that are fitted.

    A fit starts where the calibration to the market's file has ended, so that the same quotes give the same
    figures, whichever came before. Not for two threads at once.

    Args:
        base: The market of the file.
        file: The name of that file.
        model: The model of equities.
        paths: The paths of Monte Carlo methods.
        seed: The seed of Monte Carlo methods.
        budget: The bytes of memory of the tiles that run at once.
    """

    def __init__(
        self, base: Market, file: str, model: Model, *, paths: int, seed: int, budget: int
    ):
        self._base, self._file, self._model = base, file, model
        self._settings: dict[str, Any] = {
            "methods": methods_of(paths),
            "key": jax.random.key(seed),
            "budget": budget,
        }
        self._calibrations: dict[str, Calibration | InputError] = {}
        self._shared: dict[_Names, RiskEngine] = {}
        self._engines: dict[str, tuple[StoredBook, _Names, RiskEngine]] = {}

    def risk(self, stored: StoredBook, market: Market) -> RiskResult:
        """Return the figures of a book in a market."""
        last = self._engines.get(stored.name)
        if last is None or last[0] is not stored:
            names = self._names(stored.book)
            if last is not None and last[1] == names:
                engine = last[2]
            else:
                engine = self._engine(names).for_another_book()
            last = self._engines[stored.name] = stored, names, engine
        _, names, engine = last
        return engine(stored.book, self._served(names, market))

    def forget(self, name: str) -> None:
        """Forget a book."""
        self._engines.pop(name, None)

    def _names(self, book: Book) -> _Names:
        served = book.checked(self._base)
        equities = tuple(sorted(underlyings_of(served, in_rates=False)))
        return equities, calibrated_names(served, self._base, self._model)

    def _engine(self, names: _Names) -> RiskEngine:
        """Return the engine whose models the books on these names share, calibrated if they were not."""
        if names not in self._shared:
            _, fitted = names
            for name in fitted:
                if name not in self._calibrations:
                    self._calibrations[name] = self._calibrated(name)
            found = {name: self._calibrations[name] for name in fitted}
            good = {n: one for n, one in found.items() if isinstance(one, Calibration)}
            fit = fit_of(self._model, good)
            self._shared[names] = RiskEngine(fit, **self._settings)
        return self._shared[names]

    def _calibrated(self, name: str) -> Calibration | InputError:
        start, quotes = standard_start(self._base, name)
        if error := too_few(start, quotes, name, self._file):
            return error
        calibration = calibrated(start, quotes)
        return failure(self._base, name, calibration, self._file) or calibration

    def _served(self, names: _Names, market: Market) -> Market:
        """Return what these names need of a market, less what could not be calibrated."""
        equities, fitted = names
        served = only(market, equities)
        for name in fitted:
            if isinstance(error := self._calibrations[name], InputError):
                served = without(served, name, error)
        return served
