"""Many contracts at once: each is what it is alone, and together they are the sum of all."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Basket, Bermudan, BlackScholes
from pricing.fbsde import (
    BackwardDP,
    DeepBSDE,
    GradientRegression,
    Hermite,
    MeanPolynomials,
    OneStepMalliavin,
    PayoffBasis,
    Problem,
    Solution,
    from_product,
    solve,
)
from pricing.fbsde.stages import init, postprocess

TINY = {"num_iterations": 2, "num_paths": 256, "batch_size": 64}
REGRESSION = GradientRegression(
    4096, (Hermite(2, logs=True), MeanPolynomials(4, above=2, logs=True))
)


def model(dim: int) -> BlackScholes:
    correlation = 0.3 + 0.7 * np.eye(dim)
    vols = np.linspace(0.15, 0.35, dim)
    return BlackScholes(dim * [100.0], 0.05, vols, np.zeros(dim), asset_correlation=correlation)


def book(count: int, dim: int) -> Bermudan:
    """Bermudan puts, exercised on four dates of a year, on baskets: strikes and weights differ."""
    dice = np.random.default_rng(5)
    weights, strikes = dice.dirichlet(np.ones(dim), count), dice.uniform(85.0, 115.0, count)
    dates = np.broadcast_to(np.arange(1, 5) / 4.0, (count, 4))
    return Bermudan(Basket(strikes, np.ones(count), "put", weights=weights), dates)


def contract(puts: Bermudan, index: int) -> Bermudan:
    return jax.tree.map(lambda leaf: leaf[index], puts.broadcast())


@eqx.filter_jit
def today(solution: Solution):
    x0 = solution.problem.x0
    return solution.value(0.0, x0), solution.delta(0.0, x0), solution.gamma(0.0, x0)


def brownian(contracts: int) -> Problem:
    """Under a driver that is not linear, of contracts that see one another."""
    strikes = np.linspace(-0.5, 0.5, contracts)
    return Problem(
        2,
        1.0,
        jnp.array([0.2, -0.1]),
        drift=lambda t, x: 0.1 * x,
        diffusion=lambda t, x: jnp.array([1.0, 0.5]),
        driver=lambda t, x, y, z: 0.1 * jnp.mean(y) - 0.2 * jnp.sum(z**2, axis=-1),
        terminal=lambda x: jnp.logaddexp(jnp.sum(x) - strikes, 0.0),
        num_steps=4,
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    "solver",
    [
        GradientRegression(4096, (Hermite(4), PayoffBasis())),
        pytest.param(BackwardDP(1, **TINY), marks=pytest.mark.slow),
        pytest.param(BackwardDP(2, **TINY), marks=pytest.mark.costly),
        pytest.param(OneStepMalliavin(**TINY), marks=pytest.mark.costly),
        pytest.param(OneStepMalliavin(gamma="diagonal", **TINY), marks=pytest.mark.slow),
    ],
    ids=["regression", "DBDP1", "DBDP2", "OSM", "OSM-diagonal"],
)
def test_a_portfolio_is_the_sum_of_its_contracts(solver):
    problem, quantities = brownian(3), np.array([2.0, -1.0, 0.5])
    solution = solve(problem, solver, key=jax.random.key(0))
    portfolio = solution.portfolio(quantities)
    x = jnp.array([0.3, 0.1])
    figures = lambda s, t: (s.value(t, x), s.delta(t, x), s.gamma(t, x))
    both = jax.jit(lambda t: (figures(solution, t), figures(portfolio, t)))
    for t in (0.0, 0.4, 0.75, 1.0):
        for each, one in zip(*both(t), strict=True):
            known = np.tensordot(quantities, each, 1)
            np.testing.assert_allclose(one, known, rtol=1e-7, atol=1e-9)


@pytest.mark.costly
def test_a_portfolio_of_deep_bsde_is_the_sum_at_x0():
    problem, quantities = brownian(3), np.array([2.0, -1.0, 0.5])
    solution = solve(problem, DeepBSDE(3, iterations_per_stage=3), key=jax.random.key(0))
    portfolio = solution.portfolio(quantities)
    for figure in ("value", "delta"):
        each, one = (getattr(s, figure)(0.0, problem.x0) for s in (solution, portfolio))
        np.testing.assert_allclose(one, np.tensordot(quantities, each, 1), rtol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("solver", "least"),
    [
        (REGRESSION, 20.0),
        pytest.param(BackwardDP(2, **TINY), 5.0, marks=pytest.mark.slow),
        (OneStepMalliavin(**TINY), 20.0),
    ],
    ids=["regression", "DBDP2", "OSM"],
)
def test_figures_of_a_portfolio_cost_the_same_whatever_the_number_of_contracts(solver, least):
    """Operations of a Hessian, as the compiler counts them: of every contract, and of the portfolio."""
    each, portfolio = [], []
    for count in (2, 200):
        problem = from_product(book(count, 3), model(3), 4)
        untrained = eqx.filter_eval_shape(without_training, problem, solver)
        summed = eqx.filter_eval_shape(
            lambda s, count=count: s.portfolio(np.ones(count)), untrained
        )
        each.append(operations(untrained, problem.x0))
        portfolio.append(operations(summed, problem.x0))
    assert portfolio[0] == portfolio[1]
    assert each[1] > least * each[0]


def without_training(problem, solver):
    return postprocess(problem, solver, init(problem, solver, key=jax.random.key(0)))


def operations(found, x) -> float:
    hessian = lambda found, x: found.approximation.hessian(1, x)
    return jax.jit(hessian).lower(found, x).cost_analysis()["flops"]


def test_quantities_are_one_for_each_contract():
    solution = solve(brownian(3), GradientRegression(4096, (Hermite(1),)), key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"quantities of shape \(2,\): the contracts .* \(3,\)"):
        solution.portfolio([1.0, 2.0])


@pytest.mark.slow
def test_two_thousand_contracts_on_ten_assets():
    """Beside their own solves: from the same paths to 1 %, from others within their spread over eight keys."""
    puts, market = book(2000, 10), model(10)
    whole = solve(from_product(puts, market, 4), REGRESSION, key=jax.random.key(1))
    for index in range(0, 2000, 500):
        problem = from_product(contract(puts, index), market, 4)
        found = [figure[index] for figure in today(whole)]
        alone = today(solve(problem, REGRESSION, key=jax.random.key(1)))
        keys = jax.random.split(jax.random.key(2 + index), 8)
        others = map(np.asarray, eqx.filter_vmap(today)(solve(problem, REGRESSION, key=keys)))
        for of_book, known, spread in zip(found, alone, others, strict=True):
            assert np.linalg.norm(of_book - known) < 1e-2 * np.linalg.norm(known)
            center = np.mean(spread, axis=0)
            deviation = np.sqrt(np.sum((spread - center) ** 2) / 7.0)
            assert np.linalg.norm(of_book - center) < 3.0 * deviation


@pytest.mark.costly
def test_contracts_of_a_book_are_what_they_are_alone():
    puts, market = book(50, 3), model(3)
    whole = solve(from_product(puts, market, 4), REGRESSION, key=jax.random.key(1))
    found = today(whole)
    chex.assert_shape(found, [(50,), (50, 3), (50, 3, 3)])
    for index in (3, 27, 49):
        problem = from_product(contract(puts, index), market, 4)
        alone = solve(problem, REGRESSION, key=jax.random.key(1))
        for known, of_book in zip(today(alone), found, strict=True):
            np.testing.assert_allclose(of_book[index], known, rtol=1e-2, atol=1e-7)
