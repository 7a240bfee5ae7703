"""Figures from fresh paths are right whatever the solution, and their errors cover; `solve` alone."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fbsde_references as known
from pricing import Barrier, Bermudan, BermudanSwaption, BlackScholes, European, HullWhite
from pricing.fbsde import (
    Certificate,
    DeepBSDE,
    Estimate,
    GradientRegression,
    GridQuadrature,
    Hermite,
    PayoffBasis,
    Problem,
    Tolerance,
    bounds,
    certify,
    from_product,
    load,
    problems,
    save,
    solve,
)
from pricing.fbsde.dynamics.driver_form import driver_forms, no_bounds_reason
from pricing.fbsde.dynamics.step_density import NoiseForm, StepDensity, noise_form
from pricing.fbsde.error_bars import certificate, to_tolerance
from pricing.fbsde.error_bars.certificate import without_noise
from pricing.fbsde.error_bars.early_exercise_bounds import with_middle_of_bounds
from pricing.fbsde.error_bars.relative_errors import errors

from ...cases import others_later
from .backward_problems import asset

QUARTERS = np.arange(1, 5) / 4.0
COARSE = GradientRegression(4096, (Hermite(3), PayoffBasis()))
OWN, OTHERS = jax.random.key(0), jax.random.key(1)


def on_one_asset(product) -> tuple[Problem, known.Reference]:
    model = BlackScholes(100.0, 0.05, 0.2)
    return from_product(product(), model, 4), known.of_pricing(product(), model)


CASES = {
    "Bermudan put": functools.partial(
        on_one_asset, lambda: Bermudan(European(105.0, 1.0, "put"), QUARTERS)
    ),
    "up-and-out call": functools.partial(
        on_one_asset, lambda: Barrier(100.0, 1.0, 130.0, "up-and-out", dates=QUARTERS)
    ),
    "call at two rates": lambda: (
        problems.different_rates_call(8),
        known.of_function(lambda x: known.black_scholes(x[0], 100.0, 0.06, 0.2, 0.5), [100.0]),
    ),
}


def scores(found, reference: known.Reference) -> np.ndarray:
    """Of every figure, its error in standard errors."""
    pairs = (
        (found.value.mean, found.value.std_error, np.asarray(reference.value)),
        (found.delta.mean, found.delta.std_error, reference.delta),
        (jnp.diag(found.gamma.mean), jnp.diag(found.gamma.std_error), reference.gamma),
    )
    off = [(np.asarray(mean) - true) / np.asarray(error) for mean, error, true in pairs]
    return np.concatenate([np.ravel(x) for x in off])


@pytest.mark.costly
@pytest.mark.parametrize("name", others_later(CASES, ["call at two rates"]))
def test_figures_are_right_though_the_solution_is_coarse(name):
    problem, reference = CASES[name]()
    solution = solve(problem, COARSE, key=OWN)
    found = certify(solution, key=OTHERS, num_paths=32768)
    assert np.max(np.abs(scores(found, reference))) < 4.0
    assert found.value.std_error < 1e-2 * abs(reference.value)
    own = float(solution.value(0.0, problem.x0))
    np.testing.assert_allclose(own + found.missed, found.value.mean, rtol=1e-12)


@pytest.mark.costly
def test_deep_bsde_gets_a_delta_and_a_gamma():
    problem, reference = CASES["call at two rates"]()
    solution = solve(problem, DeepBSDE(num_iterations=200), key=OWN)
    found = certify(solution, key=OTHERS, num_paths=32768)
    assert np.max(np.abs(scores(found, reference))) < 4.0
    assert found.gamma.relative_error < 0.1


@pytest.mark.costly
def test_contracts_are_certified_side_by_side():
    strikes = jnp.array([90.0, 110.0], jnp.float32)
    problem = asset(lambda x: jnp.maximum(x[0] - strikes, 0.0), 4)
    found = certify(solve(problem, COARSE, key=OWN), key=OTHERS, num_paths=16384)
    for row, strike in enumerate([90.0, 110.0]):
        closed = lambda x, k=strike: known.black_scholes(x[0], k, 0.05, 0.2, 1.0)
        one = jax.tree.map(lambda x, row=row: x[row], found)
        assert np.max(np.abs(scores(one, known.of_function(closed, [100.0])))) < 4.0


# --- the density of the first step --------------------------------------------------------------------


def two_assets(correlated: bool) -> Problem:
    slant = 0.6 if correlated else 0.0
    root = jnp.array([[1.0, 0.0], [slant, (1.0 - slant**2) ** 0.5]])
    vols = jnp.array([0.2, 0.4])
    return Problem(
        2,
        1.0,
        jnp.array([100.0, 50.0]),
        drift=lambda t, x: 0.1 * x,
        diffusion=lambda t, x: (vols * x)[:, None] * root,
        driver=lambda t, x, y, z: 0.0 * y,
        terminal=lambda x: x[0],
        num_steps=2,
        step=lambda t, dt, x, dw: x * jnp.exp((0.1 - 0.5 * vols**2) * dt + vols * (root @ dw)),
    )


def log_density(problem: Problem, x, end):
    """Of lognormal assets, but for what does not depend on x."""
    vols, dt = jnp.array([0.2, 0.4]), problem.dt
    slant = problem.diffusion(0.0, jnp.ones(2)) / vols[:, None]
    moves = (jnp.log(end / x) - (0.1 - 0.5 * vols**2) * dt) / vols
    noise = jnp.linalg.solve(slant, moves)
    return -0.5 * noise @ noise / dt


@pytest.mark.costly
@pytest.mark.parametrize("correlated", [False, True])
def test_weights_are_derivatives_of_the_density(correlated):
    problem = two_assets(correlated)
    scale, factor = noise_form(problem)
    root = problem.diffusion(0.0, jnp.ones(2)) / jnp.array([[0.2], [0.4]])
    np.testing.assert_allclose(factor, root, rtol=1e-6)
    dw = jnp.array([0.3, -0.7])
    end = problem.advance(problem.times[0], problem.x0, dw)
    density = lambda x: jnp.exp(log_density(problem, x, end))
    known_slope = jax.grad(density)(problem.x0) / density(problem.x0)
    known_curvature = jax.hessian(density)(problem.x0) / density(problem.x0)
    for factor in (root, None):
        weights = StepDensity(
            problem, problem.times[0], problem.x0, dw, NoiseForm(scale, factor)
        ).weights()
        np.testing.assert_allclose(weights.first, known_slope, rtol=1e-9)
        np.testing.assert_allclose(weights.second, known_curvature, rtol=1e-9, atol=1e-15)


@pytest.mark.costly
@pytest.mark.parametrize("correlated", [False, True])
def test_paths_from_other_states_are_differentiated(correlated):
    """Of a parabola of X_1 along the path, and of a slope and dW where X_1 stays."""
    problem, dw = two_assets(correlated), jnp.array([0.3, -0.7])
    root = problem.diffusion(0.0, jnp.ones(2)) / jnp.array([[0.2], [0.4]])
    direction, of_rest = jnp.array([0.4, -1.0]), jnp.array([[2.0, 3.0]])
    scale = noise_form(problem).scale
    steps = [
        StepDensity(problem, problem.times[0], problem.x0, dw, NoiseForm(scale, factor))
        for factor in (root, None)
    ]
    for ours, other in zip(*(jax.tree.leaves(s.along(direction)) for s in steps), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-15)
    found = [step.along_path(of_rest) for step in steps]
    for ours, other in zip(*found, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-15)
    move = lambda x: problem.advance(problem.times[0], x, dw)
    np.testing.assert_allclose(found[0][0], of_rest @ jax.jacfwd(move)(problem.x0), rtol=1e-9)


def test_a_state_that_moves_with_the_others_has_no_mixing():
    problem = two_assets(False)
    step = lambda t, dt, x, dw: x + x[::-1] * dw
    assert noise_form(eqx.tree_at(lambda p: p.step, problem, step)).factor is None


# --- derivatives of paths -----------------------------------------------------------------------------


def three_assets(terminal, num_steps: int = 4, **more) -> Problem:
    vols = jnp.array([0.2, 0.3, 0.25])
    return Problem(
        3,
        1.0,
        100.0,
        drift=lambda t, x: 0.05 * x,
        diffusion=lambda t, x: vols * x,
        driver=lambda t, x, y, z: -0.05 * y,
        terminal=terminal,
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp((0.05 - 0.5 * vols**2) * dt + vols * dw),
        **more,
    )


def three_calls() -> tuple[Problem, known.Reference]:
    closed = lambda x: sum(
        known.black_scholes(x[i], 100.0, 0.05, vol, 1.0) for i, vol in enumerate((0.2, 0.3, 0.25))
    )
    problem = three_assets(lambda x: jnp.sum(jnp.maximum(x - 100.0, 0.0)))
    return problem, known.of_function(closed, np.full(3, 100.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "solver"),
    [
        (CASES["Bermudan put"], GridQuadrature()),
        (CASES["up-and-out call"], COARSE),
        (three_calls, GradientRegression(8192, (Hermite(2), PayoffBasis()))),
    ],
)
def test_standard_errors_cover(case, solver):
    """Of 200 seeds between 90 and 99 % are within what 95 % of them should be."""
    problem, reference = case()
    solution = solve(problem, solver, key=OWN)
    keys = jax.random.split(OTHERS, 200)
    found = np.abs([scores(certify(solution, key=k, num_paths=16384), reference) for k in keys])
    share = np.mean(found < 1.96, axis=0)
    assert np.all((share >= 0.90) & (share <= 0.99)), share


def certified(problem: Problem, monkeypatch, smooth: bool):
    """With derivatives by paths, or by weights alone."""
    most = 2 if smooth else 99
    monkeypatch.setattr(certificate, "_WEIGHTS_ALONE", most)
    solver = GradientRegression(8192, (Hermite(2), PayoffBasis()))
    solution = solve(problem, solver, key=OWN)
    return certify(solution, key=OTHERS, num_paths=16384)


@pytest.mark.costly
def test_paths_tell_delta_and_gamma_with_less_noise(monkeypatch):
    calls, reference = three_calls()
    both = [certified(calls, monkeypatch, smooth) for smooth in (True, False)]
    for found in both:
        assert np.max(np.abs(scores(found, reference))) < 4.0
    by_paths, by_weights = both
    assert by_paths.gamma.relative_error < 0.8 * by_weights.gamma.relative_error


@pytest.mark.costly
def test_standard_errors_of_cross_gammas_cover():
    """A call on the first of three assets has no cross Gamma, and the estimates of it have noise."""
    call = three_assets(lambda x: jnp.maximum(x[0] - 100.0, 0.0))
    solution = solve(call, GradientRegression(8192, (Hermite(2), PayoffBasis())), key=OWN)
    off, is_within = ~np.eye(3, dtype=bool), []
    for key in jax.random.split(OTHERS, 24):
        gamma = certify(solution, key=key, num_paths=4096).gamma
        mean, error = np.asarray(gamma.mean), np.asarray(gamma.std_error)
        np.testing.assert_allclose(error, error.T, rtol=1e-9)
        is_within.append(np.abs(mean[off]) <= 1.96 * error[off])
    assert 0.88 <= np.mean(is_within) <= 0.99


@pytest.mark.costly
def test_a_jump_of_the_payoff_is_in_both(monkeypatch):
    """By weights of the first step, and by paths with those of the last."""
    digital = three_assets(lambda x: jnp.where(x[0] > 100.0, 1.0, 0.0))
    by_paths, by_weights = (certified(digital, monkeypatch, smooth) for smooth in (True, False))
    closed = lambda x: jnp.exp(-0.05) * jax.scipy.special.ndtr((jnp.log(x[0] / 100.0) + 0.03) / 0.2)
    reference = known.of_function(closed, np.full(3, 100.0))
    for found in (by_paths, by_weights):
        assert abs(found.delta.mean[0] - reference.delta[0]) < 4.0 * found.delta.std_error[0]
    assert by_paths.delta.relative_error < by_weights.delta.relative_error


@pytest.mark.costly
def test_a_rule_that_moves_with_the_state_is_differentiated(monkeypatch):
    """A put on the first of three assets: Delta is that of one alone, whose rule moves with the spot."""
    pays = lambda x: jnp.maximum(105.0 - x[0], 0.0)
    put = three_assets(pays, exercise_times=QUARTERS, exercise_value=lambda t, x: pays(x))
    option = Bermudan(European(105.0, 1.0, "put"), QUARTERS)
    reference = known.of_pricing(option, BlackScholes(100.0, 0.05, 0.2))
    found = certified(put, monkeypatch, True)
    assert abs(found.delta.mean[0] - reference.delta[0]) < 4.0 * found.delta.std_error[0]
    assert found.delta.std_error[0] < 0.01 * abs(reference.delta[0])


# --- no solver named ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chosen():
    problem = asset(lambda x: jnp.maximum(x[0] - 100.0, 0.0), 4)
    return problem, solve(problem, key=OWN, max_paths=65536, tolerance=Tolerance(0.01, 0.02, 0.1))


@pytest.mark.costly
def test_a_solver_is_chosen_and_its_figures_are_certified(chosen):
    _, solution = chosen
    closed = lambda x: known.black_scholes(x[0], 100.0, 0.05, 0.2, 1.0)
    reference = known.of_function(closed, [100.0])
    assert np.max(np.abs(scores(solution.stats["certificate"], reference))) < 4.0
    assert isinstance(solution.stats["solver"], GridQuadrature)


@pytest.mark.costly
def test_functions_are_chosen_by_what_they_leave_of_the_noise():
    problem = three_assets(lambda x: jnp.sum(x**2) / 1e4)
    solution = solve(problem, key=OWN, max_paths=16384)
    pilots = solution.stats["pilots"]
    assert len(pilots) > 2 and pilots[0].noise == min(one.noise for one in pilots)
    assert solution.stats["solver"].bases == pilots[0].solver.bases
    growth = [np.exp(0.05 + vol**2) for vol in (0.2, 0.3, 0.25)]
    np.testing.assert_allclose(solution.stats["certificate"].value.mean, sum(growth), rtol=2e-3)


@pytest.mark.slow
def test_an_error_that_standard_errors_do_not_tell_is_told():
    """That of the dates, and the square of a coarse solution's where the driver bends: others have others."""
    problem, reference = problems.hjb(3), known.hjb(3, np.zeros(3))
    solution = solve(problem, key=OWN, max_paths=16384, throw=False)
    found, told = solution.stats["certificate"], solution.stats["errors"]
    assert abs(float(found.value.mean) / reference.value - 1.0) < told.value


