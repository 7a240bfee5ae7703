"""Solutions on disk: saved and loaded; exported as programs that need neither problem nor solver."""

from pathlib import Path

import equinox as eqx
import jax
import jax.export

from .problem import Problem
from .solution import Solution
from .solve import concluded
from .solver import AbstractSolver
from .training import begun


def save(solution: Solution, path: Path) -> None:
    """Write every number of the solution; `load` needs the problem and the solver, whose code is not saved."""
    eqx.tree_serialise_leaves(Path(path), solution)


def load(path: Path, problem: Problem, solver: AbstractSolver) -> Solution:
    """The solution that was saved at `path`, of this problem and solver.

    Raises ValueError if the file's numbers are of other shapes or types than this solver's for this problem.
    """
    empty = eqx.filter_eval_shape(lambda key: begun(problem, solver, key), jax.random.key(0))
    like = eqx.filter_eval_shape(concluded, problem, solver, empty)
    try:
        return eqx.tree_deserialise_leaves(Path(path), like)
    except RuntimeError as error:
        raise ValueError(
            f"{path} holds another solution ({error}): give the problem and the solver it was saved with."
        ) from error


def export(solution: Solution, figure: str = "value") -> bytes:
    """A program (t, x) -> value, delta or gamma; `jax.export.deserialize(...).call(t, x)` runs it.

    t and x are of the precision of the problem's x0. For CPUs, GPUs and TPUs. Raises ImportError without
    flatbuffers (`pip install 'jaxtape[fbsde]'`).
    """
    figures = {"value": solution.value, "delta": solution.delta, "gamma": solution.gamma}
    if figure not in figures:
        raise ValueError(f"figure={figure!r}: give 'value', 'delta' or 'gamma'.")
    x0 = solution.problem.x0
    arguments = jax.ShapeDtypeStruct((), x0.dtype), jax.ShapeDtypeStruct(x0.shape, x0.dtype)
    platforms = ("cpu", "cuda", "tpu")
    program = jax.jit(lambda t, x: figures[figure](t, x))
    exported = jax.export.export(program, platforms=platforms)(*arguments)
    return bytes(exported.serialize())
