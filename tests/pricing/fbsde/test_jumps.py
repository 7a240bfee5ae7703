"""Jumps of the forward equation: Merton's put beside its series and a convolution, and what refuses jumps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import gammaln
from scipy.stats import norm

from pricing.fbsde import (
    BackwardDP,
    DeepBSDE,
    GradientRegression,
    GridQuadrature,
    Hermite,
    Jumps,
    OneStepMalliavin,
    PayoffBasis,
    Problem,
    bounds,
    certify,
    parametric,
    problems,
    solve,
)

KEY, OTHER = jax.random.split(jax.random.key(0))
RATE, VOL, MEAN, DEVIATION, STRIKE = 0.05, 0.2, -0.1, 0.2, 100.0  # of problems.merton_put
JUMP = np.exp(MEAN + 0.5 * DEVIATION**2)


def chances(mean: float) -> np.ndarray:
    count = np.arange(60)
    return np.exp(-mean + count * np.log(mean) - gammaln(count + 1))


def merton(spot: float) -> float:
    """Merton's series: a sum over the number of jumps of Black-Scholes puts."""
    count = np.arange(60)
    vol = np.sqrt(VOL**2 + count * DEVIATION**2)
    rate = RATE - (JUMP - 1.0) + count * np.log(JUMP)
    d = (np.log(spot / STRIKE) + rate) / vol + 0.5 * vol
    puts = STRIKE * np.exp(-rate) * norm.cdf(vol - d) - spot * norm.cdf(-d)
    return float(chances(JUMP) @ puts)


def bermudan(num_dates: int, spot: float = 100.0) -> tuple[float, float]:
    """Return value and Delta by convolutions with the density of a year's share of the logarithm."""
    nodes, width, dt = 2**13, 6.0, 1.0 / num_dates
    y = np.linspace(-0.5 * width, 0.5 * width, nodes, endpoint=False)
    step, drift = y[1] - y[0], RATE - (JUMP - 1.0) - 0.5 * VOL**2
    count = np.arange(60)[:, None]
    deviation = np.sqrt(VOL**2 * dt + count * DEVIATION**2)
    density = chances(dt) @ norm.pdf(y[None], drift * dt + count * MEAN, deviation)
    paid = np.maximum(STRIKE - spot * np.exp(y), 0.0)
    value = paid
    for date in range(num_dates):
        low = STRIKE - spot * np.exp(y - width)
        wide = np.concatenate([low, value, np.zeros(nodes)])
        ahead = fftconvolve(wide, density[::-1], mode="same")[nodes : 2 * nodes]
        value = np.exp(-RATE * dt) * step * ahead
        value = np.maximum(paid, value) if date < num_dates - 1 else value
    middle = np.interp([-step, 0.0, step], y, value)
    return float(middle[1]), float((middle[2] - middle[0]) / (2.0 * step * spot))


@pytest.mark.costly
def test_a_put_by_merton_on_a_grid():
    problem = problems.merton_put()
    solution = solve(problem, GridQuadrature(), key=KEY)
    up, middle, down = (merton(100.0 + h) for h in (0.1, 0.0, -0.1))
    np.testing.assert_allclose(solution.value(0.0, problem.x0), middle, rtol=2e-4)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0), [5.0 * (up - down)], rtol=5e-4)
    gamma = 100.0 * (up - 2.0 * middle + down)
    np.testing.assert_allclose(solution.gamma(0.0, problem.x0), [[gamma]], rtol=5e-3)


