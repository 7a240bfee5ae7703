"""What a product says of its own exercise: when it may be, and what it pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    American,
    Barrier,
    Basket,
    Bermudan,
    BermudanSwaption,
    DoubleBarrier,
    European,
    Swap,
    Swaption,
)
from pricing.market import MarketState
from pricing.products import EarlyExercise, Exercisable
from tests.helpers import all_products

SPOTS = np.array([90.0, 120.0])
WEIGHTS = np.array([0.25, 0.75])
MEANS = {
    "arithmetic": WEIGHTS @ SPOTS,
    "geometric": np.exp(WEIGHTS @ np.log(SPOTS)),
    "max": 120.0,
    "min": 90.0,
}
LEG = ([1.1, 1.6, 2.1], [0.55, 0.5, 0.5])


def bonds(t: float):
    return lambda maturities: jnp.exp(-0.03 * (maturities - t))


@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("option, side", [("call", 1.0), ("put", -1.0)])
def test_a_basket_pays_the_difference_of_its_mean_and_the_strike(kind, option, side):
    basket = Basket(100.0, 0.8, option, kind, WEIGHTS)
    for product in (basket, Bermudan(basket, [0.4, 0.8])):
        found = product.exercise_value(jnp.asarray(0.4), MarketState(spot=jnp.asarray(SPOTS)))
        np.testing.assert_allclose(found, side * (MEANS[kind] - 100.0), rtol=1e-6)


@pytest.mark.parametrize(
    "product",
    [
        European(105.0, 0.8, "put"),
        American(105.0, 0.8, "put"),
        Bermudan(European(105.0, 0.8, "put"), [0.4, 0.8]),
    ],
    ids=lambda product: type(product).__name__,
)
def test_a_put_on_one_asset_pays_the_strike_less_the_spot(product):
    state = MarketState(spot=jnp.asarray(90.0))
    np.testing.assert_allclose(product.exercise_value(jnp.asarray(0.4), state), 15.0, rtol=1e-6)


def test_a_swaption_pays_what_the_swap_is_worth_then():
    """Coupons and notional at the payment dates after the exercise, against 1 at once."""
    product = BermudanSwaption(0.05, [0.55, 1.1], *LEG, "receiver", 100.0)
    fixed = 0.05 * 0.5 * (np.exp(-0.03 * 0.5) + np.exp(-0.03)) + np.exp(-0.03)
    found = product.exercise_value(jnp.asarray(1.1), MarketState(bonds=bonds(1.1)))
    np.testing.assert_allclose(found, 100.0 * (fixed - 1.0), rtol=1e-6)


def test_exercise_times_are_the_products_own_or_a_grid():
    np.testing.assert_allclose(European(100.0, 0.8).exercise_times(4), [0.8], rtol=1e-6)
    np.testing.assert_allclose(
        American(100.0, 0.8, "put").exercise_times(4), [0.2, 0.4, 0.6, 0.8], rtol=1e-6
    )
    swaption = Swaption(0.05, 0.55, *LEG)
    np.testing.assert_allclose(swaption.exercise_times(4), [0.55], rtol=1e-6)
    batch = American([90.0, 100.0], [0.5, 1.0], "put")
    np.testing.assert_allclose(batch.exercise_times(2), [[0.25, 0.5], [0.5, 1.0]], rtol=1e-6)


def test_who_exercises_and_who_does_so_early():
    """A right that ends at one date is no early exercise; a swap is no right."""
    exercisable = {n for n, make in all_products.items() if isinstance(make(), Exercisable)}
    early = {n for n in exercisable if isinstance(all_products[n](), EarlyExercise)}
    assert early == {
        *("american put", "american call", "bermudan put", "bermudan best of"),
        "bermudan swaption",
    }
    baskets = {"basket", "geometric basket", "best of", "worst of"}
    assert exercisable - early == {"call", "put", "swaption", *baskets}
    assert not isinstance(Swap(0.04, 0.55, *LEG), Exercisable)


def test_the_region_in_which_a_barrier_option_is_alive():
    spots = jnp.asarray([84.0, 85.0, 100.0, 131.0])
    down, up = Barrier(105.0, 0.8, 85.0), Barrier(105.0, 0.8, 130.0, "up-and-in")
    both = DoubleBarrier(100.0, 85.0, 130.0, [0.3, 0.8])
    regions = jax.vmap(lambda spot: [p.is_inside(spot) for p in (down, up, both)])(spots)
    np.testing.assert_array_equal(regions[0], [False, False, True, True])
    np.testing.assert_array_equal(regions[1], [True, True, True, False])
    np.testing.assert_array_equal(regions[2], [False, False, True, False])
    assert down.monitoring_dates is None and both.monitoring_dates is not None
    assert (bool(down.knocks_in), bool(up.knocks_in), bool(both.knocks_in)) == (False, True, False)
