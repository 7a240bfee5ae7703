"""The derivatives of trades that share random paths: one pass over the blocks of paths gives all of them.

A block is drawn once, and its samples are computed once, for all trades of a tile. While it is there it is
linearized: forward along a few directions for each trade's Greeks, in reverse for the sum of the trades.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..fields import rolled
from ..methods.method import Blocked
from ..models import AbstractModel
from ..products import AbstractProduct
from ..sensitivities import underlying_directions
from ..valuation import mean_and_error

Figures = dict[str, Array]


class Batch(NamedTuple):
    """Trades under one model; axis: 0 if each has a method of its own, else None."""

    products: AbstractProduct
    methods: Blocked
    axis: int | None
    key: PRNGKeyArray

    def prologue(self, model: AbstractModel, age: Array) -> PyTree:
        """Return what all blocks share, of every trade."""

        def of_one(product, method):
            product, method = rolled(product, age), rolled(method, age)
            return method.prologue(product, model, key=self.key)

        return jax.vmap(of_one, in_axes=(0, self.axis))(self.products, self.methods)

    def samples(self, prologue: PyTree, model: AbstractModel, age: Array, index: Array) -> Array:
        """Return the samples of one block, [trades, samples]."""

        def of_one(product, method, prologue):
            product, method = rolled(product, age), rolled(method, age)
            return method.block_samples(product, model, prologue, index, key=self.key)

        axes = 0, self.axis, 0
        return jax.vmap(of_one, in_axes=axes)(self.products, self.methods, prologue)


def block_sweep(
    batch: Batch,
    weights: Float[Array, " trades"],
    model: AbstractModel,
    vol: AbstractModel,
    rate: AbstractModel,
    has_gamma: bool,
) -> tuple[Figures, Figures, AbstractModel]:
    """Return the measures of every trade, their standard errors, and d(weights . values) / d(model).

    Of second derivatives it takes those to the spots alone, so that the paths of the variance, which do not
    depend on them, are differentiated once.
    """
    zero, at = jnp.zeros((), model.underlying.dtype), jnp.zeros_like(model.underlying)
    basis = jnp.eye(at.size, dtype=at.dtype).reshape(at.size, *at.shape)
    still = jax.tree.map(jnp.zeros_like, model)
    directions = [*((spot, zero) for spot in underlying_directions(model))]
    directions += [(vol, zero), (rate, zero), (still, jnp.ones_like(zero))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *directions)

    def with_slopes(function, primals, tangents):
        """Return a function and, for Gamma, its slopes along each spot, on an axis in front."""
        if not has_gamma:
            return function(*primals), None
        along = lambda *tangents: jax.jvp(function, primals, tangents)  # noqa: E731
        return jax.vmap(along, out_axes=(None, 0))(*tangents)

    def before(model, age):
        of_shift = lambda shift: batch.prologue(model.shifted(underlying=shift), age)  # noqa: E731
        return with_slopes(of_shift, (at,), (basis,))

    def within(shared, model, age, index):
        def of_shift(prologue, shift):
            return batch.samples(prologue, model.shifted(underlying=shift), age, index)

        return with_slopes(of_shift, (shared[0], at), (shared[1], basis))

    shared, shared_moves = jax.linearize(before, model, zero)
    moved = jax.vmap(shared_moves)(*stacked), *stacked

    def of_block(index):
        of_index = functools.partial(within, index=index)
        (values, _), moves = jax.linearize(of_index, shared, model, zero)
        value_moves = lambda *tangents: moves(*tangents)[0]  # noqa: E731
        slopes = jax.vmap(value_moves)(*moved)
        curved = None
        if has_gamma:
            of_spots = jax.tree.map(lambda x: x[: at.size], moved)
            curved = jax.vmap(lambda *tangents: moves(*tangents)[1])(*of_spots)
        share = jnp.broadcast_to(weights[:, None] / values.shape[1], values.shape)
        bars = jax.linear_transpose(value_moves, shared, model, zero)(share)
        return (values, slopes, curved), bars

    (values, slopes, curved), bars = batch.methods.over_blocks(of_block)
    shared_bar, bar, _ = jax.tree.map(functools.partial(jnp.mean, axis=0), bars)
    through, _ = jax.linear_transpose(shared_moves, model, zero)(shared_bar)
    figures, errors = _figures(values, slopes, curved, model, batch.methods)
    return figures, errors, jax.tree.map(jnp.add, bar, through)


def _figures(values, slopes, curved, model, method) -> tuple[Figures, Figures]:
    """Return means and standard errors of samples [blocks, *directions, trades, samples of a block]."""
    of_spot = model.underlying.shape
    count = model.underlying.size

    def summary(x: Array, *shape: int) -> tuple[Array, Array]:
        x = jnp.moveaxis(x, (0, -1, -2), (0, 1, 2))
        return mean_and_error(x.reshape(-1, x.shape[2], *shape), method)

    columns = {"value": summary(values), "delta": summary(slopes[:, :count], *of_spot)}
    if curved is not None:
        curved = 0.5 * (curved + jnp.swapaxes(curved, 1, 2))
        columns["gamma"] = summary(curved, *of_spot, *of_spot)
    for place, name in enumerate(("vega", "rho", "theta"), count):
        columns[name] = summary(slopes[:, place])
    means, errors = ({name: pair[i] for name, pair in columns.items()} for i in (0, 1))
    return means, errors
