"""The verb: value and Greeks of every trade of a book, and the book's derivative to every market quote.

Forward mode where inputs are few and trades many (per-trade Greeks), reverse mode where quotes are many
and the total is one number; the two meet at the models, and `fit` carries both to the market.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from .book import Book
from .greeks import means_and_errors, sensitivities
from .groups import Group, group_trades
from .ingestion.errors import InputError
from .market import Market
from .models import AbstractModel
from .price import mean_and_error

Models = dict[str, AbstractModel]
Fit = Callable[[Market], Models]

MEASURES = ("value", "std_error", "delta", "gamma", "vega", "theta", "rho")
NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"


@dataclass(frozen=True)
class TradeRisk:
    """One row of the book. `figures`: of one contract, raw derivatives by measure; None if it failed."""

    id: str
    type: str
    quantity: float
    figures: dict[str, float] | None
    method: str
    status: str

    @property
    def position(self) -> dict[str, float] | None:
        """The figures times the quantity; a standard error stays positive."""
        if self.figures is None:
            return None
        scaled = {name: self.quantity * figure for name, figure in self.figures.items()}
        return {**scaled, "std_error": abs(scaled["std_error"])}


@dataclass(frozen=True)
class RiskResult:
    """The trades in the order of the book, the total value, and its derivative per 1.00 of each quote.

    Per-trade delta, gamma and theta hold the model's parameters; vega and rho are the derivatives to a
    parallel shift of all implied vols and of all zero rates, through `fit`, so that over the book they add
    up to the sensitivities of those quotes. `errors`: what was wrong with the input. `stats`: seconds spent
    on the fit, the trades, the sweep over the book, and the pullback to quotes.
    """

    trades: tuple[TradeRisk, ...]
    value: float
    sensitivities: dict[str, float]
    models: Models
    errors: tuple[InputError, ...]
    stats: dict[str, Any] = field(default_factory=dict)

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
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RiskResult:
    """Value and Greeks of every trade, and d(book value) / d(every quote), in one sweep.

    fit: market -> {underlying: model}, any differentiable function of the market. mesh: devices that share
    the trades (axis "trades"). budget: bytes of memory that one tile of trades may take. key: for random
    methods (default seed 0). report: called with (trades done, trades in all).

    A trade that no method prices, or whose figures are not finite, is set aside with its reason in
    `status`; the others are still valued, and the total and its sensitivities are theirs.
    """
    clock = _Clock()
    key = jax.random.key(0) if key is None else key
    book = book.checked(market)
    models, push = jax.linearize(fit, market)
    directions = push(market_shift(market, vol=1.0)), push(market_shift(market, rate=1.0))
    clock.lap("fit")

    groups, unpriced = group_trades(book.trades, market, models, key, budget, mesh)
    done, total = 0, sum(len(group.trades) for group in groups)
    figures = []
    for group in groups:
        figures.append(_group_figures(group, models, directions, key))
        done += len(group.trades)
        report(done, total)
    clock.lap("trades")

    bars = jax.tree.map(jnp.zeros_like, models)
    for group, columns in zip(groups, figures, strict=True):
        bar = _group_gradient(group, models[group.underlying], _finite(columns), key)
        bars[group.underlying] = jax.tree.map(jnp.add, bars[group.underlying], bar)
    jax.block_until_ready(bars)
    clock.lap("sweep")
    (gradient,) = jax.linear_transpose(push, market)(bars)
    by_quote = market.by_quote(gradient)
    clock.lap("pullback")

    rows = _rows(book, groups, figures, unpriced)
    value = sum(row.position["value"] for row in rows if row.position)
    errors = (*market.errors, *book.errors)
    return RiskResult(rows, value, by_quote, models, errors, clock.seconds)


def market_shift(market: Market, vol: float = 0.0, rate: float = 0.0) -> Market:
    """The tangent of a market whose implied vols and zero rates all move in parallel, per 1.00."""
    still = jax.tree.map(jnp.zeros_like, market)
    vols = lambda m: [equity.surface.vols for equity in m.equities.values()]  # noqa: E731
    rates = lambda m: [curve.zero_rates for curve in m.curves.values()]  # noqa: E731
    quotes = lambda m: vols(m) + rates(m)  # noqa: E731
    moved = [leaf + vol for leaf in vols(still)] + [leaf + rate for leaf in rates(still)]
    return eqx.tree_at(quotes, still, moved)


def _group_figures(group: Group, models: Models, directions, key) -> dict[str, np.ndarray]:
    """Each measure of one contract of every trade of the group."""
    name = group.underlying
    vol, rate = (direction[name] for direction in directions)
    tiles = [
        (tile.count, _tile_figures(tile.products, models[name], group.method, key, vol, rate))
        for tile in group.tiles(np.ones(len(group.trades)))
    ]
    return {
        measure: np.concatenate([np.asarray(figures[measure])[:count] for count, figures in tiles])
        for measure in MEASURES
    }


@eqx.filter_jit
def _tile_figures(products, model, method, key, vol, rate) -> dict[str, jax.Array]:
    def of_one(product):
        means, errors = means_and_errors(sensitivities(product, model, method, key, vol, rate))
        figures = {**vars(means), "std_error": errors.value}
        missing = jnp.full_like(means.value, jnp.nan)
        return {name: missing if figures[name] is None else figures[name] for name in MEASURES}

    return jax.vmap(of_one)(products)


def _group_gradient(group: Group, model: AbstractModel, finite: np.ndarray, key) -> AbstractModel:
    """d(value of the group's finite trades) / d(each number of the model)."""
    weights = np.array([trade.quantity for trade in group.trades]) * finite
    bar = jax.tree.map(jnp.zeros_like, model)
    for tile in group.tiles(weights):
        step = _tile_gradient(model, tile.products, tile.weights, group.method, key)
        bar = jax.tree.map(jnp.add, bar, step)
    return bar


@eqx.filter_jit
@eqx.filter_grad
def _tile_gradient(model, products, weights, method, key):
    """The tile's value, for its gradient with respect to the model."""
    of_one = lambda product: mean_and_error(method.samples(product, model, key))[0]  # noqa: E731
    return jnp.sum(weights * jax.vmap(of_one)(products))


def _finite(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.all([np.isfinite(columns[measure]) for measure in MEASURES], axis=0)


def _rows(book: Book, groups, figures, unpriced: dict[str, str]) -> tuple[TradeRisk, ...]:
    """Every row of the book, in its order, with its figures or the reason why it has none."""
    found = {
        trade.id: (
            {measure: float(columns[measure][i]) for measure in MEASURES},
            type(group.method).__name__,
        )
        for group, columns in zip(groups, figures, strict=True)
        for i, trade in enumerate(group.trades)
    }

    def row_of(row) -> TradeRisk:
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in unpriced:
            return TradeRisk(*head, None, "", f"failed: {unpriced[row.id]}")
        measures, method = found[row.id]
        if not np.all(np.isfinite(list(measures.values()))):
            return TradeRisk(*head, None, method, NON_FINITE)
        return TradeRisk(*head, measures, method, "ok")

    return tuple(map(row_of, book.rows))


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
