"""The functions of a problem: checks of arguments and results, program digests, and identity."""

import hashlib
import inspect
from collections.abc import Callable
from importlib.metadata import version
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError

from jaxtape.jax_settings.matmul_precision import matmul_precision_context

from .traced_functions import TracedFunction, traced

Problem = Any  # `.problem.Problem`, which imports this module

_SOFTWARE = "jaxtape", "jax", "jaxlib"
_CALLS = {
    "drift": "t, x",
    "diffusion": "t, x",
    "driver": "t, x, y, z",
    "exercise_value": "t, x",
    "exercise_in_step": "t, dt, x",
    "switch": "t, x, y",
    "is_alive": "t, x",
    "stopped_value": "t, x",
    "step": "t, dt, x, dw",
    "start": "u",
}


class _FunctionCall(NamedTuple):
    """A function with its arguments, as text and as shapes, and the allowed result shapes."""

    function: Callable
    takes: str
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    returns: tuple[tuple[int, ...], ...]


def check_functions(problem: Problem) -> None:
    """Check each function of a problem by tracing it once.

    Raises:
        TypeError: A function does not return an array of the required shape and type.
    """
    terminal = _traced("terminal", _terminal_call(problem))
    if terminal.ndim > 1:
        raise TypeError(
            f"terminal(x) has the shape {terminal.shape}: return a number, or a vector with one value for "
            "each contract"
        )
    for name, call in _calls(problem).items():
        found = _traced(name, call)
        if found.shape not in call.returns:
            wanted = " or ".join(map(str, call.returns))
            raise TypeError(f"{name}({call.takes}) has the shape {found.shape}: return {wanted}")


def with_traced_functions(problem: Problem) -> Problem:
    """Return the problem with its functions as traced programs (`traced_functions`)."""
    calls = {"terminal": _terminal_call(problem), **_calls(problem)}
    with matmul_precision_context():
        functions = [traced(call.function, *call.arguments) for call in calls.values()]
    return eqx.tree_at(lambda p: [attrgetter(name)(p) for name in calls], problem, functions)


def digests(problem: Problem) -> dict[str, str]:
    """Return a digest of each function's program and constants, by name.

    Functions with equal digests compute the same, whatever they close over or read. Another version of JAX may
    compile a function to another program.
    """
    calls = {"terminal": _terminal_call(problem), **_calls(problem)}
    found = {}
    for name, call in calls.items():
        if isinstance(call.function, TracedFunction):
            found[name] = call.function.digest
            continue

        def function(*arguments, call=call):
            return call.function(*arguments)

        with matmul_precision_context():
            program = jax.jit(function).trace(*call.arguments).lower(lowering_platforms=("cpu",))
        found[name] = hashlib.sha256(program.as_text().encode()).hexdigest()
    return found


def _terminal_call(problem: Problem) -> _FunctionCall:
    return _FunctionCall(problem.terminal, "x", (_shape(problem, problem.dim),), ())


def _calls(problem: Problem) -> dict[str, _FunctionCall]:
    """Return the problem's functions except `terminal`, which determines the number of contracts."""
    dim, contracts = (problem.dim,), problem.contracts
    real, state = _shape(problem), _shape(problem, *dim)
    arguments = {"t": real, "dt": real, "x": state, "dw": state, "u": state}
    arguments |= {"y": _shape(problem, *contracts), "z": _shape(problem, *contracts, *dim)}
    returns = dict.fromkeys(("drift", "step", "start"), (dim,))
    returns |= {"diffusion": ((), dim, dim * 2), "is_alive": ((),)}
    calls = {}
    for name, takes in _CALLS.items():
        if (function := getattr(problem, name)) is not None:
            given = tuple(arguments[argument] for argument in takes.split(", "))
            calls[name] = _FunctionCall(function, takes, given, returns.get(name, (contracts,)))
    if problem.reads_gamma:
        driver, gamma = calls["driver"], _shape(problem, *contracts, *dim, *dim)
        calls["driver"] = driver._replace(
            takes=f"{driver.takes}, gamma", arguments=(*driver.arguments, gamma)
        )
    if problem.jumps is not None:
        calls["jumps.size"] = _FunctionCall(problem.jumps.size, "x, z", (state, state), (dim,))
    return calls


def _traced(name: str, call: _FunctionCall) -> jax.ShapeDtypeStruct:
    """Return the shape and type of a result; a note with the function's name is added to its exceptions.

    Raises:
        TypeError: The result is not an array of the required type.
    """
    words, results = f"{name}({call.takes})", []
    _check_order(name, call)

    def function(*arguments):
        results[:] = [call.function(*arguments)]
        return results[0]

    try:
        found = jax.eval_shape(function, *call.arguments)
    except Exception as error:
        shapes = ", ".join(str(argument.shape) for argument in call.arguments)
        error.add_note(f"This is the problem's {words}, called with arrays of shapes {shapes}.")
        if isinstance(error, (TracerArrayConversionError, ConcretizationTypeError)):
            error.add_note("Use functions of jax.numpy, and jnp.where instead of if.")
        raise
    result = results.pop()
    is_number = name == "diffusion" and isinstance(result, (int, float))
    if not is_number and not isinstance(result, (jax.Array, np.ndarray, np.generic)):
        remedy = "return one array; a constant is, for example, 0.0 * x[0]"
        raise TypeError(f"{words} returns a {type(result).__name__}: {remedy}")
    if name == "is_alive":
        if found.dtype != jnp.bool_:
            raise TypeError(f"{words} has the type {found.dtype}: return Booleans")
    elif not is_number and not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(
            f"{words} has the type {found.dtype}: return floating-point numbers, such as 1.0 for 1"
        )
    return found


def _check_order(name: str, call: _FunctionCall) -> None:
    """Check that a function whose arguments have the documented names has them in the documented order.

    Raises:
        TypeError: It has them in another order.
    """
    try:
        names = list(inspect.signature(call.function).parameters)
    except (TypeError, ValueError):
        return  # the function is not written in Python
    wanted = call.takes.split(", ")
    if names != wanted and sorted(names) == sorted(wanted):
        raise TypeError(
            f"{name} has the arguments ({', '.join(names)}): it is called as {name}({call.takes}); "
            "give them in this order"
        )


def _shape(problem: Problem, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, problem.x0.dtype)


def identity(problem: Problem) -> dict[str, Any]:
    """Return the identity of a problem: its numbers, the digests of its functions, and the software."""
    settings = [problem.dim, problem.num_steps, problem.scheme, problem.reads_gamma]
    settings += [problem.exercise_dates, problem.stopping_dates]
    rest = [] if problem.jumps is None else [problem.jumps.rate, problem.jumps.most]
    return {
        "settings": repr([*settings, *map(float, rest)]),
        "maturity": float(problem.maturity),
        "x0": [str(problem.x0.dtype), problem.x0.tolist()],
        "software": {name: version(name) for name in _SOFTWARE},
        **digests(with_traced_functions(problem)),
    }


def differing(found: Any, wanted: dict[str, Any]) -> list[str]:
    """Return the names of the parts that differ between two identities."""
    found = found if isinstance(found, dict) else {}
    return [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
