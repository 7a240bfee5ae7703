"""Heston calibrated to barrier and Asian options by simulation: gradients, memory, true parameters."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from benchmarks.barriers_and_asians import TRUE, heston, products
from benchmarks.simulated_calibration import fitted, model_at, noise_of, quotes_of
from calibration import (
    PriceQuotes,
    SimulatedPriceError,
    calibrate,
    levenberg_marquardt,
    sandwich_covariance,
)
from pricing import American, Barrier, European, Heston, MonteCarlo, Swaption, price
from tests.helpers import double, first_difference

pytestmark = double
KEY = jax.random.key(7)
POINT = np.array(list(TRUE.values()))


@functools.cache
def small() -> tuple[PriceQuotes, SimulatedPriceError]:
    quotes = PriceQuotes(products(), np.linspace(4.0, 8.0, 12), np.linspace(0.01, 0.02, 12))
    by = {"key": KEY, "budget": 2**24}
    return quotes, SimulatedPriceError.for_quotes(quotes, heston(TRUE), 1024, 32, **by)


@functools.cache
def compiled():
    """Loss, gradient in reverse and Jacobian forward, of the five parameters, in one program."""
    quotes, error = small()

    def residuals(parameters):
        return error.residuals(model_at(parameters), quotes)

    def loss(parameters):
        found = residuals(parameters)
        return 0.5 * jnp.sum(found**2), found

    def everything(parameters):
        (value, found), slope = jax.value_and_grad(loss, has_aux=True)(parameters)
        return value, slope, found, jax.jacfwd(residuals)(parameters)

    return jax.jit(everything).lower(POINT).compile()


@pytest.mark.costly
def test_prices_are_those_of_each_contract_alone():
    """On other paths: within four standard errors of both."""
    quotes, error = small()
    found = compiled()(POINT)[2] * quotes.std_errors + quotes.prices
    errors = jnp.sqrt(jnp.diag(eqx.filter_jit(error.covariance)(heston(TRUE), quotes)))
    errors = errors * quotes.std_errors
    by = MonteCarlo(4096, 32)
    alone = [price(batch, heston(TRUE), by, key=jax.random.key(3)) for batch in products()]
    values, theirs = (
        jnp.concatenate([getattr(one, name) for one in alone]) for name in ("value", "std_error")
    )
    assert np.max(np.abs(found - values) / np.hypot(errors, theirs)) < 4.0


@pytest.mark.costly
def test_the_reverse_gradient_is_that_of_the_forward_jacobian_and_of_differences():
    _, slope, residuals, jacobian = compiled()(POINT)
    np.testing.assert_allclose(slope, residuals @ jacobian, rtol=1e-9)
    dice = np.random.default_rng(1)
    direction = POINT * dice.normal(size=5)
    along = lambda h: float(compiled()(POINT + h * direction)[0])
    # a step so small that no path of these changes its branch of the scheme
    np.testing.assert_allclose(first_difference(along, 1e-8), slope @ direction, rtol=1e-4)


@pytest.mark.costly
def test_a_gradient_keeps_to_its_bytes_and_schedules_agree():
    quotes, error = small()
    size = compiled().memory_analysis().temp_size_in_bytes
    assert error.methods[0].block < 1024 and size < 2**24
    assert error.methods[0].grid.size == 32 == error.methods[1].grid.size
    by = {"key": KEY, "budget": 2**24, "schedule": jt.Periodic(8)}
    other = SimulatedPriceError.for_quotes(quotes, heston(TRUE), 1024, 32, **by)
    other = other.in_blocks_of(error.methods[0].block)

    @jax.jit
    def slope(parameters):
        return jax.grad(lambda p: 0.5 * jnp.sum(other.residuals(model_at(p), quotes) ** 2))(
            parameters
        )

    np.testing.assert_allclose(slope(POINT), compiled()(POINT)[1], rtol=1e-9)
    with pytest.raises(ValueError, match="bytes hold 0 paths"):
        SimulatedPriceError.for_quotes(quotes, heston(TRUE), 1024, 32, key=KEY, budget=1000)


@pytest.mark.costly
def test_the_gradient_is_pytorchs_on_the_same_noise():
    pytest.importorskip("torch")
    from benchmarks.simulated_calibration_torch import gradient_on

    quotes, error = small()
    blocks = [noise_of(error, quotes, i) for i in range(1024 // error.methods[0].block)]
    noise = [np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True)]
    numbers = np.array(quotes.prices), np.array(quotes.std_errors)
    theirs = gradient_on(noise, POINT.tolist(), numbers)
    np.testing.assert_allclose(compiled()(POINT)[1], theirs, rtol=1e-9)


@pytest.mark.costly
def test_quotes_with_errors_are_fitted_within_the_sandwich():
    """The paths are the same; the quotes are off by a standard normal each."""
    quotes, error = small()
    shifts = compiled()(POINT)[2] + np.random.default_rng(12).normal(size=12)
    quotes = eqx.tree_at(lambda q: q.prices, quotes, quotes.prices + shifts * quotes.std_errors)
    optimizer = levenberg_marquardt(slack=0.01)
    start = model_at(jnp.asarray(POINT * [0.9, 1.1, 1.1, 0.9, 0.9]))
    found = calibrate(quotes, start, objective=error, optimizer=optimizer, rtol=1e-3)
    assert found.residuals.shape == (12,)
    errors = jnp.sqrt(jnp.diag(sandwich_covariance(found, jnp.eye(12))))
    off = np.array([getattr(found.model, name) for name in TRUE]) - POINT
    assert np.max(np.abs(off / errors)) < 3.0 and np.max(errors / POINT) < 0.3


class _Sizes:
    def __init__(self, paths: int, steps: int, megabytes: int):
        self.paths, self.steps, self.megabytes = paths, steps, megabytes


def recovers(sizes: _Sizes, steps_of_quotes: int):
    found = fitted(quotes_of(2 * sizes.paths, steps_of_quotes), sizes)
    assert found["converged"]
    assert all(abs(row["off"]) < 3.0 for row in found["parameters"])
    assert 0.3 < found["rms_residual"] < 2.0  # 12 quotes less 5 parameters, errors of both sides
    return {row["parameter"]: row["std_error"] for row in found["parameters"]}


@pytest.mark.slow
def test_parameters_come_back_within_their_standard_errors():
    """65,536 paths of 256 steps; quotes by 131,072 of 512 and another key."""
    errors = recovers(_Sizes(65536, 256, 256), 512)
    assert errors["mean_reversion"] < 0.3 and errors["correlation"] < 0.005


@pytest.mark.slow
def test_parameters_come_back_from_few_paths():
    """The quotes by as many steps, which are so few that their bias would show."""
    errors = recovers(_Sizes(4096, 32, 64), 32)
    assert errors["initial_variance"] < 0.01 and errors["correlation"] < 0.02


@pytest.mark.slow
def test_an_american_option_is_fitted_by_the_rule_that_is_held():
    model = Heston(100.0, 0.05, 0.04, 1.5, 0.06, 0.6, -0.7)
    puts = American([95.0, 105.0], 0.5, "put")
    flat = PriceQuotes((puts,), [1.0, 1.0], [0.01, 0.01])
    by = {"key": KEY, "budget": 2**26}
    error = SimulatedPriceError.for_quotes(flat, model, 1024, 8, **by)
    quotes = eqx.tree_at(
        lambda q: q.prices, flat, eqx.filter_jit(error.residuals)(model, flat) * 0.01 + 1.0
    )
    start = eqx.tree_at(
        lambda m: (m.initial_variance, m.vol_of_vol), model, (jnp.asarray(0.06), jnp.asarray(0.4))
    )
    free = {
        name: Heston.free_parameters[name].transform for name in ("initial_variance", "vol_of_vol")
    }
    optimizer = levenberg_marquardt(slack=0.01)
    found = calibrate(
        quotes, start, objective=error, transform=free, optimizer=optimizer, rtol=1e-4
    )
    np.testing.assert_allclose(found.model.initial_variance, 0.04, rtol=1e-3)
    np.testing.assert_allclose(found.model.vol_of_vol, 0.6, rtol=1e-2)


def test_what_cannot_be_simulated_is_named():
    rates = Swaption([0.05], 0.55, [1.1, 1.6, 2.1], [0.55, 0.5, 0.5])
    quotes = PriceQuotes((rates,), [1.0], [0.1])
    with pytest.raises(TypeError, match="MonteCarlo cannot price this"):
        SimulatedPriceError.for_quotes(quotes, heston(TRUE), 64, 4, key=KEY)
    with pytest.raises(ValueError, match="give batches with one axis"):
        PriceQuotes((European([90.0, 100.0], 1.0),), [1.0], [0.1])
    with pytest.raises(ValueError, match="give batches with one axis"):
        PriceQuotes((Barrier(100.0, 1.0, 80.0),), [1.0], [0.1])
