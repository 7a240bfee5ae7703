"""SABR's implied vol beside published figures, many digits, its exact limits, geodesics and simulation."""

import functools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ncx2, norm, qmc

from pricing.models import sabr_vol
from pricing.numerics.black import black
from pricing.numerics.implied_vol import implied_vol
from tests import references
from tests.helpers import double

pytestmark = double

both = pytest.mark.parametrize("leading", ["obloj", "hagan"])


def vols(*point, leading="obloj"):
    """At (forward, strike, expiry, alpha, beta, rho, nu), which broadcast."""
    return sabr_vol(*(jnp.asarray(x, float) for x in point), leading=leading)


# --- published figures ------------------------------------------------------------------------------


@pytest.mark.parametrize(("expiry", "rho"), references.ANTONOV_SPECTOR)
def test_the_tables_of_antonov_and_spector(expiry, rho):
    published = references.ANTONOV_SPECTOR[expiry, rho]
    found = vols(1.0, np.arange(1, 21) / 10.0, expiry, 0.25, 0.3, rho, 0.3, leading="hagan")
    np.testing.assert_allclose(found, published, rtol=0.0, atol=5.01e-5)


@both
def test_the_example_of_mathworks(leading):
    """MathWorks' page on blackvolbysabr prints .2122; the year fraction is 2 on its dates."""
    found = vols(0.0357, 0.03, 2.0, 0.036, 0.5, -0.25, 0.35, leading=leading)
    np.testing.assert_allclose(found, 0.2122, rtol=0.0, atol=5e-5)


def points(count: int, seed: int = 7) -> np.ndarray:
    """(forward, strike, expiry, alpha, beta, rho, nu) of wide ranges, of shape (7, count)."""
    low = np.array([0.02, -1.2, 0.05, 0.05, 0.0, -0.95, 0.01])
    high = np.array([5000.0, 1.2, 5.0, 0.5, 1.0, 0.95, 1.0])
    unit = qmc.Sobol(7, rng=seed).random(count)
    forward, x, expiry, level, beta, rho, nu = (low + unit * (high - low)).T
    return np.stack(
        [forward, forward * np.exp(x), expiry, level * forward ** (1 - beta), beta, rho, nu]
    )


def test_hagans_form_is_that_of_quantlib():
    ql = pytest.importorskip("QuantLib")
    cases = points(256)
    expected = [
        ql.sabrVolatility(k, f, t, alpha, beta, nu, rho)
        for f, k, t, alpha, beta, rho, nu in cases.T.tolist()
    ]
    np.testing.assert_allclose(vols(*cases, leading="hagan"), expected, rtol=1e-10)


# --- many digits ------------------------------------------------------------------------------------


def published_form(f, k, t, alpha, beta, rho, nu, leading):
    """The formulas as they are printed, away from their removable singularities."""
    c, x, mean = 1 - beta, mp.log(f / k), mp.sqrt(f * k)
    if leading == "obloj":
        z = nu / alpha * (f**c - k**c) / c
        chi = mp.log((mp.sqrt(1 - 2 * rho * z + z * z) + z - rho) / (1 - rho))
        first = nu * x / chi
    else:
        z = nu / alpha * mean**c * x
        chi = mp.log((mp.sqrt(1 - 2 * rho * z + z * z) + z - rho) / (1 - rho))
        first = alpha / mean**c / (1 + (c * x) ** 2 / 24 + (c * x) ** 4 / 1920) * z / chi
    second = (
        (c * alpha) ** 2 / (24 * mean ** (2 * c))
        + rho * beta * nu * alpha / (4 * mean**c)
        + (2 - 3 * rho**2) * nu**2 / 24
    )
    return first * (1 + second * t)


