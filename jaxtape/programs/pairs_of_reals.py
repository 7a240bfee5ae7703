"""Rewrite what a TPU's compiler lacks in double precision.

Complex128 becomes pairs of reals; LU decompositions are computed here; rounding to float64, which
`jax.checkpoint` adds to what a policy keeps, is dropped.

A traced function is rewritten after differentiation, so derivatives are those of the function itself. For
other platforms, nothing is rewritten.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    counts_of_scan,
    jaxprs_in_params,
    lower_jaxpr2,
    platform_branches,
)
from ..jax_settings.platform import platforms_in_use
from .lu_decomposition import lu_decomposition


class _Pair(NamedTuple):
    """A complex number: its real and imaginary parts."""

    real: Array
    imag: Array


def rewritten_for_tpus(function: Callable) -> Callable:
    """Return a function of arrays whose program has no complex128, and no LU or rounding of float64.

    While it is traced, `NotImplementedError` is raised for an operation without a rule here.
    """

    @functools.wraps(function)
    def rewritten(*arrays: Array) -> Any:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        closed = lower_jaxpr2(traced)  # chains with schedules become loops
        if not _is_lacking(closed.jaxpr):
            return function(*arrays)
        outputs = [
            lax.complex(*x) if isinstance(x, _Pair) else x for x in _evaluated(closed, arrays)
        ]
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return rewritten


def _is_complex(variable: Any) -> bool:
    return _dtype_of(variable) == np.complex128


def _dtype_of(variable: Any) -> Any:
    return getattr(variable.aval, "dtype", None)


def _is_lacking(jaxpr: Jaxpr) -> bool:
    """Return True if a TPU lacks some number or operation in a jaxpr, or in one that it calls."""
    variables = (*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars)
    return any(map(_is_complex, variables)) or any(map(_is_rewritten, jaxpr.eqns))


def _is_rewritten(eqn: JaxprEqn) -> bool:
    variables = (*eqn.invars, *eqn.outvars)
    return (
        (eqn.primitive.name in _LACKING and _dtype_of(eqn.invars[0]) == np.float64)
        or any(map(_is_complex, variables))
        or any(map(_is_lacking, jaxprs_in_params(eqn.params)))
    )


def _evaluated(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """Return the outputs of a jaxpr; complex numbers, including arguments, are pairs."""
    jaxpr = closed.jaxpr
    known = dict(zip(jaxpr.constvars, map(_split, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, map(_split, arguments), strict=True))

    def read(variable: Any) -> Any:
        if not isinstance(variable, Literal):
            return known[variable]
        number = variable.val
        return _Pair(np.real(number), np.imag(number)) if _is_complex(variable) else number

    for eqn in jaxpr.eqns:
        operands = list(map(read, eqn.invars))
        if _is_rewritten(eqn):
            found = _applied(eqn, operands)
        else:
            with eqn.ctx.manager:
                params = eqn.primitive.get_bind_params(eqn.params)
                found = eqn.primitive.bind(*operands, **params)
            found = found if eqn.primitive.multiple_results else [found]
        known.update(zip(eqn.outvars, found, strict=True))
    return list(map(read, jaxpr.outvars))


def _split(x: Any) -> Any:
    if getattr(x, "dtype", None) != np.complex128:
        return x
    if isinstance(x, Tracer | jax.Array):
        return _Pair(jnp.real(x), jnp.imag(x))
    return _Pair(np.real(x), np.imag(x))


def _applied(eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
    """Return the outputs of an operation on pairs, or of one that contains such operations.

    Raises:
        NotImplementedError: If there is no rule for it.
    """
    name = eqn.primitive.name
    if name in _CALLS:
        return _CALLS[name](eqn.params, operands)
    if name in _RULES:
        return [_RULES[name](eqn.params, *operands)]
    if name in _BY_PART:
        parts = []
        for part in range(2):
            of_part = [x[part] if isinstance(x, _Pair) else x for x in operands]
            found = eqn.primitive.bind(*of_part, **eqn.params)
            parts.append(found if eqn.primitive.multiple_results else [found])
        pairs = zip(eqn.outvars, *parts, strict=True)
        return [_Pair(*pair) if _is_complex(variable) else pair[0] for variable, *pair in pairs]
    if name in _FUNCTIONS:
        (called,) = (x for x in eqn.params.values() if isinstance(x, ClosedJaxpr | Jaxpr))
        closed = called if isinstance(called, ClosedJaxpr) else ClosedJaxpr(called, ())
        return _evaluated(closed, operands)
    raise NotImplementedError(_no_rule(name))


def _no_rule(name: str) -> str:
    return (
        f"a TPU has no complex128, and {name} has no rule for pairs of reals: compute in single precision, or "
        "with another operation"
    )


_LACKING = frozenset({"lu", "reduce_precision"})
"""Operations on float64 that a TPU lacks."""

_BY_PART = frozenset({
    "add", "add_any", "broadcast_in_dim", "concatenate", "copy", "copy_p", "cumsum", "dynamic_slice",
    "dynamic_update_slice", "expand_dims", "gather", "neg", "pad", "reduce_sum", "reshape", "rev", "select_n",
    "slice", "split", "squeeze", "stack", "stop_gradient", "sub", "tile", "transpose", "unstack",
})  # fmt: skip
"""Linear operations that act alike on the real and the imaginary part."""


def _product(x: _Pair, y: _Pair) -> _Pair:
    return _Pair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _quotient(x: _Pair, y: _Pair) -> _Pair:
    size = 1.0 / (y.real * y.real + y.imag * y.imag)
    return _product(x, _Pair(y.real * size, -y.imag * size))


def _power(params: dict[str, Any], x: _Pair) -> _Pair:
    count = abs(params["y"])
    found = _Pair(jnp.ones_like(x.real), jnp.zeros_like(x.imag))
    one = found
    for _ in range(count):
        found = _product(found, x)
    return _quotient(one, found) if params["y"] < 0 else found


def _contraction(params: dict[str, Any], x: Any, y: Any) -> _Pair:
    params = params | {"preferred_element_type": np.dtype(float)}
    dot = lambda a, b: lax.dot_general_p.bind(a, b, **params)
    return _Pair(
        dot(x.real, y.real) - dot(x.imag, y.imag), dot(x.real, y.imag) + dot(x.imag, y.real)
    )


def _exp(_: dict[str, Any], x: _Pair) -> _Pair:
    size = jnp.exp(x.real)
    return _Pair(size * jnp.cos(x.imag), size * jnp.sin(x.imag))


def _as_pair(x: Any) -> _Pair:
    """Return a real or complex64 number as a pair in double precision."""
    return _Pair(*(lax.convert_element_type(part(x), float) for part in (jnp.real, jnp.imag)))


def _converted(params: dict[str, Any], x: Any) -> Any:
    dtype = params["new_dtype"]
    if dtype == np.complex128:
        return x if isinstance(x, _Pair) else _as_pair(x)
    if jnp.issubdtype(dtype, np.complexfloating):
        return lax.complex(*(lax.convert_element_type(part, np.float32) for part in x))
    return lax.convert_element_type(x.real, dtype)  # like JAX: drop the imaginary part


_RULES: dict[str, Callable] = {
    "complex": lambda params, real, imag: _Pair(*jnp.broadcast_arrays(real, imag)),
    "real": lambda params, x: x.real,
    "imag": lambda params, x: x.imag,
    "conj": lambda params, x: _Pair(x.real, -x.imag) if isinstance(x, _Pair) else _as_pair(x),
    "abs": lambda params, x: jnp.hypot(*x),
    "is_finite": lambda params, x: jnp.isfinite(x.real) & jnp.isfinite(x.imag),
    "mul": lambda params, x, y: _product(x, y),
    "div": lambda params, x, y: _quotient(x, y),
    "square": lambda params, x: _product(x, x),
    "integer_pow": _power,
    "dot_general": _contraction,
    "exp": _exp,
    "log": lambda params, x: _Pair(jnp.log(jnp.hypot(*x)), jnp.arctan2(x.imag, x.real)),
    "eq": lambda params, x, y: (x.real == y.real) & (x.imag == y.imag),
    "ne": lambda params, x, y: (x.real != y.real) | (x.imag != y.imag),
    "convert_element_type": _converted,
}


def _while(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    first, then = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_condition, of_body, start = operands[:first], operands[first:then], operands[then:]
    goes_on = lambda carry: _evaluated(params["cond_jaxpr"], [*of_condition, *carry])[0]
    rank = len(params["cond_jaxpr"].out_avals[0].shape)  # above 0 in a batch of loops

    def body(carry: list[Any]) -> list[Any]:
        found = _evaluated(params["body_jaxpr"], [*of_body, *carry])
        if not rank:
            return found
        own = goes_on(carry)
        where = lambda new, old: jnp.where(
            own.reshape(*own.shape, *[1] * (jnp.ndim(new) - rank)), new, old
        )
        return jax.tree.map(where, found, list(carry))

    return lax.while_loop(lambda carry: jnp.any(goes_on(carry)), body, start)


def _scan(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    fixed, moving = counts_of_scan(params)
    constants, start = operands[:fixed], operands[fixed : fixed + moving]

    def body(carry: list[Any], of_step: list[Any]) -> tuple[list[Any], list[Any]]:
        found = _evaluated(params["jaxpr"], [*constants, *carry, *of_step])
        return found[:moving], found[moving:]

    settings = {name: params[name] for name in ("length", "reverse", "unroll")}
    end, outputs = lax.scan(body, start, operands[fixed + moving :], **settings)
    return [*end, *outputs]


def _cond(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    place, *others = operands
    function_of = lambda branch: lambda *x: _evaluated(branch, x)
    by_platform = platform_branches(params)
    if not by_platform:
        return lax.switch(place, list(map(function_of, params["branches"])), *others)
    if len(platforms_in_use()) > 1:
        functions = {name: function_of(branch) for name, branch in by_platform.items()}
        return lax.platform_dependent(*others, **functions)
    return _evaluated(by_platform["tpu" if "tpu" in by_platform else "default"], others)


_FUNCTIONS = frozenset({"jit", "eval_jaxpr", "custom_jvp_call", "custom_vjp_call"})
"""Calls of one function, which is inlined: derivatives have been taken by now."""


def _remat(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Return the results of a function that is computed again, and not merged with its first computation."""
    if params["differentiated"] and params["prevent_cse"]:
        operands = lax.optimization_barrier(operands)
    return _evaluated(ClosedJaxpr(params["jaxpr"], ()), operands)


