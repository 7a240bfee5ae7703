"""SSVI: no arbitrage at any parameters, fits, and quotes with an arbitrage smoothed for local volatility."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import Logistic, calibrate
from pricing import Barrier, BlackScholes, European, LocalVol, Ssvi, VolCurve, price
from pricing.methods import ClosedForm, FiniteDifference
from pricing.valuation import unsupported_reason
from tests.helpers import curve, dax, double

pytestmark = double

TERMS = VolCurve([0.25, 1.0, 2.0], [0.24, 0.22, 0.21])


def model(rho=-0.6, curvature=0.5, power=0.4):
    return Ssvi(100.0, curve(), TERMS, rho, curvature, power, 0.02)


@pytest.mark.parametrize("rho", [-0.95, 0.0, 0.95])
@pytest.mark.parametrize("curvature", [0.01, 0.999])
@pytest.mark.parametrize("power", [0.01, 0.499])
def test_no_parameters_admit_an_arbitrage(rho, curvature, power):
    """The density, Gatheral (2006) eq. 1.10, and the growth of the total variance are above 0 everywhere."""
    slices = lambda t, k: model(rho, curvature, power).total_variance(t, k)
    times, k = jnp.asarray([0.01, 0.25, 0.3, 1.0, 5.0]), jnp.linspace(-3.0, 3.0, 241)

    @jax.jit
    def numbers(t):
        along = lambda k: slices(t, k)
        w, w1 = jax.vmap(jax.value_and_grad(along))(k)
        w2 = jax.vmap(jax.grad(jax.grad(along)))(k)
        growth = jax.vmap(lambda k: jax.grad(slices)(t, k))(k)
        return (1.0 - 0.5 * k * w1 / w) ** 2 - 0.25 * w1**2 * (1.0 / w + 0.25) + 0.5 * w2, growth

    for t in times:
        density, growth = numbers(t)
        assert jnp.all(density > 0.0)
        assert jnp.all(growth > 0.0)


def test_the_vol_at_the_forward_is_that_of_the_curve():
    t = jnp.asarray(0.6)
    found = model().black_vol(t, model().forward(t))
    np.testing.assert_allclose(found, jnp.sqrt(TERMS.total_variance(t) / t), rtol=1e-12)
    up = model().with_vol_shift(0.01)
    np.testing.assert_allclose(up.black_vol(jnp.asarray(1.0), up.forward(jnp.asarray(1.0))), 0.23)


def test_a_fit_finds_the_parameters_that_quotes_are_from():
    truth = model()
    quotes = truth.surface(TERMS.times, np.linspace(60.0, 150.0, 13))
    start = Ssvi(100.0, curve(), VolCurve(TERMS.times, [0.3, 0.3, 0.3]), -0.2, 0.3, 0.2, 0.02)
    found = calibrate(quotes, start.starting_for(quotes))
    assert not found.has_failed
    for name in Ssvi.free_parameters:
        fitted, known = (getattr(each, name) for each in (found.model, truth))
        pair = [x.vols if isinstance(x, VolCurve) else x for x in (fitted, known)]
        np.testing.assert_allclose(*pair, rtol=1e-6)


@functools.cache
def dax_fit():
    return calibrate(dax().equities["DAX"].surface, Ssvi.starting_on(dax(), "DAX"))


@pytest.mark.costly
def test_quotes_with_an_arbitrage_price_under_local_volatility_once_they_are_smooth():
    """Of 104 quotes eleven parameters leave .77 vol points, where the 24 of SABR leave .42."""
    quotes, fitted = dax().equities["DAX"].surface, dax_fit()
    rms = 100.0 * np.sqrt(np.nanmean(np.asarray(fitted.residuals) ** 2))
    assert rms < 0.77
    assert LocalVol.from_market(dax(), "DAX", surface=quotes).arbitrages()
    smooth = fitted.model.surface(quotes.expiries, np.linspace(2000.0, 9000.0, 71))
    local = LocalVol.from_market(dax(), "DAX", surface=smooth)
    assert not local.arbitrages()
    options = European([4000.0, 4500.0, 5000.0], quotes.expiries[3])
    exact = price(options, fitted.model, ClosedForm()).value
    found = price(options, local, FiniteDifference()).value
    np.testing.assert_allclose(found, exact, atol=1e-4 * 4468.17)


def test_its_surface_is_a_vol_of_black_and_scholes():
    surface = model().surface([0.25, 0.5, 1.0, 2.0], np.linspace(40.0, 220.0, 91))
    flat = BlackScholes(100.0, curve(), surface, 0.02)
    option = European(110.0, 1.0)
    found, exact = price(option, flat), price(option, model())
    np.testing.assert_allclose(found.value, exact.value, rtol=1e-12)
    assert unsupported_reason(Barrier(110.0, 1.0, 90.0), flat, FiniteDifference()) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"power": 0.5}, "power must be a number between 0 and 0.5, both excluded"),
        ({"curvature": 1.0}, "curvature must be a number between 0 and 1, both excluded"),
        ({"rho": -1.0}, "rho must be a number between -1 and 1, both excluded"),
        ({"at_the_money": 0.0}, "at_the_money must be a finite number above 0"),
    ],
)
def test_parameters_that_would_admit_an_arbitrage_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(model(), **change)


def test_the_logistic_map_and_its_inverse():
    there = Logistic(0.1, 0.5)
    free = jnp.asarray([-3.0, 0.0, 2.0])
    np.testing.assert_allclose(there.to_free(there.to_parameter(free)), free, atol=1e-12)
    ends = there.to_parameter(jnp.asarray([-50.0, 50.0]))
    np.testing.assert_allclose(ends, [0.1, 0.5], atol=1e-12)
