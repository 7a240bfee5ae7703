"""Solutions on disk: saved numbers, and exported programs."""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxtape.jax_settings.matmul_precision import matmul_precision_context
from jaxtape.output_folder import AtomicOutput, local_path

from .dynamics.forward_paths import simulate
from .functions import differing, identity, with_traced_functions
from .problem import Problem
from .solution import Solution
from .solver import AbstractSolver
from .stages import init, postprocess, with_note

_MARK = b'{"solution of": '
_NUMBERS = "settings", "maturity", "x0"
_LONGEST_HEADER = 2**26
_FIGURES = "value", "delta", "gamma"
_PATHS_OF_REACH = 4096


def save(solution: Solution, path: Path) -> None:
    """Save every number of a solution; `load` needs the problem and the solver, whose code is not saved.

    If `solve` selected the solver, it is stats["solver"], and the certificates are not saved. An existing file
    of `save` is replaced once the new one is complete.

    Args:
        solution: The solution to save.
        path: The file to write; without a suffix it gets `.eqx`.

    Raises:
        ValueError: The path holds another file, or the solution is for several keys.

    Examples:
        >>> from pricing.fbsde import Solution, save
        >>> def keep(solution: Solution, folder):
        ...     save(solution, folder / "solution.eqx")
    """
    path = local_path(path)
    path = path if path.suffix else path.with_suffix(".eqx")
    if path.exists() and not _holds_solution(path):
        raise ValueError(f"{path} holds no solution, and is left unchanged: give another path.")
    trained = {"losses": solution.stats["losses"]}
    if np.ndim(trained["losses"]) > 2:
        raise ValueError(
            "the solution is for several keys: save jax.tree.map(lambda x: x[n], solution)"
        )
    solution = eqx.tree_at(lambda s: s.stats, solution, trained)
    with AtomicOutput(path.parent).written() as aside, (aside / path.name).open("wb") as file:
        file.write(_MARK + f"{json.dumps(identity(solution.problem))}}}\n".encode())
        eqx.tree_serialise_leaves(file, solution)


def _holds_solution(path: Path) -> bool:
    """Return True if a file is empty or begins like a file of `save`."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MARK)) in (b"", _MARK)


def load(path: Path, problem: Problem, solver: AbstractSolver) -> Solution:
    """Load a solution from a file of `save`.

    Args:
        path: The file to read.
        problem: The problem that was solved. Its functions must compute the same as when the solution was
            saved. If another version of JAX wrote the file and compiles them differently, this cannot be
            checked, and a warning is given.
        solver: The solver that solved it.

    Returns:
        The solution, equal in every number to the saved one.

    Raises:
        ValueError: The file does not hold a solution of this problem and solver.

    Examples:
        >>> from pricing.fbsde import DeepBSDE, load, problems
        >>> def restore(folder):
        ...     return load(folder / "solution.eqx", problems.allen_cahn(100), DeepBSDE())
    """
    problem = with_traced_functions(problem)
    training = eqx.filter_eval_shape(lambda key: init(problem, solver, key=key), jax.random.key(0))
    like = eqx.filter_eval_shape(postprocess, problem, solver, training)
    with Path(path).open("rb") as file:
        try:
            saved = json.loads(file.readline(_LONGEST_HEADER))["solution of"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is not a solution written by this version of save: save it again."
            ) from error
        _require_same_problem(path, saved, problem)
        try:
            return with_note(eqx.tree_deserialise_leaves(file, like), solver, None)
        except (RuntimeError, ValueError, EOFError) as error:
            raise ValueError(
                f"{path} holds a solution by another solver, or a part of one ({error}): give the solver "
                "it was saved with."
            ) from error


def _require_same_problem(path: Path, saved: Any, problem: Problem) -> None:
    """Refuse a file of another problem; warn if this cannot be checked.

    Raises:
        ValueError: The file holds the solution of another problem.
    """
    wanted = identity(problem)
    parts = differing(saved, wanted)
    if "software" in parts and isinstance(saved, dict) and set(saved) == set(wanted):
        unknown = [name for name in parts if name not in _NUMBERS]
        parts = [name for name in parts if name in _NUMBERS]
        if functions := ", ".join(name for name in unknown if name != "software"):
            warnings.warn(
                f"{path} was written with {saved['software']}, and this is {wanted['software']}: it "
                f"cannot be checked that these functions still compute the same: {functions}.",
                stacklevel=3,
            )
    if parts:
        raise ValueError(
            f"{path} holds the solution of another problem (different: {', '.join(parts)}): "
            "give the problem it was saved with."
        )


def export(solution: Solution, figure: str = "value") -> bytes:
    """Export a program (t, x) -> figure for CPUs, GPUs and TPUs, independent of problem and solver.

    `jax.export.deserialize(program).call(t, x)` runs it, with t and x in the precision of the problem's x0. Its
    `fun_name` is the figure and a digest of the solution's numbers, which all its figures share.

    Args:
        solution: The solution to export.
        figure: "value", "delta" or "gamma"; or "reach", the minimum and maximum of each coordinate over 4,096
            paths around t, [2, dim], for any x: beyond them figures are extrapolated.

    Returns:
        The serialized program.

    Raises:
        ValueError: There is no such figure.

    Examples:
        >>> from pricing.fbsde import export
        >>> def write_delta(solution, path):
        ...     path.write_bytes(export(solution, "delta"))
    """
    figures: dict[str, Any] = {name: getattr(solution, name) for name in _FIGURES}
    if figure == "reach":
        figures["reach"] = _reach(solution.problem)
    if figure not in figures:
        raise ValueError(f"figure={figure!r}: give 'value', 'delta', 'gamma' or 'reach'.")
    x0 = solution.problem.x0
    arguments = jax.ShapeDtypeStruct((), x0.dtype), jax.ShapeDtypeStruct(x0.shape, x0.dtype)
    platforms = ("cpu", "cuda", "tpu")

    def program(t, x):
        return figures[figure](t, x)

    program.__name__ = f"{figure}_{_digest(solution)}"
    program = jax.jit(program)
    with matmul_precision_context():  # of the target platforms, not of this one
        exported = jax.export.export(program, platforms=platforms)(*arguments)
    return bytes(exported.serialize())


def _digest(solution: Solution) -> str:
    """Return a digest of all numbers of a solution."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(solution, eqx.is_array)):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
    return found.hexdigest()[:16]


def _reach(problem: Problem) -> Callable[[Array, Array], Float[Array, "2 dim"]]:
    """Return the minimum and maximum states of paths on the dates before and after a time."""
    key = jax.random.key(0)
    states = simulate(problem, _PATHS_OF_REACH, key=key, initial_dispersion=0.0).states
    low, high = jnp.nanmin(states, axis=1), jnp.nanmax(states, axis=1)

    def reach(t: Array, x: Array) -> Array:
        del x
        date = jnp.sum(problem.times[1:-1] <= t)
        least = jnp.minimum(low[date], low[date + 1])
        return jnp.stack([least, jnp.maximum(high[date], high[date + 1])])

    return reach
