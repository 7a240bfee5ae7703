"""Barrier options under Black-Scholes: parity, quadrature, limits, and a spot that has already touched."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from pricing import RESULTS, Barrier, BlackScholes, greeks, price
from tests.helpers import double

pytestmark = double

SPOT = 100.0
MODEL = BlackScholes(SPOT, 0.05, 0.25, 0.02)
STRIKES = [80.0, 95.0, 100.0, 105.0, 120.0] * 2
OPTIONS = ["call"] * 5 + ["put"] * 5
SIDES = pytest.mark.parametrize(("side", "level"), [("down", 90.0), ("up", 110.0)])


def barriers(side, kind, level, rebate=0.0, expiry=0.75):
    """Strikes on both sides of the barrier, calls and puts."""
    return Barrier(STRIKES, expiry, level, f"{side}-and-{kind}", OPTIONS, rebate)


def value(product, model=MODEL):
    return np.asarray(price(product, model).value)


def vanilla(model=MODEL, expiry=0.75):
    return value(barriers("down", "out", 90.0, expiry=expiry).vanilla, model)


@SIDES
def test_in_and_out_add_up_to_the_vanilla(side, level):
    total = value(barriers(side, "in", level)) + value(barriers(side, "out", level))
    np.testing.assert_allclose(total, vanilla(), rtol=1e-13)


@SIDES
def test_one_of_the_rebates_is_paid(side, level):
    """Without interest, that of the knock-out and that of the knock-in are worth their amount."""
    model = dataclasses.replace(MODEL, rate=0.0)
    paid = [
        value(barriers(side, kind, level, rebate=3.0), model)
        - value(barriers(side, kind, level), model)
        for kind in ("in", "out")
    ]
    np.testing.assert_allclose(paid[0] + paid[1], 3.0, rtol=1e-12)
    assert np.all(np.asarray(paid) > 0.1)


@SIDES
@pytest.mark.parametrize(
    ("vol", "rate", "q"), [(0.25, 0.05, 0.02), (0.15, -0.005, -0.005), (0.1, -0.03, 0.0)]
)
def test_knock_outs_are_integrals_of_the_killed_density(side, level, vol, rate, q):
    """Reflection: density n(y) - exp(2 mu h) n(y - 2 h) on the living side, mu = (r - q)/sigma^2 - 1/2."""
    t, model = 0.75, BlackScholes(SPOT, rate, vol, q)
    std, drift, h = vol * np.sqrt(t), rate - q - 0.5 * vol**2, np.log(level / SPOT)
    density = lambda y: np.exp(-0.5 * ((y - drift * t) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
    nodes, weights = np.polynomial.legendre.leggauss(100)
    for strike, option, found in zip(
        STRIKES, OPTIONS, value(barriers(side, "out", level), model), strict=True
    ):
        far = 10.0 * std * (1.0 if side == "down" else -1.0)
        kink = np.clip(np.log(strike / SPOT), *sorted((h, far)))
        integral = 0.0
        for low, high in ((h, kink), (kink, far)):
            y = low + 0.5 * (high - low) * (nodes + 1.0)
            killed = density(y) - np.exp(2.0 * drift / vol**2 * h) * density(y - 2.0 * h)
            sign = 1.0 if option == "call" else -1.0
            payoff = np.maximum(sign * (SPOT * np.exp(y) - strike), 0.0)
            integral += 0.5 * abs(high - low) * np.sum(weights * killed * payoff)
        np.testing.assert_allclose(found, np.exp(-rate * t) * integral, atol=1e-10)


@pytest.mark.costly
def test_a_rebate_at_the_hit_without_a_real_formula_has_another_method():
    """mu^2 + 2 r / sigma^2 < 0: finite differences beside the density of the hit, or a code with their name."""
    model, barrier = BlackScholes(SPOT, -0.005, 0.15, -0.005), Barrier(100.0, 1.0, 90.0, rebate=3.0)
    found, without = price(barrier, model), Barrier(100.0, 1.0, 90.0)
    assert found.stats["method"].name == "FiniteDifference"
    h, drift = np.log(90.0 / SPOT), -0.5 * 0.15**2
    t = np.linspace(0.0, 1.0, 20_001)[1:]
    density = (
        -h / (0.15 * np.sqrt(2 * np.pi * t**3)) * np.exp(-((h - drift * t) ** 2) / (0.045 * t))
    )
    at_hit = 3.0 * np.trapezoid(np.exp(0.005 * t) * density, t)
    np.testing.assert_allclose(found.value - value(without, model), at_hit, rtol=1e-6)
    assert greeks(without, model).result == RESULTS.successful
    traced = jax.jit(lambda model: price(barrier, model))(model)
    assert np.isnan(traced.value)
    assert traced.result == RESULTS.complex_exponent


@pytest.mark.parametrize(("side", "level"), [("down", 1e-3), ("up", 1e5)])
def test_a_barrier_out_of_reach_changes_nothing(side, level):
    np.testing.assert_allclose(value(barriers(side, "out", level, 3.0)), vanilla(), rtol=1e-13)
    untouched = 3.0 * np.exp(-0.05 * 0.75)
    np.testing.assert_allclose(value(barriers(side, "in", level, 3.0)), untouched, rtol=1e-12)


@pytest.mark.parametrize("beyond", [0.0, 1e-9, 30.0])
@SIDES
def test_a_touched_barrier_pays_the_rebate_or_is_the_vanilla(side, level, beyond):
    model = dataclasses.replace(MODEL, spot=level + (-beyond if side == "down" else beyond))
    found = greeks(barriers(side, "out", level, rebate=3.0), model)
    np.testing.assert_array_equal(found.value, 3.0)
    for name in ("delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_array_equal(getattr(found, name), 0.0)
    inside = greeks(barriers(side, "in", level, rebate=3.0), model)
    wanted = greeks(barriers(side, "in", level).vanilla, model)
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        pair = getattr(inside, name), getattr(wanted, name)
        np.testing.assert_allclose(*pair, rtol=1e-10, atol=1e-12)


@SIDES
def test_values_are_continuous_at_the_barrier(side, level):
    """And linear in the distance: ten times nearer, ten times closer."""
    gaps = []
    for distance in (1e-4, 1e-5):
        spot = level * (1.0 + (distance if side == "down" else -distance))
        model = dataclasses.replace(MODEL, spot=spot)
        gaps.append(value(barriers(side, "out", level, rebate=3.0), model) - 3.0)
    np.testing.assert_allclose(gaps[0], 10.0 * gaps[1], rtol=5e-3)
    assert np.max(np.abs(gaps[1])) < 1e-2


def test_a_call_that_is_knocked_out_before_it_pays_is_worth_its_rebate():
    product = barriers("up", "out", 104.0)
    np.testing.assert_allclose(value(product)[3:5], 0.0, atol=1e-14)


@pytest.mark.parametrize("expiry", [1.0 / 365.0, 1.0, 30.0])
@SIDES
def test_extreme_numbers_stay_between_nothing_and_the_vanilla(side, level, expiry):
    """Vols from 1e-3 to 3, drifts from -0.2 to 0.2: powers of (barrier / spot) that overflow alone."""
    vols, rates = (x.ravel() for x in np.meshgrid([1e-3, 0.01, 0.05, 0.5, 3.0], [-0.2, 0.0, 0.2]))
    models = eqx.filter_vmap(lambda vol, rate: BlackScholes(SPOT, rate, vol))(
        jnp.asarray(vols), jnp.asarray(rates)
    )
    every = eqx.filter_vmap(
        lambda product, model: price(product, model).value, in_axes=(None, eqx.if_array(0))
    )
    out = every(barriers(side, "out", level, expiry=expiry), models)
    whole = every(barriers(side, "out", level, expiry=expiry).vanilla, models)
    assert np.all(np.isfinite(out))
    assert np.all(out >= -1e-12 * SPOT)
    assert np.all(out <= whole + 1e-12 * SPOT)


def haug(kind, call, spot, rate, q, vol, t, strike, level, rebate):
    """Haug's table of Reiner and Rubinstein's formulas, kind by kind, in the letters of the book."""
    phi, eta = (1 if call else -1), (1 if kind.startswith("down") else -1)
    std, mu = vol * mp.sqrt(t), (rate - q) / vol**2 - mp.mpf(1) / 2
    lam, discount = mp.sqrt(mu**2 + 2 * rate / vol**2), mp.exp(-rate * t)
    asset, cash, power = spot * mp.exp(-q * t), strike * discount, level / spot
    x1, x2, y1, y2 = (
        mp.log(each) / std + (1 + mu) * std
        for each in (spot / strike, spot / level, level**2 / (spot * strike), level / spot)
    )
    z = mp.log(level / spot) / std + lam * std
    n = mp.ncdf
    a, b = (phi * (asset * n(phi * x) - cash * n(phi * (x - std))) for x in (x1, x2))
    c, d = (
        phi
        * (
            asset * power ** (2 * mu + 2) * n(eta * y)
            - cash * power ** (2 * mu) * n(eta * (y - std))
        )
        for y in (y1, y2)
    )
    e = discount * (n(eta * (x2 - std)) - power ** (2 * mu) * n(eta * (y2 - std)))
    f = power ** (mu + lam) * n(eta * z) + power ** (mu - lam) * n(eta * (z - 2 * lam * std))
    above = strike > level
    knock_in = {
        ("down", True): c if above else a - b + d,
        ("up", True): a if above else b - c + d,
        ("down", False): b - c + d if above else a,
        ("up", False): a - b + d if above else c,
    }[kind.split("-")[0], call]
    return knock_in + rebate * e if kind.endswith("in") else a - knock_in + rebate * f


KINDS = ["down-and-out", "down-and-in", "up-and-out", "up-and-in"] * 2
LEVELS, CALLS = [90.0, 90.0, 110.0, 110.0] * 2, [True] * 4 + [False] * 4
WORDS = ["call" if call else "put" for call in CALLS]
AT = SPOT, 0.25, 0.05, 0.75  # where derivatives are taken: spot, vol, rate, expiry


def published(strike, order):
    """Derivatives of the published formulas, kind by kind, by mpmath's differences at forty digits."""
    with mp.workdps(40):
        at, fixed = [mp.mpf(x) for x in AT], [mp.mpf(x) for x in (strike, 0.02)]

        def of_kind(kind, call, level):
            def formula(spot, vol, rate, t):
                return haug(kind, call, spot, rate, fixed[1], vol, t, fixed[0], mp.mpf(level), 3)

            return float(mp.diff(formula, tuple(at), order))

        return np.asarray(list(map(of_kind, KINDS, CALLS, LEVELS)))


