"""Quotes that do not identify all parameters: what is held stays near its start, and values do not mind."""

import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import RESULTS, Calibration, ImpliedVolError, Job, calibrate, calibrate_many, fit
from calibration.objectives import model_vols
from pricing import BlackScholes, European, Heston, Market, VolSurface, price
from pricing.market import SwaptionVols
from pricing.models import G2, Bates, HullWhite, Sabr
from tests.extensions.decaying_vol import DecayingVol
from tests.helpers import double

pytestmark = double

SKEW = [0.30, 0.26, 0.23, 0.21, 0.20]
STRIKES = np.array([80.0, 90.0, 100.0, 110.0, 120.0])
NONE = [np.nan] * 5
FX = Heston(100.0, 0.0, 0.0030, 1.5, 0.0036, 0.25, -0.2)
"""Vols of 5 to 6 %, as of EUR/USD."""

SURFACES = {  # name -> expiries, vols by expiry, and whether the quotes identify all parameters of Heston
    "two identical smiles": ([0.25, 1.0], [SKEW, SKEW], False),
    "one smile": ([0.5, 1.0], [SKEW, NONE], False),
    "one short smile": ([0.02, 1.0], [[0.26, 0.24, 0.23, 0.225, 0.222], NONE], False),
    "one long smile": ([10.0, 11.0], [SKEW, NONE], False),
    "flat": ([0.25, 1.0], [[0.2] * 5] * 2, False),
    "one flat smile": ([1.0, 2.0], [[0.2] * 5, NONE], False),
    "flat and low": ([4.0, 9.0], [[0.05] * 5] * 2, False),
    "a term structure that runs away": (
        [0.1, 2.0],
        [[0.85, 0.8, 0.75, 0.74, 0.73], [0.55, 0.52, 0.5, 0.49, 0.48]],
        None,
    ),
    "a smile that frowns": ([0.25, 1.0], [[0.18, 0.2, 0.21, 0.2, 0.18]] * 2, False),
    "a rising term structure": (
        [0.25, 1.0],
        [[0.24, 0.21, 0.19, 0.185, 0.19], [0.26, 0.24, 0.22, 0.21, 0.205]],
        None,
    ),
}


@functools.cache
def of(name: str) -> tuple[VolSurface, Heston]:
    """The surface, and where a search starts."""
    expiries, vols, _ = SURFACES[name]
    surface = VolSurface(expiries, STRIKES, vols)
    usual = Heston(100.0, 0.0, 0.1, 1.0, 0.1, 0.5, -0.5)
    return surface, usual.starting_for(surface)


@functools.cache
def fitted(name: str) -> Calibration:
    return calibrate(*of(name), objective=ImpliedVolError(64), throw=False)


def numbers(model) -> np.ndarray:
    return np.array([float(getattr(model, name)) for name in Heston.free_parameters])


def is_plausible(model) -> bool:
    """No vol above 150 %, no speed above that of a day, no vol of vol that no path shows."""
    v0, kappa, theta, xi, rho = numbers(model)
    levels = max(v0, theta) < 2.25 and min(v0, theta) > 1e-4
    return levels and 1e-3 < kappa < 400.0 and 1e-4 < xi < 15.0 and abs(rho) < 0.99


@pytest.mark.parametrize("name", SURFACES)
def test_what_the_quotes_do_not_tell_is_held_and_said(name):
    found = fitted(name)
    identified = SURFACES[name][2]
    if identified is not None:
        wanted = RESULTS.converged if identified else RESULTS.not_identified
        assert found.result == wanted
        assert bool(jnp.any(found.stats["not_identified"])) != identified
    assert found.result in (RESULTS.converged, RESULTS.not_identified)
    assert is_plausible(found.model), numbers(found.model)
    errors = np.sqrt(np.diag(found.stats["covariance"]))
    assert np.all(errors < 400.0)


@pytest.mark.costly
def test_calibrate_many_says_the_same():
    jobs = [Job(name, *of(name)) for name in SURFACES]
    many = calibrate_many(jobs, objective=ImpliedVolError(64))
    for place, name in enumerate(SURFACES):
        found, status = fitted(name), many.status[place]
        is_held = found.result == RESULTS.not_identified
        assert status.startswith("not identified: ") == is_held, (name, status)
        assert is_held or status == "ok"
        theirs = np.array([column[place] for column in many.parameters.values()])
        np.testing.assert_allclose(theirs, numbers(found.model), rtol=1e-4)
    assert set(many.not_identified) == {n for n in SURFACES if many.status[jobs_place(n)] != "ok"}
    assert not many.failed


