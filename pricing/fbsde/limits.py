"""Limits of paths, time and memory for `solve` without a named solver."""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax

from .problem import Problem
from .solvers.gradient_regression import GradientRegression
from .stages import init

_LEAST_PATHS = 1024  # of a regression
_OF_GRID = 12  # multiples of its state that a grid takes at once
_OF_STATE, _OF_FUNCTIONS = 3, 5  # of a regression: of its state, and of its functions on all paths
_OF_CERTIFICATE = 2**25  # bytes: it goes by blocks of paths


@dataclass(frozen=True)
class Limits:
    """Limits of a solution.

    Attributes:
        max_paths: Maximum number of paths of a certificate.
        max_seconds: The time in which all is expected to end; None for any.
        budget: The bytes of memory of trainings and certificates; None for any.
        started: The start of the time.

    Raises:
        ValueError: One of them is not above zero.
    """

    max_paths: int
    max_seconds: float | int | None = None
    budget: float | int | None = None
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self):
        for name, number in self._given().items():
            if not number > 0:
                raise ValueError(f"{name}={number}: give a number above zero.")

    def _given(self) -> dict[str, float | int]:
        limits = {name: getattr(self, name) for name in ("max_paths", "max_seconds", "budget")}
        return {name: number for name, number in limits.items() if number is not None}

    @property
    def words(self) -> str:
        """The limits, in words."""
        return ", ".join(f"{name}={number:g}" for name, number in self._given().items())

    @property
    def seconds_left(self) -> float:
        """The time that is left, infinite where there is no limit."""
        if self.max_seconds is None:
            return math.inf
        return self.started + self.max_seconds - time.perf_counter()

    def smaller(self, problem: Problem, solver: Any, most_paths: float = math.inf) -> Any | None:
        """Return the solver for which memory is enough, with at most `most_paths` paths; None if there is none.

        A regression's paths are halved until it fits; another solver is as it is.
        """
        if not isinstance(solver, GradientRegression):
            return solver if self._has_memory(problem, solver) else None
        while solver.num_paths > most_paths or not self._has_memory(problem, solver):
            paths = solver.num_paths // 2
            if paths < _LEAST_PATHS:
                return None
            solver = replace(solver, num_paths=paths, block=min(solver.block, paths))
        return solver

    def certificate_paths(self, wanted: float, least: int, affordable: float) -> int:
        """Return a power of two of paths: those wanted, or as many as are affordable, but `least` anyway."""
        count = 2 ** math.ceil(math.log2(wanted + 1.0))
        while count > max(least, affordable):
            count //= 2
        return min(max(count, least), self.max_paths)

    def _has_memory(self, problem: Problem, solver: Any) -> bool:
        return self.budget is None or bytes_of(problem, solver) <= self.budget


def bytes_of(problem: Problem, solver: Any) -> int:
    """Return the memory that a training and a certificate take at most, by the shapes of their arrays.

    The programs of a regression hold its state three times, and the functions with their moves on all paths
    as often as the Gram matrix needs them: the compiler reports less than that (`test_limits`).
    """
    training = eqx.filter_eval_shape(init, problem, solver, key=jax.random.key(0))
    arrays = jax.tree.leaves(training)
    state = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    if not isinstance(solver, GradientRegression):
        return _OF_GRID * state + _OF_CERTIFICATE
    functions, itemsize = training.outputs.shape[-1], training.outputs.dtype.itemsize
    columns = functions * solver.num_paths * itemsize
    return _OF_STATE * state + _OF_FUNCTIONS * columns + _OF_CERTIFICATE
