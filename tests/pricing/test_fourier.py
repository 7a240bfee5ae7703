"""Fourier's accuracy on normal parameters, and what remains of it on extreme ones."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from pricing import European, Fourier, Heston, price
from tests import references
from tests.helpers import double

pytestmark = double

SPOT, RATE, YIELD = 100.0, 0.02, 0.01


def heston(parameters):
    """Rows of (v0, kappa, theta, xi, rho) as a batch of models."""
    build = lambda row: Heston(SPOT, RATE, *row, YIELD)
    return eqx.filter_vmap(build)(jnp.asarray(parameters))


@eqx.filter_jit
def values(products, models, num_nodes=256):
    """One row for each model, one column for each contract."""
    each = lambda strike, t, model: price(European(strike, t), model, Fourier(num_nodes)).value
    return eqx.filter_vmap(each)(products.strike, products.expiry, models)


def calls_at(strikes, expiries):
    """Calls [models, expiries * strikes]."""
    strikes, expiries = np.broadcast_arrays(strikes, np.asarray(expiries)[None, :, None])
    return European(*(x.reshape(strikes.shape[0], -1) for x in (strikes, expiries)))


def normal_parameters():
    dice = np.random.default_rng(20020705)
    low, high = np.array([(0.01, 0.2), (0.5, 5.0), (0.01, 0.2), (0.1, 1.0), (-0.9, 0.3)]).T
    return dice.uniform(low, high, (30, 5))


@pytest.mark.costly
@pytest.mark.parametrize("width", [pytest.param(3.0, marks=pytest.mark.slow), 6.0])
def test_normal_parameters_are_exact(width):
    """Strikes up to `width` standard deviations from the forward; the spot is 100."""
    parameters, expiries = normal_parameters(), np.array([1 / 12, 0.25, 1.0, 3.0, 10.0])
    v0, kappa, theta = parameters[:, :3, None].transpose(1, 0, 2)
    variance = theta * expiries + (v0 - theta) * (1.0 - np.exp(-kappa * expiries)) / kappa
    forward = SPOT * np.exp((RATE - YIELD) * expiries)[:, None]
    strikes = forward * np.exp(np.sqrt(variance)[..., None] * np.linspace(-width, width, 13))
    models, calls = heston(parameters), calls_at(strikes, expiries)
    error = np.abs(values(calls, models) - values(calls, models, 1024))
    assert np.max(error) < 1e-10


def gatheral(v0, kappa, theta, xi, rho, t, strike):
    """Two integrals over real u of P_j (Gatheral, The Volatility Surface, 2006, eq. 2.8 to 2.13)."""
    forward = SPOT * np.exp((RATE - YIELD) * t)
    x = np.log(forward / strike)

    def integrand(u, j):
        alpha, beta = -0.5 * u * u - 0.5j * u + 1j * j * u, kappa - rho * xi * (j + 1j * u)
        d = np.sqrt(beta**2 - 2.0 * alpha * xi**2)
        r, g = (beta - d) / xi**2, (beta - d) / (beta + d)
        fade = np.exp(-d * t)
        level = kappa * (r * t - 2.0 / xi**2 * np.log((1.0 - g * fade) / (1.0 - g)))
        slope = r * (1.0 - fade) / (1.0 - g * fade)
        return (np.exp(level * theta + slope * v0 + 1j * u * x) / (1j * u)).real

    share, cash = (
        0.5
        + sum(
            quad(integrand, a, b, (j,), epsabs=1e-13, epsrel=1e-13, limit=500)[0]
            for a, b in ((0.0, 20.0), (20.0, 400.0))
        )
        / np.pi
        for j in (1, 0)
    )
    return np.exp(-RATE * t) * (forward * share - strike * cash)


@pytest.mark.parametrize("strike", [80.0, 100.0, 125.0])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_an_adaptive_quadrature_of_gatherals_formula_agrees(row, strike):
    parameters = normal_parameters()[row]
    model = Heston(SPOT, RATE, *parameters, YIELD)
    found = price(European(strike, 1.0), model).value
    assert abs(found - gatheral(*parameters, 1.0, strike)) < 1e-10


def call_by_trapezoids(v0, kappa, theta, xi, rho, t, strike):
    """Lewis' integral on a turned path by the trapezoidal rule in log u, without a control."""
    forward = SPOT * np.exp((RATE - YIELD) * t)
    k = np.log(forward / strike)
    slope = k - rho * (v0 + kappa * theta * t) / xi
    x, step = np.linspace(-38.0, 32.0, 2**15, retstep=True)
    ray = np.exp(1j * np.sign(slope) * np.pi / 12.0)
    u = np.exp(x) * ray
    w = u - 0.5j
    beta = kappa - rho * xi * 1j * w
    # beta^2 + xi^2 (w^2 + i w), without what cancels at rho = 1
    d = np.sqrt(
        kappa**2 + (xi**2 - 2.0 * kappa * rho * xi) * 1j * w + (1.0 - rho**2) * (xi * w) ** 2
    )
    fade, g = np.exp(-d * t), (beta - d) / (beta + d)
    log_share = np.log((1.0 - g * fade) * (beta + d) / (2.0 * d))
    log_phi = v0 * (beta - d) / xi**2 * (1.0 - fade) / (1.0 - g * fade)
    log_phi += kappa * theta / xi**2 * ((beta - d) * t - 2.0 * log_share)
    integral = np.sum((np.exp(log_phi + 1j * u * k) / (u * u + 0.25) * u).real) * step
    return np.exp(-RATE * t) * (forward - np.sqrt(forward * strike) / np.pi * integral)


