"""Count the operations of a node on one path, by the device units that execute them.

The counts are lower bounds for any compiler: moving entries is free, and rotating bits is one GPU instruction.
A multiply-add counts as two, as in the peaks of datasheets.
"""

from collections import Counter
from collections.abc import Collection

import jax
import jax.numpy as jnp

from ..jax_private import Jaxpr, Literal, Var
from ..jax_private import primitives as p
from ..programs.device_limits import DOUBLES, FLOATS, FUNCTIONS, INTEGERS
from . import per_path_functions

_OF_A_DOUBLE = 8  # at least this many operations for a function in double precision
_FREE = {
    *(p.broadcast_in_dim_p, p.reshape_p, p.convert_element_type_p, p.bitcast_convert_type_p),
    *(p.copy_p, p.stop_gradient_p, p.neg_p, p.abs_p),
}
_ON_UNITS = {
    **dict.fromkeys((p.exp_p, p.exp2_p, p.log_p, p.log1p_p, p.sqrt_p, p.rsqrt_p, p.cbrt_p), 1),
    **dict.fromkeys((p.sin_p, p.cos_p, p.div_p), 1),
    **dict.fromkeys((p.pow_p, p.tan_p, p.tanh_p, p.logistic_p, p.sinh_p, p.cosh_p), 2),
    **dict.fromkeys((p.asin_p, p.acos_p, p.atan_p, p.atan2_p), 1),
}  # results of special-function units per entry
_FORMULAS = {
    p.erf_p: per_path_functions.erf,
    p.erfc_p: per_path_functions.erfc,
    p.erf_inv_p: per_path_functions.erf_inv,
    p.expm1_p: per_path_functions.expm1,
}
_ROTATIONS = {p.shift_right_logical_p, p.or_p}  # with a shift to the left, one rotation


def count_operations(jaxpr: Jaxpr, once: Collection[Var], platform: str) -> Counter[str]:
    """Return the operations on one path of a jaxpr without calls whose entries are tiles.

    Whatever depends only on the inputs `once` is left out: a kernel computes it before its nodes.
    """
    known, found = set(once), Counter()
    for eqn in jaxpr.eqns:
        if all(isinstance(v, Literal) or v in known for v in eqn.invars):
            known |= set(eqn.outvars)
        else:
            found += _of_equation(eqn, platform)
    return found


def _of_equation(eqn, platform: str) -> Counter[str]:
    (out, *_), primitive = eqn.outvars, eqn.primitive
    dtype = max((v.aval.dtype for v in (out, *eqn.invars)), key=lambda dtype: dtype.itemsize)
    if primitive in _FREE or dtype == jnp.bool_:
        return Counter()
    if not jnp.issubdtype(dtype, jnp.floating):
        is_free = platform == "gpu" and primitive in _ROTATIONS
        return Counter() if is_free else Counter({INTEGERS: max(dtype.itemsize // 4, 1)})
    if formula := _FORMULAS.get(primitive):
        type_ = jax.ShapeDtypeStruct((), dtype)
        inner = jax.make_jaxpr(formula)(type_).jaxpr
        return count_operations(inner, (), platform)
    results = _ON_UNITS.get(primitive, 0)
    if primitive is p.integer_pow_p:
        power = abs(eqn.params["y"])
        products = max(power.bit_length() - 1 + power.bit_count() - 1, 1)
        return Counter({DOUBLES if dtype.itemsize == 8 else FLOATS: products})
    if dtype.itemsize == 8:
        return Counter({DOUBLES: _OF_A_DOUBLE * results or 1})
    return Counter({FUNCTIONS: results} if results else {FLOATS: 1})
