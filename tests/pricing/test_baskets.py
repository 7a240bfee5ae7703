"""Baskets: models joined from those of single assets, their Greeks by asset, and risk to the correlations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Basket,
    BlackScholes,
    Book,
    ClosedForm,
    Heston,
    MonteCarlo,
    VolCurve,
    greeks,
    price,
    risk,
)
from pricing.models.baskets import joined
from pricing.models.surface_models import black_scholes
from pricing.numerics.black import black
from pricing.portfolio.sweep.fitted_models import with_baskets
from tests.cases import others_later
from tests.helpers import curve, double, first_difference, sample_market, surface

pytestmark = double

CORRELATION = [[1.0, 0.6], [0.6, 1.0]]
KEY = jax.random.key(5)
METHODS = (ClosedForm(), MonteCarlo(8192, 4))
HEADER = "id,type,underlying,quantity,option,strike,expiry,average,weights"
BOOK = f"""{HEADER}
K1,basket,DAX|SX5E,2,call,3800,2003-03-18,arithmetic,0.5|0.5
K2,basket,SX5E|DAX,-1,put,3900,2003-03-18,geometric,
E1,european,SX5E,1,call,3200,2003-03-18,,
"""


def heston(scale):
    return Heston(scale * 100.0, curve(), 0.04, 1.5, 0.06, scale * 0.6, -0.7, 0.01)


def test_heston_models_are_stacked():
    one, other = heston(1.0), heston(0.9)
    model = joined([one, other], jnp.asarray(CORRELATION))
    for name in ("spot", "initial_variance", "vol_of_vol", "correlation", "dividend_yield"):
        column = [getattr(one, name), getattr(other, name)]
        np.testing.assert_array_equal(getattr(model, name), column)
    assert model.rate is one.rate
    np.testing.assert_array_equal(model.asset_correlation, CORRELATION)


def test_a_surface_is_read_at_the_forward_and_stays_there():
    """A geometric basket is lognormal: Black's formula with the vols of the surfaces at the forwards."""
    singles = [BlackScholes(spot, curve(), surface(), 0.02) for spot in (100.0, 90.0)]
    model = joined(singles, jnp.asarray(CORRELATION))
    expiry, strike = 0.8, 95.0
    product = Basket(strike, expiry, average="geometric")
    forwards = jnp.stack([single.forward(jnp.asarray(expiry)) for single in singles])
    std = surface().vol(expiry, forwards) * np.sqrt(expiry)
    variance = 0.25 * std @ jnp.asarray(CORRELATION) @ std
    mean = jnp.mean(jnp.log(forwards) - 0.5 * std**2)
    value = black(
        jnp.exp(mean + 0.5 * variance), jnp.asarray(strike), jnp.sqrt(variance), jnp.ones(())
    )
    wanted = curve().discount(expiry) * value
    np.testing.assert_allclose(price(product, model).value, wanted, rtol=1e-12)
    moved = model.shifted(underlying=jnp.asarray([3.0, -2.0]), vol=0.01)
    vols = jnp.sqrt(moved.state_variance(jnp.asarray(expiry)) / expiry)
    wanted = surface().shifted(0.01).vol(expiry, forwards)
    np.testing.assert_allclose(vols, wanted, rtol=1e-12)


def test_constant_vols_and_term_structures_are_joined_too():
    flat = [BlackScholes(100.0, 0.03, vol) for vol in (0.2, 0.3)]
    assert joined(flat, jnp.asarray(CORRELATION)).vol.tolist() == pytest.approx([0.2, 0.3])
    terms = [flat[0], BlackScholes(100.0, 0.03, VolCurve([0.5, 1.0], [0.3, 0.25]))]
    model = joined(terms, jnp.asarray(CORRELATION))
    variance = model.state_variance(jnp.asarray([0.5, 1.0]))
    np.testing.assert_allclose(variance, [[0.02, 0.045], [0.04, 0.0625]], rtol=1e-12)


def test_models_of_several_types_are_not_joined():
    with pytest.raises(TypeError, match="models of BlackScholes, Heston cannot be joined"):
        joined([heston(1.0), BlackScholes(100.0, curve(), 0.2)], jnp.asarray(CORRELATION))


@pytest.mark.costly
@pytest.mark.parametrize(
    "kind", others_later(["arithmetic", "geometric", "max", "min"], ["arithmetic", "min"])
)
def test_delta_and_gamma_by_asset_are_those_of_bumped_spots(kind):
    """Common random numbers: the difference quotient of the paths is the paths' derivative."""
    model = joined([heston(1.0), heston(0.9)], jnp.asarray(CORRELATION))
    product, method = Basket(95.0, 0.8, average=kind), MonteCarlo(4096, 4)
    found = greeks(product, model, method, key=KEY)
    assert found.delta.shape == (2,) and found.gamma.shape == (2, 2)
    assert found.std_errors.delta.shape == (2,)
    for index in range(2):
        unit = jnp.eye(2)[index]

        def value(shift, unit=unit):
            return price(product, model.shifted(underlying=shift * unit), method, key=KEY).value

        bumped = first_difference(value, 1e-3)
        np.testing.assert_allclose(found.delta[index], bumped, rtol=1e-3)


def test_a_basket_without_one_of_its_models_is_left_out():
    market = sample_market()
    pair = ("DAX", "SX5E")
    fit = with_baskets(black_scholes, [("DAX",), pair, pair, ("DAX", "SMI")])
    assert set(fit(market)) == {("DAX",), ("SX5E",), pair}


def risk_of_book(market):
    """Within a budget that makes small tiles: the book is of three trades."""
    return risk(Book.from_text(BOOK), market, black_scholes, methods=METHODS, budget=2**25)


@pytest.fixture(scope="module")
def found():
    return risk_of_book(sample_market())


@pytest.mark.costly
def test_a_book_with_baskets_has_figures_by_asset(found):
    assert [trade.status for trade in found.trades] == ["ok"] * 3
    first, second, _ = (trade.figures for trade in found.trades)
    names = ("DAX", "SX5E")
    for figures in (first, second):
        assert set(figures.delta) == set(names)
        assert set(figures.gamma) == set(itertools.product(names, repeat=2))
    assert first.delta["DAX"] > 0.1 and second.delta["DAX"] < -0.1


@pytest.mark.costly
def test_the_book_moves_with_a_correlation_as_its_sensitivity_says(found):
    quote, step = "CORRELATION/DAX/SX5E", 1e-4

    def value(shift):
        return risk_of_book(sample_market().with_quotes({quote: 0.85 + shift})).value

    bumped = (value(step) - value(-step)) / (2.0 * step)
    assert abs(bumped) > 10.0
    np.testing.assert_allclose(found.sensitivities[quote], bumped, rtol=1e-4)
