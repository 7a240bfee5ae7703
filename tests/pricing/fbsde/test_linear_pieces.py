"""Piecewise linear functions of a normal variable, compared with dense least squares and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde.dynamics.linear_pieces import (
    MEANS,
    PieceSums,
    cubic,
    linear,
    moments,
    places,
    smoothed,
)

COUNT = 33
X = np.linspace(-9.0, 9.0, 40001)
DENSITY = np.exp(-0.5 * X**2) / np.sum(np.exp(-0.5 * X**2))


@pytest.fixture(scope="module")
def table():
    """Return a put and a straddle, with kinks at knots and between them."""
    x = np.linspace(-4.0, 4.0, COUNT)
    return jnp.asarray([np.maximum(-1.8 - x, 0.0), np.abs(x - 0.5)])


def test_least_squares_are_those_of_a_dense_system():
    x = jax.random.normal(jax.random.key(0), (2, 500), float)
    target = jnp.maximum(-1.8 - x, 0.0)
    found = np.asarray(PieceSums.of(x, target, COUNT).table())
    second = np.diff(np.eye(COUNT), 2, axis=0)
    for row, points, values in zip(found, np.asarray(x), np.asarray(target), strict=True):
        hats = np.maximum(0.0, 1.0 - np.abs((points[:, None] + 4.0) * 4.0 - np.arange(COUNT)))
        gram = hats.T @ hats + second.T @ second + 1e-3 * np.eye(COUNT)
        np.testing.assert_allclose(row, np.linalg.solve(gram, hats.T @ values), atol=1e-10)


@pytest.mark.parametrize("deviation", [0.3, 1.0])
def test_smoothed_is_the_mean_over_a_normal_variable(table, deviation):
    values, slopes = smoothed(table, jnp.full(2, deviation))
    at = np.array([-3.3, -1.0, 0.0, 2.2])
    found = cubic(values, slopes, jnp.broadcast_to(at, (2, 4)))
    for k, m in enumerate(at):
        true = linear(table, jnp.broadcast_to(m + deviation * X, (2, X.size))) @ DENSITY
        np.testing.assert_allclose(found[:, k], true, rtol=2e-4, atol=1e-5)
    middle = MEANS // 2
    assert places(MEANS, values.dtype)[middle] == 0.0
    true = linear(table, jnp.broadcast_to(deviation * X, (2, X.size))) @ (DENSITY * X) / deviation
    np.testing.assert_allclose(slopes[:, middle], true, rtol=1e-4)


def test_moments_are_those_of_quadrature(table):
    v = np.asarray(linear(table, jnp.broadcast_to(X, (2, X.size))))
    hermite = np.array([np.ones_like(X), X, (X**2 - 1.0) / 2.0**0.5])
    np.testing.assert_allclose(moments(table), v @ (DENSITY * hermite).T, rtol=1e-4, atol=1e-6)


def test_single_precision(table):
    single = table.astype("float32")
    for found, true in zip(
        smoothed(single, jnp.full(2, 0.3, "float32")),
        smoothed(table, jnp.full(2, 0.3)),
        strict=True,
    ):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, true, rtol=1e-4, atol=1e-6)
