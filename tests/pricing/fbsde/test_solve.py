"""The loop around every solver: killed runs go on, events are emitted, failures are named, seeds are mapped."""

import json

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from threadpoolctl import threadpool_info, threadpool_limits

from pricing import Barrier, BlackScholes, greeks, price
from pricing.fbsde import (
    RESULTS,
    AbstractSolver,
    Certificate,
    DeepBSDE,
    Estimate,
    GradientRegression,
    GridQuadrature,
    Hermite,
    MeanPolynomials,
    PayoffBasis,
    Problem,
    Tolerance,
    certify,
    from_product,
    problems,
    solve,
)
from pricing.fbsde.error_bars.relative_errors import as_tolerance
from pricing.fbsde.error_bars.to_tolerance import (
    _with_grids,  # pyright: ignore[reportPrivateUsage]
)
from pricing.fbsde.stages import StageCheckpoints

from .backward_problems import single

SOLVER = DeepBSDE(60, iterations_per_stage=10)
FLAT = {
    "drift": lambda t, x: jnp.zeros_like(x),
    "diffusion": lambda t, x: 1.0,
    "driver": lambda t, x, y, z: y,
}
REGRESSION = GradientRegression(4096, (Hermite(4), PayoffBasis()))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("problem", "solver", "kill_at"),
    [
        (problems.allen_cahn(3), SOLVER, 2),
        pytest.param(problems.different_rates_call(6), REGRESSION, 4, marks=pytest.mark.slow),
    ],
    ids=["DeepBSDE", "GradientRegression"],
)
def test_a_killed_run_goes_on_to_the_same_bits(problem, solver, kill_at, tmp_path, monkeypatch):
    key = jax.random.key(0)
    whole = solve(problem, solver, key=key, resume=tmp_path / "whole")

    keep, kept = StageCheckpoints.save, []

    def killed(self, training):
        if len(kept) == kill_at:
            raise KeyboardInterrupt
        kept.append(int(training.stage))
        keep(self, training)

    monkeypatch.setattr(StageCheckpoints, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        solve(problem, solver, key=key, resume=tmp_path / "killed")
    monkeypatch.setattr(StageCheckpoints, "save", keep)
    resumed = solve(problem, solver, key=key, resume=tmp_path / "killed")
    assert kept == list(range(1, kill_at + 1))
    chex.assert_trees_all_equal(*(eqx.filter(found, eqx.is_array) for found in (whole, resumed)))


@pytest.mark.costly
def test_another_run_does_not_go_on_from_it(tmp_path):
    problem = problems.allen_cahn(3)
    solve(problem, SOLVER, key=jax.random.key(0), resume=tmp_path)
    with pytest.raises(ValueError, match=r"holds another run \(different: key\)"):
        solve(problem, SOLVER, key=jax.random.key(1), resume=tmp_path)


@pytest.mark.costly
def test_blas_has_one_thread_meanwhile(tmp_path, monkeypatch):
    """All of it, SciPy's too, which jaxlib loads when it compiles a factor; then as many as before."""

    def threads() -> dict[str, int]:
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        return {pool["filepath"]: pool["num_threads"] for pool in pools}

    keep, meanwhile = StageCheckpoints.save, []

    def recorded(self, training):
        meanwhile.append(threads())
        keep(self, training)

    def stopped(*given):
        meanwhile.append(threads())
        raise InterruptedError

    monkeypatch.setattr(StageCheckpoints, "save", recorded)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        solution = solve(problems.allen_cahn(3), SOLVER, key=jax.random.key(0), resume=tmp_path)
        assert set(before.values()) == {2} and before.items() <= threads().items()
        monkeypatch.setattr("pricing.fbsde.error_bars.certificate.figures_on_paths", stopped)
        with pytest.raises(InterruptedError):
            certify(solution, key=jax.random.key(0))
    assert all(set(seen.values()) == {1} for seen in meanwhile)
    jnp.linalg.cholesky(jnp.eye(3))
    assert set(threads()) == set(meanwhile[0])


def test_a_solution_is_compiled_once_for_all_dates_and_states():
    traces = []

    def terminal(x):
        traces.append(x)
        return x[0]

    problem = Problem(1, 1.0, 0.0, **FLAT, terminal=terminal, num_steps=4)
    solution = solve(problem, GradientRegression(4096, (Hermite(1),)), key=jax.random.key(0))
    solution.gamma(0.0, [0.0])
    seen = len(traces)
    for t, x in ((0.25, 0.1), (0.6, -2.0), (1.0, 3.0)):
        np.testing.assert_allclose(solution.gamma(t, [x]), 0.0, atol=1e-12)
    assert len(traces) == seen
    with pytest.raises(ValueError, match=r"x of shape \(2,\): give one state, \[1\]"):
        solution.delta(0.0, [1.0, 2.0])
    for t in (-0.01, 1.01, 2.0, float("nan")):  # 2.0 once had the value of 1.0
        with pytest.raises(ValueError, match="give a time between 0 and the maturity, 1"):
            solution.value(t, [0.1])
    values = jax.vmap(lambda t: solution.value(t, jnp.array([0.1])))(
        jnp.array([-0.5, 0.0, 1.0, 2.0])
    )
    assert np.isnan(values).tolist() == [True, False, False, True]


class Growing(AbstractSolver):
    """Its state has another shape after a stage."""

    mesh: None = None

    def unsupported_reason(self, problem):
        return None

    def num_stages(self, problem):
        return 2

    def init(self, problem, *, key):
        return jnp.zeros(1)

    def stage(self, problem, state, index, *, key):
        return jnp.zeros(2), (), jnp.zeros(1)

    def postprocess(self, problem, state, outputs):
        raise NotImplementedError


def test_a_stage_must_keep_the_shapes_of_the_state():
    with pytest.raises(AssertionError, match=r"shape"):
        solve(problems.allen_cahn(2), Growing(), key=jax.random.key(0))


def exploding() -> Problem:
    infinite = lambda x: jnp.where(x[0] > 2.5, jnp.inf, x[0])
    return Problem(1, 1.0, 0.0, **FLAT, terminal=infinite, num_steps=4)


@pytest.mark.costly
def test_a_loss_that_is_not_finite_stops_and_writes_nothing_over(tmp_path):
    solver = DeepBSDE(600, batch_size=4, iterations_per_stage=2, num_pilot_paths=8)
    key = jax.random.key(3)
    with pytest.raises(RuntimeError, match=r"not finite at iteration \d of stage \d+ \(iterations"):
        solve(exploding(), solver, key=key, resume=tmp_path)
    stages = [int(path.name) for path in (tmp_path / "stages").iterdir() if path.name.isdigit()]
    found = solve(exploding(), solver, key=key, throw=False)
    bad = np.argwhere(~np.isfinite(np.asarray(found.stats["losses"])))[0][0]
    assert max(stages, default=0) == bad
    assert "lower the learning rate" in RESULTS[found.result]


def test_a_regression_that_feeds_itself_is_refused_while_it_is_finite():
    """u_t + u_xx / 2 + 3 u_x^2 = 0 by polynomials: far out f of a fit is more than all that it follows from."""
    driver = lambda t, x, y, z: 3.0 * jnp.sum(z**2)
    functions = FLAT | {"driver": driver, "terminal": lambda x: jnp.sin(3.0 * x[0])}
    problem = Problem(1, 1.0, 0.0, **functions, num_steps=20)
    solver, key = GradientRegression(4096, (Hermite(6),)), jax.random.key(0)
    with pytest.raises(RuntimeError, match="functions of lower degree"):
        solve(problem, solver, key=key)
    found = solve(problem, solver, key=key, throw=False)
    first = np.argmin(np.isfinite(found.stats["losses"][:, 0]))
    assert np.all(np.isfinite(found.approximation.coefficients[: first + 1]))
    assert "functions of lower degree" in RESULTS[found.result]


@pytest.mark.costly
def test_a_bond_is_not_refused():
    """Nothing varies but rounding, which functions of high degree make much of."""
    bond = Problem(
        1,
        1.0,
        100.0,
        drift=lambda t, x: 0.03 * x,
        diffusion=lambda t, x: 0.2 * x,
        driver=lambda t, x, y, z: -0.03 * y,
        terminal=lambda x: 1.0 + 0.0 * x[0],
        num_steps=12,
    )
    problem = single(bond)
    solver = GradientRegression(
        8192, (Hermite(1), MeanPolynomials(12), PayoffBasis()), initial_dispersion=0.0
    )
    solution = solve(problem, solver, key=jax.random.key(0))
    np.testing.assert_allclose(solution.value(0.0, problem.x0), np.exp(-0.03), rtol=1e-5)


def test_a_date_is_named():
    with pytest.raises(RuntimeError, match="date 3"):
        solve(exploding(), GradientRegression(4096, (Hermite(2),)), key=jax.random.key(0))


def test_events_of_every_stage(tmp_path):
    path = tmp_path / "metrics.jsonl"
    reports = []
    solution = solve(
        problems.allen_cahn(3),
        SOLVER,
        key=jax.random.key(0),
        metrics=path,
        progress=lambda *report: reports.append(report),
    )
    assert [report[:2] for report in reports] == [(done, 6) for done in range(1, 7)]
    assert reports[-1][2] == f"loss {solution.stats['losses'][-1, -1]:.3g}"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["stage"] for row in rows] == list(range(6))
    np.testing.assert_allclose([row["loss"] for row in rows], solution.stats["losses"][:, -1])
    np.testing.assert_allclose(rows[-1]["value"], solution.value(0.0, jnp.zeros(3)), rtol=1e-12)


