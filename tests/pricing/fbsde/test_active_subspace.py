"""Problems in many dimensions that depend on one or two directions: found, solved on a grid, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr

from pricing.fbsde import GridQuadrature, Problem, Tolerance, solve
from pricing.fbsde.dynamics.active_subspace import OnSubspace, active_subspace

RATE, VOLS = 0.03, jnp.array([0.1, 0.15, 0.2, 0.25, 0.3])
ROOT = jnp.linalg.cholesky(0.3 + 0.7 * jnp.eye(5))
SPOTS = jnp.array([80.0, 90.0, 100.0, 110.0, 120.0])
FIRST = jnp.array([0.5, 0.5, 0.0, 0.0, 0.0])
LAST = jnp.array([0.0, 0.0, 0.2, 0.3, 0.5])


def positive(x):
    return jnp.maximum(x, 0.0)


def mean(weights, x):
    return jnp.exp(weights @ jnp.log(x))


def on_assets(terminal, **changes) -> Problem:
    noise = VOLS[:, None] * ROOT
    given = {
        "drift": lambda t, x: RATE * x,
        "diffusion": lambda t, x: noise * x[:, None],
        "driver": lambda t, x, y, z: -RATE * y,
        "terminal": terminal,
        "num_steps": 4,
        "step": lambda t, dt, x, dw: x * jnp.exp((RATE - 0.5 * VOLS**2) * dt + noise @ dw),
    }
    return Problem(5, 1.0, SPOTS, **given | changes)


def forward(weights, x):
    """Return the forward price of a geometric mean of lognormal assets in a year, and its variance."""
    covariance = jnp.outer(VOLS, VOLS) * (ROOT @ ROOT.T)
    variance = weights @ covariance @ weights
    return mean(weights, x) * jnp.exp(RATE - 0.5 * weights @ VOLS**2 + 0.5 * variance), variance


def exchange(one, other, deviation):
    d = jnp.log(one / other) / deviation
    return one * ndtr(d + 0.5 * deviation) - other * ndtr(d - 0.5 * deviation)


def call_on_mean(x):
    strike = 100.0
    ahead, variance = forward(LAST, x)
    return jnp.exp(-RATE) * exchange(ahead, strike, jnp.sqrt(variance))


def mean_for_mean(x):
    covariance = jnp.outer(VOLS, VOLS) * (ROOT @ ROOT.T)
    apart = LAST - FIRST
    (one, _), (other, _) = forward(LAST, x), forward(FIRST, x)
    return jnp.exp(-RATE) * exchange(one, other, jnp.sqrt(apart @ covariance @ apart))


CALL = lambda x: positive(mean(LAST, x) - 100.0)
CLOSED_FORMS = {
    "one direction": (CALL, call_on_mean, 1),
    "two directions": (lambda x: positive(mean(LAST, x) - mean(FIRST, x)), mean_for_mean, 2),
}


def on_grid(problem: Problem, count: int):
    """Return today's value, Delta and Gamma from a grid in `count` directions."""
    subspace = active_subspace(problem, 2)
    assert subspace is not None and subspace.directions.shape == (count, problem.dim)
    grid = GridQuadrature(num_nodes=49, num_points=25) if count == 2 else GridQuadrature()
    solution = solve(subspace.reduced(problem), grid, key=jax.random.key(0))
    found = OnSubspace(solution.approximation, subspace)
    return tuple(of(0, problem.x0) for of in (found.value, found.gradient, found.hessian))


def assert_close(found, expected, rtol=(2e-4, 5e-4, 1e-3)):
    """Compare figures, each relative to the largest entry."""
    for figure, true, most in zip(found, expected, rtol, strict=True):
        size = float(jnp.max(jnp.abs(true)))
        np.testing.assert_allclose(figure, true, rtol=0.0, atol=most * size)


@pytest.mark.costly
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_a_grid_has_the_figures_of_the_closed_form(name):
    terminal, value, count = CLOSED_FORMS[name]
    expected = value(SPOTS), jax.grad(value)(SPOTS), jax.hessian(value)(SPOTS)
    assert_close(on_grid(on_assets(terminal), count), expected)


