"""Backward regression: an exercise rule and a martingale, fitted on separate paths and then fixed."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..numerics.safe_math import larger
from ..numerics.standardizer import Standardizer
from ..sampling import normals
from .exercise_problem import Basis, ExerciseProblem, State, StepEnd, at_date
from .half_spaces import HalfSpaces
from .solve import least_squares

Paths = Float[Array, " paths"]

_WIDTH = 0.5  # relative to the residual deviation of the fit of the rule
_OUT_OF_THE_MONEY = 1e-3  # weight of paths on which exercise pays nothing, in the fit of the rule


class ExercisePolicy(eqx.Module):
    """A stopping rule and a martingale, stacked over dates, today first; fitted and then fixed.

    Exercise if the payoff exceeds both 0 and unit * continuation . features(state); if their difference is
    below unit * width, with a probability that increases with it. The martingale's step to a date is unit *
    hedge . moves (the hedge to today is zero). unit * value . features is the continuation value fitted to all
    paths equally, not for the decision.
    """

    basis: Basis
    continuation: Float[Array, "*dates features"]
    hedge: Float[Array, "*dates moves"]
    value: Float[Array, "*dates features"]
    width: Float[Array, "*dates"]


def fit(
    chain: ExerciseProblem, num_paths: int, degree: int, *, key: PRNGKeyArray
) -> ExercisePolicy:
    """Fit like Longstaff and Schwartz (2001), with a martingale among the regressors.

    At each date the values of later cash flows, less the later moves of the martingale, are regressed on
    features of the state and on zero-mean moves to the next date. The moves reduce the noise, and their part of
    the fit is the martingale's step. The remainder is regressed again on the features where exercise pays, for
    the rule.
    """
    states, noise = _paths(chain, num_paths, key=key)
    claim_values = jax.vmap(lambda step, x: step.claim_values(x))(chain.steps, states)
    last = at_date(chain.steps, -1).exercise
    paid = larger(last.of(last.branches(states[-1])), 0.0)
    unit = jnp.sqrt(jnp.mean(paid**2))
    unit = jnp.where(unit > 0.0, unit, 1.0)
    bases = _bases(chain, states, unit, degree)

    def step_back(later: tuple[Array, HalfSpaces], of_date):
        later_values, half_spaces = later  # values divided by `unit`
        (step, basis, after, noise), (earlier, basis_before, before) = of_date
        basis = eqx.tree_at(lambda f: f.half_spaces, basis, half_spaces)
        features = earlier.features(basis_before, *before)
        moves = step.martingale_increments(basis, before, after, noise)
        both = least_squares(jnp.concatenate([features, moves]), later_values)
        hedge, value = both[len(features) :], both[: len(features)]
        left = later_values - hedge @ moves
        values, planes, continuation, width = _decide(
            earlier, basis_before, before.state, features, left
        )
        return (values, planes), (hedge, value, half_spaces, continuation, width)

    dates = chain.steps, bases, StepEnd(states, claim_values)
    xs = (*at_date(dates, slice(1, None)), noise), at_date(dates, slice(-1))
    at_end = at_date(bases, -1)
    branches = last.branches(states[-1])
    gain = last.of(branches) / unit
    u, everywhere = at_end.standardized(states[-1]), jnp.ones_like(gain, bool)
    planes = HalfSpaces.between(u, gain, everywhere, last.chosen(branches), len(branches))
    _, (hedge, value, planes, continuation, width) = jax.lax.scan(
        step_back, (paid / unit, planes), xs, reverse=True
    )
    today = at_date(bases.half_spaces, slice(1))
    planes = jax.tree.map(lambda *parts: jnp.concatenate(parts), today, planes)
    none_after = lambda rows: jnp.concatenate([rows, jnp.zeros_like(rows[:1])])
    return ExercisePolicy(
        eqx.tree_at(lambda f: f.half_spaces, bases, planes),
        none_after(continuation),
        jnp.concatenate([jnp.zeros_like(hedge[:1]), hedge]),
        none_after(value),
        none_after(width),
    )


def _decide(step, basis: Basis, x: State, features, left: Paths):
    """Return the values at a date after its exercise decision, and its rule; all divided by unit."""
    branches = step.exercise.branches(x)
    paid = step.exercise.of(branches) / basis.unit
    in_the_money = paid > 0.0
    weights = jnp.where(in_the_money, 1.0, _OUT_OF_THE_MONEY).astype(paid.dtype)
    continuation = least_squares(features, left, weights)
    gain = paid - continuation @ features
    missed = weights * (left - continuation @ features) ** 2
    width = _WIDTH * jnp.sqrt(jnp.sum(missed) / larger(jnp.sum(weights), 1.0))
    exercised = step.is_open & in_the_money & (gain > 0.0)
    chosen = step.exercise.chosen(branches)
    gain = jnp.where(step.is_open, gain, -1.0)
    planes = HalfSpaces.between(
        basis.standardized(step.coordinates(x)), gain, in_the_money, chosen, len(branches)
    )
    return jnp.where(exercised, paid, left), planes, continuation, width


def _paths(chain: ExerciseProblem, num_paths: int, *, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Return states (dates, dim, paths) from dispersed starting states, and the noise of their steps."""
    shape = (chain.num_steps + 1, chain.start.size, num_paths)
    noise = normals(key, shape, chain.start.dtype)
    start = chain.start[:, None] + chain.initial_dispersion @ noise[0]

    def advance(state: State, of_step):
        step, noise = of_step
        state = step.advance(state, noise)
        return state, state

    _, later = jax.lax.scan(advance, start, (chain.later(), noise[1:]))
    return jnp.concatenate([start[None], later]), noise[1:]


def _bases(
    chain: ExerciseProblem, states: Float[Array, "dates dim paths"], unit: Array, degree: int
) -> Basis:
    """Return the bases of all dates, with half-spaces still to be set."""
    dates, dim, _ = states.shape
    nowhere = HalfSpaces.nowhere(chain.num_branches, dim, states.dtype)
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x, (dates, *x.shape)), nowhere)

    def of_date(step, x: State):
        ordered = None
        if chain.num_branches > 1:
            ordered = Standardizer.of(step.exercise.ordered(step.exercise.branches(x), x))
        return Standardizer.of(step.coordinates(x)), ordered

    state, ordered = jax.vmap(of_date)(chain.steps, states)
    return Basis(state, ordered, repeated, jnp.broadcast_to(unit, (dates,)), degree)
