"""Heston barriers by finite differences: limits, references, orders of convergence, exact derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Barrier,
    BlackScholes,
    European,
    FiniteDifference,
    Heston,
    MonteCarlo,
    ZeroCurve,
    greeks,
    price,
)
from tests.helpers import double

# Up-and-out call under Heston: [P] finite differences 9.1530; [C] on another grid 9.1593, Delta .52119,
# Gamma -.03750. On 400 x 120 x 400 we find 9.1533, .51972, -.03789.
_MODEL = Heston(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8)
_UP_AND_OUT = Barrier(100.0, 1.0, 135.0, "up-and-out")

_KINDS = ("down-and-out", "down-and-in", "up-and-out", "up-and-in")
_EVERY_KIND = Barrier(
    strike=[90.0, 110.0] * 8,
    expiry=0.5,
    barrier=[95.0] * 4 + [105.0] * 4 + [95.0] * 4 + [105.0] * 4,
    kind=[kind for kind in _KINDS for _ in range(2)] * 2,
    option=["call"] * 8 + ["put"] * 8,
    rebate=3.0,
)


@double
def test_up_and_out_reference():
    found = greeks(_UP_AND_OUT, _MODEL, FiniteDifference(240, 80, 128))
    np.testing.assert_allclose(found.value, 9.1530, rtol=5e-4)
    np.testing.assert_allclose(found.delta, 0.52119, atol=3e-3)
    np.testing.assert_allclose(found.gamma, -0.03750, atol=4e-4)


@double
def test_every_kind_tends_to_black_scholes_as_the_variance_stops_moving():
    still = Heston(100.0, 0.08, 0.0625, 1.0, 0.0625, 1e-3, 0.0, 0.04)
    exact = price(_EVERY_KIND, BlackScholes(100.0, 0.08, 0.25, 0.04)).value
    coarse, fine = (
        np.abs(price(_EVERY_KIND, still, FiniteDifference(nodes, 40, steps)).value - exact)
        for nodes, steps in ((120, 64), (240, 128))
    )
    assert coarse.max() < 3e-3
    order = np.log2(coarse.max() / fine.max())
    assert 1.8 < order < 2.4, "second order in distance and time"


@double
def test_in_and_out_add_up_to_the_vanilla():
    out, into = (
        price(Barrier(105.0, 0.8, 85.0, kind, "put"), _MODEL).value
        for kind in ("down-and-out", "down-and-in")
    )
    vanilla = price(European(105.0, 0.8, "put"), _MODEL).value
    np.testing.assert_allclose(out + into, vanilla, rtol=1e-12)


@pytest.mark.parametrize("kind, expected", [("down-and-out", 2.0), ("down-and-in", None)])
def test_a_spot_beyond_the_barrier_has_touched_it(kind, expected):
    product = Barrier(95.0, 0.8, 105.0, kind, rebate=2.0)
    if expected is None:
        expected = price(product.vanilla, _MODEL).value
    np.testing.assert_allclose(price(product, _MODEL).value, expected, rtol=1e-6)


@double
def test_derivatives_are_those_of_the_discrete_value():
    """Grids stand still under small bumps, so central differences see what differentiation sees."""
    method = FiniteDifference(60, 24, 16)
    value = lambda model: method.samples(_UP_AND_OUT, model, None)  # noqa: E731
    bar = jax.jit(jax.grad(value))(_MODEL)
    jitted = eqx.filter_jit(value)
    for name in (
        "spot",
        "rate",
        "mean_reversion",
        "long_run_variance",
        "vol_of_vol",
        "correlation",
    ):
        at = lambda model, name=name: getattr(model, name)  # noqa: E731
        step = 1e-4 * abs(at(_MODEL))
        up, down = (jitted(eqx.tree_at(at, _MODEL, at(_MODEL) + s)) for s in (step, -step))
        np.testing.assert_allclose(at(bar), (up - down) / (2 * step), rtol=2e-6, err_msg=name)


@double
def test_agrees_with_monte_carlo():
    barrier = Barrier(100.0, 0.5, 90.0, "down-and-out", "call", 1.0)
    exact = greeks(barrier, _MODEL)
    found = greeks(barrier, _MODEL, MonteCarlo(2**16, 64), key=jax.random.key(3))
    for name in ("value", "delta", "rho"):
        error = getattr(found.std_errors, name)
        assert abs(getattr(found, name) - getattr(exact, name)) < 3.5 * error, name


@double
def test_rates_are_those_of_the_curve_day_by_day():
    """Negative for three months, then steep: flat to expiry, the value would be 14 standard errors away."""
    curve = ZeroCurve([0.0, 0.25, 0.5], [-0.1, -0.1, 0.05])
    steep = eqx.tree_at(lambda model: model.rate, _MODEL, curve)
    barrier = Barrier(100.0, 0.5, 90.0, "down-and-out", "call", 1.0)
    found, flat = price(barrier, steep).value, price(barrier, _MODEL).value
    peer = price(barrier, steep, MonteCarlo(2**17, 64), key=jax.random.key(3))
    assert abs(found - peer.value) < 3.0 * peer.std_error
    assert abs(flat - peer.value) > 10.0 * peer.std_error


@double
def test_stable_where_the_feller_condition_fails_badly():
    """The DAX optimum, reverse knock-outs of two years: values stay between zero and the vanilla."""
    dax = Heston(4468.17, 0.036, 0.19122, 15.56191, 0.07459, 3.29523, -0.51202)
    products = Barrier(
        strike=[3400.0, 4550.0, 4800.0],
        expiry=[1.93, 1.82, 0.1],
        barrier=[5350.0, 4210.0, 4700.0],
        kind=["up-and-out", "down-and-out", "up-and-out"],
        option=["call", "put", "call"],
    )
    values = price(products, dax).value
    assert jnp.all(values >= -1e-6 * dax.spot)
    assert jnp.all(values <= price(products.vanilla, dax).value)
