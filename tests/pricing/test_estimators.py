"""Monte Carlo Greeks without bias and with little noise, beside what the usual estimators give."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from benchmarks import naive
from pricing import (
    Autocallable,
    Barrier,
    BlackScholes,
    Digital,
    DoubleBarrier,
    European,
    Fourier,
    Heston,
    MonteCarlo,
    Quadrature,
    price,
)
from pricing.estimators.corridor import deviations, far
from pricing.estimators.gaussian_mixture import GaussianMixture, Interval
from pricing.estimators.score import Gaussian
from pricing.valuation import select_method
from tests.cases import others_later
from tests.helpers import double, first_difference

PATHS, BLOCK = 100_000, 5_000
DATES = 0.2 * np.arange(1, 51) / 50
HESTON = (0.04, 1.5, 0.04, 0.5, -0.7)
CALL = European(100.0, 1.0)
pytestmark = double


def equity():
    return BlackScholes(100.0, 0.05, 0.2)


def volatile():
    return BlackScholes(100.0, 0.1, 0.3)


def stochastic(parameters=HESTON):
    return Heston(100.0, 0.02, *parameters)


def mean_and_error(samples):
    samples = np.asarray(samples)
    return samples.mean(axis=-1), samples.std(axis=-1, ddof=1) / np.sqrt(samples.shape[-1])


def ladder(product, model, method, seed=1):
    """Means and standard errors of value, Delta and Gamma."""
    return mean_and_error(_ladder(product, model, method, jax.random.key(seed)))


@eqx.filter_jit
def _ladder(product, model, method, key):
    value = lambda s: method.samples(product, model.shifted(underlying=s), key=key)
    along = lambda f: lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))
    (values, delta), (_, gamma) = along(along(value))(jnp.zeros(()))
    return jnp.stack([values, delta, gamma])


def down_and_out(barrier, spot=100.0, rate=0.1, vol=0.3, strike=100.0):
    """Value, Delta and Gamma by plain backward quadrature, with the derivatives of the last kernel."""
    dt, steps = DATES[0], DATES.size
    drift, std = (rate - 0.5 * vol**2) * dt, vol * np.sqrt(dt)
    low, high = np.log(barrier), np.log(spot) + 10.0 * vol * np.sqrt(DATES[-1])
    edges = np.linspace(low, high, 61)
    x, w = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(edges)[:, None]
    nodes = (edges[:-1, None] + half * (1.0 + x)).ravel()
    weights = (half * w).ravel()

    d1 = (nodes - np.log(strike) + (rate + 0.5 * vol**2) * dt) / std
    value = np.exp(nodes) * norm.cdf(d1) - np.exp(-rate * dt) * strike * norm.cdf(d1 - std)
    kernel = np.exp(-rate * dt) * norm.pdf(nodes, nodes[:, None] + drift, std) * weights
    for _ in range(steps - 2):
        value = kernel @ value

    z = (nodes - np.log(spot) - drift) / std
    measure = np.exp(-rate * dt) * norm.pdf(z) / std * weights * value
    total, slope, bend = (np.sum(measure * f) for f in (1.0, z / std, (z**2 - 1.0) / std**2))
    return total, slope / spot, (bend - slope) / spot**2


def exact(product, model):
    method = select_method(product, model)
    return np.asarray(_ladder(product, model, method, None))


# name: product, model, with the control, the answer, the largest relative error of Gamma at 100,000 paths
CASES = {
    "call": (CALL, equity, True, None, 0.003),
    "digital": (Digital(100.0, 1.0), equity, True, None, 0.008),
    "call under Heston": (CALL, stochastic, False, None, 0.005),
    "call under Heston, hedged": (CALL, stochastic, True, None, 0.0015),
    "digital under Heston, hedged": (Digital(95.0, 1.0, "put"), stochastic, True, None, 0.02),
    "90 plain": (Barrier(100.0, 0.2, 90.0, dates=DATES), volatile, False, 90.0, 0.04),
    "90": (Barrier(100.0, 0.2, 90.0, dates=DATES), volatile, True, 90.0, 2e-4),
    "95 plain": (Barrier(100.0, 0.2, 95.0, dates=DATES), volatile, False, 95.0, 2.5),
    "95": (Barrier(100.0, 0.2, 95.0, dates=DATES), volatile, True, 95.0, 1e-3),
}


# "90" shows the control along fifty dates, the tests below what is left without it, and a call the hedge
REPEATED = "90 plain", "95 plain", "95", "digital under Heston, hedged"


@pytest.mark.costly
@pytest.mark.parametrize("name", others_later(CASES, CASES.keys() - REPEATED))
def test_value_delta_and_gamma_are_unbiased_and_gamma_is_sharp(name):
    product, model, control, barrier, most = CASES[name]
    product = product.canonical  # calls and digitals are of one program
    answer = exact(product, model()) if barrier is None else down_and_out(barrier)
    steps = 64 if "digital under" in name else 32
    method = MonteCarlo(PATHS, steps, BLOCK, control_variate=control)
    means, errors = ladder(product, model(), method)
    assert np.all(errors > 0.0)
    np.testing.assert_array_less(np.abs(means - np.asarray(answer)), 3.0 * errors)
    assert errors[2] < most * abs(answer[2])


def test_the_reference_of_the_barriers_is_the_published_one():
    np.testing.assert_allclose(down_and_out(90.0), (6.098196, 0.632810, 0.020572), atol=6e-7)
    np.testing.assert_allclose(down_and_out(95.0), (4.906789, 0.797814, 0.000681), atol=6e-7)


QUARTERS = np.arange(1, 5) / 2.0
MONITORED = {
    "between two barriers": DoubleBarrier(100.0, 80.0, 125.0, QUARTERS / 2.0, rebate=1.0),
    "comes to life below": Barrier(100.0, 2.0, 85.0, "down-and-in", "put", 2.0, dates=QUARTERS),
    "two dates": Barrier(100.0, 1.0, 115.0, "up-and-out", dates=[0.3, 1.0]).canonical.padded(4),
    "autocallable": Autocallable(QUARTERS, [0.02, 0.04, 0.06, 0.08], 100.0, 70.0, 100.0, 100.0),
    "uneven dates": Autocallable([0.01, 0.02, 1.0, 3.0], [0.1] * 4, 100.0, 70.0, 100.0, 100.0),
}


_EQUITY = {"spot": 100.0, "rate": 0.05, "vol": 0.3, "dividend_yield": 0.01}


def monitored(control):
    """In blocks whose noise is drawn in a loop, which makes for a smaller program."""
    return MonteCarlo(16_384, 1, 8192, control_variate=control)


@pytest.mark.parametrize("name", others_later(MONITORED, (), ["two dates", "autocallable"]))
def test_a_fit_of_the_value_takes_the_noise_away_from_every_barrier_on_dates(name):
    product, model = MONITORED[name].canonical, BlackScholes(**_EQUITY)
    answer = np.asarray(_ladder(product, model, Quadrature(), None))
    plain, (means, errors) = (
        ladder(product, model, monitored(control)) for control in (False, True)
    )
    np.testing.assert_array_less(np.abs(plain[0] - answer), 3.5 * plain[1])
    np.testing.assert_array_less(np.abs(means - answer), 3.5 * errors + 1e-11)
    np.testing.assert_array_less(errors, 1e-2 * plain[1])


@pytest.mark.costly
def test_every_derivative_of_a_controlled_sample_is_that_of_its_differences():
    """The fit moves with the parameters, so that bumping with the same noise sees what differentiating sees."""
    product = DoubleBarrier(100.0, 80.0, 125.0, QUARTERS[:2], rebate=1.0)
    method, key = MonteCarlo(512, 1, block=512), jax.random.key(3)

    def samples(shift):
        model = BlackScholes(100.0 + 10.0 * shift, 0.05 - 0.1 * shift, 0.3 + 0.1 * shift)
        return method.samples(product, model, key=key)

    along = lambda f: lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))
    both = jax.jit(along(along(samples)))  # ((value, slope), (slope, curvature))
    _, (slope, curvature) = both(0.0)
    once, twice = (first_difference(lambda h, i=i: both(h)[0][i], 1e-3) for i in range(2))
    np.testing.assert_allclose(slope, once, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(curvature, twice, rtol=1e-7, atol=1e-7)


@pytest.mark.costly
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("kind, level", [("down-and-out", 400.0), ("up-and-out", 20.0)])
def test_a_spot_far_beyond_the_barrier_has_no_nan(kind, level, control):
    """It is out at the first date: the rebate is all that is left, in every derivative."""
    product = Barrier(100.0, 2.0, level, kind, rebate=1.0, dates=QUARTERS)
    model = BlackScholes(**_EQUITY | {"vol": 0.1})
    means, errors = ladder(product.canonical, model, monitored(control))
    np.testing.assert_allclose(means, [np.exp(-0.05 * QUARTERS[0]), 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(errors, 0.0, atol=1e-12)


def test_the_mean_of_a_gaussian_mixture_inside_an_interval_is_that_of_a_quadrature():
    mixture = GaussianMixture(
        jnp.asarray(-1.0), jnp.asarray(0.3), jnp.asarray([1.0, -2.0, 0.5, 3.0])
    )
    lower, upper, mean, std = -0.4, 0.7, 0.2, 0.5
    x, w = np.polynomial.legendre.leggauss(60)
    y = 0.5 * (lower + upper) + 0.5 * (upper - lower) * x
    density = norm.pdf(y, mean, std) * w * 0.5 * (upper - lower)
    expected = np.sum(density * jax.vmap(mixture)(jnp.asarray(y)))
    found = mixture.mean_inside(*map(jnp.asarray, (mean, std, lower, upper)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mixture_is_fitted_to_a_function_at_chebyshevs_nodes():
    interval = Interval(jnp.asarray(-1.0), jnp.asarray(2.0), 32)
    points = interval.points
    np.testing.assert_allclose(points + points[::-1], 1.0, atol=1e-12)
    assert jnp.all(jnp.diff(points) > 0.0) and -1.0 < points[0] < points[-1] < 2.0
    grid = jnp.linspace(-1.0, 2.0, 301)
    found = jax.vmap(interval.fit(jnp.cos(3.0 * points)))(grid)
    np.testing.assert_allclose(found, jnp.cos(3.0 * grid), atol=1e-6)


def test_where_nothing_moves_the_side_of_a_level_is_all_that_counts():
    away = jnp.asarray([-0.1, 0.0, 0.1, 1.0])
    found = deviations(away, jnp.asarray([0.0, 0.0, 0.0, 0.5]))
    np.testing.assert_array_equal(found, [-far(found.dtype), 0.0, far(found.dtype), 2.0])


def test_the_density_whose_score_is_taken_is_that_of_the_gaussian():
    dice = np.random.default_rng(0)
    mean, std, x = dice.normal(size=(3, 3, 4))
    std, factor = np.exp(std), np.linalg.cholesky(np.cov(dice.normal(size=(3, 9))))
    for own in (None, factor):
        law = Gaussian(*map(jnp.asarray, (mean, std)), None if own is None else jnp.asarray(own))
        z = jnp.zeros((3, 4))  # read where there is no density: nowhere
        np.testing.assert_allclose(law.at(law.normals(jnp.asarray(x), z)), x, rtol=1e-10)
        spread = np.eye(3) if own is None else own
        expected = [
            multivariate_normal.logpdf(x[:, i], mean[:, i], np.outer(s, s) * (spread @ spread.T))
            for i, s in enumerate(std.T)
        ]
        constant = -1.5 * np.log(2.0 * np.pi)
        density = law.log_density(jnp.asarray(x), z) + constant
        np.testing.assert_allclose(density, expected, rtol=1e-9)


# --- the estimators that are usually written -------------------------------------------------------------


def call(spots):
    return np.exp(-0.05) * jnp.maximum(spots[-1] - 100.0, 0.0)


def digital(spots):
    return np.exp(-0.05) * jnp.where(spots[-1] > 100.0, 1.0, 0.0)


@functools.cache
def naive_paths():
    return naive.Paths.draw(equity(), jnp.arange(1.0, 9.0) / 8.0, jax.random.key(2), PATHS)


@pytest.mark.parametrize("payoff", [call, digital])
def test_differentiating_a_payoff_twice_along_paths_is_zero_on_every_path(payoff):
    """What a naive Monte Carlo Gamma is: no error, no noise, and no Gamma."""
    np.testing.assert_array_equal(naive.twice_pathwise(payoff, naive_paths(), 100.0), 0.0)


def test_the_usual_estimators_are_noisier_by_far():
    gamma = exact(CALL, equity())[2]
    for estimator, least in (
        (naive.likelihood_ratio, 0.05),
        (naive.pathwise_then_likelihood_ratio, 0.01),
        (functools.partial(naive.differences, bump=0.01), 0.05),
    ):
        mean, error = mean_and_error(estimator(call, naive_paths(), 100.0))
        assert abs(mean - gamma) < 3.0 * error
        assert error > least * gamma, "the library's: .0023 of it"


# --- derivatives to the parameters of Heston ---------------------------------------------------------------


def slopes(samples, at):
    """Means and standard errors of the derivative of the samples to each number of `at`."""
    slope = jax.jit(jax.vmap(lambda d: jax.jvp(samples, (at,), (d,))[1]))
    return mean_and_error(slope(jnp.eye(at.size)))


@functools.cache
def slopes_by_fourier():
    value = lambda x: price(CALL, stochastic(x), Fourier(), throw=False).value
    return jax.jit(jax.grad(value))(jnp.asarray(HESTON))


@pytest.mark.costly
@pytest.mark.parametrize("control", [pytest.param(False, marks=pytest.mark.slow), True])
def test_parameter_greeks_of_heston_are_unbiased(control):
    """32 steps leave no bias to be seen at 65,536 paths. To the correlation it is about 0: error .02."""
    at, key, answer = jnp.asarray(HESTON), jax.random.key(7), slopes_by_fourier()
    method = MonteCarlo(65_536, 32, control_variate=control)
    means, errors = slopes(lambda x: method.samples(CALL, stochastic(x), key=key), at)
    np.testing.assert_array_less(np.abs(means - answer), 3.0 * errors)
    if control:
        np.testing.assert_array_less(errors[:4], 0.01 * np.abs(answer[:4]))
        assert errors[4] < 0.02
    else:
        np.testing.assert_array_less(errors, [0.25, 0.01, 0.4, 0.06, 0.06])


@pytest.mark.costly
def test_along_paths_of_eulers_scheme_the_derivative_to_the_first_variance_is_noise():
    """sqrt(max(v, 0)) has no bounded slope where the variance touches zero."""
    normals = jax.random.normal(jax.random.key(1), (2, 64, 16_384))
    euler = functools.partial(naive.full_truncation_euler, strike=100.0, rate=0.02)
    at = jnp.asarray(HESTON)
    _, errors = slopes(lambda x: euler(x, normals), at)
    ours = slopes(
        lambda x: MonteCarlo(16_384, 32).samples(CALL, stochastic(x), key=jax.random.key(1)), at
    )[1]
    assert errors[0] > 30.0 * ours[0]
