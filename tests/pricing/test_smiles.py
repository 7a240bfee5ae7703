"""All products that read the spot at one time agree on its law under a smile: that of the call spreads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Asian,
    Autocallable,
    Barrier,
    Basket,
    BlackScholes,
    ClosedForm,
    Digital,
    DoubleBarrier,
    European,
    MonteCarlo,
    Quadrature,
    Sabr,
    VolSurface,
    fbsde,
    greeks,
    price,
)
from pricing.models.baskets import joined
from pricing.products import AverageClaim, Claim
from pricing.sampling import Sobol
from tests.extensions.gauss_legendre import GaussLegendre
from tests.helpers import double

pytestmark = double

T = 1.3
STRIKES = [80.0, 90.0, 100.0, 110.0, 120.0]
VOLS = [[0.32, 0.28, 0.25, 0.23, 0.22], [0.28, 0.26, 0.24, 0.23, 0.225]]
PATHS = MonteCarlo(4096, 4, sampler=Sobol())


def surface() -> BlackScholes:
    return BlackScholes(102.0, 0.03, VolSurface([0.5, 2.0], STRIKES, VOLS), 0.01)


def sabr() -> Sabr:
    return Sabr(102.0, 0.03, [0.5, 2.0], [0.25, 0.235], [-0.5, -0.4], [0.9, 0.5], 0.8, 0.01)


smiles = pytest.mark.parametrize("model", [surface(), sabr()], ids=["surface", "sabr"])


def value(product, model, method=None) -> float:
    return float(price(product, model, method, key=jax.random.key(1)).value)


def bond_and_share(model) -> tuple[float, float]:
    """Return today's value of 1 and of the spot, paid at T."""
    t = jnp.asarray(T)
    return float(model.discount(t)), float(model.discount(t) * model.forward(t))


def calls(model, strikes) -> np.ndarray:
    return np.asarray(price(European(strikes, T), model, ClosedForm()).value)


def paid_above(model, strike) -> np.ndarray:
    """Return the value of 1 paid above the strike, by call spreads on both sides of it."""
    strike, step = np.asarray(strike), 1e-3
    return (calls(model, strike - step) - calls(model, strike + step)) / (2.0 * step)


@smiles
def test_a_digital_is_the_limit_of_its_call_spreads(model):
    strikes = np.array(
        [75.0, 83.0, 97.0, 110.0, 113.0, 140.0]
    )  # between quotes, at one, and beyond
    spreads, call = paid_above(model, strikes), calls(model, strikes)
    bond, share = bond_and_share(model)
    found = lambda *words: price(Digital(strikes, T, *words), model).value
    np.testing.assert_allclose(found("call"), spreads, rtol=1e-5)
    np.testing.assert_allclose(found("put"), bond - spreads, rtol=1e-5)
    np.testing.assert_allclose(found("call", "asset"), call + strikes * spreads, rtol=1e-5)
    np.testing.assert_allclose(found("put", "asset"), share - call - strikes * spreads, rtol=1e-5)
    vol = model.black_vol(jnp.asarray(T), jnp.asarray(97.0))
    flat = price(Digital(97.0, T), BlackScholes(102.0, 0.03, vol, 0.01)).value
    assert abs(found("call")[2] - flat) > 0.03  # what the slope of the smile is worth


@pytest.mark.parametrize(
    "model", [surface(), pytest.param(sabr(), marks=pytest.mark.slow)], ids=["surface", "sabr"]
)
def test_what_jumps_has_the_greeks_of_its_call_spreads(model):
    """Sticky strike under a surface; under SABR the smile moves with the forward."""
    step = 1e-3
    spread = [greeks(European(97.0 + side * step, T), model) for side in (-1.0, 1.0)]
    found = greeks(Digital(97.0, T), model)
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        low, high = (float(getattr(one, name)) for one in spread)
        wanted = (low - high) / (2.0 * step)
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.costly
@smiles
def test_what_reads_the_spot_on_one_date_is_a_sum_of_calls_and_call_spreads(model, gap):
    bond, share = bond_and_share(model)
    low, mid, high = (float(x) for x in paid_above(model, np.array([80.0, 105.0, 120.0])))
    call, call_at_high = calls(model, np.array([100.0, 120.0]))
    below = share - float(calls(model, 80.0)) - 80.0 * low
    spread = call - call_at_high - 20.0 * high
    pairs = [
        (
            Autocallable([T], [0.08], 105.0, 80.0, 100.0, 1000.0),
            1080.0 * mid + 1000.0 * (low - mid) + 10.0 * below,
        ),
        (Barrier(100.0, T, 120.0, "up-and-out", dates=[T]), spread),
        (
            Barrier(100.0, T, 120.0, "up-and-in", rebate=3.0, dates=[T]),
            call_at_high + 20.0 * high + 3.0 * (bond - high),
        ),
        (DoubleBarrier(100.0, 80.0, 120.0, [T], rebate=2.0), spread + 2.0 * (bond - low + high)),
        (gap.Gap(120.0, T, 100.0), call_at_high + 20.0 * high),
        (Claim(120.0, T, 1.0, 0.5, -10.0), 0.5 * call_at_high + 50.0 * high),
    ]
    for product, right in pairs:
        np.testing.assert_allclose(value(product, model), right, rtol=1e-5)


