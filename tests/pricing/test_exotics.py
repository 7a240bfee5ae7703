"""Touches, lookbacks, forward starts, cliquets, average strikes, variance swaps and spreads, by two methods.

Known values stand in the table `exotics` of `jaxtape validate`.
"""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks import sample_book
from pricing import (
    AverageStrike,
    BlackScholes,
    Book,
    Cliquet,
    ClosedForm,
    FiniteDifference,
    ForwardStart,
    Heston,
    Lookback,
    MonteCarlo,
    PathPayoff,
    Sobol,
    Spread,
    Touch,
    VarianceSwap,
    VolCurve,
    VolSurface,
    ZeroCurve,
    greeks,
    price,
    risk,
)
from pricing.reporting import write_report
from pricing.valuation import unsupported_reason
from tests.helpers import double, sample_market

pytestmark = double

DATES = [0.3, 0.55, 0.8]
CURVE = ZeroCurve([0.0, 0.5, 2.0], [0.02, 0.03, 0.05])
TERMS = BlackScholes(100.0, CURVE, VolCurve([0.5, 2.0], [0.2, 0.25]), 0.02)
PAIR = BlackScholes(
    [22.0, 20.0], 0.1, [0.2, 0.15], [0.06, 0.04], asset_correlation=[[1, 0.5], [0.5, 1]]
)
KEY = jax.random.key(0)
METHOD = MonteCarlo(2**14, 4, 2**13, sampler=Sobol())

CASES = {
    "forward start": (ForwardStart(1.1, 0.25, 1.0, "put"), TERMS),
    "cliquet": (Cliquet(DATES, -0.03, 0.05, notional=100.0, accrued=0.01), TERMS),
    "started cliquet": (Cliquet(DATES, None, 0.05, notional=100.0, initial_spot=98.0), TERMS),
    "average strike": (AverageStrike(DATES, "put", "geometric", 0.98), TERMS),
    "variance swap": (
        VarianceSwap(0.1, 0.8, DATES, 1000.0, initial_spot=97.0, accrued=0.02, past_returns=2.0),
        TERMS,
    ),
    "spread": (Spread(1.0, 0.5), PAIR),
    "spread the other way": (Spread(-3.0, 0.5, "put", [-1.5, 1.5]), PAIR),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_closed_form_is_what_paths_pay(name):
    product, model = CASES[name]
    exact = price(product, model, ClosedForm())
    found = price(product, model, METHOD, key=KEY)
    assert abs(found.value - exact.value) < 4.0 * found.std_error
    assert found.std_error < 5e-3 * max(1.0, abs(exact.value))


@pytest.mark.costly
def test_gamma_of_paths_is_right_where_two_spots_have_a_kink():
    exact = greeks(Spread(1.0, 0.5), PAIR, ClosedForm())
    found = greeks(Spread(1.0, 0.5), PAIR, METHOD, key=KEY)
    for figure in ("delta", "gamma", "vega", "vanna"):
        error = getattr(found.std_errors, figure)
        np.testing.assert_array_less(
            np.abs(getattr(found, figure) - getattr(exact, figure)), 4.0 * error + 1e-12
        )
        assert np.all(error < 0.05 * np.max(np.abs(getattr(exact, figure))))


@pytest.mark.costly
def test_touched_and_never_touched_add_up_to_the_cash():
    """On a curve, by finite differences."""
    model = BlackScholes(100.0, CURVE, 0.25, 0.02)
    both = Touch([120.0, 120.0], 0.8, ["one-touch-at-expiry", "no-touch"], amount=20.0)
    found = price(both, model, FiniteDifference(10, 4, 4))
    bond = 20.0 * model.discount(jnp.asarray(0.8))
    np.testing.assert_allclose(jnp.sum(found.value), bond, rtol=1e-12)


@pytest.mark.parametrize("spot", [120.0, 121.0])
def test_a_spot_on_or_beyond_the_barrier_has_touched_it(spot):
    model = BlackScholes(spot, 0.05, 0.25)
    kinds = ["one-touch", "one-touch-at-expiry", "no-touch"]
    found = price(Touch(jnp.full(3, 120.0), 0.8, kinds, amount=20.0), model).value
    bond = 20.0 * np.exp(-0.05 * 0.8)
    np.testing.assert_allclose(found, [20.0, bond, 0.0], atol=1e-12)


def test_a_lookback_on_dates_is_a_function_of_the_path():
    """Of the same paths as a user's own function of the spots."""
    model = BlackScholes(100.0, 0.02, 0.2)
    product = Lookback(1.0, None, "put", [0.5, 1.0], extreme=104.0)

    def paid(spots):
        return jnp.maximum(jnp.max(spots), 104.0) - spots[-1]

    own = PathPayoff(paid, [0.5, 1.0], has_jumps=False)
    found, expected = (price(each, model, METHOD, key=KEY) for each in (product, own))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)


