"""Coupled forward equations, and systems of backward ones, beside solutions in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import (
    BackwardDP,
    DeepBSDE,
    GradientRegression,
    GridQuadrature,
    Hermite,
    MeanPolynomials,
    OneStepMalliavin,
    Problem,
    certify,
    coupled,
    solve,
)

KEY, OTHER = jax.random.split(jax.random.key(0))


def brownian(dim: int, driver, terminal, num_steps: int = 20, x0: float = 0.3) -> Problem:
    return Problem(
        dim,
        1.0,
        x0,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: 1.0,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
    )


# --- a drift that reads Y -----------------------------------------------------------------------------


def wave(dim: int) -> tuple[Problem, float, np.ndarray]:
    """dX = Y v dt + dW, |v| = 1: a wave u = 1 / (1 + exp(t / 2 - v . x)) of Burgers' equation."""
    v = jnp.full(dim, dim**-0.5)
    u = lambda t, x: jax.nn.sigmoid(v @ x - 0.5 * t)
    still = brownian(dim, lambda t, x, y, z: 0.0 * y, lambda x: u(1.0, x))
    problem = coupled(still, lambda t, x, y, z: y * v)
    x0 = problem.x0
    return problem, float(u(0.0, x0)), np.asarray(jax.grad(lambda x: u(0.0, x))(x0))


SOLVERS = {
    "grid": (1, GridQuadrature()),
    "regression": (10, GradientRegression(16384, (Hermite(1), MeanPolynomials(6, above=1)))),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", SOLVERS)
def test_a_drift_that_reads_y(name):
    dim, solver = SOLVERS[name]
    problem, value, delta = wave(dim)
    solution = solve(problem, solver, key=KEY)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=5e-3)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0), delta, rtol=2e-2)
    found = certify(solution, key=OTHER, num_paths=16384)
    assert abs(found.value.mean / value - 1.0) < 5e-3
    noise = 4.0 * found.delta.std_error + 5e-3 * np.abs(delta)
    assert np.all(np.abs(found.delta.mean - delta) < noise)


def test_a_coupled_book_is_refused():
    book = brownian(1, lambda t, x, y, z: 0.0 * y, lambda x: jnp.stack([x[0], 2.0 * x[0]]))
    with pytest.raises(ValueError, match=r"contracts of shape \(2,\)"):
        coupled(book, lambda t, x, y, z: 0.0 * x)


# --- many Y that read one another ---------------------------------------------------------------------


def turning() -> Problem:
    """u = (sin(x + t), cos(x + t)): each reads the other, and the square of both."""

    def driver(t, x, y, z):
        across = jnp.stack([-y[1], y[0]])
        return across + 0.5 * y * jnp.sum(y**2)

    return brownian(1, driver, lambda x: jnp.stack([jnp.sin(x[0] + 1.0), jnp.cos(x[0] + 1.0)]))


@pytest.mark.costly
@pytest.mark.parametrize(
    "solver",
    [
        GridQuadrature(),
        GradientRegression(16384, (Hermite(8),)),
        pytest.param(BackwardDP(num_iterations=300), marks=pytest.mark.slow),
        pytest.param(OneStepMalliavin(num_iterations=300), marks=pytest.mark.slow),
    ],
)
def test_a_system(solver):
    problem = turning()
    solution = solve(problem, solver, key=KEY)
    angle = float(problem.x0[0])
    expected = np.array([np.sin(angle), np.cos(angle)])
    found = np.asarray(solution.value(0.0, problem.x0))
    assert np.max(np.abs(found - expected)) < 5e-3 * np.linalg.norm(expected)


@pytest.mark.slow
def test_a_system_stepped_forward():
    """Deep BSDE takes f at the beginning of each step: its error falls as the step."""
    errors = []
    for num_steps in (20, 80):
        problem = turning().with_num_steps(num_steps)
        solution = solve(problem, DeepBSDE(num_iterations=4000), key=KEY)
        errors.append(abs(float(solution.value(0.0, problem.x0)[1]) - np.cos(float(problem.x0[0]))))
    assert errors[1] < 1e-2 and errors[1] < 0.4 * errors[0]


@pytest.mark.costly
def test_a_chosen_solution_of_a_system_says_how_far_off_it_is():
    """No defects are summed: grids on half and a quarter of the dates show the error of the dates."""
    problem = turning()
    solution = solve(problem, key=KEY)
    told, angle = solution.stats["errors"], float(problem.x0[0])
    found, own = solution.stats["certificate"], solution.value(0.0, problem.x0)
    value, slope = (
        np.array([np.sin(angle), np.cos(angle)]),
        np.array([np.cos(angle), -np.sin(angle)]),
    )
    off = np.max(np.abs(found.value.mean - value))
    assert off < told.value * np.max(np.abs(value))
    assert np.max(np.abs(found.delta.mean[:, 0] - slope)) < told.delta * np.max(np.abs(slope))
    assert told.value < 1e-3 and off < 0.2 * np.max(np.abs(own - value))
    np.testing.assert_allclose(found.value.mean - found.missed, own, rtol=1e-12)
    assert "% from this estimate" in solution.summary()
    with pytest.raises(RuntimeError, match=r"value is known to .* give more than max_paths=262144"):
        solve(problem, key=KEY, tolerance=1e-4)


# --- many Y of which one is switched for another --------------------------------------------------------

COST, STEPS, SWITCHES = 0.1, 20, 10


def plant() -> Problem:
    """A plant that earns x a year while it runs and -.1 while it stands; each switch costs COST."""

    def driver(t, x, y, z):
        return jnp.stack([x[0], -0.1 + 0.0 * x[0]])

    standing = brownian(1, driver, lambda x: jnp.zeros(2), STEPS, 0.0)
    return standing.replace(
        exercise_times=np.arange(SWITCHES) / SWITCHES,
        switch=lambda t, x, y: y[::-1] - COST,
    )


def plant_by_quadrature() -> np.ndarray:
    """Return both values at x = 0 by sums over a fine grid of Brownian moves, f by the trapezoidal rule."""
    x = np.linspace(-7.0, 7.0, 1401)
    step, dt = x[1] - x[0], 1.0 / STEPS
    reach = np.arange(-160, 161) * step
    kernel = np.exp(-0.5 * reach**2 / dt)
    kernel /= kernel.sum()
    earned = np.stack([x, np.full_like(x, -0.1)])
    values = np.zeros_like(earned)
    for date in range(STEPS - 1, -1, -1):
        ahead = values + 0.5 * dt * earned
        wide = np.pad(ahead, ((0, 0), (160, 160)), mode="reflect", reflect_type="odd")
        values = np.stack([np.convolve(row, kernel, "valid") for row in wide]) + 0.5 * dt * earned
        if date > 0 and date % (STEPS // SWITCHES) == 0:
            values = np.maximum(values, values[::-1] - COST)
    return values[:, len(x) // 2]


@pytest.mark.parametrize(
    "solver", [GridQuadrature(), GradientRegression(65536, (Hermite(8),), initial_dispersion=0.02)]
)
def test_optimal_switching(solver):
    problem = plant()
    solution = solve(problem, solver, key=KEY)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), plant_by_quadrature(), atol=3e-3)
    with pytest.raises(TypeError, match="through its driver or a switch"):
        certify(solution, key=OTHER)


def test_networks_do_not_switch():
    with pytest.raises(TypeError, match="a switch of one value for another"):
        solve(plant(), BackwardDP(), key=KEY)
    with pytest.raises(ValueError, match="both given"):
        plant().replace(exercise_value=lambda t, x: jnp.zeros(2))
