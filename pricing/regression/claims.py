"""Sums of exponentials of a Gaussian state: exercise payoffs, and claims on half-spaces."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..numerics import normal_law
from ..numerics.safe_math import divisor, larger, safe_sqrt, smaller

_MOST_ORDERED = 3

State = Float[Array, "dim paths"]
Row = tuple[Array, Array]  # a key and its value
Paths = Float[Array, " paths"]
Branches = Float[Array, "branches paths"]


class ExercisePayoff(eqx.Module):
    """The exercise payoff in state x, divided by the numeraire: the largest or smallest of several sums.

    The sums are e_b(x) = sum_i amounts[b, i] exp(slopes[i] . x), over branches b.

    sign: e = sign * worst_or_best_b(sign * e_b); best: whether to take the largest.
    """

    amounts: Float[Array, "*dates branches terms"]
    slopes: Float[Array, "*dates terms dim"]
    sign: Float[Array, "*dates"]
    best: bool = eqx.field(static=True, default=True)

    def branches(self, x: State) -> Branches:
        return self.amounts @ jnp.exp(self.slopes @ x)

    def of(self, branches: Branches) -> Paths:
        choose = larger if self.best else smaller
        return self.sign * functools.reduce(choose, self.sign * branches)

    def ordered(self, branches: Branches, x: State) -> Float[Array, "ordered paths"]:
        """Return the states of the most relevant branches, the paid one first; state i belongs to branch i."""
        keys = branches * (self.sign if self.best else -self.sign)
        return order_statistics(keys, x, min(_MOST_ORDERED, len(x)))

    def chosen(self, branches: Branches) -> Int[Array, " paths"]:
        choose = jnp.argmax if self.best else jnp.argmin
        return choose(self.sign * branches, axis=0)


class Claims(eqx.Module):
    """Claims that pay sum_i amounts[i] exp(slopes[i] . x) where normal . x > level, at their expiry.

    Arrays over claims. mean_left, covariance_left: those of the state's move from now to expiry, so that
    values, divided by the numeraire, are closed-form martingales. lives: 1 until expiry, 0 afterwards. The sums
    vanish on their planes, so that values are continuous and have zero derivatives to the planes.
    """

    amounts: Float[Array, "*dates claims terms"]
    slopes: Float[Array, "*dates claims terms dim"]
    normals: Float[Array, "*dates claims dim"]
    levels: Float[Array, "*dates claims"]
    mean_left: Float[Array, "*dates claims dim"]
    covariance_left: Float[Array, "*dates claims dim dim"]
    lives: Float[Array, "*dates claims"]

    def values(self, x: State) -> Float[Array, "claims paths"]:
        """Return values in currency."""
        return jax.vmap(lambda claim: claim._value(x))(self)

    def _value(self, x: State) -> Paths:
        """Return sum_i amounts_i E[exp(slopes_i . y) 1{normal . y > level}], y ~ N(x + mean, C).

        x is only multiplied by matrices, so that all claims are one product.
        """
        pull = self.covariance_left @ self.slopes.T  # [dim, terms]
        growth = self.slopes @ self.mean_left + 0.5 * jnp.sum(self.slopes.T * pull, axis=0)
        sizes = jnp.exp(self.slopes @ x + growth[:, None])
        shift = self.normals @ (pull + self.mean_left[:, None]) - self.levels
        distance = (self.normals @ x)[None] + shift[:, None]
        std = safe_sqrt(self.normals @ self.covariance_left @ self.normals)
        paid = self.amounts[:, None] * sizes * _beyond(distance, std)
        return self.lives * jnp.sum(paid, axis=0)


def _beyond(distance: Float[Array, "terms paths"], std: Float[Array, ""]) -> Array:
    """Return P(distance + std z > 0)."""
    moves = std > 0.0
    smooth = normal_law.cdf(distance / divisor(std))
    return jnp.where(moves, smooth, (distance > 0.0).astype(distance.dtype))


def order_statistics(keys: State, x: State, count: int) -> Float[Array, "count paths"]:
    """Return the `count` rows of x with the largest keys on each path, largest first.

    Which asset is best matters less than by how much. Neighbours are exchanged, because a sort is slow for few
    rows. The result is continuous in x where keys change order if rows with equal keys are equal.
    """
    pairs, first = list(zip(keys, x, strict=True)), []
    for _ in range(count):
        for i in range(len(pairs) - 1, 0, -1):
            pairs[i - 1], pairs[i] = _exchanged(pairs[i - 1], pairs[i])
        first.append(pairs.pop(0)[1])
    return jnp.stack(first)


def _exchanged(before: Row, after: Row) -> tuple[Row, Row]:
    """Return the two rows with the larger key first."""
    (key, x), (later_key, later_x) = before, after
    choose = functools.partial(jnp.where, later_key > key)
    largest = choose(later_key, key), choose(later_x, x)
    return largest, (choose(key, later_key), choose(x, later_x))