def test_tensorboard_reads_a_folder_of_events(tmp_path):
    solve(problems.allen_cahn(3), SOLVER, key=jax.random.key(0), metrics=tmp_path)
    names = [path.name for path in tmp_path.iterdir()]
    assert "metrics.jsonl" in names
    assert any(name.startswith("events.out") for name in names)


@pytest.mark.costly
def test_a_grid_states_its_own_error_where_paths_are_too_few():
    """A put 4 standard deviations out of the money: three standard errors of paths are a multiple of Gamma."""
    rate, vol = 0.02, 0.2

    def exact(x):
        d = (jnp.log(x / 45.0) + rate - 0.5 * vol**2) / vol
        norm = jax.scipy.special.ndtr
        return 45.0 * jnp.exp(-rate) * norm(-d) - x * norm(-d - vol)

    problem = Problem(
        1,
        1.0,
        100.0,
        drift=lambda t, x: rate * x,
        diffusion=lambda t, x: vol * x,
        driver=lambda t, x, y, z: -rate * y,
        terminal=lambda x: jnp.maximum(45.0 - x[0], 0.0),
        num_steps=20,
        step=lambda t, dt, x, dw: x * jnp.exp((rate - 0.5 * vol**2) * dt + vol * dw),
    )
    solution = solve(problem, key=jax.random.key(0), max_paths=8192)  # does not raise
    found = solution.stats["certificate"]
    trues = exact(100.0), jax.grad(exact)(100.0), jax.grad(jax.grad(exact))(100.0)
    figures = found.value, found.delta, found.gamma
    for figure, true, error in zip(figures, trues, solution.stats["errors"], strict=True):
        assert abs(float(figure.mean.squeeze()) / float(true) - 1.0) < min(float(error), 0.01)


