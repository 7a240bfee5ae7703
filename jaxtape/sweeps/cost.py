"""The approximate cost of a step: the floating-point operations of its jaxpr."""

import math
from collections.abc import Collection
from typing import Any

from ..jax_private import jaxprs_in_params

_DEAR = {  # operations per entry of primitives that take more than one
    **dict.fromkeys(
        ("exp", "exp2", "log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt", "logistic"), 10
    ),
    **dict.fromkeys(
        ("sin", "cos", "tan", "tanh", "asin", "acos", "atan", "atan2", "sinh", "cosh"), 15
    ),
    **dict.fromkeys(("pow", "erf", "erfc", "erf_inv", "lgamma", "digamma", "div", "sort"), 15),
    **dict.fromkeys(("random_bits", "threefry2x32"), 50),
}
_FREE = {
    "reshape",
    "squeeze",
    "broadcast_in_dim",
    "slice",
    "dynamic_slice",
    "copy",
    "optimization_barrier",
}


def flops(jaxpr: Any, only: Collection[str] = ()) -> int:
    """Return the number of operations of a jaxpr; if primitives are named, `only` theirs.

    A matrix product counts two per multiply-add, an elementwise operation one per entry, a transcendental
    function 10 to 50. A `lax.scan` counts all its iterations, a `lax.while_loop` one, a `lax.cond` its most
    expensive branch.
    """
    return sum(_of_equation(eqn, only) for eqn in jaxpr.eqns)


def _of_equation(eqn: Any, only: Collection[str]) -> int:
    name, params = eqn.primitive.name, eqn.params
    if inner := [flops(jaxpr, only) for jaxpr in jaxprs_in_params(params)]:
        return max(inner) if name == "cond" else params.get("length", 1) * sum(inner)
    if only and name not in only:
        return 0
    out = max((v.aval.size for v in eqn.outvars), default=0)
    if name == "dot_general":
        contracted, _ = params["dimension_numbers"][0]
        return 2 * out * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval
        features = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        return 2 * out * kernel.size // max(features, 1)
    if name in _FREE:
        return 0
    return _DEAR.get(name, 1) * max(out, *(v.aval.size for v in eqn.invars), 0)
