"""The verb: value and Greeks of every trade of a book, and the book's derivative to every market quote.

One reverse sweep a trade gives its derivative to every number of its model. Contracted with a direction of
the market it is a Greek; summed over the book and pulled back through `fit` it is the risk to every quote.
"""

import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray

from .book import Book
from .greeks import with_gamma
from .groups import Tile, group_trades
from .ingestion.errors import InputError
from .market import Market
from .methods import METHODS, AbstractMethod
from .models import AbstractModel
from .price import mean_and_error

Models = dict[str, AbstractModel]
Fit = Callable[[Market], Models]

MEASURES = ("value", "std_error", "delta", "gamma", "vega", "theta", "rho")
NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"


@dataclass(frozen=True)
class TradeRisk:
    """One row of the book. `figures`: of one contract, raw derivatives by measure; None if it failed.

    A measure that the trade's method cannot give without bias is not among the figures.
    """

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
    on the fit, the sweep over the trades, and the pullback to quotes.
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
    methods: Sequence[AbstractMethod] = METHODS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RiskResult:
    """Value and Greeks of every trade, and d(book value) / d(every quote), in one sweep.

    fit: market -> {underlying: model}, any differentiable function of the market. mesh: devices that share
    the trades (axis "trades"). budget: bytes of memory that one tile of trades may take. key: for random
    methods (default seed 0). methods: the candidates, the best first. report: called with (trades done,
    trades in all).

    A trade that no method prices, or whose figures are not finite, is set aside with its reason in
    `status`; the others are still valued, and the total and its sensitivities are theirs.
    """
    clock = _Clock()
    key = jax.random.key(0) if key is None else key
    book = book.checked(market)
    models, push = jax.linearize(fit, market)
    vol, rate = push(market_shift(market, vol=1.0)), push(market_shift(market, rate=1.0))
    clock.lap("fit")

    groups, unpriced = group_trades(book.trades, market, models, key, budget, mesh, methods)
    done, total = 0, sum(len(group.trades) for group in groups)
    bars = jax.tree.map(jnp.zeros_like, models)
    columns = []
    sweeps = _submitted(groups, models, vol, rate, key)
    for group, futures in zip(groups, sweeps, strict=True):
        left, name = len(group.trades), group.underlying
        for future in futures:
            figures, bar = future.result()
            bars[name] = jax.tree.map(jnp.add, bars[name], bar)
            columns.append({m: np.asarray(f)[:left] for m, f in figures.items()})
            left -= group.tile_size
            done += len(columns[-1]["value"])
            report(done, total)
    clock.lap("sweep")
    (gradient,) = jax.linear_transpose(push, market)(bars)
    by_quote = market.by_quote(gradient)
    clock.lap("pullback")

    rows = _rows(book, groups, columns, unpriced)
    value = sum((row.position["value"] for row in rows if row.position), 0.0)
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


def _submitted(groups, models: Models, vol: Models, rate: Models, key) -> list[list[Future]]:
    """The sweeps of every group's tiles, the first tiles first, so that programs compile side by side."""
    sweeps: list[list[Future]] = [[] for _ in groups]
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    for tiles in itertools.zip_longest(*(group.tiles() for group in groups)):
        for group, tile, futures in zip(groups, tiles, sweeps, strict=True):
            if tile is not None:
                name = group.underlying
                along = {"vega": vol[name], "rho": rate[name]}
                args = tile, models[name], group.method, key, along
                futures.append(pool.submit(_tile_sweep, *args))
    pool.shutdown(wait=False)
    return sweeps


@eqx.filter_jit
def _tile_sweep(tile: Tile, model, method, key, along):
    """Each measure of one contract of every trade of the tile, and d(value of the tile) / d(model).

    along: tangents of the model, by the name of the derivative along them. A trade with a figure that is
    not finite does not enter the derivative.
    """

    one = jnp.ones_like(model.underlying)
    _, spot = jax.jvp(lambda shift: model.shifted(underlying=shift), (jnp.zeros_like(one),), (one,))
    along = {"delta": spot, **along}

    def of_one(product):
        def value(model, age):
            samples, gamma = with_gamma(product.aged(age), model, method, key)
            mean, error = mean_and_error(samples, method)
            return mean, (error, gamma)

        zero = jnp.zeros((), model.underlying.dtype)
        sweep = jax.value_and_grad(value, argnums=(0, 1), has_aux=True)
        (mean, (error, gamma)), (bar, theta) = sweep(model, zero)
        greeks = {name: _contracted(bar, tangent) for name, tangent in along.items()}
        figures = {"value": mean, "std_error": error, "theta": theta, **greeks}
        return (figures if gamma is None else {**figures, "gamma": gamma}), bar

    figures, bars = jax.vmap(of_one)(tile.products)
    finite = jnp.all(jnp.stack([jnp.isfinite(figure) for figure in figures.values()]), axis=0)

    def weighted_sum(bar):
        shape = (-1,) + (1,) * (bar.ndim - 1)
        kept = jnp.where(finite.reshape(shape), bar, 0.0)
        return jnp.tensordot(tile.weights.astype(bar.dtype), kept, 1)

    return figures, jax.tree.map(weighted_sum, bars)


def _contracted(bar: AbstractModel, tangent: AbstractModel) -> Array:
    """<bar, tangent>: the derivative along the tangent."""
    return functools.reduce(jnp.add, map(jnp.vdot, jax.tree.leaves(bar), jax.tree.leaves(tangent)))


def _rows(book: Book, groups, columns, unpriced: dict[str, str]) -> tuple[TradeRisk, ...]:
    """Every row of the book, in its order, with its figures or the reason why it has none."""
    trades = [(trade, group) for group in groups for trade in group.trades]
    values = (
        dict(zip(c, row, strict=True)) for c in columns for row in zip(*c.values(), strict=True)
    )
    found = {trade.id: (group, row) for (trade, group), row in zip(trades, values, strict=True)}

    def row_of(row) -> TradeRisk:
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in unpriced:
            return TradeRisk(*head, None, "", f"failed: {unpriced[row.id]}")
        group, figures = found[row.id]
        method = type(group.method).__name__
        if not np.all(np.isfinite(list(figures.values()))):
            return TradeRisk(*head, None, method, NON_FINITE)
        return TradeRisk(*head, {m: float(figure) for m, figure in figures.items()}, method, "ok")

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
