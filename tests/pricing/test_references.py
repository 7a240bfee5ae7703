"""Published values, each to what its source is known to."""

import jax
import numpy as np
import pytest
import QuantLib as ql

import pricing
from pricing import Asian, Bermudan, BlackScholes, European, MonteCarlo, greeks, price
from pricing.sampling import Sobol
from tests import references
from tests.helpers import double

pytestmark = double
ROWS = [
    *references.black_scholes,
    *references.barriers,
    *references.discrete_barriers,
    *references.american,
    *references.asians,
    *references.swaptions,
    *references.heston,
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_published_values(row):
    product = getattr(pricing, row.product)(**row.terms)
    model = getattr(pricing, row.model)(**row.parameters)
    with_greeks = set(row.figures) != {"value"}
    found = (greeks if with_greeks else price)(product, model)
    for name, figure in row.figures.items():
        assert abs(getattr(found, name) - figure) <= row.atol[name], name


@pytest.mark.parametrize(("spot", "vol", "expiry", "value"), references.bermudan_puts)
def test_bermudan_puts(spot, vol, expiry, value):
    terms = references.BERMUDAN_PUT
    dates = np.arange(1.0, terms["dates_a_year"] * expiry + 1.0) / terms["dates_a_year"]
    put = Bermudan(European(terms["strike"], expiry, "put"), dates)
    found = price(put, BlackScholes(spot, terms["rate"], vol)).value
    assert abs(found - value) <= 5e-5  # four decimals are given


@pytest.mark.parametrize(("fixings", "value"), references.levy)
def test_arithmetic_asian_puts(fixings, value):
    """Published by simulation, to 2e-3; QuantLib's simulation, with a standard error of 4e-4, is another."""
    dates = references.LEVY_LENGTH * np.arange(fixings) / (fixings - 1)
    put, model = Asian(dates=dates, **references.LEVY_PUT), BlackScholes(**references.LEVY_MODEL)
    found = price(put, model, MonteCarlo(2**14, sampler=Sobol()), key=jax.random.key(1))
    assert found.std_error <= 1e-5 * model.spot
    assert abs(found.value - value) <= 2e-3
    peer, error = quantlib_asian(dates)
    assert error <= 5e-4
    assert abs(found.value - peer) <= 3.0 * np.hypot(found.std_error, error)


def quantlib_asian(dates: np.ndarray) -> tuple[float, float]:
    """Value and standard error by QuantLib's Monte Carlo, on days of a year of 360."""
    today, count = ql.Date(1, 1, 2020), ql.Actual360()
    ql.Settings.instance().evaluationDate = today
    model = references.LEVY_MODEL
    spot = ql.QuoteHandle(ql.SimpleQuote(model["spot"]))
    curves = (
        ql.YieldTermStructureHandle(ql.FlatForward(today, model[name], count))
        for name in ("dividend_yield", "rate")
    )
    flat = ql.BlackConstantVol(today, ql.NullCalendar(), model["vol"], count)
    process = ql.BlackScholesMertonProcess(spot, *curves, ql.BlackVolTermStructureHandle(flat))
    days = [today + round(360.0 * date) for date in dates]
    payoff = ql.PlainVanillaPayoff(ql.Option.Put, references.LEVY_PUT["strike"])
    option = ql.DiscreteAveragingAsianOption(
        ql.Average.Arithmetic, 0.0, 0, days, payoff, ql.EuropeanExercise(days[-1])
    )
    option.setPricingEngine(
        ql.MCDiscreteArithmeticAPEngine(
            process, "pseudorandom", controlVariate=True, requiredSamples=60_000, seed=7
        )
    )
    return option.NPV(), option.errorEstimate()


def test_no_row_is_lost():
    assert len(references.asians) == 1
    assert len(references.levy) == 2
    assert len(references.barriers) == 13
    assert len(references.discrete_barriers) == 2
    assert len(references.american) == len(references.bermudan_puts) == 6
    assert len(references.swaptions) == 2
    assert len(references.heston) == 14