@pytest.mark.costly
def test_errors_of_nodes_and_points_do_not_cancel():
    """Beside a barrier they have different signs in Delta, whose error was stated as a third of what it is."""
    dates = np.arange(1, 51) / 50.0
    product = Barrier(100.0, 1.0, 95.0, "down-and-out", dates=dates)
    model = BlackScholes(100.0, 0.05, 0.2)
    problem = from_product(product, model, 50)
    solution = solve(problem, key=jax.random.key(0), max_paths=8192, throw=False)
    found, exact = solution.stats["certificate"], greeks(product, model)
    figures = found.value, found.delta, found.gamma
    trues = price(product, model).value, exact.delta, exact.gamma
    for figure, true, error in zip(figures, trues, solution.stats["errors"], strict=True):
        assert abs(float(figure.mean.squeeze()) / float(true) - 1.0) < float(error)


@pytest.mark.costly
def test_a_running_average_is_a_coordinate_without_noise_of_its_own():
    """A call on a geometric mean of a few dates: no density of the first step, so grids give the errors."""
    rate, vol, count, strike = 0.03, 0.25, 4, 100.0

    def step(t, dt, x, dw):
        spot = x[0] * jnp.exp((rate - 0.5 * vol**2) * dt + vol * dw[0])
        return jnp.stack([spot, x[1] + 0.5 * dt * jnp.log(x[0] * spot)])

    problem = Problem(
        2,
        1.0,
        [100.0, 0.0],
        drift=lambda t, x: jnp.stack([rate * x[0], jnp.log(x[0])]),
        diffusion=lambda t, x: jnp.stack([vol * x[0], 0.0 * x[0]]),
        driver=lambda t, x, y, z: -rate * y,
        terminal=lambda x: jnp.maximum(jnp.exp(x[1]) - strike, 0.0),
        num_steps=count,
        step=step,
    )
    weights, times = np.full(count + 1, 1.0 / count), np.arange(count + 1) / count
    weights[[0, -1]] /= 2.0
    variance = vol**2 * weights @ np.minimum(times[:, None], times) @ weights
    growth = (rate - 0.5 * vol**2) * weights @ times

    def exact(spot):
        d = (jnp.log(spot / strike) + growth) / variance**0.5
        forward = spot * jnp.exp(growth + 0.5 * variance)
        norm = jax.scipy.special.ndtr
        return jnp.exp(-rate) * (forward * norm(d + variance**0.5) - strike * norm(d))

    solution = solve(problem, key=jax.random.key(0))  # does not raise
    found, stated = solution.stats["certificate"], solution.stats["errors"]
    trues = exact(100.0), jax.grad(exact)(100.0), jax.grad(jax.grad(exact))(100.0)
    means = found.value.mean, found.delta.mean[0], found.gamma.mean[0, 0]
    for mean, true, error in zip(means, trues, stated, strict=True):
        assert abs(float(mean) / float(true) - 1.0) < min(float(error), 0.01)


