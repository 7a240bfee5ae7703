"""Chains of independent paths as kernels, which GPUs and TPUs run: here Pallas interprets them."""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mpmath
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify

import jaxtape as jt
from jaxtape.jax_private import primitives
from jaxtape.kernels.draws import threefry
from jaxtape.kernels.leaf import Leaf, summed
from jaxtape.kernels.operations import count_operations
from jaxtape.kernels.pallas import TILES, call, number_of_tile
from jaxtape.kernels.paths import Kind, Value
from jaxtape.kernels.per_path_functions import (
    _EVERYWHERE,
    _ON,
    erf,
    erf_inv,
    erfc,
    expm1,
    function_on,
)
from jaxtape.kernels.run import KernelRun
from jaxtape.kernels.sweeps import KernelSweeps
from jaxtape.kernels.walk import Walk
from jaxtape.programs.device_limits import DOUBLES, FLOATS, FUNCTIONS, INTEGERS
from jaxtape.programs.targets import target_of
from jaxtape.sweeps import kernel_executor
from jaxtape.sweeps.static_executor import StaticExecutor

from ..cases import others_later
from ..helpers_kernels import run_kernels
from ..helpers_tape import assert_close, heston, heston_noise, heston_step, mixed_loss
from .test_scan import lax_value_and_gradients, value_and_gradients

pytestmark = pytest.mark.filterwarnings(
    "ignore:The Pallas Triton backend is deprecated"
)  # JAX 0.12
KINDS = pytest.mark.parametrize("kind", ["gpu", "tpu"])
DTYPES = {"gpu": jnp.float64, "tpu": jnp.float32}
SCHEDULE = jt.Revolve(3)


def compared(loss, kind, decisions, *args, transform=jax.grad, rtol=None, schedule: Any = SCHEDULE):
    """The transform of a loss of a scan and of some arguments, in kernels and by `lax.scan`."""
    dtype = DTYPES[kind]
    args = jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if np.issubdtype(x.dtype, float) else x, args
    )
    found, expected = (
        jax.jit(transform(functools.partial(loss, scan)))(*args)
        for scan in (functools.partial(jt.scan, schedule=schedule), lax.scan)
    )
    assert decisions, "no chain was asked"
    assert all(isinstance(each, KernelRun) for each in decisions), decisions
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = 1e-12 if dtype == jnp.float64 else 3e-6
        np.testing.assert_allclose(
            a, b, rtol=rtol or scale, atol=scale * float(jnp.max(jnp.abs(b)) + 1e-30)
        )


def of_heston(scan, p, noise, strike=1.0, reverse=False):
    """The mean payoff of a call; every path has its state."""
    paths, dtype = noise.shape[-1], noise.dtype
    init = jnp.zeros(paths, dtype), jnp.broadcast_to(p.initial_variance, (paths,))
    node = lambda state, z: (heston_step(p, 0.01, state, z), None)
    (x, _), _ = scan(node, init, noise, reverse=reverse)
    return jnp.mean(jnp.maximum(jnp.exp(x) - strike, 0.0))


def of_baskets(scan, p, start, noise, barrier):
    """A chain of one path under `jax.vmap`: matrices, flags, counters, stacks, sums over small axes, and ys."""

    def path(start, noise, barrier):
        def step(state, x):
            prices, alive, count, low = state
            z, time = x
            drift = p["rate"] * time + jnp.zeros(3, start.dtype)
            prices = prices + drift + p["vol"] * (p["root"] @ z) * jnp.sqrt(1.0 - p["rate"] ** 2)
            a, b, c = prices
            prices = jnp.stack([a, jnp.where(b > 0, b, -0.5 * b), jnp.maximum(c, 0.1 * barrier)])
            alive = alive & (jnp.max(prices) < barrier)
            y = {"sums": jnp.cumsum(prices[::-1]), "alive": alive}
            return (prices, alive, count + 1, jnp.minimum(low, lax.stop_gradient(lax.erf(a)))), y

        init = start, jnp.bool_(True), jnp.int32(0), jnp.ones((), start.dtype)
        times = jnp.linspace(0.0, 1.0, noise.shape[0], dtype=noise.dtype)
        (prices, alive, count, low), ys = scan(step, init, (noise, times))
        counted = (count + jnp.sum(ys["alive"], dtype=jnp.int32)).astype(start.dtype)
        total = jnp.sum(prices**2) + jnp.sum(ys["sums"][::2]) + counted
        return jnp.where(alive, total, low)

    return jnp.mean(jax.vmap(path)(start, noise, barrier))


@KINDS
def test_gradient_of_heston(kind, interpreted):
    """To parameters and noise; of 7 nodes in blocks of 2 on a GPU, of 2 with a slot each on a TPU."""
    noise = heston_noise(n := 7 if kind == "gpu" else 2, TILES[kind].size * 2)
    transform = functools.partial(jax.value_and_grad, argnums=(0, 1))
    loss = functools.partial(of_heston, reverse=n == 7)
    compared(loss, kind, interpreted(kind), heston, noise, transform=transform)


