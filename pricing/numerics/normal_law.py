"""The standard normal distribution, with analytic derivatives of any order.

JAX differentiates `ndtr` through its three branches; here a derivative costs one exponential.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special
from jaxtyping import Array, Float

import jaxtape

Real = Float[Array, "..."]

_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))
_ROOT_HALF = float(np.sqrt(0.5))
# fmt: off
_MILLS = (
    1.8932190633084853, -1.5237709108199835, 0.9704095548676177, -0.4675409629983325,
    0.1513917623110474, -0.018900450861711257, -0.008722295248200037, 0.004087855681200072,
    0.0003342443649391365, -0.0005792693046478719, -4.781834677436329e-06, 8.809573121072337e-05,
    1.7912419621396938e-06, -1.4843277679080294e-05, -1.5665301434775512e-06,
    2.568755311229722e-06, 6.635890483495518e-07, -4.00493929251171e-07, -1.974812079272745e-07,
    4.473060051450323e-08, 4.027496644667924e-08, -1.4722998923746307e-09, -4.232837128668023e-09,
    -3.0073979672398766e-10,
)
# fmt: on


def density(x: Real) -> Real:
    """Return exp(-x^2 / 2) / sqrt(2 pi)."""
    return jnp.exp(-0.5 * x * x) / _ROOT_TWO_PI


@jax.custom_jvp
@jaxtape.no_inline
def cdf(x: Real) -> Real:
    """Return P(Z < x), accurate in both tails; `ndtr`, with three branches, takes four times as long."""
    return 0.5 * lax.erfc(-_ROOT_HALF * x)


@cdf.defjvp
def _cdf_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return cdf(x), density(x) * dx


@jax.custom_jvp
@jaxtape.no_inline
def scaled_cdf(power: Real, x: Real) -> Real:
    """Return exp(power) P(Z < x), where one factor may overflow while the other vanishes."""
    tail = scaled_density(power, x) * _mills_ratio(jnp.abs(x))
    return jnp.where(x < 0.0, tail, jnp.exp(power) - tail)


@scaled_cdf.defjvp
def _scaled_cdf_jvp(primals, tangents):
    (power, x), (d_power, dx) = primals, tangents
    scaled = scaled_cdf(power, x)
    return scaled, scaled * d_power + scaled_density(power, x) * dx


def scaled_density(power: Real, x: Real) -> Real:
    """Return exp(power - x^2 / 2) / sqrt(2 pi)."""
    return jnp.exp(power - 0.5 * jnp.square(x)) / _ROOT_TWO_PI


def _mills_ratio(x: Real) -> Real:
    """Return P(Z > x) / density(x) for x >= 0, with relative error 6e-16: a polynomial in (x - 4) / (x + 4).

    The change of variable is Shepherd and Laframboise's (1981); the coefficients are from the Chebyshev series
    of (x + 4) P(Z > x) / density(x), by `tests/pricing/test_normal_law.py`.
    """
    x = jnp.minimum(x, 1e30)  # avoids infinity over infinity
    inverse = 1.0 / (x + 4.0)
    t = (x - 4.0) * inverse
    square = t * t
    even, odd = _MILLS[-2], _MILLS[-1]
    for a, b in zip(_MILLS[-4::-2], _MILLS[-3::-2], strict=True):
        even, odd = even * square + a, odd * square + b
    return (even + odd * t) * inverse


@jax.custom_jvp
@jaxtape.no_inline
def quantile(p: Real) -> Real:
    """Return x with P(Z < x) = p, for p inside (0, 1)."""
    return special.ndtri(p)


@quantile.defjvp
def _quantile_jvp(primals, tangents):
    (p,), (dp,) = primals, tangents
    x = quantile(p)
    # not a quotient, whose derivative would overflow
    return x, dp * (_ROOT_TWO_PI * jnp.exp(0.5 * x * x))