def test_grids_that_paths_contradict_are_not_used():
    shapes = (), (1,), (1, 1)

    def of(mean, error, missed=0.0):
        estimates = (Estimate(jnp.full(shape, mean), jnp.full(shape, error)) for shape in shapes)
        return Certificate(*estimates, missed=jnp.array(missed), left=jnp.zeros(()))

    paths = of(1.0, 0.1, missed=-0.2)
    dates = of(1.5, 0.0), of(1.2, 0.0)
    for mean, of_dates, chosen in ((1.2, (), 1.2), (1.5, (), 1.0), (1.5, dates, 1.5)):
        found = _with_grids(paths, of(mean, 0.001), scale=np.ones(1), of_dates=of_dates)
        assert all(float(figure.mean.ravel()[0]) == chosen for figure in (found.value, found.gamma))
        missed = -0.2 if chosen == 1.0 else 0.0  # a grid's own value misses nothing
        assert float(found.missed) == missed


def test_a_coarser_grid_covers_the_same_states():
    problem, key = problems.max_call(1), jax.random.key(0)
    fine = GridQuadrature()
    first, other = (solver.init(problem, key=key) for solver in (fine, fine.coarser(problem)[0]))
    count, fewer = (state.coefficients.shape[-1] for state in (first, other))
    assert fewer < 0.8 * count
    widths = first.axes.step * (count - 1), other.axes.step * (fewer - 1)
    np.testing.assert_allclose(*widths, rtol=0.02)


@pytest.mark.costly
def test_many_seeds_are_solved_side_by_side():
    problem = problems.allen_cahn(3)
    keys = jax.random.split(jax.random.key(7), 3)
    together = solve(problem, SOLVER, key=keys)
    values = eqx.filter_vmap(lambda solution: solution.value(0.0, problem.x0))(together)
    alone = [solve(problem, SOLVER, key=key).value(0.0, problem.x0) for key in keys]
    np.testing.assert_allclose(values, alone, rtol=1e-6)
    assert len(set(map(float, values))) == 3


@pytest.mark.costly
def test_devices_share_the_paths():
    """On one device, and the mesh of it: what is drawn and found is the same."""
    mesh = Mesh(np.array(jax.devices()), ("paths",))
    problem, key = problems.allen_cahn(3), jax.random.key(8)
    alone = solve(problem, SOLVER, key=key).value(0.0, problem.x0)
    shared = solve(problem, DeepBSDE(60, iterations_per_stage=10, mesh=mesh), key=key)
    np.testing.assert_allclose(shared.value(0.0, problem.x0), alone, rtol=1e-9)


@pytest.mark.parametrize("solver", [None, GridQuadrature(8)], ids=["selected", "named"])
@pytest.mark.parametrize(
    ("step", "diffusion"),
    [
        (lambda t, dt, x, dw: x * jnp.exp(-0.08 * dt + 0.4 * dw), lambda t, x: 0.2 * x),
        (lambda t, dt, x, dw: x + dw[::-1], lambda t, x: 1.0),
    ],
    ids=["another vol", "another coordinate"],
)
def test_a_step_beside_another_diffusion_is_refused(solver, step, diffusion):
    given = {"step": step, "diffusion": diffusion, "terminal": jnp.sum, "num_steps": 4}
    with pytest.raises(ValueError, match=r"`step` moves coordinate 0 .* of the same equation"):
        solve(Problem(2, 1.0, 100.0, **given), solver, key=jax.random.key(0))


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("key", [0, jnp.zeros(2, jnp.uint32), None], ids=repr)
def test_a_key_that_is_no_key_is_refused(key):
    with pytest.raises(TypeError, match=r"give a key, such as jax.random.key\(0\)"):
        solve(problems.allen_cahn(2), key=key)


def test_every_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="every=0"):
        solve(problems.allen_cahn(3), SOLVER, key=jax.random.key(0), resume=tmp_path, every=0)


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        (0.0, "tolerance has value=0.0: give a number above zero"),
        (Tolerance(gamma=float("nan")), "tolerance has gamma=nan"),
    ],
)
def test_a_tolerance_that_is_none_is_refused_at_once(tolerance, message):
    with pytest.raises(ValueError, match=message):
        solve(problems.allen_cahn(3), tolerance=tolerance, key=jax.random.key(0))


def test_one_number_is_the_as_tolerance_all_figures():
    assert as_tolerance(0.01) == Tolerance(0.01, 0.01, 0.01)
