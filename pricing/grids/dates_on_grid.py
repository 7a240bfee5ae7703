"""The dates at which a grid solution changes: ex-dates of dividends, and exercise dates."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..market import Dividends


class DateOnGrid(eqx.Module):
    """A date with a dividend, then a right to exercise; stacked, the latest first.

    time: years; before: the previous date, 0 for the first; cash, proportion: the dividend, 0 without one;
    is_date: 1 with a right to exercise, else 0.
    """

    time: Array
    before: Array
    cash: Array
    proportion: Array
    is_date: Array


def dates_of(
    ends: Float[Array, " periods"], is_date: Float[Array, " periods"], dividends: Dividends
) -> DateOnGrid:
    """Return the ex-dates and the ends of periods, in order.

    An ex-date that is not between now and expiry pays nothing. It is placed somewhere in between, so that its
    steps refine the grid.
    """
    expiry, count = ends[-1], dividends.times.size
    between = expiry * jnp.arange(1, count + 1, dtype=dividends.times.dtype) / (count + 1)
    zeros = jnp.zeros_like(dividends.times)
    counts = (dividends.times > 0.0) & (dividends.times <= expiry)
    amounts = [
        zeros if x is None else jnp.where(counts, x, 0.0)
        for x in (dividends.cash, dividends.proportions)
    ]
    times = jnp.concatenate([jnp.where(counts, dividends.times, between), ends])
    order = jnp.argsort(times, stable=True)  # on one day the dividend comes first
    nothing = jnp.zeros_like(ends)
    columns = [times, *(jnp.concatenate([x, nothing]) for x in amounts)]
    columns.append(jnp.concatenate([zeros, is_date]))
    time, cash, proportion, is_date = (x[order] for x in columns)
    before = jnp.concatenate([jnp.zeros_like(time[:1]), time[:-1]])
    return jax.tree.map(lambda x: x[::-1], DateOnGrid(time, before, cash, proportion, is_date))