@KINDS
@pytest.mark.parametrize("schedule", [jt.Revolve(3), None], ids=["schedule", "StoreAll"])
def test_run_and_tangents(kind, schedule, interpreted):
    """A chain that is not differentiated is a kernel, and so are the tangents of all its arguments."""
    noise = heston_noise(3, TILES[kind].size * 2)

    def both(loss):
        value = lambda p, noise: loss(p, noise)
        return lambda p, noise: (value(p, noise), jax.jvp(value, (p, noise), (p, 0.5 * noise)))

    decisions = interpreted(kind)
    compared(of_heston, kind, decisions, heston, noise, transform=both, schedule=schedule)
    assert not any(isinstance(each, KernelSweeps) for each in decisions)


@KINDS
def test_gradient_where_every_state_is_kept(kind, interpreted):
    noise, decisions = heston_noise(5, TILES[kind].size), interpreted(kind)
    transform = functools.partial(jax.value_and_grad, argnums=(0, 1))
    compared(of_heston, kind, decisions, heston, noise, transform=transform, schedule=None)
    assert any(isinstance(each, KernelSweeps) and each.block == 1 for each in decisions)


def of_sums(scan, p, noise, reverse=False):
    """A mean of sums of ys over three nodes at a time, of the path and of a value that all paths share."""
    paths, dtype = noise.shape[-1], noise.dtype
    init = jnp.zeros(paths, dtype), jnp.broadcast_to(p.initial_variance, (paths,))

    def node(state, x):
        state, still = heston_step(p, 0.01, state, x["z"]), lax.stop_gradient(x["scale"])
        return state, {"x": state[0] * x["scale"], "both": jnp.stack(state), "scale": still}

    xs = {"z": noise, "scale": p.long_run_variance * jnp.arange(len(noise), dtype=dtype)}
    if scan is lax.scan:
        (x, _), ys = scan(node, init, xs, reverse=reverse)
        ys = jax.tree.map(lambda y: jnp.sum(y.reshape(-1, 3, *y.shape[1:]), 1), ys)
    else:
        (x, _), ys = scan(node, init, xs, reverse=reverse, sum_ys=3)
    weights = jnp.arange(1.0, 1.0 + len(noise) // 3, dtype=dtype)[:, None]
    of_ys = jnp.mean(weights * jnp.sin(ys["x"]) + ys["both"][:, 1] * ys["both"][:, 0], axis=1)
    return jnp.sum(of_ys) + jnp.mean(x) * jnp.sum(ys["scale"])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("kind", "schedule", "reverse"),
    [("gpu", jt.Revolve(3), True), ("gpu", None, False), ("tpu", jt.Revolve(3), False)],
)
def test_sums_of_ys(kind, schedule, reverse, interpreted):
    """In blocks of 2 nodes, or of 1, whose ys are added up three at a time."""
    noise = heston_noise(6, TILES[kind].size * (2 if kind == "gpu" else 1))

    def every(loss):
        value = lambda p, noise: loss(p, noise, reverse=reverse)
        gradient = jax.value_and_grad(value, (0, 1))
        return lambda p, noise: (
            gradient(p, noise),
            jax.jvp(value, (p, noise), (p, 0.5 * noise)),
        )

    compared(of_sums, kind, interpreted(kind), heston, noise, transform=every, schedule=schedule)


@pytest.mark.costly
@KINDS
def test_gradient_of_baskets(kind, interpreted):
    """To what paths share and to what each has, in a chain of one path."""
    paths, keys = TILES[kind].size, jax.random.split(jax.random.key(1), 3)
    root = jnp.linalg.cholesky(jnp.full((3, 3), 0.3) + 0.7 * jnp.eye(3))
    p = {"rate": jnp.float64(0.1), "vol": jnp.array([0.2, 0.3, 0.4]), "root": root}
    start = 1.0 + 0.1 * jax.random.normal(keys[0], (paths, 3))
    noise = 0.5 * jax.random.normal(keys[1], (paths, 7, 3))
    barrier = 2.0 + jax.random.uniform(keys[2], (paths,))
    transform = functools.partial(jax.value_and_grad, argnums=(0, 1, 2, 3))
    compared(of_baskets, kind, interpreted(kind), p, start, noise, barrier, transform=transform)


def drawing(scan, p, key, keys):
    """A payoff of paths that draw from a shared key for each node, from keys of their own, and from words."""
    paths, dtype = keys.size, p.dtype

    def node(state, i):
        x, keys = state
        keys, own = jax.vmap(jax.random.split, out_axes=1)(keys)
        z = jax.random.normal(jax.random.fold_in(key, i), (2, paths), dtype)
        raw = jax.random.wrap_key_data(jax.random.key_data(own))
        words = jax.vmap(lambda key: jax.random.bits(key, (), "uint32"))(raw)
        u = jax.vmap(lambda key: jax.random.uniform(key, (), dtype))(own)
        return (x * jnp.exp(p * z[0] + 0.1 * z[1] * u), keys), (z, words)

    (x, keys), drawn = scan(node, (jnp.ones(paths, dtype), keys), jnp.arange(3, dtype=jnp.int32))
    return jnp.mean(x), (jax.random.key_data(keys), *drawn)


