"""Implied vols of products: the vol that a value was computed at, its slope, and what has none."""

import jax
import numpy as np
import pytest

from pricing import (
    American,
    Asian,
    Barrier,
    BlackScholes,
    Digital,
    European,
    MonteCarlo,
    ZeroCurve,
    greeks,
    implied_vol,
    price,
)
from tests.helpers import double

pytestmark = double

CURVE = ZeroCurve([0.5, 2.0], [0.02, 0.04])
VOLS = np.array([0.05, 0.2, 0.8])


def market(vol=0.2):
    return BlackScholes(100.0, CURVE, vol, 0.01)


@pytest.mark.parametrize("option", ["call", "put"])
def test_european_options_in_a_grid(option):
    """Strikes far into both wings, where the value determines the vol: to 1e-9."""
    strikes, vols = np.meshgrid(np.geomspace(40.0, 250.0, 11), VOLS)
    product = European(strikes, 0.75, option)
    values = np.stack([price(European(strikes[0], 0.75, option), market(v)).value for v in VOLS])
    intrinsic = price(product, market(1e-8)).value
    found = implied_vol(values, product, market(), throw=False)
    clear = values - intrinsic > 1e-6 * intrinsic
    assert np.mean(clear) > 0.6
    np.testing.assert_allclose(found[clear], vols[clear], rtol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize(
    "product",
    [
        American([90.0, 100.0, 108.0, 115.0], 0.75, "put"),
        Digital([90.0, 100.0, 108.0, 115.0], 0.75, "put"),
        Barrier(100.0, 0.75, [80.0, 85.0, 90.0, 95.0], "down-and-in", option="put"),
    ],
    ids=lambda product: type(product).__name__,
)
def test_the_vol_of_a_value_is_that_it_was_computed_at(product):
    flat = BlackScholes(100.0, 0.03, 0.23, 0.01)
    found = implied_vol(price(product, flat).value, product, flat)
    repriced = [price(product, BlackScholes(100.0, 0.03, vol, 0.01)).value for vol in found]
    np.testing.assert_allclose(np.diag(repriced), price(product, flat).value, rtol=1e-9)
    if not isinstance(product, Digital):  # whose values two vols may give
        np.testing.assert_allclose(found, 0.23, rtol=1e-8)
    if isinstance(product, American):  # at 115 exercise today is best at every vol below one
        exercised = implied_vol([1.0, 4.0, 10.0, 15.0], product, flat, throw=False)
        assert np.isnan(exercised).tolist() == [False, False, False, True]
        # below what exercise pays, and above the strike
        none = implied_vol([1.0, 4.0, 7.0, 120.0], product, flat, throw=False)
        assert np.isnan(none).tolist() == [False, False, True, True]


@pytest.mark.costly
def test_the_slope_is_one_over_vega():
    flat = BlackScholes(100.0, 0.03, 0.23, 0.01)
    put = Barrier(100.0, 0.75, 90.0, "down-and-in", option="put")
    found = greeks(put, flat)
    slope = jax.grad(lambda value: implied_vol(value, put, flat))
    np.testing.assert_allclose(slope(found.value), 1.0 / found.vega, rtol=1e-5)
    with pytest.raises(TypeError, match="only the implied vol of a European option has second"):
        jax.grad(slope)(found.value)


@pytest.mark.costly
def test_values_of_one_contract_and_of_simulated_prices():
    """Many values of one contract; and a value by Monte Carlo, at whose own noise the vol is exact."""
    found = implied_vol([4.0, 6.0, 8.0], European(100.0, 0.5), market())
    assert found.shape == (3,)
    np.testing.assert_allclose(price(European(100.0, 0.5), market(found[1])).value, 6.0, rtol=1e-12)
    asian, method = Asian(100.0, [0.5, 1.0]), MonteCarlo(num_paths=4096)
    value = price(asian, market(0.31), method, key=jax.random.key(3)).value
    vol = implied_vol(value, asian, market(), method, key=jax.random.key(3))
    np.testing.assert_allclose(vol, 0.31, rtol=1e-7)
    of_value = lambda value: implied_vol(value, asian, market(), method, key=jax.random.key(3))
    vega = greeks(asian, market(0.31), method, key=jax.random.key(3)).vega
    np.testing.assert_allclose(jax.grad(of_value)(value), 1.0 / vega, rtol=1e-6)


def test_what_has_no_vol():
    with pytest.raises(RuntimeError, match=r"no volatility gives this value.*contract 0, 2\)"):
        implied_vol([0.0, 5.0, 120.0], European(100.0, 0.5), market())
    with pytest.raises(TypeError, match="the model has 2 assets"):
        implied_vol(5.0, European(100.0, 1.0), BlackScholes([100.0, 90.0], 0.0, 0.2))
    with pytest.raises(TypeError, match="model is"):
        implied_vol(5.0, European(100.0, 1.0), 0.2)
