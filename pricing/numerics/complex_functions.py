"""Complex functions by real ones: half the cost of XLA's, which guard against overflow of |z|^2."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex

Values = Complex[Array, "..."]


@jax.custom_jvp
def exp(z: Values) -> Values:
    """Return e^z."""
    size, angle = jnp.exp(jnp.real(z)), jnp.imag(z)
    return jax.lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))


@exp.defjvp
def _exp_jvp(primals, tangents):
    value = exp(*primals)
    return value, value * tangents[0]


@jax.custom_jvp
def sqrt(z: Values) -> Values:
    """Return the root with a positive real part; digits are lost near the negative axis."""
    x, y = jnp.real(z), jnp.imag(z)
    root = jnp.sqrt(0.5 * (jnp.sqrt(x * x + y * y) + x))
    return jax.lax.complex(root, 0.5 * y / root)


@sqrt.defjvp
def _sqrt_jvp(primals, tangents):
    root = sqrt(*primals)
    return root, tangents[0] * (0.5 / root)


def log1p_over(z: Values) -> Values:
    """Return log(1 + z) / z, by its series where z is small."""
    small = jnp.abs(jnp.real(z)) + jnp.abs(jnp.imag(z)) < 1e-2
    safe = jnp.where(small, jnp.ones_like(z), z)
    series = jnp.zeros_like(z)
    for power in range(8, -1, -1):
        series = 1.0 / (power + 1) - z * series
    return jnp.where(small, series, _log1p(safe) / safe)


@jax.custom_jvp
def _log1p(z: Values) -> Values:
    x, y = 1.0 + jnp.real(z), jnp.imag(z)
    return jax.lax.complex(0.5 * jnp.log(x * x + y * y), jnp.arctan2(y, x))


@_log1p.defjvp
def _log1p_jvp(primals, tangents):
    (z,), (tangent,) = primals, tangents
    return _log1p(z), tangent / (1.0 + z)