@pytest.mark.parametrize("rho", [-1.0, -0.999, 0.999, 1.0])
def test_a_correlation_of_one_is_exact(rho):
    """The characteristic function decays as exp(-sqrt u): by a straight path 7e-7 to 2e-5 were left."""
    rows = [(0.04, 1.5, 0.04, 0.5, rho), (0.04, 0.5, 0.04, 1.0, rho), (0.09, 1.0, 0.04, 0.8, rho)]
    forward = SPOT * np.exp(RATE - YIELD)
    strikes = forward * np.exp(np.array([-0.3, -0.11, -0.05, -0.01, 0.0, 0.02, 0.09, 0.25]))
    calls = European(np.tile(strikes, (len(rows), 1)), np.ones((len(rows), strikes.size)))
    found = values(calls, heston(rows), Fourier().num_nodes)
    exact = [[call_by_trapezoids(*row, 1.0, strike) for strike in strikes] for row in rows]
    assert np.max(np.abs(found - np.array(exact)) / np.sqrt(forward * strikes)) < 1e-8


@pytest.mark.costly
def test_a_bunch_of_strikes_shares_nodes_and_stays_exact():
    """Eight strikes to four deviations on the path of the nearest, 3 days to 10 years; 300 models."""
    dice = np.random.default_rng(20261124)
    low, high = np.log([(0.005, 0.3), (0.2, 20.0), (0.005, 0.3), (0.1, 3.0), (3 / 365, 10.0)]).T
    *parameters, t = np.exp(dice.uniform(low, high, (300, 5))).T
    models = heston(np.stack([*parameters, dice.uniform(-0.95, 0.4, 300)], axis=1))
    width = dice.choice([-1.0, 1.0], 300)[:, None] * dice.uniform(0.0, 4.0, (300, 8))

    @eqx.filter_vmap
    def off_by(model, t, width):
        width = jnp.clip(width * jnp.sqrt(model.total_variance(t)), -2.0, 2.0)
        strikes = model.forward(t) * jnp.exp(width)
        side_of = eqx.filter_vmap(
            lambda strike: Fourier().shared_key(European(strike, t), model)[1]
        )
        farthest = jnp.argmax(jnp.abs(width))
        are_alike = side_of(strikes) == side_of(strikes)[farthest]
        strikes = jnp.where(are_alike, strikes, strikes[farthest])
        of_each = eqx.filter_vmap(lambda strike: European(strike, t).canonical)
        calls = of_each(strikes)
        shared = Fourier().shared(calls, model)
        together = eqx.filter_vmap(lambda call: Fourier().samples_given(call, model, shared))(calls)
        alone, exact = (
            eqx.filter_vmap(lambda call, n=n: Fourier(n).samples(call, model))(calls)
            for n in (Fourier().num_nodes, 1024)
        )
        return jnp.abs(together - exact), jnp.abs(alone - exact)

    together, alone = eqx.filter_jit(off_by)(models, jnp.asarray(t), jnp.asarray(width))
    assert np.max(alone) < 1e-12 * SPOT
    assert np.quantile(together, 0.99) < 1e-11 * SPOT
    assert np.max(together) < 1e-9 * SPOT


