"""Implied vols: round trip, no vol where there is none, derivatives of both orders, at the money exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.numerics.black import black
from pricing.numerics.implied_vol import implied_std, implied_vol
from tests.helpers import double, first_difference

pytestmark = double

STDS = np.geomspace(1e-3, 5.0, 40)
STD, DEVIATIONS = (x.ravel() for x in np.meshgrid(STDS, np.linspace(-36.0, 36.0, 73)))
K = STD * DEVIATIONS  # log(F / strike)


@jax.jit
def normalised(std, k):
    """Black's out-of-the-money value over sqrt(F K), and its side."""
    side = jnp.where(k > 0.0, -1.0, 1.0)
    return black(jnp.exp(0.5 * k), jnp.exp(-0.5 * k), std, side), side


def test_a_round_trip():
    """Down to values of 1e-200 of sqrt(F K). Beyond, where the value has no digits left, NaN or right."""
    value, side = normalised(jnp.asarray(STD), jnp.asarray(K))
    found = np.asarray(implied_std(value, jnp.asarray(K), side))
    is_wrong = np.abs(found / STD - 1.0) > 1e-10  # false for NaN
    assert not np.any(is_wrong)
    assert np.all(np.isfinite(found[np.abs(DEVIATIONS) <= 30.0]))


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_round_trip_of_calls_and_puts(side):
    """In the money too, as far as the time value is more than rounding."""
    strikes, vols = (x.ravel() for x in np.meshgrid(np.linspace(60.0, 160.0, 21), [0.1, 0.3, 1.0]))
    forward, expiry = jnp.full_like(strikes, 100.0), jnp.full_like(strikes, 0.7)
    side = jnp.full_like(strikes, side)
    values = black(forward, jnp.asarray(strikes), jnp.asarray(vols) * jnp.sqrt(expiry), side)
    found = jax.jit(implied_vol)(values, forward, jnp.asarray(strikes), expiry, side)
    time_value = np.asarray(values) - np.maximum(side * (100.0 - strikes), 0.0)
    clear = time_value > 1e-4
    assert np.mean(clear) > 0.8
    np.testing.assert_allclose(found[clear], vols[clear], rtol=1e-9)


@pytest.mark.parametrize(
    ("value", "strike", "side"),
    [
        (0.0, 110.0, 1.0),
        (-1.0, 110.0, 1.0),
        (10.0, 90.0, 1.0),
        (9.0, 90.0, 1.0),
        (100.0, 90.0, 1.0),
        (101.0, 110.0, 1.0),
        (10.0, 110.0, -1.0),
        (110.0, 110.0, -1.0),
        (np.nan, 100.0, 1.0),
    ],
)
def test_no_vol_gives_a_value_at_or_beyond_its_bounds(value, strike, side):
    numbers = (jnp.asarray(float(x)) for x in (value, 100.0, strike, 1.0, side))
    assert np.isnan(jax.jit(implied_vol)(*numbers))


@pytest.mark.parametrize("std", [1e-3, 0.2, 5.0])
def test_at_the_money_exactly(std):
    """b = 2 N(std / 2) - 1; there the vol has a slope in the value, and a finite second derivative."""
    point = (*normalised(jnp.asarray(std), jnp.asarray(0.0)), jnp.asarray(0.0))
    value, side, k = point
    np.testing.assert_allclose(implied_std(value, k, side), std, rtol=1e-12)
    slope = jax.grad(implied_std)(value, k, side)
    np.testing.assert_allclose(slope, np.sqrt(2.0 * np.pi) * np.exp(std**2 / 8.0), rtol=1e-9)


@jax.jit
def smile_point(point, side):
    """The vol at (value, log-moneyness), for a strike of 1 and an expiry of 1."""
    value, k = point
    one = jnp.ones_like(k)
    return implied_vol(value, jnp.exp(k), one, one, side)


gradient = jax.jit(jax.grad(smile_point))
hessian = jax.jit(jax.hessian(smile_point))


def out_of_the_money_point(std, deviations):
    """(value, k), the side that is out of the money, and steps in proportion."""
    k, side = std * deviations, -1.0 if deviations > 0.0 else 1.0
    value = black(*map(jnp.asarray, (np.exp(k), 1.0, std, side)))
    return np.array([value, k]), jnp.asarray(side), np.diag([0.01 * value, 0.01 * std])


GRID = pytest.mark.parametrize("std", [0.02, 0.2, 1.5])


@GRID
@pytest.mark.parametrize("deviations", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_first_derivatives(std, deviations):
    point, side, steps = out_of_the_money_point(std, deviations)
    for i, step in enumerate(steps):
        quotient = first_difference(
            lambda h, step=step: smile_point(jnp.asarray(point + h * step), side), 1.0
        )
        found = gradient(jnp.asarray(point), side)[i] * step[i]
        np.testing.assert_allclose(found, quotient, rtol=1e-6)


@GRID
@pytest.mark.parametrize("deviations", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_second_derivatives(std, deviations):
    """Against differences of the gradient."""
    point, side, steps = out_of_the_money_point(std, deviations)
    found = steps @ np.asarray(hessian(jnp.asarray(point), side)) @ steps
    for i, step in enumerate(steps):
        slope = lambda h, step=step: steps @ gradient(jnp.asarray(point + h * step), side)
        quotient = first_difference(slope, 1.0)
        np.testing.assert_allclose(found[i], quotient, rtol=1e-6, atol=1e-9 * std)


@double
@pytest.mark.parametrize("deviations", [20.0, 30.0, 36.0])
def test_derivatives_of_a_round_trip_are_zero_far_in_the_wings(deviations):
    """Values of 1e-90 to 1e-285: a square of vega would underflow, and did, to NaN."""
    std, call, one = map(jnp.asarray, (0.1, 1.0, 1.0))
    strike = jnp.exp(deviations * std)

    def round_trip(forward):
        value = black(forward, strike, std, call) / jnp.sqrt(forward * strike)
        return implied_std(value, jnp.log(forward / strike), call)

    slope = jax.grad(round_trip)
    np.testing.assert_allclose([slope(one), jax.grad(slope)(one)], 0.0, atol=1e-7)
