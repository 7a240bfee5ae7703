"""A grid in one or two dimensions: beside closed forms, other grids and other solvers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fbsde_references as known
from pricing import Barrier, Basket, Bermudan, BlackScholes, European
from pricing.fbsde import GridQuadrature, Problem, certify, from_product, problems, solve
from pricing.fbsde.solvers.grid_quadrature import Axes, SplineOnGrid, _cut, _spline  # pyright: ignore[reportPrivateUsage]

from .backward_problems import asset

KEY = jax.random.key(0)
QUARTERS = np.arange(1, 5) / 4.0


GRID = GridQuadrature()


def figures(problem: Problem, solver: GridQuadrature = GRID) -> np.ndarray:
    """Value, gradient and diagonal of the Hessian."""
    solution, x0 = solve(problem, solver, key=KEY), problem.x0
    second = jnp.diag(solution.gamma(0.0, x0))
    return np.concatenate([solution.value(0.0, x0)[None], solution.delta(0.0, x0), second])


def assert_near(found: np.ndarray, reference: known.Reference, of_gamma: float = 5e-3):
    """Value and Delta to a thousandth, Gamma, the spline's second derivative, less."""
    count = 1 + len(reference.delta)
    first = np.concatenate([[reference.value], reference.delta])
    np.testing.assert_allclose(found[:count], first, rtol=1e-3)
    np.testing.assert_allclose(found[count:], reference.gamma, rtol=of_gamma)


