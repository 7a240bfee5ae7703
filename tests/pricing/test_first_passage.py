"""Continuous barriers by first-passage densities: closed forms, series, finite differences, bumped markets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Barrier,
    BlackScholes,
    ClosedForm,
    DoubleBarrier,
    DoubleTouch,
    FiniteDifference,
    FirstPassage,
    Heston,
    Touch,
    VolCurve,
    VolSurface,
    ZeroCurve,
    greeks,
    price,
)
from tests.helpers import double
from tests.pricing.test_double_barriers import LOWER, UPPER, at_hit, no_touch

pytestmark = double

RATES = ZeroCurve([0.25, 0.5, 1.0, 2.0], [0.02, 0.025, 0.035, 0.03])
SURFACE = VolSurface(
    [0.1, 0.5, 1.0],
    [80.0, 100.0, 120.0],
    [[0.25, 0.2, 0.18], [0.24, 0.21, 0.19], [0.23, 0.2, 0.19]],
)
FLAT = BlackScholes(100.0, 0.05, 0.2, 0.01)
FIGURES = ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga")
FINE = FiniteDifference(num_spots=480, num_steps=320)
KINDS = ["down-and-out", "down-and-in", "up-and-out", "up-and-in"]
LEVELS = [90.0, 90.0, 115.0, 115.0]
CONTRACTS = {
    "calls": Barrier(95.0, 0.8, LEVELS, KINDS, "call", 2.0),
    "puts": Barrier(105.0, 0.8, LEVELS, KINDS, "put", 2.0),
    "touches": Touch(115.0, 0.8, ["one-touch", "one-touch-at-expiry", "no-touch"], amount=10.0),
    "two barriers": DoubleBarrier(
        [95.0, 105.0], 80.0, 125.0, None, ["call", "put"], rebate=2.0, until=0.8
    ),
    "two touches": DoubleTouch(
        80.0, 125.0, 0.8, ["one-touch", "one-touch-at-expiry", "no-touch"], amount=10.0
    ),
}


def smiling(spot=100.0):
    return BlackScholes(spot, RATES, SURFACE, 0.01)


@pytest.mark.costly
def test_constant_coefficients_give_the_closed_form():
    """Pillars of flat curves leave no trace: the kernel is 0."""
    product = Barrier(95.0, [0.8] * 4, LEVELS, KINDS, "call")
    curves = BlackScholes(
        100.0, ZeroCurve([0.3, 1.0], [0.05] * 2), VolCurve([0.2, 1.0], [0.2] * 2), 0.01
    )
    found = greeks(product, curves, FirstPassage())
    wanted = greeks(product, FLAT, ClosedForm())
    for name in FIGURES:
        pair = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", ["no-touch", "one-touch"])
def test_two_touches_are_their_series(kind):
    flat = BlackScholes(100.0, 0.03, 0.2, 0.01)
    series = at_hit if kind == "one-touch" else no_touch
    wanted = [series(*ends) for ends in zip(LOWER, UPPER, strict=True)]
    found = price(DoubleTouch(LOWER, UPPER, 1.0, [kind] * 3, amount=50.0), flat, FirstPassage())
    np.testing.assert_allclose(found.value, 50.0 * np.array(wanted), atol=4e-5)
    finer = price(
        DoubleTouch(LOWER, UPPER, 1.0, [kind] * 3, amount=50.0), flat, FirstPassage(24, 12)
    )
    np.testing.assert_allclose(finer.value, 50.0 * np.array(wanted), atol=1e-7)


@pytest.mark.costly
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_smile_on_curves_gives_the_values_of_a_fine_grid(name):
    found, exact = (price(CONTRACTS[name], smiling(), m) for m in (FirstPassage(), FINE))
    np.testing.assert_allclose(found.value, exact.value, atol=3e-6)
    np.testing.assert_array_less(np.abs(found.value - exact.value), found.std_error + 2e-6)


@pytest.mark.costly
def test_greeks_are_those_of_bumped_models():
    product = Barrier([95.0] * 4, [0.8] * 4, LEVELS, KINDS, "call", 2.0)
    found = greeks(product, smiling(), FirstPassage())

    @jax.jit
    def at(spot, vol, rate, age):
        model = smiling().shifted(underlying=spot, vol=vol, rate=rate)
        return price(product.rolled(age), model, FirstPassage(), throw=False).value

    for place, (name, step) in enumerate(
        {"delta": 1e-2, "vega": 1e-4, "rho": 1e-4, "theta": 1e-3}.items()
    ):
        bump = step * np.eye(4)[place]
        slope = (at(*bump) - at(*-bump)) / (2.0 * step)
        np.testing.assert_allclose(getattr(found, name), slope, rtol=1e-5, atol=5e-5, err_msg=name)
    up, middle, down = (at(step, 0.0, 0.0, 0.0) for step in (1e-2, 0.0, -1e-2))
    np.testing.assert_allclose(found.gamma, (up - 2.0 * middle + down) / 1e-4, atol=2e-5)


def test_derivatives_to_quotes_are_differences_of_values():
    times = jnp.array([0.4, 0.9])
    up = Barrier(100.0, 1.0, 120.0, "up-and-out", rebate=1.0)

    @jax.jit
    def value(quotes):
        rates, vols = quotes
        model = BlackScholes(100.0, ZeroCurve(times, rates), VolCurve(times, vols), 0.01)
        return price(up, model, FirstPassage(), throw=False).value

    quotes = jnp.array([[0.01, 0.04], [0.2, 0.25]])
    found = jax.jit(jax.grad(value))(quotes)
    bumps = 1e-4 * np.eye(4).reshape(4, 2, 2)
    wanted = [float(value(quotes + bump) - value(quotes - bump)) / 2e-4 for bump in bumps]
    np.testing.assert_allclose(np.ravel(found), wanted, rtol=2e-5, atol=1e-5)  # of errors near 1e-9


@pytest.mark.costly
@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-5])
def test_beside_the_barrier_the_value_is_linear_in_the_distance(distance):
    """The probability of a hit nears 1, and the knock-out its rebate: errors stay below 1e-7 of the spot."""
    out = Barrier(100.0, 1.0, 120.0, "up-and-out", rebate=1.0)
    value = lambda spot: price(out, smiling(spot), FirstPassage()).value - 1.0
    slope = greeks(out, smiling(119.9), FirstPassage()).delta
    np.testing.assert_allclose(
        value(120.0 - distance), -slope * distance, atol=1e-5 + 1e-1 * distance**2
    )


@pytest.mark.costly
@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 4.0])
def test_far_and_wild_contracts_stay_between_nothing_and_the_vanilla(scale):
    """Vols of .02 to .8, barriers from beside the spot to out of reach, from a day to ten years."""
    vols = VolCurve([0.1, 1.0, 3.0], [0.2 * scale + 0.01, 0.2 * scale + 0.012, 0.2 * scale + 0.015])
    model = BlackScholes(100.0, RATES, vols)
    levels = jnp.array([99.99, 90.0, 50.0, 1e-3])
    for expiry in (1.0 / 365.0, 1.0, 10.0):
        product = Barrier(95.0, expiry, levels, "down-and-out")
        found = price(product, model, FirstPassage()).value
        whole = price(product.vanilla, model).value
        assert np.all(found >= -1e-6)
        assert np.all(found <= whole + 1e-6)
        np.testing.assert_allclose(found[-1], whole, rtol=1e-12)


def test_what_is_refused():
    with pytest.raises(TypeError, match="Heston has no lognormal spots"):
        price(CONTRACTS["calls"], Heston(100.0, 0.02, 0.04, 2.0, 0.04, 0.5, -0.5), FirstPassage())
    dated = Barrier(100.0, 1.0, 90.0, dates=[0.5, 1.0])
    with pytest.raises(TypeError, match="has no continuously monitored barrier"):
        price(dated, FLAT, FirstPassage())
    with pytest.raises(ValueError, match="num_nodes must be at least 2, got 1"):
        FirstPassage(num_nodes=1)


@pytest.mark.costly
def test_the_error_covers_where_pillars_are_many_and_vols_jump():
    """Half the panels alone stated 2e-5 where the error is 5e-4: the nodes between the pillars decide it."""
    vols = VolCurve([0.48, 1.98, 2.18, 3.26, 10.59], [0.0932, 0.0567, 0.0607, 0.0596, 0.0666])
    rates = ZeroCurve([2.35, 5.30, 9.89, 11.12], [0.0909, 0.0058, 0.0664, 0.0369])
    model = BlackScholes(100.0, rates, vols, 0.0693)
    option = Barrier(81.0, 10.0, 73.0, "down-and-out", "call", rebate=3.0)
    found, exact = price(option, model, FirstPassage()), price(option, model, FirstPassage(24, 12))
    error = abs(found.value - exact.value)
    assert 1e-5 < error < found.std_error < 10.0 * error
