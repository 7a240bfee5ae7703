"""Leaves of the state that are not differentiated pass through what has no derivative, as in `lax.scan`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt

from ..helpers_scan import check, few_schedules
from ..helpers_tape import assert_close

A = jnp.float64(0.7)


def root(k):
    """Newton's method for the square root of 2, plus 1: a loop that has no reverse mode."""
    off = lambda v: jnp.abs(v * v - 2.0) > 1e-9
    return lax.while_loop(off, lambda v: 0.5 * (v + 2.0 / v), k) + 1.0


def on_host(k):
    return jax.pure_callback(lambda k: np.asarray(k) * 1.1, jax.typeof(k), k)


each_held = pytest.mark.parametrize(
    "held",
    [root, pytest.param(on_host, marks=pytest.mark.costly)],
    ids=["while_loop", "pure_callback"],
)


def loss(scan, held, a, xs):
    def step(carry, x):
        h, k = carry
        return (jnp.sin(a * h) * k + x, held(k)), (h, k)

    (h, k), (hs, ks) = scan(step, (jnp.float64(0.5), jnp.float64(1.5)), xs)
    return jnp.sum(hs * ks) * k + h


def derivatives(held):
    def case(scan, a):
        f = functools.partial(loss, scan, held, xs=jnp.linspace(0.0, 1.0, 5))
        of_two = lambda a: jnp.sum(jax.vmap(f)(a * jnp.array([1.0, 1.1])))
        return [
            jax.grad(f)(a),
            jax.jvp(f, (a,), (a,))[1],
            jax.linearize(f, a)[1](a),
            jax.grad(jax.checkpoint(f))(a),
            jax.jvp(jax.grad(f), (a,), (a,))[1],
            jax.linearize(jax.grad(f), a)[1](a),
            jax.grad(jax.grad(f))(a),
            jax.grad(lambda a: jax.jvp(f, (a,), (a,))[1])(a),
            jax.grad(of_two)(a),
            jax.grad(jax.grad(of_two))(a),
        ]

    return case


@few_schedules
@each_held
def test_every_derivative_is_that_of_lax_scan(held, schedule, monkeypatch):
    monkeypatch.undo()  # the step calls the host
    check(derivatives(held), schedule, A, parameter=held.__name__)


def after(held, scan, a):
    (h, k), ks = scan(lambda c, _: ((jnp.sin(a * c[0]), c[1] + 1.0), c[1]), (a, A), None, 4)
    return h * held(k) * held(ks[1])


@each_held
def test_what_leaves_a_chain_without_a_tangent_has_none(held, monkeypatch):
    monkeypatch.undo()
    gradient = lambda scan: jax.grad(functools.partial(after, held, scan))(A)
    assert_close(gradient(functools.partial(jt.scan, schedule=jt.Revolve(2))), gradient(lax.scan))


def test_of_a_tape_of_two_segments_and_of_a_loop():
    def step(p, state):
        h, k = state
        return jnp.sin(p * h) * k, root(k)

    def other(p, state):
        return step(p, state)

    def run(p, schedule):
        tape = jt.Tape().append(step, p * jnp.ones(4)).append(other, p * jnp.ones(3))
        return tape.with_schedule(schedule)((p, A))[0]

    desired = jax.grad(run)(A, jt.StoreAll())
    assert_close(jax.grad(run)(A, jt.Revolve(2)), desired)

    def loop(p):
        def body(state):
            *pair, i = state
            return *step(p, pair), i + 1

        return jt.while_loop(lambda s: s[-1] < 7, body, (p, A, 0), 9, slots=2)[0]

    assert_close(jax.grad(loop)(A), desired)


@pytest.mark.parametrize("differentiated", [False, True])
def test_the_states_of_a_leaf_without_a_tangent_are_not_kept(differentiated):
    """sin(k) + h: its pullback reads k for k's own cotangent alone."""

    x = jnp.ones(1000)

    def gradient(h, k):
        def step(carry, _):
            h, k = carry
            return (jnp.sin(k) + h, 1.1 * k), None

        run = lambda h, k: jnp.sum(jt.scan(step, (h, k), None, 99, schedule=jt.Revolve(30))[0][0])
        return jax.grad(run, (0, 1) if differentiated else 0)(h, k)

    size = jax.jit(gradient).lower(x, x).compile().memory_analysis().temp_size_in_bytes
    assert (size > 30 * x.nbytes) == differentiated


