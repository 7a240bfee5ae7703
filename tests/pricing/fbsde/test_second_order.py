"""Drivers that read Gamma: uncertain volatility, and a diffusion that reads Y."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_banded

from pricing.fbsde import (
    DeepBSDE,
    GradientRegression,
    GridQuadrature,
    Hermite,
    PayoffBasis,
    Problem,
    SeparableBasis,
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

    worst = lambda u: np.where(bend(u) > 0.0, 0.04, 0.01)
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


@pytest.mark.costly
@pytest.mark.parametrize("vol", [0.15, pytest.param(0.2, marks=pytest.mark.slow)])
def test_uncertain_volatility(vol):
    problem = problems.uncertain_volatility(50, vol)
    solution = solve(problem, GridQuadrature(), key=KEY)
    value, delta = uncertain_volatility()
    assert abs(value - 11.20) < 0.005  # Guyon, Henry-Labordere
    np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=1e-3)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0), [delta], rtol=5e-3)


@pytest.mark.costly
def test_barenblatt_in_a_hundred_dimensions():
    problem = problems.barenblatt(num_steps=10)
    solution = solve(problem, GradientRegression(8192, (SeparableBasis(2),)), key=KEY)
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


@pytest.mark.costly
@pytest.mark.parametrize(
    ("dim", "vol", "solver"),
    [
        (1, 0.4, GridQuadrature()),
        pytest.param(2, 0.69, GradientRegression(16384, (Hermite(6),)), marks=pytest.mark.slow),
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


@pytest.mark.costly
def test_verbs_that_do_not_read_gamma_say_so():
    problem = problems.uncertain_volatility(50, 0.2)
    with pytest.raises(TypeError, match="a driver that reads Gamma: GridQuadrature"):
        solve(problem, DeepBSDE(), key=KEY)
    solution = solve(problem, GridQuadrature(), key=KEY)
    with pytest.raises(TypeError, match="certify one contract, without quantities"):
        certify(solution, key=OTHER, quantities=2.0)
    with pytest.raises(ValueError, match="the driver reads Gamma"):
        hedging(solution, key=OTHER)


# --- certified ----------------------------------------------------------------------------------------


def off(found, *known) -> np.ndarray:
    """Of value, Delta and Gamma, how far the first entry is off, in standard errors."""
    pairs = zip((found.value, found.delta, found.gamma), known, strict=True)
    first = lambda x: float(np.ravel(x)[0])
    return np.array([(first(one.mean) - true) / first(one.std_error) for one, true in pairs])


@pytest.mark.costly
def test_a_certificate_is_right_though_the_solution_is_coarse():
    """Polynomials miss 7 % of the spread's value; of the certificate a half is left, and told."""
    problem = problems.uncertain_volatility(50, 0.17)
    coarse = solve(problem, GradientRegression(8192, (Hermite(6), PayoffBasis())), key=KEY)
    found = certify(coarse, key=OTHER, num_paths=8192)
    value, delta = uncertain_volatility()
    own = float(coarse.value(0.0, problem.x0))
    assert abs(own / value - 1.0) > 0.05
    assert abs(float(found.value.mean) / value - 1.0) < 0.01
    share = float(found.left)
    assert abs(float(found.value.mean) / value - 1.0) < share < 0.02
    noise = float(found.delta.std_error[0])
    assert abs(float(found.delta.mean[0]) - delta) < 3.0 * noise + share * delta


@pytest.mark.costly
@pytest.mark.parametrize("dim", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 100))])
def test_barenblatt_is_certified(dim):
    """Gamma of the solution itself is 5 to 15 % off: parabolas of 4,096 paths."""
    problem = problems.barenblatt(dim, num_steps=10)
    solution = solve(problem, GradientRegression(4096, (SeparableBasis(2),)), key=KEY)
    found = certify(solution, key=OTHER, num_paths=1024 if dim == 100 else 8192)
    growth, x0 = np.exp(0.21), np.asarray(problem.x0)
    known = growth * x0 @ x0, 2.0 * growth * x0[0], 2.0 * growth
    assert np.max(np.abs(off(found, *known))) < 4.0
    assert abs(np.mean(np.diagonal(found.gamma.mean)) / (2.0 * growth) - 1.0) < 0.01


