"""Curves from quotes: every instrument is repriced, and derivatives reach the quotes; bad ones are refused."""

import datetime as dt
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from pricing import CurveQuotes, Market
from pricing.market import CurveInstruments, Deposits, Futures, ParSwaps, leg
from tests.helpers import double

from .quoted_market import ASOF, DOCUMENT, QUOTED, TOO_HIGH, market, quotes

pytestmark = double

TIMES = np.array([0.002, 0.1, 0.4, 0.83, 1.7, 4.0, 9.3, 25.0, 40.0])


# --- the curve ----------------------------------------------------------------------------------------


def implied(discount, instruments) -> np.ndarray:
    """Return the rates that discount factors mean, by the definitions of the instruments."""
    deposits, futures, swaps = instruments
    of_periods = lambda x: (discount(x.start) / discount(x.end) - 1.0) / x.accruals
    paid = discount(swaps.payment_dates)
    par = (discount(swaps.start) - paid[:, -1]) / np.sum(swaps.accruals * paid, axis=1)
    return np.concatenate([of_periods(deposits), of_periods(futures) + futures.convexity, par])


def test_every_instrument_is_repriced():
    found = quotes()
    deposits, futures, swaps = QUOTED.values()
    in_percent = 100.0 - np.array(futures["prices"])
    wanted = [*deposits["rates"], *(in_percent / 100.0), *swaps["rates"]]
    rates = implied(found.bootstrapped().discount, found.instruments)
    np.testing.assert_allclose(rates, wanted, rtol=0, atol=1e-13)


def test_an_independent_bootstrap_agrees():
    """Instrument by instrument, by a bracketing search on what it is worth."""
    found = quotes()
    deposits, futures, swaps = found.instruments
    worths = [
        lambda P, of=of: P(of[1]) * (1.0 + of[3] * of[2]) - P(of[0])
        for kind in (deposits, futures)
        for of in np.array([kind.start, kind.end, kind.accruals, kind.rates]).T
    ]
    legs = map(np.asarray, (swaps.start, swaps.payment_dates, swaps.accruals, swaps.rates))
    worths += [
        lambda P, s=s, t=t, a=a, r=r: r * a @ P(t) + P(t[-1]) - P(s)
        for s, t, a, r in zip(*legs, strict=True)
    ]
    times, rates = np.asarray(found.times), []
    for worth in worths:

        def value(rate, worth=worth, known=tuple(rates)):
            zero = np.array([*known, rate])
            return worth(lambda t: np.exp(-np.interp(t, times[: zero.size], zero) * t))

        rates.append(brentq(value, -0.2, 0.5, xtol=1e-15))
    np.testing.assert_allclose(found.zero_rates, rates, rtol=0, atol=1e-10)


def test_quantlib_bootstraps_the_same_curve_from_the_same_calendar():
    ql = pytest.importorskip("QuantLib")
    tenors, rates = ["1W", "1M", "3M", "6M"], [0.038, 0.0385, 0.039, 0.0385]
    years, pars = [1, 2, 3, 5, 10, 20], [0.0345, 0.029, 0.0275, 0.026, 0.0265, 0.0262]
    curve = {
        "deposits": {"tenors": tenors, "rates": rates},
        "swaps": {"tenors": [f"{n}Y" for n in years], "rates": pars, "day_count": "ACT/360"},
    }
    text = json.dumps(DOCUMENT | {"curves": {"EUR": curve}})
    ours = Market.from_text(text).curves["EUR"]

    ql.Settings.instance().evaluationDate = ql.Date.from_date(ASOF)
    handle = lambda x: ql.QuoteHandle(ql.SimpleQuote(x))
    deposits = [
        ql.DepositRateHelper(
            *(handle(rate), ql.Period(tenor), 2, ql.TARGET()),
            *(ql.Following if tenor[-1] == "W" else ql.ModifiedFollowing, False, ql.Actual360()),
        )
        for tenor, rate in zip(tenors, rates, strict=True)
    ]
    overnight = ql.Estr()  # compounded daily, its leg is worth P(start) - P(end)
    swaps = [
        ql.OISRateHelper(2, ql.Period(n, ql.Years), handle(rate), overnight)
        for n, rate in zip(years, pars, strict=True)
    ]
    day = ql.Date.from_date(ASOF)
    theirs = ql.PiecewiseLinearZero(day, [*deposits, *swaps], ql.Actual365Fixed())
    pillars = np.array([date - day for date in theirs.dates()][1:]) / 365.0
    np.testing.assert_allclose(ours.times, pillars, rtol=1e-15)
    np.testing.assert_allclose(
        ours.discount(TIMES[:-2]), [theirs.discount(t) for t in TIMES[:-2]], rtol=1e-10
    )


def test_single_precision_goes_as_far_as_it_can():
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), quotes())
    found = single.bootstrapped()
    assert found.zero_rates.dtype == jnp.float32
    np.testing.assert_allclose(found.zero_rates, quotes().zero_rates, atol=2e-6)


@pytest.mark.parametrize("level", [-0.02, 0.0, 0.15, 0.6])
def test_rates_of_any_level_are_found(level):
    legs = [leg(ASOF, ASOF, dt.date(2024 + n, 1, 5), 12) for n in (2, 10, 50)]
    found = CurveQuotes(ParSwaps.of_legs(legs, [level] * 3)).bootstrapped()
    np.testing.assert_allclose(found.zero_rates[0], np.log1p(level), atol=2e-3 * (1 + level))
    assert np.all(np.isfinite(found.zero_rates))


# --- derivatives --------------------------------------------------------------------------------------


