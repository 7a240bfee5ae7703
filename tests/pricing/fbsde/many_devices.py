"""Compile and run the programs of solvers on one device and on eight, and print what was found as JSON.

Run `python -m tests.pricing.fbsde.many_devices SOLVER[=BUDGET] ...`. A budget is for the eight devices only.
"""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tests.conftest  # noqa: F401, the settings of the tests
from pricing.fbsde.stages import init, step
from tests.compiled_work import CompiledWork

from .shared_paths import problem_of, solver_of


def compiled(problem, solver):
    """Return the work of the first state's program and of a stage's, and what the stage found."""
    key, stages = jax.random.key(0), jnp.int32(1)

    @eqx.filter_jit
    def begin(problem, key):
        return init.__wrapped__(problem, solver, key=key)

    @eqx.filter_jit
    def train(problem, training, stages, key):
        return step.__wrapped__(problem, solver, training, stages, key=key)

    programs = [begin.lower(problem, key).compile()]
    training = programs[0](problem, key)
    programs.append(train.lower(problem, training, stages, key).compile())
    training = eqx.combine(programs[1](problem, training, stages, key), training)
    found = solver.postprocess(problem, training.state, training.outputs)
    arrays = jax.tree.leaves(eqx.filter((found, training.losses), eqx.is_inexact_array))
    return [CompiledWork(each.compiled.as_text()) for each in programs], arrays


def work_of(programs: list[CompiledWork], stages: int) -> float:
    """Return the operations of a device in a whole training."""
    first, stage = programs
    return first.operations + stages * stage.operations


def compared(name: str) -> dict[str, object]:
    """Return a device's share of the operations, what devices send, and the largest difference of a result."""
    name, _, budget = name.partition("=")
    solver = solver_of(name)
    problem = problem_of(solver)
    limit = {"budget": float(budget)} if budget else {}
    stages = solver.num_stages(problem)
    alone, arrays = compiled(problem, solver)
    mesh = jax.make_mesh((8,), ("paths",))  # of explicit axes
    of_one, shared = compiled(problem, dataclasses.replace(solver, mesh=mesh, **limit))
    scales = [np.max(np.abs(x), initial=1e-12) for x in arrays]
    errors = [
        float(np.max(np.abs(np.asarray(x) - np.asarray(y)), initial=0.0) / scale)
        for x, y, scale in zip(arrays, shared, scales, strict=True)
    ]
    share = work_of(of_one, stages) / work_of(alone, stages)
    sent = [[*loop, count] for loop, count in of_one[1].collectives.items()]
    return {"share": share, "collectives": sent, "error": max(errors)}


if __name__ == "__main__":
    print(json.dumps({name: compared(name) for name in sys.argv[1:]}))