def _by_platform(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Return the results of the body for platforms other than CPUs (`sweeps.by_platform`)."""
    whole = (
        jax.ShapeDtypeStruct(jnp.shape(x.real), np.complex128) if isinstance(x, _Pair) else x
        for x in operands
    )
    return _evaluated(lower_jaxpr2(jax.make_jaxpr(params["other"])(*whole)), operands)


def _linear_solve(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Return the solution of `lax.custom_linear_solve`, by its solver."""
    counts = params["const_lengths"]
    first = counts.matvec + counts.vecmat
    constants, right = operands[first : first + counts.solve], operands[sum(counts) :]
    return _evaluated(params["jaxprs"].solve, [*constants, *right])


def _lu(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Return the factors of a matrix of float64.

    Raises:
        NotImplementedError: It is complex.
    """
    del params
    (matrix,) = operands
    if isinstance(matrix, _Pair):
        raise NotImplementedError(_no_rule("lu"))
    return list(lu_decomposition(matrix))


def _rounded(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    """Return numbers of float64 rounded to float64: unchanged.

    Raises:
        NotImplementedError: They are rounded to fewer bits.
    """
    if (params["exponent_bits"], params["mantissa_bits"]) != (11, 52):
        raise NotImplementedError(
            "a TPU does not round float64 to fewer bits (`lax.reduce_precision`): convert to float32 and back"
        )
    return operands


_CALLS: dict[str, Callable] = {
    "remat2": _remat,
    "reduce_precision": _rounded,
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "by_platform": _by_platform,
    "custom_linear_solve": _linear_solve,
    "lu": _lu,
}
