"""Calibration of Heston to the DAX surface of 5 July 2002, and to surfaces with a known answer."""

import functools
import importlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calibration import (
    REASONS,
    RESULTS,
    AbstractObjective,
    Exp,
    ImpliedVolError,
    calibrate,
    join_optimizers,
    levenberg_marquardt,
)
from calibration.least_squares_problem import LeastSquaresProblem
from calibration.objectives import model_vols
from calibration.parameters import FreeParameters, random_starts
from pricing import BlackScholes, ClosedForm, European, Fourier, Heston, VolSurface
from tests import references
from tests.helpers import dax, double
from tests.references import dax_heston

pytestmark = double

calibration_module = importlib.import_module("calibration.calibration")
NAMES = tuple(references.DAX_OPTIMUM)
NODES = ImpliedVolError().num_nodes


def surface() -> VolSurface:
    return dax().equities["DAX"].surface


def standard_start():
    return dax_heston(references.DAX_START)


def fit(quotes=None, model=None, **settings):
    return calibrate(quotes or surface(), model or standard_start(), **settings)


@pytest.fixture(scope="module")
def optimum():
    return fit()


@eqx.filter_jit
def vols(model, num_nodes=NODES):
    return model_vols(model, surface(), num_nodes)


@pytest.mark.costly
def test_vols_of_models_far_apart_are_those_of_their_prices():
    """400 models, a week to five years, vol of vol to 2, correlation to -.95; strikes to 2.5 deviations."""
    dice = np.random.default_rng(20261124)
    low, high = np.log([(0.005, 0.3), (0.2, 10.0), (0.005, 0.3), (0.1, 2.0), (7 / 365, 5.0)]).T
    *rows, expiries = np.exp(dice.uniform(low, high, (400, 5))).T
    rows = jnp.asarray(np.stack([*rows, dice.uniform(-0.95, 0.4, 400)], axis=1))

    @eqx.filter_vmap
    def off_by(row, t, widths):
        model = Heston(100.0, 0.02, *row, 0.01)
        strikes = model.forward(t) * jnp.exp(widths * jnp.sqrt(model.total_variance(t)))
        quotes = VolSurface(t[None], strikes, jnp.full((1, widths.size), 0.2))
        (found,) = model_vols(model, quotes, NODES)
        calls = eqx.filter_vmap(lambda strike: European(strike, t).canonical)(strikes)
        exact = eqx.filter_vmap(lambda call: Fourier(1024).samples(call, model))(calls)
        flat = eqx.filter_vmap(lambda vol: BlackScholes(100.0, 0.02, vol, 0.01))(found)
        again = eqx.filter_vmap(lambda call, of: ClosedForm().samples(call, of))(calls, flat)
        return jnp.abs(again - exact)

    widths = jnp.broadcast_to(jnp.linspace(-2.5, 2.5, 11), (400, 11))
    errors = eqx.filter_jit(off_by)(rows, jnp.asarray(expiries), widths)
    assert np.quantile(errors, 0.99) < 1e-5  # on a spot of 100
    assert np.max(errors) < 2e-4


def squared_vol_points(model, num_nodes=NODES):
    return float(jnp.sum((100.0 * (vols(model, num_nodes) - surface().vols)) ** 2))


def test_the_sum_of_squares_is_that_of_the_references():
    """The optimum's on more nodes: few leave an error at the shortest expiry in the fourth decimal."""
    start = squared_vol_points(standard_start())
    assert abs(start - references.DAX_SSE_AT_START) < 5e-3
    best = squared_vol_points(dax_heston(), 256)
    assert abs(best - references.DAX_SSE_AT_OPTIMUM) < 1e-4


@pytest.mark.costly
def test_the_dax_optimum_is_found_from_the_standard_start(optimum):
    assert optimum.result == RESULTS.converged
    assert optimum.stats["sum_squared_vol_points"] <= 181.52
    assert optimum.stats["steps"] <= 20
    for name, wanted in references.DAX_OPTIMUM.items():
        assert abs(getattr(optimum.model, name) - wanted) < 1e-3 * abs(wanted), name


def test_residuals_are_model_less_market(optimum):
    np.testing.assert_allclose(optimum.residuals, vols(optimum.model) - surface().vols, atol=1e-12)
    total = jnp.sum((100.0 * optimum.residuals) ** 2)
    np.testing.assert_allclose(total, optimum.stats["sum_squared_vol_points"], rtol=1e-10)


