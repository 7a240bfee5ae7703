"""Backward dynamic programming against closed forms, quadratures and published values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Bermudan, BlackScholes, European, Quadrature
from pricing.fbsde import Architecture, BackwardDP, solve

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
    today,
)

_KEY = jax.random.key(7)
_SMALL = {"num_paths": 4096, "num_iterations": 60, "batch_size": 128}
_BOTH = pytest.mark.parametrize("variant", [1, 2])
_SECOND = pytest.mark.parametrize("variant", [pytest.param(1, marks=pytest.mark.slow), 2])


@pytest.mark.costly
@_SECOND
def test_calls_under_a_linear_driver_agree_with_black_scholes(variant):
    known = calls(90.0, 110.0)
    solution = solve(known.problem, BackwardDP(variant, num_pairs=8, **_SMALL), key=_KEY)
    value, delta, gamma = today(solution, known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=5e-3)
    np.testing.assert_allclose(delta, known.delta, rtol=1e-2)
    np.testing.assert_allclose(gamma, known.gamma, rtol=1e-1)


@pytest.mark.costly
def test_a_contract_of_many_is_worth_what_it_is_alone():
    together, alone = calls(90.0, 110.0), calls(110.0)
    solver = BackwardDP(num_pairs=8, **_SMALL)
    found = solve(together.problem, solver, key=_KEY)
    value, delta, _ = today(found, together.problem.x0)
    own = today(solve(alone.problem, solver, key=_KEY), alone.problem.x0)
    np.testing.assert_allclose(value[1], own[0], rtol=5e-3)
    np.testing.assert_allclose(delta[1], own[1], rtol=1e-2)


@pytest.mark.costly
@_SECOND
def test_a_quadratic_solution_is_found_on_all_dates(variant):
    known = riccati(3, 30)
    solution = solve(known.problem, BackwardDP(variant, **_SMALL), key=_KEY)
    value, delta, gamma = today(solution, known.problem.x0)
    assert apart(value, known.value) < 1e-2  # 30 steps leave .3 %
    assert apart(delta, known.delta) < 2e-2
    assert apart(gamma, known.gamma) < 5e-2
    t, x = jnp.float32(0.5), jnp.asarray([1.0, -0.5, 0.2], jnp.float32)
    np.testing.assert_allclose(solution.value(t, x), 1.29 / 3.0 + 1.5 * np.log(3.0), rtol=2e-2)
    np.testing.assert_allclose(solution.delta(t, x), 2.0 * x / 3.0, atol=2e-2)


@pytest.mark.costly
@_SECOND
def test_early_exercise_agrees_with_quadrature(variant):
    dates = np.arange(1, 6) / 5.0
    product = Bermudan(European(SPOT, 1.0, "put"), dates)
    known = figures_of_pricing(product, BlackScholes(SPOT, RATE, VOL), Quadrature())
    problem = put(num_steps=10, exercise_dates=5)
    paths = {
        **_SMALL,
        "num_paths": 16384,
    }  # a maximum of what is fitted is biased high: .3 % with 4,096
    solution = solve(problem, BackwardDP(variant, num_pairs=8, **paths), key=_KEY)
    value, delta, _ = today(solution, problem.x0)
    np.testing.assert_allclose(value, known[0], rtol=5e-3)
    np.testing.assert_allclose(delta[0], known[1], rtol=2e-2)


@pytest.mark.costly
@pytest.mark.parametrize("rebate", [pytest.param(None, marks=pytest.mark.slow), 0.3])
def test_stopped_paths_are_worth_the_stopped_value(rebate):
    problem, known = gate(rebate)
    solution = solve(problem, BackwardDP(num_pairs=8, **_SMALL), key=_KEY)
    np.testing.assert_allclose(solution.value(jnp.float32(0.0), problem.x0), known, rtol=2e-2)
    later = solution.value(jnp.float32(0.75), jnp.ones(1, jnp.float32))
    np.testing.assert_allclose(later, 1.0, rtol=1e-2)  # a martingale, past the gate


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match=r"variant=3: give 1 .* or 2"):
        BackwardDP(3)
    with pytest.raises(ValueError, match=r"num_paths=0: give 1 or more"):
        BackwardDP(num_paths=0)
    with pytest.raises(ValueError, match=r"learning_rate=0\.0: give a number above 0"):
        BackwardDP(learning_rate=0.0)


def test_stages_are_dates_latest_first():
    problem, solver = put(4, 4), BackwardDP(first_stages=2)
    dates = [solver.describe_stage(problem, stage) for stage in range(solver.num_stages(problem))]
    assert dates == ["date 3", "date 3", "date 2", "date 1", "date 0"]


@pytest.mark.slow
@pytest.mark.parametrize("dim", [5, 10])
def test_published_bounded_example(dim):
    """Five seeds: Huré, Pham, Warin (2020), section 5.1."""
    known = listed(f"bounded-{dim}")
    solver = BackwardDP(
        num_iterations=200,
        first_stages=10,
        architecture=Architecture(width=40, activation=jnp.tanh),
    )
    found = solve(known.problem, solver, key=jax.random.split(_KEY, 5))
    values = np.asarray(eqx.filter_vmap(lambda s: s.value(jnp.float32(0.0), s.problem.x0))(found))
    np.testing.assert_allclose(np.mean(values), known.value, rtol=5e-3)
    assert np.std(values) < 5e-3 * abs(known.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["allen-cahn", "hjb", "black-scholes-barenblatt"])
def test_100_dimensions(name):
    known = listed(f"{name}-gamma")
    solution = solve(known.problem, BackwardDP(2), key=_KEY)
    value, delta, gamma = today(solution, known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=2e-3)
    assert apart(delta, known.delta) < 3e-2
    np.testing.assert_allclose(np.trace(gamma), np.trace(known.gamma), rtol=3e-2)


@pytest.mark.slow
@_BOTH
def test_two_rates_to_a_tenth_of_a_percent(variant):
    known = listed("different-rates-call")
    solver = BackwardDP(variant, num_paths=32768, num_pairs=16, num_iterations=200)
    value, delta, gamma = today(solve(known.problem, solver, key=_KEY), known.problem.x0)
    np.testing.assert_allclose(value, known.value, rtol=1e-3)
    np.testing.assert_allclose(delta, known.delta, rtol=3e-3)
    np.testing.assert_allclose(gamma, known.gamma, rtol=2e-2)