@pytest.mark.costly
def test_what_a_rule_of_exercise_may_forgo_is_told():
    """The value is the rule's; between it and an upper bound lies the best rule's, by quadrature."""
    problem, reference = CASES["Bermudan put"]()
    stats = solve(problem, key=OWN, max_paths=65536, throw=False).stats
    value, upper = stats["certificate"].value, stats["upper"]
    assert abs(float(upper.mean) / reference.value - 1.0) < 1e-3
    assert upper.mean > reference.value - 4.0 * upper.std_error
    noise = 4.0 * np.hypot(upper.std_error, value.std_error)
    assert upper.mean > value.mean - noise
    assert stats["errors"].value >= 2.99 * value.std_error / value.mean


@pytest.mark.costly
def test_a_right_of_today_is_no_part_of_what_is_forgone():
    """Of a put in the money: figures are those before a right of today, which pays more."""
    pays = lambda x: jnp.maximum(100.0 - x[0], 0.0)
    rights = {"exercise_times": [0.0, 0.5, 1.0], "exercise_value": lambda t, x: 100.0 - x[0]}
    problem = asset(pays, 2, **rights).replace(x0=jnp.full(1, 65.0, jnp.float32))
    stats = solve(problem, key=OWN, max_paths=10000, throw=False).stats
    assert float(stats["upper"].mean) < 34.0 < 35.0
    assert stats["errors"].value < 2e-3


