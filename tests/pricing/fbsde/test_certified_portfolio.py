"""Certificates of portfolios: the errors are those of sums along paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fbsde_references as known
from pricing.fbsde import GradientRegression, Hermite, PayoffBasis, certify, solve

from .backward_problems import asset

STRIKES = np.array([90.0, 100.0, 110.0], np.float32)
OWN, OTHERS = jax.random.split(jax.random.key(0))


@pytest.fixture(scope="module")
def solution():
    problem = asset(lambda x: jnp.maximum(x[0] - jnp.asarray(STRIKES), 0.0), 4)
    return solve(problem, GradientRegression(4096, (Hermite(3), PayoffBasis())), key=OWN)


def off(found, true: float) -> float:
    """Return the error in standard errors."""
    return abs(float(np.ravel(found.mean)[0]) - true) / float(np.ravel(found.std_error)[0])


@pytest.mark.costly
def test_a_portfolio_is_the_sum_of_its_contracts(solution):
    quantities = np.array([1.0, -2.0, 1.5])
    each = certify(solution, key=OTHERS, num_paths=16384)
    total = certify(solution, key=OTHERS, num_paths=16384, quantities=quantities)
    for name in ("value", "delta", "gamma"):
        parts, found = getattr(each, name), getattr(total, name)
        summed = np.tensordot(quantities, parts.mean, 1)
        np.testing.assert_allclose(
            found.mean, summed, rtol=2e-3, atol=1e-4 * np.max(np.abs(parts.mean))
        )
        assert np.all(
            np.asarray(found.std_error) < np.tensordot(np.abs(quantities), parts.std_error, 1)
        )

    def closed(x):
        calls = [known.black_scholes(x[0], float(k), 0.05, 0.2, 1.0) for k in STRIKES]
        return sum(float(q) * call for q, call in zip(quantities, calls, strict=True))

    reference = known.of_function(closed, [100.0])
    assert off(total.value, reference.value) < 4.0
    assert off(total.delta, reference.delta[0]) < 4.0
    assert off(total.gamma, np.ravel(reference.gamma)[0]) < 4.0


@pytest.mark.costly
def test_noise_that_contracts_share_leaves_a_hedged_book(solution):
    each = certify(solution, key=OTHERS, num_paths=8192)
    spread = certify(solution, key=OTHERS, num_paths=8192, quantities=[1.0, -2.0, 1.0])
    alone = np.array([1.0, 2.0, 1.0]) @ np.asarray(each.delta.std_error)[:, 0]
    assert float(spread.delta.std_error[0]) < 0.5 * alone


def test_quantities_are_of_the_contracts_shape(solution):
    with pytest.raises(ValueError, match=r"quantities of shape \(2,\)"):
        certify(solution, key=OTHERS, quantities=[1.0, 2.0])


def test_drivers_that_bend_make_no_portfolio():
    calls = lambda x: jnp.maximum(x[0] - jnp.asarray(STRIKES), 0.0)
    problem = asset(calls, 4).replace(driver=lambda t, x, y, z: -0.05 * jnp.abs(y))
    solution = solve(problem, GradientRegression(4096, (Hermite(3), PayoffBasis())), key=OWN)
    with pytest.raises(TypeError, match="do not share one linear driver"):
        certify(solution, key=OTHERS, quantities=np.ones(3))
