"""Sums of the ys of consecutive nodes, for executors that return the y of every node."""

import jax.numpy as jnp

from .chain import Chain


def added_up(chain: Chain, out: tuple) -> tuple:
    """Return `(state, ys, ...)` with the ys summed as the chain asks."""
    state, ys, *rest = out
    return state, tuple(sums_of(y, chain.sum_ys) for y in ys), *rest


def of_each_node(chain: Chain, bars: tuple) -> tuple:
    """Return the cotangents of the last state and of each y from those of the last state and of the sums."""
    state_bar, ys_bar = bars
    if chain.sum_ys == 1:
        return bars
    return state_bar, tuple(jnp.repeat(bar, chain.sum_ys, axis=0) for bar in ys_bar)


def sums_of(y, count: int):
    """Return the sums of `count` consecutive arrays of a stack.

    Raises:
        TypeError: If it is a sum of Booleans or keys.
    """
    if count == 1:
        return y
    if not jnp.issubdtype(y.dtype, jnp.number):
        raise TypeError(f"sum_ys is {count}, and a y is of {y.dtype}: give y of numbers.")
    return jnp.sum(y.reshape(-1, count, *y.shape[1:]), axis=1, dtype=y.dtype)