@KINDS
@pytest.mark.parametrize("nodes", ["many", "few"])
def test_noise_drawn_in_a_kernel(kind, nodes, interpreted, monkeypatch):
    """Paths draw the same bits, and so the same normal variates here, as outside of a kernel.

    The keys of many nodes are folded outside; here three nodes are many.
    """
    if nodes == "many":
        monkeypatch.setattr("jaxtape.kernels.node._MOST_OF_NODES", 0)
    decisions, paths = interpreted(kind), 2 * TILES[kind].size
    keys, p = jax.random.split(jax.random.key(1), paths), jnp.asarray(0.2, DTYPES[kind])
    found, expected = (
        jax.jit(jax.value_and_grad(functools.partial(drawing, scan), has_aux=True))(
            p, jax.random.key(2), keys
        )
        for scan in (functools.partial(jt.scan, schedule=jt.Revolve(2)), lax.scan)
    )
    assert decisions and all(isinstance(each, KernelSweeps) for each in decisions), decisions
    for function in (step for each in decisions for step in (each.step, each.pull)):
        assert bool(function.at_node) == (nodes == "many"), "keys are folded"
    (value, drawn), gradient = found
    for a, b in zip(drawn, expected[0][1], strict=True):
        np.testing.assert_array_equal(a, b)
    rtol = 1e-12 if kind == "gpu" else 3e-6
    np.testing.assert_allclose((value, gradient), (expected[0][0], expected[1]), rtol=rtol)


@KINDS
def test_what_paths_share_at_a_node(kind, interpreted):
    """A look-up is computed outside of the kernels, which do not read what only it reads.

    A rate and two factors of each node have cotangents.
    """
    decisions, paths, dtype = interpreted(kind), 2 * TILES[kind].size, DTYPES[kind]
    table, start = jnp.linspace(0.5, 1.5, 5, dtype=dtype), jnp.linspace(0.5, 1.0, paths)
    n, times = 5, jnp.linspace(0.0, 1.0, 5)

    def loss(scan, speed, start, times, weights, rates, factors):
        def node(x, at):
            time, place, weight, rate, factor = at
            held = lax.stop_gradient(time)
            level = table[place] + jnp.interp(
                held, jnp.linspace(0.0, 1.0, 4, dtype=dtype), table[:4]
            )
            decay = jnp.exp(-speed * held) * level
            moved = decay * jnp.sin(x) * jnp.exp(rate) + weight * factor[0] + factor[1]
            return moved, jnp.where(level > 1.0, x, 0.5 * x)

        xs = times, jnp.arange(n, dtype=jnp.int32)[::-1], weights, rates, factors
        x, ys = scan(node, start, xs, reverse=True)
        return jnp.mean(x**2) + jnp.sum(ys) / paths

    weights, rates = 0.1 * jnp.ones((n, paths)), jnp.linspace(-0.1, 0.1, n)
    args = (
        jnp.float64(0.3),
        start,
        times,
        weights,
        rates,
        jnp.linspace(0.5, 1.5, 2 * n).reshape(n, 2),
    )
    transform = functools.partial(jax.value_and_grad, argnums=(0, 1, 3, 4, 5))
    compared(loss, kind, decisions, *args, transform=transform)
    assert all(each.step.at_node for each in decisions)
    assert {each.reads_x(each.step) for each in decisions} == {(False, False, True, False, False)}


def test_hash_of_a_counter():
    """As a compiled kernel computes it, and as an interpreted one does."""
    words = np.random.default_rng(0).integers(0, 2**32, (4, 50), dtype=np.uint32)
    expected = primitives.threefry2x32_p.bind(*map(jnp.asarray, words))
    for rolled in (False, True):
        found = threefry(tuple(words[:2]), tuple(words[2:]), rolled)
        np.testing.assert_array_equal(jnp.stack(found), jnp.stack(expected))


def second(loss):
    """Second derivatives forward over reverse; of the strike alone, whose tangent only the way back has."""

    def found(p, noise):
        of_strike = jax.jvp(jax.grad(loss, (0, 1)), (p, noise), (p, 0.0 * noise))
        gradient = lambda k: jax.grad(functools.partial(loss, strike=k))(p, noise)
        return of_strike, jax.jacfwd(gradient)(jnp.ones((), noise.dtype))

    return found


TRANSFORMATIONS = {
    "second derivatives": second,
    "hessian": jax.hessian,
    "linearize": lambda loss: lambda p, noise: jax.linearize(jax.grad(loss), p, noise)[1](p, noise),
    "reverse over reverse": lambda loss: (
        lambda p, noise: jax.grad(lambda p: jax.grad(loss)(p, noise).vol_of_vol)(p)
    ),
    "vmap of grad": lambda loss: (
        lambda p, noise: jax.vmap(jax.grad(loss), (None, 0))(p, jnp.stack([noise, 2.0 * noise]))
    ),
    "grad of vmap": lambda loss: (
        lambda p, noise: jax.grad(
            lambda rows: jnp.sum(jax.vmap(lambda xi: loss(p._replace(vol_of_vol=xi), noise))(rows))
        )(p.vol_of_vol * jnp.linspace(1.0, 2.0, 3, dtype=noise.dtype))
    ),
    "checkpoint": lambda loss: jax.grad(jax.checkpoint(loss), (0, 1)),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    others_later(
        TRANSFORMATIONS, ["second derivatives", "hessian", "vmap of grad"], TRANSFORMATIONS
    ),
)
def test_transformation(name, interpreted):
    noise, decisions = heston_noise(7, 256), interpreted("gpu")
    compared(of_heston, "gpu", decisions, heston, noise, transform=TRANSFORMATIONS[name])
    if name in (
        "second derivatives",
        "hessian",
        "linearize",
    ):  # forward over reverse: sweeps of the dual chain
        states = [len(each.layout.state) for each in decisions if isinstance(each, KernelSweeps)]
        assert 4 in states


