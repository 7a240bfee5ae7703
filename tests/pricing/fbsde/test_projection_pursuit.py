"""Many contracts by projection pursuit: value, Delta and Gamma of each within their standard errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from benchmarks.fbsde_references import bermudan_puts_on_geometric_means
from pricing import Basket, Bermudan, BlackScholes
from pricing.fbsde import Problem, ProjectionPursuit, Tolerance, certify, from_product, solve
from pricing.fbsde.dynamics.step_weights import polynomial_weights
from pricing.fbsde.error_bars.exercise_rule import PairedPaths, earned_after, improved

COUNT, DIM, RATE, PATHS = 5, 3, 0.05, 32768
DATES = np.array([0.25, 0.5, 0.75, 1.0])
SPOTS, VOLS = np.array([100.0, 1.0, 1e4]), np.array([0.15, 0.25, 0.4])
CORRELATION = 0.3 + 0.7 * np.eye(DIM)
UNITS = np.ones(()), SPOTS, SPOTS[:, None] * SPOTS
SOLVER = ProjectionPursuit(2048, knots=65)
OWN, FRESH = jax.random.split(jax.random.key(0))


def contracts(count: int = COUNT):
    dice = np.random.default_rng(1)
    weights = dice.dirichlet(np.ones(DIM), count)
    return weights, np.exp(weights @ np.log(SPOTS)) * dice.uniform(0.9, 1.1, count)


def book(count: int = COUNT, average: str = "geometric") -> Problem:
    weights, strikes = contracts(count)
    model = BlackScholes(SPOTS, RATE, VOLS, np.zeros(DIM), asset_correlation=CORRELATION)
    means = Basket(strikes, np.ones(count), "put", weights=weights, average=average)
    return from_product(Bermudan(means, np.broadcast_to(DATES, (count, 4))), model, 4)


@pytest.fixture(scope="module")
def exact():
    covariance = CORRELATION * VOLS[:, None] * VOLS
    return bermudan_puts_on_geometric_means(SPOTS, covariance, RATE, *contracts(), DATES)


def test_the_reference_integrates_its_kinks(exact):
    """Half the nodes give the same figures, although their kinks lie elsewhere between nodes."""
    covariance = CORRELATION * VOLS[:, None] * VOLS
    coarse = bermudan_puts_on_geometric_means(SPOTS, covariance, RATE, *contracts(), DATES, 1001)
    for one, other in zip(coarse, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-6 * np.max(np.abs(other)))


@pytest.fixture(scope="module")
def solution():
    return solve(book(), SOLVER, key=OWN)


@pytest.fixture(scope="module")
def certificate(solution):
    return certify(solution, key=FRESH, num_paths=PATHS)


def in_money(found):
    """Return the means and the standard errors of the figures in money."""
    three = found.value, found.delta, found.gamma
    of = lambda name: [
        np.asarray(getattr(one, name), float) * unit for one, unit in zip(three, UNITS, strict=True)
    ]
    return of("mean"), of("std_error")


@pytest.mark.costly
def test_figures_are_exact_within_their_standard_errors(certificate, exact):
    # standard errors are at most .2 % of the value, 1 % of Delta and 5 % of Gamma
    for mean, error, true, most in zip(
        *in_money(certificate), exact, (0.002, 0.01, 0.05), strict=True
    ):
        size = np.max(np.abs(true).reshape(COUNT, -1), axis=1).reshape(-1, *(1,) * (true.ndim - 1))
        assert np.all(error < most * size)
        off = np.abs(mean - true) / error
        assert np.max(off) < 4.0
        assert np.mean(off < 2.0) > 0.75


@pytest.mark.costly
def test_the_rule_of_a_crude_fit_is_improved(exact):
    """With three knots the rule forgoes .02 to 1 % of the values."""
    crude = solve(book(), ProjectionPursuit(2048, knots=3), key=OWN)
    pairs, blocks = 512, jnp.asarray(32)
    rule = improved(crude, pairs, blocks, jax.random.key(7))
    own = rule._replace(correction=None)

    def gains(index):
        paths = PairedPaths.of(crude.problem, pairs, jax.random.fold_in(FRESH, index))
        (after, before), _ = earned_after(crude, paths, (rule, own))
        return jnp.mean(paths.discounts[0][None] * (after - before), axis=1)

    found = jnp.mean(jax.lax.map(gains, jnp.arange(32)), axis=0)
    certificate = certify(crude, key=FRESH, num_paths=PATHS)
    assert np.all(found > 1e-4 * exact[0])
    assert np.max(found / exact[0]) > 5e-3
    assert np.all(np.abs(certificate.value.mean - exact[0]) < 4.0 * certificate.value.std_error)
    assert np.all(certificate.value.std_error > 0.9 * found)  # the error bar counts what was gained


@pytest.mark.costly
def test_the_solution_itself_is_near(solution, exact):
    x0 = solution.problem.x0
    for name, unit, true, most in zip(
        ("value", "delta", "gamma"), UNITS, exact, (0.01, 0.05, 0.1), strict=True
    ):
        found = np.asarray(getattr(solution, name)(0.0, x0), float) * unit
        size = np.max(np.abs(true).reshape(COUNT, -1), axis=1).reshape(-1, *(1,) * (true.ndim - 1))
        assert np.max(np.abs(found - true) / size) < most


@pytest.mark.costly
def test_a_portfolio_is_the_sum_of_its_contracts(solution, certificate):
    quantities = np.array([1.0, -2.0, 1.5, 0.5, -1.0])
    total = certify(solution, key=FRESH, num_paths=PATHS, quantities=quantities)
    for found, mean in zip(in_money(total)[0], in_money(certificate)[0], strict=True):
        summed = np.tensordot(quantities, mean, 1)
        np.testing.assert_allclose(found, summed, rtol=1e-3, atol=1e-3 * np.max(np.abs(summed)))
    for found, each in zip(in_money(total)[1], in_money(certificate)[1], strict=True):
        assert np.all(found < np.tensordot(np.abs(quantities), each, 1))
    own = solution.portfolio(quantities)
    x0 = solution.problem.x0
    np.testing.assert_allclose(own.value(0.0, x0), quantities @ solution.value(0.0, x0), rtol=1e-4)


def test_weights_are_those_of_black_and_scholes():
    """Of a lognormal price with vol v over a step dt: xi / (x v sqrt dt) is the weight of Delta."""
    weights = polynomial_weights(book())
    assert weights is not None
    factor = np.linalg.cholesky(CORRELATION)
    slope = np.linalg.inv(factor).T / (SPOTS * VOLS * 0.25**0.5)[:, None]
    np.testing.assert_allclose(weights[1 : 1 + DIM, 1 : 1 + DIM].T, slope, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(
        weights[0, 1:] * np.append(SPOTS, np.outer(SPOTS, SPOTS)), 0.0, atol=1e-3
    )


@pytest.mark.costly
def test_a_very_narrow_step_has_no_martingale_along_its_direction(solution):
    """Its conditional means would be off between the points of their table, which would bias certificates."""
    fit = jax.tree.map(lambda rows: rows[-1], solution.approximation.fits)
    fit = fit._replace(shared_martingale=jnp.zeros_like(fit.shared_martingale))
    z = jax.random.normal(jax.random.key(2), (DIM, 8), fit.after.dtype)
    assert np.all(fit.both(z, z)[1] != 0.0)
    narrow = fit._replace(along_noise=1e-3 * fit.along_noise).with_means()
    assert np.all(narrow.both(z, z)[1] == 0.0)


def test_what_it_does_not_solve_it_refuses():
    problem = book()
    bends = problem.replace(driver=lambda t, x, y, z: -RATE * jnp.abs(y))
    with pytest.raises(TypeError, match="does more than discount"):
        solve(bends, SOLVER, key=OWN)
    state_dependent = problem.replace(
        step=None, drift=lambda t, x: 0.0 * x, diffusion=lambda t, x: 0.2 * x + 0.1 * jnp.sin(x)
    )
    with pytest.raises(TypeError, match="not Gaussian in a function of each coordinate"):
        solve(state_dependent, SOLVER, key=OWN)
    with pytest.raises(ValueError, match="give a multiple of block"):
        ProjectionPursuit(1000)
    with pytest.raises(ValueError, match="knots=2"):
        ProjectionPursuit(knots=2)
    sixteen = Mesh(np.array(jax.devices()[:1] * 16), ("paths",))
    with pytest.raises(ValueError, match="multiple of block=256 paths for each of 16 devices"):
        solve(book(), ProjectionPursuit(2048, mesh=sixteen), key=OWN)


@pytest.mark.costly
def test_nothing_named_takes_it_for_many_contracts():
    count = 32
    problem = book(count)
    found = solve(problem, key=OWN, tolerance=Tolerance(0.02, 0.1, 0.5), max_paths=32768)
    assert isinstance(found.stats["solver"], ProjectionPursuit)
    covariance = CORRELATION * VOLS[:, None] * VOLS
    true = bermudan_puts_on_geometric_means(SPOTS, covariance, RATE, *contracts(count), DATES)
    means, _ = in_money(found.stats["certificate"])
    for mean, exact, stated in zip(means, true, found.stats["entry_errors"], strict=True):
        size = np.max(np.abs(exact).reshape(count, -1), axis=1).reshape(
            -1, *(1,) * (exact.ndim - 1)
        )
        assert np.all(np.abs(mean - exact) <= 1.5 * stated * size)
