"""The derivatives of trades that share random paths, all in one pass over the blocks of paths.

A block's noise is drawn and its paths are simulated once for all trades of a tile; samples are computed row by
row. Each row is linearized at once: forward along a few directions for each trade's Greeks, and in reverse for
the sum of the trades.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from ...fields import rolled
from ...methods import AbstractMethod
from ...models import AbstractModel
from ...products import AbstractProduct
from ...sensitivities import directions
from ...valuation import mean_and_error
from .groups import MeasureArrays


class TileRows(NamedTuple):
    """Trades under one model, [rows, trades]; axis: 0 if each trade has its own method, else None."""

    products: AbstractProduct
    methods: AbstractMethod
    axis: int | None
    key: PRNGKeyArray

    def row(self, index: Array) -> "TileRows":
        """Return one row, [trades]."""
        methods = self.methods if self.axis is None else _at(self.methods, index)
        return self._replace(products=_at(self.products, index), methods=methods)

    def setup(self, model: AbstractModel, age: Array) -> PyTree:
        """Return the setup of every trade of a row, which all blocks share."""

        def of_one(product, method):
            product, method = rolled(product, age), rolled(method, age)
            return method.setup(product, model, key=self.key)

        return jax.vmap(of_one, in_axes=(0, self.axis))(self.products, self.methods)

    def paths(self, setup: PyTree, model: AbstractModel, age: Array, index: Array):
        """Return the part of a block of paths that all trades share."""
        first = self.row(jnp.zeros((), jnp.int32))
        method = first.methods if self.axis is None else _at(first.methods, 0)
        product, method = rolled(_at(first.products, 0), age), rolled(method, age)
        return method.paths(product, model, _at(_at(setup, 0), 0), index, key=self.key)

    def samples(self, setup: PyTree, paths: PyTree, model: AbstractModel, age: Array) -> Array:
        """Return the samples of one row in one block, [trades, samples]."""

        def of_one(product, method, setup):
            product, method = rolled(product, age), rolled(method, age)
            return method.block_samples(product, model, setup, paths, key=self.key)

        axes = 0, self.axis, 0
        return jax.vmap(of_one, in_axes=axes)(self.products, self.methods, setup)


def block_sweep(
    batch: TileRows,
    weights: Float[Array, "rows trades"],
    filled: Integer[Array, ""],
    model: AbstractModel,
    vol: AbstractModel,
    rate: AbstractModel,
    has_gamma: bool,
) -> tuple[MeasureArrays, MeasureArrays, AbstractModel]:
    """Return the measures of every trade, their standard errors, and d(weights . values) / d(model).

    filled: The number of rows that are computed; the others are 0.

    Second derivatives are taken only to the spots. The shared paths, relative to the forward, do not depend on
    the spots and are differentiated only once.
    """
    zero, at = jnp.zeros((), model.underlying.dtype), jnp.zeros_like(model.underlying)
    basis = jnp.eye(at.size, dtype=at.dtype).reshape(at.size, *at.shape)
    stacked = directions(model, vol, rate)
    of_rows = functools.partial(jax.tree.map, lambda x: jnp.moveaxis(x, 1, 0))  # [rows, directions]

    def with_slopes(function, primals, tangents):
        """Return the value of a function and, for Gamma, its slopes along each spot on a leading axis."""
        if not has_gamma:
            return function(*primals), None
        along = lambda *tangents: jax.jvp(function, primals, tangents)
        return jax.vmap(along, out_axes=(None, 0))(*tangents)

    def before(model, age):
        def of_row(place):
            row = batch.row(place)
            of_shift = lambda shift: row.setup(model.shifted(underlying=shift), age)
            return with_slopes(of_shift, (at,), (basis,))

        return jax.vmap(of_row)(jnp.arange(len(weights)))

    shared, shared_moves = jax.linearize(before, model, zero)
    shared_dots = of_rows(jax.vmap(shared_moves)(*stacked))

    def of_block(index):
        of_model = functools.partial(batch.paths, shared[0], index=index)
        paths, paths_moves, noise = jax.linearize(of_model, model, zero, has_aux=True)
        paths_dots = jax.vmap(paths_moves)(*stacked)

        @jax.jit  # traced once for its shapes and for the loop
        def of_row(place):
            row = batch.row(place)

            def within(shared, paths, model, age):
                def of_shift(setup, shift):
                    shifted = model.shifted(underlying=shift)
                    return row.samples(setup, (paths, noise), shifted, age)

                return with_slopes(of_shift, (shared[0], at), (shared[1], basis))

            (values, _), moves = jax.linearize(within, _at(shared, place), paths, model, zero)
            value_moves = lambda *tangents: moves(*tangents)[0]
            moved = _at(shared_dots, place), paths_dots, *stacked
            slopes = jax.vmap(value_moves)(*moved)
            curved = None
            if has_gamma:
                of_spots = jax.tree.map(lambda x: x[: at.size], moved)
                curved = jax.vmap(lambda *tangents: moves(*tangents)[1])(*of_spots)
            share = jnp.broadcast_to(weights[place][:, None] / values.shape[1], values.shape)
            bars = jax.linear_transpose(value_moves, _at(shared, place), paths, model, zero)
            shared_bar, *bars, _ = bars(share)
            return (values, slopes, curved, shared_bar), bars

        def with_row(place, found):
            (of_each, of_all), (row, bars) = found, of_row(place)
            of_each = jax.tree.map(lambda rows, x: rows.at[place].set(x), of_each, row)
            return of_each, jax.tree.map(jnp.add, of_all, bars)

        row, bars = jax.eval_shape(of_row, jnp.zeros_like(filled))
        of_each = jax.tree.map(lambda x: jnp.zeros((len(weights), *x.shape), x.dtype), row)
        of_all = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), bars)
        found = jax.lax.fori_loop(jnp.zeros_like(filled), filled, with_row, (of_each, of_all))
        (*samples, shared_bar), (paths_bar, bar) = found
        through, _ = jax.linear_transpose(paths_moves, model, zero)(paths_bar)
        return samples, shared_bar, jax.tree.map(jnp.add, bar, through)

    samples, *bars = batch.methods.over_blocks(of_block)
    shared_bar, bar = jax.tree.map(functools.partial(jnp.mean, axis=0), bars)
    through, _ = jax.linear_transpose(shared_moves, model, zero)(shared_bar)
    values, slopes, curved = samples
    figures, errors = _figures(values, slopes, curved, model, batch.methods)
    return figures, errors, jax.tree.map(jnp.add, bar, through)


def _figures(values, slopes, curved, model, method) -> tuple[MeasureArrays, MeasureArrays]:
    """Return means and standard errors of samples [blocks, rows, *directions, trades, samples of a block]."""
    of_spot = model.underlying.shape
    count = model.underlying.size

    def summary(x: Array, *shape: int) -> tuple[Array, Array]:
        """Return figures [rows, trades, *shape]."""
        x = jnp.moveaxis(x, (0, -1, 1, -2), (0, 1, 2, 3))
        return mean_and_error(x.reshape(-1, *x.shape[2:4], *shape), method)

    columns = {"value": summary(values), "delta": summary(slopes[:, :, :count], *of_spot)}
    if curved is not None:
        curved = 0.5 * (curved + jnp.swapaxes(curved, 2, 3))
        columns["gamma"] = summary(curved, *of_spot, *of_spot)
    for place, name in enumerate(("vega", "rho", "theta"), count):
        columns[name] = summary(slopes[:, :, place])
    means, errors = ({name: pair[i] for name, pair in columns.items()} for i in (0, 1))
    return means, errors


def _at(tree: PyTree, place: Integer[Array, ""] | int) -> PyTree:
    return jax.tree.map(lambda x: x[place], tree)
