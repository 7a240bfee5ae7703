"""What every solver is: a chain of stages over a state, and what its end says of u."""

import abc
from typing import Any

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .approximation import AbstractApproximation
from .problem import Problem

ONE_START = (
    "paths that start elsewhere than at x0 (features of contracts): GradientRegression has them"
)


class AbstractSolver(eqx.Module):
    """A training is `num_stages` stages, one after the other in one program; a checkpoint is between two.

    What a stage hands out besides the next state is stacked over the stages (a backward scheme: the
    parameters of its date). mesh: devices that share the paths (axis "paths").
    """

    mesh: eqx.AbstractVar[Mesh | None]

    @abc.abstractmethod
    def lacks(self, problem: Problem) -> str | None:
        """Why it cannot solve the problem, and what can; None if it can."""

    @abc.abstractmethod
    def num_stages(self, problem: Problem) -> int: ...

    @abc.abstractmethod
    def start(self, problem: Problem, key: PRNGKeyArray) -> PyTree[Array]:
        """The state before the first stage: arrays."""

    @abc.abstractmethod
    def stage(
        self, problem: Problem, state: PyTree[Array], index: Array, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], PyTree[Array], Float[Array, " iterations"]]:
        """The state after stage `index`, what it hands out, and the loss of each of its iterations.

        A loss is infinite where what was found is known to be worthless, be it finite.
        """

    @abc.abstractmethod
    def approximation(
        self, problem: Problem, state: PyTree[Array], outputs: PyTree[Array]
    ) -> AbstractApproximation:
        """What the last state and the stacked outputs say of u."""

    def where(self, problem: Problem, stage: int) -> str:
        """In words: what a stage works on."""
        del problem
        return f"stage {stage}"

    def metrics(self, state: PyTree[Array]) -> dict[str, Any]:
        """Numbers worth watching after a stage, besides its loss."""
        del state
        return {}
