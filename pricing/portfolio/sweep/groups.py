"""Groups of a book's trades that share an underlying, a kind and a method, cut into tiles of one size."""

import math
import operator
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.single_on_devices import in_device_precision

from ...market import Market
from ...methods import AbstractMethod
from ...models import AbstractModel, RateCurves, WithDividends
from ...products import AbstractProduct
from ...products.trade import Trade
from ...valuation import select_method
from ..batching import padded_rows, products_of, shape_key

MeasureArrays = dict[str, Array]
"""Measures of trades by name, [trades, ...]."""

_TILES_IN_WORK = 2
"""The number of largest tiles that fit the budget; more tiles run at the same time if they are smaller."""


class BudgetTooSmall(ValueError):
    """The budget does not hold one trade."""


class Tile(NamedTuple):
    """Trades in rows of equal length: products and their weights, [rows, trades of a row].

    Padding has weight 0. `count` is the number of trades, which come first unless they are in bunches.
    """

    products: AbstractProduct
    weights: Float[Array, "rows trades"]
    count: Integer[Array, ""]


@dataclass(frozen=True)
class TradeGroup:
    """Trades of one kind on one underlying or basket, priced by one method, with their places in tiles.

    parts: trade id -> the part of the book that it belongs to, "" if it is not named. The trades of a tile are
    of one part. payer: the model of another equity, whose program values the group (`payers`), or None.
    """

    model_names: tuple[str, ...]
    trades: tuple[Trade, ...]
    products: AbstractProduct
    method: AbstractMethod
    places: Integer[np.ndarray, "tiles rows trades"]
    mesh: Mesh | None
    parts: Mapping[str, str] = field(default_factory=dict)
    payer: WithDividends | None = None

    @property
    def tile_bytes(self) -> int:
        """The peak memory of a tile in bytes: that of one row."""
        return self.places.shape[2] * self.method.tiling(self.products).trade_bytes

    @property
    def is_brief(self) -> bool:
        """Whether the whole group runs for less time than the optimization of its program takes."""
        has_one_tile = len(self.places) == len(set(self.tile_parts))  # of each part
        return has_one_tile and self.method.runs_briefly(self.products)

    @property
    def tile_parts(self) -> tuple[str, ...]:
        """The part of the book of each tile."""
        if not self.parts:
            return ("",) * len(self.places)
        return tuple(self.parts.get(self.trades[first].id, "") for first in self.places[:, 0, 0])

    @property
    def counts(self) -> Integer[np.ndarray, " tiles"]:
        """The number of trades in each tile."""
        return np.sum(self.places >= 0, axis=(1, 2))

    def tiles(self) -> Iterator[Tile]:
        """Yield the tiles, weighted by quantity; a bunch is padded with its first trade at weight 0."""
        quantities = np.array([trade.quantity for trade in self.trades])
        for places, count in zip(self.places, self.counts, strict=True):
            bunches = places.reshape(-1, group_size(self.method, places.shape[1]))
            first = np.where(bunches[:, :1] < 0, places[0, 0], bunches[:, :1])
            padded = np.where(bunches < 0, first, bunches).reshape(places.shape)
            products = jax.tree.map(operator.itemgetter(padded), self.products)
            weights = np.where(places < 0, 0.0, quantities[padded])
            products, weights = self._placed((products, weights))
            yield Tile(self.method.canonical(products), weights, count=jnp.asarray(count))

    def in_order(self, parts: Sequence[ArrayLike]) -> np.ndarray:
        """Return the results of all tiles in the order of the trades, [trades]."""
        places = self.places.ravel()
        order = np.empty(len(self.trades), int)
        order[places[places >= 0]] = np.flatnonzero(places >= 0)
        return np.concatenate([np.asarray(part) for part in parts])[order]

    def _placed(self, arrays):
        if self.mesh is None:
            return jax.device_put(arrays)
        axes = PartitionSpec(None, "trades" if "trades" in self.mesh.axis_names else None)
        sharding = NamedSharding(self.mesh, axes)
        return jax.device_put(in_device_precision(arrays), sharding)


class TradeBatch(NamedTuple):
    """Trades that one program can value: same names, same structure, and contracts of one shape."""

    model_names: tuple[str, ...]
    trades: tuple[Trade, ...]
    products: AbstractProduct


def group_size(method: AbstractMethod, trades: int) -> int:
    """Return the number of trades in a bunch, which computes their shared values once."""
    return trades if method.group_size is None else math.gcd(method.group_size, trades)


def group_trades(
    batches: Sequence[TradeBatch],
    market: Market,
    models: Mapping[tuple[str, ...], AbstractModel],
    methods: Sequence[AbstractMethod],
    *,
    key: PRNGKeyArray,
    budget: int,
    mesh: Mesh | None,
    parts: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[TradeGroup], dict[str, str]]:
    """Return the groups of a book, and the reason, by trade id, for each trade that no method prices.

    parts: see `TradeGroup`.
    """
    if mesh is not None:
        # propagated sharding, whatever the mesh's axis types: a sweep may gather over trades
        mesh = Mesh(mesh.devices, mesh.axis_names)
    chosen, unpriced = [], {}
    for batch in batches:
        found = _method_for(batch, market, models, methods, key)
        if isinstance(found, str):
            unpriced |= dict.fromkeys((trade.id for trade in batch.trades), found)
        else:
            chosen.append((batch, found))
    groups = []
    for batch, method in chosen:
        model = models[batch.model_names]
        method = method.prepared(batch.products, model, mesh)
        shape = _tile_shape(method, batch.products, budget, mesh)
        places = _places(batch, model, method, shape, parts)
        groups.append(TradeGroup(*batch, method=method, places=places, mesh=mesh, parts=parts))
    return groups, unpriced


