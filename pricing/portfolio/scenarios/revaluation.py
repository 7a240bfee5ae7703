"""Compute the P&L of a book in scenarios by full revaluation."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from jaxtape.jax_settings.single_on_devices import device_program

from ...argument_kinds import of_kinds
from ...market import Market
from ...methods import METHODS, AbstractMethod
from ...models import AbstractModel
from ...progress import Progress
from ..batching import currency_of
from ..book import Book
from ..sweep.block_values import MAX_LEVELS, block_values, no_samples
from ..sweep.fitted_models import BOOK, FIT, MARKET, Fit, Models
from ..sweep.groups import (
    Tile,
    TradeGroup,
    batches_of,
    group_trades,
)
from ..sweep.memory import Memory
from ..sweep.tile_sweep import tile_values
from ..sweep.tile_workers import run_tiles
from .scenario import Scenario
from .states import NOW, States

Table = Float[np.ndarray, "scenarios trades"]

_Found = dict[str, tuple[np.ndarray, np.ndarray]]
"""Trade -> P&L of one contract and its standard error, each [scenarios]."""


@dataclass(frozen=True)
class Revaluation:
    """The P&L of each trade of a book in each scenario.

    Attributes:
        scenarios: The scenarios, of shape (scenarios,).
        trades: The ids of the book's rows, of shape (trades,).
        pnl: Quantity times (value in the scenario less value today), in currency, of shape (scenarios, trades);
            NaN where there is no value.
        std_error: The standard error of `pnl`, of the same shape, with the same paths in both values; 0 for
            deterministic methods.
        failures: Scenario -> the reason why it has no P&L: a model could not be fitted to its quotes.
        currencies: The ISO code of each trade's P&L, of shape (trades,); empty if all are in one.
    """

    scenarios: tuple[Scenario, ...]
    trades: tuple[str, ...]
    pnl: Table
    std_error: Table
    failures: Mapping[str, str] = field(default_factory=dict)
    currencies: tuple[str, ...] = ()

    def converted(
        self, values: Float[np.ndarray, " trades"], market: Market, currency: str
    ) -> "Revaluation":
        """Return the P&L in one currency, with each value converted at the FX rates of its scenario.

        If value and rate are V and x today, and V + P and y in the scenario, it is y (V + P) - x V.

        Args:
            values: Today's value of each position, in its own currency; NaN where there is none.
            market: The market, with FX rates.
            currency: The ISO code of the currency of the P&L; without a rate to it, MissingRate is raised.
        """
        valued = ~np.all(np.isnan(self.pnl), axis=0)
        names = np.array(self.currencies or (currency,) * len(self.trades), dtype=object)
        now, then = np.ones_like(self.pnl), np.ones_like(self.pnl)
        for name in dict.fromkeys(names[valued].tolist()):
            now[:, names == name] = float(market.fx_rate(name, currency))
            moved = [scenario.fx_rate(market, name, currency) for scenario in self.scenarios]
            then[:, names == name] = np.reshape(moved, (-1, 1))
        pnl, error = then * self.pnl + (then - now) * values, then * self.std_error
        return replace(self, pnl=pnl, std_error=error, currencies=(currency,) * len(self.trades))

    def total(self, trades: np.ndarray, *, errors: bool = False) -> Float[np.ndarray, " scenarios"]:
        """Return the total P&L of some trades; NaN in a scenario in which none of them has a P&L.

        Args:
            trades: Their mask, booleans of shape (trades,).
            errors: Whether to return an upper bound of its standard error instead: the sum of the trades'
                standard errors, since trades that share paths have correlated errors.

        Raises:
            ValueError: The trades are in several currencies.
        """
        valued = trades & ~np.all(np.isnan(self.pnl), axis=0)
        names = dict.fromkeys(itertools.compress(self.currencies, valued))
        if len(names) > 1:
            raise ValueError(
                f"the trades are in {' and '.join(names)}, which are not converted: ask for the total of each"
            )
        table = (self.std_error if errors else self.pnl)[:, trades]
        has_none = np.all(np.isnan(table), axis=1)
        has_failed = [scenario.name in self.failures for scenario in self.scenarios]
        return np.where(has_failed | has_none, np.nan, np.nansum(table, axis=1))

    def lost(self, trades: np.ndarray) -> dict[str, str]:
        """Return, for each scenario that did not fail, the number of these trades without a P&L, as text.

        Args:
            trades: Their mask, booleans of shape (trades,): trades that have a value today.
        """
        counts = np.sum(np.isnan(self.pnl[:, trades]), axis=1).tolist()
        return {
            scenario.name: f"{count:,} of {int(np.sum(trades)):,} trades that have a value today have none here"
            for scenario, count in zip(self.scenarios, counts, strict=True)
            if count and scenario.name not in self.failures
        }


@of_kinds(book=BOOK, market=MARKET, fit=FIT)
@full_matmul_precision
def revalue(
    book: Book,
    market: Market,
    fit: Fit,
    scenarios: Sequence[Scenario],
    *,
    mesh: Mesh | None = None,
    budget: int = 2**30,
    key: PRNGKeyArray | None = None,
    methods: Sequence[AbstractMethod] = METHODS,
    progress: Progress | None = None,
) -> Revaluation:
    """Revalue every trade of a book in every scenario, with the method that values it today.

    Monte Carlo methods draw the same random numbers in every scenario, and the standard error is that of the
    difference. Programs take the models' parameters as data, so no scenario compiles a new one.

    Args:
        book: The trades.
        market: The quotes that move.
        fit: Market -> {underlying: model}, a function of the market.
        scenarios: Scenarios that the market can make (`ScenarioSet.checked`).
        mesh: Devices that share the trades (axis "trades") and the blocks of Monte Carlo paths (axis "paths").
        budget: The bytes of memory for all tiles of trades that run at the same time.
        key: The seed of random methods; the default is seed 0.
        methods: The methods to choose from, best first.
        progress: Called with the number of valuations done, the total number and a message.

    Returns:
        The P&L of every trade in every scenario.

    Raises:
        ValueError: The market cannot make a scenario, for example because it has no equity of that name.

    Examples:
        >>> from pricing import Book, Market
        >>> from pricing.models.surface_models import black_scholes
        >>> from pricing.portfolio.scenarios import Scenario, revalue
        >>> text = '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        >>> book = Book.from_text("id,type,underlying,option,strike,expiry")
        >>> revalue(book, Market.from_text(text), black_scholes, [Scenario("up")]).pnl.shape
        (1, 0)
    """
    for scenario in scenarios:
        for issue in scenario.problems(market):
            place = ".".join(map(str, issue.path))
            raise ValueError(f"{scenario.name}: {place}: {issue.message}; {issue.remedy}")
    book, key = book.checked(market), jax.random.key(0) if key is None else key
    batches = batches_of(book.trades, market)
    states = States(fit, market, tuple(dict.fromkeys(batch.model_names for batch in batches)))
    grouped = functools.partial(
        *(group_trades, batches), market=market, methods=methods, key=key, budget=budget, mesh=mesh
    )
    groups, _ = grouped(models=states.fitted(NOW))
    moved, failures = _fitted(states, scenarios)
    add = _counted(progress, sum(len(group.trades) for group in groups) * len(moved))
    simulated = [group for group in groups if group.method.is_random]
    found = _simulated(simulated, states, moved, key, budget, add)
    found |= _valued(grouped, states, moved, key, budget, add)
    currencies = tuple(
        currency_of(row.trade, market) if row.trade else market.currency for row in book.rows
    )
    return replace(_revaluation(book, scenarios, moved, found, failures), currencies=currencies)


def _counted(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that adds to the count of valuations and reports it to `progress`."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total, "scenarios")

    return add


def _fitted(states: States, scenarios: Iterable[Scenario]) -> tuple[list[Scenario], dict[str, str]]:
    """Return the scenarios whose models could be fitted, and the reasons why the others could not."""
    moved, failures = [], {}
    for scenario in scenarios:
        try:
            states.fitted(scenario)
            moved.append(scenario)
        except RuntimeError as error:
            failures[scenario.name] = str(error).rstrip(".")
    return moved, failures


def _simulated(
    groups: Sequence[TradeGroup],
    states: States,
    moved: Sequence[Scenario],
    key,
    budget,
    add: Callable[[int], None],
) -> _Found:
    """Return the P&L of each trade under random methods, by id.

    Scenarios that share a fit share paths. Only today's samples of a tile are kept.
    """
    passes: dict[int, tuple[Models, list[int]]] = {}
    for place, scenario in enumerate(moved):
        models = states.fitted(scenario)
        passes.setdefault(id(models), (models, []))[1].append(place)

    def of_tile(group: TradeGroup, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        names, method = group.model_names, group.method
        pnl, errors = np.empty((2, len(moved), tile.weights.size))

        def values(model: AbstractModel, levels: Sequence[Array], base: Array):
            room = jnp.stack([*levels, *[levels[0]] * (MAX_LEVELS - len(levels))])
            count = jnp.asarray(len(levels))
            return device_program(block_values)(tile, model, method, room, count, base, key=key)

        now = states.fitted(NOW)[names]
        *_, base = values(now, [now.underlying], no_samples(tile, now, method, key))
        for models, places in passes.values():
            for start in range(0, len(places), MAX_LEVELS):
                some = places[start : start + MAX_LEVELS]
                levels = [states.level(moved[place], names) for place in some]
                means, of_means, _ = values(models[names], levels, base)
                pnl[some], errors[some] = means[: len(some)], of_means[: len(some)]
        return pnl, errors

    found = {}
    for group, results in run_tiles(groups, of_tile, budget):
        parts = zip(*(result.result() for result in results), strict=True)
        columns = (group.in_order([part.T for part in tables]) for tables in parts)
        ids = (trade.id for trade in group.trades)
        found |= dict(zip(ids, zip(*columns, strict=True), strict=True))
        add(len(group.trades) * len(moved))
    return found


def _valued(
    grouped, states: States, moved: Sequence[Scenario], key, budget, add: Callable[[int], None]
) -> _Found:
    """Return the P&L of each trade under deterministic methods, by id; trades are regrouped in each scenario.

    A tile whose model does not move is not valued again.
    """
    memory, values = Memory(), []
    for scenario in (NOW, *moved):
        models = states.at(scenario)
        groups = [group for group in grouped(models=models)[0] if not group.method.is_random]

        def of_tile(group: TradeGroup, tile: Tile, models: Models = models) -> Array:
            model = models[group.model_names]
            of_tile = tile, model, group.method
            value = lambda: device_program(tile_values)(*of_tile, key=key)[0]["value"]
            return memory.recall(value, (tile, model, group.method))

        known = {}
        for group, results in run_tiles(groups, of_tile, budget):
            column = group.in_order([result.result() for result in results])
            known |= dict(zip((trade.id for trade in group.trades), column.tolist(), strict=True))
            add(len(group.trades) if scenario is not NOW else 0)
        values.append(known)
    now, *then = values
    exact = np.zeros(len(moved))
    return {name: (np.array([v[name] for v in then]) - value, exact) for name, value in now.items()}


def _revaluation(book: Book, scenarios, moved, found: _Found, failures) -> Revaluation:
    """Return the P&L of a book's positions; NaN where a trade or a scenario has none."""
    pnl, errors = np.full((2, len(scenarios), len(book.rows)), np.nan)
    places = [place for place, scenario in enumerate(scenarios) if scenario in moved]
    for column, row in enumerate(book.rows):
        if row.trade is not None and row.id in found:
            of_one, of_error = found[row.id]
            pnl[places, column] = row.trade.quantity * of_one
            errors[places, column] = abs(row.trade.quantity) * of_error
    return Revaluation(tuple(scenarios), tuple(row.id for row in book.rows), pnl, errors, failures)
