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
    off = lambda v: jnp.abs(v * v - 2.0) > 1e-9  # noqa: E731
    return lax.while_loop(off, lambda v: 0.5 * (v + 2.0 / v), k) + 1.0


def on_host(k):
    return jax.pure_callback(lambda k: np.asarray(k) * 1.1, jax.typeof(k), k)


HELD = {"while_loop": root, "pure_callback": on_host}
each_held = pytest.mark.parametrize("held", HELD.values(), ids=HELD)


def loss(scan, held, a, xs):
    def step(carry, x):
        h, k = carry
        return (jnp.sin(a * h) * k + x, held(k)), (h, k)

    (h, k), (hs, ks) = scan(step, (jnp.float64(0.5), jnp.float64(1.5)), xs)
    return jnp.sum(hs * ks) * k + h


def derivatives(held):
    def case(scan, a):
        f = functools.partial(loss, scan, held, xs=jnp.linspace(0.0, 1.0, 5))
        of_two = lambda a: jnp.sum(jax.vmap(f)(a * jnp.array([1.0, 1.1])))  # noqa: E731
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
    gradient = lambda scan: jax.grad(functools.partial(after, held, scan))(A)  # noqa: E731
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

        run = lambda h, k: jnp.sum(jt.scan(step, (h, k), None, 99, schedule=jt.Revolve(30))[0][0])  # noqa: E731
        return jax.grad(run, (0, 1) if differentiated else 0)(h, k)

    size = jax.jit(gradient).lower(x, x).compile().memory_analysis().temp_size_in_bytes
    assert (size > 30 * x.nbytes) == differentiated