@pytest.mark.costly
def test_a_grid_reaches_states_after_jumps_that_few_paths_have():
    """A default with a probability of .03 %: two or three of the paths that determine the grid have one."""
    intensity, left, vol = 3e-4, 0.3, 0.05
    drift = RATE - intensity * (left - 1.0)

    def step(t, dt, x, dw):
        return x * jnp.exp((drift - 0.5 * vol**2) * dt + vol * dw)

    def black(growth: float) -> float:
        d = (np.log(growth) + drift) / vol + 0.5 * vol
        return STRIKE * float(norm.cdf(vol - d) - growth * np.exp(drift) * norm.cdf(-d))

    problem = Problem(
        1,
        1.0,
        STRIKE,
        drift=lambda t, x: drift * x,
        diffusion=lambda t, x: vol * x,
        driver=lambda t, x, y, z: -RATE * y,
        terminal=lambda x: jnp.maximum(STRIKE - x[0], 0.0),
        num_steps=4,
        step=step,
        jumps=Jumps(intensity, lambda x, z: left * x),
    )
    by_number = [black(left**count) for count in range(4)]
    value = np.exp(-RATE) * float(chances(intensity)[:4] @ by_number)
    for key in jax.random.split(KEY, 2):
        solution = solve(problem, GridQuadrature(), key=key)
        np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=2e-4)


@pytest.fixture(scope="module")
def regression():
    """A Bermudan put by regression on few paths: its Delta is off by much."""
    problem = problems.merton_put(20, 10)
    bases = (Hermite(6), PayoffBasis())
    return solve(problem, GradientRegression(16384, bases), key=KEY)


@pytest.mark.costly
def test_a_bermudan_put_by_merton_on_a_grid():
    problem = problems.merton_put(20, 10)
    solution = solve(problem, GridQuadrature(), key=KEY)
    value, delta = bermudan(10)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), value, rtol=2e-4)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0), [delta], rtol=5e-4)


@pytest.mark.costly
def test_certificates_of_jumps_tell_how_far_off_a_regression_is(regression):
    value, delta = bermudan(10)
    found = certify(regression, key=OTHER, num_paths=16384)
    assert (
        abs(found.value.mean - value) < 4.0 * found.value.std_error + 2e-3 * value
    )  # the rule's part
    assert abs(found.delta.mean[0] - delta) < 4.0 * found.delta.std_error[0]
    assert found.value.std_error < 0.02 * value


def test_counts_of_jumps_are_poisson():
    jumps = Jumps(3.0, lambda x, z: x + z)
    noise = jumps.draw(KEY, 0.1, (4096, 8), 2)
    count = np.asarray(noise.count)
    expected = np.asarray(jumps.chances(0.1))
    np.testing.assert_allclose(expected[:3], np.exp(-0.3) * np.array([1.0, 0.3, 0.045]), rtol=1e-5)
    for number in range(3):
        share, error = np.mean(count == number), np.sqrt(expected[number] / count.size)
        assert abs(share - expected[number]) < 4.0 * error
    assert noise.marks.shape == (4096, 8, 4, 2)
    x = jumps.applied(jnp.zeros(2), jax.tree.map(lambda a: a[0, 0], noise))
    np.testing.assert_allclose(x, np.sum(noise.marks[0, 0, : count[0, 0]], axis=0), rtol=1e-6)


def test_too_many_jumps_for_a_step_are_refused():
    with pytest.raises(ValueError, match=r"more than most=4 jumps in a step of 0\.5 years"):
        problems.merton_put(2)
    with pytest.raises(ValueError, match="most=0"):
        Jumps(1.0, lambda x, z: x, most=0)


@pytest.mark.parametrize("solver", [DeepBSDE(), BackwardDP(), OneStepMalliavin()])
def test_networks_refuse_jumps_and_say_who_has_them(solver):
    with pytest.raises(TypeError, match="jumps: GridQuadrature and GradientRegression"):
        solve(problems.merton_put(), solver, key=KEY)


@pytest.mark.costly
def test_bounds_and_features_refuse_jumps(regression):
    with pytest.raises(ValueError, match="this problem has jumps"):
        bounds(regression, key=OTHER)
    with pytest.raises(ValueError, match="has no jumps"):
        parametric(_jumping, 90.0, 110.0)


def _jumping(spot) -> Problem:
    return problems.merton_put().replace(x0=spot)
