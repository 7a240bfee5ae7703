"""How far to trust a fit: told and untold parameters, profiles, the quotes that it rests on, and coverage."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import (
    RESULTS,
    Calibration,
    Exp,
    Job,
    SwaptionVolError,
    calibrate,
    calibrate_many,
    cooks_distance,
    identifiability,
    leverage,
    profile,
    quote_sensitivities,
)
from calibration.objectives import model_vols
from pricing import Heston, HullWhite, Sabr, VolSurface
from pricing.market import SmileQuotes, SwaptionVols
from tests.helpers import dax, double, sample_market
from tests.references import dax_heston

pytestmark = double

YEARS = np.arange(1.0, 6.0)
COTERMINAL = np.fliplr(np.eye(5))
START = HullWhite(0.04875825, 0.05, 0.01)


def matrix() -> SwaptionVols:
    return SwaptionVols(YEARS, YEARS, sample_market().swaption_vols.vols)


@functools.cache
def of_matrix() -> Calibration:
    return calibrate(matrix(), START)


@functools.cache
def of_five() -> Calibration:
    """The five co-terminal quotes, which hardly tell mean reversion and vol apart."""
    return calibrate(matrix(), START, objective=SwaptionVolError(COTERMINAL))


@functools.cache
def of_dax() -> Calibration:
    return calibrate(dax().equities["DAX"].surface, dax_heston())


# --- what the quotes tell ---------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("found", [of_matrix, of_five, of_dax])
def test_the_moves_of_all_directions_are_the_covariance(found):
    told, covariance = identifiability(found()), np.asarray(found().stats["covariance"])
    np.testing.assert_allclose(told.moves.T @ told.moves, covariance, rtol=1e-6)
    np.testing.assert_allclose(np.sum(told.shares, axis=0), 1.0, rtol=1e-12)
    worst = float(told.condition_indices[0])
    np.testing.assert_allclose(worst**2, found().stats["condition_number"], rtol=1e-6)
    assert np.all(np.diff(told.condition_indices) <= 0.0)


def test_what_the_quotes_do_not_tell_is_said_in_words():
    words = identifiability(of_five()).summary
    assert words.startswith("The quotes hardly distinguish mean_reversion, vol (condition index 2")
    assert "they may move together by mean_reversion" in words
    assert identifiability(of_matrix()).summary.startswith("The quotes identify all parameters")


@pytest.mark.costly
def test_a_move_along_the_worst_direction_costs_one_standard_error_of_a_quote():
    """Quotes of a known model, a little off: |r|^2 rises by s^2; one parameter alone costs far more."""
    truth = HullWhite(START.curve, 0.05, 0.006)
    vols = SwaptionVolError().vols(truth, matrix())
    noise = np.random.default_rng(5).normal(0.0, 2e-6, (5, 5))
    own = eqx.tree_at(lambda q: q.vols, matrix(), vols + noise)
    found = calibrate(own, START, objective=SwaptionVolError(COTERMINAL))
    problem, noise = found.problem, found.stats["noise"]
    values = problem.parameters.values(problem.parameters.free(found.model))
    move = identifiability(found).moves[0]

    def squares(step):
        free = problem.parameters.to_free(values + step)
        return float(2.0 * problem.loss(free))

    together = squares(0.1 * move) - squares(0.0 * move)
    np.testing.assert_allclose(together, 0.01 * float(noise) ** 2, rtol=0.02)
    alone = squares(0.1 * move * np.array([1.0, 0.0])) - squares(0.0 * move)
    assert alone > 100.0 * together


@pytest.mark.costly
def test_a_direction_that_moves_nothing_is_named():
    """Quotes of one option cannot tell five parameters, though a search for them ends."""
    one = np.ones((1, 6))
    quotes = SmileQuotes([1.0], 0.0 * one, 0.2 * one, one)
    start = Heston(100.0, 0.0, 0.05, 1.0, 0.05, 0.5, -0.5)
    assert calibrate(quotes, start, throw=False).result == RESULTS.not_identified
    with pytest.raises(RuntimeError, match="the quotes do not determine it"):
        calibrate(quotes, start)
    few = VolSurface([1.0], [100.0], [[0.2]])
    assert calibrate(few, start, throw=False).result == RESULTS.too_few_quotes


# --- profiles ---------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_profile_is_that_of_fits_of_the_other_parameters():
    values = [0.02, 0.06, 0.045]
    found = profile(of_five(), "mean_reversion", values)
    assert bool(jnp.all(found.converged))
    least = float(of_five().stats["sum_squared_vol_points"])
    for value, deviance, vol in zip(values, found.deviances, found.parameters["vol"], strict=True):
        other = calibrate(
            matrix(),
            HullWhite(START.curve, value, 0.01),
            objective=SwaptionVolError(COTERMINAL),
            transform={"vol": Exp()},
        )
        np.testing.assert_allclose(vol, other.model.vol, rtol=1e-6)
        more = float(other.stats["sum_squared_vol_points"]) - least
        wanted = 1e-4 * more / float(of_five().stats["noise"]) ** 2
        np.testing.assert_allclose(deviance, wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.parameters["mean_reversion"], values)


@pytest.mark.costly
def test_a_profile_of_a_parameter_that_is_told_is_the_parabola_of_its_standard_error():
    error = float(np.sqrt(of_dax().stats["covariance"][4, 4]))
    best = float(of_dax().model.correlation)
    found = profile(of_dax(), "correlation", best + 0.2 * error * np.array([-2.0, -1.0, 0.0, 1.0]))
    wanted = np.array([0.16, 0.04, 0.0, 0.04])
    np.testing.assert_allclose(found.deviances, wanted, rtol=0.1, atol=1e-8)
    assert found.allowed == (float(found.values[0]), float(found.values[3]))


@pytest.mark.costly
def test_one_number_of_an_array_is_held():
    surface = dax().equities["DAX"].surface
    found = calibrate(surface, Sabr.starting_on(dax(), "DAX"))
    best = float(found.model.rho[2])
    held = profile(found, "rho[2]", [best, best + 0.01], max_steps=30)
    np.testing.assert_allclose(held.parameters["rho"][:, 2], [best, best + 0.01], rtol=1e-9)
    np.testing.assert_allclose(
        held.parameters["nu"][1, [0, 5]], found.model.nu[jnp.array([0, 5])], rtol=1e-5
    )
    assert float(held.deviances[1]) > 0.0


def test_what_cannot_be_held_is_refused():
    with pytest.raises(ValueError, match="no parameter 'rho' to hold: give one of mean_reversion"):
        profile(of_five(), "rho", [0.1])
    with pytest.raises(ValueError, match="give numbers within its bounds"):
        profile(of_five(), "vol", [-0.01])


# --- the quotes that a fit rests on -----------------------------------------------------------------------


@pytest.mark.costly
def test_leverage_sums_to_the_number_of_parameters():
    for found, count in ((of_dax(), 5), (of_matrix(), 2), (of_five(), 2)):
        of_each = leverage(found)
        assert of_each.shape == found.residuals.shape
        assert np.all((of_each >= 0.0) & (of_each <= 1.0))
        np.testing.assert_allclose(np.sum(of_each), count, rtol=1e-6)
    assert np.all(leverage(of_five())[COTERMINAL == 0.0] == 0.0)


@pytest.mark.costly
def test_leverage_is_how_a_fitted_vol_follows_its_own_quote():
    """Exactly so where residuals vanish: at a model's own vols."""
    own = eqx.tree_at(lambda q: q.vols, matrix(), matrix().vols + of_matrix().residuals)
    again = calibrate(own, START)
    for place in ((0, 0), (4, 4), (2, 3)):
        vol = lambda model, at=place: SwaptionVolError().vols(model, own)[at]
        followed = quote_sensitivities(again, vol)[place]
        np.testing.assert_allclose(leverage(again)[place], followed, rtol=1e-5)