@pytest.mark.costly
@pytest.mark.parametrize(
    "product",
    [
        pytest.param(lambda: European(100.0, 1.0, "call"), marks=pytest.mark.slow),
        lambda: Bermudan(European(105.0, 1.0, "put"), QUARTERS),
        lambda: Barrier(100.0, 1.0, 130.0, "up-and-out", dates=QUARTERS),
        pytest.param(
            lambda: Barrier(100.0, 1.0, 97.0, "down-and-out", dates=QUARTERS),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_contracts_on_one_asset(product):
    model = BlackScholes(100.0, 0.05, 0.2)
    found = figures(from_product(product(), model, 4))
    assert_near(found, known.of_pricing(product(), model))


@pytest.mark.costly
def test_a_driver_that_bends():
    found = figures(problems.different_rates_call(16))
    closed = lambda x: known.black_scholes(x[0], 100.0, 0.06, 0.2, 0.5)
    assert_near(found, known.of_function(closed, [100.0]))


@pytest.mark.costly
def test_two_assets():
    vols, dates = (0.2, 0.4), np.array([0.5, 1.0])
    option = Bermudan(Basket(100.0, 1.0, average="max"), dates)
    model = BlackScholes(2 * [100.0], 0.05, list(vols), 2 * [0.1])
    found = figures(from_product(option, model, 2))
    paid = lambda a, b: np.maximum(np.maximum(a, b) - 100.0, 0.0)
    reference = known.of_assets(vols, 0.05, 0.1, dates, paid, 100.0, points=601)
    assert_near(found, reference, of_gamma=1e-2)


@pytest.mark.costly
def test_contracts_side_by_side_and_their_sum():
    strikes = jnp.array([90.0, 110.0], jnp.float32)
    many = asset(lambda x: jnp.maximum(x[0] - strikes, 0.0), 4)
    solution = solve(many, GridQuadrature(), key=KEY)
    x = many.x0
    for row, strike in enumerate((90.0, 110.0)):
        one = figures(asset(lambda x, k=strike: jnp.maximum(x[0] - k, 0.0), 4))
        np.testing.assert_allclose(solution.value(0.0, x)[row], one[0], rtol=1e-5)
        np.testing.assert_allclose(solution.delta(0.0, x)[row, 0], one[1], rtol=1e-4)
    book = solution.portfolio([2.0, -1.0])
    expected = 2.0 * solution.delta(0.0, x)[0] - solution.delta(0.0, x)[1]
    np.testing.assert_allclose(book.delta(0.0, x), expected, rtol=1e-5)


def test_beyond_the_grid_the_value_is_a_line_in_the_grids_coordinate():
    solution = solve(asset(lambda x: jnp.maximum(x[0] - 100.0, 0.0), 4), GridQuadrature(), key=KEY)
    logs = jnp.log(1e4) + jnp.arange(3.0)
    values = jax.vmap(lambda s: solution.value(0.5, jnp.exp(s)[None]))(logs)
    first, second = np.diff(values)
    assert first > 0.0
    np.testing.assert_allclose(first, second, rtol=1e-3)


@pytest.mark.costly
def test_points_and_nodes_are_enough():
    """Twice as many of both change nothing."""
    problem = from_product(
        Bermudan(European(105.0, 1.0, "put"), QUARTERS), BlackScholes(100.0, 0.05, 0.2), 4
    )
    fine = figures(problem, GridQuadrature(num_nodes=1025, num_points=513))
    np.testing.assert_allclose(figures(problem), fine, rtol=2e-3)


@pytest.mark.costly
def test_kinks_on_exercise_dates_leave_no_error_with_the_period_of_the_points():
    """With points along the same axes in all steps, Gamma was 0.08 % off."""
    noise = jnp.array([[25.0, 0.0], [-0.01, 0.0173]])  # of a spot of 100 and a hazard rate
    put = Problem(
        2,
        1.0,
        [100.0, 0.03],
        drift=lambda t, x: jnp.stack([(0.03 + x[1]) * x[0], 0.8 * (0.03 - x[1])]),
        diffusion=lambda t, x: noise * jnp.stack([x[0] / 100.0, jnp.ones_like(x[0])])[:, None],
        driver=lambda t, x, y, z: -(0.03 + 0.6 * x[1]) * y,
        terminal=lambda x: jnp.maximum(100.0 - x[0], 0.0),
        exercise_times=QUARTERS,
        exercise_value=lambda t, x: 100.0 - x[0],
        num_steps=8,
    )
    few, many = (figures(put, GridQuadrature(49, points)) for points in (17, 33))
    np.testing.assert_allclose(few[:2], many[:2], rtol=2e-5)
    np.testing.assert_allclose(few[3], many[3], rtol=1e-4)


@pytest.mark.costly
def test_its_certificate_misses_nothing():
    problem = asset(lambda x: jnp.maximum(x[0] - 100.0, 0.0), 4)
    found = certify(solve(problem, GridQuadrature(), key=KEY), key=KEY, num_paths=8192)
    assert abs(found.missed) < 4.0 * found.value.std_error
    assert found.value.std_error < 5e-3 * found.value.mean


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="num_nodes=3: give 4 or more"):
        GridQuadrature(num_nodes=3)
    with pytest.raises(TypeError, match="3 dimensions, and a grid has at most two"):
        solve(problems.hjb(3), GridQuadrature(), key=KEY)
    mesh = jax.make_mesh((1,), ("nodes",))
    with pytest.raises(ValueError, match=r"the mesh has axes \('nodes',\): give one with an axis"):
        solve(problems.different_rates_call(4), GridQuadrature(mesh=mesh), key=KEY)


def test_a_state_at_zero_stays_on_the_grid():
    """A variance that may be zero has no logarithm: its grid begins at zero."""
    problem = asset(lambda x: x[0], 4)
    half = lambda t, dt, x, dw: jnp.maximum(x + 0.5 * x * dw, 0.0)
    problem = eqx.tree_at(lambda p: (p.step, p.diffusion), problem, (half, lambda t, x: 0.5 * x))
    solution = solve(problem, GridQuadrature(), key=KEY)
    assert np.all(np.asarray(solution.approximation.axes.first) >= 0.0)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_gamma_of_a_spline_has_no_error_of_second_order(share):
    """In linear and in logarithmic coordinates: the curvature of cubic splines is off by up to h^2 / 12."""
    step, is_log = jnp.full((1, 2), 0.25), jnp.array([False, True])
    axes = Axes(jnp.full((1, 2), -3.0), step, is_log, jnp.ones(2))
    logs = -3.0 + 0.25 * jnp.arange(25.0)
    u = lambda x: jnp.sin(x[0]) * jnp.cos(0.7 * jnp.log(x[1]))
    nodes = jnp.stack(jnp.meshgrid(logs, jnp.exp(logs), indexing="ij"), -1)
    rows = _spline(jax.vmap(jax.vmap(u))(nodes)[None])[None]
    of_two = problems.max_call(2)
    found = SplineOnGrid(of_two, axes, rows, ())
    x = jnp.array([0.5 + 0.25 * share, jnp.exp(-0.5 + 0.25 * share)])
    exact, plain = jax.hessian(u)(x), jax.hessian(lambda x: found.value(0, x))(x)
    within = 3e-4 * jnp.max(jnp.abs(exact))
    np.testing.assert_allclose(found.hessian(0, x), exact, rtol=0.0, atol=within)
    assert share not in (0.0, 0.5) or jnp.max(jnp.abs(plain - exact)) > 4.0 * within


def test_a_few_far_states_do_not_space_nodes_widely():
    """Nodes for three of 8,192 paths would leave all others with coarse cells; one in a hundred is covered."""
    near = jax.random.normal(KEY, (3, 8192, 1)).at[0].set(0.0)
    axes = Axes.around(near.at[:, :3].add(-30.0).at[0].set(0.0), 97, 0.25)
    assert axes.first[2, 0] > -10.0
    assert axes.step[2, 0] < 1.5 * Axes.around(near, 97, 0.25).step[2, 0]
    axes = Axes.around(near.at[:, :82].add(-30.0).at[0].set(0.0), 97, 0.25)
    assert axes.first[2, 0] < -30.0


def test_a_cell_with_a_barrier_is_integrated_to_second_order():
    points = np.linspace(-6.0, 6.0, 257)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    normal = jax.scipy.stats.norm
    for level in np.linspace(-1.3, 1.2, 11):
        lives = points > level
        worth = np.where(lives, 2.0 + points, 0.0)
        given = (jnp.asarray(a) for a in (points, weights, worth[None], lives[1:] != lives[:-1]))
        cut = _cut(*given, lambda w, level=level: w[0] > level)
        exact = 2.0 * normal.cdf(-level) + normal.pdf(level)
        assert abs(worth @ weights + cut[0] - exact) < 6e-5


@pytest.mark.costly
def test_a_payoff_that_jumps_has_points_enough_in_the_last_step():
    """A digital on two independent assets is a product of two."""
    paid = lambda x: jnp.where(jnp.min(x) > 100.0, 1.0, 0.0)
    vol, x0 = 0.2, jnp.full(2, 100.0)
    problem = Problem(
        2,
        1.0,
        x0,
        diffusion=lambda t, x: vol * jnp.diag(x),
        terminal=paid,
        num_steps=20,
        step=lambda t, dt, x, dw: x * jnp.exp(-0.5 * vol**2 * dt + vol * dw),
    )
    solution = solve(problem, GridQuadrature(), key=KEY)
    ends_above = lambda x: jax.scipy.stats.norm.cdf(jnp.log(x / 100.0) / vol - 0.5 * vol)
    exact = lambda x: jnp.prod(ends_above(x))
    np.testing.assert_allclose(solution.value(0.0, x0), exact(x0), rtol=2e-3)
    np.testing.assert_allclose(solution.delta(0.0, x0), jax.grad(exact)(x0), rtol=5e-3)
