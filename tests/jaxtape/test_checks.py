"""The checks find wrong derivatives and pass right ones; Hessian-vector products are the Hessian's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call

import jaxtape as jt

from ..cases import others_later
from ..helpers_tape import (
    all_schedules,
    assert_close,
    heston,
    heston_call,
    heston_noise,
    mixed_arguments,
    mixed_loss,
)


@jax.custom_jvp
def wrong_square(x):
    return x**2


@wrong_square.defjvp
def _(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return wrong_square(x), 2.001 * x * x_dot


def wrong_transpose(x):
    return linear_call(lambda _, x: 2.0 * x, lambda _, y: 2.1 * y, (), x)


def mixed(schedule):
    """A scalar function of a dict with integer and key leaves, and of a float."""

    def f(market, a):
        noise = 0.01 * jax.random.normal(market["key"], market["spots"].shape)
        loss, count = mixed_loss(schedule)(a, market["spots"] + noise, market["xs"])
        return loss * (market["number"] + 0 * count.sum()).astype(float)

    a, init, xs = mixed_arguments()
    return f, (
        {"spots": init, "xs": xs, "number": jnp.int64(3), "key": jax.random.key(2)},
        float(a),
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    "schedule", others_later(all_schedules[:3], (jt.StoreAll(), jt.Revolve(5))), ids=str
)
def test_right_gradients_pass(schedule):
    f, args = mixed(schedule)
    found = jt.check_gradient(f, *args)
    assert found.names[0] == "args[0]['spots'], direction 0" and len(found.names) == 6
    assert found.max_relative_difference < 1e-8
    assert jt.check_duality(f, args).max_relative_difference < 1e-12


def test_gradient_of_a_tape_passes():
    tape = jt.Tape().append(
        lambda p, x: jnp.sin(x) * p["a"] + p["b"], {"a": jnp.ones(9), "b": jnp.ones(9)}
    )
    tape = tape.with_schedule(jt.Revolve(3))
    found = jt.check_gradient(lambda tape, x: jnp.sum(tape(x) ** 2), tape, jnp.arange(3.0))
    assert found.names[0] == "args[0].segments[0].params['a'], direction 0"
    jt.check_duality(lambda tape, x: tape(x), (tape, jnp.arange(3.0)))


def test_scales_do_not_matter():
    """A leaf in basis points, one in millions, one of zeros; a constant function."""
    x = jnp.float64(3e-6), jnp.float64(4e6), jnp.zeros(2), jnp.zeros((0, 3))
    found = jt.check_gradient(
        lambda a, b, c, d: jnp.sin(1e6 * a) * jnp.log(b) + jnp.sum(jnp.exp(c)), *x
    )
    assert found.max_relative_difference < 1e-8
    assert jt.check_gradient(lambda x: 0.0 * jnp.sum(x), jnp.ones(2)).max_relative_difference == 0.0


def test_a_wrong_gradient_is_named():
    def f(args):
        return jnp.sum(jnp.sin(args["right"])) + jnp.sum(wrong_square(args["wrong"]))

    args = {"right": jnp.arange(3.0), "wrong": jnp.arange(4.0)}
    with pytest.raises(
        AssertionError, match=r"args\[0\]\['wrong'\], direction \d: .*central differ.*fix"
    ):
        jt.check_gradient(f, args)
    jt.check_gradient(lambda x: f({**args, "right": x}), args["right"])
    jt.check_duality(f, (args,))  # one linear map, though a wrong one


def test_modes_that_disagree_are_named():
    with pytest.raises(AssertionError, match=r"direction 0: .*<w, J v> = .*fix the rule"):
        jt.check_duality(lambda x: {"y": wrong_transpose(x), "n": 1}, (jnp.arange(3.0),))


@pytest.mark.parametrize("check", [jt.check_gradient, lambda f, x: jt.check_duality(f, (x,))])
def test_numbers_that_are_not_finite_fail(check):
    with pytest.raises(AssertionError, match="nan"):
        check(lambda x: jnp.sum(jnp.sqrt(x)), jnp.array([1.0, -1.0]))


def test_directions_come_from_the_key():
    f, x = (lambda x: jnp.sum(x**3)), jnp.arange(3.0)
    first, same, other = (
        jt.check_gradient(f, x, key=k) for k in (None, *map(jax.random.key, (0, 1)))
    )
    np.testing.assert_array_equal(first.actual, same.actual)
    assert np.all(first.actual != other.actual)
    assert len(jt.check_duality(f, (x,), directions=5).names) == 5


def test_checks_ask_for_float64():
    single, bad = jnp.ones(2, jnp.float32), {"x": jnp.ones(2, jnp.float32)}
    with pytest.raises(TypeError, match=r"args\[1\]\['x'\] is float32: .*jax_enable_x64"):
        jt.check_gradient(lambda x, y: jnp.sum(x), jnp.ones(2), bad)
    with pytest.raises(TypeError, match=r"primals\[0\] is float32"):
        jt.check_duality(jnp.sin, (single,))
    with pytest.raises(TypeError, match=r"primals is .*: give a tuple"):
        jt.check_duality(jnp.sin, jnp.ones(2))
    with pytest.raises(ValueError, match="directions is less than 1"):
        jt.check_gradient(jnp.sum, jnp.ones(2), directions=0)
    with pytest.raises(ValueError, match="args has no float leaf"):
        jt.check_gradient(lambda n: n * 1.0, 3)
    with pytest.raises(TypeError, match="scalar"):
        jt.check_gradient(jnp.sin, jnp.ones(2))


def test_hvp_is_the_hessian_times_a_vector():
    def f(x, y):
        return jnp.sum(jnp.sin(x["a"]) * y**2) * jnp.asarray(x["n"], float)

    x, y = {"a": jnp.arange(3.0), "n": jnp.int64(2)}, jnp.linspace(1.0, 2.0, 3)
    v, w = jnp.array([1.0, -2.0, 0.5]), jnp.array([0.3, 0.1, -1.0])
    for held in (None, jnp.int64(0)):
        x_dot, y_dot = jt.hvp(f, (x, y), ({"a": v, "n": held}, w))
        hessian = jax.hessian(lambda z: f({"a": z[:3], "n": 2}, z[3:]))
        expected = hessian(jnp.concatenate([x["a"], y])) @ jnp.concatenate([v, w])
        assert x_dot["n"] is None
        assert_close((x_dot["a"], y_dot), (expected[:3], expected[3:]))


@pytest.mark.parametrize("schedule", all_schedules[:3], ids=str)
def test_hvp_through_a_schedule(schedule):
    noise = heston_noise(9, 64)
    scan = functools.partial(jt.scan, schedule=schedule)
    call, slow_call = (
        lambda p, scan=scan: heston_call(scan, p, noise, 1 / 9) for scan in (scan, lax.scan)
    )
    v = type(heston)(*map(jnp.float64, (0.1, 0.01, -0.3, 0.02, 0.2, 0.5)))
    (found,) = jax.jit(lambda p, v: jt.hvp(call, (p,), (v,)))(heston, v)
    hessian = jax.hessian(slow_call)(heston)
    expected = [sum(h * t for h, t in zip(row, v, strict=True)) for row in hessian]
    assert_close(found, type(heston)(*expected), rtol=1e-10)


def test_hvp_says_what_is_wrong():
    f, x = (lambda x: jnp.sum(x**2)), jnp.ones(3)
    with pytest.raises(TypeError, match=r"primals is .*: give a tuple"):
        jt.hvp(f, x, (x,))
    with pytest.raises(TypeError, match=r"tangents is .*: give a tuple"):
        jt.hvp(f, (x,), x)
    with pytest.raises(ValueError, match="structure of primals"):
        jt.hvp(f, (x,), (x, x))
    with pytest.raises(
        ValueError, match=r"tangents\[0\] is float64\[2\] and its primal float64\[3\]"
    ):
        jt.hvp(f, (x,), (x[:2],))
    with pytest.raises(ValueError, match=r"tangents\[0\] is int64"):
        jt.hvp(f, (x,), (jnp.ones(3, jnp.int64),))
    with pytest.raises(TypeError, match="scalar"):
        jt.hvp(jnp.sin, (x,), (x,))
