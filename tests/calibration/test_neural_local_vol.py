"""A neural local volatility: its prices by two methods, its gradients, and its training."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxtape as jt
from benchmarks.neural_sde import arbitrage, disagreement, slope
from calibration import RESULTS, SimulatedVolError, train
from calibration.objectives import model_vols
from pricing import (
    BlackScholes,
    European,
    FiniteDifference,
    Heston,
    HullWhite,
    MonteCarlo,
    NeuralLocalVol,
    VolSurface,
    greeks,
    price,
)
from pricing.numerics.implied_vol import implied_vol
from tests.helpers import dax, double, neural

pytestmark = double
SURFACE = VolSurface([0.25, 1.0], [85.0, 100.0, 115.0], [[0.29, 0.24, 0.22], [0.27, 0.24, 0.23]])
KEY = jax.random.key(3)


def start() -> NeuralLocalVol:
    return NeuralLocalVol.flat(100.0, 0.03, 0.3, 0.01, width=8, key=KEY)


@functools.cache
def vols_by_paths(model_of, steps: int):
    by = SimulatedVolError(8192, steps)
    return eqx.filter_jit(by.vols)(model_of(), SURFACE, key=KEY, num_sets=8)


@pytest.mark.costly
def test_vols_by_paths_are_those_of_the_differential_equation():
    model = neural()
    vols, errors = vols_by_paths(neural, 32)
    options = European(*(x.ravel() for x in np.meshgrid(SURFACE.strikes, SURFACE.expiries)))
    values = price(options, model, FiniteDifference(120, 4, 40)).value
    forward, discount = (jax.vmap(of)(options.expiry) for of in (model.forward, model.discount))
    exact = implied_vol(values / discount, forward, options.strike, options.expiry, options.side)
    off = np.asarray(vols).ravel() - exact
    assert np.max(np.abs(off)) < 4.0 * np.max(errors) + 3e-4  # 32 steps of Euler to each expiry
    assert np.ptp(exact) > 0.005  # a smile


@pytest.mark.costly
def test_the_same_errors_are_those_of_heston_by_its_characteristic_function():
    model = Heston(100.0, 0.03, 0.06, 1.5, 0.06, 0.5, -0.7)
    by = SimulatedVolError(8192, 16)
    vols, errors = eqx.filter_jit(by.vols)(model, SURFACE, key=KEY, num_sets=8)
    exact = model_vols(model, SURFACE, 48)
    assert np.max(np.abs((vols - exact) / errors)) < 4.5


@pytest.mark.costly
def test_the_gradient_is_pytorchs_on_the_same_normals():
    pytest.importorskip("torch")
    assert disagreement(SURFACE, bent_of_two_layers(), 2) < 1e-12


def bent_of_two_layers() -> NeuralLocalVol:
    model = start()
    leaves, rest = eqx.partition(model.network, eqx.is_inexact_array)
    dice = np.random.default_rng(2)
    moved = jax.tree.map(lambda x: x + 0.2 * jnp.asarray(dice.normal(size=x.shape)), leaves)
    return eqx.tree_at(lambda m: m.network, model, eqx.combine(moved, rest))


@pytest.mark.costly
def test_gamma_is_that_of_differences_and_of_black_scholes():
    """The spot does not move the paths of log(S / F): samples are smooth in it. Volga would be wrong."""
    call, by = European(105.0, 0.5), MonteCarlo(4096, 8, 4096)

    def delta(shift):
        return greeks(call, bent_of_two_layers().shifted(underlying=shift), by, key=KEY).delta

    found = greeks(call, bent_of_two_layers(), by, key=KEY)
    np.testing.assert_allclose(found.gamma, (delta(1e-3) - delta(-1e-3)) / 2e-3, rtol=1e-6)
    assert found.volga is None
    flat = greeks(call, start(), MonteCarlo(65_536, 8, 8192), key=KEY)
    known = greeks(call, BlackScholes(100.0, 0.03, 0.3, 0.01))
    for name in ("gamma", "vanna"):
        error = getattr(flat.std_errors, name)
        assert 0.0 < error < 0.05 * abs(getattr(known, name))
        assert abs(getattr(flat, name) - getattr(known, name)) < 4.0 * error


@pytest.mark.costly
def test_gradients_of_schedules_agree_with_differences():
    model = bent_of_two_layers()
    of = [
        jax.jit(lambda by=by: slope(model, SURFACE, SimulatedVolError(256, 4, by), KEY))()
        for by in (jt.StoreAll(), jt.Periodic(3), jt.Budget(2**20))
    ]
    for other in of[1:]:
        for a, b in zip(jax.tree.leaves(of[0]), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    weight = lambda m: jax.tree.leaves(m.network)[0]
    direction = jnp.asarray(np.random.default_rng(4).normal(size=weight(model).shape))
    loss = jax.jit(
        lambda h: SimulatedVolError(256, 4).loss(
            eqx.tree_at(weight, model, weight(model) + h * direction), SURFACE, key=KEY
        )
    )
    step = 1e-6  # few paths pass a node of the vol's grid
    found = (loss(step) - loss(-step)) / (2.0 * step)
    np.testing.assert_allclose(found, jnp.sum(jax.tree.leaves(of[0])[0] * direction), rtol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize(
    "optimizer",
    [optax.adam(2e-2), pytest.param(optax.rmsprop(1e-2), marks=pytest.mark.slow)],
    ids=["adam", "rmsprop"],
)
def test_training_lowers_the_error_on_fresh_paths(optimizer):
    by = SimulatedVolError(512, 4)
    settings = {"where": lambda model: model.network, "objective": by, "key": KEY}
    lines = []
    found = train(
        SURFACE, start(), optimizer, num_steps=60, progress=lambda *x: lines.append(x), **settings
    )
    assert found.result == RESULTS.successful and found.losses.shape == (60,)
    assert lines[-1][:2] == (60, 60)
    vols, _ = eqx.filter_jit(SimulatedVolError(8192, 4).vols)(
        found.model, SURFACE, key=jax.random.key(9)
    )
    off = 100.0 * np.sqrt(np.mean((vols - SURFACE.vols) ** 2))
    assert off < 1.6  # at the start 6
    np.testing.assert_array_equal(found.model.base_vol, start().base_vol)  # not trained


def test_no_weights_have_an_arbitrage():
    options = type("Options", (), {"substeps": 2})
    found = arbitrage(SURFACE, bent_of_two_layers(), options, points=101)
    assert found["least_butterfly"] > -1e-13 and found["least_calendar"] > -1e-13
    assert found["steepest_call"] > -1.0 and found["most_rising_call"] <= 0.0
    assert np.max(np.abs(found["martingale_scores"])) < 4.0


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="HullWhite has no Gaussian log-spot"):
        SimulatedVolError(64, 2).residuals(HullWhite(0.03, 0.05, 0.01), SURFACE, key=KEY)
    with pytest.raises(ValueError, match="num_paths must be even"):
        SimulatedVolError(63)
    with pytest.raises(ValueError, match="num_steps must be at least 1"):
        train(SURFACE, start(), optax.sgd(1.0), where=lambda m: m.network, num_steps=0, key=KEY)
    nan = eqx.tree_at(lambda m: m.base_vol, start(), jnp.asarray(jnp.nan))
    settings = {"objective": SimulatedVolError(64, 1), "num_steps": 2, "key": KEY}
    with pytest.raises(RuntimeError, match="not finite"):
        train(SURFACE, nan, optax.sgd(1.0), where=lambda m: m.network, **settings)


@pytest.mark.slow
def test_the_dax_is_repriced_to_half_a_vol_point():
    """Heston leaves 1.32 vol points."""
    from benchmarks.neural_sde import repricing, start_of, trained

    surface = dax().equities["DAX"].surface
    options = type(
        "Options", (), {"training_steps": 4000, "paths": 8192, "substeps": 8, "test_sets": 64}
    )
    model, _ = trained(surface, start_of(dax()), options)
    assert repricing(surface, model, options)["rms_vol_points"] <= 0.5