def watched(held):
    """A leaf of the state and a y, reached by what is differentiated, whose cotangents nobody asks for."""

    def case(scan, a):
        def f(a):
            def step(carry, x):
                h, _ = carry
                h = jnp.sin(a * h) + x
                return (h, held(h)), (h, held(jnp.cos(h)))

            (h, _), (hs, _) = scan(step, (0.5 * a, A), jnp.linspace(0.0, 1.0, 5))
            return h + jnp.sum(hs * hs)

        of_two = lambda a: jnp.sum(jax.vmap(f)(a * jnp.array([1.0, 1.1])))
        return [
            jax.grad(f)(a),
            jax.linearize(f, a)[1](a),
            jax.grad(jax.checkpoint(f))(a),
            jax.jvp(jax.grad(f), (a,), (a,))[1],
            jax.grad(jax.grad(f))(a),
            jax.grad(of_two)(a),
            jax.grad(jax.grad(of_two))(a),
        ]

    return case


@pytest.mark.costly
@few_schedules
def test_what_is_watched_alone_passes_through_a_loop(schedule):
    check(watched(root), schedule, A, parameter="watched")


@pytest.mark.parametrize("leaf", [0, 1])
def test_a_cotangent_that_cannot_be_pulled_back_is_refused(leaf):
    """`h` reads `k`, which passes a loop: neither has a gradient if `k` varies."""

    def gradient(scan):
        step = lambda c, _: ((jnp.sin(c[0]) * c[1], root(c[1])), None)
        return jax.grad(lambda k: scan(step, (A, k), None, 4)[0][leaf])(A)

    for scan in (lax.scan, functools.partial(jt.scan, schedule=jt.Revolve(2))):
        with pytest.raises(ValueError, match="Reverse-mode differentiation"):
            gradient(scan)


def held_tape(held, schedule):
    """Two segments, whose state has a leaf that cannot be differentiated."""

    def step(p, state):
        h, k = state
        return jnp.sin(p * h) * k, held(k)

    def other(p, state):
        return step(p, state)

    tape = jt.Tape(schedule=schedule).append(step, jnp.linspace(0.5, 1.0, 40))
    return tape.append(other, jnp.linspace(0.5, 1.0, 9))


@pytest.mark.costly
@each_held
def test_of_a_plan_and_a_budget_over_segments_and_a_recording(held, monkeypatch):
    monkeypatch.undo()
    x, least = (A * jnp.ones(100), A), 20_000

    def gradient(schedule):
        tape = held_tape(held, schedule)
        run = lambda params, h: jnp.sum(tape.replace(0, 40, params)((h, A))[0])
        return jax.grad(run, (0, 1))(tape.segments[0].params, x[0])

    desired = gradient(jt.StoreAll())
    assert_close(gradient(jt.Budget(least)), desired)
    tape = held_tape(held, jt.Budget(least))
    plan = jt.plan(tape, x)
    slots = sum(part.slots for part in plan.parts)
    assert plan.advanced > 49 and slots < 49 and plan.peak_bytes <= least
    seen = {}
    bar = jnp.ones(100)
    pulled = tape.record(x).pullback((bar, 1.0), hook=lambda k, bar: seen.update({k: bar}))
    for (h_bar, k_bar), tape_bar in (pulled, tape.record(x).pullback((bar, None))):
        assert k_bar is None and seen[45][1] is None
        assert_close((tape_bar.segments[0].params, h_bar), desired)


@pytest.mark.costly
def test_what_reaches_an_undefined_cotangent_has_none_either():
    """Here `b` moves `k` in the first segment, which passes a loop in the second."""

    def drift(p, state):
        h, k = state
        return h * p["a"], k * p["b"]

    params = {"a": jnp.linspace(0.5, 1.0, 3), "b": jnp.ones(3)}
    after = held_tape(root, jt.Revolve(3))
    tape = jt.Tape(schedule=jt.Revolve(3)).append(drift, params) + after
    state_bar, tape_bar = tape.record((A, A)).pullback((1.0, 1.0))
    run = lambda a: tape.replace(0, 3, params | {"a": a})((A, A))[0]
    assert_close(tape_bar.segments[0].params["a"], jax.grad(run)(params["a"]))
    assert tape_bar.segments[0].params["b"] is None and state_bar[1] is None


def test_a_recording_without_any_gradient_says_why():
    tape = jt.Tape().append(lambda p, state: root(p * state), jnp.ones(5))
    with pytest.raises(ValueError, match="Reverse-mode differentiation"):
        tape.record(A).pullback(1.0)
