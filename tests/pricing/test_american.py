"""American options: the free boundary problem, trees, QuantLib, limits, and what the integrals resolve."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    RESULTS,
    American,
    BlackScholes,
    European,
    IntegralEquation,
    Quadrature,
    VolSurface,
    greeks,
    price,
)
from pricing.formulas import exercise_boundary as boundaries
from pricing.formulas.early_exercise_premium import american_value
from pricing.numerics.black import black
from tests.helpers import double, first_difference, surface

pytestmark = double
STRIKE = 100.0
FINE = {"num_dates": 48, "num_nodes": 80, "num_points": 200}


def ordinary(count: int, seed: int) -> np.ndarray:
    """Puts and calls: rows of (spot, strike, expiry, rate, dividend_yield, vol, side)."""
    dice = np.random.default_rng(seed)
    low, high = np.array([(0.1, 3.0), (0.01, 0.1), (0.0, 0.1), (0.1, 0.6)]).T
    return _contracts(dice, *dice.uniform(low, high, (count, 4)).T)


def wide(count: int, seed: int) -> np.ndarray:
    """A day to thirty years, vols of 2 % to 150 %, rates of .001 % to 30 %, dividends that cost up to 5 %."""
    dice = np.random.default_rng(seed)
    low, high = np.log([(1 / 365, 30.0), (1e-5, 0.3), (1e-5, 0.3), (0.02, 1.5)]).T
    t, r, q, vol = np.exp(dice.uniform(low, high, (count, 4))).T
    q = np.where(np.arange(count) % 5 == 0, 0.0, q)
    q = np.where(np.arange(count) % 5 == 1, -0.05 * dice.random(count), q)
    return _contracts(dice, t, r, q, vol)


def _contracts(dice, t, r, q, vol) -> np.ndarray:
    """Every third contract is a call, with the rates exchanged."""
    side = np.where(np.arange(t.size) % 3 == 0, 1.0, -1.0)
    r, q = np.where(side > 0, q, r), np.where(side > 0, r, q)
    reach = np.minimum(vol * np.sqrt(t), 1.0)
    spot = STRIKE * np.exp(1.5 * dice.uniform(-1.0, 1.0, t.size) * reach)
    return np.stack([spot, np.full(t.size, STRIKE), t, r, q, vol, side], axis=1)


def in_hundreds(function, contracts) -> np.ndarray:
    """A function of a hundred contracts on any number of them, so that all are of one program."""
    hundreds = np.resize(contracts, (-(-len(contracts) // 100), 100, 7))  # the last are repeated
    found = [np.asarray(function(jnp.asarray(batch))) for batch in hundreds]
    return np.concatenate(found)[: len(contracts)]


@functools.partial(jax.jit, static_argnames=("num_dates", "num_nodes", "num_points"))
def _values(contracts, **counts):
    return jax.vmap(lambda row: american_value(*row, **counts))(contracts)


def values(contracts, **counts) -> np.ndarray:
    return in_hundreds(functools.partial(_values, **counts), contracts)


@jax.jit
def european(contracts):
    def each(row):
        spot, strike, t, r, q, vol, side = row
        forward = spot * jnp.exp((r - q) * t)
        return jnp.exp(-r * t) * black(forward, strike, vol * jnp.sqrt(t), side)

    return jax.vmap(each)(jnp.asarray(contracts))


def intrinsic(contracts):
    spot, strike, side = contracts[:, 0], contracts[:, 1], contracts[:, 6]
    return np.maximum(side * (spot - strike), 0.0)


def ladder(contracts) -> np.ndarray:
    """Columns of value, Delta, Gamma and the derivative in the expiry."""
    return in_hundreds(_ladder, contracts)


@jax.jit
def _ladder(contracts):
    def each(row):
        at = lambda spot, expiry: american_value(spot, row[1], expiry, *row[3:])
        value, (delta, by_expiry) = jax.value_and_grad(at, (0, 1))(row[0], row[2])
        gamma = jax.jvp(lambda spot: jax.grad(at)(spot, row[2]), (row[0],), (jnp.ones(()),))[1]
        return jnp.stack([value, delta, gamma, by_expiry])

    return jax.vmap(each)(contracts)


@jax.jit
def boundary_of(row):
    """The highest spot at which a put is exercised."""
    _, strike, t, r, q, vol, _ = row
    excess = boundaries.exercise_boundary(r * t, q * t, vol * jnp.sqrt(t), 32, 24)
    return strike * jnp.exp(-jnp.sqrt(excess[0] + boundaries.log_start(r * t, q * t) ** 2))


# --- the free boundary problem ------------------------------------------------------------------------


@pytest.mark.costly
def test_the_equation_of_black_and_scholes_holds_where_the_option_is_held():
    """dV/dT = (r - q) S Delta + (vol S)^2 Gamma / 2 - r V; where it is exercised, Delta is +-1 and Gamma 0."""
    contracts = ordinary(300, 1)
    spot, strike, _, r, q, vol, side = contracts.T
    value, delta, gamma, by_expiry = ladder(contracts).T
    exercised = value == side * (spot - strike)
    assert 5 < np.sum(exercised) < 100
    gap = (r - q) * spot * delta + 0.5 * (vol * spot) ** 2 * gamma - r * value - by_expiry
    assert np.max(np.abs(gap[~exercised])) < 2e-7 * STRIKE
    np.testing.assert_array_equal(delta[exercised], side[exercised])
    np.testing.assert_array_equal(gamma[exercised], 0.0)
    np.testing.assert_array_equal(by_expiry[exercised], 0.0)


@pytest.mark.parametrize("q", [0.0, 0.03, 0.08, -0.02])
def test_value_and_slope_fit_smoothly_at_the_boundary(q):
    """And there Gamma, from the equation of Black and Scholes, is 2 (r K - q B) / (vol B)^2."""
    row = np.array([0.0, STRIKE, 0.7, 0.05, q, 0.3, -1.0])
    level = float(boundary_of(jnp.asarray(row)))
    steps = np.array([-1e-3, -1e-9, 1e-9, 1e-7, 1e-5, 1e-3])
    contracts = np.tile(row, (steps.size, 1))
    contracts[:, 0] = level * (1.0 + steps)
    value, delta, gamma, _ = ladder(contracts).T
    there = 2.0 * (0.05 * STRIKE - q * level) / (0.3 * level) ** 2
    np.testing.assert_allclose(value[:4], STRIKE - contracts[:4, 0], atol=1e-10 * STRIKE, rtol=0.0)
    np.testing.assert_allclose(delta[:4], -1.0, rtol=1e-6)
    np.testing.assert_allclose(gamma, [0.0, 0.0, there, there, there, there], rtol=3e-2)
    np.testing.assert_allclose(gamma[2:4], there, rtol=1e-5)
    assert value[5] > STRIKE - contracts[5, 0]


def perpetual_put(spot, strike, r, q, vol):
    """McKean (1965); Merton, Bell J. 4 (1973), eq. 52."""
    slope = (r - q) / vol**2 - 0.5
    power = slope + np.sqrt(slope**2 + 2.0 * r / vol**2)
    level = strike * power / (1.0 + power)
    return np.where(spot > level, (strike - level) * (spot / level) ** -power, strike - spot)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("r", "q", "vol", "t"), [(0.1, 0.0, 0.3, 200), (0.08, 0.05, 0.2, 300), (0.06, 0.12, 0.4, 200)]
)
def test_a_long_expiry_is_the_perpetual_option(r, q, vol, t):
    """With fine integrals: the usual ones are made for thirty years."""
    spot = np.array([50.0, 80.0, 100.0, 150.0])
    contracts = np.stack(np.broadcast_arrays(spot, STRIKE, t, r, q, vol, -1.0), axis=1)
    found, expected = values(contracts, **FINE), perpetual_put(spot, STRIKE, r, q, vol)
    np.testing.assert_allclose(found, expected, atol=1e-9 * STRIKE, rtol=0.0)


# --- other numerics -----------------------------------------------------------------------------------


def tree(row, num_steps: int) -> float:
    """Binomial, Black at the last step, extrapolated (Broadie and Detemple, Rev. Fin. Studies 9, 1996)."""
    rough, fine = _tree(row, num_steps // 2), _tree(row, num_steps)
    return 2.0 * fine - rough


def _tree(row, num_steps: int) -> float:
    spot, strike, t, r, q, vol, side = row
    dt = t / num_steps
    up = np.exp(vol * np.sqrt(dt))
    chance = (np.exp((r - q) * dt) - 1.0 / up) / (up - 1.0 / up)
    at = lambda i: spot * up ** np.arange(-i, i + 1, 2.0)
    last = at(num_steps - 1)
    rows = np.stack(np.broadcast_arrays(last, strike, dt, r, q, vol, side), axis=1)
    found = np.maximum(european(rows), side * (last - strike))
    for i in reversed(range(num_steps - 1)):
        found = np.exp(-r * dt) * (chance * found[1:] + (1.0 - chance) * found[:-1])
        found = np.maximum(found, side * (at(i) - strike))
    return float(found[0])


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize(
    ("r", "q"), [(0.05, 0.0), (0.03, 0.07), (0.05, 0.05), (0.04, -0.02), (-0.01, 0.02), (0.0, 0.04)]
)
def test_a_tree_agrees(r, q, side):
    """To 2e-5 of the strike: what the tree of 1,000 steps is known to."""
    if side > 0.0:
        r, q = q, r
    rows = [np.array([spot, STRIKE, 0.75, r, q, 0.25, side]) for spot in (80.0, 90.0, 105.0, 125.0)]
    trees = [tree(row, 1000) for row in rows]
    np.testing.assert_allclose(values(np.stack(rows)), trees, atol=2e-5 * STRIKE, rtol=0.0)


def test_quantlib_agrees():
    """QdFpAmericanEngine, collocated by 16 fixed points on 40 dates; its integrals are exact to 1e-11."""
    ql = pytest.importorskip("QuantLib")
    contracts = ordinary(10, 2)
    today, count = ql.Date(1, 1, 2020), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today

    def flat(level):
        return ql.YieldTermStructureHandle(ql.FlatForward(today, level, count))

    def quantlib(row):
        spot, strike, t, r, q, vol, side = map(float, row)  # in units of the expiry: 365 days
        quoted = ql.BlackConstantVol(today, ql.NullCalendar(), vol * np.sqrt(t), count)
        quote = ql.QuoteHandle(ql.SimpleQuote(spot))
        surface = ql.BlackVolTermStructureHandle(quoted)
        process = ql.BlackScholesMertonProcess(quote, flat(q * t), flat(r * t), surface)
        kind = ql.Option.Call if side > 0.0 else ql.Option.Put
        exercise = ql.AmericanExercise(today, today + 365)
        option = ql.VanillaOption(ql.PlainVanillaPayoff(kind, strike), exercise)
        scheme = ql.QdFpTanhSinhIterationScheme(16, 40, 1e-11)
        option.setPricingEngine(ql.QdFpAmericanEngine(process, scheme))
        return option.NPV()

    expected = [quantlib(row) for row in contracts]
    np.testing.assert_allclose(values(contracts), expected, atol=1e-8 * STRIKE, rtol=0.0)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("box", "most", "usual"),
    [(ordinary, 2e-9, 2e-11), (wide, 1e-8, 1e-10)],
    ids=["ordinary", "wide"],
)
def test_finer_integrals_change_nothing(box, most, usual):
    """Of the strike. The worst are puts (calls) whose dividend yield is a little above (below) the rate."""
    contracts = box(500, 3)
    error = np.abs(values(contracts) - values(contracts, **FINE)) / STRIKE
    assert np.max(error) < most
    assert np.quantile(error, 0.9) < usual


@jax.jit
def slopes(contracts):
    """Derivatives in all numbers but the side: first [contracts, 6] and second [contracts, 6, 6]."""

    def each(row):
        at = lambda numbers: american_value(*numbers, row[6])
        return jax.grad(at)(row[:6]), jax.hessian(at)(row[:6])

    return jax.lax.map(each, jnp.asarray(contracts), batch_size=20)


@pytest.mark.slow
def test_derivatives_of_first_and_second_order_are_those_of_differences():
    """In all inputs, to 1e-6 of themselves and 1e-9 of the strike for a move of an input by its size."""
    contracts = np.concatenate([ordinary(20, 4), wide(20, 5)])
    spot, strike, t, r, q, vol, _ = contracts.T
    near = np.minimum(2.0 * vol * np.sqrt(t), 1.0)
    # neither a sign nor the order of the two rates may change
    rates = np.min([np.abs(x) for x in (r, np.where(q == 0.0, r, q), r - q)], axis=0)
    moves = 0.01 * np.stack([spot * near, strike * near, t, rates, rates, vol], axis=1)
    first, second = map(np.asarray, slopes(contracts))
    for i in range(6):

        def moved(step, i=i):
            there = contracts.copy()
            there[:, i] += step * moves[:, i]
            return there

        quotient = first_difference(lambda step: values(moved(step)), 1.0)
        np.testing.assert_allclose(first[:, i] * moves[:, i], quotient, rtol=1e-6, atol=1e-9)
        quotient = first_difference(lambda step: np.asarray(slopes(moved(step))[0]), 1.0)
        exact = second[:, i] * moves[:, i, None] * moves
        np.testing.assert_allclose(exact, quotient * moves, rtol=1e-6, atol=1e-9)


# --- limits and arbitrage -----------------------------------------------------------------------------


def test_the_wide_box_has_no_nan_and_no_arbitrage():
    contracts = wide(2000, 6)
    spot, strike, t, r, q, _, side = contracts.T
    found, held = values(contracts), np.asarray(european(contracts))
    assert np.all(np.isfinite(found))
    assert np.all(found >= np.maximum(held, intrinsic(contracts)) - 1e-8 * STRIKE)
    paid, received = np.where(side > 0.0, spot, strike), np.where(side > 0.0, -r, -q)
    assert np.all(found <= paid * np.exp(np.maximum(received, 0.0) * t))


def test_a_put_is_the_call_mirrored():
    contracts = ordinary(50, 7)
    mirrored = contracts[:, [1, 0, 2, 4, 3, 5, 6]] * np.array([1, 1, 1, 1, 1, 1, -1.0])
    np.testing.assert_allclose(values(mirrored), values(contracts), rtol=1e-12)


@pytest.mark.parametrize("option", ["call", "put"])
def test_values_are_monotone_and_convex_in_the_strike_and_grow_with_the_expiry(option):
    model = BlackScholes(STRIKE, 0.04, 0.25, 0.06)
    strikes, expiries = np.linspace(60.0, 160.0, 101), [0.1, 0.5, 1.0, 3.0]
    found = np.stack([price(American(strikes, t, option), model).value for t in expiries])
    slope = np.diff(found, axis=1) * (1.0 if option == "put" else -1.0)
    assert np.all((slope > 0.0) & (slope < 1.0 + 1e-9))
    assert np.all(np.diff(found, 2, axis=1) > -1e-9)
    assert np.all(np.diff(found, axis=0) > -1e-9)
    held = np.stack([price(European(strikes, t, option), model).value for t in expiries])
    assert np.all(found >= held - 1e-9)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("option", "rate", "q"),
    [
        *(("call", 0.05, 0.0), ("call", 0.05, -0.01), ("call", -0.01, -0.01), ("call", 0.0, 0.0)),
        *(("put", 0.0, 0.0), ("put", 0.0, 0.03), ("put", -0.01, 0.02), ("put", -0.02, -0.01)),
    ],
)
def test_what_is_never_exercised_early_is_european(option, rate, q):
    model, strikes = BlackScholes(STRIKE, rate, 0.3, q), [40.0, 90.0, 100.0, 250.0]
    found, held = (greeks(kind(strikes, 1.5, 4 * [option]), model) for kind in (American, European))
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_allclose(getattr(found, name), getattr(held, name), rtol=1e-9, atol=1e-12)


@pytest.mark.costly
def test_exercised_now_is_intrinsic():
    model = BlackScholes(STRIKE, 0.05, 0.2, 0.06)
    found = greeks(American([160.0, 45.0, 170.0, 40.0], 1.0, 2 * ["put", "call"]), model)
    np.testing.assert_array_equal(found.value, [60.0, 55.0, 70.0, 60.0])
    np.testing.assert_array_equal(found.delta, [-1.0, 1.0, -1.0, 1.0])
    for name in ("gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_array_equal(getattr(found, name), 0.0)


@pytest.mark.parametrize("expiry", [1e-8, 1e-5, 1e-3, 40.0, 100.0])
@pytest.mark.parametrize("option", ["call", "put"])
def test_any_expiry_and_moneyness_is_finite(expiry, option):
    model = BlackScholes(STRIKE, 0.04, 0.2, 0.03)
    fours = [1e-3, 20.0, 90.0, 99.0], [99.9, 100.0, 100.1, 101.0], [110.0, 500.0, 1e4, 1e6]
    for strikes in map(np.array, fours):  # of the program of the tests above
        found = greeks(American(strikes, expiry, 4 * [option]), model, IntegralEquation())
        assert found.result == RESULTS.successful
        worth = np.maximum((STRIKE - strikes) * (1.0 if option == "call" else -1.0), 0.0)
        assert np.all(found.value >= worth - 1e-8 * strikes)
        assert np.all(np.abs(found.delta) <= 1.0 + 1e-9)


def test_vanishing_interest_joins_the_european_option_without_a_jump():
    row = np.array([95.0, STRIKE, 2.0, 0.0, 0.01, 0.3, -1.0])
    rates = np.array([0.0, 1e-33, 1e-30, 1e-20, 1e-12, 1e-9, 1e-7])
    contracts = np.tile(row, (rates.size, 1))
    contracts[:, 3] = rates
    gap = values(contracts) - np.asarray(european(contracts))
    assert np.all(gap >= -1e-12)
    assert np.all(gap <= 2.0 * rates * STRIKE + 1e-12)


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(("option", "rate", "q"), [("put", -0.01, -0.03), ("call", -0.03, -0.01)])
def test_two_boundaries_are_left_to_quadrature(option, rate, q):
    model, product = BlackScholes(STRIKE, rate, 0.2, q), American(4 * [110.0], 1.0, 4 * [option])
    found = price(product, model)
    assert isinstance(found.stats["method"], Quadrature)
    np.testing.assert_allclose(found.value, on_a_tree(110.0, 1.0, option, model), rtol=3e-4)
    with pytest.raises(TypeError, match=r"no single exercise boundary .* would work: Quadrature"):
        price(product, model, IntegralEquation())
    traced = eqx.filter_jit(price)(
        product, model, IntegralEquation()
    )  # numbers are not known there
    assert traced.result == RESULTS.two_boundaries
    assert np.all(np.isnan(traced.value))


def on_a_tree(strike, expiry, option, model, steps=2000) -> float:
    """Return an American option's value on the binomial tree of Cox, Ross and Rubinstein (1979)."""
    dt, side = expiry / steps, 1.0 if option == "call" else -1.0
    up = np.exp(float(model.vol) * dt**0.5)
    growth = np.exp(float(model.rate - model.dividend_yield) * dt)
    chance, discount = (growth * up - 1.0) / (up * up - 1.0), np.exp(-float(model.rate) * dt)
    spots = float(model.spot) * up ** np.arange(-steps, steps + 1, 2.0)
    value = np.maximum(side * (spots - strike), 0.0)
    for _ in range(steps):
        spots = spots[1:] / up
        held = discount * (chance * value[1:] + (1.0 - chance) * value[:-1])
        value = np.maximum(held, side * (spots - strike))
    return float(value[0])