def batches_of(trades: Sequence[Trade], market: Market) -> list[TradeBatch]:
    """Return the trades in as few batches as possible."""
    kinds: dict[Hashable, list[Trade]] = {}
    for trade in trades:
        kinds.setdefault((type(trade), trade.model_names, shape_key(trade)), []).append(trade)
    batches: dict[tuple, list[tuple[list[Trade], AbstractProduct]]] = {}
    for members in kinds.values():
        products = products_of(members, market)
        key_of_batch = members[0].model_names, *_program(products)
        batches.setdefault(key_of_batch, []).append((members, products))
    return [
        TradeBatch(
            names,
            tuple(trade for trades, _ in parts for trade in trades),
            _joined([products for _, products in parts]),
        )
        for (names, *_), parts in batches.items()
    ]


def _method_for(batch: TradeBatch, market: Market, models, methods, key) -> AbstractMethod | str:
    """Return the method that values a batch, or the reason why there is none."""
    model = models.get(batch.model_names)
    no_model = f"there is no model of {'|'.join(batch.model_names)}: {_lack(batch, market)}"
    if model is None:
        return no_model
    try:
        return select_method(batch.products, model, None, methods, key=key)
    except TypeError as error:
        has_law = not isinstance(model, RateCurves) or model.has_forward_curve
        return str(error) if has_law else no_model


def _lack(batch: TradeBatch, market: Market) -> str:
    """Return the reason why there is no model: dividends in a basket, or the error of the swaption vols."""
    paying = (market.equities.get(name) for name in batch.model_names)
    if len(batch.model_names) > 1 and any(e is not None and e.dividends for e in paying):
        return (
            "baskets are not valued on equities with dividends of known dates: give them as a yield"
        )
    of_vols = (error for error in market.errors if error.field.split(".")[0] == "swaption_vols")
    return str(next(of_vols, "the market lacks the quotes to fit it"))


def _program(products: AbstractProduct) -> tuple[Hashable, ...]:
    """Return the key of batches that can be joined: their structure, and the shape of one contract."""
    shapes = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(products))
    return jax.tree.structure(products), shapes


def _joined(batches: Sequence[AbstractProduct]) -> AbstractProduct:
    """Return batches of one structure concatenated to one batch."""
    columns = zip(*map(jax.tree.leaves, batches), strict=True)
    structure = jax.tree.structure(batches[0])
    return jax.tree.unflatten(structure, [np.concatenate(column) for column in columns])


def _tile_shape(
    method: AbstractMethod, products: AbstractProduct, budget: int, mesh: Mesh | None
) -> tuple[int, int]:
    """Return the rows of a tile and the trades of a row, chosen within a share of the budget.

    They depend only on the budget, the method and the kind of trade, so that programs and the order of sums are
    the same for any number of trades and cores, and, if the share allows, a device's program for any number of
    devices. The trades of a row on a device are a power of two, so that similar budgets share programs.

    Raises:
        BudgetTooSmall: The budget does not hold one trade per device.
    """
    devices = 1 if mesh is None else mesh.shape.get("trades", 1)
    trade_bytes, most, rows = method.tiling(products)
    if budget < trade_bytes * devices:
        raise BudgetTooSmall(
            f"a budget of {budget} bytes is below one trade per device of {method.name} "
            f"({trade_bytes * devices} bytes): give at least that"
        )
    share = budget // _TILES_IN_WORK
    a_device = max(1, min(most, share // (trade_bytes * devices)))
    return rows, devices * 2 ** (a_device.bit_length() - 1)


def _places(
    batch: TradeBatch,
    model: AbstractModel,
    method: AbstractMethod,
    shape: tuple[int, int],
    parts: Mapping[str, str],
) -> Integer[np.ndarray, "tiles rows trades"]:
    """Return the trade in each place of the tiles, -1 for padding; trades that share values are in bunches."""
    rows, trades = shape
    count, alike = len(batch.trades), None
    if method.group_size is not None:
        rows_in_place = np.minimum(np.arange(padded_rows(count)), count - 1)
        padded = jax.tree.map(operator.itemgetter(rows_in_place), batch.products)
        alike = np.stack(_alike(padded, model, method))[:, :count]
    members: dict[str, list[int]] = {}
    for place, trade in enumerate(batch.trades):
        members.setdefault(parts.get(trade.id, ""), []).append(place)
    tiles = []
    for own in map(np.array, members.values()):
        if alike is not None:
            bunches = _bunches(alike[:, own], group_size(method, trades))
            own = np.where(bunches < 0, -1, own[bunches])
        padding = -own.size % (rows * trades)
        tiles.append(np.append(own, np.full(padding, -1)).reshape(-1, rows, trades))
    return np.concatenate(tiles)


def _bunches(
    alike: Float[np.ndarray, "numbers trades"], size: int
) -> Integer[np.ndarray, " places"]:
    """Return the trades in bunches of one size with equal numbers, -1 for padding."""
    places = np.arange(alike.shape[1])
    order = np.lexsort(alike)
    is_first = np.any(np.diff(alike[:, order], prepend=np.nan) != 0.0, axis=0)
    within = places - np.maximum.accumulate(np.where(is_first, places, 0))
    bunch = np.cumsum(within % size == 0) - 1
    bunches = np.full((bunch[-1] + 1, size), -1)
    bunches[bunch, within % size] = order
    return bunches.ravel()


@stored_jit(runs_briefly=True)
def _alike(
    products: AbstractProduct, model: AbstractModel, method: AbstractMethod
) -> tuple[Array, ...]:
    """Return the numbers on which the trades of a bunch must agree, each [trades]."""
    return jax.vmap(lambda product: method.shared_key(product, model))(products)
