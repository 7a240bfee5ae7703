"""Hedging along paths: spreads beside theory, means of zero, and what ends a contract early."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from jaxtyping import Array

from pricing import Bermudan, BlackScholes, European
from pricing.fbsde import (
    RESULTS,
    AbstractApproximation,
    DeepBSDE,
    GradientRegression,
    Hermite,
    PayoffBasis,
    Problem,
    Solution,
    bounds,
    from_product,
    hedging,
    problems,
    solve,
)

from .backward_problems import gate

RATE, VOL, SPOT, STRIKE = 0.05, 0.2, 100.0, 100.0
MODEL = BlackScholes(SPOT, RATE, VOL)
CALL = European(STRIKE, 1.0, "call")


class BlackScholesCall(AbstractApproximation):
    """The closed form of a call, under a vol that may be another than the market's."""

    problem: Problem
    vol: float = VOL
    quantity: float | Array = 1.0

    def value(self, date, x):
        left = self.problem.maturity - self.problem.times[date]
        std = self.vol * jnp.sqrt(left)
        up = (jnp.log(x[0] / STRIKE) + RATE * left) / std + 0.5 * std
        call = x[0] * norm.cdf(up) - STRIKE * jnp.exp(-RATE * left) * norm.cdf(up - std)
        return self.quantity * call

    def portfolio(self, quantities):
        return BlackScholesCall(self.problem, self.vol, self.quantity * quantities[0])


def hedged(num_steps: int, vol: float = VOL, num_paths: int = 8192, **options):
    """A call, hedged by the closed form on so many dates."""
    problem = from_product(CALL, MODEL, num_steps)
    known = Solution(problem, BlackScholesCall(problem, vol), RESULTS.successful, {})
    return hedging(known, key=jax.random.key(1), num_paths=num_paths, **options)


