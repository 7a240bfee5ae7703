"""Deep splitting beside published values and other methods, as a check that fits no derivative."""

import equinox as eqx
import jax
import numpy as np
import pytest

from pricing import Bermudan, BlackScholes, European, Quadrature
from pricing.fbsde import DeepSplitting, certify, multilevel_picard, problems, solve

from .backward_problems import RATE, SPOT, VOL, apart, figures_of_pricing, gate, put, riccati

KEY, OTHER = jax.random.split(jax.random.key(0))


@pytest.mark.costly
def test_a_published_value_in_a_hundred_dimensions():
    """Allen and Cahn's: .0528, E, Hutzenthaler, Jentzen, Kruse (2019); by branching .052781."""
    problem = problems.allen_cahn(100)
    solver = DeepSplitting(num_paths=8192, num_iterations=50)
    solution = solve(problem, solver, key=KEY)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), 0.0527813, rtol=2e-3)


@pytest.mark.slow
def test_it_agrees_with_iterations_that_know_no_dates():
    problem = problems.default_risk()
    keys = jax.random.split(KEY, 4)
    solution = solve(problem, DeepSplitting(num_paths=8192), key=keys)
    found = np.asarray(eqx.filter_vmap(lambda s: s.value(0.0, problem.x0))(solution))
    other = multilevel_picard(problem, key=OTHER, levels=4, samples=4, repeats=64)
    noise = np.hypot(np.std(found, ddof=1) / 2.0, float(other.std_error))
    assert abs(np.mean(found) - float(other.mean)) < 4.0 * noise
    np.testing.assert_allclose(np.mean(found), 57.3, rtol=2e-3)


@pytest.mark.costly
def test_a_driver_that_reads_z():
    known = riccati(3, 30)
    solver = DeepSplitting(num_paths=4096, num_iterations=60, batch_size=128)
    solution = solve(known.problem, solver, key=KEY)
    assert apart(solution.value(0.0, known.problem.x0), known.value) < 1e-2


@pytest.mark.costly
def test_early_exercise_and_a_certified_delta():
    product = Bermudan(European(SPOT, 1.0, "put"), np.arange(1, 6) / 5.0)
    value, delta, _ = figures_of_pricing(product, BlackScholes(SPOT, RATE, VOL), Quadrature())
    problem = put(num_steps=10, exercise_dates=5)
    solution = solve(problem, DeepSplitting(num_pairs=8), key=KEY)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=1e-2)
    found = certify(solution, key=OTHER, num_paths=32768)
    assert abs(float(found.value.mean) - float(value)) < 4.0 * float(found.value.std_error)
    assert abs(float(found.delta.mean[0]) - float(delta)) < 4.0 * float(found.delta.std_error[0])


@pytest.mark.costly
def test_stopped_paths_are_worth_the_stopped_value():
    problem, known = gate(0.3)
    solution = solve(problem, DeepSplitting(num_paths=8192, num_pairs=8), key=KEY)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), known, rtol=2e-2)


def test_what_networks_do_not_solve_is_named():
    with pytest.raises(TypeError, match="a single step"):
        solve(riccati(3, 1).problem, DeepSplitting(), key=KEY)
    with pytest.raises(
        TypeError, match=r"DeepSplitting does not solve this problem\. It has jumps"
    ):
        solve(problems.merton_put(), DeepSplitting(), key=KEY)