def in_many_digits(point, leading, *order):
    """A derivative of the printed form in the seven arguments, by central differences in 250 digits.

    At x = 0, beta = 1 and nu = 0 it is 0 / 0: a step of 1e-20 aside moves a number by no more than that.
    """
    with mp.workdps(250):
        f, k, t, alpha, beta, rho, nu = (mp.mpf(float(x)) for x in point)
        tiny = mp.mpf(10) ** -20
        k, beta, nu = k * (1 + tiny), beta - tiny, nu + tiny
        h = mp.mpf(10) ** -25  # a step: within the point's own distance from 0 / 0

        def moved(directions, signs):
            args = [f, k, t, alpha, beta, rho, nu]
            for d, s in zip(directions, signs, strict=True):
                args[d] += s * h
            return published_form(*args, leading)

        if not order:
            return float(moved((), ()))
        if len(order) == 1:
            return float((moved(order, (1,)) - moved(order, (-1,))) / (2 * h))
        signs = [(1, 1), (-1, -1), (1, -1), (-1, 1)]
        up, down, over, under = (moved(order, s) for s in signs)
        return float((up + down - over - under) / (4 * h * h))


EDGES = [
    # at the money, next to it, where the series end, and far off
    *[(100.0, k, 0.5, 2.0, 0.5, -0.6, 0.9) for k in (100.0, 100.0 + 1e-9, 98.0, 62.0, 400.0)],
    (100.0, 97.80, 1.0, 0.2, 1.0, 0.3, 1.8),  # z h = .2 at about this strike
    (100.0, 101.0, 0.5, 0.2, 1.0, 0.0, 0.8),
    (0.03, 0.005, 5.0, 0.03, 0.0, 0.2, 0.3),
    (100.0, 80.0, 0.5, 0.2, 1.0, -0.5, 0.0),
    (100.0, 100.0, 0.5, 0.2, 1.0, -0.5, 0.0),
    *[(100.0, k, 0.5, 0.2, 1.0, rho, 0.7) for rho in (-0.999999, 0.999999) for k in (70.0, 140.0)],
]


@functools.cache
def expansion(leading):
    """Value, gradient and Hessian in all arguments, compiled once."""
    of = lambda at: sabr_vol(*at, leading=leading)
    return jax.jit(lambda at: (of(at), jax.grad(of)(at), jax.hessian(of)(at)))


@both
@pytest.mark.parametrize("point", EDGES, ids=str)
def test_value_and_derivatives_beside_many_digits(point, leading):
    """First and second derivatives in all arguments, relative to the argument's own scale."""
    scale = np.maximum(np.abs(point), 0.1)
    value, gradient, hessian = expansion(leading)(jnp.asarray(point))
    np.testing.assert_allclose(value, in_many_digits(point, leading), rtol=2e-14)
    expected = np.array([in_many_digits(point, leading, i) for i in range(7)])
    near = abs(point[5]) > 0.99  # 1 - |rho| = 1e-6 is known to ten digits
    rtol = 1e-9 if near else 1e-12
    most = np.max(np.abs(expected * scale))
    np.testing.assert_allclose(gradient * scale, expected * scale, rtol=rtol, atol=1e-12 * most)
    pairs = [[in_many_digits(point, leading, i, j) for j in range(7)] for i in range(7)]
    expected = np.array(pairs) * np.outer(scale, scale)
    most = np.max(np.abs(expected))
    found = hessian * np.outer(scale, scale)
    np.testing.assert_allclose(found, expected, rtol=100.0 * rtol, atol=1e-11 * most)


@pytest.mark.costly
def test_derivatives_are_finite_in_every_corner():
    """At and near the money, nu from 0 on, beta 0 to 1, rho to within 1e-10 of -1 and 1."""
    strikes = (20.0, 99.999999, 100.0, 100.0000001, 500.0)
    grid = np.meshgrid(strikes, (0.0, 0.5, 1.0), (-1 + 1e-10, 0.0, 1 - 1e-10), (0.0, 1e-12, 0.5))
    k, beta, rho, nu = (x.ravel() for x in grid)
    same = np.ones_like(k)
    at = np.stack([100.0 * same, k, 0.5 * same, 0.2 * 100.0 ** (1 - beta), beta, rho, nu], axis=1)
    of = lambda at: sabr_vol(*at)
    assert np.all(vols(*at.T) > 0.0)
    assert np.all(np.isfinite(jax.vmap(jax.grad(of))(jnp.asarray(at))))
    assert np.all(np.isfinite(jax.vmap(jax.hessian(of))(jnp.asarray(at))))


