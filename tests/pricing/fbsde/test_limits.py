"""What a solution without a named solver may take: time, memory, paths."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import (
    DeepBSDE,
    GradientRegression,
    GridQuadrature,
    Hermite,
    PayoffBasis,
    problems,
    solve,
)
from pricing.fbsde.dynamics.driver_form import ErrorSources
from pricing.fbsde.problem import on_fewer_dates
from pricing.fbsde.selection import PilotRun, bytes_of, select_checks, shrink_to_fit
from pricing.fbsde.solve_limits import SolveLimits
from pricing.fbsde.stages import init, step

KEY = jax.random.key(0)
RICH = GradientRegression(8192, bases=(Hermite(4), PayoffBasis()))
LEAN = GradientRegression(8192, bases=(Hermite(1),))


def compiled_bytes(problem, solver) -> int:
    """Return the most memory that a training's programs take, by the compiler."""
    arrays, rest = eqx.partition((problem, solver), eqx.is_array)

    def start(arrays, key):
        return init(*eqx.combine(arrays, rest), key=key)

    def go_on(arrays, training, key):
        return step(*eqx.combine(arrays, rest), training, jnp.asarray(1), key=key)

    training = jax.eval_shape(start, arrays, KEY)
    programs = jax.jit(start).lower(arrays, KEY), jax.jit(go_on).lower(arrays, training, KEY)
    sizes = [program.compile().memory_analysis() for program in programs]
    return max(
        size.temp_size_in_bytes + size.argument_size_in_bytes + size.output_size_in_bytes
        for size in sizes
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    ("dim", "solver"),
    [
        (3, RICH),
        pytest.param(2, GridQuadrature(), marks=pytest.mark.slow),
        pytest.param(30, LEAN, marks=pytest.mark.slow),
        pytest.param(5, RICH, marks=pytest.mark.slow),
    ],
)
def test_memory_is_no_less_than_the_compilers(dim, solver):
    problem = problems.max_call(dim)
    actual, said = compiled_bytes(problem, solver), bytes_of(problem, solver)
    assert actual < said < 4 * actual + 2**25


@pytest.mark.costly
def test_a_regression_has_as_many_paths_as_there_is_memory_for():
    problem, solver = problems.max_call(5), GradientRegression(65536, bases=(Hermite(2),))
    most = bytes_of(problem, solver)
    assert shrink_to_fit(problem, solver, SolveLimits(1, budget=most)) == solver
    half = shrink_to_fit(problem, solver, SolveLimits(1, budget=most - 1))
    assert half.num_paths == 32768 and bytes_of(problem, half) < most
    assert shrink_to_fit(problem, solver, SolveLimits(1, budget=1e6)) is None
    few = shrink_to_fit(problem, solver, SolveLimits(1), 3000.0)
    assert few.num_paths == few.block == 2048


@pytest.mark.parametrize(
    ("wanted", "affordable", "count"),
    [
        (5e4, np.inf, 65536),
        (5e4, 2e4, 16384),
        (5e4, 0.0, 8192),
        (1.0, np.inf, 8192),
        (1e9, np.inf, 2**18),
    ],
)
def test_a_certificate_has_as_many_paths_as_there_is_time_for(wanted, affordable, count):
    assert SolveLimits(2**18).certificate_paths(wanted, 8192, affordable) == count


@pytest.mark.costly
def test_what_checks_a_solution_has_other_functions_or_dates():
    """Where time was enough for one pilot, the next set of functions; nothing that there is no memory for."""
    few = GradientRegression(4096, bases=(Hermite(1),))
    rich = GradientRegression(4096, bases=(Hermite(2),))
    on_dates = problems.max_call(3).with_num_steps(9)  # which half of the dates would miss
    one_pilot = [PilotRun(few, 0.1, 1.0)]
    checks = lambda problem, of_dates, *given: select_checks(
        problem, ErrorSources(True, False, math.inf if of_dates else 0.0, True), *given, 0.5
    )
    ((other, of),) = checks(on_dates, False, [few, rich], one_pilot, SolveLimits(1))
    assert other.bases == rich.bases and of is on_dates
    assert checks(on_dates, False, [few], one_pilot, SolveLimits(1)) == []
    for one, dates in ((on_dates, 18), (problems.hjb_riccati(3), 10)):
        ((other, of),) = checks(one, True, [few], one_pilot, SolveLimits(1))
        assert other.bases == few.bases and of.num_steps == dates
    small = SolveLimits(1, budget=bytes_of(on_dates, few))
    ((other, of),) = checks(on_dates, True, [few], one_pilot, small)
    assert of.num_steps == 18 and bytes_of(of, other) <= bytes_of(on_dates, few)
    assert checks(on_dates, True, [few], one_pilot, SolveLimits(1, budget=1e6)) == []
    grid = [PilotRun(GridQuadrature(), 0.0, 0.0)]
    two = problems.max_call(2).with_num_steps(9)
    assert on_fewer_dates(two) is two and on_fewer_dates(on_dates) is on_dates
    assert checks(two, True, [GridQuadrature()], grid, SolveLimits(1, budget=1e6)) == []
    smooth = problems.hjb_riccati(2)
    others = checks(smooth, True, [GridQuadrature()], grid, SolveLimits(1))
    assert [(one, of.num_steps) for one, of in others] == [(GridQuadrature(), n) for n in (10, 5)]


@pytest.mark.costly
def test_without_time_fewer_paths_are_tried_and_what_is_not_known_is_refused():
    problem = problems.different_rates_call(4)
    with pytest.raises(RuntimeError, match=r"value is not known .* max_seconds=0.001"):
        solve(problem, key=KEY, max_seconds=1e-3)


def test_a_limit_that_nothing_fits_is_named():
    with pytest.raises(ValueError, match=r"max_seconds=0.0: give a number above zero"):
        solve(problems.max_call(2), key=KEY, max_seconds=0.0)
    with pytest.raises(ValueError, match=r"budget=1000: this is not enough memory"):
        solve(problems.max_call(2), key=KEY, budget=1000)


def test_a_limit_of_the_selection_is_refused_beside_a_solver():
    with pytest.raises(ValueError, match=r"budget=1000 .* give DeepBSDE\(budget=1000\)"):
        solve(problems.allen_cahn(2), DeepBSDE(), key=KEY, budget=1000)
    with pytest.raises(ValueError, match=r"give GridQuadrature, .* a smaller num_nodes$"):
        solve(problems.allen_cahn(2), GridQuadrature(), key=KEY, budget=1000)
    with pytest.raises(ValueError, match=r"give GradientRegression, .* num_paths or block$"):
        solve(problems.allen_cahn(2), GradientRegression(), key=KEY, budget=1000)
    with pytest.raises(ValueError, match=r"max_seconds=1.0 .* fewer paths or iterations"):
        solve(problems.allen_cahn(2), DeepBSDE(), key=KEY, max_seconds=1.0)
