"""Models fitted to an equity that pays dividends on known dates: recovery, raw quotes, risk, values."""

import dataclasses
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import QuantLib as ql

from calibration import calibrate_market, fit
from calibration.app.fit_report import as_json
from calibration.app.valuing import methods_of
from calibration.surface_fits import surface_fit
from pricing import (
    Asian,
    BlackScholes,
    Book,
    Dividends,
    European,
    Heston,
    Market,
    MonteCarlo,
    Ssvi,
    VolCurve,
    WithDividends,
    implied_vol,
    price,
    risk,
)
from pricing.formulas.stock import market_above_cash, stock_model
from pricing.market.moves import moved
from pricing.models.with_dividends import with_dividends_of
from tests.helpers import desk_book, desk_market

KEY = jax.random.key(0)
DAYS, STRIKES = [110, 365, 730], [70.0, 80.0, 90.0, 100.0, 110.0, 120.0]
EXPIRIES = np.array(DAYS) / 365.0
PAID = {"days": [90, 250, 480], "cash": [2.0, 1.5, 2.0], "proportions": [0.0, 0.01, 0.0]}
PAYS = Dividends(np.array(PAID["days"]) / 365.0, PAID["cash"], PAID["proportions"])
NAMES = tuple(Heston.free_parameters)


def market(vols, dividends=PAID) -> Market:
    quotes = {"days": DAYS, "strikes": STRIKES, "vols_by_expiry": np.asarray(vols).tolist()}
    equity = {"curve": "EUR", "spot": 100.0, "dividend_yield": 0.01, "implied_vols": quotes}
    if dividends:
        equity["dividends"] = dividends
    curve = {"days": [110, 730], "zero_rates": [0.03, 0.035]}
    document = {"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": curve}}
    return Market.from_text(json.dumps(document | {"equities": {"S": equity}}))


def skewed(level=0.0):
    k = np.array(STRIKES) / 100.0 - 1.0
    return np.stack([0.3 + level - 0.02 * row - 0.1 * k + 0.15 * k**2 for row in range(3)])


def raw_vols(model: WithDividends) -> np.ndarray:
    """Return the implied vols of the raw spot at which options have the model's prices."""
    rows = []
    for expiry in EXPIRIES:
        options = European(STRIKES, expiry, "put")
        forward, discount = (float(f(jnp.asarray(expiry))) for f in (model.forward, model.discount))
        raw = BlackScholes(forward * discount, -np.log(discount) / expiry, 0.2)
        rows.append(implied_vol(price(options, model).value, options, raw))
    return np.stack(rows)


@functools.cache
def bare() -> Market:
    return market(skewed(), dividends=None)


@functools.cache
def models_of_skew():
    """Return the market of a skew, and Heston fitted to it, as `jaxtape risk` does."""
    return calibrate_market(market(skewed()))


@pytest.mark.costly
def test_parameters_of_the_part_above_the_dividends_are_recovered():
    truth = Heston.from_market(
        bare(),
        "S",
        **dict(zip(NAMES, (0.06, 1.5, 0.07, 0.5, -0.6), strict=True)),
    )
    found = calibrate_market(market(raw_vols(WithDividends(truth, PAYS))))
    assert not found.failed
    fitted = found.calibrations["S"].model
    for name in NAMES:
        assert np.isclose(getattr(fitted, name), getattr(truth, name), rtol=1e-5), name


@pytest.mark.costly
def test_any_model_that_is_fitted_has_dividends():
    """SSVI, whose vols are its own, by the public `fit`."""
    times = VolCurve(EXPIRIES, [0.22, 0.23, 0.24])
    truth = Ssvi.from_market(bare(), "S", at_the_money=times, rho=-0.6, curvature=0.6, power=0.4)
    now = market(raw_vols(WithDividends(truth, PAYS)))
    start = Ssvi.starting_on(bare(), "S")
    found = fit(start)(now)["S"]
    assert isinstance(found, WithDividends)
    assert float(found.spot) == 100.0
    for name in ("rho", "curvature", "power"):
        assert np.isclose(getattr(found.base, name), getattr(truth, name), rtol=1e-5), name
    np.testing.assert_allclose(found.base.at_the_money.vols, times.vols, rtol=1e-6)


@pytest.mark.costly
def test_raw_quotes_are_repriced_as_well_as_without_dividends():
    models = models_of_skew()
    fitted = models.fit(models.market)["S"]
    assert type(fitted) is WithDividends
    errors = raw_vols(fitted) - skewed()
    without = calibrate_market(bare())
    plain = raw_vols(without.fit(without.market)["S"])
    assert np.sqrt(np.mean(errors**2)) < 1.1 * np.sqrt(np.mean((plain - skewed()) ** 2))
    # residuals are those of raw vols, to first order
    residuals = models.calibrations["S"].residuals
    np.testing.assert_allclose(residuals, errors, atol=0.02 * np.abs(errors).max())


