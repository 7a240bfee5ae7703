"""`jt.scan` where `lax.scan` stands: the same values, derivatives and refusals, under every schedule.

A case is a function of a scan and of some arguments, run under jit with `lax.scan` and with `jt.scan`.
"""

import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt

from ..helpers_scan import (
    ONE,
    THREE,
    XS,
    A,
    check,
    each_program,
    each_schedule,
    few_schedules,
    summed,
    turn,
    with_schedule,
)
from ..helpers_tape import assert_close


class Pair(NamedTuple):
    left: Any
    right: Any


class Module(eqx.Module):
    weight: jax.Array
    name: str = eqx.field(static=True)


# Lengths, unrolling, reversal


def both_ways(scan, length, unroll, reverse, a, xs):
    def run(a, xs):
        return scan(functools.partial(turn, a), xs[0] * 0.1, xs[1 : length + 1],
                    length, reverse=reverse, unroll=unroll)  # fmt: skip

    gradient = jax.grad(lambda *args: summed(run(*args)), (0, 1))
    return run(a, xs), gradient(a, xs)


@each_program
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_and_unrolling(schedule, reverse):
    """A length with each unrolling that differs from the others; a schedule does without."""
    pairs = [(0, 1), (1, 2), (2, 1), (5, 2), (5, False)] if schedule else list(
        itertools.product([0, 1, 2, 5], [0, 1, 2, 5, True, False]))  # fmt: skip

    def case(scan, a, xs):
        return [both_ways(scan, length, unroll, reverse, a, xs) for length, unroll in pairs]

    check(case, schedule, A, XS, parameter=(reverse, len(pairs)))


@each_schedule
@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ValueError, "unroll is -1: `unroll` must be a `bool` or", {"unroll": -1}),
        (TypeError, "unroll is '2': `unroll` must be a `bool` or", {"unroll": "2"}),
        (TypeError, "unroll is 1.5: `unroll` must be", {"unroll": 1.5}),
        (TypeError, "unroll is None: `unroll` must be", {"unroll": None}),
        (ValueError, r"disagree \(length: 5, xs: 6\): make", {"length": 5}),
        (ValueError, r"disagree \(length: 7, xs: 6\): make", {"length": 7}),
        (ValueError, "length is -1: give 0 or more", {"length": -1, "xs": None}),
        (ValueError, "xs has no leaves and length is None", {"xs": None}),
        (ValueError, r"xs\['a'\] is a scalar: stack", {"xs": {"a": 1.0}}),
        (ValueError, r"\(xs\[0\]: 6, xs\[1\]: 2\)", {"xs": (np.ones(6), np.ones(2))}),
        (TypeError, "not a valid JAX", {"xs": "text"}),
        (TypeError, "not a valid JAX", {"init": "text"}),
        (TypeError, "pair", {"f": lambda c, x: c}),
        (TypeError, "structure", {"f": lambda c, x: ((c, c), x)}),
        (TypeError, "float64.*int", {"f": lambda c, x: (c.astype(int), x)}),
        (TypeError, r"float64\[2\]", {"f": lambda c, x: (jnp.stack([c, c]), x)}),
    ],
)
def test_what_lax_scan_refuses_is_refused_with_the_value_and_the_remedy(
    schedule, error, match, arguments
):
    given = {"f": lambda c, x: (c, x), "init": jnp.float64(1.0), "xs": jnp.ones(6), "length": None}
    given |= arguments
    undressed = getattr(
        jt.scan, "__wrapped__", jt.scan
    )  # as users have it, without checks of types
    with pytest.raises(error, match=match):
        undressed(**given, schedule=schedule)
    peer_takes = given["length"] == -1 or given.get("unroll") == 1.5
    if not peer_takes:
        with pytest.raises(error):
            lax.scan(**given)


@each_schedule
def test_a_traced_length_or_unroll_is_refused(schedule):
    undressed = getattr(jt.scan, "__wrapped__", jt.scan)

    def run(**traced):
        return undressed(
            lambda c, x: (c, x), 1.0, None, **{"length": 3, **traced}, schedule=schedule
        )

    with pytest.raises(jax.errors.ConcretizationTypeError, match=r"length is traced.*while_loop"):
        jax.jit(lambda n: run(length=n))(3)
    with pytest.raises(TypeError, match="`unroll` must be a `bool` or"):
        jax.jit(lambda n: run(unroll=n))(3)


@few_schedules
def test_numbers_of_numpy_are_lengths(schedule):
    undressed = getattr(jt.scan, "__wrapped__", jt.scan)
    for three in (np.int64(3), jnp.int32(3)):
        _, ys = undressed(lambda c, _: (c + 1, c), 0, None, three, schedule=schedule)
        assert list(ys) == [0, 1, 2]


# Pytrees and types


