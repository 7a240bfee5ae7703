"""Fresh paths under a rule that is held: lower and upper bounds."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..numerics.safe_math import clipped, larger
from .backward import Rule
from .chain import At, Chain, at_date
from .nested_simulation import NestedPaths, martingale_increment, nested_increment

Paths = Float[Array, " paths"]


class Samples(NamedTuple):
    """Over paths (currency): of the rule's payoff less the martingale, and of the most that foresight gets."""

    lower: Paths
    upper: Paths


class _Walk(NamedTuple):
    """alive: the chance that the rule has not exercised yet."""

    at: At
    martingale: Paths
    alive: Paths
    lower: Paths
    upper: Paths


def follow(
    chain: Chain,
    rule: Rule,
    noise: Float[Array, "steps dim paths"],
    schedule: AbstractSchedule,
    nested: NestedPaths | None = None,
) -> Samples:
    """Return payoffs less the martingale M, over the numeraire: at the rule's exercise, and at the best date.

    The first has the mean of the payoff alone, by optional stopping, for any rule: a lower bound. The second,
    max_t (payoff_t - M_t), has a mean that no rule exceeds (Rogers 2002; Haugh and Kogan 2004). Were M that of
    the Doob decomposition, both would be the value on every path.

    The rule's decision is a chance, continuous in the state, and a sample its mean over the decisions: what
    the paths earn has no jump, so derivatives of samples are those of what the rule earns.

    nested: paths for the means of M's steps; None: M is made of functions with known means alone.
    """
    start = jnp.broadcast_to(chain.start[:, None], noise.shape[1:])
    none = jnp.zeros_like(start[0])
    today = chain.today()
    first = _Walk(At(start, today.claim_values(start)), none, none + 1.0, none, none - jnp.inf)
    first = _decide(today, at_date(rule, 0), first)

    def step(walk: _Walk, of_date):
        step, rule, pays, noise, shift = of_date
        state = step.advance(walk.at.state, noise)
        after = At(state, step.claim_values(state))
        if nested is None:
            moved = martingale_increment(step, rule, walk.at, after, noise)
        else:
            moved = nested_increment(step, rule, pays, walk.at, after, nested.points, shift)
        moved = walk._replace(at=after, martingale=walk.martingale + moved)
        return _decide(step, rule, moved), None

    shifts = None if nested is None else nested.shifts
    pays = chain.later().is_open.at[-1].set(True)
    later = chain.later(), at_date(rule, slice(1, None)), pays, noise, shifts
    walk, _ = jaxtape.scan(step, first, later, schedule=schedule)
    last = at_date(chain.steps, -1).exercise
    left = larger(last.of(last.branches(walk.at.state)), 0.0) - walk.martingale
    return Samples(walk.lower + walk.alive * left, larger(walk.upper, left))


def _decide(step, rule: Rule, walk: _Walk) -> _Walk:
    """Return the decision at a date."""
    paid = step.exercise.of(step.exercise.branches(walk.at.state))
    features = step.features(rule.basis, *walk.at)
    continuation = rule.basis.unit * (rule.continuation @ features)
    width = rule.basis.unit * rule.width
    chance = _ramp(0.5 * width + paid - continuation, width) * _ramp(paid, width)
    chance = jnp.where(step.is_open, chance, 0.0)
    gained = paid - walk.martingale
    return walk._replace(
        alive=walk.alive * (1.0 - chance),
        lower=walk.lower + walk.alive * chance * gained,
        upper=jnp.where(step.is_open, larger(walk.upper, gained), walk.upper),
    )


def _ramp(x: Paths, width: Float[Array, ""]) -> Paths:
    """Return a ramp from 0 at x = 0 to 1 at x = width."""
    wide = width > 0.0
    return jnp.where(
        wide, clipped(x / jnp.where(wide, width, 1.0), 0.0, 1.0), (x > 0.0).astype(x.dtype)
    )
