"""Levenberg-Marquardt through optax's interface, on residuals with a known minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calibration import levenberg_marquardt
from tests.helpers import double

pytestmark = double


def rosenbrock(x):
    """More, Garbow and Hillstrom (1981), problem 1: minimum 0 at (1, 1)."""
    return jnp.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def powell(x):
    """Problem 13: minimum 0 at 0, where the Jacobian is singular."""
    return jnp.stack(
        [
            x[0] + 10.0 * x[1],
            np.sqrt(5.0) * (x[2] - x[3]),
            (x[1] - 2.0 * x[2]) ** 2,
            np.sqrt(10.0) * (x[0] - x[3]) ** 2,
        ]
    )


def exponential(x):
    """A fit with residuals left over: x0 exp(x1 t) to noise around 2 exp(-t)."""
    t = jnp.linspace(0.0, 3.0, 20)
    return x[0] * jnp.exp(x[1] * t) - 2.0 * jnp.exp(-t) - 0.1 * jnp.cos(7.0 * t)


def minimise(residual_fn, start, steps, optimizer=None):
    """The path of (x, sum of squares), one optax update a step."""
    optimizer = optimizer or levenberg_marquardt()

    @jax.jit
    def step(x, state):
        residual, jacobian = residual_fn(x), jax.jacfwd(residual_fn)(x)
        extra = {"residual": residual, "jacobian": jacobian}
        updates, state = optimizer.update(jacobian.T @ residual, state, x, **extra)
        return optax.apply_updates(x, updates), state, jnp.sum(residual**2)

    x = jnp.asarray(start)
    state, losses = optimizer.init(x), []
    for _ in range(steps):
        x, state, loss = step(x, state)
        losses.append(float(loss))
    return x, losses


@pytest.mark.parametrize(
    ("residual_fn", "start", "steps", "minimum", "atol"),
    [
        (rosenbrock, [-1.2, 1.0], 40, [1.0, 1.0], 1e-10),
        (powell, [3.0, -1.0, 0.0, 1.0], 40, [0.0] * 4, 1e-4),
    ],
)
def test_it_finds_a_known_minimum(residual_fn, start, steps, minimum, atol):
    x, losses = minimise(residual_fn, start, steps)
    np.testing.assert_allclose(x, minimum, atol=atol)
    assert min(losses) < 1e-15 * losses[0]


def test_a_step_up_is_taken_back():
    """After a point above the lowest, the next starts from the lowest again, with more damping."""
    optimizer, x = levenberg_marquardt(), jnp.asarray([-1.2, 1.0])

    def update(at, state, factor=1.0):
        residual, jacobian = factor * rosenbrock(at), jax.jacfwd(rosenbrock)(at)
        extra = {"residual": residual, "jacobian": jacobian}
        step, state = optimizer.update(jacobian.T @ residual, state, at, **extra)
        return at + step, state

    first, state = update(x, optimizer.init(x))
    for factor in (2.0, jnp.nan):
        again, after = update(first, state, factor / jnp.linalg.norm(rosenbrock(first)) * 10.0)
        assert after.rejected
        assert after.damping == 4.0 * state.damping
        np.testing.assert_allclose(after.best.x, x)
        assert 0.0 < jnp.linalg.norm(again - x) < jnp.linalg.norm(first - x)


def test_with_residuals_left_over_the_gradient_vanishes():
    x, losses = minimise(exponential, [1.0, 0.0], 40)
    gradient = jax.grad(lambda x: 0.5 * jnp.sum(exponential(x) ** 2))(x)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)
    assert losses[-1] > 1e-2


def test_no_coordinate_moves_by_more_than_max_step():
    x, _ = minimise(exponential, [1.0, 0.0], 1, levenberg_marquardt(1e-12, max_step=0.1))
    assert jnp.max(jnp.abs(x - jnp.asarray([1.0, 0.0]))) == pytest.approx(0.1)


def test_at_the_minimum_it_stays():
    x, losses = minimise(rosenbrock, [1.0, 1.0], 3)
    np.testing.assert_array_equal(x, 1.0)
    assert losses == [0.0, 0.0, 0.0]


def test_it_composes_with_optax():
    """A chain passes the extra arguments on: half steps reach the same minimum."""
    half = optax.chain(levenberg_marquardt(), optax.scale(0.5))
    x, _ = minimise(exponential, [1.0, 0.0], 80, half)
    np.testing.assert_allclose(x, minimise(exponential, [1.0, 0.0], 40)[0], atol=1e-6)
