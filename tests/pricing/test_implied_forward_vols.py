"""Implied vols of options on forwards: Bachelier's and Black's with a shift, beside mpmath and QuantLib."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import QuantLib as ql

from pricing import implied_black_vol, implied_normal_vol
from pricing.numerics.black import bachelier, black
from tests.helpers import double

DISTANCES = [1e-12, 1e-9, 2e-8, 1e-4, 0.01, 0.3, 1.0, 4.0, 10.0, 20.0, 30.0, 36.5]  # |F - K| over s


def _exact(distance: float) -> float:
    """The value of an option out of the money by s 0.01 times the distance."""
    with mpmath.workdps(60):
        x = mpmath.mpf(0.01 * distance)
        d = x / mpmath.mpf(0.01)
        return float(mpmath.mpf(0.01) * mpmath.npdf(d) - x * mpmath.ncdf(-d))


@double
def test_a_normal_vol_has_all_digits_at_the_money_and_in_the_wings():
    values = [_exact(distance) for distance in DISTANCES]
    strikes = 0.01 * np.array(DISTANCES)
    for option, sign in (("call", 1.0), ("put", -1.0)):
        found = implied_normal_vol(values, 0.0, sign * strikes, 4.0, option)
        np.testing.assert_allclose(found, 0.005, rtol=2e-15)


@double
def test_both_vols_are_those_of_quantlib():
    rng = np.random.default_rng(1)
    for _ in range(50):
        forward, strike = rng.uniform(-0.01, 0.05, 2)
        expiry, option = rng.uniform(0.1, 10.0), rng.choice(["call", "put"])
        kind = ql.Option.Call if option == "call" else ql.Option.Put
        value = ql.bachelierBlackFormula(kind, strike, forward, 0.008 * expiry**0.5, 1.0)
        found = implied_normal_vol(value, forward, strike, expiry, option)
        peer = ql.bachelierBlackFormulaImpliedVol(kind, strike, forward, expiry, value, 1.0)
        np.testing.assert_allclose(found, peer, rtol=1e-9)
        value = ql.blackFormula(kind, strike, forward, 0.3 * expiry**0.5, 1.0, 0.03)
        found = implied_black_vol(value, forward, strike, expiry, option, shift=0.03)
        np.testing.assert_allclose(found, 0.3, rtol=1e-9)


@double
@pytest.mark.parametrize("law", ["normal", "shifted"])
def test_derivatives_of_both_orders_are_those_of_differences(law):
    shift, std = (0.0, 0.01) if law == "normal" else (0.03, 0.3)
    formula = bachelier if law == "normal" else black
    strikes = jnp.array([0.01, 0.02, 0.045])
    value = formula(jnp.full(3, 0.02 + shift), strikes + shift, jnp.full(3, std), jnp.ones(3))

    def vol(value, forward, strike):
        if law == "normal":
            return implied_normal_vol(value, forward, strike, 1.0)
        return implied_black_vol(value, forward, strike, 1.0, shift=shift)

    slopes = jax.vmap(jax.grad(vol, (0, 1, 2)))
    point = value, jnp.full(3, 0.02), strikes
    np.testing.assert_allclose(jax.vmap(vol)(*point), std, rtol=1e-11)
    curvatures = jax.vmap(jax.hessian(vol, (0, 1, 2)))(*point)
    h = 1e-6 * value, 1e-6, 1e-6
    for i in range(3):
        up, down = (
            tuple(x + s * h[i] if i == k else x for k, x in enumerate(point)) for s in (1, -1)
        )
        apart = (jax.vmap(vol)(*up) - jax.vmap(vol)(*down)) / (2 * h[i])
        np.testing.assert_allclose(slopes(*point)[i], apart, rtol=1e-6)
        for k in range(3):
            apart = (slopes(*up)[k] - slopes(*down)[k]) / (2 * h[i])
            np.testing.assert_allclose(curvatures[i][k], apart, rtol=1e-5, atol=1e-4)


@double
def test_no_vol_gives_a_value_at_or_below_intrinsic():
    with pytest.raises(RuntimeError, match="vol"):
        implied_normal_vol(1.0, 3.0, 2.0, 1.0)
    found = implied_normal_vol([1.0, 1.1, 0.0, -1.0], 3.0, 2.0, 1.0, throw=False)
    np.testing.assert_array_equal(np.isnan(found), [True, False, True, True])
    found = implied_black_vol(0.001, [0.01, -0.02, 0.01], [0.02, 0.0, -0.03], 1.0, throw=False)
    np.testing.assert_array_equal(np.isnan(found), [False, True, True])
    with pytest.raises(ValueError, match="expiry must be above 0"):
        implied_normal_vol(0.01, 0.03, 0.02, 0.0)
    with pytest.raises(ValueError, match="option must be one of"):
        implied_black_vol(0.01, 0.03, 0.02, 1.0, "cap")


def test_single_precision():
    strikes, ones = jnp.array([0.0, 0.02, 0.03]), jnp.ones(3)
    value = bachelier(0.02 * ones, strikes, 0.01 * ones, -ones)
    found = implied_normal_vol(value, 0.02, strikes, 1.0, "put")
    np.testing.assert_allclose(found, 0.01, rtol=1e-4)