def test_a_lookback_on_more_and_more_dates_becomes_the_continuous_one():
    """Broadie, Glasserman and Kou (1999): to first order the extreme is .5826 sigma sqrt(dt) away."""
    model, count = BlackScholes(100.0, 0.05, 0.3), 64
    exact = price(Lookback(1.0, None, "put", extreme=110.0), model)
    shift = np.exp(0.5826 * 0.3 * np.sqrt(1.0 / count))
    dated = Lookback(1.0, None, "put", np.arange(1, count + 1) / count, extreme=110.0 / shift)
    found = price(dated, model, MonteCarlo(2**13, 1, 2**12, sampler=Sobol()), key=KEY)
    forward_part = 100.0  # discounted forward: the put pays the extreme less the last spot
    highest = shift * (found.value + forward_part) - forward_part
    assert abs(highest - exact.value) < 4.0 * shift * found.std_error + 0.03


def test_the_mean_variance_of_heston_is_that_of_its_paths():
    model = Heston(100.0, 0.0, 0.04, 1.5, 0.06, 0.6, -0.7)
    exact = price(VarianceSwap(0.0, 1.0), model, ClosedForm())
    np.testing.assert_allclose(exact.value, model.total_variance(jnp.asarray(1.0)), rtol=1e-12)
    days = np.arange(1, 65) / 64.0
    swap = VarianceSwap(0.0, 1.0, days, annualization=64.0, initial_spot=100.0)
    found = price(swap, model, MonteCarlo(2**13, 64, 2**12), key=KEY)
    assert abs(found.value - exact.value) < 4.0 * found.std_error + 0.01 * exact.value


def test_the_variance_of_a_surface_is_that_of_options_of_all_strikes():
    surface = VolSurface(
        [0.5, 2.0], [80.0, 100.0, 125.0], [[0.28, 0.22, 0.2], [0.26, 0.225, 0.205]]
    )
    model = BlackScholes(100.0, 0.03, surface, 0.01)
    found = price(VarianceSwap(0.0, 0.5), model, ClosedForm()).value * np.exp(0.03 * 0.5)
    forward = 100.0 * np.exp(0.02 * 0.5)

    def option(strike):
        vol = np.interp(strike, [80.0, 100.0, 125.0], [0.28, 0.22, 0.2])
        side, std = (1.0 if strike > forward else -1.0), vol * np.sqrt(0.5)
        d1 = np.log(forward / strike) / std + 0.5 * std
        share, cash = norm.cdf(side * d1), norm.cdf(side * (d1 - std))
        return side * (forward * share - strike * cash) / strike**2

    pieces = [20.0, 80.0, 100.0, forward, 125.0, 400.0]
    total = sum(quad(option, a, b)[0] for a, b in itertools.pairwise(pieces))
    np.testing.assert_allclose(found, 2.0 * total / 0.5, rtol=1e-5)


def test_a_variance_of_past_and_future_returns_is_their_mean():
    model = BlackScholes(100.0, 0.0, 0.3)
    swap = VarianceSwap(0.2, 1.0, notional=10.0, accrued=0.5 * 0.2**2, past_returns=126.0)
    expected = 10.0 * ((0.5 * 0.2**2 + 0.3**2) / 1.5 - 0.2**2)
    np.testing.assert_allclose(price(swap, model).value, expected, rtol=1e-12)
    of_vol = dataclasses.replace(swap, measure="volatility")
    expected = 10.0 * (np.sqrt((0.5 * 0.2**2 + 0.3**2) / 1.5) - 0.2)
    np.testing.assert_allclose(price(of_vol, model).value, expected, rtol=1e-12)


def test_an_average_strike_is_proportional_to_the_spot_where_past_logarithms_are_below_zero():
    values = [
        price(
            AverageStrike(DATES, "put", "geometric", 0.98, 2.0 * np.log(0.9 * spot), 2.0),
            BlackScholes(spot, 0.03, 0.2),
        ).value
        for spot in (100.0, 0.8)
    ]
    np.testing.assert_allclose(values[1], 0.008 * values[0], rtol=1e-12)


SURFACE = VolSurface([0.5, 2.0], [80.0, 125.0], [[0.3, 0.2], [0.28, 0.22]])


