"""Figures from fresh paths are right whatever the solution, and their errors cover; `solve` alone."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fbsde_references as known
from pricing import Barrier, Bermudan, BlackScholes, European
from pricing.fbsde import (
    DeepBSDE,
    GradientRegression,
    Hermite,
    Payoffs,
    Problem,
    Tolerance,
    certificate,
    certify,
    from_product,
    load,
    problems,
    save,
    solve,
)
from pricing.fbsde.first_step import FirstStep, is_coordinatewise

from .backward_problems import asset

QUARTERS = np.arange(1, 5) / 4.0
COARSE = GradientRegression(4096, (Hermite(3), Payoffs()))
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


@pytest.mark.parametrize("name", CASES)
def test_figures_are_right_though_the_solution_is_coarse(name):
    problem, reference = CASES[name]()
    solution = solve(problem, COARSE, key=OWN)
    found = certify(solution, key=OTHERS, num_paths=32768)
    assert np.max(np.abs(scores(found, reference))) < 4.0
    assert found.value.std_error < 1e-2 * abs(reference.value)
    own = float(solution.value(0.0, problem.x0))
    np.testing.assert_allclose(own + found.missed, found.value.mean, rtol=1e-12)


@pytest.mark.repeat
def test_standard_errors_cover():
    """Of 200 seeds between 90 and 99 % are within what 95 % of them should be."""
    problem, reference = CASES["Bermudan put"]()
    solution = solve(problem, COARSE, key=OWN)
    keys = jax.random.split(OTHERS, 200)
    found = np.abs([scores(certify(solution, key=k, num_paths=16384), reference) for k in keys])
    share = np.mean(found < 1.96, axis=0)
    assert np.all((share >= 0.90) & (share <= 0.99)), share


def test_deep_bsde_gets_a_delta_and_a_gamma():
    problem, reference = CASES["call at two rates"]()
    solution = solve(problem, DeepBSDE(num_iterations=200), key=OWN)
    found = certify(solution, key=OTHERS, num_paths=32768)
    assert np.max(np.abs(scores(found, reference))) < 4.0
    assert found.gamma.relative_error < 0.1


def test_contracts_are_certified_side_by_side():
    strikes = jnp.array([90.0, 110.0], jnp.float32)
    problem = asset(lambda x: jnp.maximum(x[0] - strikes, 0.0), 4)
    found = certify(solve(problem, COARSE, key=OWN), key=OTHERS, num_paths=16384)
    for row, strike in enumerate([90.0, 110.0]):
        closed = lambda x, k=strike: known.black_scholes(x[0], k, 0.05, 0.2, 1.0)  # noqa: E731
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


@pytest.mark.parametrize("correlated", [False, True])
def test_weights_are_derivatives_of_the_density(correlated):
    problem = two_assets(correlated)
    assert is_coordinatewise(problem) == (not correlated)
    dw = jnp.array([0.3, -0.7])
    end = problem.advance(problem.times[0], problem.x0, dw)
    density = lambda x: jnp.exp(log_density(problem, x, end))  # noqa: E731
    known_slope = jax.grad(density)(problem.x0) / density(problem.x0)
    known_curvature = jax.hessian(density)(problem.x0) / density(problem.x0)
    for form in {is_coordinatewise(problem), False}:
        weights = FirstStep(problem, dw, form).weights()
        np.testing.assert_allclose(weights.slope, known_slope, rtol=1e-9)
        np.testing.assert_allclose(weights.curvature, known_curvature, rtol=1e-9, atol=1e-15)


# --- no solver named ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chosen():
    problem = asset(lambda x: jnp.maximum(x[0] - 100.0, 0.0), 4)
    return problem, solve(problem, key=OWN, max_paths=65536, rtol=Tolerance(0.01, 0.02, 0.1))


def test_a_solver_is_chosen_and_its_figures_are_certified(chosen):
    _, solution = chosen
    closed = lambda x: known.black_scholes(x[0], 100.0, 0.05, 0.2, 1.0)  # noqa: E731
    reference = known.of_function(closed, [100.0])
    assert np.max(np.abs(scores(solution.stats["certificate"], reference))) < 4.0
    assert len(solution.stats["tried"]) > 1
    tried = [one.solver.bases for one in solution.stats["tried"]]
    assert solution.stats["solver"].bases in tried


def test_an_error_that_standard_errors_do_not_tell_is_told():
    """That of the dates, and the square of a coarse solution's where the driver bends: others have others."""
    problem, reference = problems.hjb(3), known.hjb(3, np.zeros(3))
    solution = solve(problem, key=OWN, max_paths=16384, throw=False)
    found, told = solution.stats["certificate"], solution.stats["errors"]
    assert abs(float(found.value.mean) / reference.value - 1.0) < told.value


def test_a_chosen_solution_is_saved_without_its_certificate(chosen, tmp_path):
    problem, solution = chosen
    save(solution, tmp_path / "chosen.eqx")
    found = load(tmp_path / "chosen.eqx", problem, solution.stats["solver"])
    assert found.value(0.0, problem.x0) == solution.value(0.0, problem.x0)
    assert set(found.stats) == {"losses"}


def test_more_paths_are_no_other_program(chosen, monkeypatch):
    _, solution = chosen
    certify(solution, key=OTHERS, num_paths=4096)
    traced, samples = [], certificate._samples
    noted = lambda *args, **named: traced.append(1) or samples(*args, **named)  # noqa: E731
    monkeypatch.setattr(certificate, "_samples", noted)
    certify(solution, key=OTHERS, num_paths=16384)
    assert not traced


def test_what_is_not_known_well_enough_is_refused(chosen):
    problem, _ = chosen
    with pytest.raises(
        RuntimeError, match=r"gamma is known to .* % of its size \(0.01 % is asked\)"
    ):
        solve(problem, key=OWN, max_paths=8192, rtol=Tolerance(gamma=1e-4))


def test_mistakes_are_named(chosen):
    problem, solution = chosen
    with pytest.raises(ValueError, match="num_paths=3: give four or more"):
        certify(solution, key=OTHERS, num_paths=3)
    with pytest.raises(ValueError, match="a solver is chosen for one key"):
        solve(problem, key=jax.random.split(OWN, 2))
    still = lambda t, dt, x, dw: jnp.where(t > 0.0, problem.step(t, dt, x, dw), x)  # noqa: E731
    unmoved = eqx.tree_at(lambda s: s.problem.step, solution, still)
    with pytest.raises(RuntimeError, match="does not move every coordinate"):
        certify(unmoved, key=OTHERS, num_paths=64)


def test_contracts_that_read_one_another_are_refused():
    both = asset(lambda x: jnp.stack([x[0], 2.0 * x[0]]), 4)
    both = eqx.tree_at(lambda p: p.driver, both, lambda t, x, y, z: -0.05 * y[::-1])
    solution = solve(both, COARSE, key=OWN)
    with pytest.raises(TypeError, match="reads the values of others"):
        certify(solution, key=OTHERS, num_paths=64)