@pytest.mark.costly
def test_solve_selects_the_grid_and_states_its_errors():
    terminal, value, _ = CLOSED_FORMS["one direction"]
    solution = solve(on_assets(terminal), key=jax.random.key(0))
    assert isinstance(solution.stats["solver"], GridQuadrature)
    assert solution.stats["subspace"].directions.shape == (1, 5)
    expected = value(SPOTS), jax.grad(value)(SPOTS), jax.hessian(value)(SPOTS)
    found = solution.stats["certificate"]
    figures = found.value, found.delta, found.gamma
    assert_close([figure.mean for figure in figures], expected, Tolerance())
    for figure, true in zip(figures, expected, strict=True):
        widths = 5.0 * figure.std_error + 1e-5 * jnp.max(jnp.abs(true))
        assert bool(jnp.all(jnp.abs(figure.mean - true) <= widths))
    own = (of(0.0, SPOTS) for of in (solution.value, solution.delta, solution.gamma))
    assert_close(tuple(own), expected)


@pytest.mark.costly
def test_a_second_direction_of_the_steps_is_found():
    """The short rate of two factors is one direction; its steps depend on both factors."""
    speeds = jnp.array([0.1, 0.6, 0.3, 0.3])

    def posed(dim: int, speeds) -> Problem:
        return Problem(
            dim,
            2.0,
            0.0,
            drift=lambda t, x: -speeds * x,
            diffusion=lambda t, x: 0.01,
            driver=lambda t, x, y, z: -(0.03 + x[0] + x[1]) * y,
            terminal=lambda x: positive(x[0] + x[1]),
            num_steps=4,
        )

    found = on_grid(posed(4, speeds), 2)
    grid = GridQuadrature(num_nodes=49, num_points=25)
    in_two = solve(posed(2, speeds[:2]), grid, key=jax.random.key(0))
    start = jnp.zeros(2)
    assert_close(
        [found[0], found[1][:2], found[2][:2, :2]],
        [of(0.0, start) for of in (in_two.value, in_two.delta, in_two.gamma)],
        (1e-3, 2e-3, 1e-2),  # of grids on other axes
    )
    np.testing.assert_allclose(found[1][2:], 0.0, atol=1e-12)
    np.testing.assert_allclose(found[2][2:], 0.0, atol=1e-9)
    same = active_subspace(posed(4, 0.1), 2)
    assert same is not None and same.directions.shape == (1, 4) and not bool(jnp.any(same.is_log))


def test_a_driver_of_the_sum_of_z_is_solved_as_on_one_asset():
    """Two rates on the geometric mean of three assets, whose hedge is the sum of z."""
    lend, borrow, vol = 0.02, 0.06, 0.2

    def posed(dim: int, vol: float, drift: float, held: float) -> Problem:
        def driver(t, x, y, z):
            hedge = held * jnp.sum(z) / 0.2
            return -lend * y - (borrow - lend) * hedge + (borrow - lend) * positive(hedge - y)

        return Problem(
            dim,
            0.5,
            100.0,
            drift=lambda t, x: drift * x,
            diffusion=lambda t, x: vol * x,
            driver=driver,
            terminal=lambda x: positive(jnp.exp(jnp.mean(jnp.log(x))) - 100.0),
            num_steps=10,
            step=lambda t, dt, x, dw: x * jnp.exp((drift - 0.5 * vol**2) * dt + vol * dw),
        )

    own, root = vol / 3.0**0.5, 3.0**0.5
    one = posed(1, own, borrow - 0.5 * vol**2 + 0.5 * own**2, root)
    expected = solve(one, GridQuadrature(), key=jax.random.key(0))
    value, delta, _ = on_grid(posed(3, vol, borrow, 1.0), 1)
    np.testing.assert_allclose(value, expected.value(0.0, one.x0), rtol=1e-4)
    along = expected.delta(0.0, one.x0)[0] / 3.0
    np.testing.assert_allclose(delta, jnp.full(3, along), rtol=5e-4)


