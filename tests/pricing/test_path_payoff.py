"""Custom payoffs: values and Greeks against products whose Greeks are known."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pricing import (
    Asian,
    Basket,
    BlackScholes,
    Digital,
    European,
    Heston,
    LocalVol,
    MonteCarlo,
    PathPayoff,
    VolSurface,
    greeks,
    price,
    simulate,
)

KEY = jax.random.key(5)
MODEL = BlackScholes(100.0, 0.03, 0.25, 0.01)
HESTON = Heston(100.0, 0.03, 0.05, 1.5, 0.06, 0.5, -0.6, 0.01)
PATHS = MonteCarlo(num_paths=2**16, num_steps=16)
FIGURES = "value", "delta", "gamma", "vega", "theta", "rho", "vanna"


def asian_call(spots):
    return jnp.maximum(jnp.mean(spots) - 100.0, 0.0)


def digital(spots, strikes):
    return jnp.where(spots[-1] > strikes[0], 1.0, 0.0)


def above_twice(spots):
    return jnp.where((spots[0] > 95.0) & (spots[1] > 105.0), 1.0, 0.0)


def best_of(spots):
    return jnp.maximum(jnp.max(spots[-1]) - 100.0, 0.0)


def check(found, exact, names=FIGURES, exact_errors=None):
    """Each figure differs from the exact one by less than four standard errors, which are not large."""
    for name in names:
        error = np.asarray(getattr(found.std_errors, name))
        if exact_errors is not None:
            error = np.hypot(error, getattr(exact_errors, name))
        difference = np.asarray(getattr(found, name)) - np.asarray(getattr(exact, name))
        assert np.all(error > 0.0), name
        assert np.all(np.abs(difference) < 4.0 * error), (name, difference, error)


@pytest.mark.costly
@pytest.mark.parametrize("has_jumps", [False, True])
def test_an_asian_option(has_jumps):
    dates = [0.25, 0.5, 1.0]
    found = greeks(PathPayoff(asian_call, dates, has_jumps=has_jumps), MODEL, PATHS, key=KEY)
    exact = greeks(Asian(100.0, dates), MODEL, PATHS, key=jax.random.key(6))
    check(found, exact, exact_errors=exact.std_errors)
    assert found.std_errors.delta < (0.006 if has_jumps else 0.0024)
    assert found.std_errors.gamma < (0.0009 if has_jumps else 0.00025)


def test_a_payoff_that_jumps_in_a_batch():
    """Digitals of three strikes are one batch; their Greeks are those of the closed form."""
    strikes = jnp.array([90.0, 100.0, 110.0])
    found = greeks(PathPayoff(digital, [0.5], strikes[:, None]), MODEL, PATHS, key=KEY)
    check(found, greeks(Digital(strikes, 0.5), MODEL), (*FIGURES, "volga"))
    assert np.all(found.std_errors.gamma < 5e-5)


@pytest.mark.costly
def test_jumps_under_random_variance():
    found = greeks(PathPayoff(digital, [0.5], [100.0]), HESTON, PATHS, key=KEY)
    check(found, greeks(Digital(100.0, 0.5), HESTON))
    assert found.volga is None


def test_jumps_on_several_dates():
    """The right to 1 if the spot is above 95 on one date and above 105 on the next, by quadrature."""

    def value(spot, vol, rate):
        """Return the value under `MODEL` with these numbers, dates at 0.5 and 1."""
        z, weights = np.polynomial.legendre.leggauss(400)
        drift, scale = (rate - 0.01 - 0.5 * vol**2) * 0.5, vol * np.sqrt(0.5)
        low = (np.log(95.0 / spot) - drift) / scale
        z, weights = 0.5 * (z + 1.0) * (10.0 - low) + low, 0.5 * (10.0 - low) * weights
        above = (np.log(spot / 105.0) + 2.0 * drift + scale * z) / scale
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        return np.exp(-rate) * np.sum(weights * density * scipy.stats.norm.cdf(above))

    h, at = 1e-3, np.array([100.0, 0.25, 0.03])
    slopes = [(value(*(at + h * e)) - value(*(at - h * e))) / (2.0 * h) for e in np.eye(3)]
    gamma = (value(100.1, *at[1:]) - 2.0 * value(*at) + value(99.9, *at[1:])) / 0.01
    found = greeks(PathPayoff(above_twice, [0.5, 1.0]), MODEL, PATHS, key=KEY)
    exact = dict(zip(("delta", "vega", "rho"), slopes, strict=True), value=value(*at), gamma=gamma)
    check(found, types.SimpleNamespace(**exact), tuple(exact))


@pytest.mark.costly
def test_several_assets():
    model = BlackScholes(
        [100.0, 95.0], 0.02, [0.2, 0.3], asset_correlation=[[1.0, 0.4], [0.4, 1.0]]
    )
    product = PathPayoff(best_of, [0.5, 1.0], has_jumps=False, multi_asset=True)
    found = greeks(product, model, PATHS, key=KEY)
    exact = greeks(Basket(100.0, 1.0, average="max"), model, PATHS, key=jax.random.key(6))
    check(found, exact, ("value", "delta", "gamma", "vega", "rho"), exact.std_errors)


@pytest.mark.costly
def test_under_local_volatility_greeks_of_first_order():
    """A flat surface gives Black-Scholes; Gamma is left out, and a payoff that jumps is refused."""
    surface = VolSurface([0.5, 1.5], [80.0, 100.0, 120.0], jnp.full((2, 3), 0.25))
    model = LocalVol(100.0, 0.03, surface, 0.01)
    found = greeks(PathPayoff(asian_call, [0.5, 1.0], has_jumps=False), model, PATHS, key=KEY)
    exact = greeks(Asian(100.0, [0.5, 1.0]), MODEL, PATHS, key=jax.random.key(6))
    check(found, exact, ("value", "delta", "vega", "rho"), exact.std_errors)
    assert found.gamma is None
    with pytest.raises(TypeError, match="Gaussian steps to the dates"):
        price(PathPayoff(asian_call, [0.5, 1.0]), model, PATHS, key=KEY)


def test_what_a_payoff_must_be():
    with pytest.raises(TypeError, match="function is 3: give a function of the spots"):
        PathPayoff(3, [1.0])
    with pytest.raises(TypeError, match=r"must return one float64 number .* shape \(2,\)"):
        price(PathPayoff(lambda spots: spots, [0.5, 1.0]), MODEL, key=KEY)
    with pytest.raises(TypeError, match="would miss the jumps"):
        value = lambda k: price(PathPayoff(digital, [0.5], k), MODEL, PATHS, key=KEY).value
        jax.grad(lambda k: value(k[None]))(jnp.array(100.0))
    with pytest.raises(TypeError, match="no method prices PathPayoff under BlackScholes"):
        price(PathPayoff(best_of, [1.0], multi_asset=True), MODEL, key=KEY)


def test_simulated_spots_have_the_models_law():
    """Means are forwards, and the mean of a call's payoff is its price, with its Delta along paths."""
    dates = [0.25, 1.0]

    def value(spot):
        model = BlackScholes(spot, 0.03, 0.25, 0.01)
        spots = simulate(model, dates, key=KEY, num_paths=50_000)
        return jnp.exp(-0.03) * jnp.mean(jnp.maximum(spots[:, -1] - 100.0, 0.0)), spots

    (found, spots), delta = jax.value_and_grad(value, has_aux=True)(jnp.array(100.0))
    exact = greeks(European(100.0, 1.0, option="call"), MODEL)
    assert spots.shape == (50_000, 2)
    forwards = 100.0 * np.exp(0.02 * np.array(dates))
    errors = np.std(spots, axis=0) / np.sqrt(len(spots))
    assert np.all(np.abs(np.mean(spots, axis=0) - forwards) < 4.0 * errors)
    assert abs(found - exact.value) < 4.0 * 17.0 / np.sqrt(50_000)
    assert abs(delta - exact.delta) < 4.0 * 0.6 / np.sqrt(50_000)
    with pytest.raises(TypeError, match="differentiated along paths, once"):
        jax.grad(jax.grad(lambda spot: value(spot)[0]))(jnp.array(100.0))
    surface = VolSurface([0.5, 1.5], [80.0, 120.0], jnp.full((2, 2), 0.25))
    with pytest.raises(TypeError, match=r"cannot simulate this: .*one law for all strikes"):
        simulate(BlackScholes(100.0, 0.03, surface), dates, key=KEY)
    of_heston = simulate(HESTON, dates, key=KEY, num_paths=4096)
    errors = np.std(of_heston, axis=0) / 64.0
    assert np.all(np.abs(np.mean(of_heston, axis=0) - forwards) < 4.0 * errors)


