"""Valuations off the event loop: one at a time, each once, and no more in line than there is room for."""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax

from pricing.book_risk import RiskResult
from pricing.market import Market
from pricing.sweep.groups import BudgetTooSmall

from .documents import book_risk, encoded
from .limits import Limits
from .measures import Measures
from .problems import Problem, busy
from .state import QuotedMarket, StoredBook

_log = logging.getLogger("jaxtape.serve")

Price = Callable[[StoredBook, Market], RiskResult]
_Key = tuple[str, str, int]  # a book, its version, that of the quotes


@dataclass(frozen=True)
class Valued:
    """What was found of one version of a book at one version of the quotes, as bytes of documents."""

    key: _Key
    documents: dict[str, bytes]
    failed: int


class Valuations:
    """Values books in a thread of its own.

    Requests for one version of a book at one version of the quotes share one computation; the last figures of
    each book are kept.

    Args:
        price: What values a book; it is called by one thread.
        forget: What is called with the name of a book that is gone, by the same thread.
        limits: The bounds of the service.
        measures: What is told of it.
    """

    def __init__(
        self, price: Price, forget: Callable[[str], None], limits: Limits, measures: Measures
    ):
        self._price, self._forget, self._limits, self._measures = price, forget, limits, measures
        self._worker = ThreadPoolExecutor(1, "valuations")
        self._working: dict[_Key, asyncio.Future[Valued]] = {}
        self._found: dict[str, Valued] = {}
        self._gone: set[_Key] = set()
        self._is_computing = threading.Lock()

    @property
    def is_computing(self) -> bool:
        """Whether a valuation runs."""
        return self._is_computing.locked()

    async def of(self, stored: StoredBook, state: QuotedMarket) -> Valued:
        """Return the figures of a book.

        Raises:
            busy: There is no room in the line, or the figures take too long, and are there for a later request;
                it is a `Problem`, as is what keeps the models from being fitted.
        """
        key, outcomes = (stored.name, stored.version, state.version), self._measures.valuations
        found = self._found.get(stored.name)
        if found is not None and found.key == key:
            outcomes.labels("cached").inc()
            return found
        if (working := self._working.get(key)) is not None:
            outcomes.labels("joined").inc()
        elif len(self._working) >= self._limits.queue:
            outcomes.labels("refused").inc()
            raise busy(f"{len(self._working)} valuations are in line, and no more fit")
        else:
            working = self._begin(key, stored, state)
        try:
            return await asyncio.wait_for(asyncio.shield(working), self._limits.request_seconds)
        except TimeoutError:
            outcomes.labels("late").inc()
            seconds = self._limits.request_seconds
            raise busy(
                f"the figures are not there after {seconds:g} s; they are computed"
            ) from None

    def _begin(
        self, key: _Key, stored: StoredBook, state: QuotedMarket
    ) -> "asyncio.Future[Valued]":
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._worker, self._compute, key, stored, state)
        self._working[key] = working
        self._measures.queue.set(len(self._working))
        working.add_done_callback(functools.partial(self._end, key))
        return working

    def _compute(self, key: _Key, stored: StoredBook, state: QuotedMarket) -> Valued:
        """Value a book, in the thread.

        Raises:
            JaxRuntimeError: The machine failed at it.
            Problem: No models could be fitted, or the budget does not hold a trade.
        """
        start = time.perf_counter()
        with self._is_computing:
            try:
                result = self._price(stored, state.market)
            except jax.errors.JaxRuntimeError:
                raise  # of the machine, not of the quotes
            except BudgetTooSmall as error:
                remedy = "start the service with a larger --budget"
                raise Problem(500, "internal", str(error), remedy) from error
            except RuntimeError as error:
                detail = f"the quotes of version {state.version} have no models: {error}"
                raise Problem(
                    409, "no-models", detail, "check the quotes that were moved"
                ) from error
            risk = book_risk(stored, state, result)
            found = Valued(key, encoded(risk), risk.failed)
        self._measures.valuation_seconds.observe(time.perf_counter() - start)
        return found

    def _end(self, key: _Key, working: "asyncio.Future[Valued]") -> None:
        del self._working[key]
        self._measures.queue.set(len(self._working))
        if working.cancelled():
            return
        is_gone = key in self._gone
        self._gone.discard(key)
        if (error := working.exception()) is not None:
            self._measures.valuations.labels("failed").inc()
            _log.warning("a valuation failed", extra={"book": key[0], "error": repr(error)})
            return
        name, found = key[0], working.result()
        self._measures.valuations.labels("computed").inc()
        if is_gone:
            return
        self._measures.failed.labels(name).set(found.failed)
        self._found[name] = found

    async def warm(self, stored: StoredBook, state: QuotedMarket) -> None:
        """Compile what a book needs; what it finds is not kept."""
        loop = asyncio.get_running_loop()
        key = stored.name, stored.version, state.version
        await loop.run_in_executor(self._worker, self._compute, key, stored, state)

    def forget(self, name: str) -> None:
        """Forget the figures of a book, those that are computed too."""
        self._gone |= {key for key in self._working if key[0] == name}
        if self._found.pop(name, None) is not None:
            self._measures.failed.remove(name)
        self._worker.submit(self._forget, name)

    def close(self) -> None:
        """Take no more; what runs goes on."""
        self._worker.shutdown(wait=False, cancel_futures=True)
