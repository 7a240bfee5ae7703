"""A right that costs its holder money is taken where that is best: ends of losses, issuers' calls, costs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import (
    BackwardDP,
    GradientRegression,
    GridQuadrature,
    Hermite,
    PayoffBasis,
    Problem,
    bounds,
    certify,
    hedging,
    solve,
)
from pricing.fbsde.dynamics.exercise_floor import exercise_floor
from pricing.fbsde.error_bars import early_exercise_bounds
from pricing.fbsde.error_bars.certificate import without_noise
from pricing.fbsde.error_bars.early_exercise_bounds import bounds_to_tolerance

from .backward_problems import put

OWN, OTHER = jax.random.key(0), jax.random.key(1)
QUARTERS = np.arange(1, 5) / 4.0
REGRESSION = GradientRegression(32768, (Hermite(6), PayoffBasis()))


@functools.cache
def right(pays: float, loss: str = "distance", rate: float = 0.0, num_steps: int = 4) -> Problem:
    """Ends what X = W costs at 1 for what `pays`, on four dates."""
    terminals = {
        "distance": lambda x: -jnp.abs(x[0]),
        "short call": lambda x: -jnp.maximum(x[0], 0.0),  # an issuer's call, a liability cancelled
        "two ends": lambda x: x[0],
    }
    return Problem(
        1,
        1.0,
        0.0,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: 1.0,
        driver=lambda t, x, y, z: -rate * y,
        terminal=terminals[loss],
        num_steps=num_steps,
        exercise_times=QUARTERS,
        exercise_value=lambda t, x: jnp.full_like(x[0], pays),
    )


@functools.cache
def by_induction(pays: float, loss: str, rate: float = 0.0) -> float:
    """The value by sums over a fine grid of moves; the kernel of a quarter is cut off at 8 deviations."""
    terminals = {
        "distance": lambda x: -np.abs(x),
        "short call": lambda x: -np.maximum(x, 0.0),
        "two ends": lambda x: x,
    }
    step = 0.005
    x = np.arange(-2400, 2401) * step
    reach = np.arange(-800, 801) * step
    kernel = np.exp(-0.5 * reach**2 / 0.25)
    kernel /= kernel.sum()
    y = terminals[loss](x)
    growth = np.exp(-0.25 * rate)
    for date in range(3, -1, -1):
        y = growth * np.convolve(np.pad(y, 800, "reflect", reflect_type="odd"), kernel, "valid")
        y = np.maximum(y, pays) if date > 0 else y
    return float(y[len(y) // 2])


CASES = [(-0.4, "distance"), (-0.3, "short call"), (0.0, "short call"), (-0.5, "two ends")]


@pytest.mark.parametrize(
    "case", CASES[:1] + [pytest.param(c, marks=pytest.mark.slow) for c in CASES[1:]]
)
@pytest.mark.parametrize("solver", [GridQuadrature(), REGRESSION])
def test_it_is_taken(solver, case):
    problem, known = right(*case), by_induction(*case)
    solution = solve(problem, solver, key=OWN)
    np.testing.assert_allclose(solution.value(0.0, problem.x0), known, atol=3e-3)


@functools.cache
def solved():
    return solve(right(-0.4), REGRESSION, key=OWN)


@pytest.mark.costly
def test_a_certificate_takes_it():
    """-.400, where waiting to the end is worth -.798."""
    known = by_induction(-0.4, "distance")
    assert abs(known + 0.4) < 1e-3
    found = certify(solved(), key=OTHER, num_paths=16384).value
    assert abs(found.mean - known) < 4.0 * found.std_error + 2e-3


@pytest.mark.costly
def test_bounds_and_hedges_take_it():
    known = by_induction(-0.4, "distance")
    both = bounds(solved(), key=OTHER, num_paths=1024)
    assert both.lower < known + 4.0 * both.std_errors.lower
    assert both.upper > known - 4.0 * both.std_errors.upper
    assert both.gap < 0.02 * abs(known)
    sold = hedging(solved(), key=OTHER, num_paths=1024).delta
    assert abs(sold.mean) < 4.0 * sold.std_error + 2e-3


@pytest.mark.costly
def test_networks_take_it():
    problem = right(-0.4)
    found = solve(problem, BackwardDP(num_iterations=60, num_paths=4096), key=OWN)
    known = by_induction(-0.4, "distance")
    np.testing.assert_allclose(found.value(0.0, problem.x0), known, atol=2e-2)


def test_nothing_is_exercised_for_what_waiting_is_sure_of():
    """An option's floor is 0, that of one with a fee the fee; a contract that may cost more has none."""
    with_fee = right(-0.5).replace(terminal=lambda x: jnp.maximum(x[0], 0.0) - 0.5)
    known = [(put(8, 4), 0.0), (with_fee, -0.5), (right(-0.4), -np.inf)]
    for problem, floor in known:
        np.testing.assert_array_equal(exercise_floor(problem), [floor])


def test_a_contract_that_others_drain_has_no_floor():
    """Of two that pay nothing below zero, one earns what the other costs."""
    coupled = right(0.0).replace(
        terminal=lambda x: jnp.stack([jnp.maximum(x[0], 0.0)] * 2),
        driver=lambda t, x, y, z: jnp.stack([-y[1], y[0]]),
        exercise_value=lambda t, x: jnp.zeros(2),
    )
    np.testing.assert_array_equal(exercise_floor(coupled), [-np.inf, 0.0])


def test_a_negative_rate_makes_a_cost_grow():
    """At -5 % waiting makes -.5 more than -.5: the least terminal value is no floor."""
    fee = lambda x: jnp.maximum(x[0], 0.0) - 0.5
    for rate, floor in ((0.05, -0.5), (-0.05, -np.inf)):
        problem = right(-0.5, rate=rate).replace(terminal=fee)
        np.testing.assert_array_equal(exercise_floor(problem), [floor])


@pytest.mark.costly
def test_a_gap_of_noise_is_closed_by_more_inner_paths(monkeypatch):
    """All of the gap is noise of the means on inner paths: the rule is the best one. This takes time."""
    solution = solve(right(-0.4), GridQuadrature(), key=OWN)
    found, asked, inner_paths = without_noise(solution), 1e-4 * 0.4, []

    def recorded(solution, key, num_paths, num_inner, is_exact):
        inner_paths.append(num_inner)
        return samples(solution, key, num_paths, num_inner, is_exact)

    samples = early_exercise_bounds._means_and_errors
    monkeypatch.setattr(early_exercise_bounds, "_means_and_errors", recorded)
    within = lambda seconds: bounds_to_tolerance(
        solution, found, [OTHER], tolerance=1e-4, seconds=seconds
    )
    assert within(1e-9) is not None
    assert inner_paths == [64]
    both = within(float("inf"))
    assert both is not None
    assert inner_paths[1:3] == [64, 256]
    _, upper = both
    assert upper.mean + 3.0 * upper.std_error - found.value.mean < asked
    assert bounds(solution, key=OTHER, num_paths=1024).gap > asked