STRIKES = SPOT * np.linspace(0.5, 1.6, 23)


def no_arbitrage_gap(calls, found):
    """The worst breach, per model and as a share of the spot: bounds, monotone and convex in strike."""
    shape = (found.shape[0], -1, STRIKES.size)
    strike, t, call = (np.asarray(x).reshape(shape) for x in (calls.strike, calls.expiry, found))
    share, cash = SPOT * np.exp(-YIELD * t), strike * np.exp(-RATE * t)
    slope = np.diff(call) / np.diff(strike)
    breaches = (
        np.maximum(share - cash, 0.0) - call,
        call - share,
        slope * SPOT,
        (-np.exp(-RATE * t[..., 1:]) - slope) * SPOT,
        -np.diff(call, 2),
    )
    return np.max([np.max(breach, axis=(1, 2)) for breach in breaches], axis=0) / SPOT


@pytest.mark.costly
def test_the_dax_optimum_from_a_day_to_fifteen_years():
    models = heston([list(references.DAX_OPTIMUM.values())])
    days = [1, 2, 3, 5, 10, 30, 90, 180, 365, 730, 1825, 3650, 5475]
    calls = calls_at(STRIKES[None, None, :], np.array(days) / 365)
    found = values(calls, models)
    assert np.max(np.abs(found - values(calls, models, 2048))) < 1e-12 * SPOT
    assert no_arbitrage_gap(calls, found) < 1e-13


# (v0, kappa, theta, xi, rho): every combination
EXTREME = np.array(
    list(
        itertools.product(
            (1e-6, 0.04, 1.0),
            (1e-3, 1.0, 30.0),
            (0.04,),
            (1e-3, 0.1, 1.0, 5.0),
            (-1.0, -0.99, 0.0, 0.99, 1.0),
        )
    )
)
EXPIRIES = [1 / 365, 7 / 365, 0.25, 1.0, 15.0]


@pytest.fixture(scope="module")
def extreme():
    calls = calls_at(np.tile(STRIKES, (len(EXTREME), 1, 1)), EXPIRIES)
    return calls, values(calls, heston(EXTREME))


@pytest.mark.costly
def test_extreme_parameters_give_finite_values(extreme):
    assert np.all(np.isfinite(extreme[1]))


@pytest.mark.costly
@pytest.mark.xfail(
    strict=True,
    reason="13 of 180 sets breach by more than 1e-7 of spot, the worst by 3e-3: a correlation of one beside "
    "a vol of vol of 5, and a variance that starts at nothing and hardly moves",
)
def test_extreme_parameters_give_no_arbitrage(extreme):
    gap = no_arbitrage_gap(*extreme)
    worst = np.argsort(-gap)[:5]
    assert np.all(gap < 1e-7), list(zip(EXTREME[worst].tolist(), gap[worst], strict=True))


@pytest.mark.costly
def test_all_but_the_corners_of_the_extremes_give_no_arbitrage(extreme):
    """A correlation below one in size, and a vol of vol above .001 and below 5."""
    _, _, _, xi, rho = EXTREME.T
    kept = (np.abs(rho) < 1.0) & (xi > 0.001) & (xi < 5.0)
    assert np.sum(kept) > 50
    assert np.all(no_arbitrage_gap(*extreme)[kept] < 1e-7)