def test_cooks_distance_is_that_of_a_fit_without_the_quote():
    """To first order in the move; the quote that weighs the most."""
    distances = np.asarray(cooks_distance(of_matrix()))
    place = np.unravel_index(np.argmax(distances), distances.shape)
    weights = np.ones((5, 5))
    weights[place] = 0.0
    without = calibrate(matrix(), START, objective=SwaptionVolError(weights))
    problem = of_matrix().problem
    free = problem.parameters.free(of_matrix().model)
    _, jacobian = jax.jit(lambda x: problem.linearized(x))(free)
    move = jacobian @ (problem.parameters.free(without.model) - free)
    exact = float(jnp.sum(move**2) / (2.0 * of_matrix().stats["noise"] ** 2))
    np.testing.assert_allclose(distances[place], exact, rtol=0.2)


def test_a_calibration_without_its_problem_is_refused():
    bare = Calibration(of_five().model, of_five().residuals, of_five().result, of_five().stats)
    for verb in (identifiability, leverage, cooks_distance, lambda c: profile(c, "vol", [0.01])):
        with pytest.raises(ValueError, match="does not hold its problem"):
            verb(bare)


# --- standard errors --------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("count", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_standard_errors_cover_the_truth(count):
    """Each parameter lies within 1.96 standard errors in 90 to 99 % of noisy surfaces."""
    expiries, strikes = [0.25, 0.5, 1.0, 2.0], np.linspace(75.0, 130.0, 8)
    truth = Heston(100.0, 0.02, 0.05, 2.0, 0.06, 0.5, -0.6)
    blank = VolSurface(expiries, strikes, np.full((4, 8), 0.2))
    vols = np.asarray(eqx.filter_jit(model_vols)(truth, blank, 48))
    noise = np.random.default_rng(20261124).normal(0.0, 0.001, (count, *vols.shape))
    jobs = [
        Job(str(i), VolSurface(expiries, strikes, vols + of), truth) for i, of in enumerate(noise)
    ]
    found = calibrate_many(jobs)
    assert found.failed == {}
    for name in Heston.free_parameters:
        off = np.abs(found.parameters[name] - float(getattr(truth, name)))
        covered = np.mean(off < 1.96 * found.std_errors[name])
        assert 0.90 <= covered <= 0.99, (name, covered)
