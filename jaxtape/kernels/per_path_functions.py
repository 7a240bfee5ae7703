"""The functions that a kernel computes for each path, with rules for those that a compiler lacks.

The rules use only scalar coefficients, because a kernel has no constant arrays.
"""

from collections.abc import Callable

import jax.numpy as jnp

from ..jax_private import Primitive
from ..jax_private import primitives as p

_EVERYWHERE = {
    *(p.add_p, p.add_jaxvals_p, p.sub_p, p.mul_p, p.div_p, p.neg_p, p.abs_p, p.sign_p, p.square_p),
    *(p.exp_p, p.exp2_p, p.log_p, p.log1p_p, p.sqrt_p, p.rsqrt_p, p.pow_p, p.integer_pow_p),
    *(p.sin_p, p.cos_p, p.tan_p, p.tanh_p, p.logistic_p, p.erf_inv_p, p.floor_p, p.ceil_p),
    *(p.eq_p, p.ne_p, p.lt_p, p.le_p, p.gt_p, p.ge_p, p.and_p, p.or_p, p.xor_p, p.not_p),
    *(p.max_p, p.min_p, p.clamp_p, p.select_n_p, p.convert_element_type_p, p.is_finite_p),
    *(p.erf_p, p.erfc_p, p.expm1_p, p.copy_p, p.stop_gradient_p),
    *(p.shift_left_p, p.shift_right_logical_p, p.bitcast_convert_type_p),
}
_OF_WORDS = {
    *(p.add_p, p.sub_p, p.mul_p, p.and_p, p.or_p, p.xor_p, p.shift_left_p, p.shift_right_logical_p),
    *(p.bitcast_convert_type_p, p.convert_element_type_p, p.copy_p),
}
_ON = {
    "gpu": {p.cbrt_p, p.sinh_p, p.cosh_p, p.asin_p, p.acos_p, p.atan_p, p.atan2_p},
    "tpu": {p.atan2_p, p.round_p},
}
_DTYPES = {
    "gpu": ("float32", "float64", "int32", "int64", "uint32", "uint64", "bool"),
    "tpu": ("float32", "int32", "uint32", "bool"),
}


def function_on(platform: str, primitive: Primitive) -> Callable | None:
    """Return the function that computes a primitive on tiles; None if a kernel cannot."""
    if primitive not in _EVERYWHERE | _ON[platform]:
        return None
    if primitive in (p.copy_p, p.stop_gradient_p):
        return lambda x: x
    return _RULES[platform].get(primitive, primitive.bind)


def has_dtype(platform: str, dtype) -> bool:
    """Return True if kernels compute with a dtype."""
    return str(dtype) in _DTYPES[platform]


def is_for_words(eqn) -> bool:
    """Return True if an operation has no unsigned integers, or is one that hashing the words of keys needs."""
    types = [v.aval.dtype for v in (*eqn.invars, *eqn.outvars)]
    if eqn.primitive is p.bitcast_convert_type_p:
        return types[0].itemsize == types[1].itemsize
    if not any(jnp.issubdtype(each, jnp.unsignedinteger) for each in types):
        return True
    is_exact = all(jnp.issubdtype(each, jnp.integer) for each in types)
    return is_exact and eqn.primitive in _OF_WORDS


def erf(x):
    """Return the error function, for compilers without it.

    It uses the rational approximations of W. J. Cody (1969) as in Sun's fdlibm (s_erf.c, 1993), with errors of
    less than one unit in the last place of a double.
    """
    a, small, middle, tail = _parts_of_erf(x)
    large = 1.0 - jnp.exp(-tail[0] + tail[1]) / tail[2]
    positive = jnp.where(a < 1.25, middle, large)
    found = jnp.where(a < 0.84375, x + small, jnp.sign(x) * positive)
    return jnp.where(x == x, found, x)


def erfc(x):
    """Return one minus the error function, also accurate where it is small, for compilers without it."""
    a, small, middle, tail = _parts_of_erf(x)
    far = jnp.exp(-tail[0]) * jnp.exp(tail[1]) / tail[2]
    positive = jnp.where(a < 1.25, 1.0 - middle, far)
    near = jnp.where(x < 0.25, 1.0 - (x + small), 0.5 - (small + (x - 0.5)))
    found = jnp.where(a < 0.84375, near, jnp.where(x < 0.0, 2.0 - positive, positive))
    return jnp.where(x == x, found, x)


