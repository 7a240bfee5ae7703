"""New paths under a fixed rule: lower and upper bounds, optionally with means over a step by inner paths."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

import jaxtape
from jaxtape import AbstractSchedule

from ..numerics.safe_math import clipped, larger
from ..sampling.low_discrepancy import sobol_words
from ..sampling.threefry import random_bits
from ..sampling.transforms import inverse_normal
from .backward import ExercisePolicy
from .claims import ExercisePayoff
from .exercise_problem import AbstractStep, ExerciseProblem, State, StepEnd, at_date

Paths = Float[Array, " paths"]


class BoundSamples(NamedTuple):
    """Samples over paths (currency): the rule's payoff less the martingale, and the maximum with foresight."""

    lower: Paths
    upper: Paths


class NestedPaths(NamedTuple):
    """Sobol' points with a random digital shift per path and step: each is uniform given the past.

    Points and shifts are the first 32 bits of binary fractions.
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


class PathState(NamedTuple):
    """alive: the probability that the rule has not yet exercised."""

    at: StepEnd
    martingale: Paths
    alive: Paths
    lower: Paths
    upper: Paths


def simulate_policy(
    chain: ExerciseProblem,
    rule: ExercisePolicy,
    noise: Float[Array, "steps dim paths"],
    schedule: AbstractSchedule,
    nested: NestedPaths | None = None,
) -> BoundSamples:
    """Return payoffs less the martingale M, over the numeraire, at the rule's exercise and at the best date.

    The first has the mean of the payoff, by optional stopping, for any rule: a lower bound. The mean of the
    second, max_t (payoff_t - M_t), is not exceeded by any rule (Rogers 2002; Haugh and Kogan 2004). If M were
    the martingale of the Doob decomposition, both would equal the value on every path. The `between` of an
    `ExerciseProblem` replaces the payoffs since the previous date, so that the second also bounds rights to
    exercise at any time.

    The rule's decision is a probability that is continuous in the state, and a sample is the mean over
    decisions. The payoff of a path has no jumps, so derivatives of samples are unbiased for derivatives of the
    rule's value.

    nested: paths for the means of M's steps; None if M only has functions with known means.
    """
    start = jnp.broadcast_to(chain.start[:, None], noise.shape[1:])
    none = jnp.zeros_like(start[0])
    today = chain.today()
    first = PathState(
        StepEnd(start, today.claim_values(start)), none, none + 1.0, none, none - jnp.inf
    )
    first = _decide(today, today.exercise, at_date(rule, 0), first)
    most = chain.steps.exercise if chain.between is None else chain.between

    def step(walk: PathState, of_date):
        step, most, rule, pays, noise, shift = of_date
        state = step.advance(walk.at.state, noise)
        after = StepEnd(state, step.claim_values(state))
        if nested is None:
            moved = _martingale_increment(step, rule, walk.at, after, noise)
        else:
            moved = _nested_increment(step, rule, pays, walk.at, after, nested.points, shift)
        moved = walk._replace(at=after, martingale=walk.martingale + moved)
        return _decide(step, most, rule, moved), None

    shifts = None if nested is None else nested.shifts
    pays = chain.later().is_open.at[-1].set(True)
    after_today = (at_date(tree, slice(1, None)) for tree in (most, rule))
    later = chain.later(), *after_today, pays, noise, shifts
    walk, _ = jaxtape.scan(step, first, later, schedule=schedule)
    earned, at_most = (
        larger(_paid(at_date(exercise, -1), walk.at.state), 0.0) - walk.martingale
        for exercise in (chain.steps.exercise, most)
    )
    return BoundSamples(walk.lower + walk.alive * earned, larger(walk.upper, at_most))


def _paid(exercise: ExercisePayoff, state: State) -> Paths:
    return exercise.of(exercise.branches(state))


def _decide(step, most: ExercisePayoff, rule: ExercisePolicy, walk: PathState) -> PathState:
    """Return the path state after the decision at a date; most: the largest value with foresight there."""
    paid = _paid(step.exercise, walk.at.state)
    features = step.features(rule.basis, *walk.at)
    continuation = rule.basis.unit * (rule.continuation @ features)
    width = rule.basis.unit * rule.width
    chance = _ramp(0.5 * width + paid - continuation, width) * _ramp(paid, width)
    chance = jnp.where(step.is_open, chance, 0.0)
    gained = paid - walk.martingale
    foreseen = _paid(most, walk.at.state) - walk.martingale
    return walk._replace(
        alive=walk.alive * (1.0 - chance),
        lower=walk.lower + walk.alive * chance * gained,
        upper=jnp.where(step.is_open, larger(walk.upper, foreseen), walk.upper),
    )


def _ramp(x: Paths, width: Float[Array, ""]) -> Paths:
    """Return a ramp from 0 at x = 0 to 1 at x = width."""
    wide = width > 0.0
    return jnp.where(
        wide, clipped(x / jnp.where(wide, width, 1.0), 0.0, 1.0), (x > 0.0).astype(x.dtype)
    )


def _martingale_increment(
    step: AbstractStep, rule: ExercisePolicy, before: StepEnd, after: StepEnd, noise: State
) -> Paths:
    """Return the martingale's step from functions with known means."""
    moves = step.martingale_increments(rule.basis, before, after, noise)
    return rule.basis.unit * (rule.hedge @ moves)


def _nested_increment(
    step: AbstractStep,
    rule: ExercisePolicy,
    pays: Bool[Array, ""],
    before: StepEnd,
    after: StepEnd,
    points: UInt32[Array, "points dim"],
    shift: UInt32[Array, "dim paths"],
) -> Paths:
    """Return the martingale's step: V after it less the mean of V - M over nested paths (M: known increment).

    V is the option's value according to the rule's fit, and the zero-mean M removes most of the noise. Given
    the past, the step has zero mean for any V and any number of points (Andersen and Broadie 2004). pays:
    whether exercise pays at this date.
    """

    @jax.checkpoint
    def add(total: Paths, point):
        noise = inverse_normal(point[:, None] ^ shift, total.dtype)
        state = step.advance(before.state, noise)
        drawn = StepEnd(state, step.claim_values(state))
        known = _martingale_increment(step, rule, before, drawn, noise)
        return total + _value(step, rule, pays, drawn) - known, None

    value = _value(step, rule, pays, after)
    total, _ = jax.lax.scan(add, jnp.zeros_like(value), points)
    return value - total / len(points)


def _value(step: AbstractStep, rule: ExercisePolicy, pays: Bool[Array, ""], at: StepEnd) -> Paths:
    """Return the value at the step's end: the larger of exercise and the fitted continuation value."""
    paid = step.exercise.of(step.exercise.branches(at.state))
    features = step.features(rule.basis, *at)
    continuing = rule.basis.unit * (rule.value @ features)
    return jnp.where(pays, larger(paid, continuing), continuing)
