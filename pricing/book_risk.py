"""The verb: value and Greeks of every trade of a book, and the book's derivative to every market quote.

The book's derivative to the numbers of its models, pulled back through `fit`, is the risk to every quote.
"""

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
from jaxtyping import PRNGKeyArray

from .ingestion.errors import InputError
from .market import Market
from .methods import METHODS, AbstractMethod
from .models import AbstractModel
from .models.baskets import with_baskets
from .progress import Progress
from .sweep.groups import Group, Tile, group_trades
from .sweep.memory_gate import MemoryGate
from .sweep.tile_sweep import tile_sweep, tile_values
from .trades.book import Book

Models = dict[str, AbstractModel]
Fit = Callable[[Market], Models]
Sweep = Callable[[Group, Tile], tuple]  # figures, standard errors and d(value) / d(model) of a tile

MEASURES = ("value", "std_error", "delta", "gamma", "vega", "theta", "rho")
"""The figures of every table; a trade on several assets has `delta:NAME` and `gamma:NAME:NAME` instead."""

_WORKERS = os.cpu_count() or 1  # threads that compile and run tiles

NON_FINITE = "failed: a figure is not finite; check the trade's numbers for extremes"


@dataclass(frozen=True)
class TradeRisk:
    """One row of the book. `figures`: of one contract, raw derivatives by measure; None if it failed.

    A measure that the trade's method cannot give without bias is not among the figures. A trade on several
    assets has `delta:NAME` of each and `gamma:NAME:NAME` of each pair. `std_errors`: of each derivative.
    """

    id: str
    type: str
    quantity: float
    figures: dict[str, float] | None
    method: str
    status: str
    std_errors: dict[str, float] = field(default_factory=dict)
    underlying: str = ""

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
    on the fit, the sweep over the trades, and the pullback to quotes. `gradient`: the derivative to every
    number of the market, its pillars' times included.
    """

    trades: tuple[TradeRisk, ...]
    value: float
    sensitivities: dict[str, float]
    models: Models
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

    fit: market -> {underlying: model}, any differentiable function of the market; a basket "A|B" is priced by
    the joined models of A and B. mesh: devices that share the trades (axis "trades") and the blocks of Monte
    Carlo paths (axis "paths"). budget: bytes of memory that the tiles of trades in work may take together. key:
    for random methods (default seed 0). methods: the candidates, the best first. progress: told of the trades
    done (`pricing.progress`). greeks: False asks for values and their standard errors alone; the sensitivities
    are then empty and the gradient is None.

    A trade that no method prices, or whose figures are not finite, is set aside with its reason in
    `status`; the others are still valued, and the total and its sensitivities are theirs.
    """
    clock = _Clock()
    key = jax.random.key(0) if key is None else key
    book = book.checked(market)
    fit = with_baskets(fit, (trade.underlying for trade in book.trades))
    models, sweep, pull = (_with_greeks if greeks else _values_alone)(fit, market, key)
    clock.lap("fit")

    share = budget // _WORKERS
    groups, unpriced = group_trades(book.trades, market, models, key, budget, share, mesh, methods)
    done, total = 0, sum(len(group.trades) for group in groups)
    bars = jax.tree.map(jnp.zeros_like, models)
    columns = []
    sweeps = _submitted(groups, MemoryGate(budget), sweep)
    for group, futures in zip(groups, sweeps, strict=True):
        left, name = len(group.trades), group.underlying
        for future in futures:
            figures, errors, bar = future.result()
            bars[name] = jax.tree.map(jnp.add, bars[name], bar)
            columns.append(_columns(figures, errors, name, left))
            left -= group.tile_size
            done += columns[-1].size
            if progress is not None:
                progress(done, total, "")
    clock.lap("sweep")
    gradient = pull(bars)
    by_quote = {} if gradient is None else market.by_quote(gradient)
    clock.lap("pullback")

    rows = _rows(book, groups, columns, unpriced)
    value = sum((row.position["value"] for row in rows if row.position), 0.0)
    errors = (*market.errors, *book.errors)
    return RiskResult(rows, value, by_quote, models, errors, clock.seconds, gradient)


def _with_greeks(fit: Fit, market: Market, key) -> tuple[Models, Sweep, Callable[[Models], Market]]:
    """The models, what sweeps a tile, and what pulls derivatives to the models back to the market."""
    models, push = jax.linearize(fit, market)
    vol, rate = push(market_shift(market, vol=1.0)), push(market_shift(market, rate=1.0))

    def sweep(group: Group, tile: Tile):
        name = group.underlying
        return tile_sweep(tile, models[name], group.method, key, vol[name], rate[name])

    return models, sweep, lambda bars: jax.linear_transpose(push, market)(bars)[0]


