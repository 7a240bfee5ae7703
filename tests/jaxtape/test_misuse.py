"""Misuse of tapes and recordings raises at once, with the value and the remedy."""

import functools
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxtape as jt

X = jnp.array([0.3, -0.8])


def turn(params, state):
    return jnp.sin(state) * params["a"] + params["b"]


def stacked(n):
    return {"a": jnp.linspace(0.1, 0.9, n), "b": jnp.linspace(-1.0, 1.0, n)}


def make():
    return jt.Tape().with_schedule(jt.Revolve(4)).append(turn, stacked(8))


@pytest.mark.parametrize(
    ("error", "match", "misuse"),
    [
        (IndexError, r"Position 9 is not on a tape of 8 nodes.*-8", lambda t: t.truncate(9)),
        (IndexError, r"\[5, 2\) runs backwards.*i <= j", lambda t: t.erase(5, 2)),
        (IndexError, r"Position 8 is the end.*mark one before", lambda t: t.mark(8)),
        (IndexError, r"Position 9 is not", lambda t: t.drop(9)),
        (IndexError, r"Position -9 is not.*give one of -8 … 8", lambda t: t.erase(-9, 2)),
        (IndexError, r"Position 10 is not", lambda t: t.erase(2, 10)),
        (IndexError, r"Position 11 is not", lambda t: t.mark(11)),
        (IndexError, r"Position 12 is not", lambda t: t.traverse(0, 12)),
        (IndexError, r"\[5, 2\) runs backwards", lambda t: t.traverse(5, 2)),
        (IndexError, r"Position 9 is not", lambda t: t.split(9)),
        (IndexError, r"Position 9 is not", lambda t: t.replace(7, 9, stacked(2))),
        (IndexError, r"-1 nodes cannot be dropped: give 0 … 8", lambda t: t.drop(-1)),
        (IndexError, r"window of -1 nodes: give 0 or more", lambda t: t.window(-1)),
        (
            ValueError,
            r"replace 2 nodes have 3.*what tape.append would accept",
            lambda t: t.replace(1, 3, stacked(3)),
        ),
        (
            ValueError,
            r"replace 2 nodes.*another structure",
            lambda t: t.replace(1, 3, {"a": jnp.ones(2)}),
        ),
        (
            ValueError,
            r"replace 2 nodes.*another structure, shape or dtype",
            lambda t: t.replace(1, 3, {"a": jnp.ones(2), "b": jnp.ones(2, jnp.float32)}),
        ),
        (
            ValueError,
            r"do not share a leading axis.*stack every leaf",
            lambda t: t.replace(1, 3, {"a": jnp.ones(2), "b": jnp.ones(3)}),
        ),
        (TypeError, r"sliced by tape\[i:j\], not by slice", lambda t: t[::2]),
        (
            TypeError,
            r"traced.*outside of jax.jit",
            lambda t: eqx.filter_jit(lambda t: t.drop(1))(t.drop(1)),
        ),
        (
            TypeError,
            r"traced.*outside of jax.jit",
            lambda t: eqx.filter_jit(lambda t: t.append(turn, stacked(1)))(t.drop(1)),
        ),
        (
            TypeError,
            r"traced.*outside of jax.jit",
            lambda t: eqx.filter_jit(lambda t: t.record(X))(t.mark(1)),
        ),
    ],
)
def test_of_a_tape(error, match, misuse):
    with pytest.raises(error, match=match):
        misuse(make())


two_kinds = (
    make().append(turn, stacked(22)).append(lambda p, s: 0.5 * s + p, jnp.linspace(-1.0, 1.0, 5))
)


@pytest.mark.parametrize(
    ("error", "match", "misuse"),
    [
        (IndexError, r"Position 36 is not on a tape of 35 nodes", lambda r: r.state(36)),
        (IndexError, r"Position -36 is not", lambda r: r.pullback(X, stop=-36)),
        (IndexError, r"Position 36 is not", lambda r: r.drop(36)),
        (IndexError, r"-1 nodes cannot be dropped", lambda r: r.drop(-1)),
        (IndexError, r"Position 40 is not", lambda r: r.truncate(40)),
        (IndexError, r"\[4, 2\) runs backwards", lambda r: r.erase(4, 2)),
        (ValueError, r"replace 2 nodes have 3", lambda r: r.replace(1, 3, stacked(3))),
        (ValueError, r"another structure", lambda r: r.replace(1, 3, jnp.ones(2))),
        (
            ValueError,
            r"crosses into another segment",
            lambda r: r.replace(28, 32, stacked(4)),
        ),
        (
            TypeError,
            r"which does not take two arguments",
            lambda r: r.append(lambda state: state, jnp.ones(2)),
        ),
        (TypeError, r"changes leaf state", lambda r: r.append(lambda p, s: s[0], jnp.ones(2))),
    ],
)
def test_of_a_recording(error, match, misuse):
    with pytest.raises(error, match=match):
        misuse(two_kinds.record(X))


@pytest.mark.parametrize(
    ("match", "step"),
    [
        ("step", 3),
        (
            r"<lambda>\(state\), which .* \(too many positional arguments\): give",
            lambda state: state,
        ),
        (r"\(p, s, t\), which .* \(missing a required argument: 't'\)", lambda p, s, t: s),
        (r"\(p, s, \*, t\), which .*close over", lambda p, s, *, t: s),
        (r"missing a required argument: 't'", jax.jit(lambda p, s, t: s)),
    ],
)
def test_a_step_takes_params_and_a_state(match, step):
    with pytest.raises(TypeError, match=match):
        jt.Tape().append(step, jnp.ones(3))


@functools.wraps(lambda params, state, more: state)
def wrapped(params, state):
    return params * state


@pytest.mark.parametrize(
    "step",
    [
        wrapped,
        jax.jit(operator.mul),
        functools.partial(lambda more, params, state: params * state, 1),
        lambda params, state, more=1: params * state,
        lambda *both: both[0] * both[1],
        eqx.filter_jit(lambda params, state: params * state),
        jax.checkpoint(operator.mul),
        jax.tree_util.Partial(operator.mul),
        operator.mul,
        jnp.multiply,
        jax.custom_vjp(lambda params, state: params * state),
    ],
)
def test_whatever_takes_two_arguments_is_a_step(step):
    if isinstance(step, jax.custom_vjp):
        step.defvjp(
            lambda p, s: (p * s, (p, s)), lambda saved, bar: (saved[1] * bar, saved[0] * bar)
        )
    tape = jt.Tape().append(step, jnp.array([2.0, 3.0])).with_schedule(jt.Revolve(2))
    assert jax.grad(lambda x: tape(x))(1.0) == 6.0


def test_a_schedule_is_one():
    with pytest.raises(TypeError, match="schedule"):
        two_kinds.with_schedule(12)
    with pytest.raises(ValueError, match="3 schedules for 2 segments: give one for each"):
        two_kinds.with_schedule([jt.StoreAll()] * 3)
