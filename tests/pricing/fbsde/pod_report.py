"""Bytes a chip and collectives of every solver's programs at 2^20 paths, compiled for a TPU pod of 256 chips.

Run `JAX_NUM_CPU_DEVICES=256 JAX_PLATFORMS=cpu python -m tests.pricing.fbsde.pod_report FILE.json` with
`jaxtape[tpu]` installed. Nothing is run. Single precision.
"""

import dataclasses
import json
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import jaxtape as jt
from pricing.fbsde import ProjectionPursuit, problems
from pricing.fbsde.stages import init, step

from .shared_paths import SOLVERS, book, solver_of

TARGET = "tpu:v5e:16x16"
PATHS = 2**20
SIZES = {"batch_size": PATHS, "num_paths": PATHS, "num_iterations": 100, "num_pilot_paths": 2**15}
SIZES_OF_DATES = {"batch_size": 2**14}  # of solvers that keep the paths of all dates


def sizes_of(name: str) -> dict[str, int]:
    fields = {field.name for field in dataclasses.fields(SOLVERS[name])}
    return {**SIZES, **(SIZES_OF_DATES if "num_paths" in fields else {})}


def problem_for(solver):
    """Return a problem of a hundred dimensions, of ten for bases of functions, or of the solver's maximum.

    For a solver of books it has 2,048 contracts on three assets.
    """
    if isinstance(solver, ProjectionPursuit):
        return book(2048)
    many = problems.allen_cahn(10 if hasattr(solver, "bases") else 100), problems.max_call(2)
    return next(each for each in many if solver.unsupported_reason(each) is None)


def report(name: str) -> list[dict]:
    mesh = Mesh(np.array(jax.devices()), ("paths",))
    solver = solver_of(name, mesh=mesh, iterations_per_stage=100, **sizes_of(name))
    problem, key = problem_for(solver), jax.random.key(0)
    arrays, others = eqx.partition((problem, key), eqx.is_array)

    def begin(arrays):
        problem, key = eqx.combine(arrays, others)
        return init.__wrapped__(problem, solver, key=key)

    def train(arrays, training):
        problem, key = eqx.combine(arrays, others)
        return step.__wrapped__(problem, solver, training, jnp.int32(1), key=key)

    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    shape = lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    arrays = jax.tree.map(lambda leaf: shape(leaf, everywhere), arrays)
    places = jax.jit(begin).lower(arrays).compile().output_shardings
    training = jax.tree.map(shape, jax.eval_shape(begin, arrays), places)
    rows = []
    for program, function, args in (("init", begin, ()), ("stage", train, (training,))):
        found = jt.compile_for(function, arrays, *args, target=TARGET)
        print(name, problem.dim, program, found, flush=True)
        of_program = {
            "solver": name,
            "dim": problem.dim,
            "program": program,
            "settings": sizes_of(name),
        }
        rows.append(of_program | found.as_json())
    return rows


def main() -> None:
    names = sys.argv[2:] or SOLVERS
    rows = [row for name in names for row in report(name)]
    found = {"target": TARGET, "paths": PATHS, "command": __doc__.split("`")[1], "rows": rows}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
