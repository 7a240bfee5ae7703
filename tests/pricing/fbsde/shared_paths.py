"""Every solver that takes a mesh, found by class, with settings for a test of many devices."""

import dataclasses
import inspect
from typing import Any

import numpy as np

import pricing.fbsde
from pricing import Basket, Bermudan, BlackScholes
from pricing.fbsde import (
    AbstractSolver,
    Architecture,
    Problem,
    ProjectionPursuit,
    from_product,
    problems,
)

DATES = np.array([0.25, 0.5, 0.75, 1.0])
ITERATIONS = 7
SETTINGS = {
    "num_iterations": ITERATIONS,
    "iterations_per_stage": ITERATIONS,
    "first_stages": 1,
    "batch_size": 2048,
    "num_pilot_paths": 16384,
    "num_paths": 32768,
    "architecture": Architecture(width=16),
}  # by the names of solvers' fields
SOLVERS = {
    name: found
    for name, found in vars(pricing.fbsde).items()
    if inspect.isclass(found)
    and issubclass(found, AbstractSolver)
    and not inspect.isabstract(found)
    and found.__module__.startswith("pricing.fbsde.solvers.")
    and {field.name: field.type for field in dataclasses.fields(found)}["mesh"] is not None
}


def solver_of(name: str, **settings: Any) -> AbstractSolver:
    """Return a solver with the settings that it has of those above and of those given."""
    names = {field.name for field in dataclasses.fields(SOLVERS[name])}
    chosen = {**SETTINGS, **settings}
    return SOLVERS[name](**{key: value for key, value in chosen.items() if key in names})


def book(count: int) -> Problem:
    """Return Bermudan puts on geometric means of three assets, with an equal number of strikes and weights."""
    strikes, weights = np.linspace(90.0, 110.0, count), np.linspace(0.1, 0.4, count)
    weights = np.stack([weights, weights, 1.0 - 2.0 * weights], axis=1)
    means = Basket(strikes, np.ones(count), "put", weights=weights, average="geometric")
    model = BlackScholes(np.full(3, 100.0), 0.05, np.array([0.15, 0.25, 0.4]), np.zeros(3))
    return from_product(Bermudan(means, np.broadcast_to(DATES, (count, len(DATES)))), model, 4)


def problem_of(solver: AbstractSolver) -> Problem:
    """Return a problem that the solver can handle: a book, or one with early exercise, where it can."""
    if isinstance(solver, ProjectionPursuit):
        return book(32)
    many = problems.max_call(2), problems.allen_cahn(4)
    return next(each for each in many if solver.unsupported_reason(each) is None)
