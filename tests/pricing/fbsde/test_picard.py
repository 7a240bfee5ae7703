"""Multilevel Picard iterations: beside a closed form and beside the solvers, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import European, Heston
from pricing.fbsde import (
    GradientRegression,
    MeanPolynomials,
    SeparableBasis,
    from_product,
    multilevel_picard,
    problems,
    solve,
)
from pricing.fbsde.dynamics.forward_paths import has_exact_steps

from .backward_problems import asset

KEY, OTHER = jax.random.split(jax.random.key(0))


@pytest.mark.costly
def test_a_linear_driver_discounts():
    problem = asset(lambda x: jnp.stack([x[0], 0.0 * x[0] + 1.0]), 4)
    found = multilevel_picard(problem, key=KEY, levels=4, samples=4, repeats=32)
    known = np.array([100.0, np.exp(-0.05)])
    assert np.all(
        np.abs(np.asarray(found.mean) - known) < 4.0 * np.asarray(found.std_error) + 1e-6 * known
    )
    assert found.std_error[0] < 0.5


@pytest.mark.costly
def test_iterations_and_regressions_agree_in_twenty_dimensions():
    problem = problems.allen_cahn(20)
    solver = GradientRegression(16384, (SeparableBasis(2), MeanPolynomials(4, above=1)))
    solution = solve(problem, solver, key=OTHER)
    found = multilevel_picard(problem, key=KEY, levels=4, samples=4, repeats=32)
    apart = float(solution.value(0.0, problem.x0) - found.mean)
    assert abs(apart) < 4.0 * float(found.std_error)
    assert float(found.relative_error) < 5e-3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hjb", "a driver that reads z"),
        ("max_call", "early exercise"),
        ("merton_put", "jumps"),
        ("uncertain_volatility", "reads Gamma"),
    ],
)
def test_what_is_not_solved_is_named(name, reason):
    with pytest.raises(TypeError, match=reason):
        multilevel_picard(getattr(problems, name)(), key=KEY)


def test_states_of_many_small_steps_are_refused():
    problem = asset(lambda x: x[0], 4).replace(step=None)
    with pytest.raises(TypeError, match="states without exact steps"):
        multilevel_picard(problem, key=KEY)


def test_numbers_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="repeats=1"):
        multilevel_picard(problems.allen_cahn(5), key=KEY, repeats=1)


@pytest.mark.parametrize(
    ("problem", "is_exact"),
    [
        (lambda: asset(lambda x: x[0], 4), True),
        (lambda: asset(lambda x: x[0], 4).replace(step=None), False),
        (problems.gaussian_swaption, True),  # in law: one step moves the same noise otherwise
        (problems.hjb, True),
        (lambda: from_product(European(10.0, 1.0, "put"), heston(), 4), False),
    ],
)
def test_steps_are_exact_if_one_has_the_law_of_two(problem, is_exact):
    assert has_exact_steps(problem()) is is_exact


def heston() -> Heston:
    return Heston(9.0, 0.1, 0.0625, 5.0, 0.16, 0.9, 0.1)