@pytest.mark.costly
@pytest.mark.parametrize(
    ("dim", "vol", "solver"),
    [(1, 0.4, GridQuadrature()), (2, 0.69, GradientRegression(16384, (Hermite(6),)))],
)
def test_a_diffusion_that_reads_y_is_certified(dim, vol, solver):
    """In two dimensions Y moves both coordinates: f_Gamma depends on both."""
    problem = coupled_sines(dim, vol, 20)
    found = certify(solve(problem, solver, key=KEY), key=OTHER, num_paths=4096)
    sine, cosine = np.exp(-0.1) * np.sin(1.25), np.exp(-0.1) * np.cos(1.25)
    assert np.max(np.abs(off(found, dim * sine, cosine, -sine))) < 4.0
    assert found.gamma.relative_error < 5e-3


@pytest.mark.costly
def test_a_full_matrix_is_certified():
    """Of assets that move by mixed noise, to whose variance f adds, and growth: by planes, without Gamma."""
    root = jnp.array([[1.0, 0.0], [0.6, 0.8]])
    more, rate = 0.07, 0.1  # of the variance and of growth, as f has them

    def driver(t, x, y, z, gamma):
        bent = x[:, None] * gamma * x[None]
        slope = jnp.linalg.solve(0.3 * root.T, z)  # of logarithms
        return 0.5 * more * jnp.sum((root @ root.T) * bent) + rate * jnp.sum(slope)

    problem = Problem(
        2,
        1.0,
        1.0,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: 0.3 * x[:, None] * root,
        driver=driver,
        terminal=lambda x: x[0] * x[1],
        num_steps=5,
        step=lambda t, dt, x, dw: x * jnp.exp(-0.045 * dt + 0.3 * (root @ dw)),
        reads_gamma=True,
    )
    solution = solve(problem, GradientRegression(4096, (Hermite(1),)), key=KEY)
    found = certify(solution, key=OTHER, num_paths=8192)
    growth = np.exp(0.6 * (0.09 + more) + 2.0 * rate)
    np.testing.assert_array_less(np.abs(off(found, growth, growth, 0.0)), 4.0)
    cross = float(found.gamma.mean[0, 1]) - growth
    assert abs(cross) < 4.0 * float(found.gamma.std_error[0, 1])


@pytest.mark.costly
def test_a_variance_that_depends_on_the_state_otherwise_than_the_paths():
    """dX = .4 dW, to whose variance f adds what makes it .16 x^2: u = x^2 exp(.16 (1 - t))."""
    problem = Problem(
        1,
        1.0,
        1.0,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: 0.4,
        driver=lambda t, x, y, z, gamma: 0.08 * (x[0] ** 2 - 1.0) * gamma[0, 0],
        terminal=lambda x: x[0] ** 2,
        num_steps=20,
        reads_gamma=True,
    )
    solution = solve(problem, GradientRegression(4096, (Hermite(3),)), key=KEY)
    found = certify(solution, key=OTHER, num_paths=8192)
    growth = np.exp(0.16)
    for one, true in zip(
        (found.value, found.delta, found.gamma), growth * np.array([1.0, 2.0, 2.0]), strict=True
    ):
        error = abs(float(np.ravel(one.mean)[0]) - true)
        assert error < 4.0 * float(np.ravel(one.std_error)[0]) + 1e-3 * true  # of the dates


@pytest.mark.slow
def test_standard_errors_of_the_second_order_cover():
    problem = problems.barenblatt(1, num_steps=20)
    solution = solve(problem, GridQuadrature(), key=KEY)
    keys, growth = jax.random.split(OTHER, 200), np.exp(0.21)
    known = growth, 2.0 * growth, 2.0 * growth
    found = np.abs([off(certify(solution, key=k, num_paths=2048), *known) for k in keys])
    share = np.mean(found < 1.96, axis=0)
    assert np.all((share >= 0.90) & (share <= 0.99)), share


@pytest.mark.slow
def test_a_solver_is_chosen_in_three_dimensions():
    """Where functions have the Gamma, as parabolas do: value, Delta and Gamma are certified."""
    right = problems.barenblatt(3, 10)
    found = solve(right, key=KEY, max_paths=32768, throw=False).stats
    growth, x0 = np.exp(0.21), np.asarray(right.x0)
    assert abs(float(found["certificate"].value.mean) / (growth * x0 @ x0) - 1.0) < 2e-3
    assert found["errors"].value < 4e-3 and found["errors"].gamma < 0.05


@pytest.mark.slow
def test_errors_of_a_chosen_solution_are_told():
    problem = problems.uncertain_volatility(50, 0.15)
    solution = solve(problem, key=KEY, max_paths=16384, throw=False)
    value, delta = uncertain_volatility()
    found, told = solution.stats["certificate"], solution.stats["errors"]
    assert told.value < 2e-3 and told.delta < 1e-2
    assert abs(float(found.value.mean) / value - 1.0) < 2e-3
    assert abs(float(found.delta.mean[0]) / delta - 1.0) < 1e-2
