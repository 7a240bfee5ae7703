"""Step evaluations counted as they run, and bytes as the compiler plans them."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtape as jt

from ..helpers_tape import Counter, assert_close, heston, heston_call, heston_noise, heston_step


def count(n, schedule, make=lambda loss: jax.grad(loss, (0, 1))):
    """The gradient of the Heston call over n steps, and the evaluations it took."""
    counter = Counter()

    def step(p, dt, state, noise):
        x, v = heston_step(p, dt, state, noise)
        return counter.probe(x), v

    scan = functools.partial(jt.scan, schedule=schedule)
    call = functools.partial(heston_call, scan, dt=1 / n, step=step)
    out = jax.jit(make(call))(heston, heston_noise(n, 8))
    jax.block_until_ready(out)
    jax.effects_barrier()
    return out, counter.counts


def test_revolve_takes_as_many_steps_as_the_closed_form_says():
    bars, counts = count(365, jt.Revolve(12))
    # The value passes the last step, which no state has to be advanced through.
    assert counts == {"advanced": jt.advances(365, 12) + 1, "taped": 365}
    noise = heston_noise(365, 8)
    desired = jax.grad(functools.partial(heston_call, lax.scan, dt=1 / 365), (0, 1))(heston, noise)
    assert_close(bars, desired, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("n", "slots"), [(1, 1), (7, 3), (20, 19), (31, 2)])
def test_small_chains_take_as_many_steps_as_the_closed_form_says(n, slots):
    _, counts = count(n, jt.Revolve(slots))
    assert counts == {"advanced": jt.advances(n, slots) + 1, "taped": n}


def test_the_value_alone_takes_one_sweep():
    _, counts = count(30, jt.Revolve(3), make=lambda loss: loss)
    assert counts == {"advanced": 30}


def temp_bytes(scan, n=365, paths=4096):
    gradient = jax.jit(jax.grad(functools.partial(heston_call, scan, dt=1 / n)))
    compiled = gradient.lower(heston, jnp.zeros((n, 2, paths))).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_revolve_needs_half_the_memory_of_a_checkpointed_scan():
    def checkpointed(f, init, xs):
        return lax.scan(jax.checkpoint(f), init, xs)

    revolve = temp_bytes(functools.partial(jt.scan, schedule=jt.Revolve(12)))
    assert revolve <= 0.5 * temp_bytes(checkpointed)
    state = 2 * 4096 * 8
    assert revolve <= 20 * state  # twelve slots, the last state, and the work of one pullback


def test_memory_does_not_grow_with_the_chain():
    scan = functools.partial(jt.scan, schedule=jt.Revolve(12))
    assert temp_bytes(scan, n=1000) < 1.05 * temp_bytes(scan, n=365) + 2**17


def test_checkpoint_around_a_scan_keeps_the_budget():
    def scan(f, init, xs):
        return jax.checkpoint(
            lambda init, xs: jt.scan(f, init, xs, schedule=jt.Revolve(12))
        )(init, xs)  # fmt: skip

    assert temp_bytes(scan) <= 40 * 2 * 4096 * 8


def test_forward_over_reverse_keeps_the_budget():
    def second(schedule):
        scan = functools.partial(jt.scan, schedule=schedule)
        gradient = jax.grad(functools.partial(heston_call, scan, dt=1 / 365))
        directional = jax.jit(lambda p, noise: jax.jvp(lambda p: gradient(p, noise), (p,), (p,)))
        compiled = directional.lower(heston, jnp.zeros((365, 2, 4096))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    first = temp_bytes(functools.partial(jt.scan, schedule=jt.Revolve(12)))
    assert second(jt.Revolve(12)) <= 2.5 * first