@pytest.mark.costly
def test_a_bound_that_is_not_known_is_no_small_error():
    problem, _ = CASES["Bermudan put"]()
    found = without_noise(solve(problem, GridQuadrature(), key=OWN))
    for unknown in (np.nan, np.inf):
        upper = Estimate(jnp.asarray(unknown), jnp.zeros(()))
        assert errors(found, None, upper).value == np.inf


@pytest.mark.parametrize(
    "driver",
    [
        lambda t, x, y, z: -0.02 * y + 0.5 * jnp.sum(jnp.maximum(-z, 0.0), axis=-1),
        lambda t, x, y, z: -jnp.array([0.0, 0.2], jnp.float32) * y,
        lambda t, x, y, z: -0.02 * y[::-1],
        lambda t, x, y, z: -0.02 * y - 0.01 * jnp.abs(y),
    ],
)
def test_drivers_that_do_not_discount_have_no_bounds(driver):
    pays = lambda x: jnp.maximum(jnp.array([90.0, 110.0], jnp.float32) - x[0], 0.0)
    rights = {"exercise_times": QUARTERS, "exercise_value": lambda t, x: pays(x)}
    problem = asset(pays, 4, **rights)
    assert no_bounds_reason(problem, driver_forms(problem)) is None
    other = eqx.tree_at(lambda p: p.driver, problem, driver)
    assert "a driver that discounts" in str(no_bounds_reason(other, driver_forms(other)))


