"""What is believed beforehand: a prior's place in the least squares, and fits that follow one another."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import Job, Prior, SwaptionVolError, calibrate, calibrate_many, fit
from pricing import Heston, HullWhite, VolSurface
from pricing.market import SwaptionVols
from tests.helpers import dax, double, first_difference
from tests.references import dax_heston

pytestmark = double

YEARS = np.arange(1.0, 6.0)
OBJECTIVE = SwaptionVolError(np.fliplr(np.eye(5)))
TRUTH = HullWhite(0.04875825, 0.05, 0.006)
NOISE = 5e-5


@functools.cache
def own_vols(mean_reversion: float = 0.05) -> np.ndarray:
    blank = SwaptionVols(YEARS, YEARS, np.full((5, 5), 0.1))
    model = eqx.tree_at(lambda m: m.mean_reversion, TRUTH, jnp.asarray(mean_reversion))
    return np.asarray(eqx.filter_jit(OBJECTIVE.vols)(model, blank))


def fitted(vols, prior=None, **settings):
    return calibrate(
        SwaptionVols(YEARS, YEARS, vols), TRUTH, objective=OBJECTIVE, prior=prior, **settings
    )


def noisy(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, NOISE, (5, 5))


@functools.cache
def yesterday():
    return fitted(own_vols() + noisy(1))


def numbers(found) -> np.ndarray:
    return np.array([found.model.mean_reversion, found.model.vol])


# --- in the least squares ---------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_prior_that_says_nothing_changes_nothing():
    nothing = Prior(jnp.asarray([3.0, 7.0]), jnp.zeros((2, 2)))
    found = fitted(own_vols() + noisy(1), nothing)
    np.testing.assert_allclose(numbers(found), numbers(yesterday()), rtol=1e-9)
    for name in ("covariance", "noise", "condition_number", "sum_squared_vol_points"):
        np.testing.assert_allclose(found.stats[name], yesterday().stats[name], rtol=1e-6)
    np.testing.assert_allclose(found.residuals, yesterday().residuals, atol=1e-12)


def test_a_prior_that_is_sure_decides():
    sure = Prior.of(HullWhite(0.03, 0.02, 0.01), {"mean_reversion": 1e-9}, NOISE)
    found = fitted(own_vols() + noisy(1), sure)
    np.testing.assert_allclose(found.model.mean_reversion, 0.02, rtol=1e-6)
    assert abs(float(found.model.vol) - 0.006) < 0.001  # of which it says nothing


def test_the_fit_is_the_mode_of_the_posterior():
    """The gradient of |r|^2 / 2 s^2 + (theta - mean)' C^{-1} (theta - mean) / 2 vanishes."""
    mean, errors = np.array([0.1, 0.007]), np.array([0.03, 2e-4])
    prior = Prior.of(
        HullWhite(0.03, *mean), dict(zip(("mean_reversion", "vol"), errors, strict=True)), NOISE
    )
    vols = own_vols() + noisy(1)
    found = fitted(vols, prior)
    quotes = SwaptionVols(YEARS, YEARS, vols)

    def minus_log_posterior(theta):
        residuals = OBJECTIVE.residuals(HullWhite(TRUTH.curve, *theta), quotes)
        return 0.5 * jnp.sum((residuals / NOISE) ** 2) + 0.5 * jnp.sum(
            ((theta - mean) / errors) ** 2
        )

    at = jnp.asarray(numbers(found))
    bend = np.asarray(jax.jit(jax.hessian(minus_log_posterior))(at))
    slope = jax.jit(jax.grad(minus_log_posterior))(at)
    step = np.linalg.solve(bend, slope)
    np.testing.assert_array_less(np.abs(step), 1e-4 * np.sqrt(np.diag(np.linalg.inv(bend))))
    # its covariance, by Gauss and Newton, but for the noise, which is estimated
    residuals = lambda theta: OBJECTIVE.residuals(HullWhite(TRUTH.curve, *theta), quotes).ravel()
    jacobian = np.asarray(jax.jit(jax.jacfwd(residuals))(at))
    information = jacobian.T @ jacobian / NOISE**2 + np.diag(errors**-2.0)
    scaled = found.stats["covariance"] * (NOISE / found.stats["noise"]) ** 2
    np.testing.assert_allclose(scaled, np.linalg.inv(information), rtol=1e-5)


def test_what_is_handed_on_is_the_covariance_and_the_drift():
    """W'W = s^2 (C + Q)^{-1}."""
    prior = yesterday().prior({"mean_reversion": 0.01, "vol": 1e-4}, days=4.0)
    covariance = yesterday().stats["covariance"] + np.diag([4e-4, 4e-8])
    wanted = float(yesterday().stats["noise"]) ** 2 * np.linalg.inv(covariance)
    np.testing.assert_allclose(prior.weights.T @ prior.weights, wanted, rtol=1e-5)
    np.testing.assert_allclose(prior.mean, numbers(yesterday()), rtol=1e-12)


def test_what_the_quotes_do_not_tell_is_not_handed_on():
    """One quote tells one combination of the two parameters: a prior of rank one."""
    vols, weights = own_vols(), np.zeros((5, 5))
    weights[0, 4] = 1.0
    quotes = SwaptionVols(YEARS, YEARS, vols)
    found = calibrate(quotes, TRUTH, objective=SwaptionVolError(weights), throw=False)
    prior = eqx.tree_at(lambda c: c.stats["noise"], found, jnp.asarray(NOISE)).prior()
    large, small = np.linalg.svd(prior.weights, compute_uv=False)
    assert small < 1e-6 * large


