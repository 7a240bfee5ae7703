"""The normal law beside mpmath: weights that overflow alone, tails, derivatives, and its coefficients."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np

from pricing.numerics import normal_law
from pricing.numerics.normal_law import scaled_cdf
from tests.helpers import EPS, double

X = np.concatenate([np.linspace(-60.0, 8.0, 137), [-1e-9, 0.0, 1e-9]])
LEVELS = np.array([-600.0, -30.0, 0.0, 20.0, 700.0])  # logarithms, nearly, of what comes out

mills = jax.jit(normal_law._mills_ratio)


def ratio(x):
    """P(Z > x) / density(x), to all digits."""
    return mp.sqrt(mp.pi / 2) * mp.exp(x**2 / 2) * mp.erfc(x / mp.sqrt(2))


@double
def test_the_ratio_of_tail_and_density():
    x = np.linspace(0.0, 60.0, 601)
    with mp.workdps(40):
        expected = [float(ratio(mp.mpf(value))) for value in x]
    np.testing.assert_allclose(mills(jnp.asarray(x)), expected, rtol=4.0 * EPS)


def test_the_coefficients_are_those_of_a_chebyshev_series():
    """Of 8 / (1 - t) times the ratio at x = 4 (1 + t) / (1 - t), which is 1 at t = 1."""
    degree = len(normal_law._MILLS) - 1
    with mp.workdps(60):
        nodes = [mp.cos(mp.pi * (2 * j + 1) / 80) for j in range(40)]
        values = [8 / (1 - t) * ratio(4 * (1 + t) / (1 - t)) for t in nodes]
        series = [
            sum(y * mp.chebyt(m, t) for t, y in zip(nodes, values, strict=True)) / (20 if m else 40)
            for m in range(degree + 1)
        ]
        powers = [mp.mpf(0)] * (degree + 1)
        last, this = [mp.mpf(0)], [mp.mpf(1)]
        for m, weight in enumerate(series):
            for i, coefficient in enumerate(this):
                powers[i] += weight * coefficient
            last, this = this, _less([mp.mpf(0)] + [(2 if m else 1) * c for c in this], last)
        expected = [float(power) for power in powers]
    np.testing.assert_allclose(normal_law._MILLS, expected, rtol=1e-15)


def _less(longer, shorter):
    return [a - (shorter[i] if i < len(shorter) else 0) for i, a in enumerate(longer)]


@double
def test_a_weight_that_overflows_times_a_tail_that_vanishes():
    """Exact but for the rounding of the exponent; beside it 4 ulp."""
    x, level = (each.ravel() for each in np.meshgrid(X, LEVELS))
    power = level + np.where(x < 0.0, 0.5 * x**2, 0.0)
    with mp.workdps(40):
        pairs = zip(power, x, strict=True)
        expected = [float(mp.exp(mp.mpf(p)) * mp.ncdf(mp.mpf(v))) for p, v in pairs]
    found = np.asarray(jax.jit(scaled_cdf)(jnp.asarray(power), jnp.asarray(x)))
    error = np.abs(found / np.asarray(expected) - 1.0)
    assert np.max(error / (EPS * (4.0 + np.abs(power) + 0.5 * x**2))) < 1.0
    assert np.max(power) > 2000.0  # exp(710) is too large for a number


def test_the_ends_of_the_line():
    found = scaled_cdf(jnp.zeros(3), jnp.asarray([-jnp.inf, jnp.inf, jnp.nan]))
    np.testing.assert_array_equal(found, [0.0, 1.0, np.nan])


@double
def test_derivatives_up_to_the_third_in_both_modes():
    x = jnp.asarray([-40.0, -1.5, 0.0, 0.7])
    power, in_x = 0.5 * x**2 - 1.0, jax.grad(scaled_cdf, 1)

    @jax.jit
    @jax.vmap
    def derivatives(power, x):
        return {
            "x": in_x(power, x),
            "x x": jax.grad(in_x, 1)(power, x),
            "x x x": jax.jacfwd(jax.jacfwd(in_x, 1), 1)(power, x),
            "power x": jax.jacfwd(in_x, 0)(power, x),
            "power power": jax.grad(jax.grad(scaled_cdf))(power, x),
        }

    density = np.exp(-1.0) / np.sqrt(2.0 * np.pi)
    by_hand = {
        "x": density,
        "x x": -x * density,
        "x x x": (x**2 - 1.0) * density,
        "power x": density,
        "power power": scaled_cdf(power, x),
    }
    found = derivatives(power, x)
    for name, expected in by_hand.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, err_msg=name)


def test_single_precision():
    x = jnp.linspace(-20.0, 5.0, 101, dtype=jnp.float32)
    power = jnp.where(x < 0.0, 0.5 * x**2, 0.0)
    found = scaled_cdf(power, x)
    assert found.dtype == np.float32
    with mp.workdps(30):
        pairs = zip(np.asarray(power).tolist(), np.asarray(x).tolist(), strict=True)
        expected = [float(mp.exp(mp.mpf(p)) * mp.ncdf(mp.mpf(v))) for p, v in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
