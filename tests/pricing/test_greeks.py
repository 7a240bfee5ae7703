"""Every Greek of every contract of the sample book against central differences, and what else Greeks promise.

Differences are of values unless said otherwise, extrapolated twice (error: sixth power of the step). They must
agree to 1e-6 relative above the floor of the quotient itself: a few ulp of the spot, over the step (squared).
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.sample_book import OPTIONS
from pricing import (
    RESULTS,
    BlackScholes,
    ClosedForm,
    European,
    Fourier,
    Heston,
    greeks,
    price,
)
from tests.cases import others_later
from tests.helpers import (
    EPS,
    all_models,
    all_products,
    curve,
    dax,
    dax_batches,
    dax_black_scholes,
    double,
    first_difference,
    second_difference,
)
from tests.references import dax_heston

pytestmark = double

SPOT = 4468.17
SPOT_STEP = 8e-3 * SPOT  # the nearest expiry is 13 days: a seventh of a standard deviation
VOL_STEP, RATE_STEP, TIME_STEP = 4e-3, 2e-3, 0.5 / 365.0
MODELS = {"black-scholes": dax_black_scholes, "heston": dax_heston}
BATCHES = [
    (kind, model) for kind in OPTIONS for model in MODELS if (kind, model) != ("barrier", "heston")
]


@functools.cache
def valued(kind, model):
    """A batch of the sample book, its model, and its Greeks by the method that applies.

    Barriers are of one rate and one vol, where they have a closed form. `test_time_dependent_barriers` has the
    others.
    """
    is_flat = (kind, model) == ("barrier", "black-scholes")
    products = dax_batches()[kind]
    model = BlackScholes(SPOT, 0.035, 0.3, 0.01) if is_flat else MODELS[model]()
    return products, model, greeks(products, model)


def agree(exact, quotient, floor, resolved=0.94):
    """Equal to 1e-6 above the floor, which hides few contracts: barriers that are worth next to nothing."""
    np.testing.assert_allclose(exact, quotient, rtol=1e-6, atol=floor)
    assert np.mean(1e-6 * np.abs(quotient) > floor) >= resolved


@pytest.fixture(params=BATCHES, ids=" / ".join, scope="module")
def batch(request):
    products, model, found = valued(*request.param)
    assert found.value.shape == (OPTIONS[request.param[0]],)
    return products, model, found


def shifted_value(products, model):
    return lambda **shifts: np.asarray(price(products, model.shifted(**shifts)).value)


@pytest.mark.costly
def test_delta(batch):
    products, model, found = batch
    value = shifted_value(products, model)
    quotient = first_difference(lambda step: value(underlying=step), SPOT_STEP)
    agree(found.delta, quotient, floor=10.0 * EPS * SPOT / SPOT_STEP)


def test_gamma(batch):
    products, model, found = batch
    value = shifted_value(products, model)
    quotient = second_difference(lambda step: value(underlying=step), SPOT_STEP)
    agree(found.gamma, quotient, floor=200.0 * EPS * SPOT / SPOT_STEP**2)


@pytest.mark.parametrize(
    "batch",
    others_later(BATCHES, [batch for batch in BATCHES if batch != ("european", "heston")]),
    ids=" / ".join,
    scope="module",
    indirect=True,
)
def test_gamma_and_vanna_are_differences_of_delta(batch):
    """A lower floor: all but three barriers are above it."""
    products, model, found = batch
    delta = lambda **shifts: np.asarray(greeks(products, model.shifted(**shifts)).delta)
    half = 0.5 * SPOT_STEP
    gamma = first_difference(lambda step: delta(underlying=step), half)
    vanna = first_difference(lambda step: delta(vol=step), VOL_STEP)
    agree(found.gamma, gamma, floor=10.0 * EPS / half, resolved=0.98)
    agree(found.vanna, vanna, floor=10.0 * EPS / VOL_STEP, resolved=0.98)


def test_vega_volga_and_rho(batch):
    products, model, found = batch
    value = shifted_value(products, model)
    vega = first_difference(lambda step: value(vol=step), VOL_STEP)
    volga = second_difference(lambda step: value(vol=step), VOL_STEP)
    rho = first_difference(lambda step: value(rate=step), RATE_STEP)
    agree(found.vega, vega, floor=10.0 * EPS * SPOT / VOL_STEP)
    agree(found.volga, volga, floor=200.0 * EPS * SPOT / VOL_STEP**2)
    agree(found.rho, rho, floor=10.0 * EPS * SPOT / RATE_STEP)


def test_theta(batch):
    """Away from the pillars of the curve and the surface, where the value has a kink in time."""
    products, model, found = batch
    value = lambda age: np.asarray(price(products.rolled(jnp.asarray(age)), model).value)
    pillars = np.asarray(dax().curves["EUR"].times)
    expiries = np.asarray(products.expiry)
    smooth = np.min(np.abs(expiries[:, None] - pillars), axis=1) > 1.1 * TIME_STEP
    assert np.mean(smooth) > 0.45
    quotient = first_difference(value, TIME_STEP)
    agree(found.theta[smooth], quotient[smooth], floor=10.0 * EPS * SPOT / TIME_STEP)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("product", "model"),
    [
        pytest.param("call", "heston on curve", marks=pytest.mark.slow),
        ("up-and-out call", "black-scholes"),
    ],
)
def test_greeks_of_a_batch_are_those_of_its_contracts(product, model):
    product, model = all_products[product](), all_models[model]()
    strikes = [90.0, 100.0, 110.0]
    together = greeks(dataclasses.replace(product, strike=strikes), model)
    for i, strike in enumerate(strikes):
        alone = greeks(dataclasses.replace(product, strike=strike), model)
        for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
            np.testing.assert_allclose(getattr(together, name)[i], getattr(alone, name), rtol=1e-10)
            assert getattr(together.std_errors, name)[i] == 0.0
    assert together.result == RESULTS.successful


def test_a_flat_curve_gives_the_greeks_of_a_number():
    one = greeks(European(105.0, 0.8), BlackScholes(100.0, 0.05, 0.2))
    flat = dataclasses.replace(curve(), zero_rates=jnp.full((3,), 0.05))
    other = greeks(European(105.0, 0.8), BlackScholes(100.0, flat, 0.2))
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)


@pytest.mark.costly
@pytest.mark.parametrize("product", ["call", "put", "cash digital", "asset digital"])
def test_heston_without_vol_of_vol_is_black_scholes(product):
    """v0 = theta: variance stays; sqrt(v0) and sqrt(theta) shift together, as the vol does. Error: O(xi)."""
    product = all_products[product]()
    fixed = Heston(100.0, 0.05, 0.04, 2.0, 0.04, 1e-6, -0.5, 0.02)
    found = greeks(product, fixed, Fourier())
    wanted = greeks(product, BlackScholes(100.0, 0.05, 0.2, 0.02), ClosedForm())
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        pair = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6, err_msg=name)