@pytest.mark.costly
def test_a_step_without_variance_has_no_score():
    """The variance of these paths rests at zero: the value is right, and derivatives are refused."""
    model = Heston(100.0, 0.03, 0.001, 1.0, 0.001, 1.0, -0.6)
    product, method = PathPayoff(digital, [0.5, 1.0], [100.0]), MonteCarlo(8192, 4)
    found = price(product, model, method, key=KEY)
    exact = price(Digital(100.0, 1.0), model, method, key=jax.random.key(6))
    assert abs(found.value - exact.value) < 4.0 * np.hypot(found.std_error, exact.std_error)
    refused = greeks(product, model, method, key=KEY, throw=False)
    assert np.isnan(refused.delta) and np.isnan(refused.vega)
    with pytest.raises(RuntimeError, match="not finite"):
        greeks(product, model, method, key=KEY)
    kinked = PathPayoff(asian_call, [0.5, 1.0], has_jumps=False)
    assert np.isfinite(greeks(kinked, model, method, key=KEY).gamma)


def test_a_surface_has_no_one_law():
    surface = VolSurface([0.5, 1.5], [80.0, 120.0], jnp.full((2, 2), 0.25))
    with pytest.raises(TypeError, match="one law for all strikes"):
        price(PathPayoff(asian_call, [0.5]), BlackScholes(100.0, 0.03, surface), key=KEY)