@pytest.mark.parametrize(
    ("product", "model", "reason"),
    [
        (ForwardStart(1.0, 0.5, 1.0), BlackScholes(100.0, 0.0, SURFACE), "one law for all strikes"),
        (Lookback(1.0, None, "put"), TERMS, "constant rate and volatility"),
        (Cliquet(DATES, floor=0.0), TERMS, "sum with a floor or a cap"),
        (AverageStrike(DATES), TERMS, "arithmetic average"),
        (VarianceSwap(0.2, 0.8, DATES, measure="volatility"), TERMS, "volatility on dates"),
        (Spread(1.0, 0.5), Heston([1.0, 1.0], 0.0, *[[0.1, 0.1]] * 5), "lognormal spots"),
    ],
)
def test_a_closed_form_that_does_not_hold_is_refused_by_name(product, model, reason):
    assert reason in str(unsupported_reason(product, model, ClosedForm()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lookback(1.0, dates=[0.5, 0.9]), "must be the expiry"),
        (lambda: ForwardStart(1.0, 1.0, 0.5), "start must be before the expiry"),
        (lambda: Cliquet([0.5]), "at least two"),
        (lambda: Cliquet([0.5, 1.0], -1.0), "local_floor must be above -1"),
        (lambda: Cliquet([0.5, 1.0], 0.1, 0.05), "local_floor must be below local_cap"),
        (lambda: VarianceSwap(0.2, 1.0, [1.0]), "at least two"),
        (lambda: VarianceSwap(0.2, 1.0, [0.5, 0.9]), "must be the expiry"),
        (lambda: AverageStrike([1.0], past_sum=-1.0, num_past=1.0), "not below 0"),
        (lambda: VarianceSwap(-0.2, 1.0), r"strike must be a number in \[0, 5\]"),
        (lambda: price(Spread(1.0, 1.0, weights=[1.0]), PAIR), "one weight for each asset"),
        (lambda: Touch(100.0, 1.0, "two-touch"), "kind must be one of"),
    ],
)
def test_terms_that_make_no_contract_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


ROWS = (
    {
        "type": "touch",
        "option": None,
        "barrier": 5000.0,
        "touch_kind": "one-touch",
        "touched_from": "below",
    },
    {
        "type": "double_touch",
        "option": None,
        "lower": 3500.0,
        "upper": 5500.0,
        "touch_kind": "no-touch",
    },
    {"type": "lookback", "monitoring_dates": ["2002-12-17", "2003-03-18"], "strike": 4500.0},
    {"type": "variance_swap", "option": None, "vol_strike": 0.3, "notional": 1e4},
    {"type": "forward_start", "moneyness": 1.05, "start": "2002-12-17"},
    {
        "type": "cliquet",
        "option": None,
        "monitoring_dates": ["2002-12-17", "2003-03-18"],
        "local_cap": 0.05,
    },
    {"type": "average_strike", "averaging_dates": ["2002-12-17", "2003-03-18"]},
    {"type": "spread", "underlying": "DAX|SX5E", "spread_strike": 1200.0},
    {"type": "forward", "option": None, "strike": 4500.0},
)


@pytest.mark.costly
def test_a_book_may_hold_one_of_each(tmp_path):
    """With values that `price` gives, a page, and the derivative of the total to a spot by bump and rerun."""
    common = {"underlying": "DAX", "option": "call", "expiry": "2003-03-18"}
    rows = [{"id": row["type"], **common, **row} for row in ROWS]
    for row in rows:
        if row["type"] in ("cliquet", "average_strike"):
            del row["expiry"]
    kinds = (sample_book.NONE_HERE - sample_book.NONE_IN_RATES) | {"variance_swap"}
    book = Book.from_text(json.dumps(rows), "exotics.json")
    assert not book.errors and {trade.type for trade in book.trades} == kinds
    market = sample_market()
    fit = lambda market: {n: BlackScholes.from_market(market, n, vol=0.25) for n in ("DAX", "SX5E")}
    found = risk(book, market, fit)
    assert not found.failed, [trade.status for trade in found.failed]
    write_report(tmp_path / "page.html", found, book, market)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "DAX, strike 4,500, 18 Mar 2003" in page and all(row["id"] in page for row in rows)
    spot = float(market.equities["DAX"].spot)
    quote = next(name for name, x in market.flat_quotes() if x == spot)
    moved = [
        risk(book, market.with_quotes({quote: spot * (1 + h)}), fit, greeks=False).value
        for h in (1e-4, -1e-4)
    ]
    slope = (moved[0] - moved[1]) / (2e-4 * spot)
    assert found.sensitivities[quote] == pytest.approx(slope, rel=1e-5)
