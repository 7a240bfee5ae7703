"""Local volatility: its quotes come back, two methods agree, and what has no local volatility is told."""

import jax
import numpy as np
import pytest

from pricing import (
    Asian,
    Barrier,
    BlackScholes,
    ClosedForm,
    European,
    FiniteDifference,
    LocalVol,
    MonteCarlo,
    VolSurface,
    greeks,
    price,
)
from pricing.numerics.implied_vol import implied_vol
from pricing.products import Claim
from tests.helpers import curve, dax, double, second_difference

pytestmark = double
SPOT = 100.0
EXPIRIES = np.array([0.25, 0.5, 1.0, 2.0])
STRIKES = np.array([60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0, 150.0])


def svi() -> VolSurface:
    """w = .03 t + .08 sqrt(t) (sqrt(k^2 + .03 + .02 t) - k / 2), free of arbitrage (Gatheral 2004)."""
    forward = SPOT * np.exp(-0.02 * EXPIRIES) / np.asarray(curve().discount(EXPIRIES))
    t, k = EXPIRIES[:, None], np.log(STRIKES / forward[:, None])
    total = 0.03 * t + 0.08 * np.sqrt(t) * (np.sqrt(k**2 + 0.03 + 0.02 * t) - 0.5 * k)
    return VolSurface(EXPIRIES, STRIKES, np.sqrt(total / t))


def smiling() -> LocalVol:
    return LocalVol(SPOT, curve(), svi(), 0.02)


# a call, a put and a digital
CLAIMS = Claim([105.0, 95.0, 100.0], 0.8, [1.0, -1.0, 1.0], [1.0, -1.0, 0.0], [-105.0, 95.0, 1.0])
QUOTED = European(*(x.ravel() for x in np.meshgrid(STRIKES, EXPIRIES)))


def quoted_vols(values, model):
    """Implied vols of the values of the quoted options."""
    forward, discount = (jax.vmap(of)(QUOTED.expiry) for of in (model.forward, model.discount))
    return implied_vol(values / discount, forward, QUOTED.strike, QUOTED.expiry, QUOTED.side)


@pytest.mark.costly
def test_quotes_come_back_with_an_error_that_falls_as_the_square_of_the_grid():
    """On the default grid: values to 3e-5 of the spot, vols within two deviations to .02 points."""
    expected = svi().vols.ravel()
    exact = price(QUOTED, BlackScholes(SPOT, curve(), svi(), 0.02)).value
    found = [
        price(QUOTED, smiling(), FiniteDifference(nodes, 4, steps)).value
        for nodes, steps in ((60, 20), (120, 40), (240, 80))
    ]
    errors = [float(np.max(np.abs(values - exact))) for values in found]
    assert errors[1] < 3e-5 * SPOT
    assert errors[0] / errors[1] > 3.0
    assert errors[1] / errors[2] > 3.0
    near = np.abs(np.log(QUOTED.strike / SPOT)) < 2.0 * expected * np.sqrt(QUOTED.expiry)
    assert np.max(np.abs(quoted_vols(found[1], smiling()) - expected)[near]) < 2e-4


@pytest.mark.costly
def test_a_flat_surface_is_black_and_scholes():
    flat = VolSurface(EXPIRIES, STRIKES, np.full((4, 9), 0.2))
    found = greeks(CLAIMS, LocalVol(SPOT, curve(), flat, 0.02), FiniteDifference())
    exact = greeks(CLAIMS, BlackScholes(SPOT, curve(), 0.2, 0.02), ClosedForm())
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-9, atol=1e-9)


@pytest.mark.costly
def test_an_option_is_sensitive_to_its_own_quote():
    """The derivative to it is Black's vega, that to all others next to none: to 1 % of the vega."""
    strike, expiry = 110.0, 1.0

    def value(vols):
        model = LocalVol(SPOT, curve(), VolSurface(EXPIRIES, STRIKES, vols), 0.02)
        return price(European(strike, expiry), model, FiniteDifference(240, 4, 80)).value

    def black(vols):
        model = BlackScholes(SPOT, curve(), VolSurface(EXPIRIES, STRIKES, vols), 0.02)
        return price(European(strike, expiry), model).value

    found, exact = jax.grad(value)(svi().vols), jax.grad(black)(svi().vols)
    assert np.max(np.abs(found - exact)) < 0.01 * np.max(exact)


