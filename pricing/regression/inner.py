"""Means over a step by inner points, for functions that have none in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ..numerics.safe_math import larger
from ..sampling.low_discrepancy import sobol_words
from ..sampling.threefry import random_bits
from ..sampling.transforms import inverse_normal
from .backward import Rule
from .chain import AbstractStep, Quotes, State

Paths = Float[Array, " paths"]


class InnerPoints(NamedTuple):
    """Sobol' points under a random digital shift for each path and step: each is uniform whatever came before.

    Both are the first 32 bits of binary fractions.
    """

    points: UInt32[Array, "points dim"]
    shifts: UInt32[Array, "steps dim paths"]

    @classmethod
    def drawn(
        cls, key: PRNGKeyArray, num_points: int, shape: tuple[int, int, int]
    ) -> "InnerPoints":
        """shape: steps, dim, paths."""
        points = sobol_words(None, num_points, shape[1]).reshape(shape[1], num_points)
        return cls(points.T, random_bits(key, shape))


class At(NamedTuple):
    """An end of a step."""

    state: State
    quotes: Quotes


def move(step: AbstractStep, rule: Rule, before: At, after: At, noise: State) -> Paths:
    """The martingale's step by functions whose means are known."""
    quoted = before.quotes, after.quotes
    moves = step.moves(rule.frame, before.state, after.state, noise, quoted)
    return rule.frame.unit * (rule.hedge @ moves)


def inner_move(
    step: AbstractStep,
    rule: Rule,
    pays: Bool[Array, ""],
    before: At,
    after: At,
    points: UInt32[Array, "points dim"],
    shift: UInt32[Array, "dim paths"],
) -> Paths:
    """The martingale's step: V after it less the mean of V - `move` over inner points.

    V is what the rule's fit takes the option for, and `move`, of mean zero, takes out most of the noise. Given
    what came before, the mean is zero for any V and any number of points (Andersen and Broadie 2004).
    pays: whether exercise pays at this date.
    """

    @jax.checkpoint
    def add(total: Paths, point):
        noise = inverse_normal(point[:, None] ^ shift, total.dtype)
        state = step.advance(before.state, noise)
        drawn = At(state, step.quotes(state))
        known = move(step, rule, before, drawn, noise)
        return total + _worth(step, rule, pays, drawn) - known, None

    worth = _worth(step, rule, pays, after)
    total, _ = jax.lax.scan(add, jnp.zeros_like(worth), points)
    return worth - total / len(points)


def _worth(step: AbstractStep, rule: Rule, pays: Bool[Array, ""], at: At) -> Paths:
    """The larger of what exercise pays and what continuing is worth by the rule's fit: 0 at the last date."""
    paid = step.exercise.of(step.exercise.branches(at.state))
    features = step.features(rule.frame, at.state, at.quotes)
    continuing = rule.frame.unit * (rule.worth @ features)
    return jnp.where(pays, larger(paid, continuing), continuing)
