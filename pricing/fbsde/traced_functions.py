"""The functions of a problem as traced programs with their numbers as arguments.

`jax.jit` identifies a function by identity: a lambda that is redefined, or closes over another number, is
compiled again. A traced program is identified by its operations. Its numbers (from closures, globals, defaults
and code) are arrays, which become arguments of `jax.jit`: problems that differ only in a rate share all
programs.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxtape.jax_private import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

_CALLS = "jit", "pjit", "closed_call"
_KEPT = (0.0, 0.5, 1.0, 2.0)  # XLA simplifies programs with these numbers or their negatives
_ADDRESS = " at 0x"


class _NotComparable(Exception):
    """A program has a part that cannot be compared, such as a callback."""


@dataclass(frozen=True)
class _Program:
    """A jaxpr that is compared by its operations.

    Attributes:
        digest: A digest of the operations, without the numbers that are arguments.
    """

    digest: str
    closed: InitVar[ClosedJaxpr]

    def __post_init__(self, closed: ClosedJaxpr):
        object.__setattr__(self, "jaxpr", closed)


class TracedFunction(eqx.Module):
    """A function of arrays of known shapes, as a program and its numbers.

    Attributes:
        program: The operations.
        numbers: The distinct numbers, in the order in which the program first reads them.
    """

    program: Any = eqx.field(static=True)
    numbers: tuple[Array, ...]

    def __call__(self, *arguments: Any) -> Array:
        """Return the function's value.

        Raises:
            TypeError: An argument has another shape than at tracing.
        """
        closed = self.program.jaxpr
        wanted = [v.aval for v in closed.jaxpr.invars]
        given = [jnp.asarray(x, v.dtype) for x, v in zip(arguments, wanted, strict=True)]
        if any(x.shape != v.shape for x, v in zip(given, wanted, strict=True)):
            raise TypeError(
                f"arguments of shapes {[x.shape for x in given]}, where the function was traced with "
                f"{[v.shape for v in wanted]}: write the problem with this dimension and these contracts"
            )
        (found,) = _Evaluation(self.numbers).outputs(closed, given)
        (result,) = closed.out_avals
        state = next(v for v in wanted[::-1] if jnp.issubdtype(v.dtype, jnp.inexact))
        return jnp.asarray(found, state.dtype if result.weak_type else result.dtype)

    @property
    def digest(self) -> str:
        """A digest of the operations and the numbers."""
        parts = [self.program.digest.encode(), *map(_bytes_of, self.numbers)]
        return hashlib.sha256(b"".join(parts)).hexdigest()


def traced(function: Callable, *arguments: jax.ShapeDtypeStruct) -> Callable:
    """Return a function as a traced program, or unchanged if its program cannot be compared.

    Callbacks, and functions with custom derivatives such as `jax.nn.relu`, cannot be compared.

    Args:
        function: The function, whose value is one array.
        arguments: The shapes and types of its arguments.
    """
    if isinstance(function, TracedFunction):
        return function
    # JAX caches the program of a known function, whose globals may have changed since
    closed = jax.make_jaxpr(lambda *given: function(*given))(*arguments)
    if closed.effects:
        return function
    description = _Description()
    try:
        inputs = [description.input(v.aval) for v in closed.jaxpr.invars]
        outputs = description.outputs(closed, inputs)
    except _NotComparable:
        return function
    words = "\n".join([*description.words, *outputs])
    digest = hashlib.sha256(words.encode()).hexdigest()
    return TracedFunction(_Program(digest, closed), tuple(description.numbers))


class _Interpreter:
    """A traversal of a program and the functions that it calls; subclasses define the steps."""

    def constant(self, value: Any, dtype: Any) -> Any:
        raise NotImplementedError

    def operation(self, eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
        raise NotImplementedError

    def outputs(self, closed: ClosedJaxpr, inputs: Iterable[Any]) -> list[Any]:
        """Return the outputs of a program for some inputs."""
        jaxpr = closed.jaxpr
        known = {
            v: self.constant(value, _dtype(v))
            for v, value in zip(jaxpr.constvars, closed.consts, strict=True)
        }
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(v: Any) -> Any:
            return self.constant(v.val, _dtype(v)) if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            operands = list(map(read, eqn.invars))
            if eqn.primitive.name in _CALLS:
                found = self.outputs(eqn.params["jaxpr"], operands)
            else:
                found = self.operation(eqn, operands)
            known.update(zip(eqn.outvars, found, strict=True))
        return list(map(read, jaxpr.outvars))


class _Evaluation(_Interpreter):
    """Evaluates a program with given numbers."""

    def __init__(self, numbers: tuple[Array, ...]):
        self._numbers, self._places = numbers, _Places()

    def constant(self, value: Any, dtype: Any) -> Any:
        if not _is_argument(value, dtype):
            return value
        return self._numbers[self._places.of(value, dtype)[0]]

    def operation(self, eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
        with eqn.ctx.manager:
            params = eqn.primitive.get_bind_params(eqn.params)
            found = eqn.primitive.bind(*operands, **params)
        return found if eqn.primitive.multiple_results else [found]


class _Description(_Interpreter):
    """Describes a program as text, and collects its numbers."""

    def __init__(self):
        self.words: list[str] = []
        self.numbers: list[Array] = []
        self._places = _Places()

    def constant(self, value: Any, dtype: Any) -> str:
        if not _is_argument(value, dtype):
            return _words(np.asarray(value, dtype))
        place, is_new = self._places.of(value, dtype)
        if is_new:
            self.numbers.append(jnp.asarray(value, dtype))
        return f"number {place} {np.shape(value)} {dtype}"

    def input(self, aval: Any) -> str:
        """Return the name of an input."""
        return self._named(f"input {aval.shape} {aval.dtype} {aval.weak_type}")

    def operation(self, eqn: JaxprEqn, operands: list[str]) -> list[str]:
        self.words.append(f"{_words_of_operation(eqn)} of {operands}")
        return [self._named(str(v.aval)) for v in eqn.outvars]

    def _named(self, words: str) -> str:
        self.words.append(words)
        return f"v{len(self.words)}"


class _Places:
    """The indices of a program's numbers; equal numbers share one, so that they stay equal."""

    def __init__(self):
        self._found: dict[Any, int] = {}
        self._held: list[Any] = []  # keeps ids from being reused

    def of(self, value: Any, dtype: Any) -> tuple[int, bool]:
        """Return the index of a number, and whether it is new."""
        is_array = isinstance(value, Tracer) or np.ndim(value) > 0
        key = id(value) if is_array else (str(dtype), np.asarray(value, dtype).tobytes())
        place = self._found.setdefault(key, len(self._held))
        if is_new := place == len(self._held):
            self._held.append(value)
        return place, is_new