def test_a_prior_that_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match="'rho' is not a free parameter: give std_errors of mean_rev"
    ):
        Prior.of(TRUTH, {"rho": 0.1}, NOISE)
    with pytest.raises(ValueError, match="vol is off by 0: give a number above 0"):
        Prior.of(TRUTH, {"vol": 0}, NOISE)
    with pytest.raises(ValueError, match="a prior of 3 parameters for a model of 2"):
        fitted(own_vols(), Prior(jnp.zeros(3), jnp.zeros((3, 3))))
    with pytest.raises(ValueError, match="give a square matrix of that size"):
        Prior(jnp.zeros(2), jnp.zeros((3, 3)))
    with pytest.raises(
        ValueError, match="'rho' is not a free parameter: give the drift of mean_rev"
    ):
        yesterday().prior({"rho": 0.1})


# --- from day to day --------------------------------------------------------------------------------------


@pytest.mark.costly
def test_fits_that_follow_one_another_drift_smoothly_and_nearer_to_the_truth():
    """Eight weeks of five days each; mean reversion, hardly identified, walks by .002 a day."""
    walk, off, moves = 0.002, {"alone": [], "chain": []}, {"alone": [], "chain": []}
    dice = np.random.default_rng(20261124)
    for _ in range(8):
        truth, prior, before = 0.05, None, {}
        for _ in range(5):
            truth += dice.normal(0.0, walk)
            vols = own_vols(truth) + dice.normal(0.0, NOISE, (5, 5))
            found = {"alone": fitted(vols), "chain": fitted(vols, prior)}
            prior = found["chain"].prior({"mean_reversion": walk, "vol": 1e-5})
            for way, fit_of_day in found.items():
                now = float(fit_of_day.model.mean_reversion)
                off[way].append(now - truth)
                moves[way].append(now - before.get(way, now))
                before[way] = now
    square = {way: np.mean(np.square(errors)) for way, errors in off.items()}
    assert square["chain"] < 0.6 * square["alone"]
    assert np.mean(np.square(moves["chain"])) < 0.3 * np.mean(np.square(moves["alone"]))


# --- through the other verbs ------------------------------------------------------------------------------


@pytest.mark.costly
def test_the_derivative_to_quotes_through_a_fit_with_a_prior():
    believed = Prior.of(dax_heston(), {"mean_reversion": 1.0, "vol_of_vol": 0.3}, 0.01)
    moved = eqx.tree_at(lambda p: p.mean, believed, believed.mean * 0.9)
    model_of = fit(dax_heston(), prior={"DAX": moved})
    value = lambda market: model_of(market)["DAX"].mean_reversion
    free = fit(dax_heston())(dax())["DAX"].mean_reversion
    assert abs(value(dax()) - free) > 0.01 * free
    slopes = dax().by_quote(jax.grad(value)(dax()))
    for quote in ("EQUITY_OPTION/RATE_LNVOL/DAX/2002-07-18/5000", "EQUITY/PRICE/DAX"):
        level = dict(dax().flat_quotes())[quote]
        bump = lambda h, q=quote, x=level: float(value(dax().with_quotes({q: x * (1.0 + h)})))
        np.testing.assert_allclose(level * slopes[quote], first_difference(bump, 1e-3), rtol=1e-5)


@pytest.mark.costly
def test_each_of_many_has_a_prior_of_its_own():
    surface = dax().equities["DAX"].surface
    start = dax_heston()
    priors = [
        Prior.of(
            dataclasses.replace(start, mean_reversion=jnp.asarray(x)), {"mean_reversion": 0.1}, 0.01
        )
        for x in (10.0, 20.0)
    ]
    jobs = [Job(str(i), surface, start, prior) for i, prior in enumerate([*priors, None])]
    found = calibrate_many(jobs)
    assert found.failed == {}
    for i, job in enumerate(jobs):
        alone = calibrate(surface, start, prior=job.prior)
        for name, values in found.parameters.items():
            np.testing.assert_allclose(values[i], getattr(alone.model, name), rtol=1e-5)
    reversions = found.parameters["mean_reversion"]
    assert reversions[0] < reversions[2] < reversions[1]


@pytest.mark.costly
def test_a_prior_is_of_smiles_too():
    """A surface as a chain of days: Heston's vol of vol, told the worst by three strikes."""
    model = Heston(100.0, 0.0, 0.04, 1.5, 0.05, 0.6, -0.6)
    surface = VolSurface([0.5, 1.0], [90.0, 100.0, 110.0], [[0.23, 0.21, 0.2], [0.24, 0.22, 0.21]])
    first = calibrate(surface, model, throw=False)
    second = calibrate(
        surface,
        first.model,
        prior=first.prior(dict.fromkeys(Heston.free_parameters, 0.01)),
        throw=False,
    )
    assert np.all(np.isfinite(second.stats["covariance"]))
    assert np.sqrt(second.stats["covariance"][1, 1]) < np.sqrt(first.stats["covariance"][1, 1])
