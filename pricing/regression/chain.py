"""Early exercise as a Markov chain: states at dates, what exercise pays in them, martingales in closed form."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics.standardizer import Standardizer
from .claims import Exercise
from .planes import Planes
from .polynomials import Indices, heat_polynomials, identity, multi_indices

_RANKED_DEGREE = 4

State = Float[Array, "dim paths"]
Functions = Float[Array, "functions paths"]
Quotes = Float[Array, "claims paths"]


class Frame(eqx.Module):
    """How the functions of a regression see the states of one date; fitted, then held.

    ranks: of the states in the order of what they pay; None: exercise pays one sum only. unit: currency.
    """

    state: Standardizer
    ranks: Standardizer | None
    planes: Planes
    unit: Float[Array, "*dates"]
    degree: int = eqx.field(static=True)

    def seen(self, x: State) -> State:
        return self.state(x)

    @property
    def indices(self) -> Indices:
        return multi_indices(self.state.mean.shape[-1], self.degree)


class AbstractStep(eqx.Module):
    """From one date of the chain to the next, on which it may be exercised if `is_open`.

    Dates are stacked: every leaf has an axis of dates in front, which a loop over dates takes away. The
    first of them is today, whose step does not move; at the last, whatever `is_open`, what exercise pays is
    paid if it is positive. scale: what values over the numeraire are in proportion to.
    """

    exercise: eqx.AbstractVar[Exercise]
    is_open: eqx.AbstractVar[Bool[Array, "*dates"]]
    scale: eqx.AbstractVar[Float[Array, "*dates"]]

    @abc.abstractmethod
    def advance(self, before: State, noise: State) -> State:
        """The state at this date, from the one before and standard normals."""

    @abc.abstractmethod
    def quotes(self, x: State) -> Quotes:
        """Values of claims at this date, over the numeraire, or guesses of them (currency): features."""

    @abc.abstractmethod
    def moves(
        self,
        frame: Frame,
        before: State,
        after: State,
        noise: State,
        quoted: tuple[Quotes, Quotes],
    ) -> Functions:
        """Functions of the step with mean zero given `before`, whatever that is; over the frame's unit.

        quoted: quotes before and after.
        """

    def coordinates(self, x: State) -> State:
        """The state as the frame takes it."""
        return x

    def features(self, frame: Frame, x: State, quotes: Quotes) -> Functions:
        """What the value of continuing is a combination of: a constant first."""
        branches = self.exercise.branches(x)
        polynomials = [_orthonormal(frame.seen(self.coordinates(x)), frame.degree)]
        paid = [branches]
        if frame.ranks is not None:
            ranked = frame.ranks(self.exercise.ranked(branches, x))
            polynomials.append(_orthonormal(ranked, _RANKED_DEGREE)[1:])
            paid.append(self.exercise.of(branches)[None])
        smooth = [self.scale * p for p in polynomials]
        return jnp.concatenate([*smooth, *(e / frame.unit for e in (quotes, *paid))])


def _orthonormal(u: State, degree: int) -> Functions:
    return heat_polynomials(u, identity(len(u)), multi_indices(len(u), degree))


class Chain(eqx.Module):
    """start: today's state; scatter: a factor of the covariance by which a fit spreads its starting states."""

    start: Float[Array, " dim"]
    scatter: Float[Array, "dim dim"]
    steps: AbstractStep

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
    """A stacked tree at one date or a slice of dates."""
    return jax.tree.map(lambda leaf: leaf[where], tree)
