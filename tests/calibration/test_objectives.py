"""What a calibration makes small: prices, weights, missing quotes and bid-ask spreads, in every verb."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import (
    RESULTS,
    BidAskError,
    ImpliedVolError,
    Job,
    PriceError,
    SwaptionVolError,
    calibrate,
    calibrate_many,
    fit,
    quote_sensitivities,
)
from pricing import (
    BlackScholes,
    ClosedForm,
    European,
    Fourier,
    HullWhite,
    VolCurve,
    VolSurface,
    ZeroCurve,
    price,
)
from pricing.market import SmileQuotes, SwaptionVols
from tests import references
from tests.cases import others_later
from tests.helpers import dax, double
from tests.references import dax_heston

pytestmark = double

EXPIRIES = np.array([0.25, 1.0, 2.0])
STRIKES = np.array([85.0, 95.0, 100.0, 110.0, 125.0])
VOLS = np.array(
    [[0.31, 0.27, 0.25, 0.23, 0.24], [0.28, 0.26, 0.25, 0.24, 0.23], [0.27, 0.255, 0.25, 0.24, 0.235]]
)  # fmt: skip
CURVE = ZeroCurve([1.0, 2.0], [0.02, 0.03])


def surface(vols=VOLS) -> VolSurface:
    return VolSurface(EXPIRIES, STRIKES, vols)


def start() -> BlackScholes:
    return BlackScholes(100.0, CURVE, VolCurve(EXPIRIES, [0.2, 0.2, 0.2]), 0.01)


def fitted(vols=VOLS, objective=None, model=None, **settings):
    return calibrate(surface(vols), model or start(), objective=objective, **settings)


def totals(found) -> float:
    return float(found.stats["sum_squared_vol_points"])


# --- prices -------------------------------------------------------------------------------------------


@eqx.filter_jit
def residuals_of(objective, model, quotes):
    return objective.residuals(model, quotes)


@pytest.mark.costly
def test_price_errors_are_those_of_prices_over_the_forwards():
    """Heston's by Fourier on many nodes, the quote's by Black; the option out of the money, undiscounted."""
    model, quotes = dax_heston(), dax().equities["DAX"].surface
    found = residuals_of(PriceError(), model, quotes)
    vega_weighted = residuals_of(PriceError(vega_weighted=True), model, quotes)
    for row, column in ((1, 2), (3, 6), (7, 11)):
        expiry, strike = quotes.expiries[row], quotes.strikes[column]
        forward, quoted = model.forward(expiry), quotes.vols[row, column]
        option = European(strike, expiry, "put" if strike < forward else "call")
        ours = price(option, model, Fourier(512)).value

        def black(vol, option=option):
            flat = BlackScholes(model.spot, model.rate, vol, model.dividend_yield)
            return price(option, flat, ClosedForm()).value

        present = forward * model.discount(expiry)
        error = (ours - black(quoted)) / present
        np.testing.assert_allclose(found[row, column], error, rtol=1e-6, atol=1e-10)
        over_vega = (ours - black(quoted)) / jax.grad(black)(quoted)
        np.testing.assert_allclose(vega_weighted[row, column], over_vega, rtol=1e-6, atol=1e-8)


def test_vega_weighted_prices_are_vols_to_first_order():
    model = BlackScholes(100.0, CURVE, surface(VOLS + 1e-5), 0.01)
    found = residuals_of(PriceError(vega_weighted=True), model, surface())
    np.testing.assert_allclose(found, np.full_like(VOLS, 1e-5), rtol=1e-3)


@pytest.mark.costly
def test_swaption_prices_and_their_vegas():
    quotes = SwaptionVols([1.0, 5.0], [2.0, 4.0], [[0.2, 0.19], [0.18, 0.17]])
    model = HullWhite(CURVE, 0.05, 0.01)
    vols, prices, weighted, relative = (
        residuals_of(SwaptionVolError(error=error), model, quotes)
        for error in ("vol", "price", "vega-weighted price", "relative price")
    )
    quoted = jax.scipy.special.erf(quotes.vols * np.sqrt([[1.0], [5.0]]) / np.sqrt(8.0))
    np.testing.assert_allclose(prices, relative * quoted, rtol=1e-10)
    np.testing.assert_allclose(weighted, vols, rtol=0.03)
    bumped = eqx.tree_at(lambda q: q.vols, quotes, quotes.vols + vols - 1e-6)
    nearly = residuals_of(SwaptionVolError(error="vega-weighted price"), model, bumped)
    np.testing.assert_allclose(nearly, np.full((2, 2), 1e-6), rtol=1e-4)


# --- weights ------------------------------------------------------------------------------------------


def test_a_weight_of_zero_is_a_quote_that_is_not_there():
    weights = np.ones_like(VOLS)
    weights[1, 3] = weights[2, 0] = 0.0
    wrong = np.where(weights == 0.0, 0.9, VOLS)
    weighed = fitted(wrong, ImpliedVolError(weights=weights))
    missing = fitted(np.where(weights == 0.0, np.nan, VOLS))
    np.testing.assert_allclose(weighed.model.vol.vols, missing.model.vol.vols, rtol=1e-7)
    assert np.all(np.asarray(weighed.residuals)[weights == 0.0] == 0.0)


def test_the_fit_of_one_vol_an_expiry_is_the_weighted_mean():
    """In vols; of squares, weights are squared."""
    weights = np.random.default_rng(7).uniform(0.2, 2.0, VOLS.shape)
    found = fitted(objective=ImpliedVolError(weights=weights))
    expected = np.sum(weights**2 * VOLS, axis=1) / np.sum(weights**2, axis=1)
    np.testing.assert_allclose(found.model.vol.vols, expected, rtol=1e-6)


_OF_ANOTHER = np.ones((2, 2))


@pytest.mark.parametrize(
    "objective",
    [
        ImpliedVolError(weights=_OF_ANOTHER),
        PriceError(weights=_OF_ANOTHER),
        BidAskError(_OF_ANOTHER),
    ],
    ids=["vols", "prices", "spreads"],
)
def test_numbers_of_another_shape_are_refused(objective):
    with pytest.raises(
        ValueError, match=r"have shape \(2, 2\) and the quotes \(3, 5\): give one for"
    ):
        fitted(objective=objective)


# --- missing quotes -----------------------------------------------------------------------------------


def with_gaps() -> np.ndarray:
    vols = VOLS.copy()
    vols[0, 4] = vols[2, 1] = np.nan
    return vols


def test_a_vol_that_is_nan_is_missing():
    found = fitted(with_gaps())
    np.testing.assert_allclose(found.model.vol.vols, np.nanmean(with_gaps(), axis=1), rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(found.residuals), np.isnan(with_gaps()))
    assert found.stats["num_quotes"] == 13


@pytest.mark.costly
def test_of_swaptions_too():
    vols = np.array([[0.2, 0.19], [0.18, np.nan]])
    quotes = SwaptionVols([1.0, 5.0], [2.0, 4.0], vols)
    weights = np.array([[1.0, 1.0], [1.0, 0.0]])
    found = calibrate(quotes, HullWhite(CURVE, 0.05, 0.01))
    full = eqx.tree_at(lambda q: q.vols, quotes, jnp.nan_to_num(quotes.vols, nan=0.3))
    left_out = calibrate(full, HullWhite(CURVE, 0.05, 0.01), objective=SwaptionVolError(weights))
    np.testing.assert_allclose(found.model.vol, left_out.model.vol, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 2])
def test_fewer_quotes_than_parameters_are_refused(count):
    vols = np.full_like(VOLS, np.nan)
    vols[:count, 0] = 0.2
    with pytest.raises(RuntimeError, match="fewer quotes than free parameters"):
        fitted(vols)
    found = fitted(vols, throw=False)
    assert found.result == RESULTS.too_few_quotes


# --- bid and ask --------------------------------------------------------------------------------------


def spreads() -> np.ndarray:
    return np.random.default_rng(11).uniform(0.002, 0.03, VOLS.shape)


def test_a_quote_counts_by_the_inverse_of_its_spread():
    found = fitted(objective=BidAskError(spreads()))
    weighed = fitted(objective=ImpliedVolError(weights=2.0 / spreads()))
    np.testing.assert_allclose(found.model.vol.vols, weighed.model.vol.vols, rtol=1e-9)
    np.testing.assert_allclose(found.residuals, weighed.residuals, rtol=1e-6, atol=1e-9)


def test_a_free_quote_costs_from_bid_or_ask_on():
    """d(x): next to nothing inside, w / 2 at the ask, |x| - 1 well outside; odd and rising."""
    quotes = VolSurface([1.0], STRIKES, VOLS[1:2])
    shift = jnp.asarray([[0.0, 0.2, 0.5, 1.0, 2.0]])
    model = BlackScholes(100.0, 0.0, VolSurface([1.0], STRIKES, VOLS[1:2] + 0.005 * shift))
    found = residuals_of(BidAskError(np.full((1, 5), 0.01), inside="free"), model, quotes)
    np.testing.assert_allclose(found[0, :3], 0.0, atol=0.015)
    np.testing.assert_allclose(found[0, 3], 0.1, rtol=0.06)
    np.testing.assert_allclose(found[0, 4], 1.0, rtol=0.01)
    below = BlackScholes(100.0, 0.0, VolSurface([1.0], STRIKES, VOLS[1:2] - 0.005 * shift))
    mirrored = residuals_of(BidAskError(np.full((1, 5), 0.01), inside="free"), below, quotes)
    np.testing.assert_allclose(mirrored, -found, rtol=1e-10)
    assert np.all(np.diff(found[0]) > 0.0)


def test_a_model_within_all_spreads_is_found_and_costs_nothing():
    """Wide spreads about vols that one term structure cannot meet; the quotes outside them count alone."""
    wide = 2.2 * np.abs(VOLS - np.mean(VOLS, axis=1, keepdims=True)) + 0.004
    found = fitted(objective=BidAskError(wide, inside="free"))
    assert found.result == RESULTS.converged
    within = np.abs(np.asarray(found.model.vol.vols)[:, None] - VOLS) <= 0.5 * wide
    assert np.all(within)
    assert np.max(np.abs(found.residuals)) < 0.1
    with pytest.raises(ValueError, match="spreads must be a finite number above 0"):
        BidAskError([[0.0, 0.01]])
    with pytest.raises(ValueError, match="inside must be one of 'weighted', 'free', got 'half'"):
        BidAskError([[0.01]], inside="half")


# --- every objective in every verb --------------------------------------------------------------------


def every_objective():
    weights = 1.0 / (1.0 + np.arange(15.0).reshape(3, 5))
    return {
        "weighted vols": ImpliedVolError(weights=weights),
        "prices": PriceError(weights=weights),
        "vega-weighted prices": PriceError(vega_weighted=True),
        "bid-ask": BidAskError(spreads()),
        "free within bid-ask of prices": BidAskError(0.01 * spreads(), PriceError(), inside="free"),
    }


ONE = {"free within bid-ask of prices"}  # a wrapper around prices: both kinds of objective
every = pytest.mark.parametrize("name", others_later(every_objective(), ONE))


def market(vols):
    equity = dataclasses.replace(
        dax().equities["DAX"], spot=jnp.asarray(100.0), surface=surface(vols)
    )
    return dataclasses.replace(dax(), equities={"DAX": equity})


@pytest.mark.costly
@every
def test_a_fit_and_its_sensitivities_are_those_of_a_bump(name):
    """The fit bumped, to 1e-5 of the largest: the derivative of quotes that are missing is 0."""
    objective, gaps = every_objective()[name], with_gaps()
    there = start().on_market(market(gaps), "DAX")
    found = calibrate(surface(gaps), there, objective=objective)
    value = lambda model: jnp.sum(model.vol.vols * jnp.asarray([1.0, -2.0, 3.0]))
    sensitivities = np.asarray(quote_sensitivities(found, value))
    assert np.all(sensitivities[np.isnan(gaps)] == 0.0)
    fits = fit(there, objective=objective)
    bumped = lambda bump: float(value(fits(market(bump))["DAX"]))
    np.testing.assert_allclose(bumped(gaps), value(found.model), rtol=1e-4)
    for place in ((0, 2), (2, 3)):
        bump = np.zeros_like(gaps)
        bump[place] = 1e-4
        quotient = (bumped(gaps + bump) - bumped(gaps - bump)) / 2e-4
        scale = np.max(np.abs(sensitivities))
        assert abs(sensitivities[place] - quotient) < 1e-4 * scale, place


@pytest.mark.costly
@every
def test_many_are_fitted_as_one_is(name):
    """Filled up to 4 expiries and 8 strikes, where weights and spreads have to go with the quotes."""
    objective, flat = every_objective()[name], BlackScholes(100.0, CURVE, 0.2, 0.01)
    several = [VOLS, with_gaps(), 1.3 * VOLS]
    jobs = [Job(f"S{i}", surface(vols), flat) for i, vols in enumerate(several)]
    jobs.append(Job("other", VolSurface(EXPIRIES[:2], STRIKES, VOLS[:2]), flat))
    result = calibrate_many(jobs, objective=objective, num_slots=4)
    for place, vols in enumerate(several):
        alone = fitted(vols, objective, flat)
        np.testing.assert_allclose(result.parameters["vol"][place], alone.model.vol, rtol=1e-6)
        np.testing.assert_allclose(
            result.sum_squared_vol_points[place], totals(alone), rtol=1e-6, atol=1e-12
        )
    if name != "vega-weighted prices":
        assert "the objective has numbers for (3, 5)" in result.failed["other"]


@functools.cache
def on_dax(name):
    half = np.full((8, 13), 0.01)
    objective = {
        "prices": PriceError(),
        "vega-weighted prices": PriceError(vega_weighted=True),
        "free": BidAskError(half, inside="free"),
    }[name]
    start = dax_heston(references.DAX_START)
    return objective, calibrate(dax().equities["DAX"].surface, start, objective=objective)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("prices", 1.271913),
        pytest.param("vega-weighted prices", 161.539108, marks=pytest.mark.slow),
        pytest.param("free", 3934755.1512, marks=pytest.mark.slow),
    ],
)
def test_heston_on_the_dax(name, total):
    """The same from elsewhere: a minimum, in which prices have the long expiries count for more."""
    objective, found = on_dax(name)
    assert found.result == RESULTS.converged
    assert abs(totals(found) / total - 1.0) < 1e-6
    again = calibrate(dax().equities["DAX"].surface, dax_heston(), objective=objective)
    np.testing.assert_allclose(totals(again), totals(found), rtol=1e-8)
    if name == "prices":
        long = lambda model: float(
            jnp.sum(residuals_of(objective, model, dax().equities["DAX"].surface) ** 2)
        )
        assert long(found.model) < 0.95 * long(dax_heston())


@pytest.mark.slow
def test_many_heston_surfaces_by_prices_with_weights():
    """On a market of forwards 1, where the model is taken for many, prices over the forward are the same."""
    quotes = dax().equities["DAX"].surface
    weights = np.random.default_rng(5).uniform(0.5, 2.0, quotes.vols.shape)
    objective, model = PriceError(weights=weights), dax_heston(references.DAX_START)
    gaps = eqx.tree_at(lambda q: q.vols, quotes, quotes.vols.at[1, 3].set(jnp.nan))
    result = calibrate_many(
        [Job("A", quotes, model), Job("B", gaps, model)], objective=objective, num_slots=8
    )
    for place, each in enumerate((quotes, gaps)):
        alone = calibrate(each, model, objective=objective)
        for name in references.DAX_OPTIMUM:
            wanted = float(getattr(alone.model, name))
            np.testing.assert_allclose(result.parameters[name][place], wanted, rtol=1e-5)


def test_smiles_of_their_own_strikes_keep_their_weights():
    model = BlackScholes(100.0, CURVE, 0.25, 0.01)
    k = jnp.log(jax.vmap(model.forward)(jnp.asarray(EXPIRIES))[:, None] / STRIKES[None, :])
    weights = np.linspace(0.5, 2.0, 15).reshape(3, 5)
    smiles = SmileQuotes(EXPIRIES, k, VOLS, weights)
    for plain, weighed in (
        (ImpliedVolError(), ImpliedVolError(weights=weights)),
        (PriceError(), PriceError(weights=weights)),
    ):
        np.testing.assert_allclose(
            residuals_of(plain, model, smiles),
            residuals_of(weighed, model, surface()),
            rtol=1e-9,
            atol=1e-15,
        )
