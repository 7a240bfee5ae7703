"""Early exercise as a Markov chain: states at dates, exercise payoffs, martingales in closed form."""

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

DISPERSION = 0.05  # share of the variance at expiry by which the starts of a fit are spread
_ORDERED_DEGREE = 4
# up to this number of factors, this degree
_DEGREES = ((2, 6), (3, 4), (5, 3), (12, 2), (float("inf"), 1))

Functions = Float[Array, "functions paths"]
ClaimValues = Float[Array, "claims paths"]


class StepEnd(NamedTuple):
    """An end of a step."""

    state: State
    claim_values: ClaimValues


class Basis(eqx.Module):
    """The functions of a regression at one date, of standardized states; fitted, then held.

    ordered: the standardizer of states in the order of their payoffs; None: exercise pays one sum only. unit:
        currency.
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
        """Return heat polynomials, and powers beyond the planes, less their means over a Gaussian step.

        seen: standardized, after the step; mean: the same without its noise; spread: the identity less the
        noise's covariance; std: of the noise across each plane.
        """
        polynomials = heat_polynomials(seen, identity(len(seen)), indices)
        means = heat_polynomials(mean, spread, indices)
        powers = self.half_spaces.truncated_powers(seen)
        mean_powers = self.half_spaces.mean_truncated_powers(mean, std)
        return polynomials - means, powers - mean_powers


class AbstractStep(eqx.Module):
    """From one date of the chain to the next, on which it may be exercised if `is_open`.

    Dates are stacked: every leaf has an axis of dates in front, which a loop over dates takes away. The first
    of them is today, whose step does not move; at the last, whatever `is_open`, the exercise payoff is paid if
    it is positive. scale: the size of values over the numeraire.
    """

    exercise: ExercisePayoff
    is_open: Bool[Array, "*dates"]
    scale: Float[Array, "*dates"]

    @abc.abstractmethod
    def advance(self, before: State, noise: State) -> State:
        """Return the state at this date, from the one before and standard normals."""

    @abc.abstractmethod
    def claim_values(self, x: State) -> ClaimValues:
        """Return values of claims at this date, over the numeraire, or guesses of them (currency): features."""

    @abc.abstractmethod
    def martingale_increments(
        self, basis: Basis, before: StepEnd, after: StepEnd, noise: State
    ) -> Functions:
        """Return functions of the step with mean zero given `before`, whatever it is; over the basis's unit."""

    @property
    def usual_degree(self) -> int:
        """The degree of the polynomials: it keeps their number below a hundred up to a dozen factors."""
        factors = self.exercise.slopes.shape[-1]
        return next(degree for most, degree in _DEGREES if factors <= most)

    def coordinates(self, x: State) -> State:
        """Return the state as the basis takes it."""
        return x

    def features(self, basis: Basis, x: State, claim_values: ClaimValues) -> Functions:
        """Return the functions of which the continuation value is a combination: a constant first."""
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

    Martingale moves: those of heat polynomials of the state, of powers beyond the basis's planes, of claims.
    All are functions of the later state less their means, in closed form (regression later: Glasserman and
    Yu 2004).
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

    between: an upper bound, at a date, of the worth of exercise at any time since the date before; None if
        rights are only on the dates.
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