@pytest.mark.costly
def test_a_rule_that_forgoes_much_is_not_known_well():
    """To exercise above the value of a put that is not exercised later: too early, and no noise says so."""
    problem, reference = CASES["Bermudan put"]()
    held = eqx.tree_at(lambda p: p.exercise_value, problem, lambda t, x: 0.0 * x[0] - 1.0)
    found = solve(held, GridQuadrature(), key=OWN)
    hasty = eqx.tree_at(lambda s: s.problem.exercise_value, found, problem.exercise_value)
    both = bounds(hasty, key=OTHERS, num_paths=1024)
    found = certify(hasty, key=OTHERS, num_paths=16384)
    forgone = 1.0 - float(found.value.mean) / reference.value
    told = errors(found, None, Estimate(both.upper, both.std_errors.upper)).value
    assert told > forgone > errors(found).value


@pytest.mark.costly
def test_bounds_under_a_stochastic_rate_have_no_bias():
    """One exact step of two years discounts differently from the eight steps of the paths."""
    years = np.arange(2.0, 11.0, 2.0)
    swaption = BermudanSwaption(0.03, years[:-1], years, np.full(5, 2.0))
    problem = from_product(swaption, HullWhite(0.03, 0.03, 0.04), 40)
    found = solve(problem, GridQuadrature(), key=OWN)
    value = float(found.value(0.0, problem.x0))
    both = bounds(found, key=OTHERS, num_paths=1024)
    assert both.lower - 3.0 * both.std_errors.lower < value
    assert value < both.upper + 3.0 * both.std_errors.upper
    assert both.upper + 3.0 * both.std_errors.upper < 1.01 * value


