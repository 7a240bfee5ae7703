"""Complex functions in terms of real ones, at half the cost of XLA's, which guard |z|^2 against overflow."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

import jaxtape

Real = Float[Array, "..."]
Values = Complex[Array, "..."]

_QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""pi / 2 in three parts; the first two have 33 bits, so that small multiples are exact."""


def cos_and_sin(x: Real) -> tuple[Real, Real]:
    """Return cosine and sine; in float64 by Taylor series within pi / 4 of a multiple of pi / 2.

    XLA on CPUs calls a library for every number, at six times the cost.
    """
    if x.dtype != jnp.float64:
        return jnp.cos(x), jnp.sin(x)
    turns = jnp.round(x * (2.0 / math.pi))
    rest = x
    for part in _QUARTER:
        rest = rest - turns * part
    square = rest * rest
    even, odd = jnp.zeros_like(x), jnp.zeros_like(x)
    for power in range(8, -1, -1):
        sign = (-1.0) ** power
        even = even * square + sign / math.factorial(2 * power)
        odd = odd * square + sign / math.factorial(2 * power + 1)
    odd = odd * rest
    turn = turns - 4.0 * jnp.floor(0.25 * turns)
    swapped, upside_down = (turn == 1.0) | (turn == 3.0), turn >= 2.0
    cos, sin = jnp.where(swapped, odd, even), jnp.where(swapped, even, odd)
    mirrored = (turn == 1.0) | (turn == 2.0)
    return jnp.where(mirrored, -cos, cos), jnp.where(upside_down, -sin, sin)


@jax.custom_jvp
@jaxtape.no_inline
def exp(z: Values) -> Values:
    """Return e^z."""
    size, (cos, sin) = jnp.exp(jnp.real(z)), cos_and_sin(jnp.imag(z))
    return jax.lax.complex(size * cos, size * sin)


@exp.defjvp
def _exp_jvp(primals, tangents):
    value = exp(*primals)
    return value, value * tangents[0]


@jax.custom_jvp
def sqrt(z: Values) -> Values:
    """Return the square root with positive real part; it loses precision near the negative axis."""
    x, y = jnp.real(z), jnp.imag(z)
    root = jnp.sqrt(0.5 * (jnp.sqrt(x * x + y * y) + x))
    return jax.lax.complex(root, 0.5 * y / root)


@sqrt.defjvp
def _sqrt_jvp(primals, tangents):
    root = sqrt(*primals)
    return root, tangents[0] * (0.5 * reciprocal(root))


@jax.custom_jvp
def reciprocal(z: Values) -> Values:
    """Return 1 / z."""
    return jnp.conj(z) * (1.0 / (jnp.real(z) ** 2 + jnp.imag(z) ** 2)).astype(z.dtype)


@reciprocal.defjvp
def _reciprocal_jvp(primals, tangents):
    inverse = reciprocal(*primals)
    return inverse, -(inverse * inverse) * tangents[0]


@jax.custom_jvp
def log1p_over(z: Values) -> tuple[Values, Values]:
    """Return log(1 + z) / z and its slope, by series for small z."""
    ratio, slope = _log1p_over_to(z, order=1)
    return ratio, slope


@log1p_over.defjvp
def _log1p_over_jvp(primals, tangents):
    (z,), (tangent,) = primals, tangents
    ratio, slope, bend = _log1p_over_to(z, order=2)
    return (ratio, slope), (slope * tangent, bend * tangent)


@jaxtape.no_inline(static_argnames="order")
def _log1p_over_to(z: Values, order: int) -> tuple[Values, ...]:
    """Return f(z) = log(1 + z) / z and derivatives up to an order, from (z f)' = 1 / (1 + z)."""
    small = jnp.abs(jnp.real(z)) + jnp.abs(jnp.imag(z)) < 1e-2
    safe = jnp.where(small, jnp.ones_like(z), z)
    per_z, pole = reciprocal(safe), reciprocal(1.0 + safe)
    exact, power = [_log1p(safe) * per_z], pole
    for n in range(1, order + 1):
        exact.append((power - n * exact[-1]) * per_z)
        power = -n * power * pole
    series = [jnp.zeros_like(z) for _ in exact]
    for term in range(8 + order, -1, -1):  # Horner's rule, differentiated
        for n in range(order, 0, -1):
            series[n] = -n * series[n - 1] - z * series[n]
        series[0] = 1.0 / (term + 1) - z * series[0]
    return tuple(jnp.where(small, *pair) for pair in zip(series, exact, strict=True))


@jax.custom_jvp
def _log1p(z: Values) -> Values:
    x, y = 1.0 + jnp.real(z), jnp.imag(z)
    return jax.lax.complex(0.5 * jnp.log(x * x + y * y), jnp.arctan2(y, x))


@_log1p.defjvp
def _log1p_jvp(primals, tangents):
    (z,), (tangent,) = primals, tangents
    return _log1p(z), tangent * reciprocal(1.0 + z)
