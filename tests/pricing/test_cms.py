"""CMS coupons beyond the values of `jaxtape validate`: convexity in closed form, smiles, what is refused."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from pricing import CapletVols, CmsCoupon, ForwardRates, price
from pricing.numerics.black import bachelier
from tests.helpers import double

COUPON = CmsCoupon(4.0, 5.0, [5.0, 6.0, 7.0], [1.0, 1.0, 1.0])
BONDS = np.exp(-0.03 * np.array([5.0, 6.0, 7.0]))
ANNUITY, RATE = BONDS.sum(), (np.exp(-0.12) - BONDS[-1]) / BONDS.sum()


def slope() -> float:
    """a of P / A = a R + b where zero rates move in parallel: both have a slope in the level of rates."""
    years = np.array([1.0, 2.0, 3.0])
    of_annuity = BONDS @ years / ANNUITY
    of_rate = (BONDS[-1] * 3.0 + RATE * ANNUITY * of_annuity) / ANNUITY
    return BONDS[0] / ANNUITY * (of_annuity - 1.0) / of_rate


@double
@pytest.mark.parametrize(
    ("law", "variance"),
    [("lognormal", RATE**2 * np.expm1(0.2**2 * 4.0)), ("normal", 0.2**2 * 4.0)],
)
def test_the_convexity_of_one_vol_is_the_variance_of_the_rate(law, variance):
    value = price(COUPON, ForwardRates(0.03, 0.2, law=law)).value
    np.testing.assert_allclose(value, BONDS[0] * RATE + ANNUITY * slope() * variance, rtol=1e-13)


@double
def test_a_smile_weighs_the_swaptions_of_all_strikes():
    strikes, vols = [0.0, 0.02, 0.03, 0.05], [0.0095, 0.008, 0.0078, 0.009]
    model = ForwardRates(0.03, CapletVols([4.0], strikes, [vols], kind="normal"))

    def swaption(strike, side):
        std = 2.0 * np.interp(strike, strikes, vols)
        return float(bachelier(jnp.array(RATE), jnp.array(strike), jnp.array(std), jnp.array(side)))

    settings = {"points": [*strikes, RATE], "limit": 200, "epsabs": 1e-13}
    below, _ = quad(swaption, RATE - 0.18, RATE, (-1.0,), **settings)
    above, _ = quad(swaption, RATE, RATE + 0.18, (1.0,), **settings)
    expected = BONDS[0] * RATE + 2.0 * ANNUITY * slope() * (below + above)
    convexity = expected - BONDS[0] * RATE
    found = float(price(COUPON, model).value) - BONDS[0] * RATE
    np.testing.assert_allclose(found, convexity, rtol=1e-9)


@double
def test_a_caplet_less_a_floorlet_is_the_coupon_less_its_strike():
    model = ForwardRates(0.03, 0.25, shift=0.02, mean_reversion=0.03)
    terms = {"strike": [-0.015, 0.01, RATE, 0.04, 0.3]}
    cap, floor = (
        price(dataclasses.replace(COUPON, option=option, **terms), model).value
        for option in ("cap", "floor")
    )
    coupon = price(COUPON, model).value
    np.testing.assert_allclose(
        cap - floor, coupon - BONDS[0] * np.array(terms["strike"]), rtol=1e-11
    )
    assert np.all(np.diff(cap) < 0.0) and np.all(cap > 0.0) and np.all(floor >= 0.0)


def test_what_has_no_value_is_refused():
    with pytest.raises(ValueError, match="give one for each payment"):
        CmsCoupon(4.0, 5.0, [5.0, 6.0], [1.0])
    with pytest.raises(TypeError, match="resets of the coupon's swap"):
        price(COUPON, ForwardRates(0.03, 0.2, 0.035))
    found = price(COUPON, ForwardRates(-0.03, 0.2, shift=0.01), throw=False)
    assert jnp.isnan(found.value)
