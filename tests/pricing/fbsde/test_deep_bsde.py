"""Deep BSDE: published problems in a hundred dimensions, and what it does not do."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtape import Revolve
from pricing.fbsde import CATALOGUE, DeepBSDE, Problem, problems, solve

from .backward_problems import single


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("allen-cahn", 2e-3), ("hjb", 1e-3)],
)
def test_published_values_in_a_hundred_dimensions(name, tolerance):
    entry = CATALOGUE[name]
    problem = single(entry.problem())
    solution = solve(problem, DeepBSDE(400), key=jax.random.key(0))
    np.testing.assert_allclose(solution.value(0.0, problem.x0), entry.value, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_iterations", "tolerance"),
    [
        ("allen-cahn", 1500, 1e-3),
        ("hjb", 1500, 5e-4),
        ("burgers", 3000, 1e-2),
        ("black-scholes-barenblatt", 1500, 2e-3),
    ],
)
def test_published_values_of_five_seeds(name, num_iterations, tolerance):
    entry = CATALOGUE[name]
    problem, solver = single(entry.problem()), DeepBSDE(num_iterations=num_iterations)
    found = [
        solve(problem, solver, key=jax.random.key(seed)).value(0.0, problem.x0) for seed in range(5)
    ]
    np.testing.assert_allclose(np.mean(found), entry.value, rtol=tolerance)


@pytest.mark.costly
def test_the_gradient_is_that_of_the_closed_form():
    """u = exp(.21 (T - t)) |x|^2 under a driver of y and z."""
    problem = single(problems.black_scholes_barenblatt(4, num_steps=20))
    solution = solve(problem, DeepBSDE(600), key=jax.random.key(1))
    growth = np.exp(0.21)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), 2.5 * growth, rtol=5e-3)
    delta = 2.0 * growth * np.asarray(problem.x0)
    missed = np.linalg.norm(np.asarray(solution.delta(0.0, problem.x0)) - delta)
    assert missed < 0.05 * np.linalg.norm(delta)


@pytest.mark.costly
def test_the_trapezoid_rule_errs_less_than_the_left_one():
    """y' = -y over four steps, from y_T = 1: the errors of exp(1) are of second and of first order."""
    problem = single(
        Problem(
            1,
            1.0,
            0.0,
            drift=lambda t, x: jnp.zeros_like(x),
            diffusion=lambda t, x: 1.0,
            driver=lambda t, x, y, z: y,
            terminal=lambda x: 1.0 + 0.0 * x[0],
            num_steps=4,
        )
    )
    found = {
        rule: float(
            solve(
                problem, DeepBSDE(400, driver_rule=rule, learning_rate=2e-2), key=jax.random.key(2)
            ).value(0.0, problem.x0)
        )
        for rule in ("trapezoid", "left")
    }
    # Y_0 (1 - h)^4 = 1 and Y_0 (1 - h + h^2 / 2)^4 = 1, h = 1/4
    np.testing.assert_allclose(found["left"], 0.75**-4, rtol=2e-3)
    np.testing.assert_allclose(found["trapezoid"], (1 - 0.25 + 0.5 * 0.25**2) ** -4, rtol=2e-3)


@pytest.mark.costly
def test_a_vector_of_contracts_is_its_contracts():
    def paying(terminal):
        return single(
            Problem(
                3,
                0.5,
                1.0,
                drift=lambda t, x: 0.1 * x,
                diffusion=lambda t, x: 0.3 * x,
                driver=lambda t, x, y, z: -0.1 * y,
                terminal=terminal,
                num_steps=5,
            )
        )

    solver = DeepBSDE(400)
    both = paying(lambda x: jnp.stack([jnp.sum(x), jnp.sum(x**2)]))
    found = solve(both, solver, key=jax.random.key(3))
    value = found.value(0.0, both.x0)
    known = [3.0, 3.0 * np.exp(0.5 * (0.1 + 0.3**2))]
    np.testing.assert_allclose(value, known, rtol=5e-3)
    chex.assert_shape(found.delta(0.0, both.x0), (2, 3))
    np.testing.assert_allclose(found.delta(0.0, both.x0)[0], 1.0, rtol=0.05)


@pytest.mark.costly
def test_any_optimizer_and_any_schedule_of_the_tape():
    problem = single(problems.allen_cahn(4))
    plain = solve(problem, DeepBSDE(100), key=jax.random.key(4))
    kept = solve(problem, DeepBSDE(100, schedule=Revolve(3)), key=jax.random.key(4))
    np.testing.assert_allclose(kept.value(0.0, problem.x0), plain.value(0.0, problem.x0), rtol=1e-4)
    other = solve(problem, DeepBSDE(100, optimizer=optax.sgd(1e-3)), key=jax.random.key(4))
    assert np.isfinite(other.value(0.0, problem.x0))


def test_a_value_elsewhere_is_refused():
    problem = single(problems.allen_cahn(4))
    solution = solve(problem, DeepBSDE(100), key=jax.random.key(5))
    with pytest.raises(Exception, match="only at t = 0, x = x0"):
        jax.block_until_ready(solution.value(0.0, problem.x0 + 1.0))


def test_early_exercise_and_stops_are_refused():
    for problem, message in (
        (problems.max_call(2), "early exercise"),
        (problems.down_and_out_call(), "stopped paths"),
    ):
        with pytest.raises(TypeError, match=message):
            solve(problem, DeepBSDE(100), key=jax.random.key(6))
