"""The value and Greeks of every trade of a book, and the book's sensitivity to every market quote.

The book's gradient in the parameters of its models, pulled back through `fit`, gives the quote sensitivities.
"""

import copy
import functools
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from jaxtape.jax_settings.single_on_devices import devices_are_single
from jaxtape.object_store import arrow

from ..argument_kinds import of_kinds
from ..ingestion.errors import InputError
from ..market import Market
from ..market.caplet_vols import curve_of_caps
from ..methods import METHODS, AbstractMethod
from ..methods.method import has_law_of_its_own
from ..models import AbstractModel
from ..progress import Progress
from .batching import currency_of
from .book import Book
from .notebook import html_of
from .sweep.book_sweep import sweep_book, with_grid_errors
from .sweep.fitted_models import (
    BOOK,
    FIT,
    MARKET,
    Fit,
    FittedModels,
    Models,
    fit_models,
)
from .sweep.groups import TradeBatch, TradeGroup, batches_of, group_trades
from .sweep.memory import Memory, identity
from .sweep.memory_gate import MemoryGate
from .sweep.payers import among_payers
from .sweep.rounding_errors import note_on_precision, with_rounding_errors
from .sweep.trade_risk import TradeRisk, TradeRisks, table_row
from .totals import CurrencyRisk, by_currency, total_of


@dataclass(frozen=True)
class RiskResult:
    """The value of a book, and its sensitivities to the quotes of the market.

    The figures of a trade, and the totals in `by_currency`, are in the trade's own currency. `value`,
    `sensitivities` and `gradient` are those of the whole book in one `currency`: the trades' own, or a
    reporting currency to which the market's FX rates convert. Without such rates they are NaN and empty,
    because unconverted amounts are never added.

    Delta, Gamma and theta of a trade keep the model's parameters fixed. Vega and rho are the derivatives to a
    parallel move of all implied vols, or of all zero rates, through the fit; over the book they add up to the
    sensitivities to those quotes. The zero rates of a curve given by instruments are bootstrapped.

    Attributes:
        trades: One row for each row of the book, in its order.
        value: The sum of quantity times value over all trades that were valued, in `currency`; NaN if their
            currencies cannot be converted to one.
        sensitivities: Quote id -> derivative of `value` per 1.00 of the quote, FX rates included; empty where
            `value` is NaN.
        models: Underlying -> the model that `fit` returned for the market.
        errors: All errors of the market and the book.
        stats: The seconds taken by the fit, the sweep over the trades and the pullback to quotes.
        gradient: The derivative of `value` to every number of the market, including the times of its pillars;
            None without `greeks`, or if `value` is NaN.
        by_currency: ISO code -> the value, sensitivities and gradient of the trades in that currency, in the
            order of the book. If no trade was valued, it holds only the market's currency.
        currency: The ISO code of the currency of `value`; "" if `value` is NaN or the market names no currency.
        fx_rates: ISO code of a trade's currency -> units of `currency` for one unit of it; empty if `value` is
            NaN.
        notes: Notes on trades that are valued under a spot distribution of their own, and on single precision.
    """

    trades: Sequence[TradeRisk]
    value: float
    sensitivities: dict[str, float]
    models: dict[str, AbstractModel]
    errors: tuple[InputError, ...]
    stats: dict[str, Any] = field(default_factory=dict)
    gradient: Market | None = None
    by_currency: dict[str, CurrencyRisk] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    currency: str = ""
    fx_rates: dict[str, float] = field(default_factory=dict)

    @property
    def is_converted(self) -> bool:
        """Whether some trades were converted to the currency of the total."""
        return any(name != self.currency for name in self.fx_rates)

    @property
    def table(self) -> Any:
        """The positions (quantity times one contract) as a `pyarrow.Table` with one row per trade.

        The figures of a trade are in its own `currency`. Delta and Gamma of a trade on one underlying are
        `delta` and `gamma`; of a trade on several, `delta:NAME` and `gamma:NAME:NAME`. Missing figures are
        null.
        """
        rows = [table_row(trade) for trade in self.trades]
        columns = dict.fromkeys(name for row in rows for name in row)
        return arrow("pyarrow").table({name: [row.get(name) for row in rows] for name in columns})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the Arrow stream of `table`, which polars, pandas and DuckDB read."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        money = f" {self.currency}" if self.currency else ""
        return f"RiskResult({len(self.trades):,} trades{failed}, value={self.value:.8g}{money})"

    def _repr_html_(self) -> str:
        """Return the total and the first trades, as a notebook shows them."""
        return html_of(self.trades, repr(self).removeprefix("RiskResult(").removesuffix(")"))

    @property
    def failed(self) -> tuple[TradeRisk, ...]:
        """The trades that could not be valued, in the order of the book; ended trades are not among them."""
        return tuple(trade for trade in self.trades if trade.has_failed)

    @property
    def counts(self) -> dict[str, int]:
        """The number of trades by status: "ok", "failed", "expired", "knocked out", ..."""
        return dict(Counter(trade.status.partition(":")[0] for trade in self.trades))


