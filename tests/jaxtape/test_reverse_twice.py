"""Reverse mode through reverse mode of a chain with a schedule, beside `lax.scan`."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtape as jt

from ..cases import others_later
from ..helpers_tape import (
    all_schedules,
    along,
    assert_close,
    heston,
    heston_call,
    heston_noise,
    loss_of,
    mixed_arguments,
)

SCALES = jnp.arange(1.0, 4.0)


def gradient_norm(loss, *arguments):
    """A scalar that depends on the gradient in all arguments."""
    leaves = jax.tree.leaves(jax.grad(loss, tuple(range(len(arguments))))(*arguments))
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in leaves)


def grad_of_grad(loss, a, init, xs):
    return jax.grad(functools.partial(gradient_norm, loss), (0, 1, 2))(a, init, xs)


def jacrev_of_jacrev(loss, *arguments):
    return jax.jacrev(jax.jacrev(loss, (0, 1)), (0, 1))(*arguments)


def vmap_of_grad_of_grad(loss, a, *_):
    return jax.vmap(jax.grad(jax.grad(functools.partial(along, loss))))(a * SCALES)


def grad_of_vmap_of_grad(loss, a, *_):
    """Members share the first state and xs."""
    member = jax.grad(functools.partial(along, loss))
    return jax.grad(lambda a: jnp.sum(jnp.sin(jax.vmap(member)(a * SCALES))))(a)


def grad_of_vmap_of_pullback(loss, a, init, xs):
    """Members share all but the cotangents."""

    def total(a):
        _, pullback = jax.vjp(lambda xs: loss(a, init, xs), xs * a)
        return jnp.sum(jnp.sin(jax.vmap(pullback)(SCALES)[0]))

    return jax.grad(total)(a)


def grad_of_vmap_of_vjp(loss, a, *_):
    """No argument of the gradient depends on the batch: its cotangents must not be counted once a member."""

    def member(a, scale):
        value, bar = jax.value_and_grad(functools.partial(along, loss))(a)
        return jnp.sin(scale * bar) + scale * value

    return jax.grad(lambda a: jnp.sum(jax.vmap(functools.partial(member, a))(SCALES)))(a)


def forward_over_reverse_over_reverse(loss, a, *_):
    return jax.jvp(jax.grad(jax.grad(functools.partial(along, loss))), (a,), (1.0,))


def in_cond_and_scan(loss, a, *_):
    gradient = jax.grad(functools.partial(along, loss))

    def step(c, _):
        return lax.cond(c > 0, lambda c: c + 1e-3 * gradient(c), jnp.sin, c), None

    return jax.grad(lambda a: lax.scan(step, a, None, 2)[0])(a)


WAYS = (
    grad_of_grad,
    jacrev_of_jacrev,
    vmap_of_grad_of_grad,
    grad_of_vmap_of_grad,
    grad_of_vmap_of_pullback,
    grad_of_vmap_of_vjp,
    forward_over_reverse_over_reverse,
    in_cond_and_scan,
)


def found(way, schedule):
    return jax.jit(functools.partial(way, loss_of(schedule)))(*mixed_arguments(n=5, width=2))


REPEATED = (vmap_of_grad_of_grad,)  # jacrev is a vmap too


@pytest.mark.costly
@pytest.mark.parametrize("way", others_later(WAYS, set(WAYS) - set(REPEATED)))
def test_agrees_with_lax_scan(way):
    assert_close(found(way, jt.Revolve(2)), found(way, None), rtol=1e-11)


@pytest.mark.parametrize(
    "schedule", others_later(all_schedules, [jt.Revolve(5)], all_schedules), ids=str
)
def test_under_every_schedule(schedule):
    def value(a, schedule):
        step = lambda c, x: (jnp.sin(a * c) + x, c)
        return jt.scan(step, a, jnp.linspace(0.1, 1.0, 7), schedule=schedule)[0]

    second = jax.jit(jax.grad(jax.grad(value)), static_argnums=1)
    assert_close(second(0.7, schedule), second(0.7, None), rtol=1e-11)


def test_within_a_budget():
    """The reverse sweep of the reverse sweep finds slots of its own within the bytes."""
    ways = found(grad_of_grad, jt.Budget(bytes=2**13)), found(grad_of_grad, None)
    assert_close(*ways, rtol=1e-11)


def test_a_loop_of_unknown_length():
    def looped(loop, a):
        state = loop(lambda c: c[0] < 5.0, lambda c: (c[0] * a, jnp.sin(c[1]) * a), (1.0, a))
        return state[1]

    def by_scan(holds, body, init):
        step = lambda c, _: (jax.tree.map(functools.partial(jnp.where, holds(c)), body(c), c), None)
        return lax.scan(step, init, None, 12)[0]

    second = lambda loop: jax.vmap(jax.grad(jax.grad(functools.partial(looped, loop))))
    bounded = functools.partial(jt.while_loop, max_steps=12)
    rates = jnp.array([1.3, 1.5])
    assert_close(second(bounded)(rates), second(by_scan)(rates), rtol=1e-11)


@pytest.mark.costly
def test_a_long_chain_keeps_to_its_schedule():
    """A gradient of a gradient in a fifth of the memory of `lax.scan`'s."""
    noise = heston_noise(120, 512)

    def second(schedule):
        scan = functools.partial(jt.scan, schedule=schedule)
        call = functools.partial(heston_call, scan, dt=1 / 120)
        return jax.jit(jax.grad(lambda p: gradient_norm(call, p, noise))).lower(heston).compile()

    stored, revolved = second(None), second(jt.Revolve(8))
    spent, kept = (each.memory_analysis().temp_size_in_bytes for each in (stored, revolved))
    assert kept < spent / 5
    assert_close(revolved(heston), stored(heston), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "refused",
    [lambda gradient: lambda a: jax.jvp(gradient, (a,), (1.0,))[1], jax.checkpoint],
    ids=["forward over reverse", "checkpoint"],
)
def test_what_has_no_reverse_mode_says_so(refused):
    gradient = jax.grad(functools.partial(along, loss_of(jt.Revolve(2))))
    with pytest.raises(NotImplementedError, match=r"forward mode last.*StoreAll"):
        jax.grad(refused(gradient))(0.7)