def with_values(kinds: CurveQuotes, values) -> CurveQuotes:
    """Return the instruments at other quotes, in the order of the pillars."""
    ends = np.cumsum([kind.quotes.size for kind in kinds.instruments])[:-1]
    pairs = zip(kinds.instruments, jnp.split(values, ends), strict=True)
    return CurveQuotes(*(eqx.tree_at(lambda kind: kind.quotes, *pair) for pair in pairs))


def discounts(values):
    """Return discount factors as a function of the quotes."""
    return with_values(quotes(), values).discount(TIMES)


def central(function, at, steps):
    """Return the derivatives by central differences, one column a number, extrapolated from two steps."""

    def quotient(step):
        moves = np.diag(step)
        return np.stack([(function(at + m) - function(at - m)) for m in moves], -1) / (2 * step)

    return (4.0 * quotient(steps) - quotient(2.0 * steps)) / 3.0


STEPS = np.array([1e-3] * 3 + [0.1] * 3 + [1e-3] * 5)


def test_discount_factors_move_with_quotes_as_differences_say():
    at = np.concatenate(quotes().quotes)
    function = jax.jit(discounts)
    wanted = central(function, at, STEPS)
    scale = np.abs(wanted).max(axis=0)
    for mode in (jax.jacfwd, jax.jacrev):
        found = np.asarray(jax.jit(mode(discounts))(at))
        np.testing.assert_allclose(found / scale, wanted / scale, rtol=1e-7, atol=1e-9)


@pytest.mark.costly
def test_second_derivatives_are_those_of_the_gradient():
    at = np.concatenate(quotes().quotes)
    total = lambda values: jnp.sum(discounts(values))
    gradient = jax.jit(jax.grad(total))
    wanted = central(gradient, at, STEPS)
    for hessian in (jax.hessian(total), jax.jacrev(jax.jacrev(total))):
        np.testing.assert_allclose(jax.jit(hessian)(at), wanted, rtol=1e-6, atol=1e-6)


def test_convexity_adjustments_move_the_curve_as_prices_do():
    gradient = jax.grad(lambda kinds: kinds.discount(0.8))(quotes())
    futures = gradient.instruments[1]
    np.testing.assert_allclose(futures.convexity, 100.0 * futures.prices, rtol=1e-13)
    assert np.all(futures.prices[:2] > 0.0)


@pytest.mark.costly
def test_a_batch_of_quotes_is_a_batch_of_curves():
    at = np.concatenate(quotes().quotes)
    batch = at + np.linspace(-1.0, 1.0, 4)[:, None] * STEPS
    one_by_one = [discounts(values) for values in batch]
    np.testing.assert_allclose(jax.jit(jax.vmap(discounts))(batch), one_by_one, rtol=1e-14)
    slopes = jax.jit(jax.vmap(jax.jacrev(discounts)))(batch)
    np.testing.assert_allclose(slopes[2], jax.jacrev(discounts)(batch[2]), rtol=1e-11, atol=1e-14)


class ZeroBonds(CurveInstruments):
    """Another kind of instrument, from outside: bonds that pay 1 at their ends."""

    end: Any
    prices: Any

    @property
    def quotes(self):
        return self.prices

    @property
    def rates(self):
        return -jnp.log(self.prices) / self.end

    @property
    def ends(self):
        return self.end

    def misses(self, curve, discount):
        return curve.discount(self.end) - self.prices


def test_another_kind_of_instrument_needs_no_more_than_its_ability():
    bonds = ZeroBonds(jnp.array([0.5, 1.0]), jnp.array([0.98, 0.95]))
    swaps = ParSwaps([0.0], [[1.0, 2.0]], [[1.0, 1.0]], [0.04])
    found = CurveQuotes(bonds, swaps)
    paid = found.discount(jnp.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(paid, [0.98, 0.95, (1.0 - 0.04 * 0.95) / 1.04], rtol=1e-13)
    slope = jax.grad(lambda kinds: kinds.discount(2.0))(found).instruments[0].prices
    np.testing.assert_allclose(slope, [0.0, -0.04 / 1.04], atol=1e-13)


# --- what has no curve --------------------------------------------------------------------------------


def test_quotes_that_no_curve_reprices_are_named():
    bad = market(**TOO_HIGH).curves["EUR"]
    with pytest.raises(RuntimeError, match=r"instrument 11, of quote 0.5, after those before it"):
        bad.bootstrapped()
    assert np.all(np.isnan(bad.bootstrapped(throw=False).zero_rates))
    assert np.all(np.isnan(jax.jit(lambda kinds: kinds.discount(1.0))(bad)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CurveQuotes(), "give deposits, futures or swaps"),
        (lambda: Deposits([0.0], [0.5], [0.5], [0.01, 0.02]), "one of each for each instrument"),
        (lambda: Deposits([0.5], [0.5], [0.5], [0.01]), "a later end"),
        (lambda: Deposits([-0.1], [0.5], [0.5], [0.01]), "from today on"),
        (lambda: Deposits([0.0], [0.5], [0.0], [0.01]), "positive accrual"),
        (lambda: Futures([0.1], [0.5], [0.4], [97.0], [0.0, 0.0]), "or one for each"),
        (lambda: ParSwaps([0.0], [1.0], [1.0], [0.02]), "one row for each swap"),
        (
            lambda: CurveQuotes(Deposits([0.0, 0.0], [0.5, 0.25], [0.5, 0.25], [0.01, 0.01])),
            "instrument 2 ends at 0.25 years, not after the one before, which ends at 0.5",
        ),
        (
            lambda: CurveQuotes(
                Deposits([0.0], [1.0], [1.0], [0.01]), ParSwaps([0.0], [[1.0]], [[1.0]], [0.01])
            ),
            "leave out one of two that overlap",
        ),
    ],
)
def test_instruments_that_make_no_curve_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
