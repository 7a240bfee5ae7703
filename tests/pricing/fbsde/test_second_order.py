"""Drivers that read Gamma: uncertain volatility, and a diffusion that reads Y."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_banded

from pricing.fbsde import (
    Additive,
    DeepBSDE,
    GradientRegression,
    GridQuadrature,
    Hermite,
    Problem,
    certify,
    coupled,
    hedging,
    problems,
    solve,
)

KEY, OTHER = jax.random.split(jax.random.key(0))


def uncertain_volatility(nodes: int = 1501, steps: int = 500) -> tuple[float, float]:
    """Return value and Delta of the spread by implicit finite differences and Howard's iteration."""
    y = np.linspace(-1.2, 1.2, nodes)
    h, dt, s = y[1] - y[0], 1.0 / steps, 100.0 * np.exp(y)
    value = np.maximum(s - 90.0, 0.0) - np.maximum(s - 110.0, 0.0)

    def bend(u):
        inner = (u[2:] - 2.0 * u[1:-1] + u[:-2]) / h**2 - (u[2:] - u[:-2]) / (2.0 * h)
        return np.pad(inner, 1)

    worst = lambda u: np.where(bend(u) > 0.0, 0.04, 0.01)  # noqa: E731
    for step in range(steps):
        implicit = 1.0 if step < 8 else 0.5  # Rannacher's start
        known = value + (1.0 - implicit) * dt * 0.5 * worst(value) * bend(value)
        found = value
        for _ in range(30):
            half = 0.5 * implicit * dt * worst(found)[1:-1]
            bands = np.zeros((3, nodes))
            bands[1] = 1.0
            bands[1, 1:-1] += 2.0 * half / h**2
            bands[0, 2:] = -half * (1.0 / h**2 - 0.5 / h)
            bands[2, :-2] = -half * (1.0 / h**2 + 0.5 / h)
            last, found = found, solve_banded((1, 1), bands, known)
            if np.max(np.abs(found - last)) < 1e-11:
                break
        value = found
    middle = nodes // 2
    return float(value[middle]), float((value[middle + 1] - value[middle - 1]) / (200.0 * h))


@pytest.mark.parametrize("vol", [0.15, pytest.param(0.2, marks=pytest.mark.repeat)])
def test_uncertain_volatility(vol):
    problem = problems.uncertain_volatility(50, vol)
    solution = solve(problem, GridQuadrature(), key=KEY)
    value, delta = uncertain_volatility()
    assert abs(value - 11.20) < 0.005  # Guyon, Henry-Labordere
    np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=1e-3)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0), [delta], rtol=5e-3)


@pytest.mark.repeat
def test_barenblatt_in_a_hundred_dimensions():
    problem = problems.barenblatt(num_steps=10)
    solution = solve(problem, GradientRegression(8192, (Additive(2),)), key=KEY)
    growth, x0 = np.exp(0.21), np.asarray(problem.x0)
    np.testing.assert_allclose(solution.value(0.0, x0), growth * x0 @ x0, rtol=5e-3)
    np.testing.assert_allclose(solution.delta(0.0, x0), 2.0 * growth * x0, rtol=0.03)
    gamma = np.diagonal(solution.gamma(0.0, x0))
    assert abs(np.mean(gamma) / (2.0 * growth) - 1.0) < 0.03


def coupled_sines(dim: int, vol: float, num_steps: int) -> Problem:
    """Return dX = .4 Y dW, u = exp(-.1 (1 - t)) sum sin x_i. Bender, Zhang (2008), Ann. Appl. Prob."""

    def driver(t, x, y, z):
        return -0.1 * y + 0.08 * jnp.exp(-0.3 * (1.0 - t)) * jnp.sum(jnp.sin(x)) ** 3

    own = Problem(
        dim,
        1.0,
        1.25,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: vol,
        driver=driver,
        terminal=lambda x: jnp.sum(jnp.sin(x)),
        num_steps=num_steps,
    )
    return coupled(own, diffusion=lambda t, x, y: 0.4 * y)


@pytest.mark.parametrize(
    ("dim", "vol", "solver"),
    [
        (1, 0.4, GridQuadrature()),
        pytest.param(2, 0.69, GradientRegression(16384, (Hermite(6),)), marks=pytest.mark.repeat),
    ],
)
def test_a_diffusion_that_reads_y(dim, vol, solver):
    problem = coupled_sines(dim, vol, 20)
    solution = solve(problem, solver, key=KEY)
    x0, discount = np.asarray(problem.x0), np.exp(-0.1)
    value, delta = discount * np.sum(np.sin(x0)), discount * np.cos(x0)
    np.testing.assert_allclose(solution.value(0.0, x0), value, rtol=1e-3)
    np.testing.assert_allclose(solution.delta(0.0, x0), delta, rtol=0.01)


def test_paths_whose_variance_is_a_small_part_of_the_equations_are_refused():
    problem = problems.uncertain_volatility(25, 0.1)
    for solver in (GridQuadrature(), GradientRegression()):
        with pytest.raises(
            TypeError, match=r"variance of the state 1 to 4 times that of its paths"
        ):
            solve(problem, solver, key=KEY)


def test_verbs_that_do_not_read_gamma_say_so():
    problem = problems.uncertain_volatility(50, 0.2)
    with pytest.raises(TypeError, match="a driver that reads Gamma: GridQuadrature"):
        solve(problem, DeepBSDE(), key=KEY)
    solution = solve(problem, GridQuadrature(), key=KEY)
    with pytest.raises(TypeError, match=r"the driver reads Gamma: .* compare solutions"):
        certify(solution, key=OTHER)
    with pytest.raises(ValueError, match="the driver reads Gamma"):
        hedging(solution, key=OTHER)


def test_nothing_is_said_of_errors_in_many_dimensions():
    with pytest.raises(
        TypeError, match="nothing would tell how far off a solution is: name a solver"
    ):
        solve(problems.barenblatt(3), key=KEY)


@pytest.mark.repeat
def test_errors_of_a_chosen_solution_are_what_another_on_half_of_the_dates_says():
    problem = problems.uncertain_volatility(50, 0.15)
    solution = solve(problem, key=KEY, throw=False)
    value, delta = uncertain_volatility()
    found, told = solution.stats["certificate"], solution.stats["errors"]
    assert told.value < 2e-3 and told.delta < 1e-2
    assert abs(float(found.value.mean) / value - 1.0) < 2e-3
    assert abs(float(found.delta.mean[0]) / delta - 1.0) < 1e-2