def _values_alone(fit: Fit, market: Market, key) -> tuple[Models, Sweep, Callable[[Models], None]]:
    """The same without any derivative."""
    models = fit(market)

    def sweep(group: Group, tile: Tile):
        return tile_values(tile, models[group.underlying], group.method, key)

    return models, sweep, lambda bars: None


def market_shift(market: Market, vol: float = 0.0, rate: float = 0.0) -> Market:
    """The tangent of a market whose implied vols and zero rates all move in parallel, per 1.00."""
    still = jax.tree.map(jnp.zeros_like, market)
    swaptions = [] if market.swaption_vols is None else [lambda m: m.swaption_vols.vols]

    def vols(m: Market) -> list[Any]:  # leaves, or what stands for them
        return [e.surface.vols for e in m.equities.values()] + [vols(m) for vols in swaptions]

    rates = lambda m: [curve.zero_rates for curve in m.curves.values()]  # noqa: E731
    quotes = lambda m: vols(m) + rates(m)  # noqa: E731
    moved = [leaf + vol for leaf in vols(still)] + [leaf + rate for leaf in rates(still)]
    return eqx.tree_at(quotes, still, moved)


def _submitted(groups: Sequence[Group], gate: MemoryGate, sweep: Sweep) -> list[list[Future]]:
    """The sweeps of every group's tiles, the first tiles first, so that programs compile side by side.

    Of those the largest trades first: their programs take longest, and none should be left for the end.
    """
    sweeps: list[list[Future]] = [[] for _ in groups]
    pairs = sorted(zip(groups, sweeps, strict=True), key=lambda pair: -pair[0].method.trade_bytes)

    def swept(group: Group, tile: Tile):
        with gate.holding(group.tile_bytes):
            return jax.block_until_ready(sweep(group, tile))

    pool = ThreadPoolExecutor(max_workers=_WORKERS)
    for tiles in itertools.zip_longest(*(group.tiles() for group, _ in pairs)):
        for (group, futures), tile in zip(pairs, tiles, strict=True):
            if tile is not None:
                futures.append(pool.submit(swept, group, tile))
    pool.shutdown(wait=False)
    return sweeps


@dataclass(frozen=True)
class _Columns:
    """The figures and standard errors of the trades of one tile, by measure."""

    figures: dict[str, np.ndarray]
    errors: dict[str, np.ndarray]
    size: int

    def row(self, index: int) -> tuple[dict[str, float], dict[str, float]]:
        figures = {name: float(column[index]) for name, column in self.figures.items()}
        return figures, {name: float(column[index]) for name, column in self.errors.items()}


def _columns(figures, errors, underlying: str, left: int) -> _Columns:
    """What a sweep found, without the padding, and each asset's derivative in a column of its own."""
    names = underlying.split("|")
    flat = {name: column[:left] for name, column in _by_asset(figures, names).items()}
    spread = {name: column[:left] for name, column in _by_asset(errors, names).items()}
    flat["std_error"] = spread.pop("value")
    return _Columns(flat, spread, len(flat["value"]))


def _by_asset(figures, names: list[str]) -> dict[str, np.ndarray]:
    columns = {}
    for measure, figure in figures.items():
        figure = np.asarray(figure)
        for index in np.ndindex(figure.shape[1:]):
            assets = (names[i] for i in index)
            columns[":".join((measure, *assets))] = figure[(slice(None), *index)]
    return columns


def _rows(book: Book, groups, columns, unpriced: dict[str, str]) -> tuple[TradeRisk, ...]:
    """Every row of the book, in its order, with its figures or the reason why it has none."""
    trades = [(trade, group) for group in groups for trade in group.trades]
    values = (tile.row(index) for tile in columns for index in range(tile.size))
    found = {trade.id: (group, *row) for (trade, group), row in zip(trades, values, strict=True)}

    def row_of(row) -> TradeRisk:
        head = row.id, row.type, row.trade.quantity if row.trade else 0.0
        if row.trade is None:
            return TradeRisk(*head, None, "", f"failed: {'; '.join(map(str, row.errors))}")
        if row.id in unpriced:
            return TradeRisk(*head, None, "", f"failed: {unpriced[row.id]}")
        group, figures, errors = found[row.id]
        method = type(group.method).__name__
        if not np.all(np.isfinite([*figures.values(), *errors.values()])):
            return TradeRisk(*head, None, method, NON_FINITE)
        ordered = {name: figures[name] for name in MEASURES if name in figures} | figures
        return TradeRisk(*head, ordered, method, "ok", errors, row.trade.underlying)

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