@pytest.mark.costly
def test_every_method_has_that_law(gap):
    model = surface()
    note = Autocallable([T], [0.08], 105.0, 80.0, 100.0)
    np.testing.assert_allclose(value(note, model, Quadrature()), value(note, model), rtol=1e-9)
    for product in (Digital(97.0, T), Digital(110.0, T, "put", "asset"), note):
        np.testing.assert_allclose(value(product, model, PATHS), value(product, model), rtol=1e-4)
    for product in (Digital(97.0, T), gap.Gap(120.0, T, 100.0, "put")):
        other = value(product, model, GaussLegendre())
        np.testing.assert_allclose(other, value(product, model), rtol=1e-9)


@pytest.mark.costly
def test_an_average_of_one_date_and_a_basket_of_one_asset_are_options_on_its_spot():
    model, alone = surface(), joined([surface()], jnp.ones((1, 1)))
    of_half = 2.0 * value(European(100.0, T), model)  # max(2 S - 200, 0)
    pairs = [
        *((Asian(97.0, [T], average=word), model) for word in ("arithmetic", "geometric")),
        *(
            (Basket(97.0, T, average=kind), alone)
            for kind in ("arithmetic", "geometric", "max", "min")
        ),
    ]
    wanted = value(European(97.0, T), model)
    for product, law in pairs:
        np.testing.assert_allclose(value(product, law), wanted, rtol=1e-12)
    weighted = Basket(200.0, T, weights=[2.0])
    np.testing.assert_allclose(value(weighted, alone), of_half, rtol=1e-12)
    np.testing.assert_allclose(value(weighted, alone, PATHS), of_half, rtol=1e-9)


@smiles
def test_a_geometric_average_of_one_date_is_a_power_of_the_spot(model):
    """Calls of 4,000 strikes have the payoff max(side (S^w - K), 0), but for chords of a width of .1."""
    strikes = np.linspace(0.1, 400.0, 4000)
    bond, share = bond_and_share(model)
    of_strikes, of_smile = calls(model, strikes), []
    for weight, level, option in ((0.5, 95.0, "call"), (1.5, 110.0, "call"), (0.5, 110.0, "put")):
        side = 1.0 if option == "call" else -1.0
        product = AverageClaim(level**weight, [T], side, [weight], "geometric")
        paid = np.maximum(side * (strikes**weight - level**weight), 0.0)
        slopes = np.diff(paid) / np.diff(strikes)
        wanted = paid[0] * bond + slopes[0] * (share - strikes[0] * bond)
        wanted += np.sum(np.diff(slopes) * of_strikes[1:-1])
        np.testing.assert_allclose(value(product, model), wanted, rtol=1e-5)
        flat = BlackScholes(102.0, 0.03, model.black_vol(jnp.asarray(T), jnp.asarray(level)), 0.01)
        of_smile.append(abs(value(product, flat) / wanted - 1.0))
    assert max(of_smile) > 3e-4


def test_every_method_and_a_basket_of_one_asset_have_the_law_of_a_power():
    model, alone = surface(), joined([surface()], jnp.ones((1, 1)))
    wanted = value(AverageClaim(10.0, [T], 1.0, [0.5], "geometric"), model)
    basket = Basket(10.0, T, average="geometric", weights=[0.5])
    np.testing.assert_allclose(value(basket, alone), wanted, rtol=1e-12)
    paths = MonteCarlo(65536, 4, sampler=Sobol())
    np.testing.assert_allclose(value(basket, alone, paths), wanted, rtol=3e-4)


def test_a_vol_of_each_strike_or_of_none_leaves_other_values_as_they_were():
    flat = BlackScholes(102.0, 0.03, 0.24, 0.01)
    level = BlackScholes(102.0, 0.03, VolSurface([1.0], [80.0, 120.0], [[0.24, 0.24]]), 0.01)
    for product in (
        European(97.0, T),
        Digital(97.0, T),
        Barrier(100.0, T, 120.0, "up-and-out", dates=[T]),
    ):
        np.testing.assert_allclose(value(product, level), value(product, flat), rtol=1e-13)


def test_paths_under_a_surface_are_refused_as_a_problem():
    option = Barrier(100.0, T, 80.0, dates=[0.5, T])
    with pytest.raises(TypeError, match="a surface does not determine paths"):
        fbsde.from_product(option, surface(), num_steps=4)
