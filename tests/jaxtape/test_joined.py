"""A chain in forward mode, in a program that runs it once for its values and its tangents."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.jax_private import hi_primitive_of, jaxpr_as_fun, jaxprs_in_params
from jaxtape.kernels.run import KernelRun
from jaxtape.programs.rewritten import rewritten_for
from jaxtape.sweeps.joined import joined
from jaxtape.sweeps.rule import Sweep

from ..helpers_kernels import run_kernels

NOISE = 0.1 * jnp.sin(jnp.arange(24.0)).reshape(6, 4)
POINT, DIRECTIONS = jnp.array([0.3, 0.7]), jnp.eye(2)
scan = functools.partial(jt.scan, schedule=jt.Revolve(2))


def value(scan, p):
    """A chain with shared values, xs that move and xs that do not, and ys."""
    step = lambda s, x: (jnp.sin(p[0] * s + x[0]) * x[1], s * x[1])
    last, ys = scan(step, p[1] * jnp.ones(4), (NOISE, p[1] * jnp.arange(1.0, 7.0)))
    return last + jnp.sum(ys, axis=0)


def along_one(scan, p):
    return jax.jvp(functools.partial(value, scan), (p,), (DIRECTIONS[0],))


def along_all(scan, p):
    along = lambda d: jax.jvp(functools.partial(value, scan), (p,), (d,))
    return jax.vmap(along, out_axes=(None, 0))(DIRECTIONS)


def in_blocks(scan, p):
    """As a simulated price has it: blocks one after another, each under `jax.checkpoint`."""
    block = jax.checkpoint(lambda i, p: jnp.exp(i * value(scan, p)))
    blocks = lambda p: lax.map(lambda i: block(i, p), jnp.arange(3.0))
    along = lambda d: jax.jvp(blocks, (p,), (d,))
    return jax.vmap(along, out_axes=(None, 0))(DIRECTIONS)


def second_order(scan, p):
    """As Greeks have it: the chain does not move along the outer direction."""

    def slopes(spot):
        moved = lambda p: spot**2 * value(scan, p)
        return jax.vmap(lambda d: jax.jvp(moved, (p,), (d,)), out_axes=(None, 0))(DIRECTIONS)

    return jax.jvp(slopes, (1.5,), (1.0,))


def by_its_value(scan, p):
    """The tangents are along a direction that the value gives."""
    found, along = jax.linearize(functools.partial(value, scan), p)
    return found, along(found[:2])


def at_two_points(scan, p):
    """A value at one point and a tangent at another, whose value nothing reads."""
    return value(scan, 2.0 * p), jax.jvp(functools.partial(value, scan), (p,), (DIRECTIONS[1],))[1]


def chains(jaxpr) -> list[type]:
    """The kinds of primitives of chains in a program."""
    found = [type(prim) for eqn in jaxpr.eqns if (prim := hi_primitive_of(eqn))]
    inner = (jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns if not hi_primitive_of(eqn))
    return found + [each for jaxprs in inner for jaxpr in jaxprs for each in chains(jaxpr)]


@pytest.mark.parametrize("function", [along_one, along_all, in_blocks, second_order])
def test_values_and_tangents_in_one_run(function):
    """It is a run of the dual chain, along one direction or several."""
    closed = jax.make_jaxpr(functools.partial(function, scan))(POINT)
    program = joined(closed)
    assert len(chains(closed.jaxpr)) == 2 and chains(program.jaxpr) == [Sweep]
    found = jaxpr_as_fun(program)(POINT)
    right = jax.tree.leaves(jax.jit(functools.partial(function, lax.scan))(POINT))
    for a, b in zip(found, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("function", [along_one, along_all, in_blocks])
def test_in_kernels(function, monkeypatch):
    """One kernel has the values and all tangents, as it has them outside kernels."""

    def wide(scan, p):
        repeated = lambda step, s, xs: scan(step, jnp.tile(s, 64), (jnp.tile(xs[0], 64), xs[1]))
        return function(repeated, p)

    right = jax.tree.leaves(jax.jit(functools.partial(wide, lax.scan))(POINT))
    jax.clear_caches()
    decisions = run_kernels(monkeypatch, "gpu")
    in_kernels = lambda p: jax.tree.leaves(wide(scan, p))
    found = jax.jit(rewritten_for("cuda", in_kernels))(POINT)
    monkeypatch.undo()
    jax.clear_caches()
    assert all(isinstance(each, KernelRun) for each in decisions)
    assert len({each for each in decisions if each.layout.ys}) == 1  # a loop sums them in another
    for a, b in zip(found, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "function",
    [
        by_its_value,
        at_two_points,
        lambda scan, p: jax.grad(lambda p: jnp.sum(in_blocks(scan, p)[0]))(p),
    ],
    ids=["by its value", "at two points", "a gradient"],
)
def test_other_programs_are_unchanged(function):
    closed = jax.make_jaxpr(functools.partial(function, scan))(POINT)
    assert chains(closed.jaxpr) and joined(closed) is closed
