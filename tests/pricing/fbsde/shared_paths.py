"""Every solver that takes a mesh, found by class, with settings for a test of many devices."""

import dataclasses
import inspect
from typing import Any

import pricing.fbsde
from pricing.fbsde import AbstractSolver, Architecture, Problem, problems

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


def problem_of(solver: AbstractSolver) -> Problem:
    """Return a problem that the solver can handle, with early exercise if it can."""
    many = problems.max_call(2), problems.allen_cahn(4)
    return next(each for each in many if solver.unsupported_reason(each) is None)
