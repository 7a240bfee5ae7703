"""Bates: its limits, published engines' values, and the DAX surface, which its jumps fit better than Heston."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import RESULTS, ImpliedVolError, calibrate
from calibration.objectives import model_vols
from pricing import Bates, BlackScholes, ClosedForm, European, Fourier, Heston, VolSurface, price
from tests import references
from tests.helpers import curve, dax, double

pytestmark = double

_HESTON = (0.04, 1.5, 0.06, 0.6, -0.7)
_JUMPS = (0.4, -0.1, 0.15)


@eqx.filter_jit
def value(product, model):
    return price(product, model, Fourier()).value


def test_the_values_are_those_of_quantlib():
    """`BatesEngine`, calls, to 1e-8 of a spot of 100."""
    for parameters, values in references.BATES_CALLS.items():
        model = Bates(100.0, 0.03, *parameters, dividend_yield=0.01)
        for (strike, expiry), expected in values.items():
            np.testing.assert_allclose(value(European(strike, expiry), model), expected, atol=1e-8)


def test_without_jumps_it_is_heston():
    heston, bates = (
        Heston(100.0, curve(), *_HESTON),
        Bates(100.0, curve(), *_HESTON, 0.0, -0.1, 0.2),
    )
    u, t = jnp.asarray(np.linspace(0.1, 40.0, 9) - 0.5j), jnp.asarray(0.7)
    found, expected = (model.log_characteristic(u, t) for model in (bates, heston))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert bates.total_variance(t) == heston.total_variance(t)
    assert bates.tail_rate(t) == heston.tail_rate(t)


def merton(strike: float, expiry: float, vol: float, jumps: tuple[float, float, float]) -> float:
    """Merton (1976), eq. 19: given n jumps the law is lognormal; of a call, spot 100, rate 3 %."""
    intensity, mean, delta = jumps
    m = math.expm1(mean + 0.5 * delta**2)
    total = 0.0
    for n in range(40):
        spot = 100.0 * math.exp(-intensity * m * expiry + n * (mean + 0.5 * delta**2))
        sigma = math.sqrt(vol**2 + n * delta**2 / expiry)
        given = price(European(strike, expiry), BlackScholes(spot, 0.03, sigma), ClosedForm()).value
        weight = (intensity * expiry) ** n / math.factorial(n) * math.exp(-intensity * expiry)
        total += weight * float(given)
    return total


@pytest.mark.parametrize("strike", [80.0, 105.0])
def test_with_a_variance_that_stands_still_it_is_mertons_series(strike):
    still = Bates(100.0, 0.03, 0.04, 1.0, 0.04, 1e-6, 0.0, *_JUMPS)
    expected = merton(strike, 0.8, 0.2, _JUMPS)
    np.testing.assert_allclose(value(European(strike, 0.8), still), expected, rtol=1e-9)


def test_calls_less_puts_are_the_forward():
    model, t = Bates(100.0, curve(), *_HESTON, *_JUMPS, 0.01), jnp.asarray(0.9)
    call, put = (value(European(95.0, 0.9, side), model) for side in ("call", "put"))
    expected = model.discount(t) * (model.forward(t) - 95.0)
    np.testing.assert_allclose(call - put, expected, rtol=1e-10)


def test_the_scale_of_the_law_is_its_second_cumulant_without_the_leverage():
    """The variance of log S_T is that of the jumps more than under Heston."""
    t = jnp.asarray(0.7)

    def variance(model):
        cumulant = lambda s: jnp.real(model.log_characteristic(-1j * s[None], t))[0]
        return jax.grad(jax.grad(cumulant))(jnp.asarray(0.01))

    heston, bates = Heston(100.0, 0.0, *_HESTON), Bates(100.0, 0.0, *_HESTON, *_JUMPS)
    more = bates.total_variance(t) - heston.total_variance(t)
    np.testing.assert_allclose(more, 0.4 * 0.7 * (0.1**2 + 0.15**2), rtol=1e-12)
    np.testing.assert_allclose(variance(bates) - variance(heston), more, rtol=0.01)


# --- calibration ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_dax():
    return calibrate(dax().equities["DAX"].surface, Bates.starting_on(dax(), "DAX"), num_starts=8)


@pytest.mark.costly
def test_the_dax_of_5_july_2002(on_dax):
    """Jumps leave .63 vol points where Heston leaves 1.32, and what is not jumps is a calmer Heston."""
    assert on_dax.result == RESULTS.converged
    assert abs(on_dax.stats["sum_squared_vol_points"] - 41.6396) < 1e-3
    assert on_dax.stats["sum_squared_vol_points"] < references.DAX_SSE_AT_OPTIMUM
    assert on_dax.stats["starts_at_optimum"] >= 7
    assert on_dax.model.vol_of_vol < 0.5 * references.DAX_OPTIMUM["vol_of_vol"]


@pytest.mark.costly
def test_vols_of_the_fit_are_those_of_prices_on_many_nodes(on_dax):
    """The paths of the calibration are turned; those of the price are straight where the phase asks for it."""
    model, quotes = on_dax.model, dax().equities["DAX"].surface
    wide = VolSurface(quotes.expiries[jnp.array([0, 7])], quotes.strikes, quotes.vols[:2])
    found = eqx.filter_jit(model_vols)(model, wide, ImpliedVolError().num_nodes)

    @eqx.filter_jit
    def prices(vols):
        def of_one(expiry, strike, vol):
            call = European(strike, expiry)
            flat = BlackScholes(model.spot, model.rate, vol, model.dividend_yield)
            ours = Fourier(1024).samples(call.canonical, model)
            return ours, ClosedForm().samples(call.canonical, flat)

        of_row = jax.vmap(of_one, (None, 0, 0))
        return jax.vmap(of_row, (0, None, 0))(wide.expiries, wide.strikes, vols)

    exact, again = prices(found)
    np.testing.assert_allclose(again, exact, atol=1e-6 * float(model.spot))