@pytest.mark.costly
def test_reports_show_vols_of_the_raw_spot():
    models = models_of_skew()
    found = surface_fit(models.market, "S", models.calibrations["S"])
    of_model = raw_vols(models.fit(models.market)["S"])
    places = np.searchsorted(found.curve_strikes, STRIKES)
    np.testing.assert_allclose(found.curve_strikes[places], STRIKES)
    np.testing.assert_allclose(found.curve_vols[:, places], of_model, atol=1e-7)
    written = as_json(models.market, "S", models.calibrations["S"])
    assert list(written["residuals"]) == [x for x, _ in models.market.flat_quotes() if "LNVOL" in x]


@pytest.mark.costly
def test_quotes_that_no_vol_above_the_dividends_has_are_missing():
    far = market(skewed(), {"days": [800], "cash": [75.0]})
    slopes = jax.jacfwd(lambda m: market_above_cash(m).equities["S"].surface)(far)
    quotes = market_above_cash(far).equities["S"].surface
    is_there = ~np.isnan(quotes.vols)
    # of the strike 80 two years on, 1 above the dividends, the put would cost more than that
    assert np.argwhere(~is_there).tolist() == [[0, 0], [1, 0], [2, 0], [2, 1]]
    assert quotes.weights is not None
    np.testing.assert_array_equal(quotes.weights > 0.0, is_there)
    moves = jax.tree.leaves(slopes.vols), jax.tree.leaves(slopes.weights)
    assert all(np.all(np.isfinite(leaf)) for leaf in (*moves[0], *moves[1]))


BOOK = Book.from_text(
    "id,type,underlying,option,strike,expiry,averaging_dates\n"
    "E,european,S,call,100,2003-04-01,\nP,european,S,put,80,2002-12-01,\n"
    "A,asian,S,call,100,,2002-12-02|2003-04-01\n"
)


@pytest.mark.costly
def test_risk_reaches_every_quote_through_the_fit():
    models = models_of_skew()
    now, quotes = models.market, dict(models.market.flat_quotes())
    value = functools.partial(risk, BOOK, fit=models.fit, methods=methods_of(2**8), key=KEY)
    found = value(now)
    methods = [(trade.status, trade.method) for trade in found.trades]
    assert methods == [("ok", "Fourier"), ("ok", "Fourier"), ("ok", "MonteCarlo")]
    kinds = (
        "LNVOL",
        "EQUITY/PRICE",
        "EQUITY_DIVIDEND",
        "DIVIDEND/CASH",
        "DIVIDEND/PROPORTION",
        "ZERO",
    )
    for kind in kinds:
        quote = [x for x in quotes if kind in x and quotes[x] > 0.0][-1 if kind == "ZERO" else 0]
        step = 1e-4 if kind == "EQUITY/PRICE" else 1e-6
        up, down = (
            value(moved(now, {quote: quotes[quote] + h})[0], greeks=False).value
            for h in (step, -step)
        )
        slope = found.sensitivities[quote]
        assert np.isclose(slope, (up - down) / (2.0 * step), rtol=1e-5, atol=1e-4), quote


def quantlib_heston(model: Heston, strike: float, expiry: float) -> float:
    """Return the call under QuantLib's Heston; all rates are flat."""
    today, count = ql.Date(5, 7, 2002), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    flat = lambda rate: ql.YieldTermStructureHandle(ql.FlatForward(today, float(rate), count))
    process = ql.HestonProcess(
        *(flat(model.rate), flat(model.dividend_yield)),
        ql.QuoteHandle(ql.SimpleQuote(float(model.spot))),
        *(float(getattr(model, name)) for name in NAMES),
    )
    day = today + round(expiry * 365)
    call = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Call, strike), ql.EuropeanExercise(day))
    call.setPricingEngine(ql.AnalyticHestonEngine(ql.HestonModel(process), 192))
    return call.NPV()


FLAT = WithDividends(
    Heston(100.0, 0.03, 0.06, 1.5, 0.07, 0.5, -0.6, 0.01),
    Dividends(np.array([90, 250, 480]) / 365.0, cash=[2.0, 1.5, 2.0]),
)


def test_european_options_are_those_of_quantlib_above_the_dividends():
    stock = stock_model(FLAT)
    for strike, days in ((80.0, 110), (100.0, 365), (120.0, 730)):
        expiry = days / 365.0
        above = strike - float(FLAT.cash(jnp.asarray(expiry)))
        expected = quantlib_heston(stock, above, expiry)
        assert np.isclose(price(European(strike, expiry), FLAT).value, expected, atol=2e-7)