# --- limits -----------------------------------------------------------------------------------------


@both
def test_a_lognormal_of_no_vol_of_vol_is_flat(leading):
    found = vols(100.0, [50.0, 100.0, 180.0], 3.0, 0.23, 1.0, -0.4, 0.0, leading=leading)
    np.testing.assert_allclose(found, 0.23, rtol=1e-15)


def test_the_two_are_the_same_where_beta_is_one_and_at_the_money():
    f, k, t, alpha, beta, rho, nu = points(64)
    level = alpha * f ** (beta - 1.0)
    lognormal = (f, k, t, level, 1.0, rho, nu)
    np.testing.assert_allclose(vols(*lognormal), vols(*lognormal, leading="hagan"), rtol=1e-14)
    at = (f, f, t, alpha, beta, rho, nu)
    np.testing.assert_allclose(vols(*at), vols(*at, leading="hagan"), rtol=1e-14)
    in_time = ((1 - beta) * level) ** 2 / 24 + rho * beta * nu * level / 4
    in_time += (2 - 3 * rho**2) * nu**2 / 24
    np.testing.assert_allclose(vols(*at), level * (1 + in_time * t), rtol=1e-13)
    short = vols(f, f, 1e-12, alpha, beta, rho, nu)
    np.testing.assert_allclose(short, level, rtol=1e-11)


def test_a_power_of_the_forward_alone_is_the_exact_law():
    """nu = 0: dF = alpha F^beta dW, absorbed at 0, whose options are noncentral chi-squared.

    Schroder (1989), eq. 1. The expansion's error is of second order in alpha^2 expiry.
    """
    strikes, expiry, beta = np.array([0.7, 0.85, 1.0, 1.2, 1.4]), 0.5, 0.4

    def error(alpha):
        c = 1.0 - beta
        x, y = (s ** (2 * c) / (c * alpha) ** 2 / expiry for s in (1.0, strikes))
        value = 1.0 - ncx2.cdf(y, 2.0 + 1.0 / c, x) - strikes * ncx2.cdf(x, 1.0 / c, y)
        side = np.where(strikes > 1.0, 1.0, -1.0)
        value = np.where(strikes > 1.0, value, value - 1.0 + strikes)  # out of the money
        exact = implied_vol(*map(jnp.asarray, (value, 1.0, strikes, expiry, side)))
        return vols(1.0, strikes, expiry, alpha, beta, 0.3, 0.0) / exact - 1.0

    wide, narrow = error(0.4), error(0.2)
    assert np.max(np.abs(wide)) < 3e-5
    np.testing.assert_allclose(wide[2] / narrow[2], 16.0, rtol=0.05)


def test_no_vol_is_nan_with_its_derivatives():
    """nu^2 expiry = 100, rho = -.9: the expansion is below 0 here."""
    at = [jnp.asarray(x) for x in (100.0, 100.0, 4.0, 0.2, 1.0, -0.9, 5.0)]
    assert np.isnan(sabr_vol(*at))
    assert np.isnan(jax.grad(sabr_vol, argnums=3)(*at))


def test_an_unknown_leading_term_is_refused():
    with pytest.raises(
        ValueError, match="leading must be one of 'obloj', 'hagan', got 'berestycki'"
    ):
        vols(1.0, 1.0, 1.0, 0.2, 1.0, 0.0, 0.5, leading="berestycki")


# --- independent methods ----------------------------------------------------------------------------


