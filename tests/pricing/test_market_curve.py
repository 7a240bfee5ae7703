"""Curves and surfaces: their values between and outside the pillars, and their derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from pricing import BlackScholes, European, greeks, price
from pricing.market import SwaptionVols, VolCurve, VolSurface, ZeroCurve

TOLERANCE = 1e-12 if jnp.zeros(()).dtype == jnp.float64 else 1e-5
TIMES, RATES = [0.0, 0.5, 2.0], [0.03, 0.035, 0.05]
EXPIRIES, STRIKES = [0.25, 1.0, 2.0], [80.0, 100.0, 130.0]
VOLS = [[0.35, 0.3, 0.28], [0.32, 0.29, 0.27], [0.3, 0.28, 0.26]]


@pytest.fixture
def curve():
    return ZeroCurve(TIMES, RATES)


@pytest.fixture
def surface():
    return VolSurface(EXPIRIES, STRIKES, VOLS)


@pytest.mark.parametrize(
    ("t", "rate"), [(0, 0.03), (0.25, 0.0325), (0.5, 0.035), (1.25, 0.0425), (2, 0.05), (9.0, 0.05)]
)
def test_zero_rate_is_linear_between_pillars_and_flat_outside(curve, t, rate):
    np.testing.assert_allclose(curve.zero_rate(t), rate, rtol=TOLERANCE)
    np.testing.assert_allclose(curve.discount(t), np.exp(-rate * t), rtol=TOLERANCE)


def test_curve_takes_arrays_as_it_takes_scalars(curve):
    t = jnp.array([[0.0, 0.3], [1.0, 7.0]])
    discount = eqx.filter_jit(curve.discount)
    one_by_one = [[discount(x) for x in row] for row in np.asarray(t)]
    np.testing.assert_allclose(discount(t), one_by_one, rtol=TOLERANCE)
    np.testing.assert_allclose(jax.vmap(discount)(t), one_by_one, rtol=TOLERANCE)


def test_curve_slope_is_the_right_one_at_an_inner_pillar_and_zero_outside(curve):
    slope = jax.grad(curve.zero_rate)
    np.testing.assert_allclose(slope(0.5), 0.01, rtol=1e3 * TOLERANCE)
    assert slope(3.0) == 0.0


@pytest.mark.parametrize("t", [0.2, 1.1, 4.0])
def test_curve_gradients_agree_with_differences(t):
    args = (0.05 + jnp.array(TIMES), jnp.array(RATES), jnp.array(t))  # differences move the first
    check_grads(lambda times, rates, t: ZeroCurve(times, rates).discount(t), args, order=1)


@pytest.mark.parametrize(("index", "t"), list(enumerate(TIMES)))
def test_the_rate_at_a_pillar_belongs_to_that_pillar(curve, index, t):
    gradient = jax.grad(lambda c: c.zero_rate(t))(curve)
    np.testing.assert_array_equal(gradient.zero_rates, np.eye(3)[index])


def test_a_curve_of_one_pillar_is_flat():
    np.testing.assert_allclose(ZeroCurve([1], [0.02]).zero_rate(jnp.array([0.0, 5.0])), 0.02)


def test_surface_interpolates_total_variance_in_time_and_vol_in_strike(surface):
    at_90 = np.array([0.325, 0.305, 0.29])
    np.testing.assert_allclose(surface.vol(1.0, 90.0), at_90[1], rtol=TOLERANCE)
    variance = 0.5 * (at_90[1] ** 2 * 1.0 + at_90[2] ** 2 * 2.0)
    np.testing.assert_allclose(surface.vol(1.5, 90), np.sqrt(variance / 1.5), rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("t", "strike", "vol"),
    [
        (0.01, 80.0, 0.35),
        (0.0, 90.0, 0.325),
        (9.0, 100.0, 0.28),
        (1.0, 1.0, 0.32),
        (5.0, 1e4, 0.26),
    ],
)
def test_surface_is_flat_in_vol_outside_the_pillars(surface, t, strike, vol):
    np.testing.assert_allclose(surface.vol(t, strike), vol, rtol=TOLERANCE)


def test_surface_broadcasts_times_and_strikes(surface):
    strikes = jnp.array([70.0, 101.0, 125.0])
    vol = eqx.filter_jit(surface.vol)
    by_hand = [vol(0.7, strike) for strike in np.asarray(strikes)]
    np.testing.assert_allclose(vol(0.7, strikes), by_hand, rtol=TOLERANCE)
    grid = vol(jnp.array([[0.1], [0.7]]), strikes[None, :])
    np.testing.assert_allclose(grid[1], by_hand, rtol=TOLERANCE)


@pytest.mark.parametrize(("t", "strike"), [(0.1, 85.0), (0.6, 77.0), (1.4, 111.0), (3.0, 140.0)])
def test_surface_gradients_agree_with_differences(t, strike):
    args = tuple(map(jnp.array, (EXPIRIES, VOLS, t, strike)))
    strikes = jnp.array(STRIKES)
    check_grads(lambda e, v, t, k: VolSurface(e, strikes, v).vol(t, k), args, order=1)


def test_the_vol_at_a_pillar_belongs_to_that_pillar(surface):
    for row, expiry in enumerate(EXPIRIES):
        for column, strike in enumerate(STRIKES):
            gradient = jax.grad(lambda s, e=expiry, k=strike: s.vol(e, k))(surface).vols
            expected = np.zeros((3, 3))
            expected[row, column] = 1.0
            np.testing.assert_allclose(gradient, expected, atol=TOLERANCE)


def test_gradients_are_finite_at_time_zero(surface):
    gradient = jax.grad(lambda s, t: s.vol(t, 90.0), argnums=(0, 1))(surface, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_precision_follows_the_inputs():
    def single(values):
        return np.asarray(values, np.float32)

    curve = ZeroCurve(single(TIMES), single(RATES))
    surface = VolSurface(single(EXPIRIES), single(STRIKES), single(VOLS))
    assert curve.discount(1).dtype == curve.zero_rate(single([1, 2])).dtype == np.float32
    assert surface.vol(1, 100.0).dtype == np.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ZeroCurve([0.0, 1.0], [0.01]), "one zero rate for each"),
        (lambda: ZeroCurve([], []), "give at least one"),
        (lambda: VolSurface([1.0], [90.0, 100.0], [[0.2]]), r"array of shape \(1, 2\)"),
        (lambda: SwaptionVols([1.0, 2.0], [1.0], [[0.2]]), r"array of shape \(2, 1\)"),
    ],
)
def test_shapes_that_do_not_belong_together_raise(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_no_slope_hangs_on_which_argument_equals_a_maximum(curve, surface):
    """The derivatives of the primitives max and min ask that; where a number is rounded twice, neither may."""
    for function in (
        curve.discount,
        lambda t: surface.vol(t, 95.0),
        VolCurve([0.5, 1.0], [0.2, 0.3]).total_variance,
    ):
        program = str(jax.make_jaxpr(function)(0.7))
        assert " max " not in program and " min " not in program and "clamp" not in program


ROLLED = 1e-6


@pytest.mark.parametrize(("t", "side"), [(0.5, 1.0), (1.0, 1.0), (2.0, -1.0)])
def test_the_slope_in_time_is_that_inside_at_both_ends_and_to_the_right_between(t, side):
    """At the last pillar it is the slope to the left: where an option's expiry is tomorrow."""
    times, rates, vols = [0.5, 1.0, 2.0], [0.02, 0.03, 0.035], [0.25, 0.2, 0.22]
    surface = VolSurface(times, [90.0, 110.0], [[vol, vol - 0.02] for vol in vols])
    for function in (
        ZeroCurve(times, rates).zero_rate,
        VolCurve(times, vols).total_variance,
        lambda t: surface.vol(t, 97.0),
    ):
        one_sided = side * (function(t + side * ROLLED) - function(t)) / ROLLED
        np.testing.assert_allclose(jax.grad(function)(t), one_sided, rtol=1e-4)


def test_theta_at_the_last_pillar_is_that_of_an_earlier_expiry():
    """Half the slope of the curve was in it once."""
    curve = ZeroCurve([0.5, 1.0], [0.02, 0.06])
    for vol in (VolCurve([0.5, 1.0], [0.2, 0.25]), VolSurface([0.5, 1.0], [90.0], [[0.2], [0.25]])):
        model = BlackScholes(100.0, curve, vol)
        value = lambda t, model=model: price(European(100.0, t), model).value
        fallen = (value(1.0 - ROLLED) - value(1.0)) / ROLLED
        np.testing.assert_allclose(greeks(European(100.0, 1.0), model).theta, fallen, rtol=1e-4)