def test_trades_of_the_sample_on_a_payer_are_those_of_quantlib():
    """Forwards and dividends are computed here; a digital is the difference of two calls."""
    now, name = desk_market(), "RHEIN"
    equity: Any = now.equities[name]
    mine = dataclasses.replace(now, equities={name: equity}, fx={}, correlations={})
    rows = tuple(row for row in desk_book().rows if row.raw.values["underlying"] == name)
    numbers = 0.25, 15.0, 0.1, 3.3, -0.5
    fitted = Heston(1.0, 0.0, *numbers)
    model_of = lambda market: {name: with_dividends_of(market, name, fitted)}
    found = risk(dataclasses.replace(desk_book(), rows=rows), mine, model_of)
    when = np.array([133, 315, 679]) / 365.0  # 15 November, 16 May and 14 May
    cash, shares = np.array([0.45, 1.1, 0.7]), np.array([0.001, 0.004, 0.012])
    pillars, rates = (np.asarray(getattr(now.curves["EUR"], x)) for x in ("times", "zero_rates"))
    discount = lambda t: np.exp(-np.interp(t, pillars, rates) * t)
    kept = lambda t: np.prod(np.where(when <= t, 1.0 - shares, 1.0))
    growth = lambda t: kept(t) / discount(t)
    owed = lambda t: (
        growth(t) * sum(paid / growth(day) for paid, day in zip(cash, when, strict=True) if day > t)
    )
    stock = 62.5 - owed(0.0)

    def call(strike, t):
        rate, lost = -np.log(discount(t)) / t, -np.log(kept(t)) / t
        of_stock = Heston(stock, rate, *numbers, dividend_yield=lost)
        return quantlib_heston(of_stock, strike - owed(t), t)

    def expected(trade):
        t, strike = now.time(trade.expiry), trade.strike
        if trade.type == "digital":
            step = 1e-3
            above = (call(strike - step, t) - call(strike + step, t)) / (2.0 * step)
            is_call = trade.option == "call"
            return trade.quantity * trade.amount * (above if is_call else discount(t) - above)
        forward = stock * growth(t) + owed(t)
        parity = 0.0 if trade.option == "call" else discount(t) * (forward - strike)
        return trade.quantity * (call(strike, t) - parity)

    assert [trade.status for trade in found.trades] == ["ok"] * 16
    own = dataclasses.replace(desk_book(), rows=rows).checked(mine)
    for row, figures in zip(own.rows, found.trades, strict=True):
        error = 1e-5 if row.trade.type == "digital" else 1e-7
        assert np.isclose(figures.position.value, expected(row.trade), rtol=error), row.id


@pytest.mark.costly
def test_an_average_is_that_of_a_simulation_of_the_part_above_the_dividends():
    dates, steps, paths = np.array([0.25, 0.5, 0.75, 1.0]), 200, 100_000
    found = price(Asian(100.0, dates), FLAT, MonteCarlo(2**14), key=KEY)
    base, rng = FLAT.base, np.random.default_rng(2)
    v0, speed, mean, vol_of_vol, rho = (float(getattr(base, name)) for name in NAMES)
    dt = 1.0 / steps
    variance, log_x = np.full(paths, v0), np.zeros(paths)
    spots = []
    for step in range(1, steps + 1):
        z, w = rng.standard_normal((2, paths))
        positive = np.maximum(variance, 0.0)
        log_x += (0.02 - 0.5 * positive) * dt
        log_x += np.sqrt(positive * dt) * (rho * z + np.sqrt(1.0 - rho**2) * w)
        variance += speed * (mean - positive) * dt + vol_of_vol * np.sqrt(positive * dt) * z
        if step % (steps // 4) == 0:
            x = float(FLAT.stock.spot) * np.exp(log_x)
            spots.append(x + float(FLAT.cash(jnp.asarray(step * dt))))
    samples = np.exp(-0.03) * np.maximum(np.mean(spots, axis=0) - 100.0, 0.0)
    error = np.hypot(samples.std() / np.sqrt(paths), found.std_error)
    assert abs(found.value - samples.mean()) < 4.0 * error + 0.02  # the bias of Euler's steps


def test_single_precision_finds_the_same_quotes():
    find = lambda: market_above_cash(market(skewed())).equities["S"].surface
    exact = find()
    with jax.enable_x64(False):
        narrow = find()
    assert narrow.vols.dtype == jnp.float32
    np.testing.assert_allclose(narrow.vols, exact.vols, rtol=2e-4)
    np.testing.assert_allclose(narrow.weights, exact.weights, rtol=2e-3)
