"""American options as extrapolated Bermudan ones: constants, term structures, and what is exercised now."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    American,
    BlackScholes,
    European,
    IntegralEquation,
    Quadrature,
    VolCurve,
    ZeroCurve,
    greeks,
    price,
)
from pricing.valuation import select_method
from tests.helpers import curve, double, first_difference, surface
from tests.pricing.test_american import STRIKE, ordinary

pytestmark = double
SPOT = 100.0
STRIKES = [40.0, 100.0, 160.0]
PUTS_AND_CALLS = American(2 * STRIKES, 0.8, 3 * ["put"] + 3 * ["call"])  # one shape, so one program
DAYS = np.array([0, 146, 730])
YEARS = DAYS / 365.0


def model(zero_rates, vols, dividend_yield: float) -> BlackScholes:
    """On a curve and a term structure of vols; they may be flat."""
    return BlackScholes(
        SPOT, ZeroCurve(YEARS, zero_rates), VolCurve(YEARS[1:], vols), dividend_yield
    )


STEEP = model([0.01, 0.02, 0.06], [0.2, 0.26], 0.03)
FLAT = model(3 * [0.05], 2 * [0.25], 0.04)


@pytest.fixture(scope="module")
def on_flat_terms():
    return greeks(PUTS_AND_CALLS, FLAT, Quadrature())


@pytest.mark.costly
def test_constants_give_what_the_integral_equation_gives(on_flat_terms):
    """Of the strike: 1e-5 for the value, 1e-4 for first derivatives, rho for 10 % of rates."""
    constants = BlackScholes(SPOT, 0.05, 0.25, 0.04)
    found = on_flat_terms
    exact = greeks(PUTS_AND_CALLS, constants, IntegralEquation())
    units = {"value": 1e-5, "vega": 1e-4, "theta": 1e-4, "rho": 1e-3}
    units = {name: size * SPOT for name, size in units.items()} | {"delta": 1e-4, "gamma": 1e-5}
    for name, size in units.items():
        assert np.max(np.abs(getattr(found, name) - getattr(exact, name))) < size, name


@pytest.mark.costly
def test_what_is_exercised_now_is_intrinsic(on_flat_terms):
    found = on_flat_terms
    for which, delta in ((2, -1.0), (3, 1.0)):
        assert found.value[which] == 60.0
        assert found.delta[which] == delta
        for name in ("gamma", "vega", "theta", "rho", "vanna", "volga"):
            assert getattr(found, name)[which] == 0.0


@pytest.mark.slow
def test_usual_terms():
    """Of the strike: the largest error, and what nine of ten contracts are below."""
    contracts = ordinary(100, 7)

    def value_and_delta(row, method):
        spot, strike, expiry, rate, dividend_yield, vol, side = row
        product = American(strike, expiry, side.astype(jnp.int8))

        def value(spot):
            model = BlackScholes(spot, rate, vol, dividend_yield)
            return method.samples(product, model)

        return jnp.stack(jax.value_and_grad(value)(spot))

    def of(method):
        each = jax.jit(lambda rows: jax.lax.map(lambda row: value_and_delta(row, method), rows))
        return np.asarray(each(jnp.asarray(contracts)))

    error = np.abs(of(Quadrature()) - of(IntegralEquation())) / [STRIKE, 1.0]
    assert np.all(np.max(error, axis=0) < [1.4e-5, 3e-4])
    assert np.all(np.quantile(error, 0.9, axis=0) < [4e-6, 1e-5])


@pytest.mark.slow
def test_twice_the_dates_are_nearer():
    exact = price(PUTS_AND_CALLS, BlackScholes(SPOT, 0.05, 0.25, 0.04), IntegralEquation()).value
    found = (price(PUTS_AND_CALLS, FLAT, Quadrature(num_dates=n)).value for n in (16, 32, 64))
    first, second, third = (np.max(np.abs(value - exact)) for value in found)
    assert second < first / 2.0
    assert third < second / 2.0


@pytest.mark.parametrize(
    ("rate", "vol", "method"),
    [
        (0.05, 0.2, IntegralEquation),
        (0.05, surface(), Quadrature),
        (curve(), 0.2, Quadrature),
        (0.05, VolCurve([0.5, 2.0], [0.2, 0.25]), Quadrature),
        (curve(), surface(), Quadrature),
    ],
    ids=["constants", "surface", "curve", "vol curve", "curve and surface"],
)
def test_the_default_is_exact_for_the_model(rate, vol, method):
    found = select_method(American(105.0, 0.8, "put"), BlackScholes(SPOT, rate, vol))
    assert isinstance(found, method)


def test_term_structures_are_refused_where_constants_are_needed():
    with pytest.raises(TypeError, match="no constant rate and volatility; would work: Quadrature"):
        price(PUTS_AND_CALLS, STEEP, IntegralEquation())


def quantlib(model: BlackScholes, days: int):
    """(values, deltas, gammas) of the contracts by FdBlackScholesVanillaEngine, extrapolated from two grids."""
    ql = pytest.importorskip("QuantLib")
    today, count = ql.Date(1, 1, 2020), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    dates = [today + int(day) for day in DAYS]
    rates = ql.ZeroCurve(dates, list(map(float, model.rate.zero_rates)), count)
    vols = ql.BlackVarianceCurve(today, dates[1:], list(map(float, model.vol.vols)), count)
    process = ql.BlackScholesMertonProcess(
        ql.QuoteHandle(ql.SimpleQuote(float(model.spot))),
        ql.YieldTermStructureHandle(ql.FlatForward(today, float(model.dividend_yield), count)),
        ql.YieldTermStructureHandle(rates),
        ql.BlackVolTermStructureHandle(vols),
    )

    def of(kind, strike, steps):
        payoff = ql.PlainVanillaPayoff(kind, strike)
        option = ql.VanillaOption(payoff, ql.AmericanExercise(today, today + days))
        option.setPricingEngine(ql.FdBlackScholesVanillaEngine(process, steps, steps, 2))
        return np.array([option.NPV(), option.delta(), option.gamma()])

    kinds = ql.Option.Put, ql.Option.Call
    return np.array([2.0 * of(k, x, 800) - of(k, x, 400) for k in kinds for x in STRIKES]).T


@pytest.mark.costly
def test_term_structures_give_what_quantlib_gives():
    """Values to 2e-5 of the spot."""
    values, deltas, gammas = quantlib(STEEP, 292)
    found = greeks(PUTS_AND_CALLS, STEEP, Quadrature())
    np.testing.assert_allclose(found.value, values, rtol=0.0, atol=2e-5 * SPOT)
    np.testing.assert_allclose(found.delta, deltas, rtol=0.0, atol=1e-4)
    np.testing.assert_allclose(found.gamma, gammas, rtol=0.0, atol=1e-3 / SPOT)


@pytest.mark.costly
def test_the_gradient_to_every_pillar_is_that_of_central_differences():
    def value(zero_rates, vols):
        terms = model(zero_rates, vols, 0.03)
        return price(American(105.0, 0.8, "put"), terms, Quadrature(num_dates=8)).value

    at, pillars = jax.jit(value), (STEEP.rate.zero_rates, STEEP.vol.vols)
    slopes = jax.jit(jax.grad(value, (0, 1)))(*pillars)
    for which, slope in enumerate(slopes):
        for i in range(slope.size):

            def bumped(step, which=which, i=i):
                moved = [x.at[i].add(step) if j == which else x for j, x in enumerate(pillars)]
                return float(at(*moved))

            assert abs(slope[i] - first_difference(bumped, 1e-4)) < 1e-6 * (1.0 + abs(slope[i]))


@pytest.mark.costly
def test_a_call_without_dividends_is_european():
    steady = model([0.01, 0.02, 0.06], [0.2, 0.26], 0.0)
    found = price(PUTS_AND_CALLS, steady).value[3:]
    np.testing.assert_allclose(found, price(European(STRIKES, 0.8), steady).value, rtol=1e-9)


@pytest.mark.slow
def test_steps_too_short_for_the_nodes_are_prepared():
    """Hardly any variance is left in the last steps."""
    falling = model(3 * [0.05], [0.4, 0.19], 0.0)
    found = price(PUTS_AND_CALLS, falling, Quadrature()).value[3:]
    np.testing.assert_allclose(found, price(European(STRIKES, 0.8), falling).value, rtol=1e-9)


@pytest.mark.parametrize("count", [0, 2, 30])
def test_a_number_of_dates_that_has_no_fourth_is_refused(count):
    with pytest.raises(ValueError, match=f"num_dates must be a multiple of 4, got {count}"):
        Quadrature(num_dates=count)