def test_the_optimum_is_a_minimum(optimum):
    """One per cent either way in any parameter costs."""
    for name in NAMES:
        for scale in (0.99, 1.01):
            moved = eqx.tree_at(
                lambda m, n=name: getattr(m, n), optimum.model, replace_fn=lambda x, s=scale: x * s
            )
            assert squared_vol_points(moved) > optimum.stats["sum_squared_vol_points"]


def test_parameters_are_identified(optimum):
    """The covariance is symmetric and positive, and no pair of parameters nearly the same."""
    covariance = np.asarray(optimum.stats["covariance"])
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-10)
    assert np.all(np.linalg.eigvalsh(covariance) > 0.0)
    assert 1.0 < optimum.stats["condition_number"] < 1e3


@functools.cache
def ends(geodesic=False):
    """Where each of 100 random starts ends: vol of vol from .1 to 4, mean reversion from .2 to 20."""
    model, optimizer = standard_start(), levenberg_marquardt(geodesic=geodesic)
    problem = LeastSquaresProblem(surface(), model, ImpliedVolError(), FreeParameters.of(model))
    points = random_starts(problem.parameters, model, 101, key=jax.random.key(0))[1:]
    searches = calibration_module._init(problem, optimizer, points, 0)
    settings = jnp.asarray(1e-10), jnp.asarray(100)
    return calibration_module._run(problem, optimizer, searches, *settings)


@pytest.mark.costly
@pytest.mark.parametrize("geodesic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_random_starts_over_wide_ranges_reach_the_optimum(geodesic):
    """99 of 100 at least, to 1e-3, and none is NaN."""
    searches = ends(geodesic)
    totals = 1e4 * np.sum(np.asarray(searches.residual) ** 2, axis=1)
    assert np.all(np.isfinite(totals))
    assert np.all(np.isfinite(searches.free))
    assert np.sum(np.abs(totals - references.DAX_SSE_AT_OPTIMUM) < 1e-3) >= 99


@pytest.mark.costly
def test_the_best_of_many_starts_is_taken_and_the_others_are_counted(optimum):
    """Its history with it."""
    found = fit(num_starts=8)
    best = found.stats
    assert found.stats["starts_at_optimum"] == 8
    np.testing.assert_allclose(
        found.stats["sum_squared_vol_points"], optimum.stats["sum_squared_vol_points"], rtol=1e-9
    )
    trials = int(best["steps"]) + 1
    assert np.sum(np.isfinite(best["history"].loss)) == trials
    np.testing.assert_allclose(
        2e4 * best["history"].loss[trials - 1], best["sum_squared_vol_points"], rtol=1e-12
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    "parameters",
    [(0.04, 2.0, 0.06, 0.5, -0.7), (0.2, 0.5, 0.1, 1.0, 0.3), (0.06, 3.0, 0.04, 0.9, -0.3)],
)
def test_a_models_own_vols_give_it_back(parameters):
    truth = dax_heston(dict(zip(NAMES, parameters, strict=True)))
    found = fit(VolSurface(surface().expiries, surface().strikes, vols(truth, 192)))
    assert found.result == RESULTS.converged
    for name, wanted in zip(NAMES, parameters, strict=True):
        np.testing.assert_allclose(getattr(found.model, name), wanted, rtol=1e-6)
    assert found.stats["sum_squared_vol_points"] < 1e-10


@pytest.mark.costly
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        pytest.param(optax.lbfgs(), {"rtol": 1e-8}, marks=pytest.mark.slow),
        (optax.adam(0.02), {"rtol": 1e-6, "max_steps": 1000}),
        (join_optimizers([optax.adam(0.1), levenberg_marquardt()], [20]), {"rtol": 1e-10}),
        pytest.param(levenberg_marquardt(geodesic=True), {"rtol": 1e-10}, marks=pytest.mark.slow),
    ],
    ids=["lbfgs", "adam", "adam, then levenberg-marquardt", "geodesic"],
)
def test_any_optax_optimizer_will_do(optimizer, settings, optimum):
    found = fit(optimizer=optimizer, **settings)
    assert found.result == RESULTS.converged
    excess = found.stats["sum_squared_vol_points"] / optimum.stats["sum_squared_vol_points"] - 1.0
    assert -1e-12 < excess < 10.0 * settings["rtol"]


