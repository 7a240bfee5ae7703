"""Functions with derivative rules of their own: interpolation, Chebyshev series, means of exponentials."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.market.interpolation import interpolate, pillar_weights
from pricing.models.rate_model import mean_exponential
from pricing.numerics.chebyshev import chebyshev_points
from pricing.numerics.chebyshev import interpolate as through_values

ROUNDING = 1e-12 if jnp.zeros(()).dtype == jnp.float64 else 1e-4


@pytest.mark.parametrize("columns", [(), (2,)], ids=["numbers", "columns"])
def test_interpolation_has_the_derivatives_of_its_weights(columns):
    """The values, places and pillars all move; the places include pillars and both ends."""
    pillars = jnp.array([0.5, 1.0, 2.0, 3.5])
    values = jax.random.normal(jax.random.key(0), (4, *columns))
    x = jnp.array([0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 3.5, 5.0])
    by_weights = lambda x, pillars, values: jnp.tensordot(pillar_weights(x, pillars), values, 1)
    found, expected = (
        jax.jit(jax.jacrev(function, (0, 1, 2)))(x, pillars, values)
        for function in (interpolate, by_weights)
    )
    for own, usual in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, usual, atol=ROUNDING)


def test_a_series_has_the_derivatives_of_its_polynomial():
    x = jnp.linspace(-0.9, 0.9, 7)
    points = jnp.asarray(chebyshev_points(24))
    of_exponent = lambda x: through_values(jnp.exp(points), x)
    slope = jax.jvp(of_exponent, (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(slope, jnp.exp(x), rtol=1e3 * ROUNDING)
    curvature = jax.grad(lambda x: jnp.sum(jax.jvp(of_exponent, (x,), (jnp.ones_like(x),))[1]))(x)
    np.testing.assert_allclose(curvature, jnp.exp(x), rtol=1e5 * ROUNDING)
    by_value = jax.jacrev(through_values)(jnp.exp(points), x)
    np.testing.assert_allclose(by_value @ jnp.exp(points), jnp.exp(x), rtol=1e2 * ROUNDING)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_a_mean_exponential_has_the_moments_as_derivatives(order):
    y = jnp.array([-12.0, -1.01, -0.99, -1e-9, 0.0, 0.3, 0.99, 1.01, 7.0])
    derivative = functools.reduce(lambda f, _: jax.grad(f), range(order), mean_exponential)
    s, weights = np.polynomial.legendre.leggauss(60)
    s = 0.5 * (s + 1.0)
    moments = (0.5 * weights * s**order) @ np.exp(s[:, None] * np.asarray(y))
    np.testing.assert_allclose(jax.vmap(derivative)(y), moments, rtol=10.0 * ROUNDING)