@pytest.mark.costly
def test_gamma_is_that_of_differences():
    at = lambda shift: price(CLAIMS, smiling().shifted(underlying=shift)).value[0]
    found = greeks(CLAIMS, smiling())
    assert isinstance(found.stats["method"], FiniteDifference)
    np.testing.assert_allclose(found.gamma[0], second_difference(at, 0.1), rtol=1e-6)


@pytest.mark.costly
def test_monte_carlo_gives_what_finite_differences_give():
    call, key = jax.tree.map(lambda x: x[0], CLAIMS.broadcast()), jax.random.key(3)
    exact = greeks(CLAIMS, smiling(), FiniteDifference())
    found = greeks(call, smiling(), MonteCarlo(2**13, 32), key=key)
    assert found.gamma is found.vanna is found.volga is None
    for name in ("value", "delta", "vega", "rho", "theta"):
        error = getattr(found.std_errors, name)
        assert abs(getattr(found, name) - getattr(exact, name)[0]) < 3.0 * error, name


def test_a_second_derivative_along_paths_raises():
    def value(spot):
        model = LocalVol(spot, curve(), svi(), 0.02)
        return price(European(105.0, 0.8), model, MonteCarlo(64, 4), key=jax.random.key(0)).value

    with pytest.raises(TypeError, match="kinks where they pass a quoted strike"):
        jax.grad(jax.grad(value))(SPOT)


def test_a_barrier_under_a_flat_surface_is_black_and_scholes():
    flat = VolSurface([0.5, 2.0], [80.0, 120.0], np.full((2, 2), 0.2))
    product, key = Barrier(105.0, 0.8, 85.0), jax.random.key(4)
    exact = price(product, BlackScholes(SPOT, 0.03, 0.2, 0.02)).value
    found = price(product, LocalVol(SPOT, 0.03, flat, 0.02), MonteCarlo(2**14, 16), key=key)
    assert abs(found.value - exact) < 3.0 * found.std_error


def test_products_on_dates_are_refused():
    product = Asian(100.0, [0.5, 1.0])
    with pytest.raises(TypeError, match="LocalVol has no Gaussian steps to the dates"):
        price(product, smiling(), MonteCarlo(64, 4), key=jax.random.key(0))


def test_contracts_of_a_batch_have_paths_of_their_own():
    method = MonteCarlo(64, 4)
    assert method.prepared(European([90.0, 110.0], [0.5, 1.0]), smiling()) is method


def test_smooth_quotes_have_no_arbitrage():
    assert smiling().arbitrages() == []


@pytest.mark.costly
@pytest.mark.parametrize(
    ("kind", "expiry", "strike", "vol"),
    [("butterfly", 1.0, 100.0, 0.3), ("calendar", 0.5, 100.0, 0.35)],
)
def test_arbitrages_are_named_and_not_priced(kind, expiry, strike, vol):
    surface = svi()
    row, column = np.searchsorted(EXPIRIES, expiry), np.searchsorted(STRIKES, strike)
    spoilt = VolSurface(EXPIRIES, STRIKES, surface.vols.at[row, column].set(vol))
    model = LocalVol(SPOT, curve(), spoilt, 0.02)
    found = model.arbitrages()
    assert any(x.kind == kind and abs(x.strike - strike) <= 15.0 for x in found)
    with pytest.raises(RuntimeError, match=r"model\.arbitrages\(\)"):
        price(European(100.0, 1.5), model)


def test_the_sample_surface_has_arbitrages():
    """Its quotes are raw: near the money of long expiries and in the wings of short ones."""
    equity = dax().equities["DAX"]
    model = LocalVol(equity.spot, dax().curves["EUR"], equity.surface, equity.dividend_yield)
    found = model.arbitrages()
    assert {x.kind for x in found} == {"butterfly"}


def test_one_strike_is_refused():
    with pytest.raises(ValueError, match="at least two strikes"):
        LocalVol(SPOT, 0.03, VolSurface([1.0], [100.0], [[0.2]]))
