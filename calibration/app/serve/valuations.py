"""A bounded queue of valuations in threads: each book is valued once per state, one state at a time."""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import jax

from pricing.market import Market
from pricing.portfolio.book_risk import RiskResult
from pricing.portfolio.sweep.groups import BudgetTooSmall

from .documents import book_risk, encoded
from .limits import ServiceLimits
from .metrics import Metrics
from .problems import HTTPProblem, busy
from .session_state import QuotedMarket, StoredBook

_log = logging.getLogger("jaxtape.serve")

Result = TypeVar("Result")
Price = Callable[[StoredBook, Market], RiskResult]
_Key = tuple[str, str, int]  # the book's name, its version, the version of the quotes


@dataclass(frozen=True)
class Valued:
    """Figures of one version of a book at one version of the quotes, as bytes of documents."""

    key: _Key
    documents: dict[str, bytes]
    failed: int


class _QueueEntry:
    """A place in the queue: until it starts, it is for the newest requested state of its book."""

    def __init__(self, stored: StoredBook, state: QuotedMarket):
        self.name, self.is_gone = stored.name, False
        self._asked, self._has_begun, self._lock = (stored, state), False, threading.Lock()

    def takes(self, stored: StoredBook, state: QuotedMarket) -> bool:
        """Return True if the figures will be those of this state."""
        with self._lock:
            if not self._has_begun:
                self._asked = stored, state
            return _key(*self._asked) == _key(stored, state)

    def begin(self) -> tuple[StoredBook, QuotedMarket]:
        """Return the state to value, which later requests cannot change."""
        with self._lock:
            self._has_begun = True
            return self._asked


class ValuationQueue:
    """Value books in threads, each book in one thread at a time: a slow book does not block the others.

    Each book has at most one running and one waiting valuation. The waiting one takes the newest requested
    state, and all requests that wait for it get its figures, so that moving quotes do not build up a queue. The
    last figures of each book are kept.

    Args:
        price: Function that values a book; called in threads, never twice at once for a book.
        forget: Function called in the same way with the name of a deleted book.
        limits: The limits of the service.
        metrics: Prometheus metrics of the service.
    """

    def __init__(
        self, price: Price, forget: Callable[[str], None], limits: ServiceLimits, metrics: Metrics
    ):
        self._price, self._forget, self._limits, self._metrics = price, forget, limits, metrics
        self._workers = ThreadPoolExecutor(limits.workers, "valuations")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._forgetting: set[asyncio.Task[None]] = set()
        self._working: dict[_QueueEntry, asyncio.Future[Valued]] = {}
        self._found: dict[str, Valued] = {}
        self._computing: set[_QueueEntry] = set()

    @property
    def is_computing(self) -> bool:
        """Whether a valuation is running."""
        return bool(self._computing)

    async def of(self, stored: StoredBook, state: QuotedMarket) -> Valued:
        """Return the figures of a book, in this state or a newer one.

        Raises:
            busy: If the queue is full, or the figures take too long, and will be ready for a later request; an
                `HTTPProblem`, as is an error in fitting the models.
        """
        key, outcomes = _key(stored, state), self._metrics.valuations
        found = self._found.get(stored.name)
        if found is not None and found.key == key:
            outcomes.labels("cached").inc()
            return found
        if (working := self._joined(stored, state)) is not None:
            outcomes.labels("joined").inc()
        elif len(self._working) >= self._limits.queue:
            outcomes.labels("refused").inc()
            raise busy(f"{len(self._working)} valuations are queued, and no more are admitted")
        else:
            working = self._begin(_QueueEntry(stored, state))
        try:
            return await asyncio.wait_for(asyncio.shield(working), self._limits.request_seconds)
        except TimeoutError:
            outcomes.labels("late").inc()
            seconds = self._limits.request_seconds
            raise busy(
                f"the figures are not ready after {seconds:g} s, and are still being computed"
            ) from None

    def _joined(self, stored: StoredBook, state: QuotedMarket) -> "asyncio.Future[Valued] | None":
        """Return the running or waiting valuation of a state, if there is one."""
        for place, working in self._working.items():
            if place.name == stored.name and not place.is_gone and place.takes(stored, state):
                return working
        return None

    async def _in_turn(self, name: str, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do work for a book in a thread, after all earlier work for the book has ended."""
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._workers, work, *arguments)

    def _begin(self, place: _QueueEntry) -> "asyncio.Future[Valued]":
        working = asyncio.ensure_future(self._in_turn(place.name, self._compute, place))
        self._working[place] = working
        self._metrics.queue.set(len(self._working))
        working.add_done_callback(functools.partial(self._end, place))
        return working

    def _compute(self, place: _QueueEntry) -> Valued:
        self._computing.add(place)
        try:
            return self._computed(*place.begin())
        finally:
            self._computing.discard(place)

    def _computed(self, stored: StoredBook, state: QuotedMarket) -> Valued:
        """Return the figures of a book in a state.

        Raises:
            JaxRuntimeError: If the machine fails.
            HTTPProblem: If no models could be fitted, or the budget does not hold a trade.
        """
        start = time.perf_counter()
        try:
            result = self._price(stored, state.market)
        except jax.errors.JaxRuntimeError:
            raise  # the machine failed, not the quotes
        except BudgetTooSmall as error:
            remedy = "start the service with a larger --budget"
            raise HTTPProblem(500, "internal", str(error), remedy) from error
        except RuntimeError as error:
            detail = f"the quotes of version {state.version} have no models: {error}"
            raise HTTPProblem(
                409, "no-models", detail, "check the quotes that were moved"
            ) from error
        risk = book_risk(stored, state, result)
        found = Valued(_key(stored, state), encoded(risk), risk.failed)
        self._metrics.valuation_seconds.observe(time.perf_counter() - start)
        return found

    def _end(self, place: _QueueEntry, working: "asyncio.Future[Valued]") -> None:
        del self._working[place]
        self._metrics.queue.set(len(self._working))
        if working.cancelled():
            return
        if (error := working.exception()) is not None:
            self._metrics.valuations.labels("failed").inc()
            _log.warning("a valuation failed", extra={"book": place.name, "error": repr(error)})
            return
        name, found = place.name, working.result()
        self._metrics.valuations.labels("computed").inc()
        if place.is_gone:
            return
        self._metrics.failed.labels(name).set(found.failed)
        self._found[name] = found

    async def warm(self, stored: StoredBook, state: QuotedMarket) -> None:
        """Compile the programs of a book; its figures are not kept."""
        await self._in_turn(stored.name, self._compute, _QueueEntry(stored, state))

    def forget(self, name: str) -> None:
        """Forget the figures of a book, including those being computed."""
        for place in self._working:
            place.is_gone |= place.name == name
        if self._found.pop(name, None) is not None:
            self._metrics.failed.remove(name)
        forgetting = asyncio.ensure_future(self._in_turn(name, self._forget, name))
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)

    def close(self) -> None:
        """Take no more requests; running valuations finish."""
        waiting = (task for place, task in self._working.items() if place not in self._computing)
        for task in (*waiting, *self._forgetting):
            task.cancel()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _key(stored: StoredBook, state: QuotedMarket) -> _Key:
    return stored.name, stored.version, state.version