def _parts_of_erf(x) -> tuple:
    """Return |x|, erf(x) - x for small |x|, erf(|x|) for medium |x|, and the parts of its tail.

    These are h^2, r and b >= 1.25 in erfc(b) = exp(-h^2) exp(r) / b, where h is the leading half of b's bits,
    so that its square is exact.
    """
    a, square = jnp.abs(x), x * x
    small = x * _ratio(square, _PP, _QQ)
    middle = _ERX + _ratio(jnp.minimum(a, 1.25) - 1.0, _PA, _QA)
    b = jnp.clip(a, 1.25, 28.0)
    inverse = 1.0 / (b * b)
    near, far = _ratio(inverse, _RA, _SA), _ratio(inverse, _RB, _SB)
    split = b * (2.0**27 + 1.0 if x.dtype.itemsize == 8 else 4097.0)
    half = split - (split - b)
    ratio = jnp.where(b < 1.0 / 0.35, near, far)
    return a, small, middle, (half * half, (half - b) * (half + b) - 0.5625 + ratio, b)


def erf_inv(x):
    """Return the inverse of the error function in single precision, which Mosaic would compute in double.

    The polynomials are those of M. Giles, "Approximating the erfinv function" (2010), which XLA uses, too.
    """
    w = -jnp.log1p(-x * x)
    found = x * jnp.where(
        w < 5.0, _polynomial(w - 2.5, _NEAR), _polynomial(jnp.sqrt(w) - 3.0, _FAR)
    )
    return jnp.where(jnp.abs(x) == 1.0, x * jnp.inf, found)


def expm1(x):
    """Return exp(x) - 1, for compilers without it: (u - 1) x / log(u) with u = exp(x) (W. Kahan)."""
    u = jnp.exp(x)
    near = (u - 1.0) * x / jnp.where(u == 1.0, 1.0, jnp.log(u))
    return jnp.where(u == 1.0, x, jnp.where(jnp.abs(x) < 0.5, near, u - 1.0))


def _with_nan(primitive: Primitive) -> Callable:
    """Return max or min with JAX's rule: NaN if an argument is NaN. Triton returns the other argument."""

    def function(x, y):
        found = primitive.bind(x, y)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return found
        return jnp.where(x != x, x, jnp.where(y != y, y, found))

    return function


def _clamp(low, x, high):
    return _with_nan(p.min_p)(_with_nan(p.max_p)(low, x), high)


def _sign(x):
    """Return the sign; Mosaic's own rule would query the local device."""
    return jnp.where(x > 0, jnp.ones_like(x), jnp.where(x < 0, -jnp.ones_like(x), x))


def _ratio(x, above: tuple[float, ...], below: tuple[float, ...]):
    return _polynomial(x, above) / (1.0 + x * _polynomial(x, below))


def _polynomial(x, coefficients: tuple[float, ...]):
    """Return the sum of c[i] x^i."""
    total = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


_RULES = {
    "gpu": {
        p.erf_p: lambda x, **_: erf(x),
        p.erfc_p: lambda x, **_: erfc(x),
        p.max_p: _with_nan(p.max_p),
        p.min_p: _with_nan(p.min_p),
        p.clamp_p: _clamp,
    },
    "tpu": {
        p.erfc_p: lambda x, **_: erfc(x),
        p.erf_inv_p: erf_inv,
        p.expm1_p: lambda x, **_: expm1(x),
        p.sign_p: _sign,
    },
}

# fmt: off
_NEAR = (1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
         -3.5233877e-06, 3.43273939e-07, 2.81022636e-08)
_FAR = (2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
        0.000100950558, -0.000200214257)
_ERX = 8.45062911510467529297e-01
_PP = (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
       -5.77027029648944159157e-03, -2.37630166566501626084e-05)
_QQ = (3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
       1.32494738004321644526e-04, -3.96022827877536812320e-06)
_PA = (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
       3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
       -2.16637559486879084300e-03)
_QA = (1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
       1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02)
_RA = (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
       -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
       -8.12874355063065934246e+01, -9.81432934416914548592e+00)
_SA = (1.96512716674392571292e+01, 1.37657754143519042600e+02, 4.34565877475229228821e+02,
       6.45387271733267880336e+02, 4.29008140027567833386e+02, 1.08635005541779435134e+02,
       6.57024977031928170135e+00, -6.04244152148580987438e-02)
_RB = (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
       -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
       -4.83519191608651397019e+02)
_SB = (3.03380607434824582924e+01, 3.25792512996573918826e+02, 1.53672958608443695994e+03,
       3.19985821950859553908e+03, 2.55305040643316442583e+03, 4.74528541206955367215e+02,
       -2.24409524465858183362e+01)
# fmt: on
