"""Monte Carlo: bias of the scheme, unbiased Greeks, and second derivatives that raise instead of lying."""

import functools

import jax
import numpy as np
import pytest

import jaxtape as jt
from pricing import (
    Barrier,
    BlackScholes,
    Digital,
    European,
    Fourier,
    Heston,
    MonteCarlo,
    greeks,
    price,
)
from tests.helpers import double

KEY = jax.random.key(11)
_ANDERSEN_1 = Heston(100.0, 0.0, 0.04, 0.5, 0.04, 1.0, -0.9)
_HESTON = Heston(100.0, 0.02, 0.04, 1.5, 0.04, 0.5, -0.7)
_BLACK_SCHOLES = BlackScholes(100.0, 0.05, 0.2)
_BARRIER = Barrier(100.0, 1.0, 125.0, "up-and-out")


@pytest.mark.costly
@double
def test_bias_of_qe_m_in_andersens_first_case():
    """At dt = 1/4 the published bias (exact less scheme) is -.008, below .01 (Andersen 2008, table 1)."""
    found = price(European(100.0, 10.0), _ANDERSEN_1, MonteCarlo(2**19, 40), key=KEY)
    assert found.std_error < 0.02
    assert abs(13.084670137 - found.value) < 0.01 + 3.0 * found.std_error


@pytest.mark.costly
@double
@pytest.mark.parametrize(
    "product",  # of one program
    [European(105.0, 1.0).canonical, Digital(95.0, 1.0, "put").canonical],
    ids=["call", "digital"],
)
@pytest.mark.parametrize("model", [_HESTON, _BLACK_SCHOLES], ids=["Heston", "Black-Scholes"])
def test_greeks_of_terminal_claims_are_unbiased(product, model):
    exact = greeks(product, model)
    found = greeks(product, model, MonteCarlo(2**15, 32), key=KEY)
    for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
        estimate, error = getattr(found, name), getattr(found.std_errors, name)
        if estimate is None:
            assert (name, model) == ("volga", _HESTON)
            continue
        assert error > 0.0
        assert abs(estimate - getattr(exact, name)) < 3.5 * error, name


@double
@pytest.mark.parametrize("kind", ["up-and-out", "up-and-in", "down-and-out", "down-and-in"])
def test_a_rebate_is_paid_at_the_hit_or_at_the_end(kind):
    """Knock-outs pay it at the end of the step of the hit: of 64 steps, half a step too late in the mean."""
    level = 125.0 if kind.startswith("up") else 85.0
    product = Barrier(100.0, 1.0, level, kind, rebate=10.0)
    exact = price(product, _BLACK_SCHOLES).value
    found = price(product, _BLACK_SCHOLES, MonteCarlo(2**15, 64), key=KEY)
    late = 10.0 * 0.05 / 64.0 if kind.endswith("out") else 0.0
    assert abs(found.value - exact) < 3.0 * found.std_error + late
    assert found.std_error < 0.1


@pytest.mark.costly
@double
def test_barrier_is_unbiased_for_continuous_monitoring():
    """The bridge makes few steps enough: 8 steps against the closed form."""
    exact = greeks(_BARRIER, _BLACK_SCHOLES)
    found = greeks(_BARRIER, _BLACK_SCHOLES, MonteCarlo(2**17, 8), key=KEY)
    for name in ("value", "delta", "vega", "theta", "rho"):
        error = getattr(found.std_errors, name)
        assert abs(getattr(found, name) - getattr(exact, name)) < 3.5 * error, name


def test_a_gamma_that_would_be_wrong_is_none():
    found = greeks(_BARRIER, _BLACK_SCHOLES, MonteCarlo(512, 4, block=512), key=KEY)
    assert found.gamma is None and found.vanna is None and found.volga is None


def _value(product, build, method):
    return lambda x: price(product, build(x), method, key=KEY, throw=False).value


@functools.cache
def _slope(function, at):
    return jax.jit(jax.grad(function))(at)


_BARRIER_IN_SPOT = _value(
    _BARRIER, lambda s: BlackScholes(s, 0.05, 0.2), MonteCarlo(256, 4, block=256)
)
_CALL_IN_VARIANCE = _value(
    European(100.0, 1.0),
    lambda v: Heston(100.0, 0.02, v, 1.5, 0.04, 0.5, -0.7),
    MonteCarlo(256, 4, block=256),
)


@pytest.mark.parametrize(
    "twice", [lambda f: jax.grad(jax.grad(f)), jax.hessian, lambda f: jax.jacfwd(jax.jacfwd(f))]
)
@pytest.mark.parametrize(
    "function, at, remedy",
    [(_BARRIER_IN_SPOT, 100.0, "FiniteDifference"), (_CALL_IN_VARIANCE, 0.04, "Fourier")],
    ids=["barrier in the spot", "call in the variance"],
)
def test_a_second_derivative_that_would_be_wrong_raises(twice, function, at, remedy):
    assert np.isfinite(_slope(function, at))
    with pytest.raises(TypeError, match=f"second derivative .*{remedy}"):
        twice(function)(at)


@double
def test_double_grad_of_a_call_is_its_gamma():
    """The silent zero of a naive Monte Carlo Gamma: here it is right."""
    at = lambda spot: BlackScholes(spot, 0.05, 0.2)
    value = _value(European(100.0, 1.0), at, MonteCarlo(2**16, 1))
    gamma = jax.jit(jax.grad(jax.grad(value)))(100.0)
    assert abs(gamma - 0.018762017) < 3e-4


def test_paths_depend_on_key_and_block_alone():
    few, many = (
        jax.jit(MonteCarlo(n, 8, block=256).samples)(_BARRIER, _HESTON, key=KEY)
        for n in (256, 1024)
    )
    np.testing.assert_array_equal(few, many[:256])
    assert len(np.unique(many)) > 512, "blocks differ"


@pytest.mark.costly
@double
def test_schedule_of_the_time_loop_does_not_change_the_gradient():
    def gradient(schedule):
        method = MonteCarlo(256, 30, block=256, schedule=schedule)
        value = _value(European(100.0, 1.0), lambda model: model, method)
        return jax.jit(jax.grad(value))(_HESTON)

    stored, revolved = gradient(jt.StoreAll()), gradient(jt.Revolve(4))
    for a, b in zip(jax.tree.leaves(stored), jax.tree.leaves(revolved), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_random_method_needs_a_key():
    with pytest.raises(ValueError, match=r"give key=jax.random.key"):
        price(European(100.0, 1.0), _BLACK_SCHOLES, MonteCarlo())


@pytest.mark.parametrize("name", ["num_paths", "num_steps", "block"])
def test_counts_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        MonteCarlo(**{name: 0})


def test_fourier_is_taken_before_monte_carlo():
    assert isinstance(price(European(100.0, 1.0), _HESTON).stats["method"], Fourier)
