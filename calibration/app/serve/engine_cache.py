"""Cache risk engines of books while quotes move; books on the same underlyings share fitted models."""

import threading
from collections import defaultdict
from typing import NamedTuple

import jax

from pricing.ingestion.errors import InputError
from pricing.market import Market
from pricing.portfolio.book import Book
from pricing.portfolio.book_risk import RiskEngine, RiskResult

from ...calibration import Calibration
from ...market_models import (
    MarketModels,
    ModelName,
    calibrate_market,
    calibrated_names,
    only,
    served_market,
    underlyings_of,
)
from ..valuing import methods_of
from .session_state import StoredBook

_Names = tuple[tuple[str, ...], tuple[str, ...]]  # the equities, and the calibrated underlyings


class _BookEngine(NamedTuple):
    """The engine of one book, and the engine whose models it shares."""

    stored: StoredBook
    names: _Names
    shared: RiskEngine
    engine: RiskEngine


class EngineCache:
    """An engine for each book; books on the same underlyings share fitted models.

    Each fit starts from the calibration to the market's file, so that the same quotes always give the same
    figures. An underlying that cannot be calibrated to the file is calibrated to the moving quotes until that
    succeeds. Threads may value different books at once; they share the budget.

    Args:
        base: The market of the file.
        file: The name of that file.
        model: The model of equities.
        paths: The paths of Monte Carlo methods.
        seed: The seed of Monte Carlo methods and of random starts.
        budget: The bytes of memory of the tiles that run at once.
        starts: The starting points of each calibration.
        max_steps: The maximum number of steps of each start.
    """

    def __init__(
        self,
        base: Market,
        file: str,
        model: ModelName,
        *,
        paths: int,
        seed: int,
        budget: int,
        starts: int,
        max_steps: int,
    ):
        key = jax.random.key(seed)
        self._base = base
        self._model: ModelName = model
        self._fitting = {"num_starts": starts, "max_steps": max_steps, "key": key, "file": file}
        settings = {"methods": methods_of(paths), "key": key, "budget": budget}
        self._first = RiskEngine(MarketModels(base, {}, model=model).fit, **settings)
        self._calibrations: dict[str, Calibration] = {}
        self._failed: dict[str, tuple[Market, InputError]] = {}
        self._shared: dict[_Names, RiskEngine] = {}
        self._engines: dict[str, _BookEngine] = {}
        self._changing = threading.Lock()
        self._calibrating: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def risk(self, stored: StoredBook, market: Market) -> RiskResult:
        """Return the figures of a book in a market."""
        last = self._engines.get(stored.name)
        names = last.names if last and last.stored is stored else self._names(stored.book)
        shared = self._engine(names, market)
        engine = last.engine if last and last.shared is shared else shared.for_another_book()
        with self._changing:
            self._engines[stored.name] = _BookEngine(stored, names, shared, engine)
            self._drop_unused()
        return engine(stored.book, self._models(names).restrict(market))

    def forget(self, name: str) -> None:
        """Forget a book."""
        with self._changing:
            self._engines.pop(name, None)
            self._drop_unused()

    def _drop_unused(self) -> None:
        """Forget the models that no book uses any more."""
        used = {own.names for own in self._engines.values()}
        self._shared = {names: one for names, one in self._shared.items() if names in used}

    def _names(self, book: Book) -> _Names:
        served = book.checked(self._base)
        equities = tuple(sorted(underlyings_of(self._base, served, in_rates=False)))
        return equities, calibrated_names(self._base, served, self._model)

    def _engine(self, names: _Names, market: Market) -> RiskEngine:
        """Return the engine whose models the books on these names share; calibrate them if necessary."""
        _, fitted = names
        for name in fitted:
            with self._changing:
                calibrating = self._calibrating[name]
            with calibrating:
                if name not in self._calibrations and name not in self._failed:
                    self._calibrate(name, self._base)
                if name in self._failed and self._failed[name][0] is not market:
                    self._calibrate(name, market)
        with self._changing:
            if names not in self._shared:
                self._shared[names] = self._first.for_another_fit(self._models(names).fit)
            return self._shared[names]

    def _calibrate(self, name: str, market: Market) -> None:
        """Calibrate one underlying to a market, and drop the engines that lack it."""
        found = calibrate_market(only(market, name), model=self._model, **self._fitting)
        with self._changing:
            if name in found.failed:
                self._failed[name] = market, found.failed[name]
                return
            self._failed.pop(name, None)
            self._calibrations[name] = found.calibrations[name]
            self._shared = {n: engine for n, engine in self._shared.items() if name not in n[1]}

    def _models(self, names: _Names) -> MarketModels:
        equities, fitted = names
        good = {name: self._calibrations[name] for name in fitted if name in self._calibrations}
        failed = {name: self._failed[name][1] for name in fitted if name in self._failed}
        served = served_market(self._base, equities, failed)
        return MarketModels(served, good, failed, self._model)