# --- the way there ------------------------------------------------------------------------------------


def test_the_history_is_that_of_all_trials(optimum):
    """The start first; the lowest is the end; Levenberg-Marquardt's damping falls; NaN beyond the last."""
    history, steps = optimum.stats["history"], int(optimum.stats["steps"])
    for column in (history.loss, history.step_length, history.damping):
        assert column.shape == (101,)
        assert np.all(np.isfinite(column[: steps + 1]))
        assert np.all(np.isnan(column[steps + 1 :]))
    np.testing.assert_allclose(2e4 * history.loss[0], references.DAX_SSE_AT_START, atol=5e-3)
    np.testing.assert_allclose(
        2e4 * jnp.nanmin(history.loss), references.DAX_SSE_AT_OPTIMUM, atol=1e-3
    )
    assert history.step_length[0] == 0.0
    assert np.all(np.asarray(history.step_length[1 : steps + 1]) <= np.sqrt(5.0))
    assert history.step_length[steps] < 1e-3
    assert history.damping[0] == 1e-2
    assert history.damping[steps] < 1e-4


@pytest.mark.costly
def test_adam_has_no_damping():
    found = fit(optimizer=optax.adam(0.02), max_steps=5, throw=False)
    history = found.stats["history"]
    assert history.loss.shape == (6,)
    assert np.all(np.isfinite(history.loss))
    assert np.all(np.isnan(history.damping))


@pytest.mark.costly
def test_progress_does_not_change_the_history(optimum):
    told = []
    found = fit(progress=lambda *now: told.append(now))
    assert told[-1] == (100, 100, "")
    ours, theirs = (c.stats["history"].loss for c in (found, optimum))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_reasons_tell_the_signs_of_convergence_apart(optimum):
    assert optimum.stats["reason"] == REASONS.step_no_longer_matters
    further = fit(rtol=1e-14)
    assert further.stats["reason"] == REASONS.gradient_vanishes
    own = fit(VolSurface(surface().expiries, surface().strikes, vols(dax_heston())))
    assert own.stats["reason"] == REASONS.residuals_vanish
    for reached in (optimum, further, own):
        assert reached.result == RESULTS.converged
    early = fit(max_steps=3, throw=False)
    assert early.stats["reason"] == REASONS.promote(RESULTS.max_steps_reached)


# --- where it does not get there ----------------------------------------------------------------------


def test_too_few_steps_raise_or_are_said():
    with pytest.raises(
        RuntimeError, match=r"calibrating Heston: Stopped at max_steps before converging"
    ):
        fit(max_steps=3)
    found = fit(max_steps=3, throw=False)
    assert found.result == RESULTS.max_steps_reached
    assert found.stats["steps"] == 3
    assert 181.52 < found.stats["sum_squared_vol_points"] < references.DAX_SSE_AT_START


def test_no_step_leaves_the_start():
    found = fit(max_steps=0, throw=False)
    assert found.result == RESULTS.max_steps_reached
    assert abs(found.stats["sum_squared_vol_points"] - references.DAX_SSE_AT_START) < 5e-3


def test_a_quote_that_is_not_finite_is_said():
    """One that is NaN is missing (`test_objectives`)."""
    quotes = eqx.tree_at(lambda s: s.vols, surface(), surface().vols.at[2, 3].set(np.inf))
    found = fit(quotes, throw=False)
    assert found.result == RESULTS.non_finite_residual
    assert found.stats["reason"] == REASONS.promote(RESULTS.non_finite_residual)
    with pytest.raises(RuntimeError, match="A residual or a derivative is not finite"):
        fit(quotes)


class VarianceError(AbstractObjective):
    """What a user may write: expected total variance against that of every quote."""

    def residuals(self, model, quotes):
        expected = jax.vmap(model.total_variance)(quotes.expiries)
        return expected[:, None] - quotes.vols**2 * quotes.expiries[:, None]


def test_an_objective_and_free_parameters_of_ones_own():
    free = dict.fromkeys(("initial_variance", "long_run_variance", "mean_reversion"), Exp())
    found = fit(objective=VarianceError(), transform=free)
    assert found.result == RESULTS.converged
    assert found.model.correlation == standard_start().correlation
    spread = surface().vols ** 2 * surface().expiries[:, None]
    assert jnp.max(jnp.abs(jnp.mean(found.residuals, axis=1))) < 0.1 * jnp.max(spread)
