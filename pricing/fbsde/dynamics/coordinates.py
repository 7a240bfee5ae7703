"""Functions of a state that treat its coordinates apart, found from their programs."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxtape.jax_private import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ..problem import State

_ELEMENTWISE = {"add", "sub", "mul", "div", "neg", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt"}
_ELEMENTWISE |= {"square", "integer_pow", "pow", "tanh", "sin", "cos", "logistic", "erf", "erfc"}
_ELEMENTWISE |= {"abs", "max", "min", "gt", "ge", "lt", "le", "select_n", "and", "or", "not", "ne"}
_ELEMENTWISE |= {"convert_element_type", "copy", "stop_gradient"}
_SAME = {"convert_element_type", "copy", "stop_gradient", "neg"}
_MOVES = {"broadcast_in_dim", "reshape", "squeeze"}


class Dependence(enum.Enum):
    """The dependence of a value on a state x.

    Attributes:
        NONE: It does not.
        EACH: It is a vector whose entry i depends on x_i alone.
        SUM: Each entry is a sum of functions of one coordinate.
        ANY: It depends in any other way, or its program does not show how.
    """

    NONE = 0
    EACH = 1
    SUM = 2
    ANY = 3


def dependence(function: Callable[[State], Any], x: State) -> Dependence:
    """Return the dependence of a function's output on a state like x."""
    closed = jax.make_jaxpr(function)(x)
    outputs = _through(closed.jaxpr, [Dependence.EACH], x.shape)
    return outputs[0] if len(outputs) == 1 else Dependence.ANY


def _through(jaxpr: Jaxpr, given: Sequence[Dependence], shape: tuple[int, ...]) -> list[Dependence]:
    known = dict(zip(jaxpr.invars, given, strict=True))
    known |= dict.fromkeys(jaxpr.constvars, Dependence.NONE)
    read = lambda v: Dependence.NONE if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        found = _of_equation(eqn, [read(v) for v in eqn.invars], shape)
        known |= zip(eqn.outvars, found, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _of_equation(
    eqn: JaxprEqn, ins: Sequence[Dependence], shape: tuple[int, ...]
) -> list[Dependence]:
    none, each, total = Dependence.NONE, Dependence.EACH, Dependence.SUM
    kinds, name, size = set(ins), eqn.primitive.name, len(eqn.outvars)
    if kinds <= {none}:
        return [none] * size
    if name in {"jit", "pjit", "custom_jvp_call", "custom_vjp_call"}:
        called: Any = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        inner = called.jaxpr if isinstance(called, ClosedJaxpr) else called
        if isinstance(inner, Jaxpr) and len(inner.invars) == len(ins):
            return _through(inner, ins, shape)
    out: Any = eqn.outvars[0].aval
    if name in _ELEMENTWISE and kinds <= {none, each} and out.shape == shape:
        return [each]
    if name == "reduce_sum" and kinds == {each} and not out.shape:
        return [total]
    if name == "dot_general" and kinds == {none, each} and not out.shape:
        return [total]
    is_linear = name in _SAME | _MOVES or (
        name in {"add", "sub"} or (name == "mul" and ins.count(total) == 1)
    )
    if kinds <= {none, total} and (is_linear or (name == "div" and ins[1] is none)):
        return [total]
    return [Dependence.ANY] * size
