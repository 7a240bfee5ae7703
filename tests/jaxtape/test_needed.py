"""Of a state only the leaves that the reverse sweep reads are kept and recomputed."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.sweeps.chain import trace
from jaxtape.sweeps.dependence import needed_state
from jaxtape.sweeps.differentiable import differentiable_leaves
from jaxtape.sweeps.static_executor import StaticExecutor

from ..helpers_tape import assert_close, heston, heston_call, heston_noise, heston_step

N, PATHS = 365, 4096
SCHEDULE = jt.Revolve(12)


def needed(step, init, x):
    """Which leaves of `init` a chain of `step(state, x) -> state` keeps."""
    xs = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), x)
    executor = StaticExecutor.of(SCHEDULE, 3)
    chain, arrays, *_ = trace(lambda state, x: (step(state, x), None), init, xs, executor)
    return needed_state(chain, differentiable_leaves(chain, arrays), arrays)


ONE = jnp.asarray(1.0)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(lambda s, x: (s[0] + x, s[1] - s[0]), (False, False), id="linear"),
        pytest.param(lambda s, x: (s[0] + s[1] * x, 2.0 * s[1]), (False, True), id="product"),
        pytest.param(lambda s, x: (jnp.sin(s[0]), s[1] + x), (True, False), id="sine"),
        pytest.param(
            lambda s, x: (s[0] + s[1] ** 2, s[1] + 3.0 * x), (False, True), id="read once"
        ),
        pytest.param(
            lambda s, x: (jnp.sin(s[0]) * x, s[1] + s[0]), (True, False), id="feeds another"
        ),
        pytest.param(lambda s, x: (jnp.sin(s[0]) * s[1], s[1]), (True, False), id="handed on"),
        pytest.param(lambda s, x: (s[1] * x, jnp.sin(s[0])), (True, True), id="swapped"),
    ],
)
def test_of_two_leaves(step, expected):
    assert needed(step, (ONE, ONE), ONE) == expected


def test_a_leaf_is_kept_where_recomputing_another_reads_it():
    """The pullback reads the first leaf alone; the second drives it, and the third the second."""

    def step(state, x):
        a, b, c, d = state
        return jnp.sin(a) + b, b + c, c + x, d + a

    assert needed(step, (ONE,) * 4, ONE) == (True, True, True, False)


@pytest.mark.parametrize("wrap", ["jit", "scan", "cond", "checkpoint"])
def test_through_programs_inside_the_step(wrap):
    def inner(a, b):
        return a + b, b * b

    def step(state, x):
        a, b = state
        if wrap == "jit":
            return jax.jit(inner)(a, b)
        if wrap == "scan":
            return lax.scan(lambda s, _: (inner(*s), None), (a, b), length=2)[0]
        if wrap == "cond":
            return lax.cond(x > 0.0, inner, lambda a, b: (a - b, b), a, b)
        return jax.checkpoint(inner)(a, b)

    assert needed(step, (ONE, ONE), ONE) == (False, True)


def test_a_key_is_kept_where_noise_is_drawn_from_it_again():
    def step(state, x):
        key, value, idle = state
        key, own = jax.random.split(key)
        return key, value * (1.0 + x * jax.random.normal(own)), idle

    assert needed(step, (jax.random.key(0), ONE, jax.random.key(1)), ONE) == (True, True, False)


def temp_bytes(f, *args):
    return jax.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


def test_of_heston_the_variance_alone_is_kept():
    """Half the slots: what a slot more costs is one leaf, not two."""

    def bytes_with(slots):
        scan = functools.partial(jt.scan, schedule=jt.Revolve(slots))
        gradient = jax.grad(functools.partial(heston_call, scan, dt=1 / N))
        return temp_bytes(gradient, heston, jnp.zeros((N, 2, PATHS)))

    assert (bytes_with(60) - bytes_with(30)) / 30 == pytest.approx(8 * PATHS, rel=0.02)
    step = functools.partial(heston_step, heston, 1 / N)
    assert needed(step, (jnp.zeros(3), jnp.ones(3)), jnp.ones((2, 3))) == (False, True)


def test_of_log_euler_black_scholes_nothing_is_kept():
    def value(parameters, noise):
        drift, vol = parameters
        step = lambda x, z: (x + drift + vol * z, None)
        x, _ = jt.scan(step, jnp.zeros(PATHS), noise, schedule=SCHEDULE)
        return jnp.mean(jnp.exp(x))

    assert needed(lambda x, z: x + 0.2 * z, ONE, ONE) == (False,)
    parameters = jnp.asarray(1e-4), jnp.asarray(0.01)
    assert temp_bytes(jax.grad(value), parameters, jnp.zeros((N, PATHS))) < 8 * 8 * PATHS


def test_gradients_are_those_of_a_plain_scan():
    noise = heston_noise(N, 16)
    bars, desired = (
        jax.grad(functools.partial(heston_call, scan, dt=1 / N), (0, 1))(heston, noise)
        for scan in (functools.partial(jt.scan, schedule=SCHEDULE), lax.scan)
    )
    assert_close(bars, desired, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loop", ["scan", "while_loop"])
def test_a_leaf_that_is_handed_on_is_in_no_slot(loop):
    """Weights that ride along in the carry take no more memory than those that a function closes over."""

    def run(weights, x):
        def step(carry, _=None):
            weights, x, k = carry
            return (weights, jnp.tanh(weights @ x), k + 1), None

        start = weights, x, jnp.int32(0)
        if loop == "scan":
            return jnp.sum(jt.scan(step, start, length=40, schedule=jt.Revolve(12))[0][1])
        end = jt.while_loop(lambda c: c[2] < 40, lambda c: step(c)[0], start, 40, slots=12)
        return jnp.sum(end[1])

    weights, x = jnp.cos(jnp.arange(128.0 * 128)).reshape(128, 128) / 10, jnp.ones(128)
    gradient = jax.jit(jax.grad(run, (0, 1)))
    plain = lambda w, x: jnp.sum(lax.scan(lambda x, _: (jnp.tanh(w @ x), None), x, None, 40)[0])
    assert_close(gradient(weights, x), jax.grad(plain, (0, 1))(weights, x), rtol=1e-10)
    memory = gradient.lower(weights, x).compile().memory_analysis().temp_size_in_bytes
    assert memory < weights.nbytes  # kept in every slot, they took 14 times as much