def carried_through(init, xs, step=None):
    """A case whose step adds up whatever it finds, and its loss to `a`."""

    def case(scan, a):
        def f(carry, x):
            def grow(leaf):
                return jnp.sin(a * leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

            return jax.tree.map(grow, carry), (x, jax.tree.map(lambda leaf: leaf * 1, carry))

        run = lambda a: scan(step or f, jax.tree.map(lambda x: x * a, init), xs, 3)
        return run(a), jax.grad(lambda a: summed(run(a)))(a)

    return case


TREES = {
    "no xs": (ONE, None),
    "empty xs": (ONE, {}),
    "no carry": ((), THREE),
    "None carry": (None, THREE),
    "neither": ((), ()),
    "None leaves": ((ONE, None), {"a": THREE, "b": None}),
    "tuples": ((ONE, (ONE * 2, ())), (THREE, (THREE,))),
    "lists": ([ONE, [ONE * 2]], [THREE]),
    "dicts": ({"b": ONE, "a": ONE * 3}, {"x": {"y": THREE}}),
    "namedtuples": (Pair(ONE, {"z": ONE}), Pair(THREE, None)),
    "modules": (Module(ONE, "m"), Module(THREE, "n")),
    "empty leaves": (jnp.zeros((0, 2)), jnp.zeros((3, 0))),
    "numpy": (np.float64(1.0), np.arange(3.0)),
}


@each_program
def test_pytrees(schedule):
    cases = [carried_through(*tree) for tree in TREES.values()]
    check(lambda scan, a: [case(scan, a) for case in cases], schedule, A)


def of_a_type(dtype):
    """Values of a type ride along with a float, and are read by it."""

    def case(scan, a):
        xs = jnp.arange(3).astype(dtype)

        def f(carry, x):
            s, other = carry
            other = (other | x) if dtype is bool else other + x * other
            s = s * a + jnp.real(other).astype(a.dtype) * jnp.real(x).astype(a.dtype)
            return (s, other), (other, s)

        run = lambda a: scan(f, (a, jnp.ones((), dtype)), xs)
        return run(a), jax.grad(lambda a: summed(run(a)))(a)

    return case


@each_program
def test_types(schedule):
    cases = [of_a_type(t) for t in (bool, "int32", "uint8", "float32", "bfloat16", "complex128")]
    check(lambda scan, a: [case(scan, a) for case in cases], schedule, A, rtol=1e-6)


@each_program
def test_complex_derivatives(schedule):
    def case(scan, w):
        def loss(w):
            return jnp.abs(scan(lambda c, x: (c * w + jnp.conj(c) * x, c), w, xs * w)[0]) ** 2

        return jax.grad(loss)(w), jax.jvp(loss, (w,), (w * 1j,))

    xs = lax.complex(THREE, THREE)
    check(case, schedule, jnp.complex128(0.3 + 0.8j))


@each_program
def test_keys(schedule):
    def case(scan, a):
        def f(carry, key):
            s, own = carry
            own, draw = jax.random.split(own)
            s = s * a + jax.random.normal(draw) * jax.random.normal(key)
            return (s, own), (s, draw)

        run = lambda a: scan(f, (a, jax.random.key(1)), jax.random.split(jax.random.key(2), 3))
        (_, key), (_, keys) = run(a)
        return key, keys, jax.value_and_grad(lambda a: summed((run(a)[0][0], run(a)[1][0])))(a)

    check(case, schedule, A)


@each_program
def test_integers_have_tangents_of_type_float0(schedule):
    def case(scan, a):
        def run(a, n, xs):
            return scan(lambda c, x: ((c[0] * a + x, c[1] + 1), c[1]), (a, n), xs)

        primals = a, jnp.int32(2), jnp.arange(3, dtype=jnp.int32)
        tangents = jnp.ones_like(a), *(np.zeros(p.shape, jax.dtypes.float0) for p in primals[1:])
        out, dot = jax.jvp(run, primals, tangents)
        assert dot[0][1].dtype == dot[1].dtype == jax.dtypes.float0
        _, pullback = jax.vjp(run, *primals)
        zeros = [np.zeros(leaf.shape, jax.dtypes.float0) for leaf in (out[0][1], out[1])]
        a_bar, n_bar, xs_bar = pullback(((jnp.ones_like(a), zeros[0]), zeros[1]))
        assert n_bar.dtype == xs_bar.dtype == jax.dtypes.float0
        return out, dot[0][0], a_bar

    with jax.numpy_dtype_promotion("standard"):
        check(case, schedule, A)


WEAK = {
    "a Python float stays weak": lambda scan: scan(lambda c, x: (c * 2.0, c), 1.0, None, 3),
    "a Python int stays weak": lambda scan: scan(lambda c, x: (c + 1, c), 0, None, 3),
    "a Python int takes a type": lambda scan: scan(
        lambda c, x: (c + x, c), 0, jnp.arange(3, dtype="uint8")
    ),
    "a Python float takes a type": lambda scan: scan(
        lambda c, x: (c + x, c), 0.0, jnp.ones(3, jnp.float32)
    ),
    "a Python bool": lambda scan: scan(lambda c, x: (c | True, c), False, None, 3),
    "a Python complex": lambda scan: scan(lambda c, x: (c * 1j, c), 1j, None, 3),
    "one of two": lambda scan: scan(
        lambda c, x: ((c[0] + x, c[1] * 2), c), (0.0, 1), jnp.ones(3, jnp.float32)
    ),
    "a weak y": lambda scan: scan(lambda c, x: (c, 1), jnp.float64(0.0), None, 3),
    "a carry that is replaced": lambda scan: scan(lambda c, x: (2.0, c), 1.0, None, 3),
}


@each_program
def test_python_scalars_and_weak_types(schedule):
    check(lambda scan: [case(scan) for case in WEAK.values()], schedule)


# Inside one another


def scan_in_scan(scan, a):
    def outer(carry, x):
        inner, ys = scan(lambda c, y: (jnp.sin(a * c) + y, c), carry, THREE * x)
        return inner, ys

    return summed(scan(outer, a, THREE))


def scan_in_cond(scan, a):
    def run(sign):
        return lax.cond(sign * a > 0, lambda a: summed(scan(functools.partial(turn, a), a, THREE)),
                        jnp.sin, a)  # fmt: skip

    return run(1.0) + run(-1.0)


def cond_in_scan(scan, a):
    def f(carry, x):
        return lax.cond(x > 0.5, lambda c: jnp.sin(a * c), lambda c: c * a, carry), carry

    return summed(scan(f, a, THREE))


def while_in_scan(scan, a):
    def f(carry, x):
        return lax.fori_loop(0, 2, lambda _, c: jnp.sin(a * c) + x, carry), None

    return scan(f, a, THREE)[0]


def checkpoint_in_scan(scan, a):
    return summed(scan(jax.checkpoint(functools.partial(turn, a)), a, THREE))


def custom_vjp_in_scan(scan, a):
    @jax.custom_vjp
    def doubled(x):
        return 2.0 * x

    doubled.defvjp(lambda x: (2.0 * x, x), lambda x, bar: (3.0 * bar * x,))
    return summed(scan(lambda c, x: (doubled(c) * a + x, c), a, THREE))


NESTED = [scan_in_scan, scan_in_cond, cond_in_scan, while_in_scan, checkpoint_in_scan]


@each_program
def test_inside_one_another(schedule):
    def case(scan, a):
        first = [
            jax.value_and_grad(functools.partial(f, scan))(a) for f in [*NESTED, custom_vjp_in_scan]
        ]
        return first, [jax.jvp(functools.partial(f, scan), (a,), (a,)) for f in NESTED]

    check(case, schedule, A)


@few_schedules
def test_closures(schedule):
    """Over values differentiated outside, over integers, and over a value of an enclosing scan."""

    def case(scan, a):
        def loss(a):
            table, k = {"w": a * THREE}, jnp.int32(1)
            return summed(scan(lambda c, x: (c * table["w"][k] + x * a, table["w"]), a, THREE))

        return jax.grad(loss)(a), jax.jvp(jax.grad(loss), (a,), (a,))

    check(case, schedule, A)


# Without a program of its own


@each_program
def test_without_jit(schedule):
    run = lambda scan, a: summed(scan(functools.partial(turn, a), a, THREE))
    found, desired = (
        jax.value_and_grad(functools.partial(run, scan))(A)
        for scan in (with_schedule(schedule), lax.scan)
    )
    assert_close(found, desired)


@few_schedules
def test_disable_jit(schedule):
    run = lambda scan, a: summed(scan(functools.partial(turn, a), a, THREE[:2]))
    desired = jax.value_and_grad(functools.partial(run, lax.scan))(A)
    with jax.disable_jit():
        found = jax.value_and_grad(functools.partial(run, with_schedule(schedule)))(A)
    assert_close(found, desired)


@each_schedule
def test_shapes_and_programs_without_a_run(schedule):
    def run(scan, a):
        return scan(functools.partial(turn, a), {"s": a}["s"], {"x": THREE}["x"], reverse=True)

    found, desired = (jax.eval_shape(functools.partial(run, scan), A)
                      for scan in (with_schedule(schedule), lax.scan))  # fmt: skip
    assert found == desired
    found, desired = (jax.make_jaxpr(functools.partial(run, scan))(A).out_avals
                      for scan in (with_schedule(schedule), lax.scan))  # fmt: skip
    assert found == desired


@each_schedule
def test_what_is_saved_is_what_was_given(schedule):
    """No copy of `xs` waits for the way back."""
    run = lambda xs: with_schedule(schedule)(lambda c, x: (c * x, c), jnp.ones(2), xs)
    _, pullback = jax.vjp(run, XS)
    assert any(leaf is XS for leaf in jax.tree.leaves(pullback))