@pytest.mark.costly
def test_many_steps_of_inner_paths_do_not_widen_the_gap():
    """Twenty Euler steps between exercise dates; at Sobol' points in the order of time, the gap is .04 %."""
    payoff = lambda x: jnp.maximum(100.0 - x[0], 0.0)
    problem = Problem(
        1,
        1.0,
        100.0,
        drift=lambda t, x: 0.03 * x,
        diffusion=lambda t, x: 0.2 * x,
        driver=lambda t, x, y, z: -0.03 * y,
        terminal=payoff,
        num_steps=40,
        exercise_times=[0.5],
        exercise_value=lambda t, x: payoff(x),
    )
    found = solve(problem, GridQuadrature(num_nodes=129), key=OWN)
    value = found.value(0.0, problem.x0)
    both = bounds(found, key=OTHERS, num_paths=1024)
    assert both.gap + 3.0 * both.std_errors.gap < 1e-4 * value
    assert both.std_errors.upper < 5e-4 * value


def test_the_value_is_the_middle_of_its_bounds_where_these_are_nearer():
    """Of a figure that is accurate enough, of one that is not, of one with wide bounds, and without any."""
    of = lambda mean, error: Estimate(jnp.asarray(mean), jnp.asarray(error))
    value = of([10.0, 10.0, 10.9, 10.0], [0.001, 0.01, 0.01, 0.01])
    lower = of([9.99, 10.01, 9.0, -jnp.inf], [0.001, 0.001, 0.001, 0.0])
    upper = of([10.01, 10.04, 11.0, jnp.inf], [0.001, 0.002, 0.001, 0.0])
    nothing = of(jnp.zeros((4, 1)), jnp.zeros((4, 1)))
    found = Certificate(value, nothing, nothing, missed=jnp.full(4, 0.1), left=jnp.zeros(4))
    moved = with_middle_of_bounds(found, lower, upper, 0.002)
    np.testing.assert_allclose(moved.value.mean, [10.0, 10.025, 10.9, 10.0])
    np.testing.assert_allclose(moved.missed, [0.1, 0.125, 0.1, 0.1])
    np.testing.assert_allclose(moved.value.std_error, [0.001, 0.002 + 0.03 / 6.0, 0.01, 0.01])