def jobs_place(name: str) -> int:
    return list(SURFACES).index(name)


def test_the_least_squares_are_as_good_as_those_that_ran_away():
    """Without a weak prior 1.252 squared vol points, at a long-run variance of 1.4e9; flat: 0."""
    squares = {name: float(fitted(name).stats["sum_squared_vol_points"]) for name in SURFACES}
    assert squares["two identical smiles"] < 1.45
    assert squares["one smile"] < 0.11
    for name in ("flat", "one flat smile", "flat and low"):
        assert squares[name] < 2e-5


def test_a_flat_surface_gives_the_values_of_black_scholes():
    model, vol = fitted("flat").model, 0.2
    for strike, expiry in ((90.0, 0.5), (110.0, 1.0)):
        ours = price(European(strike, expiry), model).value
        theirs = price(European(strike, expiry), BlackScholes(100.0, 0.0, vol)).value
        np.testing.assert_allclose(ours, theirs, rtol=2e-4)


def market_of(surface: VolSurface, days: tuple[int, ...]) -> Market:
    vols = np.asarray(surface.vols).tolist()
    quotes = {"days": days, "strikes": STRIKES.tolist(), "vols_by_expiry": vols}
    share = {"curve": "EUR", "spot": 100.0, "implied_vols": quotes}
    curves = {"EUR": {"zero_rate": 0.0}}
    document = {"asof": "2026-11-26", "curves": curves, "equities": {"X": share}}
    market = Market.from_text(json.dumps(document))
    assert not market.errors
    return market


@pytest.mark.costly
def test_risk_to_quotes_goes_through_a_fit_that_is_held():
    """Where all vols of a flat surface move by h, both variances move by 2 vol h, and nothing else by much."""
    surface = VolSurface([0.25, 1.0], STRIKES, [[0.2] * 5] * 2)
    market = market_of(surface, (91, 365))
    model_of = fit(Heston.starting_on(market, "X"), objective=ImpliedVolError(64))

    def variances(vols):
        moved = eqx.tree_at(lambda m: m.equities["X"].surface.vols, market, vols)
        model = model_of(moved)["X"]
        return jnp.stack([model.initial_variance, model.long_run_variance])

    vols = market.equities["X"].surface.vols
    levels, slopes = jax.jvp(variances, (vols,), (jnp.ones_like(vols),))
    np.testing.assert_allclose(levels, 0.04, rtol=1e-3)
    np.testing.assert_allclose(slopes, 0.4, rtol=1e-2)


@pytest.mark.costly
def test_low_vols_are_met_from_the_start_at_the_money():
    """From variances of .1 such a search ended at 92.96 squared vol points."""
    strikes = 100.0 * np.exp([-0.06, -0.03, 0.0, 0.03, 0.06])
    quotes = VolSurface([0.25, 1.0], strikes, np.ones((2, 5)))
    quotes = VolSurface(quotes.expiries, strikes, model_vols(FX, quotes, 96))
    start = Heston(100.0, 0.0, 0.1, 1.0, 0.1, 0.5, -0.5).starting_for(quotes)
    found = calibrate(quotes, start, objective=ImpliedVolError(64))
    assert found.stats["sum_squared_vol_points"] < 1e-6
    np.testing.assert_allclose(numbers(found.model), numbers(FX), rtol=2e-3)