@of_kinds(book=BOOK, market=MARKET, fit=FIT)
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
    grid_errors: bool = False,
    rounding_errors: bool = False,
    currency: str | None = None,
) -> RiskResult:
    r"""Value every trade of a book with its Greeks, and differentiate the book's value to every quote.

    A trade that no method prices, or whose figures are not finite, is set aside with the reason in `status`.
    The total and its sensitivities cover the other trades.

    Args:
        book: The trades. Those that the market cannot value are set aside with their reasons.
        market: The quotes.
        fit: Market -> {underlying: model}, any differentiable function of the market. A basket is valued with
            the joint model of its assets.
        mesh: Devices that share the trades (axis "trades") and the blocks of Monte Carlo paths (axis "paths").
        budget: The bytes of memory for all tiles of trades that run at the same time. The size of a tile
            depends only on it and on the method. A budget too small for one trade of some method raises
            BudgetTooSmall, a ValueError.
        key: The seed of random methods; the default is seed 0.
        methods: The methods to choose from, best first.
        progress: Called after every tile with the number of trades done, the total number and an empty message.
        greeks: Whether to differentiate; False returns only values and their standard errors.
        grid_errors: Whether to value trades on grids again with half the nodes and steps, and report the
            difference as their standard error, which is 0 otherwise.
        rounding_errors: Whether to value trades also in double precision, where devices compute in single
            (`jaxtape.use_single_on_devices`): all trades of a kind, or some of its tiles. The rounding errors
            of these trades are the differences; those of the others are four times the largest difference.
            `PseudoRandom` draws other numbers in double precision, so that the differences include its noise;
            `Sobol` draws the same.
        currency: The ISO code of the currency of the totals. None: the market's currency or, if the FX rates do
            not lead to it, the trades' own if they have only one. If the FX rates do not convert some trade to
            the given currency, MissingRate, a ValueError, is raised.

    Returns:
        The figures of every trade, the total value, and its sensitivities; without `greeks` these are empty.

    Examples:
        >>> from pricing import Book, Market, risk
        >>> from pricing.models.surface_models import black_scholes
        >>> market = Market.from_text(
        ...     '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        ... )
        >>> book = Book.from_text("id,type,underlying,option,strike,expiry\nE1,european,DAX,call,9,2003-03-18")
        >>> risk(book, market, black_scholes).trades[0].status[:40]
        "failed: trades.csv:2: column 'underlying"
    """
    errors = {"grid_errors": grid_errors, "rounding_errors": rounding_errors}
    settings = {"methods": methods, "greeks": greeks, "currency": currency, **errors}
    engine = RiskEngine(fit, mesh=mesh, budget=budget, key=key, **settings)
    return engine(book, market, progress=progress)


