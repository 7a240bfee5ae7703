"""Large batches of contracts run in tiles that fit a budget, with the figures of one at a time."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pricing
from pricing import Basket, BlackScholes, European, MonteCarlo
from pricing.batch_tiles import over_batch
from pricing.sensitivities import _greeks  # pyright: ignore[reportPrivateUsage]

ASSETS, COUNT = 3, 8
_METHOD = MonteCarlo(2048, block=512)


def _baskets(*shape: int) -> Basket:
    dice, count = np.random.default_rng(1), math.prod(shape)
    weights = dice.dirichlet(np.ones(ASSETS), shape)
    strikes = np.linspace(90.0, 110.0, count).reshape(shape)
    return Basket(strikes, np.ones(shape), weights=weights)


def _model() -> BlackScholes:
    correlations = 0.3 + 0.7 * np.eye(ASSETS)
    return BlackScholes(
        [100.0, 95.0, 105.0], 0.03, [0.2, 0.3, 0.25], asset_correlation=correlations
    )


def _temporaries(count: int, budget: int) -> int:
    """Return the bytes that the compiled program of all Greeks takes besides its arguments and results."""
    run = lambda batch, model: _greeks.__wrapped__(
        batch, model, _METHOD, jax.random.key(0), budget
    )[0]
    return (
        jax.jit(run).lower(_baskets(count), _model()).compile().memory_analysis().temp_size_in_bytes
    )


@pytest.mark.costly
def test_tiles_have_the_figures_of_the_whole_batch():
    batch, model = _baskets(2, 4), _model()
    key = jax.random.key(0)
    whole = pricing.greeks(batch, model, _METHOD, key=key)
    tiled = pricing.greeks(batch, model, _METHOD, key=key, budget=1)  # one at a time
    assert whole.gamma is not None and whole.gamma.shape == (2, 4, ASSETS, ASSETS)
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        np.testing.assert_allclose(
            getattr(tiled, name), getattr(whole, name), rtol=1e-9, atol=1e-12
        )
        errors = (getattr(found.std_errors, name) for found in (tiled, whole))
        np.testing.assert_allclose(*errors, rtol=1e-9, atol=1e-12)


@pytest.mark.costly
def test_memory_stays_within_the_budget():
    """Four times the contracts take the memory of those that the budget holds."""
    of_eight = _temporaries(COUNT, 2**40)
    assert _temporaries(4 * COUNT, of_eight) < 1.5 * of_eight


@pytest.mark.parametrize("at_once", [1, 3, 7, 8])
def test_any_number_of_contracts_in_a_tile(at_once):
    batch = European(np.linspace(90.0, 110.0, 8), 1.0)
    factors = jnp.arange(8.0)

    def of_one(product, factor):
        path = jnp.ones(64) * factor
        return {"sum": jnp.sum(jnp.sin(path)) + product.strike, "none": None}

    bytes_of_one = 64 * 8 * 2 + 64
    found = over_batch(of_one, batch, factors, budget=at_once * bytes_of_one)
    expected = 64 * np.sin(np.arange(8.0)) + np.linspace(90.0, 110.0, 8)
    np.testing.assert_allclose(found["sum"], expected, rtol=1e-14)
    assert found["none"] is None


@pytest.mark.costly
def test_a_tiled_price_has_derivatives():
    """The derivative of a sum over tiles to the spots is the sum of the deltas."""
    batch, model, key = _baskets(2, 4), _model(), jax.random.key(0)

    def total(spot):
        moved = BlackScholes(spot, model.rate, model.vol, asset_correlation=model.asset_correlation)
        return jnp.sum(pricing.price(batch, moved, _METHOD, key=key, budget=1).value)

    found = pricing.greeks(batch, model, _METHOD, key=key)
    np.testing.assert_allclose(
        jax.grad(total)(model.spot), jnp.sum(found.delta, axis=(0, 1)), rtol=1e-9
    )
