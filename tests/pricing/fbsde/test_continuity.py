"""Jumps are known from a program, or found; where there are some, figures are right and their errors cover."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fbsde_references as known
from pricing import Basket, BlackScholes
from pricing.fbsde import (
    GradientRegression,
    Hermite,
    Jumps,
    MeanPolynomials,
    PayoffBasis,
    Problem,
    certify,
    from_product,
    problems,
    solve,
)
from pricing.fbsde.error_bars.continuity import Jumping, jumping, may_jump
from pricing.numerics.safe_math import clipped, larger, maximum, smaller

from ...cases import others_later
from .test_certificate import scores, three_assets

OWN = jax.random.key(0)
X = jnp.ones(3)
CONTINUOUS = {
    "a call": lambda x: jnp.maximum(x[0] - 1.0, 0.0),
    "a call by a selection": lambda x: jnp.where(x[0] - 1.0 > 0.0, x[0] - 1.0, 0.0),
    "a maximum by `larger`": lambda x: larger(larger(x[0], x[1]), x[2]),
    "a maximum with the mean slope at a tie": lambda x: maximum(x[0], maximum(x[1], 1.0)),
    "a corridor": lambda x: smaller(x[0], x[1]) + clipped(x[2], 0.5, 1.5),
    "of each": lambda x: jnp.sum(larger(x, 1.0)),
    "an order": lambda x: jnp.sort(x)[1] + jnp.min(x) + jnp.clip(x[0], 0.0, 1.0),
    "a geometric mean": lambda x: jnp.exp(jnp.mean(jnp.log(x))),
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * x[0], x[1]),
    "a scan": lambda x: jax.lax.scan(lambda c, y: (c * y, None), x[1], x)[0],
    "a comparison that decides nothing": lambda x: x[0] + 0.0 * jnp.where(x[1:].size > 1, 1.0, 0.0),
    "relu": lambda x: jax.checkpoint(jax.nn.relu)(x[0]) + jax.nn.sigmoid(x[1]),
}
JUMPS = {
    "a digital": lambda x: jnp.where(x[0] > 1.0, 1.0, 0.0),
    "a number of truths": lambda x: jnp.sum(x > 1.0).astype(x.dtype),
    "a step": lambda x: jnp.heaviside(x[0] - 1.0, 1.0),
    "a sign": lambda x: jnp.sign(x[0]),
    "rounding": lambda x: jnp.floor(x[0]) + x[0].astype(int).astype(x.dtype),
    "the value of the best": lambda x: x[::-1][jnp.argmax(x)],
    "a branch": lambda x: jax.lax.cond(x[0] > 0.0, lambda: 1.0, lambda: 0.0),
    "in a call": lambda x: jax.jit(jax.vmap(lambda y: jnp.where(y > 0.0, 1.0, 0.0)))(x)[0],
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.where(c > 1.0, 2.0, c), x[1]),
    "in a scan": lambda x: jax.lax.scan(lambda c, y: (jnp.where(y > 1.0, c, 0.0), None), x[1], x)[
        0
    ],
    "how often": lambda x: jax.lax.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, x[0]),
    "another order": lambda x: jnp.where(x[0] > x[1], x[1], x[2]),
    "Python": lambda x: jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((), x.dtype), x[0]),
}


def test_a_program_says_where_a_function_is_continuous():
    for name, function in CONTINUOUS.items():
        assert not may_jump(function, X, of=[0]), name
    for name, function in JUMPS.items():
        assert may_jump(function, X, of=[0]), name
    of_time = lambda t, x: jnp.where(t > 0.5, x[0], 0.0)
    assert not may_jump(of_time, X[0], X, of=[1]) and may_jump(of_time, X[0], X, of=[0])


def call_on_three(**changes) -> Problem:
    return three_assets(lambda x: jnp.maximum(x[0] - 100.0, 0.0)).replace(**changes)


def right(pays) -> dict:
    return {"exercise_times": [0.5], "exercise_value": pays}


def digital(t, x):
    return jnp.where(x[0] > 100.0, 1.0, 0.0)


PROBLEMS = {
    "an intensity by pieces": (lambda: problems.default_risk(3), Jumping(False, False)),
    "a geometric mean": (lambda: problems.geometric_call(3), Jumping(False, False)),
    "two rates": (
        lambda: call_on_three(driver=lambda t, x, y, z: -jnp.where(x[0] > 100.0, 0.05, 0.02) * y),
        Jumping(False, True),
    ),
    "a call by a selection": (
        lambda: call_on_three(**right(lambda t, x: jnp.where(x[0] > 100.0, x[0] - 100.0, 0.0))),
        Jumping(False, False),
    ),
    "a right to a digital": (lambda: call_on_three(**right(digital)), Jumping(False, True)),
    "a digital": (
        lambda: call_on_three(terminal=lambda x: digital(1.0, x)),
        Jumping(True, False),
    ),
    "a digital as a tight call spread": (
        lambda: call_on_three(terminal=lambda x: jnp.clip(100.0 * (x[0] - 100.0), 0.0, 1.0)),
        Jumping(True, False),
    ),
    "a digital as a steep sigmoid": (
        lambda: call_on_three(terminal=lambda x: jax.nn.sigmoid(1e3 * (x[0] - 100.0))),
        Jumping(True, False),
    ),
    "a call spread": (
        lambda: call_on_three(terminal=lambda x: jnp.clip(x[0] - 100.0, 0.0, 10.0)),
        Jumping(False, False),
    ),
    "two rates with a tight passage": (
        lambda: call_on_three(
            driver=lambda t, x, y, z: -(0.02 + 0.03 * jnp.clip(1e3 * (x[0] - 100.0), 0.0, 1.0)) * y
        ),
        Jumping(False, True),
    ),
    "a digital with a right": (
        lambda: call_on_three(
            terminal=lambda x: digital(1.0, x), **right(lambda t, x: 0.5 + 0.0 * x[0])
        ),
        Jumping(True, True),
    ),
    "jumps above a level": (
        lambda: call_on_three(jumps=Jumps(0.1, lambda x, z: jnp.where(x > 100.0, 0.9 * x, x))),
        Jumping(False, True),
    ),
    "a step of another vol": (
        lambda: call_on_three(step=lambda t, dt, x, dw: x + jnp.where(x > 100.0, 2.0, 1.0) * dw),
        Jumping(False, True),
    ),
}
FAST = ["a geometric mean", "a digital as a tight call spread", "two rates"]


@pytest.mark.parametrize("name", others_later(PROBLEMS, FAST))
def test_points_show_what_a_program_leaves_open(name):
    """Drivers and rights that select without a jump, with one, or rise as steeply."""
    make, expected = PROBLEMS[name]
    assert jumping(make()) == expected


# --- figures where something jumps ----------------------------------------------------------------------

DIM, VOL, RHO, RATE = 4, 0.25, 0.3, 0.03


def on_geometric_mean(pays, num_steps: int = 8) -> Problem:
    """A contract on the geometric mean of equal assets, with the step of Black and Scholes."""
    correlation = np.full((DIM, DIM), RHO) + (1.0 - RHO) * np.eye(DIM)
    model = BlackScholes(DIM * [100.0], RATE, DIM * [VOL], asset_correlation=correlation)
    call = from_product(Basket(100.0, 1.0, average="geometric"), model, num_steps)
    return call.replace(terminal=lambda x: pays(jnp.exp(jnp.mean(jnp.log(x)))))


def with_digitals(mean):
    """A call at 100 and three digitals at 110 (calldig8 of the issue is on eight assets)."""
    return jnp.maximum(mean - 100.0, 0.0) + 3.0 * jnp.where(mean > 110.0, 1.0, 0.0)


def known_with_digitals(x):
    mean = jnp.exp(jnp.mean(jnp.log(x)))
    vol, drift = known.geometric_law(DIM, RATE, VOL, RHO)
    forward, discount = mean * jnp.exp(drift), jnp.exp(-RATE)
    ndtr = jax.scipy.special.ndtr
    d = lambda strike: (jnp.log(forward / strike) - 0.5 * vol**2) / vol
    call = forward * ndtr(d(100.0) + vol) - 100.0 * ndtr(d(100.0))
    return discount * (call + 3.0 * ndtr(d(110.0)))


@functools.cache
def solved():
    problem = on_geometric_mean(with_digitals)
    solver = GradientRegression(
        8192, (Hermite(2, logs=True), MeanPolynomials(6, above=2, logs=True), PayoffBasis())
    )
    return solve(problem, solver, key=OWN), known.of_function(
        known_with_digitals, np.full(DIM, 100.0)
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 9))]
)
def test_digitals_on_many_assets(seed):
    """By paths alone Delta was 10 % off with a standard error of .14 %."""
    solution, reference = solved()
    found = certify(solution, key=jax.random.key(seed), num_paths=16384)
    assert np.max(np.abs(scores(found, reference))) < 4.0
    assert found.delta.relative_error < 0.004
    assert found.gamma.relative_error < 0.05