class RiskEngine:
    """Values books repeatedly, and computes only what has changed since the last call.

    After a new quote, the models are fitted again, and the tiles whose model has moved are valued again; after
    a new trade, only its own tile, and that of its kind if it had one. The figures are bitwise equal to those
    of `risk`.

    Args:
        fit: The map from a market to models, as in `risk`. All settings are fixed.
        mesh: Devices that share the trades and the paths.
        budget: The bytes of memory for the tiles that run at the same time.
        key: The seed of random methods.
        methods: The methods to choose from.
        greeks: Whether to differentiate.
        grid_errors: Whether to estimate the errors of grids, as in `risk`.
        rounding_errors: Whether to estimate the errors of single precision, as in `risk`.
        currency: The currency of the totals, as in `risk`.

    Examples:
        >>> from pricing import Book, Market, RiskEngine
        >>> from pricing.models.surface_models import black_scholes
        >>> market = Market.from_text(
        ...     '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        ... )
        >>> book = Book.from_text("id,type,underlying,option,strike,expiry")
        >>> RiskEngine(black_scholes)(book, market).value
        0.0
    """

    def __init__(
        self,
        fit: Fit,
        *,
        mesh: Mesh | None = None,
        budget: int = 2**30,
        key: PRNGKeyArray | None = None,
        methods: Sequence[AbstractMethod] = METHODS,
        greeks: bool = True,
        grid_errors: bool = False,
        rounding_errors: bool = False,
        currency: str | None = None,
    ):
        self._fit, self._greeks, self._methods = fit, greeks, methods
        self._grid_errors, self._rounding_errors = grid_errors, rounding_errors
        self._currency = currency
        self._mesh, self._budget, self._gate = mesh, budget, MemoryGate(budget)
        self._key = jax.random.key(0) if key is None else key
        self._fits, self._tiles = Memory(), Memory()
        self._last: _Served | None = None

    @full_matmul_precision
    def __call__(
        self,
        book: Book,
        market: Market,
        *,
        parts: Mapping[str, str] = MappingProxyType({}),
        progress: Progress | None = None,
    ) -> RiskResult:
        """Return the values and sensitivities of a book in a market, as `risk` does.

        Args:
            book: The trades.
            market: The quotes.
            parts: Trade id -> the name of a part of the book; "" is the part of the other trades. Each part has
                a gradient of its own (`CurrencyRisk.parts`); the figures of trades differ by rounding only.
            progress: Called after every tile with the number of trades done, the total number and an empty
                message.

        Returns:
            The figures; `stats` holds the seconds that this call took.
        """
        times = [time.perf_counter()]
        settings = {"key": self._key, "budget": self._budget}
        book, batches = self._served(book, market)
        if self._currency is not None:  # fail before a long sweep
            for name in {currency_of(batch.trades[0], market) for batch in batches}:
                market.fx_rate(name, self._currency)
        fitted = self._fitted(batches, market)
        times.append(time.perf_counter())

        groups, unpriced = group_trades(
            batches,
            market,
            fitted.models,
            self._methods,
            mesh=self._mesh,
            parts=parts,
            **settings,
        )
        groups = among_payers(groups, fitted.models)
        self._tiles.begin()
        settings |= {"memory": self._tiles, "gate": self._gate}
        sweep = functools.partial(sweep_book, fitted=fitted, **settings)
        found, cotangents = sweep(groups, progress=progress)
        if self._rounding_errors and devices_are_single():
            found = with_rounding_errors(found, fitted, **settings)
        if self._grid_errors:
            found = with_grid_errors(found, functools.partial(sweep, progress=None))
        times.append(time.perf_counter())

        totals = by_currency(found, market, fitted, cotangents)
        total = total_of(totals, market, self._currency)
        times.append(time.perf_counter())

        seconds = zip(("fit", "sweep", "pullback"), np.diff(times).tolist(), strict=True)
        return RiskResult(
            trades=TradeRisks(book, found, unpriced, market),
            value=total.risk.value,
            sensitivities=total.risk.sensitivities,
            gradient=total.risk.gradient,
            currency=total.currency,
            fx_rates=total.rates,
            models={
                names[0]: model for names, model in fitted.as_fitted.items() if len(names) == 1
            },
            errors=(*market.errors, *book.errors),
            stats=dict(seconds),
            by_currency=totals,
            notes=(
                *_notes(groups, fitted.models),
                *note_on_precision(found),
                *filter(None, [total.note]),
            ),
        )

    def for_another_book(self) -> "RiskEngine":
        """Return an engine with the same settings that shares the fitted models.

        The two engines may run in two threads at the same time. They share the budget.
        """
        other = copy.copy(self)
        other._tiles, other._last = Memory(), None
        return other

    def for_another_fit(self, fit: Fit) -> "RiskEngine":
        """Return an engine with the same settings and another fit. The two share the budget.

        Args:
            fit: The map from a market to models.
        """
        other = self.for_another_book()
        other._fit, other._fits = fit, Memory()
        return other

    def _served(self, book: Book, market: Market) -> tuple[Book, list[TradeBatch]]:
        """Return the checked book and its batches, reused from the last call where possible.

        They depend on these numbers of the market: correlations, fixings, and the quotes used as today's
        fixings.
        """
        last = self._last
        if last is None or last.book is not book or last.seen != _seen(market, last.quoted):
            checked, quoted = book.served(market)
            batches = batches_of(checked.trades, market)
            last = _Served(book, _seen(market, quoted), quoted, checked, batches)
            self._last = last
        return last.checked, last.batches

    def _fitted(self, batches: Sequence[TradeBatch], market: Market) -> FittedModels:
        """Return the models of the market, fitted again if the market or the names in the book have changed."""
        names: list[tuple[str, ...]] = [batch.model_names for batch in batches]
        made = (own for own in names if len(own) > 1 or self._is_made(next(iter(own)), market))
        asked = tuple(dict.fromkeys(made))
        self._fits.begin()
        compute = functools.partial(fit_models, self._fit, market, asked, self._greeks)
        return self._fits.recall(compute, (market, asked))

    def _is_made(self, name: str, market: Market) -> bool:
        """Return True if the model of a name may come from the market instead of the fit."""
        is_of_rates = name in market.curves or curve_of_caps(name) in market.cap_vols
        return is_of_rates or len(market.parts_of(name)) > 1


