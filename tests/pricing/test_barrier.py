"""Barrier options under Black-Scholes: parity, quadrature, limits, and a spot that has already touched."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
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
    density = lambda y: np.exp(-0.5 * ((y - drift * t) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))  # noqa: E731
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


def test_a_rebate_at_the_hit_without_a_real_formula_is_refused():
    """mu^2 + 2 r / sigma^2 < 0: no number rather than a wrong one; the Greeks without a rebate are finite."""
    model = BlackScholes(SPOT, -0.005, 0.15, -0.005)
    found = price(Barrier(100.0, 1.0, 90.0, rebate=[0.0, 3.0]), model, throw=False).value
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
    assert greeks(Barrier(100.0, 1.0, 90.0), model).result == RESULTS.successful


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