def geodesic_vol(forward, strike, alpha, beta, rho, nu, num_steps):
    """|log(F / K)| over the distance from (F, alpha) to the line f = K, by least energy of broken lines.

    As expiry -> 0 the implied vol is that (Berestycki, Busca and Florent 2004); in y, dy = df / f^beta, and
    l = log(a) / nu the length is ds^2 = ((dy / a)^2 - 2 rho dy / a dl + dl^2) / (1 - rho^2).
    """
    c = 1.0 - beta
    end, l0 = (strike**c - forward**c) / c, np.log(alpha) / nu

    def energy(free):
        y = jnp.concatenate([jnp.zeros(1), free[: num_steps - 1], jnp.asarray([end])])
        l = jnp.concatenate([jnp.asarray([l0]), free[num_steps - 1 :]])  # noqa: E741
        dy = jnp.diff(y) / jnp.exp(0.5 * nu * (l[1:] + l[:-1]))
        dl = jnp.diff(l)
        return num_steps * jnp.sum(dy * dy - 2.0 * rho * dy * dl + dl * dl) / (1.0 - rho**2)

    share = jnp.linspace(0.0, 1.0, num_steps + 1)[1:]
    start = jnp.concatenate([end * share[:-1], jnp.full(num_steps, l0)])
    slopes = {"jac": jax.jit(jax.grad(energy)), "hess": jax.jit(jax.hessian(energy))}
    found = minimize(energy, start, method="trust-exact", tol=1e-9, **slopes)
    assert np.max(np.abs(found.jac)) < 1e-6  # the energy is then true to its square
    return abs(np.log(forward / strike)) / np.sqrt(found.fun)


@pytest.mark.parametrize("strike", [0.3, 2.0])
def test_the_leading_term_is_that_of_the_geodesic(strike):
    """Obloj's is, to what broken lines leave; Hagan's is off by a tenth of a vol point or more."""
    smile = (0.25, 0.3, -0.6, 0.8)
    coarse, fine = (geodesic_vol(1.0, strike, *smile, n) for n in (24, 48))
    exact = fine + (fine - coarse) / 3.0  # the midpoint rule's error is of second order
    at = (1.0, strike, 0.0, *smile)
    np.testing.assert_allclose(vols(*at), exact, rtol=1e-7)
    assert abs(vols(*at, leading="hagan") - exact) > 1e-3


def test_simulation_agrees_at_small_times():
    """beta = 1: the mean, over exact paths of the vol, of Black's formula given the path.

    nu^2 expiry is .04, and the term in time moves vols by .09 points. Simulation is true to .002; the rest is
    what the expansion leaves, whose term in time is that at the money for every strike.
    """
    expiry, alpha, rho, nu = 0.25, 0.3, -0.6, 0.4
    times = np.linspace(0.0, expiry, 17)[1:]
    spread, axes = np.linalg.eigh(np.minimum.outer(times, times))
    normals = norm.ppf(qmc.Sobol(16, rng=3).random(2**14))
    walk = normals @ (axes * np.sqrt(spread))[:, ::-1].T  # the widest first
    walk = np.concatenate([walk, -walk])
    a = alpha * np.exp(nu * walk - 0.5 * nu**2 * times)
    ends = 0.5 * (alpha**2 + a[:, -1] ** 2)
    variance = expiry / 16.0 * (np.sum(a[:, :-1] ** 2, axis=1) + ends)
    forward = 100.0 * np.exp(rho / nu * (a[:, -1] - alpha) - 0.5 * rho**2 * variance)
    assert abs(np.mean(forward) - 100.0) < 3e-4
    strikes = np.array([95.0, 100.0, 105.0])
    side = np.where(strikes < 100.0, -1.0, 1.0)
    std = np.sqrt((1.0 - rho**2) * variance)
    of_path = jax.vmap(black, (0, None, 0, None))
    value = np.mean(of_path(*map(jnp.asarray, (forward, strikes, std, side))), axis=0)
    simulated = implied_vol(*map(jnp.asarray, (value, 100.0, strikes, expiry, side)))
    found = vols(100.0, strikes, expiry, alpha, 1.0, rho, nu)
    np.testing.assert_allclose(found, simulated, rtol=0.0, atol=1e-4)
    np.testing.assert_allclose(found[1], simulated[1], rtol=0.0, atol=3e-5)
    without = vols(100.0, strikes, 0.0, alpha, 1.0, rho, nu)
    assert np.all(np.abs(without - simulated) > 8e-4)