def test_starts_are_at_the_money():
    surface = VolSurface([1.0, 2.0], [90.0, 110.0], [[0.12, 0.08], [0.2, np.nan]])
    usual = Heston(100.0, 0.0, 0.1, 1.0, 0.1, 0.5, -0.5)
    share = np.log(100.0 / 90.0) / np.log(110.0 / 90.0)
    vol = 0.12 + share * (0.08 - 0.12)
    found = usual.starting_for(surface)
    np.testing.assert_allclose(found.initial_variance, vol**2, rtol=1e-12)
    np.testing.assert_allclose(found.long_run_variance, 0.2**2, rtol=1e-12)
    sabr = Sabr(100.0, 0.0, [1.0, 2.0], [0.3, 0.3], [0.0, 0.0], [1.0, 1.0], 0.5)
    np.testing.assert_allclose(sabr.starting_for(surface).alpha, [10.0 * vol, 2.0], rtol=1e-12)
    bates = Bates(100.0, 0.0, 0.1, 1.0, 0.1, 0.5, -0.5, 0.3, -0.1, 0.1).starting_for(surface)
    variance = bates.initial_variance + 0.3 * (bates.jump_mean**2 + bates.jump_vol**2)
    np.testing.assert_allclose(variance, vol**2, rtol=1e-12)
    lognormal = SwaptionVols([1.0, 2.0], [5.0], [[0.2], [0.1]])
    for model in (HullWhite(0.04, 0.05, 0.01), G2(0.04, 0.5, 0.01, 0.05, 0.01, -0.5)):
        np.testing.assert_allclose(model.starting_for(lognormal).vol, 0.15 * 0.04, rtol=1e-6)
        normal = SwaptionVols([1.0, 2.0], [5.0], [[0.007], [0.009]], "normal")
        np.testing.assert_allclose(model.starting_for(normal).vol, 0.008, rtol=1e-6)
    nothing = VolSurface([1.0], [90.0], [[np.nan]])
    np.testing.assert_array_equal(numbers(usual.starting_for(nothing)), numbers(usual))


# --- the mechanism, on a model of two numbers -------------------------------------------------------------

START = DecayingVol(100.0, 0.0, 0.3, 0.2)
ONE_EXPIRY = VolSurface([1.0, 2.0], STRIKES, [[0.2] * 5, NONE])
TWO = VolSurface([1.0, 2.0], STRIKES, [[0.2] * 5, [0.18] * 5])


def test_one_number_for_two_parameters_moves_them_least():
    """One expiry tells the mean square alone; of all pairs that meet it the nearest to the start is found."""
    found = calibrate(ONE_EXPIRY, START, throw=False)
    assert found.result == RESULTS.not_identified
    np.testing.assert_allclose(found.residuals[0], 0.0, atol=1e-5)
    vols = np.linspace(0.15, 0.35, 2001)
    decays = vols_of_decay(vols)
    widths = np.log(1.0 / 0.05), 1.0  # of vol and decay, on the real line
    far = (np.log(vols / 0.3) / widths[0]) ** 2 + ((decays - 0.2) / widths[1]) ** 2
    nearest = int(np.argmin(far))
    np.testing.assert_allclose(found.model.vol, vols[nearest], atol=2e-4)
    np.testing.assert_allclose(found.model.decay, decays[nearest], atol=2e-3)
    with pytest.raises(RuntimeError, match="A weak prior holds it near its start"):
        calibrate(ONE_EXPIRY, START)


def vols_of_decay(vols: np.ndarray) -> np.ndarray:
    """The decay at which the vol of one year is .2, for each initial vol, by bisection."""
    low, high = np.full_like(vols, -3.0), np.full_like(vols, 5.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        decay = np.where(np.abs(middle) < 1e-9, 1e-9, middle)
        too_high = -(vols**2) * np.expm1(-2.0 * decay) / (2.0 * decay) > 0.04
        low, high = np.where(too_high, middle, low), np.where(too_high, high, middle)
    return 0.5 * (low + high)


def test_what_is_identified_is_as_without_a_weak_prior():
    found = calibrate(TWO, START)
    assert not bool(jnp.any(found.stats["not_identified"])) and not bool(found.problem.is_held)
    np.testing.assert_allclose(found.residuals, 0.0, atol=1e-9)


@pytest.mark.costly
def test_a_batch_says_the_same_as_each_by_itself():
    vols = jnp.stack([TWO.vols, jnp.stack([jnp.full(5, 0.2), jnp.full(5, jnp.nan)])])
    surface = lambda vols: VolSurface(TWO.expiries, STRIKES, vols)
    of_one = lambda vols: calibrate(surface(vols), START, throw=False)
    both = jax.vmap(of_one)(vols)
    for place in range(2):
        alone = of_one(vols[place])
        assert (
            RESULTS[jax.tree.map(lambda x, at=place: x[at], both.result)] == RESULTS[alone.result]
        )
        ours = both.model.vol[place], both.model.decay[place]
        np.testing.assert_allclose(ours, (alone.model.vol, alone.model.decay), rtol=1e-6)
