"""Early exercise as a Markov chain: states at dates, exercise payoffs, closed-form martingales."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics.safe_math import safe_sqrt
from ..numerics.standardizer import Standardizer
from .claims import Claims, ExercisePayoff, State
from .half_spaces import HalfSpaces
from .polynomials import Indices, heat_polynomials, hermite_polynomials, identity, multi_indices

DISPERSION = 0.05  # variance of a fit's starting states as a share of the variance at expiry
_ORDERED_DEGREE = 4
# number of factors, at most -> degree
_DEGREES = ((2, 6), (3, 4), (5, 3), (12, 2), (float("inf"), 1))

Functions = Float[Array, "functions paths"]
ClaimValues = Float[Array, "claims paths"]


class StepEnd(NamedTuple):
    """An end of a step."""

    state: State
    claim_values: ClaimValues


class Basis(eqx.Module):
    """The functions of standardized states in a regression at one date; fitted and then fixed.

    ordered: the standardizer of states in the order of their payoffs; None if exercise pays a single sum. unit:
        in currency.
    """

    standardized: Standardizer
    ordered: Standardizer | None
    half_spaces: HalfSpaces
    unit: Float[Array, "*dates"]
    degree: int = eqx.field(static=True)

    @property
    def indices(self) -> Indices:
        return multi_indices(self.standardized.mean.shape[-1], self.degree)

    def smooth_increments(
        self, seen: State, mean: State, spread: Any, std: Array, indices: Indices
    ) -> tuple[Functions, Float[Array, "powers paths"]]:
        """Return heat polynomials and truncated powers, less their means over a Gaussian step.

        seen: the standardized state after the step; mean: the same without its noise; spread: the identity less
        the noise's covariance; std: that of the noise across each plane.
        """
        polynomials = heat_polynomials(seen, identity(len(seen)), indices)
        means = heat_polynomials(mean, spread, indices)
        powers = self.half_spaces.truncated_powers(seen)
        mean_powers = self.half_spaces.mean_truncated_powers(mean, std)
        return polynomials - means, powers - mean_powers


class AbstractStep(eqx.Module):
    """The step to a date of the chain, on which exercise is possible if `is_open`.

    Dates are stacked: every leaf has a leading axis of dates, over which loops run. The first is today, whose
    step does not move. At the last, regardless of `is_open`, the exercise payoff is paid if positive. scale:
    the size of values divided by the numeraire.
    """

    exercise: ExercisePayoff
    is_open: Bool[Array, "*dates"]
    scale: Float[Array, "*dates"]

    @abc.abstractmethod
    def advance(self, before: State, noise: State) -> State:
        """Return the state at this date, from the one before and standard normals."""

    @abc.abstractmethod
    def claim_values(self, x: State) -> ClaimValues:
        """Return values of claims at this date, divided by the numeraire, or approximations, as features."""

    @abc.abstractmethod
    def martingale_increments(
        self, basis: Basis, before: StepEnd, after: StepEnd, noise: State
    ) -> Functions:
        """Return functions of the step with zero mean for any `before`, divided by the basis's unit."""

    @property
    def usual_degree(self) -> int:
        """The degree of the polynomials, which keeps their number below 100 for up to 12 factors."""
        factors = self.exercise.slopes.shape[-1]
        return next(degree for most, degree in _DEGREES if factors <= most)

    def coordinates(self, x: State) -> State:
        """Return the coordinates of the state for the basis."""
        return x

    def features(self, basis: Basis, x: State, claim_values: ClaimValues) -> Functions:
        """Return the regressors of the continuation value, starting with a constant."""
        branches = self.exercise.branches(x)
        u = basis.standardized(self.coordinates(x))
        polynomials = [hermite_polynomials(u, basis.degree)]
        paid = [branches]
        if basis.ordered is not None:
            ordered = basis.ordered(self.exercise.ordered(branches, x))
            polynomials.append(hermite_polynomials(ordered, _ORDERED_DEGREE)[1:])
            paid.append(self.exercise.of(branches)[None])
        smooth = [self.scale * p for p in polynomials]
        return jnp.concatenate([*smooth, *(e / basis.unit for e in (claim_values, *paid))])


class GaussianStep(AbstractStep):
    """x' = x + drift + factor @ noise; functions see x - shift.

    Martingale moves: heat polynomials of the state, truncated powers beyond the basis's planes, and claims. All
    are functions of the later state less their closed-form means (regression later: Glasserman and Yu 2004).
    """

    drift: Float[Array, "*dates dim"]
    factor: Float[Array, "*dates dim dim"]
    shift: Float[Array, "*dates dim"]
    claims: Claims

    def advance(self, before: State, noise: State) -> State:
        return before + self.drift[:, None] + self.factor @ noise

    def coordinates(self, x: State) -> State:
        return x - self.shift[:, None]

    def claim_values(self, x: State) -> ClaimValues:
        return self.claims.values(x)

    def martingale_increments(
        self, basis: Basis, before: StepEnd, after: StepEnd, noise: State
    ) -> Functions:
        del noise
        seen = basis.standardized(self.coordinates(after.state))
        mean = basis.standardized(self.coordinates(before.state + self.drift[:, None]))
        loading = basis.standardized.whitening @ self.factor
        spread = jnp.eye(len(seen), dtype=seen.dtype) - loading @ loading.T
        std = safe_sqrt(jnp.sum((basis.half_spaces.normals @ loading) ** 2, axis=-1))
        smooth = basis.smooth_increments(seen, mean, spread, std, basis.indices[1:])
        gained = after.claim_values - before.claim_values
        moved = self.claims.lives[:, None] * gained / basis.unit
        return jnp.concatenate([*(self.scale * moves for moves in smooth), moved])


class ExerciseProblem(eqx.Module):
    """start: today's state; initial_dispersion: a factor of the covariance of a fit's starting states.

    between: an upper bound, at a date, of the value of exercise at any time since the previous date; None if
        exercise is possible only on dates.
    """

    start: Float[Array, " dim"]
    initial_dispersion: Float[Array, "dim dim"]
    steps: AbstractStep
    between: ExercisePayoff | None = None

    @property
    def num_steps(self) -> int:
        return self.steps.is_open.shape[0] - 1

    @property
    def num_branches(self) -> int:
        return self.steps.exercise.amounts.shape[-2]

    def today(self) -> AbstractStep:
        return at_date(self.steps, 0)

    def later(self) -> AbstractStep:
        return at_date(self.steps, slice(1, None))


def at_date(tree, where):
    """Return a stacked tree at one date or a slice of dates."""
    return jax.tree.map(lambda leaf: leaf[where], tree)