@pytest.mark.costly
def test_a_boundary_that_does_not_settle_gives_nan(monkeypatch):
    monkeypatch.setattr(boundaries, "MOST_STEPS", 2)
    row = (jnp.asarray(x) for x in (95.0, STRIKE, 1.0, 0.05, 0.0, 0.2, -1.0))
    assert np.isnan(american_value(*row, num_dates=6, num_nodes=6, num_points=8))


@pytest.mark.parametrize("name", ["num_dates", "num_nodes", "num_points"])
def test_counts_below_two_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 2, got 1"):
        IntegralEquation(**{name: 1})


# --- as a method --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_of_puts_and_calls_is_its_contracts():
    model = BlackScholes(STRIKE, 0.05, 0.25, 0.07)
    strikes, expiries, options = [90.0, 100.0, 130.0], [0.3, 1.0, 2.0], ["call", "put", "call"]
    batch = greeks(American(strikes, expiries, options), model)
    for i, terms in enumerate(zip(strikes, expiries, options, strict=True)):
        single = greeks(American(*terms), model)
        for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
            np.testing.assert_allclose(getattr(batch, name)[i], getattr(single, name), rtol=1e-10)


def test_a_surface_of_one_expiry_is_read_at_the_strike():
    strike, t = 104.0, 0.8
    flat = VolSurface([0.5], surface().strikes, surface().vols[:1])
    vol = float(flat.vol(jnp.asarray(t), jnp.asarray(strike)))
    found = price(American(strike, t, "put"), BlackScholes(STRIKE, 0.03, flat, 0.02))
    flat = price(American(strike, t, "put"), BlackScholes(STRIKE, 0.03, vol, 0.02))
    assert isinstance(found.stats["method"], IntegralEquation)
    np.testing.assert_allclose(found.value, flat.value, rtol=1e-12)


@pytest.mark.costly
def test_single_precision_over_the_wide_box():
    """To 1e-4 of the strike or spot, and no NaN."""
    contracts = wide(1000, 8)
    expected = values(contracts)
    with jax.enable_x64(False):
        each = eqx.filter_jit(jax.vmap(lambda row: american_value(*row)))
        found = np.asarray(each(jnp.asarray(contracts, jnp.float32)))
    assert found.dtype == np.float32
    assert np.all(np.isfinite(found))
    size = np.maximum(contracts[:, 0], contracts[:, 1])
    assert np.max(np.abs(found - expected) / size) < 1e-4
