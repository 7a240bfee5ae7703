"""Cotangents of shared values, added up along the chain and summed once: the same gradients, fewer sums.

Nine slots are enough here for all that is broadcast.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.sweeps.chain import trace
from jaxtape.sweeps.differentiable import differentiable_leaves
from jaxtape.sweeps.footprint import Measure
from jaxtape.sweeps.pullback import lifted_values
from jaxtape.sweeps.static_executor import StaticExecutor

from ..helpers_tape import assert_close, heston, heston_call, heston_noise

STATE = {"x": jnp.linspace(0.1, 0.9, 12).reshape(4, 3), "n": jnp.int32(0)}
SHARED = {
    "scalar": jnp.float64(0.7),
    "row": jnp.array([0.2, -0.4, 0.6]),
    "matrix": jnp.linspace(-0.5, 0.5, 9).reshape(3, 3),
    "full": jnp.full((4, 3), 0.1),
    "count": jnp.int32(3),
}
XS = jnp.linspace(0.5, 1.5, 10)


@jax.jit
def inner(scalar, x):
    return jnp.minimum(x, 2.0 * scalar) / (scalar + 2.0)


@jax.custom_jvp
def custom(x, scalar):
    return jnp.sin(x) * scalar


@custom.defjvp
def custom_jvp(primals, tangents):
    (x, scalar), (x_dot, scalar_dot) = primals, tangents
    return custom(x, scalar), jnp.cos(x) * scalar * x_dot + jnp.sin(x) * scalar_dot


def scaled(p, x, _):
    return x * jnp.sqrt(1.0 + p["scalar"] ** 2) - p["scalar"]


def used_twice(p, x, k):
    return p["scalar"] * x + jnp.sin(x) * p["scalar"] * k


def by_row(p, x, _):
    return jnp.tanh(x + p["row"][None] + p["scalar"] * p["row"][None])


def by_matrix(p, x, k):
    return jnp.tanh(x @ (p["matrix"] * p["scalar"])) + k * p["full"] * x


def in_a_jitted_part(p, x, _):
    return inner(p["scalar"], x) + inner(p["scalar"] * 2.0, x)


def in_a_branch(p, x, k):
    return lax.cond(k > 1.0, lambda s, x: s * x, lambda s, x: x - s, p["scalar"], x)


def in_a_custom_rule(p, x, _):
    return custom(x, p["scalar"]) * p["scalar"]


def in_a_loop(p, x, _):
    return lax.fori_loop(0, p["count"], lambda i, x: 0.9 * x + p["scalar"] * 0.1, x)


def as_a_divisor(p, x, k):
    return jnp.maximum(x / p["scalar"], p["scalar"] * 0.1) ** (1.0 + 0.1 * p["scalar"]) * 0.5 * k


STEPS = [
    scaled,
    used_twice,
    by_row,
    by_matrix,
    in_a_jitted_part,
    in_a_branch,
    in_a_custom_rule,
    in_a_loop,
    as_a_divisor,
]


def loss(step, schedule, varied, xs):
    p = SHARED | varied

    def node(state, x):
        new = step(p, state["x"], x)
        return {"x": new, "n": state["n"] + 1}, jnp.sum(new)

    state, ys = jt.scan(node, STATE, xs, schedule=schedule)
    return jnp.sum(state["x"] ** 2) + jnp.sum(ys)


VARIED = {name: value for name, value in SHARED.items() if name != "count"}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_gradients_are_those_of_lax_scan(step):
    actual, desired = (
        jax.jit(jax.value_and_grad(functools.partial(loss, step, schedule), (0, 1)))(VARIED, XS)
        for schedule in (jt.Revolve(9), jt.StoreAll())
    )
    assert_close(actual, desired)


@pytest.mark.parametrize("step", [scaled, by_matrix, in_a_custom_rule], ids=lambda s: s.__name__)
def test_second_derivatives_and_batches(step):
    def second(schedule):
        gradient = jax.grad(functools.partial(loss, step, schedule))
        along = lambda p: jax.jvp(lambda p: gradient(p, XS), (p,), (VARIED,))[1]
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.1 * leaf]), VARIED)
        return along(VARIED), jax.vmap(lambda p: gradient(p, XS))(batch)

    actual, desired = (jax.jit(second, static_argnums=0)(s) for s in (jt.Revolve(9), jt.StoreAll()))
    assert_close(actual, desired)


def chain_of(step, varied=VARIED):
    def node(state, x):
        return {"x": step(SHARED | varied, state["x"], x), "n": state["n"] + 1}, None

    return trace(node, STATE, XS, StaticExecutor.of(jt.Revolve(3), 10))[:2]


def broadcasts_of(step):
    """The shapes of what a step's shared values are broadcast to."""

    def shapes(varied):
        chain, arrays = chain_of(step, varied)
        active = differentiable_leaves(chain, arrays)
        values = lifted_values(chain, active.consts, arrays.consts)
        assert Measure.of(chain, active, arrays).broadcasts(10**9) == bool(values)
        return values

    return [value.shape for value in jax.eval_shape(shapes, VARIED)]