@pytest.mark.parametrize("strike", [80.0, 120.0])
def test_all_eight_kinds_and_their_greeks_are_the_published_formulas(strike):
    found = greeks(Barrier(strike, AT[3], LEVELS, KINDS, WORDS, 3.0), MODEL)
    orders = {"value": (0, 0, 0, 0), "delta": (1, 0, 0, 0), "gamma": (2, 0, 0, 0)}
    orders |= {"vega": (0, 1, 0, 0), "volga": (0, 2, 0, 0), "vanna": (1, 1, 0, 0)}
    orders |= {"rho": (0, 0, 1, 0), "theta": (0, 0, 0, 1)}
    for name, order in orders.items():
        exact = published(strike, order) * (-1.0 if name == "theta" else 1.0)
        np.testing.assert_allclose(
            getattr(found, name), exact, rtol=1e-11, atol=1e-12, err_msg=name
        )


def test_the_third_derivative_through_price():
    """Speed, the slope of Gamma."""
    product = Barrier(95.0, AT[3], LEVELS, KINDS, WORDS, 3.0)

    def at(spot):
        return price(product, dataclasses.replace(MODEL, spot=spot), throw=False).value

    third = jax.jit(jax.jacfwd(jax.jacfwd(jax.jacrev(at))))(jnp.asarray(SPOT))
    np.testing.assert_allclose(third, published(95.0, (3, 0, 0, 0)), rtol=1e-10)


@pytest.mark.parametrize("rate", [-0.2, 0.2])
def test_no_gradient_is_lost_in_what_a_contract_does_not_use(rate):
    """The unused powers of (barrier / spot) overflow here, and nothing times infinity is no number."""
    both = [barriers(side, "out", level, 3.0) for side, level in (("down", 90.0), ("up", 110.0))]
    total = lambda model: sum(price(each, model, throw=False).value.sum() for each in both)
    gradient = eqx.filter_jit(eqx.filter_vmap(jax.grad(total)))
    spots = jnp.asarray([1e-2, 90.5, 109.5, 200.0])
    models = eqx.filter_vmap(lambda spot: BlackScholes(spot, rate, 1e-3))(spots)
    for leaf in jax.tree.leaves(gradient(models)):
        assert np.all(np.isfinite(leaf))
