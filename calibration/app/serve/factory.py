"""Create a service from a market's file, a folder and limits."""

import hashlib
import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from pricing.ingestion.files import read_text
from pricing.market import Market

from .app import Service
from .auth import Auth
from .database import Store, Unusable
from .engine_cache import EngineCache
from .limits import ServiceLimits
from .metrics import Metrics
from .problems import HTTPProblem
from .session import Session
from .session_state import (
    NAME,
    Format,
    Precondition,
    StoredBook,
)
from .solutions import read_solutions
from .valuations import ValuationQueue

_log = logging.getLogger("jaxtape.serve")
_HEADER = "id,type,underlying,option,strike,expiry"
_WARM = "(warm)"  # not a valid name of a stored book


def service_of(
    store: Store,
    auth: Auth,
    limits: ServiceLimits,
    *,
    market: Path,
    trades: Path | None = None,
    warm: Path | None = None,
    solutions: Path | None = None,
    forget_quotes: bool = False,
    **settings: Any,
) -> Service:
    """Return a service with the books of the store, and the book `trades` if the store has none of that name.

    `warm` is the book whose programs are compiled first; without it, those of the stored books, or else of a
    European on each equity. `solutions` is a folder of exported solutions, and `settings` are arguments of
    `EngineCache`. `Unusable` is raised for an unusable store, book or solution.
    """
    session = Session(store, market, limits, forget_quotes=forget_quotes)
    for error in session.market.base.errors:
        _log.warning("left out of the market", extra={"error": str(error)})
    if trades is not None:
        _keep(session, trades)
    engines, metrics = EngineCache(session.market.base, session.file, **settings), Metrics()
    valuations = ValuationQueue(engines.risk, engines.forget, limits, metrics)
    if warm is not None:
        first = [StoredBook(_WARM, _format_of(warm), read_text(warm))]
    else:
        first = list(session.books.values()) or _europeans(session.market.base)
    digest = settings_digest(session.market.digest, settings)
    served = read_solutions(solutions)
    return Service(session, valuations, auth, limits, metrics, tuple(first), digest, served)


def settings_digest(market: str, settings: Mapping[str, Any]) -> str:
    """Return a digest that changes with the market's file, the settings, the precision and the library."""
    facts = market, sorted(settings.items()), str(jnp.result_type(float)), version("jaxtape")
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _format_of(file: Path) -> Format:
    return "json" if file.suffix.lower() == ".json" else "csv"


def _keep(session: Session, trades: Path) -> None:
    """Store the book of a file under the file's name, unless there is a book of that name.

    Raises:
        Unusable: If the book has errors.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", trades.stem.lower()).strip("-._")
    text = read_text(trades)
    if not NAME.fullmatch(name):
        raise Unusable(f"{trades}: its name is not a valid name of a book; rename the file")
    if name in session.books:
        _log.info(
            "a stored book is used in place of the file", extra={"book": name, "file": str(trades)}
        )
        return
    try:
        session.submit(name, _format_of(trades), text.encode(), Precondition(if_none_match="*"))
    except HTTPProblem as problem:
        raise Unusable(f"{trades}: {problem.detail}; {problem.remedy}") from None


def _europeans(market: Market) -> list[StoredBook]:
    """Return a book for each equity with one European option that expires a year after the market's day."""
    expiry = market.asof + timedelta(days=365)
    rows = (
        f'E,european,"{name}",call,{float(equity.spot)!r},{expiry}'
        for name, equity in market.equities.items()
    )
    return [StoredBook(_WARM, "csv", f"{_HEADER}\n{row}") for row in rows]