@pytest.mark.parametrize(
    ("step", "count"),
    [(scaled, 2), (used_twice, 1), (by_row, 2), (by_matrix, 0), (in_a_jitted_part, 4)],
)
def test_what_is_broadcast(step, count):
    """A value that meets an array, once however often it does; not what already is as large, nor a factor
    of a matrix product."""
    assert broadcasts_of(step) == [(4, 3)] * count


def test_values_are_broadcast_if_they_are_little_beside_what_is_kept():
    def flag(shared):
        def step(state, x):
            return state + sum(jnp.sin(shared[i] * state) for i in range(20)) * x, None

        chain, arrays, *_ = trace(step, jnp.ones(8), XS, StaticExecutor.of(jt.Revolve(3), 10))
        measure = Measure.of(chain, differentiable_leaves(chain, arrays), arrays)
        flags.extend(map(measure.broadcasts, (0, 4 * 20 - 1, 4 * 20)))
        return 0.0

    flags = []
    jax.eval_shape(flag, jnp.linspace(0.0, 1.0, 20))
    assert flags == [False, False, True]


def test_no_sum_over_the_paths_is_left_in_the_loop():
    """What a Heston step sums over the paths, it sums after the last node."""

    def sums(jaxpr, in_loop=False):
        found = 0
        for eqn in jaxpr.eqns:
            found += in_loop and eqn.primitive.name == "reduce_sum"
            loops = in_loop or eqn.primitive.name in ("scan", "while")
            if (sweep := eqn.params.get("_prim")) is not None:  # a primitive of the tape's own
                found += sums(jax.make_jaxpr(sweep.expand)(*shapes(sweep.in_avals)).jaxpr, loops)
            for inner in jax.tree.leaves(eqn.params, is_leaf=lambda p: hasattr(p, "eqns")):
                inner = getattr(inner, "jaxpr", inner)
                found += sums(inner, loops) if hasattr(inner, "eqns") else 0
        return found

    def shapes(types):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), types)

    def jaxpr(scan):
        call = functools.partial(heston_call, scan, dt=1 / 40)
        return jax.make_jaxpr(jax.grad(call))(heston, heston_noise(40, 64)).jaxpr

    by_tape = lambda slots: functools.partial(jt.scan, schedule=jt.Revolve(slots))
    assert sums(jaxpr(by_tape(30))) == 0
    assert sums(jaxpr(by_tape(3))) > 0  # few states are kept: little room for more
    assert sums(jaxpr(lax.scan)) > 0


def test_debug_prints_are_not_repeated():
    """What is shared is worked out apart from the node, without what the node does on the side."""
    seen = []

    def value(a):
        shared = SHARED["scalar"] * a

        def step(state, x):
            jax.debug.callback(lambda v: seen.append(float(v)), x)
            return state * shared + x, None

        return jnp.sum(jt.scan(step, jnp.ones(4), XS, schedule=jt.Revolve(10))[0])

    jax.block_until_ready(jax.jit(jax.grad(value))(1.0))
    jax.effects_barrier()
    assert len(seen) == jt.advances(10, 10) + 1 + 10
