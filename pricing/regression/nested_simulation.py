"""Nested simulation: means over a step by inner paths, for functions that have none in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ..numerics.safe_math import larger
from ..sampling.low_discrepancy import sobol_words
from ..sampling.threefry import random_bits
from ..sampling.transforms import inverse_normal
from .backward import Rule
from .chain import AbstractStep, At, State

Paths = Float[Array, " paths"]


class NestedPaths(NamedTuple):
    """Sobol' points under a random digital shift for each path and step: each is uniform whatever came before.

    Both are the first 32 bits of binary fractions.
    """

    points: UInt32[Array, "points dim"]
    shifts: UInt32[Array, "steps dim paths"]

    @classmethod
    def drawn(
        cls, num_points: int, shape: tuple[int, int, int], *, key: PRNGKeyArray
    ) -> "NestedPaths":
        """Draw the shifts; shape: steps, dim, paths."""
        points = sobol_words(None, num_points, shape[1]).reshape(shape[1], num_points)
        return cls(points.T, random_bits(key, shape))


def martingale_increment(
    step: AbstractStep, rule: Rule, before: At, after: At, noise: State
) -> Paths:
    """Return the martingale's step by functions whose means are known."""
    moves = step.martingale_increments(rule.basis, before, after, noise)
    return rule.basis.unit * (rule.hedge @ moves)


def nested_increment(
    step: AbstractStep,
    rule: Rule,
    pays: Bool[Array, ""],
    before: At,
    after: At,
    points: UInt32[Array, "points dim"],
    shift: UInt32[Array, "dim paths"],
) -> Paths:
    """Return the martingale's step: V after it less the mean of V - M over nested paths, M the known increment.

    V is what the rule's fit takes the option for, and M, of mean zero, takes out most of the noise. Given
    what came before, the mean is zero for any V and any number of points (Andersen and Broadie 2004).
    pays: whether exercise pays at this date.
    """

    @jax.checkpoint
    def add(total: Paths, point):
        noise = inverse_normal(point[:, None] ^ shift, total.dtype)
        state = step.advance(before.state, noise)
        drawn = At(state, step.claim_values(state))
        known = martingale_increment(step, rule, before, drawn, noise)
        return total + _value(step, rule, pays, drawn) - known, None

    value = _value(step, rule, pays, after)
    total, _ = jax.lax.scan(add, jnp.zeros_like(value), points)
    return value - total / len(points)


def _value(step: AbstractStep, rule: Rule, pays: Bool[Array, ""], at: At) -> Paths:
    """Return the value at the step's end: the larger of exercise and the fitted continuation value."""
    paid = step.exercise.of(step.exercise.branches(at.state))
    features = step.features(rule.basis, *at)
    continuing = rule.basis.unit * (rule.value @ features)
    return jnp.where(pays, larger(paid, continuing), continuing)