@pytest.mark.costly
def test_a_chosen_solution_is_saved_without_its_certificate(chosen, tmp_path):
    problem, solution = chosen
    save(solution, tmp_path / "chosen.eqx")
    found = load(tmp_path / "chosen.eqx", problem, solution.stats["solver"])
    assert found.value(0.0, problem.x0) == solution.value(0.0, problem.x0)
    assert set(found.stats) == {"losses"}


@pytest.mark.costly
def test_more_paths_are_no_other_program(chosen, monkeypatch):
    _, solution = chosen
    certify(solution, key=OTHERS, num_paths=4096)
    traced, samples = [], certificate.samples
    noted = lambda *args, **named: traced.append(1) or samples(*args, **named)
    monkeypatch.setattr(certificate, "samples", noted)
    certify(solution, key=OTHERS, num_paths=16384)
    assert not traced


@pytest.mark.costly
def test_what_is_not_known_well_enough_is_refused(chosen):
    problem, _ = chosen
    with pytest.raises(
        RuntimeError, match=r"gamma is known to .* % of its size \(0.01 % is asked\)"
    ):
        solve(problem, key=OWN, max_paths=8192, tolerance=Tolerance(gamma=1e-4))


@pytest.mark.costly
def test_grids_state_their_own_errors_where_a_certificate_would_take_many_paths(monkeypatch):
    problem, reference = CASES["up-and-out call"]()
    counts, on_paths = [], to_tolerance.figures_on_paths
    noted = lambda of, key, num_paths: counts.append(num_paths) or on_paths(of, key, num_paths)
    monkeypatch.setattr(to_tolerance, "figures_on_paths", noted)
    tolerance = Tolerance(1e-3, 5e-3, 0.05)
    solution = solve(problem, key=OWN, tolerance=tolerance)
    assert counts == [8192]
    found, stated = solution.stats["certificate"], solution.stats["errors"]
    means = found.value.mean, found.delta.mean[0], found.gamma.mean[0, 0]
    trues = reference.value, reference.delta[0], reference.gamma[0]
    for mean, true, error, asked in zip(means, trues, stated, tolerance, strict=True):
        assert abs(mean / true - 1.0) < error < asked


@pytest.mark.costly
def test_mistakes_are_named(chosen):
    problem, solution = chosen
    with pytest.raises(ValueError, match="num_paths=3: give four or more"):
        certify(solution, key=OTHERS, num_paths=3)
    with pytest.raises(ValueError, match="a solver is selected for one key"):
        solve(problem, key=jax.random.split(OWN, 2))
    still = lambda t, dt, x, dw: jnp.where(t > 0.0, problem.step(t, dt, x, dw), x)
    unmoved = eqx.tree_at(lambda s: s.problem.step, solution, still)
    with pytest.raises(RuntimeError, match="does not move every coordinate"):
        certify(unmoved, key=OTHERS, num_paths=64)


def test_contracts_that_read_one_another_are_refused():
    both = asset(lambda x: jnp.stack([x[0], 2.0 * x[0]]), 4)
    both = eqx.tree_at(lambda p: p.driver, both, lambda t, x, y, z: -0.05 * y[::-1])
    solution = solve(both, COARSE, key=OWN)
    with pytest.raises(TypeError, match="depends on the values of others"):
        certify(solution, key=OTHERS, num_paths=64)