def _is_argument(value: Any, dtype: Any) -> bool:
    """Return True if a constant becomes an argument of the program."""
    if isinstance(value, Tracer) or np.ndim(value) > 0:
        return True
    return jnp.issubdtype(dtype, jnp.floating) and abs(float(value)) not in _KEPT


def _words(x: Any) -> str:
    """Return text for a parameter of an operation.

    Raises:
        _NotComparable: It is a function, or its text contains a memory address.
    """
    if isinstance(x, ClosedJaxpr):
        return f"{_words_of_jaxpr(x.jaxpr)} with {_words(list(x.consts))}"
    if isinstance(x, Jaxpr):
        return _words_of_jaxpr(x)
    if isinstance(x, dict):
        return str([f"{name}={_words(value)}" for name, value in sorted(x.items())])
    if isinstance(x, (tuple, list)):
        return str([*map(_words, x)])
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        if isinstance(x, Tracer):
            raise _NotComparable
        return _bytes_of(x).hex()
    words = repr(x)
    if _ADDRESS in words or (callable(x) and not isinstance(x, type)):
        raise _NotComparable
    return words


def _words_of_operation(eqn: JaxprEqn) -> str:
    """Return text for an operation, without its operands.

    Raises:
        _NotComparable: It has a custom derivative, whose rule cannot be described.
    """
    if eqn.primitive.name.startswith("custom_"):
        raise _NotComparable
    return f"{eqn.primitive.name} {_words(dict(eqn.params))} {_words(eqn.ctx)}"


def _words_of_jaxpr(jaxpr: Jaxpr) -> str:
    """Return text for the body of a loop or branch, whose numbers are not arguments."""
    names: dict[Any, str] = {}

    def name(v: Any) -> str:
        if isinstance(v, Literal):
            return _words(np.asarray(v.val, _dtype(v)))
        return names.setdefault(v, f"v{len(names)} {v.aval}")

    words = [str([*map(name, [*jaxpr.constvars, *jaxpr.invars])])]
    for eqn in jaxpr.eqns:
        operands, results = [*map(name, eqn.invars)], [*map(name, eqn.outvars)]
        words.append(f"{results} = {_words_of_operation(eqn)} of {operands}")
    return "; ".join([*words, str([*map(name, jaxpr.outvars)])])


def _dtype(v: Any) -> Any:
    return v.aval.dtype


def _bytes_of(array: Any) -> bytes:
    array = np.asarray(array)
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()
