"""The one step Malliavin scheme against closed forms and quadratures: value, Delta and Gamma."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Bermudan, BlackScholes, European, Quadrature
from pricing.fbsde import OneStepMalliavin, Problem, solve

from .backward_problems import (
    RATE,
    SPOT,
    VOL,
    apart,
    calls,
    figures_of_pricing,
    gate,
    listed,
    put,
    riccati,
    single,
    today,
)

_KEY = jax.random.key(11)
_SMALL = {"num_paths": 4096, "num_iterations": 60, "batch_size": 128}


@pytest.mark.costly
def test_calls_under_a_linear_driver_agree_with_black_scholes():
    known, alone = calls(90.0, 110.0), calls(110.0)
    solver = OneStepMalliavin(num_pairs=8, **_SMALL)
    value, delta, gamma = today(solve(known.problem, solver, key=_KEY), known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=5e-3)
    np.testing.assert_allclose(delta, known.delta, rtol=1e-2)
    np.testing.assert_allclose(gamma, known.gamma, rtol=3e-2)
    own = today(solve(alone.problem, solver, key=_KEY), alone.problem.x0)
    np.testing.assert_allclose(value[1], own[0], rtol=5e-3)
    np.testing.assert_allclose(gamma[1], own[2], rtol=3e-2)


@pytest.mark.costly
@pytest.mark.parametrize("gamma", ["full", "diagonal"])
def test_a_quadratic_solution_is_found_on_all_dates(gamma):
    known = riccati(3, 30)
    solution = solve(known.problem, OneStepMalliavin(gamma=gamma, **_SMALL), key=_KEY)
    value, delta, hessian = today(solution, known.problem.x0)
    assert apart(value, known.value) < 1e-2
    assert apart(delta, known.delta) < 1e-3
    assert apart(hessian, known.gamma) < 1e-2
    t, x = jnp.float32(0.5), jnp.asarray([1.0, -0.5, 0.2], jnp.float32)
    np.testing.assert_allclose(solution.delta(t, x), 2.0 * x / 3.0, atol=1e-2)
    assert apart(solution.gamma(t, x), 2.0 / 3.0 * np.eye(3)) < 2e-2


@pytest.mark.costly
def test_correlated_assets_have_cross_gammas():
    """A product of two lognormal martingales: s is a matrix, and depends on x."""
    factor = np.array([[0.2, 0.0], [0.15, 0.2]])
    covariance = factor @ factor.T

    def step(t, dt, x, dw):
        drift = -0.5 * jnp.asarray(np.diag(covariance), x.dtype)
        return x * jnp.exp(drift * dt + jnp.asarray(factor, x.dtype) @ dw)

    problem = Problem(
        2,
        1.0,
        jnp.asarray([1.0, 2.0]),
        drift=lambda t, x: jnp.zeros_like(x),
        diffusion=lambda t, x: x[:, None] * jnp.asarray(factor, x.dtype),
        driver=lambda t, x, y, z: jnp.zeros_like(y),
        terminal=lambda x: x[0] * x[1],
        num_steps=5,
        step=step,
    )
    problem, growth = single(problem), np.exp(covariance[0, 1])
    solver = OneStepMalliavin(num_pairs=4, **_SMALL)
    value, delta, gamma = today(solve(problem, solver, key=_KEY), problem.x0)
    np.testing.assert_allclose(value, 2.0 * growth, rtol=2e-3)
    np.testing.assert_allclose(delta, [2.0 * growth, growth], rtol=1e-2)
    np.testing.assert_allclose(gamma, [[0.0, growth], [growth, 0.0]], atol=5e-2)


@pytest.mark.costly
def test_early_exercise_agrees_with_quadrature():
    dates = np.arange(1, 6) / 5.0
    product = Bermudan(European(SPOT, 1.0, "put"), dates)
    known = figures_of_pricing(product, BlackScholes(SPOT, RATE, VOL), Quadrature())
    problem = put(num_steps=10, exercise_dates=5)
    # what the networks miss at the boundary counts once in Delta (in the value: squared)
    solver = OneStepMalliavin(num_pairs=8, num_paths=4096, num_iterations=300)
    value, delta, gamma = today(solve(problem, solver, key=_KEY), problem.x0)
    np.testing.assert_allclose(value, known[0], rtol=5e-3)
    np.testing.assert_allclose(delta[0], known[1], rtol=2e-2)
    np.testing.assert_allclose(gamma[0, 0], known[2], rtol=4e-2)


def test_what_it_cannot_do_is_named():
    with pytest.raises(TypeError, match=r"stopped paths.*BackwardDP and GradientRegression"):
        solve(gate(None)[0], OneStepMalliavin(), key=_KEY)
    with pytest.raises(ValueError, match=r"gamma must be one of 'full', 'diagonal', got 'none'"):
        OneStepMalliavin(gamma="none")
    with pytest.raises(ValueError, match=r"num_pairs=0: give 1 or more"):
        OneStepMalliavin(num_pairs=0)


@pytest.mark.slow
def test_bounded_example():
    known = listed("bounded-5")
    solver = OneStepMalliavin(num_iterations=200, first_stages=10)
    value, delta, gamma = today(solve(known.problem, solver, key=_KEY), known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=5e-3)
    assert apart(delta, known.delta) < 1e-2
    assert apart(gamma, known.gamma) < 3e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["allen-cahn", "hjb", "black-scholes-barenblatt"])
def test_100_dimensions(name):
    known = listed(f"{name}-gamma")
    solution = solve(known.problem, OneStepMalliavin(gamma="diagonal", num_paths=32768), key=_KEY)
    value, delta, gamma = today(solution, known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=2e-3)
    assert apart(delta, known.delta) < 3e-2
    assert apart(gamma, known.gamma) < 3e-2


@pytest.mark.slow
def test_two_rates_to_a_twentieth_of_a_percent():
    known = listed("different-rates-call")
    solver = OneStepMalliavin(num_paths=32768, num_pairs=16, num_iterations=200)
    value, delta, gamma = today(solve(known.problem, solver, key=_KEY), known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=5e-4)
    np.testing.assert_allclose(delta, known.delta, rtol=3e-3)
    np.testing.assert_allclose(gamma, known.gamma, rtol=1e-2)
