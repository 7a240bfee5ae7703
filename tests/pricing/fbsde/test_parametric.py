"""Contract features as inputs: strikes that no path had are priced without a new training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Basket, Bermudan, BlackScholes, ClosedForm, European, Quadrature
from pricing.fbsde import (
    BackwardDP,
    DeepBSDE,
    GradientRegression,
    Hermite,
    OneStepMalliavin,
    PayoffBasis,
    from_product,
    parametric,
    solve,
)
from pricing.fbsde.dynamics.forward_paths import simulate

from .backward_problems import figures_of_pricing

MODEL = BlackScholes(100.0, 0.05, 0.2)
STRIKES = (90.0, 95.0, 100.0, 105.0, 110.0)
SOLVER = GradientRegression(65536, (Hermite(6, logs=True), PayoffBasis()))


def call(features):
    return from_product(European(features[0], 1.0, "call"), MODEL, 8)


def bermudan_put(features):
    put = Bermudan(European(features[0], 1.0, "put"), [0.25, 0.5, 0.75, 1.0])
    return from_product(put, MODEL, 8)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("make", "product", "method"),
    [
        (call, lambda strike: European(strike, 1.0, "call"), ClosedForm()),
        pytest.param(
            bermudan_put,
            lambda strike: Bermudan(European(strike, 1.0, "put"), [0.25, 0.5, 0.75, 1.0]),
            Quadrature(),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["call", "Bermudan-put"],
)
def test_one_training_is_for_all_strikes(make, product, method):
    solution = solve(parametric(make, 85.0, 115.0), SOLVER, key=jax.random.key(0))
    figures = jax.jit(lambda x: (solution.value(0.0, x), solution.delta(0.0, x)))
    for strike in STRIKES:
        known_value, known_delta, _ = figures_of_pricing(product(strike), MODEL, method)
        value, (delta, of_strike) = figures(jnp.array([100.0, strike]))
        np.testing.assert_allclose(value, known_value, rtol=5e-3)
        np.testing.assert_allclose(delta, known_delta, rtol=1e-2)
        homogeneous = (known_value - 100.0 * known_delta) / strike  # u(cS, cK) = c u(S, K)
        np.testing.assert_allclose(of_strike, homogeneous, atol=1e-2)


def rate_and_strike(features):
    rate, strike = features
    correlation = np.array([[1.0, 0.4], [0.4, 1.0]])
    model = BlackScholes(
        [100.0, 80.0], rate, [0.2, 0.3], [0.01, 0.0], asset_correlation=correlation
    )
    put = Bermudan(Basket(strike, 1.0, "put"), [0.5, 1.0])
    return from_product(put, model, 4)


def test_every_function_is_that_of_the_problem_with_these_features():
    problem = parametric(rate_and_strike, [0.01, 80.0], [0.05, 100.0])
    features = jnp.array([0.02, 95.0])
    alone = rate_and_strike(features)
    t, dt = jnp.asarray(0.3), jnp.asarray(0.1)
    x, dw = jnp.array([90.0, 85.0]), jnp.array([0.2, -0.1])
    state = jnp.concatenate([x, features])
    noise, none = jnp.concatenate([dw, jnp.array([3.0, -2.0])]), jnp.zeros(2)
    y, z = jnp.asarray(2.0), jnp.array([1.0, -1.0])
    for found, known in [
        (problem.drift(t, state), jnp.concatenate([alone.drift(t, x), none])),
        (problem.diffusion(t, state)[:2, :2], alone.diffusion(t, x)),
        (problem.diffusion(t, state)[2:], jnp.zeros((2, 4))),
        (problem.diffusion(t, state)[:, 2:], jnp.zeros((4, 2))),
        (problem.step(t, dt, state, noise), jnp.concatenate([alone.step(t, dt, x, dw), features])),
        (problem.driver(t, state, y, jnp.concatenate([z, none])), alone.driver(t, x, y, z)),
        (problem.terminal(state), alone.terminal(x)),
        (problem.exercise_value(t, state), alone.exercise_value(t, x)),
    ]:
        np.testing.assert_allclose(found, known, rtol=1e-12)
    assert (problem.exercise_dates, problem.dim) == (alone.exercise_dates, 4)
    np.testing.assert_allclose(problem.x0, [100.0, 80.0, 0.03, 90.0])


@pytest.mark.costly
def test_paths_of_a_training_start_with_features_between_the_bounds():
    problem = parametric(rate_and_strike, [0.01, 80.0], [0.05, 100.0])
    states = simulate(problem, 1024, key=jax.random.key(1), initial_dispersion=0.0).states
    features = np.asarray(states[..., 2:])
    np.testing.assert_array_equal(features, np.broadcast_to(features[0], features.shape))
    np.testing.assert_allclose(states[0, :, :2], np.tile([100.0, 80.0], (1024, 1)))
    share = (features[0] - [0.01, 80.0]) / [0.04, 20.0]
    assert 0.0 < share.min() < 0.01
    assert 0.99 < share.max() < 1.0
    np.testing.assert_allclose(share.mean(axis=0), 0.5, atol=4.0 / np.sqrt(12.0 * 1024.0))
    assert abs(np.corrcoef(share.T)[0, 1]) < 4.0 / 32.0
    at_x0 = simulate(problem, 2, key=jax.random.key(1)).states
    np.testing.assert_allclose(at_x0[0], np.tile(problem.x0, (2, 1)))


@pytest.mark.parametrize("solver", [DeepBSDE(), BackwardDP(), OneStepMalliavin()])
def test_solvers_that_start_at_one_state_refuse(solver):
    with pytest.raises(TypeError, match="features of contracts"):
        solve(parametric(call, 90.0, 110.0), solver, key=jax.random.key(0))


@pytest.mark.parametrize(("low", "high"), [(110.0, 90.0), ([90.0], [100.0, 110.0])])
def test_bounds_are_in_order_and_of_one_length(low, high):
    with pytest.raises(ValueError, match="give two vectors, the first below the second"):
        parametric(call, low, high)
