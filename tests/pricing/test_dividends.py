"""Dividends of known dates: models, products and methods under them."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import QuantLib as ql

from pricing import (
    American,
    Asian,
    Autocallable,
    AverageForward,
    Barrier,
    Bermudan,
    BlackScholes,
    ClosedForm,
    Digital,
    Dividends,
    European,
    FiniteDifference,
    FixedPayments,
    Heston,
    LocalVol,
    MonteCarlo,
    Quadrature,
    Touch,
    VolCurve,
    VolSurface,
    WithDividends,
    ZeroCurve,
    bounds,
    greeks,
    price,
    simulate,
)
from pricing.fields import rolled
from pricing.methods.under_dividends import for_model
from pricing.products import AverageClaim
from pricing.products.above_cash import above_cash

BASE = BlackScholes(100.0, 0.05, 0.25, 0.01)
DAYS, CASH = [90, 270], [2.0, 3.0]
TIMES = np.array(DAYS) / 365.0
PAYS = Dividends(TIMES, cash=CASH)
ESCROWED, SPOT = WithDividends(BASE, PAYS), WithDividends(BASE, PAYS, "spot")
GRID = FiniteDifference()
KEY = jax.random.key(0)
SURFACE = VolSurface(
    [0.2, 0.7, 1.5],
    [80.0, 100.0, 120.0],
    [[0.28, 0.25, 0.24], [0.27, 0.25, 0.24], [0.26, 0.25, 0.245]],
)


def growth(t):
    return np.exp(0.04 * t)


# --- the model ------------------------------------------------------------------------------------------------


def test_the_forward_falls_by_each_dividend():
    for t in (0.1, TIMES[0], 0.5, 1.0):
        paid = sum(a * growth(t - s) for s, a in zip(TIMES, CASH, strict=True) if s <= t)
        assert np.isclose(ESCROWED.forward(t), 100.0 * growth(t) - paid, rtol=1e-13)


def test_proportional_dividends_lower_the_forward_by_their_share():
    both = Dividends(TIMES, cash=CASH, proportions=[0.01, 0.02])
    model = WithDividends(BASE, both)
    first, second = TIMES
    at_first = 100.0 * growth(first) * 0.99 - 2.0
    at_second = at_first * growth(second - first) * 0.98 - 3.0
    assert np.isclose(model.forward(1.0), at_second * growth(1.0 - second), rtol=1e-13)
    shares = WithDividends(BASE, Dividends(TIMES, proportions=[0.01, 0.02]))
    plain = dataclasses.replace(BASE, spot=100.0 * 0.99 * 0.98)
    call = European(100.0, 1.0)
    exact, grid = price(call, plain).value, valued(call, GRID)(shares, jnp.zeros(()))
    assert np.isclose(price(call, shares).value, exact, rtol=1e-13)
    assert np.isclose(grid, exact, rtol=1e-4)


def test_a_dividend_of_the_past_or_after_expiry_of_the_grid_moves_nothing():
    past = WithDividends(BASE, Dividends([-0.1, 0.0], cash=[5.0, 5.0]))
    call = European(100.0, 1.0)
    exact, grid = price(call, BASE).value, valued(call, GRID)(past, jnp.zeros(()))
    assert np.isclose(price(call, past).value, exact, rtol=1e-13)
    assert np.isclose(grid, exact, rtol=1e-4)


@pytest.mark.costly
def test_the_grid_of_a_long_option_stays_fine_with_many_later_dividends():
    many = np.concatenate([[0.2], 5.5 + np.arange(40) / 4.0])
    later = Dividends(many, cash=np.where(many < 1.0, 2.0, 0.0))
    put = American(100.0, 5.0, "put")
    few, found = (
        price(put, WithDividends(BASE, d)).value for d in (Dividends([0.2], [2.0]), later)
    )
    assert np.isclose(found, few, atol=1e-3)


@pytest.mark.parametrize("dynamics", ["escrowed", "spot"])
@pytest.mark.parametrize("product", [European(100.0, 1.0, "put"), American(100.0, 1.0, "put")])
def test_a_spot_that_falls_below_its_dividends_has_no_value(product, dynamics):
    @jax.jit
    def value(spot):
        model = WithDividends(dataclasses.replace(BASE, spot=spot), PAYS, dynamics)
        return price(product, model, throw=False).value

    assert np.isnan(value(jnp.asarray(4.0)))
    assert np.isfinite(value(jnp.asarray(40.0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dividends([0.5]), "give cash or proportions"),
        (lambda: Dividends([0.5], cash=[1.0, 2.0]), "one number for each time"),
        (lambda: Dividends([0.5, 0.2], cash=[1.0, 2.0]), "must not decrease"),
        (lambda: Dividends([0.5], cash=[-1.0]), "not below 0"),
        (lambda: WithDividends(BASE, Dividends([0.5], cash=[200.0])), "the spot is 100"),
        (lambda: WithDividends(BASE, PAYS, "frog"), "one of 'escrowed', 'spot'"),
    ],
)
def test_impossible_dividends_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WithDividends(BASE, [1.0]), "dividends is a list"),
        (lambda: WithDividends(100.0, PAYS), "base is 100"),
        (lambda: WithDividends(LocalVol(100.0, 0.03, SURFACE), PAYS), "LocalVol reads vols"),
        (lambda: WithDividends(BlackScholes(100.0, 0.03, SURFACE), PAYS, "spot"), "spot dynamics"),
        (lambda: WithDividends(BlackScholes([100.0, 90.0], 0.03, 0.2), PAYS), "one asset"),
    ],
)
def test_models_that_cannot_pay_dividends_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("product", "model", "method", "message"),
    [
        (Asian(100.0, [0.5, 1.0], average="geometric"), ESCROWED, None, "cannot be written"),
        (Asian(100.0, [0.5, 1.0]), SPOT, None, "spot dynamics"),
        (Barrier(100.0, 1.0, 80.0), ESCROWED, ClosedForm(), "cannot be written"),
        (
            Barrier(100.0, 1.0, 80.0),
            WithDividends(Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5), PAYS),
            None,
            "cannot be written",
        ),
    ],
)
def test_what_no_method_prices_is_named(product, model, method, message):
    with pytest.raises(TypeError, match=message):
        price(product, model, method, key=KEY)


def test_verbs_that_read_other_models_refuse():
    with pytest.raises(TypeError, match="cannot simulate"):
        simulate(ESCROWED, [0.5], key=KEY)
    with pytest.raises(TypeError, match="LeastSquares cannot price"):
        bounds(American(100.0, 1.0), ESCROWED, key=KEY)


# --- values ---------------------------------------------------------------------------------------------------


def quantlib():
    today, count = ql.Date(5, 7, 2002), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    flat = lambda rate: ql.YieldTermStructureHandle(ql.FlatForward(today, rate, count))
    vol = ql.BlackVolTermStructureHandle(ql.BlackConstantVol(today, ql.NullCalendar(), 0.25, count))
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    process = ql.BlackScholesMertonProcess(spot, flat(0.01), flat(0.05), vol)
    return today, process, ql.DividendVector([today + day for day in DAYS], CASH)


def test_quantlib_finds_the_same_european_options():
    today, process, dividends = quantlib()
    engine = ql.AnalyticDividendEuropeanEngine(process, dividends)
    for strike in (80.0, 100.0, 120.0):
        for word, kind in (("call", ql.Option.Call), ("put", ql.Option.Put)):
            payoff = ql.PlainVanillaPayoff(kind, strike)
            option = ql.VanillaOption(payoff, ql.EuropeanExercise(today + 365))
            option.setPricingEngine(engine)
            found = price(European(strike, 1.0, word), ESCROWED).value
            assert np.isclose(found, option.NPV(), rtol=1e-12)


@pytest.mark.costly
def test_the_grid_finds_the_closed_form():
    strikes = jnp.array([80.0, 100.0, 120.0])
    options = European(strikes, 1.0, "put")
    exact, found = (price(options, ESCROWED, m).value for m in (ClosedForm(), GRID))
    np.testing.assert_allclose(found, exact, atol=5e-4)


@pytest.mark.costly
def test_rights_on_dates_agree_between_quadrature_and_the_grid():
    right = Bermudan(European(100.0, 1.0, "call"), [TIMES[0] - 1e-3, 0.5, TIMES[1] - 1e-3, 1.0])
    exact, found = (price(right, ESCROWED, m).value for m in (Quadrature(), GRID))
    assert np.isclose(found, exact, atol=1e-3)
    at_ex_date = Bermudan(
        European(100.0, 1.0, "call"), [*TIMES, 1.0]
    )  # exercised without the dividend
    exact, found = (price(at_ex_date, ESCROWED, m).value for m in (Quadrature(), GRID))
    assert np.isclose(found, exact, atol=1e-3)


def test_a_call_is_exercised_on_the_eve_of_a_dividend():
    free = dataclasses.replace(BASE, dividend_yield=0.0)
    model = WithDividends(free, PAYS)
    eves = Bermudan(European(90.0, 1.0, "call"), [*(TIMES - 1e-6), 1.0])
    exact = price(eves, model, Quadrature()).value
    found = price(American(90.0, 1.0, "call"), model).value
    assert np.isclose(found, exact, atol=1e-3)
    assert found > price(European(90.0, 1.0, "call"), model).value + 0.1


@pytest.mark.costly
def test_barriers_on_dates_agree_between_quadrature_and_paths():
    paths = MonteCarlo(2**14)
    dates = np.arange(1, 13) / 12.0
    for product in (
        Barrier(100.0, 1.0, 85.0, "down-and-out", "call", dates=dates),
        Autocallable([0.5, 1.0], [5.0, 10.0], 105.0, 80.0, 100.0),
    ):
        exact = price(product, ESCROWED, Quadrature()).value
        found = price(product, ESCROWED, paths, key=KEY)
        assert abs(found.value - exact) < 4.0 * found.std_error + 1e-9


@pytest.mark.costly
def test_a_barrier_at_all_times_is_the_limit_of_dates():
    """Broadie, Glasserman and Kou (1997): dates h apart are a barrier moved by exp(+-0.5826 sigma sqrt(h))."""
    out = price(Barrier(100.0, 1.0, 85.0, "down-and-out", "call"), ESCROWED).value
    count = 250
    dates = np.arange(1, count + 1) / count
    moved = 85.0 * np.exp(0.5826 * 0.25 * np.sqrt(1.0 / count))
    near = price(Barrier(100.0, 1.0, moved, "down-and-out", "call", dates=dates), ESCROWED).value
    assert np.isclose(out, near, rtol=2e-3)
    into = price(Barrier(100.0, 1.0, 85.0, "down-and-in", "call"), ESCROWED).value
    vanilla = price(European(100.0, 1.0), ESCROWED).value
    assert np.isclose(into + out, vanilla, atol=1e-6)


def test_an_average_agrees_with_a_simulation():
    dates = np.array([0.2, 0.5, 0.8, 1.0])
    found = price(Asian(100.0, dates), ESCROWED, key=KEY)
    rng = np.random.default_rng(1)
    steps = np.diff(dates, prepend=0.0)
    normals = rng.standard_normal((400_000, dates.size))
    log_x = np.cumsum(0.25 * np.sqrt(steps) * normals - 0.5 * 0.25**2 * steps, axis=1)
    owed = np.array([ESCROWED.cash(jnp.asarray(t)) for t in dates])
    start = 100.0 - float(ESCROWED.cash(jnp.asarray(0.0)))
    mean = np.mean(start * growth(dates) * np.exp(log_x) + owed, axis=1)
    samples = np.exp(-0.05) * np.maximum(mean - 100.0, 0.0)
    error = samples.std() / np.sqrt(samples.size)
    assert abs(found.value - samples.mean()) < 4.0 * np.hypot(error, found.std_error)


@pytest.mark.parametrize("dates", [[0.5], [0.4, 0.5]], ids=["one date", "two dates"])
def test_an_average_with_a_strike_below_the_cash_is_certain(dates):
    """Late in an average, fixings may leave a strike that b alone exceeds: it was NaN."""
    weights = [1.0 / 12.0] * len(dates)
    strike = 0.1 * sum(weights)
    of_side = lambda side: AverageClaim(strike, dates, side, weights)
    for model in (ESCROWED, WithDividends(dataclasses.replace(BASE, vol=SURFACE), PAYS)):
        call, put = (price(of_side(side), model, key=KEY, throw=False) for side in (1.0, -1.0))
        forward = sum(w * model.forward(t) for w, t in zip(weights, dates, strict=True))
        worth = np.exp(-0.05 * 0.5) * (forward - strike)
        assert abs(call.value - worth) <= 4.0 * call.std_error + 1e-9
        assert abs(put.value) <= 1e-9


def test_notes_on_shared_dates_are_written_above_the_cash_as_each_alone():
    def note(protection):
        return Autocallable([0.2, 0.4, 0.9], [0.02, 0.04, 0.06], 105.0, protection, 100.0)

    levels = [60.0, 80.0]
    batch = above_cash(note(levels), ESCROWED.cash)
    for place, level in enumerate(levels):
        alone = above_cash(note(level), ESCROWED.cash)
        chex.assert_trees_all_close(
            jax.tree.map(lambda x, place=place: x[place], batch), alone, rtol=1e-14
        )


def test_an_average_with_a_strike_above_the_cash_adds_nothing():
    """Not even rounding, which may be below 0."""
    strikes = np.random.default_rng(3).uniform(5.0, 200.0, 500)
    claims = AverageClaim(strikes, [0.2, 0.4, 0.9], 1.0, [0.3, 0.4, 0.3])
    found = above_cash(claims, ESCROWED.cash)
    np.testing.assert_array_equal(found.added, 0.0)


@pytest.mark.parametrize(
    "model",
    [ESCROWED, dataclasses.replace(ESCROWED, base=BlackScholes(100.0, 0.05, SURFACE, 0.01))],
)
def test_what_the_past_leaves_of_a_trade_has_a_value(model):
    """A payment to settle, and an average whose fixings exceed its strike."""
    pending = price(FixedPayments([0.5], [7.0]), model).value
    assert np.isclose(pending, 7.0 * np.exp(-0.05 * 0.5), rtol=1e-13)
    dates = np.array([0.2, 0.8])
    sure = price(AverageForward(-4.0, dates, [0.25, 0.25]), model).value
    mean = sum(0.25 * float(model.forward(jnp.asarray(t))) for t in dates)
    assert np.isclose(sure, np.exp(-0.05 * 0.8) * (mean + 4.0), rtol=1e-13)


@pytest.mark.costly
def test_heston_agrees_between_fourier_and_paths():
    heston = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7, 0.01)
    model = WithDividends(heston, PAYS)
    call = European([80.0, 100.0, 120.0], 1.0)
    exact = price(call, model)
    assert exact.stats["method"].name == "Fourier"
    found = price(call, model, MonteCarlo(2**14), key=KEY)
    assert np.all(abs(found.value - exact.value) < 4.0 * found.std_error + 2e-3)


# --- vols of a surface ----------------------------------------------------------------------------------------


def test_a_surface_is_read_as_vols_of_the_spot():
    model = WithDividends(BlackScholes(100.0, 0.05, SURFACE, 0.01), PAYS)
    for expiry, row in zip(SURFACE.expiries, SURFACE.vols, strict=True):
        options = European(SURFACE.strikes, float(expiry), "put")
        forward, discount = model.forward(expiry), model.discount(expiry)
        raw = BlackScholes(forward * discount, 0.05, 0.2)
        for place, vol in enumerate(row):
            expected = price(
                European(SURFACE.strikes[place], float(expiry), "put"),
                dataclasses.replace(raw, vol=float(vol)),
            ).value
            assert np.isclose(price(options, model).value[place], expected, rtol=1e-10)


def test_a_total_variance_may_fall_by_rounding_alone():
    """Vols above cash are converted, and two programs round them by some eps over the standard deviation."""
    dates = jnp.asarray([0.1, 0.2, 0.4])

    def variances(fall):
        vols = 0.3 * np.sqrt([[1.0], [0.5 * (1.0 - fall)]])
        surface = VolSurface([0.2, 0.4], [80.0, 120.0], np.broadcast_to(vols, (2, 2)))
        model = BlackScholes(100.0, 0.05, surface)
        return model.at_smile_point((dates[2], jnp.asarray(90.0))).state_variance(dates)

    np.testing.assert_allclose(variances(2e-14), [0.009, 0.018, 0.018], rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(variances(1e-12)), [False, False, True])


@pytest.mark.costly
def test_the_grid_reads_the_surface_above_the_dividends():
    model = WithDividends(BlackScholes(100.0, 0.05, SURFACE, 0.01), PAYS)
    put = European(90.0, 0.9, "put")
    fine = FiniteDifference(120, 4, 20)
    found = valued(put, fine)(model, jnp.zeros(()))
    assert np.isclose(found, price(put, model, ClosedForm()).value, atol=2e-3)


# --- derivatives ----------------------------------------------------------------------------------------------

SMALL = FiniteDifference(30, 8, 10)


def valued(product, method):
    """Return the value of a product as a compiled function of a model with dividends and of an age."""
    method = for_model(method, ESCROWED)

    @jax.jit
    def value(model, age):
        return jnp.mean(rolled(method, age).samples(product.rolled(age), model, key=KEY))

    return value


@pytest.mark.costly
@pytest.mark.parametrize(
    ("product", "method", "dynamics"),
    [
        (European(100.0, 1.0, "put"), ClosedForm(), "escrowed"),
        (American(100.0, 1.0, "put"), SMALL, "escrowed"),
        (American(100.0, 1.0, "call"), SMALL, "spot"),
        (Barrier(100.0, 1.0, 85.0, "down-and-out", "call"), SMALL, "escrowed"),
        (Autocallable([0.5, 1.0], [5.0, 10.0], 105.0, 80.0, 100.0), Quadrature(), "escrowed"),
        (Asian(100.0, [0.5, 1.0]), MonteCarlo(2**8), "escrowed"),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_derivatives_are_central_differences(product, method, dynamics):
    """To the raw spot, the vol, the rate, each dividend and its time, and the age of all dates."""
    model, now = WithDividends(BASE, PAYS, dynamics), jnp.zeros(())
    value = valued(product, method)
    slopes, of_age = jax.jit(jax.grad(value, argnums=(0, 1)))(model, now)
    h = 1e-6
    for name in ("spot", "vol", "rate", "dividend_yield"):
        at = lambda x, name=name: dataclasses.replace(
            model, base=dataclasses.replace(BASE, **{name: getattr(BASE, name) + x})
        )
        expected = (value(at(h), now) - value(at(-h), now)) / (2.0 * h)
        assert np.isclose(getattr(slopes.base, name), expected, rtol=1e-5, atol=1e-5), name
    for name in ("cash", "times"):
        for place in range(2):
            at = lambda x, name=name, place=place: dataclasses.replace(
                model,
                dividends=dataclasses.replace(PAYS, **{name: getattr(PAYS, name).at[place].add(x)}),
            )
            expected = (value(at(h), now) - value(at(-h), now)) / (2.0 * h)
            found = getattr(slopes.dividends, name)[place]
            assert np.isclose(found, expected, rtol=1e-5, atol=1e-5), (name, place)
    expected = (value(model, now + h) - value(model, now - h)) / (2.0 * h)
    assert np.isclose(of_age, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
def test_greeks_are_to_the_raw_spot():
    put = European(100.0, 1.0, "put")
    found = greeks(put, ESCROWED)
    assert found.stats["method"].name == "ClosedForm"
    value = valued(put, ClosedForm())
    at = lambda spot: value(
        dataclasses.replace(ESCROWED, base=dataclasses.replace(BASE, spot=spot)), jnp.zeros(())
    )
    up, here, down = (at(100.0 + x) for x in (1e-2, 0.0, -1e-2))
    assert np.isclose(found.delta, (up - down) / 2e-2, rtol=1e-6)
    assert np.isclose(found.gamma, (up - 2.0 * here + down) / 1e-4, rtol=1e-5)
    barrier = valued(Barrier(100.0, 1.0, 85.0, "down-and-out", "call"), SMALL)
    of_spot = lambda spot: barrier(
        dataclasses.replace(ESCROWED, base=dataclasses.replace(BASE, spot=spot)), jnp.zeros(())
    )
    gamma = jax.jit(jax.grad(jax.grad(of_spot)))(jnp.asarray(100.0))
    up, here, down = (of_spot(100.0 + x) for x in (1e-2, 0.0, -1e-2))
    assert np.isclose(gamma, (up - 2.0 * here + down) / 1e-4, rtol=1e-3)


@pytest.mark.costly
def test_a_batch_is_its_contracts_and_single_precision_is_near():
    strikes = np.array([90.0, 100.0])
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), ESCROWED)
    for kind, method in ((European, ClosedForm()), (American, SMALL)):
        batch = kind(strikes, 1.0, "put")
        double = price(batch, ESCROWED, method).value
        each = [price(kind(strike, 1.0, "put"), ESCROWED, method).value for strike in strikes]
        np.testing.assert_allclose(double, each, rtol=1e-12)
        narrow = jax.tree.map(
            lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, batch
        )
        np.testing.assert_allclose(price(narrow, single, method).value, double, rtol=2e-3)


@pytest.mark.costly
def test_curves_and_vol_curves_go_with_dividends():
    rate = ZeroCurve([0.5, 1.0], [0.05, 0.05])
    vol = VolCurve([0.5, 1.0], [0.25, 0.25])
    model = WithDividends(BlackScholes(100.0, rate, vol, 0.01), PAYS)
    for product in (European(100.0, 1.0), Digital(100.0, 1.0)):
        assert np.isclose(price(product, model).value, price(product, ESCROWED).value, rtol=1e-9)
    touch = Touch(120.0, 1.0, amount=10.0)
    values = [valued(touch, SMALL)(m, jnp.zeros(())) for m in (model, ESCROWED)]
    assert np.isclose(*values, rtol=1e-9)