def test_exercise_of_several_contracts_and_their_portfolio():
    strikes = jnp.array([95.0, 105.0])
    ahead, variance = forward(LAST, SPOTS)
    vol, carry = float(jnp.sqrt(variance)), float(jnp.log(ahead / mean(LAST, SPOTS)))
    dates = {"exercise_times": (0.25, 0.5, 0.75)}
    paid = lambda x: positive(strikes - mean(LAST, x))
    on_one = Problem(
        1,
        1.0,
        float(mean(LAST, SPOTS)),
        drift=lambda t, x: carry * x,
        diffusion=lambda t, x: vol * x,
        driver=lambda t, x, y, z: -RATE * y,
        terminal=lambda x: positive(strikes - x[0]),
        num_steps=4,
        step=lambda t, dt, x, dw: x * jnp.exp((carry - 0.5 * vol**2) * dt + vol * dw),
        exercise_value=lambda t, x: positive(strikes - x[0]),
        **dates,
    )
    problem = on_assets(paid, exercise_value=lambda t, x: paid(x), **dates)
    subspace = active_subspace(problem, 2)
    assert subspace is not None
    solution = solve(subspace.reduced(problem), GridQuadrature(), key=jax.random.key(0))
    found = OnSubspace(solution.approximation, subspace)
    expected = solve(on_one, GridQuadrature(), key=jax.random.key(0))
    np.testing.assert_allclose(found.value(0, SPOTS), expected.value(0.0, on_one.x0), rtol=5e-4)
    along = expected.delta(0.0, on_one.x0) * (mean(LAST, SPOTS) * LAST / SPOTS)[None]
    np.testing.assert_allclose(
        found.gradient(0, SPOTS), along, atol=1e-3 * float(jnp.max(jnp.abs(along)))
    )
    each, total = found.hessian(0, SPOTS), found.portfolio(jnp.array([1.0, -2.0]))
    np.testing.assert_allclose(total.hessian(0, SPOTS), each[0] - 2.0 * each[1], atol=1e-9)


OTHERS = {
    "three directions": {"terminal": lambda x: positive(jnp.max(x[:3]) - 100.0)},
    "an arithmetic mean": {"terminal": lambda x: positive(jnp.mean(x) - 100.0)},
    "a right on others": {
        "exercise_times": (0.5,),
        "exercise_value": lambda t, x: positive(x[0] - x[1] + x[2] - 70.0),
    },
    "a barrier on another": {"stopping_times": (0.5,), "is_alive": lambda t, x: x[0] < 90.0},
    "a switch for another": {
        "exercise_times": (0.5,),
        "switch": lambda t, x, y: y + 0.01 * x[0],
    },
    "a rate of another": {"driver": lambda t, x, y, z: -1e-3 * jnp.sum(x) * y},
    "z of two assets": {"driver": lambda t, x, y, z: -RATE * y - z[0] / x[0] - z[1] / x[1]},
    "a vol of another": {
        "diffusion": lambda t, x: jnp.diag(VOLS * x * (1.0 + 0.1 * jnp.tanh(x[0] / 80.0))),
        "step": None,
    },
    "steps of Euler": {"step": None},
    "a payment at a level of another": {
        "terminal": lambda x: CALL(x) + jnp.where(x[0] > 95.0, 1.0, 0.0)
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_dependence_is_noticed(name):
    assert active_subspace(on_assets(**{"terminal": CALL} | OTHERS[name]), 2) is None


def test_in_single_precision():
    with jax.enable_x64(False):
        spots, vols = jnp.full(4, 100.0), 0.2
        problem = Problem(
            4,
            1.0,
            spots,
            diffusion=lambda t, x: vols * x,
            terminal=lambda x: positive(jnp.exp(jnp.mean(jnp.log(x))) - 100.0),
            num_steps=4,
            step=lambda t, dt, x, dw: x * jnp.exp(-0.5 * vols**2 * dt + vols * dw),
        )
        found = on_grid(problem, 1)
    own = vols / 2.0
    value = lambda x: exchange(
        jnp.exp(jnp.mean(jnp.log(x)) - 0.5 * vols**2 + 0.5 * own**2), 100.0, own
    )
    x = jnp.full(4, 100.0)
    expected = value(x), jax.grad(value)(x), jax.hessian(value)(x)
    assert_close(found, expected, (1e-3, 2e-3, 2e-2))
