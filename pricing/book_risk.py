"""The verb: value and Greeks of every trade of a book, and the book's derivative to every market quote.

The book's derivative to the numbers of its models, pulled back through `fit`, is the risk to every quote.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from .ingestion.errors import InputError
from .market import Market
from .methods import METHODS, AbstractMethod
from .models import AbstractModel
from .progress import Progress
from .sweep.book_sweep import sweep_book
from .sweep.fitted_models import Fit, fit_models
from .sweep.groups import group_trades
from .sweep.trade_risk import TradeRisk, trade_risks
from .trades.book import Book


@dataclass(frozen=True)
class RiskResult:
    """The trades in the order of the book, the total value, and its derivative per 1.00 of each quote.

    Per-trade delta, gamma and theta hold the model's parameters; vega and rho are the derivatives to a
    parallel shift of all implied vols and of all zero rates, through `fit`, so that over the book they add
    up to the sensitivities of those quotes. `models`: what `fit` made, by underlying. `errors`: what was wrong
    with the input. `stats`: seconds spent on the fit, the sweep over the trades, and the pullback to quotes.
    `gradient`: the derivative to every number of the market, its pillars' times included.
    """

    trades: tuple[TradeRisk, ...]
    value: float
    sensitivities: dict[str, float]
    models: dict[str, AbstractModel]
    errors: tuple[InputError, ...]
    stats: dict[str, Any] = field(default_factory=dict)
    gradient: Market | None = None

    @property
    def failed(self) -> tuple[TradeRisk, ...]:
        """The trades without figures."""
        return tuple(trade for trade in self.trades if trade.figures is None)


def risk(
    book: Book,
    market: Market,
    fit: Fit,
    *,
    mesh: Mesh | None = None,
    budget: int = 2**30,
    key: PRNGKeyArray | None = None,
    methods: Sequence[AbstractMethod] = METHODS,
    progress: Progress | None = None,
    greeks: bool = True,
) -> RiskResult:
    """Value and Greeks of every trade, and d(book value) / d(every quote), in one sweep.

    fit: market -> {underlying: model}, any differentiable function of the market; a basket is priced by the
    joined models of its assets. mesh: devices that share the trades (axis "trades") and the blocks of Monte
    Carlo paths (axis "paths"). budget: bytes of memory that the tiles of trades in work may take together. key:
    for random methods (default seed 0). methods: the candidates, the best first. progress: told of the trades
    done (`pricing.progress`). greeks: False asks for values and their standard errors alone; the sensitivities
    are then empty and the gradient is None.

    A trade that no method prices, or whose figures are not finite, is set aside with its reason in
    `status`; the others are still valued, and the total and its sensitivities are theirs.
    """
    times = [time.perf_counter()]
    key = jax.random.key(0) if key is None else key
    book = book.checked(market)
    fitted = fit_models(fit, market, (trade.underlyings for trade in book.trades), greeks)
    times.append(time.perf_counter())

    groups, unpriced = group_trades(
        book.trades, market, fitted.models, methods, key=key, budget=budget, mesh=mesh
    )
    found, cotangents = sweep_book(groups, fitted, key=key, budget=budget, progress=progress)
    times.append(time.perf_counter())

    gradient = fitted.pullback(cotangents)[0] if fitted.pullback else None
    sensitivities = {} if gradient is None else market.by_quote(gradient)
    times.append(time.perf_counter())

    trades = trade_risks(book, found, unpriced)
    seconds = zip(("fit", "sweep", "pullback"), np.diff(times).tolist(), strict=True)
    return RiskResult(
        trades=trades,
        value=sum((trade.position.value for trade in trades if trade.position), 0.0),
        sensitivities=sensitivities,
        models={names[0]: model for names, model in fitted.models.items() if len(names) == 1},
        errors=(*market.errors, *book.errors),
        stats=dict(seconds),
        gradient=gradient,
    )