def reason_of(step, init, xs, schedule=None, kind="gpu"):
    """The reason why a chain has no kernel; "" if it has one."""
    schedule = schedule or jt.Revolve(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "cpu")  # a program is traced, and not run
        found = run_kernels(patch, kind)

        def loss(init, xs):
            out = jt.scan(step, init, xs, schedule=schedule)
            leaves = [x for x in jax.tree.leaves(out) if jnp.issubdtype(x.dtype, jnp.inexact)]
            return sum(jnp.sum(jnp.real(x)) for x in leaves)

        jax.jit(jax.grad(loss, (0, 1), allow_int=True)).lower(init, xs)
    assert len({str(each) for each in found}) == 1, "the sweeps do not agree"
    return found[0] if isinstance(found[0], str) else ""


ONES, NOISE, TABLE = jnp.ones(256), jnp.ones((7, 256)), jnp.ones(5)
REASONS = {
    "gather has no rule": (lambda s, x: (s * TABLE[(s > 0).astype(int)], None), ONES, NOISE),
    "sort has no rule": (lambda s, x: (jnp.sort(s), None), ONES, NOISE),
    "while has no rule": (
        lambda s, x: (
            s + lax.stop_gradient(lax.while_loop(lambda a: a[0] < 9, lambda a: a + 1, x)),
            None,
        ),
        ONES,
        NOISE,
    ),
    "cond has no rule": (
        lambda s, x: (lax.cond(x[1] > 3, jnp.sin, jnp.cos, s), None),
        ONES,
        (NOISE, jnp.arange(7)),
    ),
    "some of the paths are sliced": (lambda s, x: (s + s[0], None), ONES, NOISE),
    "sin takes a sum over the paths": (lambda s, x: (s - jnp.sin(jnp.sum(s)), None), ONES, NOISE),
    "sub takes a sum over the paths": (lambda s, x: (s - jnp.sum(s), None), ONES, NOISE),
    "a result is the sum over paths": (lambda s, x: (s * x, jnp.sum(s > x)), ONES, NOISE),
    "reduce_max brings paths together": (lambda s, x: (s / jnp.max(s), None), ONES, NOISE),
    "cumsum brings paths together": (lambda s, x: (jnp.cumsum(s), None), ONES, NOISE),
    "rev brings paths together": (lambda s, x: (s[::-1] * x, None), ONES, NOISE),
    "the number of a path is read": (lambda s, x: (s * lax.iota(s.dtype, 256), None), ONES, NOISE),
    "dot_general brings paths together": (
        lambda s, x: (s + (s[:, None] @ x[:, None].T)[:, 0], None),
        ONES,
        NOISE,
    ),
    "two axes": (lambda s, x: (x @ s, None), ONES, jnp.ones((7, 256, 256))),
    "255 paths are not a multiple of the 128": (lambda s, x: (s * x, None), ONES[1:], NOISE[:, 1:]),
    "1 paths are not a multiple": (lambda s, x: (s * x, None), jnp.float64(1.0), NOISE[:, 0]),
    "a state or y that all paths share": (
        lambda s, x: ((s[0] * s[1], s[1] + x), None),
        (ONES, jnp.float64(1.0)),
        NOISE[:, 0],
    ),
    "an array is empty": (lambda s, x: ((s[0] * x, s[1]), None), (ONES, jnp.ones((256, 0))), NOISE),
    "an array is of key": (
        lambda s, x: ((s[0] * x, jax.random.split(s[1])[0]), None),
        (ONES, jax.random.key(0, impl="rbg")),
        NOISE,
    ),
    "draws more than 256 numbers": (
        lambda s, x: (s * jnp.sum(jax.random.uniform(jax.random.key(0), (257, 256)), 0), None),
        ONES,
        NOISE,
    ),
    "takes 8 bits": (
        lambda s, x: (
            s * jax.random.bits(jax.random.key(0), (256,), "uint8").astype(s.dtype),
            None,
        ),
        ONES,
        NOISE,
    ),
    "an array is of complex128": (
        lambda s, x: ((s[0] * x, s[1] * x.astype(complex)), None),
        (ONES, lax.complex(ONES, ONES)),
        NOISE,
    ),
    "side effects": (lambda s, x: (jax.debug.print("{}", s[0]) or s * x, None), ONES, NOISE),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_chain_without_kernels(reason):
    assert reason in reason_of(*REASONS[reason])


def test_schedules_without_kernels():
    step = lambda s, x: (jnp.sin(s) * x, None)
    assert not reason_of(step, ONES, NOISE)
    assert "host" in reason_of(step, ONES, NOISE, jt.MultiStage(1, 2))
    assert "precision" in reason_of(step, ONES, NOISE, jt.Revolve(3, checkpoint_dtype=jnp.bfloat16))
    assert "multiple" in reason_of(step, ONES, NOISE, kind="tpu")
    assert "float64" in reason_of(step, jnp.ones(1024), jnp.ones((7, 1024)), kind="tpu")
    many = jax.ShapeDtypeStruct((2000, 1024), jnp.float32)
    assert "VMEM" in reason_of(step, jnp.ones(1024, jnp.float32), many, kind="tpu")
    few, wide = jnp.ones((7, 1024), jnp.float32), jnp.ones((1024, 1800), jnp.float32)
    constant = lambda s, x: (jnp.sin(s) * x * wide[:, 0], None)
    assert "VMEM" in reason_of(constant, few[0], few, kind="tpu")


def test_plan():
    """It names the kernels of a target, or the reason why there are none; by default it says nothing."""
    tape = jt.Tape().append(lambda z, s: jnp.sin(s) * z, NOISE).with_schedule(jt.Revolve(3))
    assert "kernel" not in str(jt.plan(tape, ONES))
    measured = kernel_executor.kind_of_kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxtape.tape.plan.kind_of_kernels", lambda: "gpu")
        patch.setattr("jaxtape.tape.plan.kernels_are_on", lambda: True)
        assert "one kernel a sweep, of tiles of 128 paths, with 2 states in memory" in str(
            jt.plan(tape, ONES)
        )
        few = jt.Tape().append(lambda z, s: s * z, NOISE[:, 1:]).with_schedule(jt.Revolve(3))
        assert "no kernel: 255 paths" in str(jt.plan(few, ONES[1:]))
        patch.setattr("jaxtape.tape.plan.measured_for", lambda target: contextlib.nullcontext())
        plan = jt.plan(tape, ONES, target="gpu:h100")
    assert measured() == (None if jax.default_backend() == "cpu" else jax.default_backend())
    (part,) = plan.parts
    assert part.roofline is not None and "ms on gpu:h100, by its" in str(plan)
    work, limits = part.roofline.work, part.roofline.limits
    # per sweep and leaf: 7 nodes of z, the states at both ends, the slots, their cotangents
    assert work["bytes"] == 256 * 8 * (1 + 7 + 1 + part.slots + 1 + 7 + part.slots + 1 + 1 + 7)
    block = -(-7 // part.slots)
    blocks = -(-7 // block)
    # z again for all states but those in slots, which are written and read; a block of both for the two tiles
    assert part.roofline.repeated_bytes == 256 * 8 * (7 - blocks + 2 * 7)
    assert part.roofline.block_bytes == 256 * 8 * 2 * block and part.roofline.cached
    assert f"{work['bytes'] + 256 * 8 * (7 - blocks + 2 * 7):,} bytes asked for" in str(plan)
    # sin and a product; the same again; sin, cos and two products of the pullback
    doubles = 7 * (8 + 1) + (7 - blocks) * (8 + 1) + 7 * (8 + 8 + 3)
    assert work["double-precision operations"] == 256 * doubles
    assert limits["memory"] == pytest.approx(work["bytes"] / 3.35e12, rel=1e-3)
    assert limits["double-precision operations"] == pytest.approx(256 * doubles / 33.5e12, rel=1e-2)
    assert part.roofline.seconds == max(limits.values()) == limits[part.roofline.binding]


def test_a_cache_may_not_hold_the_blocks():
    """At most 64 warps, each of 64 paths, run at once on each of an H100's 132 multiprocessors."""
    tile = TILES["gpu"]
    assert tile.share_at_once(128 * 132 * 32, 132) == 1.0
    assert tile.share_at_once(2 * 128 * 132 * 32, 132) == 0.5
    roofline = jt.Roofline("gpu:h100", {"bytes": 8}, {"memory": 1.0}, 0, {}, 6, 52428801)
    assert roofline.asked_bytes == 14 and not roofline.cached
    assert "the cache of 52,428,800 does not hold" in str(roofline)


def test_a_roofline_draws_its_limits_and_what_was_reached():
    work = {"bytes": 1_000, "floating-point operations": 4_000, "special functions": 500}
    limits = {limit.name: limit.seconds(work) for limit in target_of("gpu:h100").limits}
    found = jt.Roofline("gpu:h100", work, limits)
    (axes,) = found.draw(seconds=1e-6).axes
    points = {tuple(line.get_xydata()[0]) for line in axes.lines if len(line.get_xydata()) == 1}
    slow = 3352320000000  # bytes per second: four operations per byte and half a function per byte are few
    assert {x for x, _ in points} == {4.0, 0.5}
    np.testing.assert_allclose(sorted(y for _, y in points), [5e8, 4e9, 0.5 * slow, 4.0 * slow])
    plt.close(axes.figure)
    with pytest.raises(ValueError, match="0 counted operations"):
        jt.Roofline("gpu:h100", {"bytes": 8}, {"memory": 1e-3}).draw()
    with pytest.raises(ValueError, match=r"seconds is 0\.0"):
        found.draw(seconds=0.0)


COUNTS = {
    "select": (lambda x: jnp.where(x > 1.0, -x, x * x), 1.0, {FLOATS: 3}),
    "power": (lambda x: x**5, 1.0, {FLOATS: 3}),
    "double": (lambda x: jnp.exp(x) + 1.0, np.float64(1.0), {DOUBLES: 9}),
    "functions": (lambda x: jnp.exp(x) / jnp.sqrt(x), 1.0, {FUNCTIONS: 3}),
    "rotation": (lambda x: x << np.uint32(7) | x >> np.uint32(25), np.uint32(1), {INTEGERS: 1}),
    "flags": (lambda x: (x > 1.0) & (x < 3.0), 1.0, {FLOATS: 2}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_operations_are_counted(name):
    function, x, expected = COUNTS[name]
    x = jnp.asarray(x, None if isinstance(x, np.generic) else jnp.float32)
    assert count_operations(jax.make_jaxpr(function)(x).jaxpr, (), "gpu") == expected


def test_operations_of_a_hash_and_of_a_normal_variate():
    """Twenty rounds of an addition, a rotation and an exclusive or; polynomials of nine terms each."""
    word = jax.ShapeDtypeStruct((), "uint32")
    hashed = jax.make_jaxpr(lambda a, b: threefry((a, b), (a, b), False))(word, word).jaxpr
    on_gpu, on_tpu = (count_operations(hashed, (), kind)[INTEGERS] for kind in ("gpu", "tpu"))
    assert 60 <= on_gpu <= 80 and on_tpu == on_gpu + 40
    known = count_operations(hashed, hashed.invars, "gpu")
    assert not known, "it does not depend on a node"
    normal = jax.make_jaxpr(lax.erf_inv)(jax.ShapeDtypeStruct((), "float32")).jaxpr
    found = count_operations(normal, (), "gpu")
    assert found[FUNCTIONS] == 2 and 36 <= found[FLOATS] <= 50


@KINDS
def test_arrays_as_a_kernel_sees_them(kind):
    """A kernel copies stacks, whose rows a TPU's memory holds in tiles, and sums an array over the paths."""
    tile, dtype, random = TILES[kind], jnp.dtype("float32"), np.random.default_rng(0)
    paths = 2 * tile.size
    shapes = [(8, (paths,)), (2, (2, paths)), (1, (4, paths)), (1, (8, paths)), (2, (3, paths))]
    shapes += [(1, (paths, 3))]
    leaf = lambda stack, shape: Leaf.of(jax.ShapeDtypeStruct(shape, dtype), tile, paths, stack)
    leaves = [leaf(*each) for each in shapes]
    if kind == "tpu":
        assert [each.sublanes for each in leaves] == [8, 2, 4, 8, 1, 1]
    total = leaf(1, (3,))._replace(is_sum=True)
    arrays = [random.normal(size=(n, *shape)).astype(dtype) for n, shape in shapes]

    def kernel(*refs):
        reads, writes = refs[: len(leaves)], refs[len(leaves) : -1]
        for each, read, write in zip(leaves, reads, writes, strict=True):
            for k in range(each.stack):
                at = lax.convert_element_type(k, jnp.int32)
                each.store(write, at, each.load(read, at, tile), tile)
        total.store(
            refs[-1], 0, leaves[4].load(reads[4], np.int32(1), tile), tile, number_of_tile()
        )

    args = [each.laid(jnp.asarray(array), tile) for each, array in zip(leaves, arrays, strict=True)]
    types = [each.written(tile, paths) for each in (*leaves, total)]
    found = call("copy", kernel, tile, paths, args, types, [], True)
    *copies, sums = summed((*leaves, total), found)
    for each, copied, array in zip(leaves, copies, arrays, strict=True):
        np.testing.assert_array_equal(each.taken(copied, tile), array)
    np.testing.assert_allclose(
        total.taken(sums, tile)[0], arrays[4][1].sum(1), rtol=1e-5, atol=1e-4
    )


@KINDS
def test_functions_for_compilers_without_them(kind):
    eps = 1e-15 if kind == "gpu" else 4e-7
    x = jnp.linspace(-7.0, 7.0, 20001, dtype=DTYPES[kind])
    extremes = jnp.asarray([jnp.nan, jnp.inf, -jnp.inf, 1e-30, 0.0], DTYPES[kind])
    x = jnp.concatenate([x, extremes])
    np.testing.assert_allclose(erf(x), lax.erf(x), rtol=eps, atol=0.0)
    wide = jnp.linspace(-7.0, 25.0 if kind == "gpu" else 9.0, 401, dtype=DTYPES[kind])
    exact = [float(mpmath.erfc(float(each))) for each in wide]  # XLA's own has 5e-14 in its tail
    np.testing.assert_allclose(erfc(wide), np.asarray(exact, wide.dtype), rtol=eps, atol=0.0)
    assert jnp.isnan(erfc(extremes[0])) and list(erfc(extremes[1:3])) == [0.0, 2.0]
    np.testing.assert_allclose(expm1(x), jnp.expm1(x), rtol=eps, atol=0.0)
    if kind == "tpu":
        x = jnp.concatenate([jnp.tanh(x), jnp.asarray([1.0, -1.0, 1.5], x.dtype)])
        np.testing.assert_allclose(erf_inv(x), lax.erf_inv(x), rtol=eps, atol=0.0)


def test_nan_stays():
    """Triton's max and min give the other argument."""
    nan = jnp.full(8, jnp.nan)
    for name in ("max_p", "min_p"):
        function = function_on("gpu", getattr(lax, name))
        assert jnp.isnan(function(nan, 0 * nan + 1)).all()
        assert jnp.isnan(function(jnp.ones(8), nan)).all()
        assert float(function(jnp.ones(8), jnp.zeros(8))[0]) == (name == "max_p")


@pytest.mark.parametrize(
    ("kind", "name", "dtype"),
    [
        ("gpu", "gpu:h100", "float32"),
        ("gpu", "gpu:h100", "float64"),
        ("tpu", "tpu:v5e:2x2", "float32"),
    ],
)
def test_compilers_know_each_function(kind, name, dtype):
    """One kernel with all of them is lowered by Pallas for the target."""
    tile, target = TILES[kind], target_of(name)

    def all_functions(x):
        flag, angle = x > 0, 0.5 * jnp.tanh(x)
        both = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
        compared_with = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)
        two = (lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min, lax.pow, lax.atan2)
        one = (lax.neg, lax.abs, lax.sign, lax.square, lax.exp, lax.exp2, lax.log, lax.log1p)
        one += (lax.sqrt, lax.rsqrt, lax.sin, lax.cos, lax.tan, lax.tanh, lax.logistic, lax.erf_inv)
        one += (lax.floor, lax.ceil, lax.erf, lax.erfc, lax.expm1, lax.stop_gradient)
        if kind == "gpu":
            one += (lax.cbrt, lax.sinh, lax.cosh, lax.asin, lax.acos, lax.atan)
        else:
            one += (
                functools.partial(lax.round, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN),
            )
        found = [f(angle) for f in one] + [f(x, angle) for f in two]
        flags = [f(flag, ~flag) for f in both] + [f(x, angle) for f in compared_with]
        flags += [lax.is_finite(x)]
        bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
        of_bits = (lax.add, lax.sub, lax.mul, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
        of_bits += (lax.shift_left, lax.shift_right_logical)
        number = lax.convert_element_type(bits, f"int{8 * x.dtype.itemsize}")
        words = [f(bits, lax.convert_element_type(number, bits.dtype)) for f in of_bits]
        found += [lax.bitcast_convert_type(each, dtype) for each in words]
        found += [lax.convert_element_type(each, dtype) for each in flags]
        found += [lax.clamp(angle, x, angle), lax.select(flag, x, angle), lax.integer_pow(x, -3)]
        return primitives.add_jaxvals_p.bind(sum(found, x), lax.copy_p.bind(x))

    jaxpr = jax.make_jaxpr(all_functions)(jnp.ones(2 * tile.size, dtype)).jaxpr
    names = {eqn.primitive for eqn in jaxpr.eqns}
    assert names >= _EVERYWHERE | _ON[kind]

    def kernel(x, out):
        value = Value.of([x[0, 0]], (), 0, Kind.OWN)
        (found,) = Walk(tile, 2 * tile.size).evaluate(jaxpr, [value])
        out[0, 0] = found.entries.item()

    one = jax.ShapeDtypeStruct((1, 1, *tile.folded(2 * tile.size)), dtype)
    run = lambda x: call("all", kernel, tile, 2 * tile.size, [x], [one], [], False)
    with target.described():
        jax.jit(run).trace(one).lower(lowering_platforms=(target.platform,))


def test_checked(interpreted):
    """Under `checkify`, which sees into no kernel, a step that makes a NaN is reported; of both sweeps."""
    decisions = interpreted("gpu")
    step = lambda s, x: (jnp.log(s) + x, None)
    loss = lambda s: jnp.sum(jt.scan(step, s, NOISE, schedule=jt.Revolve(3))[0])
    gradient = jax.jit(jax.grad(loss))
    for run in (gradient, jax.jit(lambda s: jax.vjp(loss, s)[0])):
        error, found = checkify.checkify(run, errors=checkify.nan_checks)(1.5 * ONES)
        assert error.get() is None
        np.testing.assert_allclose(found, run(1.5 * ONES), rtol=1e-12)
        assert "nan" in str(checkify.checkify(run, errors=checkify.nan_checks)(-ONES)[0].get())
    _, pull = jax.vjp(loss, 1.5 * ONES)
    _, (found,) = checkify.checkify(pull, errors=checkify.nan_checks)(1.0)
    np.testing.assert_allclose(found, gradient(1.5 * ONES), rtol=1e-12)
    assert all(isinstance(each, KernelSweeps) for each in decisions)


def test_a_chain_without_kernels_agrees(interpreted):
    decisions = interpreted("gpu")
    found = value_and_gradients(mixed_loss(jt.Revolve(3)))
    assert set(decisions) == {"4 paths are not a multiple of the 128 of a tile"}
    assert_close(found, lax_value_and_gradients(False))


@pytest.mark.parametrize(
    ("target", "dtype", "states", "reads"),
    [
        ("gpu:h100", "float32", 20, 2),
        ("gpu:h100", "float64", 20, 2),
        ("tpu:v5e:2x2", "float32", 0, 1),
    ],
)
def test_compiled_for_an_accelerator(target, dtype, states, reads):
    """On a GPU the gradient of Heston is one kernel, and one that adds up its tiles.

    On a TPU it is one kernel, and a copy of each of the six parameters; the noise is read once.
    """
    noise = jax.ShapeDtypeStruct((256, 2, 65536), dtype)
    p = jax.tree.map(lambda x: jnp.asarray(x, dtype), heston)
    scan = functools.partial(jt.scan, schedule=jt.Revolve(16))
    jt.set_kernels(True)
    try:
        gradient = jax.value_and_grad(functools.partial(of_heston, scan))
        report = jt.compile_for(gradient, p, noise, target=target)
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]' or 'jaxtape[tpu]'")
    finally:
        jt.set_kernels(False)
    assert report.compiles, report.reason
    assert not report.loops
    assert report.kernels <= (2 if target == "gpu:h100" else 7)
    of_noise = noise.size * noise.dtype.itemsize
    assert report.temporary_bytes <= states * of_noise // 256
    assert reads * of_noise < report.pallas_bytes <= 1.3 * reads * of_noise


def drawn(p, key):
    """The mean payoff of a call under Heston, by 65,536 paths of 256 steps that draw their noise."""

    def node(state, i):
        z = jax.random.normal(jax.random.fold_in(key, i), (2, 65536), jnp.float32)
        return heston_step(p, jnp.float32(0.01), state, z), None

    init = jnp.zeros(65536, jnp.float32), jnp.broadcast_to(p.initial_variance, (65536,))
    (x, _), _ = jt.scan(node, init, jnp.arange(256, dtype=jnp.int32), schedule=jt.Revolve(16))
    return jnp.mean(jnp.maximum(jnp.exp(x) - 1.0, 0.0))


@pytest.mark.parametrize(
    ("target", "kernels", "states", "names"),
    [
        ("gpu:h100", 3, 36, {"fused"}),
        ("gpu:h100", 11, 36, {"first_sweep", "reverse_sweep"}),
        ("tpu:v5e:2x2", 9, 0, set()),
    ],
    ids=["gpu", "gpu under jax.jit", "tpu"],
)
def test_draws_compiled_for_an_accelerator(target, kernels, states, names, monkeypatch):
    """The same with its noise drawn: the keys of nodes come from one more kernel; a TPU also copies the key."""
    p = jax.tree.map(jnp.float32, heston)
    if "first_sweep" in names:
        monkeypatch.setattr("jaxtape.programs.rewritten._PASSES", {})
    jt.set_kernels(True)
    try:
        report = jt.compile_for(jax.value_and_grad(drawn), p, jax.random.key(0), target=target)
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]' or 'jaxtape[tpu]'")
    finally:
        jt.set_kernels(False)
    assert report.compiles, report.reason
    assert not report.loops
    assert report.kernels <= kernels
    assert report.temporary_bytes <= states * 2 * 65536 * 4
    assert report.registers.keys() == names
    assert all(0 < each.used <= 255 for each in report.registers.values())


def test_parameters_in_one_vector_compiled_for_a_tpu():
    """The gradient with its noise drawn: four kernels with all copies, because one argument has all numbers."""
    p = jnp.stack([jnp.float32(x) for x in heston])
    gradient = jax.value_and_grad(lambda p, key: drawn(type(heston)(*p), key))
    jt.set_kernels(True)
    try:
        report = jt.compile_for(gradient, p, jax.random.key(0), target="tpu:v5e:2x2")
    except ImportError:
        pytest.skip("pip install 'jaxtape[tpu]'")
    finally:
        jt.set_kernels(False)
    assert report.compiles, report.reason
    assert not report.loops
    assert report.kernels <= 4
    assert report.temporary_bytes <= 2 * 65536 * 4


def along_a_direction(p, key):
    return jax.jvp(lambda p: jax.grad(drawn)(p, key), (p,), (p,))


@pytest.mark.parametrize(
    ("function", "kernels"), [(along_a_direction, 9), (jax.hessian(drawn), 57)]
)
def test_second_order_compiled_for_a_gpu(function, kernels):
    """The gradient and its derivative along one direction or all: sweeps of the dual chain, and no loop."""
    p = jax.tree.map(jnp.float32, heston)
    jt.set_kernels(True)
    try:
        report = jt.compile_for(function, p, jax.random.key(0), target="gpu:h100")
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]'")
    finally:
        jt.set_kernels(False)
    assert report.compiles, report.reason
    assert not report.loops
    assert report.kernels <= kernels


def test_setting_changes_programs_of_accelerators_alone():
    ones, noise = jnp.ones(1024, jnp.float32), jnp.ones((7, 1024), jnp.float32)
    step = lambda s, x: (jnp.sin(s) * x, None)
    loss = lambda s: jnp.sum(jt.scan(step, s, noise, schedule=jt.Revolve(3))[0])

    def text(platform):
        return jax.jit(jax.grad(loss)).trace(ones).lower(lowering_platforms=(platform,)).as_text()

    assert not StaticExecutor.of(jt.Revolve(3), 7).kernels
    before, elsewhere = text("cpu"), text("tpu")
    assert "tpu_custom_call" not in elsewhere and "stablehlo.while" in elsewhere
    jt.set_kernels(True)
    try:
        assert text("cpu") == before
        assert text("tpu").count("@tpu_custom_call") == 2
        assert "stablehlo.while" not in text("tpu")
    finally:
        jt.set_kernels(False)