class _Served(NamedTuple):
    """A book checked against a market. seen: the market data it depends on; quoted: see `Book.served`."""

    book: Book
    seen: Hashable
    quoted: frozenset[str]
    checked: Book
    batches: list[TradeBatch]


def _seen(market: Market, quoted: Iterable[str]) -> Hashable:
    """Return the market data that determine what remains of trades and how they are batched."""
    rates = [pair.spot for pair in market.fx.values()]  # a cross depends on several
    known = {**market.curves, **market.equities, **dict.fromkeys(market.fx, rates)}
    parts = [known.get(name, known.get(name.rpartition(" ")[0])) for name in sorted(quoted)]
    spots = [getattr(part, "spot", part) for part in parts]
    numbers = identity((market.correlations, spots))
    return jax.tree.structure(market), numbers


def _notes(groups: Sequence[TradeGroup], models: Models) -> tuple[str, ...]:
    """Return a note that counts, by kind, the trades valued at a single vol of a surface, if any."""
    counts: Counter[str] = Counter()
    for group in groups:
        if has_law_of_its_own(group.products, models[group.model_names]):
            counts.update(trade.type for trade in group.trades)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    text = (
        "under a surface, Black-Scholes values each of these trades at the vols of its strike or its forward "
        f"and ignores those of other strikes: {kinds}; Heston and LocalVol have one law for all trades"
    )
    return (text,) if counts else ()
