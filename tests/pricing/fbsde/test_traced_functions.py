"""Functions as programs: problems that differ in numbers share what is compiled, and compute their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtape.programs.pytree_json import PytreeSpec
from pricing.fbsde import GradientRegression, Hermite, Problem, problems, solve
from pricing.fbsde.functions import with_traced_functions
from pricing.fbsde.stages import train
from pricing.fbsde.traced_functions import TracedFunction, traced

from .backward_problems import single

SOLVER = GradientRegression(4096, (Hermite(3),))
STATE = jax.ShapeDtypeStruct((2,), jnp.float32)
LEVEL = 100.0


def put(rate: float, strike: float, vol: float) -> Problem:
    """A put whose numbers are in closures; some are equal, and some are computed in Python."""
    worst = lambda x: jnp.min(x) / 100.0
    problem = Problem(
        1,
        1.0,
        jnp.full(1, 100.0, jnp.float32),
        drift=lambda t, x: rate * x,
        diffusion=lambda t, x: vol * x,
        driver=lambda t, x, y, z: -float(np.exp(rate) - 1.0) * y * worst(x),
        terminal=jax.jit(lambda x: jnp.maximum(strike - x[0], 0.0)),
        num_steps=4,
        step=lambda t, dt, x, dw: x * jnp.exp((rate - 0.5 * vol**2) * dt + vol * dw),
    )
    return single(problem)


@pytest.mark.costly
def test_problems_that_differ_in_numbers_share_their_programs():
    compiled = []

    def count(event: str, seconds: float, **_) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        first = solve(put(0.03, 100.0, 0.2), SOLVER, key=jax.random.key(0))
        first.value(0.0, [100.0])
        seen, second = len(compiled), put(0.04, 90.0, 0.3)
        found = solve(second, SOLVER, key=jax.random.key(0))
        value = found.value(0.0, [100.0])
        assert seen > 0 and len(compiled) == seen
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    alone = train(second, SOLVER, jax.random.key(0))  # of the functions as they were written
    np.testing.assert_allclose(value, alone.value(0.0, [100.0]), rtol=2e-6)
    assert abs(float(value - first.value(0.0, [100.0]))) > 0.1


def test_a_traced_function_has_the_same_values_and_derivatives():
    for problem in (put(0.03, 100.0, 0.2), put(0.0, 1.0, 2.0)):
        own, dt, x = with_traced_functions(problem), jnp.float32(0.25), jnp.array([97.0], "float32")
        assert isinstance(own.driver, TracedFunction)
        at = dt, x, jnp.float32(3.0), x
        for name, arguments in (("driver", at), ("step", (dt, dt, x, x)), ("terminal", (x,))):
            both = [
                jax.jacfwd(getattr(one, name), len(arguments) - 1)(*arguments)
                for one in (problem, own)
            ]
            assert both[0].dtype == both[1].dtype == jnp.float32
            np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            lambda x: 0.3 * x[0] + 0.3 * x[1],
            lambda x: 0.3 * x[0] + 0.4 * x[1],
        ),  # one number, or two
        (lambda x: 0.3 * x[0], lambda x: 0.3 * x[1]),
        (lambda x: x[0] ** 2, lambda x: x[0] ** 3),
        (lambda x: x[0] * 1.0, lambda x: x[0] * 0.0),
        (lambda x: jnp.sin(x[0]), lambda x: jax.lax.stop_gradient(jnp.sin(x[0]))),
        (  # numbers in the body of a loop are no arguments
            lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 0.3 * y, x[0]),
            lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 0.4 * y, x[0]),
        ),
    ],
)
def test_other_operations_are_another_program(first, second):
    both = [traced(function, STATE) for function in (first, second)]
    assert jax.tree.structure(both[0]) != jax.tree.structure(both[1])
    x = jnp.array([0.7, 0.2], jnp.float32)
    for function, own in zip((first, second), both, strict=True):
        np.testing.assert_array_equal(own(x), function(x))


def test_a_program_is_known_to_other_processes():
    """Its description has no number of the closure."""
    both = [traced(lambda x, rate=rate: jnp.exp(-rate) * x[0], STATE) for rate in (0.3, 0.4)]
    words = [PytreeSpec(function).json for function in both]
    assert words[0] == words[1]
    assert both[0].digest != both[1].digest


def test_a_global_is_read_when_a_problem_is_solved(monkeypatch):
    at_level = lambda x: LEVEL * x[0]
    before = traced(at_level, STATE)
    monkeypatch.setitem(globals(), "LEVEL", 90.0)
    after, x = traced(at_level, STATE), jnp.ones(2, jnp.float32)
    assert (float(before(x)), float(after(x))) == (100.0, 90.0)


@pytest.mark.parametrize("name", ["max_call", "geometric_call"])
def test_payoffs_of_published_problems_are_compared(name):
    """Otherwise `solve` would compile again for every problem that it reduces to fewer dimensions."""
    problem = getattr(problems, name)(3)
    state = jax.ShapeDtypeStruct(problem.x0.shape, problem.x0.dtype)
    assert isinstance(traced(problem.terminal, state), TracedFunction)
    time = jax.ShapeDtypeStruct((), state.dtype)
    assert isinstance(traced(problem.exercise_value, time, state), TracedFunction)


def test_what_cannot_be_compared_stays_as_it_is():
    for function in (
        lambda x: jnp.sum(jax.nn.relu(x)),
        lambda x: jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), x.dtype), x),
    ):
        assert traced(function, STATE) is function


def test_a_traced_function_takes_the_shapes_that_it_was_traced_with():
    with pytest.raises(TypeError, match=r"shapes \[\(3,\)\], where the function was traced with"):
        traced(lambda x: jnp.sum(x), STATE)(jnp.ones(3))