def spread_in_theory(num_steps: int) -> float:
    """sqrt(sum over dates of the mean of (exp(-rt) Gamma S^2 vol^2 dt)^2 / 2): Boyle, Emanuel (1980)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(201)
    weights, dt = weights / weights.sum(), 1.0 / num_steps
    variance = 0.0
    for n in range(num_steps):
        t, std = n * dt, VOL * np.sqrt(1.0 - n * dt)
        spot = SPOT * np.exp((RATE - 0.5 * VOL**2) * t + VOL * np.sqrt(t) * nodes)
        up = (np.log(spot / STRIKE) + RATE * (1.0 - t)) / std + 0.5 * std
        gamma = np.exp(-0.5 * up**2) / np.sqrt(2.0 * np.pi) / (spot * std)
        variance += 0.5 * weights @ (np.exp(-RATE * t) * gamma * spot**2 * VOL**2 * dt) ** 2
    return float(np.sqrt(variance))


@pytest.mark.costly
def test_what_delta_leaves_is_what_theory_says_and_halves_with_four_times_the_dates():
    coarse, fine = hedged(16), hedged(64)
    np.testing.assert_allclose(coarse.delta.std, spread_in_theory(16), rtol=0.1)
    np.testing.assert_allclose(fine.delta.std, spread_in_theory(64), rtol=0.1)
    np.testing.assert_allclose(fine.delta.std, 0.5 * coarse.delta.std, rtol=0.1)
    order = 4.0**-0.75
    np.testing.assert_allclose(fine.delta_gamma.std, order * coarse.delta_gamma.std, rtol=0.1)
    assert fine.delta_gamma.std < 0.35 * fine.delta.std
    assert fine.delta.std < 0.1 * fine.unhedged.std
    for found in (coarse, fine):
        for made in (found.unhedged, found.delta, found.delta_gamma):
            assert abs(made.mean) < 4.0 * made.std_error


@pytest.mark.costly
def test_the_delta_of_another_vol_leaves_more_and_its_premium_is_the_mean():
    right, wrong = hedged(64), hedged(64, 2.0 * VOL, gamma=False)
    assert wrong.delta_gamma is None
    assert wrong.delta.std > 2.0 * right.delta.std
    problem = from_product(CALL, MODEL, 64)
    premiums = [BlackScholesCall(problem, v).value(0, problem.x0) for v in (VOL, 2.0 * VOL)]
    for made in (wrong.unhedged, wrong.delta):
        assert abs(made.mean - (premiums[1] - premiums[0])) < 4.0 * made.std_error


@pytest.mark.costly
def test_regressions_of_many_contracts_hedge_as_well():
    calls = European([90.0, 100.0, 115.0], 1.0, "call")
    problem = from_product(calls, MODEL, 16)
    solver = GradientRegression(16384, (Hermite(8), PayoffBasis()))
    found = hedging(solve(problem, solver, key=jax.random.key(2)), key=jax.random.key(3))
    chex.assert_shape((found.delta.samples, found.delta_gamma.samples), (3, 4096))
    np.testing.assert_allclose(found.delta.std[1], spread_in_theory(16), rtol=0.1)
    assert np.all(found.delta_gamma.std < 0.7 * found.delta.std)
    assert np.all(abs(found.delta.mean) < 4.0 * found.delta.std_error)


@pytest.mark.costly
def test_what_the_rule_exercises_is_worth_its_lower_bound():
    """The premium less the mean is what the holder earns: as `bounds` finds by discounted payoffs."""
    put = Bermudan(European(STRIKE, 1.0, "put"), [0.25, 0.5, 0.75, 1.0])
    problem = from_product(put, MODEL, 16)
    solution = solve(problem, GradientRegression(16384, (Hermite(6),)), key=jax.random.key(4))
    found = hedging(solution, key=jax.random.key(5))
    between = bounds(solution, key=jax.random.key(6))
    price = solution.value(0.0, problem.x0)
    for made in (found.unhedged, found.delta, found.delta_gamma):
        error = jnp.hypot(made.std_error, between.std_errors.lower)
        assert abs(price - made.mean - between.lower) < 4.0 * error
    assert found.delta_gamma.std < 0.6 * found.delta.std
    assert found.delta.std < 0.25 * found.unhedged.std


def test_paths_that_are_stopped_pay_the_rebate():
    problem, _ = gate(rebate=0.3)
    solution = solve(problem, GradientRegression(4096, (Hermite(4),)), key=jax.random.key(7))
    found = hedging(solution, key=jax.random.key(8))
    price = solution.value(0.0, problem.x0)
    stopped = np.isclose(found.unhedged.samples, price - 0.3, atol=1e-6)
    assert abs(stopped.mean() - 0.5) < 4.0 * 0.5 / 64.0
    assert np.ptp(found.unhedged.samples[~stopped]) > 1.0
    assert found.delta.std < 0.8 * found.unhedged.std


@pytest.mark.costly
def test_a_driver_that_is_not_linear_is_what_the_money_is_invested_at():
    """The seller of a call borrows all the time, at .06; lending would earn him .04."""
    problem = problems.different_rates_call()
    solver = GradientRegression(16384, (Hermite(8), PayoffBasis()))
    found = hedging(solve(problem, solver, key=jax.random.key(9)), key=jax.random.key(10))
    assert abs(found.delta.mean) < 4.0 * found.delta.std_error
    assert abs(found.delta_gamma.mean) < 4.0 * found.delta_gamma.std_error
    assert found.delta.std < 0.2 * found.unhedged.std


@pytest.mark.costly
def test_deep_bsde_hedges_delta_alone():
    problem = problems.hjb_riccati(3, 10)
    solution = solve(problem, DeepBSDE(300), key=jax.random.key(11))
    found = hedging(solution, key=jax.random.key(12), gamma=False)
    assert found.delta.std < 0.5 * found.unhedged.std
    with pytest.raises(TypeError, match="DeepBSDE learns no Gamma"):
        hedging(solution, key=jax.random.key(12))
    with pytest.raises(ValueError, match=r"num_paths=100: give a multiple of 256"):
        hedging(solution, key=jax.random.key(12), num_paths=100)
