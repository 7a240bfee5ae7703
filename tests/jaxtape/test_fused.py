"""Gradients of chains of independent paths in one kernel, with what is elementwise around their sweeps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.kernels.fused import run_fused
from jaxtape.kernels.run import check_memory
from jaxtape.programs.rewritten import rewritten_for

from ..helpers_kernels import run_kernels
from ..helpers_tape import heston, heston_noise, heston_step

pytestmark = pytest.mark.filterwarnings(
    "ignore:The Pallas Triton backend is deprecated"
)  # JAX 0.12
PATHS, KEY = 2048, jax.random.key(3)  # several tiles of a GPU, and two of a TPU
NOISE = heston_noise(5, PATHS)
KINDS = pytest.mark.parametrize("kind", ["gpu", "tpu"])
DTYPES = {"gpu": jnp.float64, "tpu": jnp.float32}
PLATFORMS = {"gpu": "cuda", "tpu": "tpu"}


@pytest.fixture
def interpreted(monkeypatch):
    """Return the function that has chains run in the kernels of a kind of accelerator from now on."""
    jax.clear_caches()
    yield functools.partial(run_kernels, monkeypatch)
    monkeypatch.undo()
    jax.clear_caches()


def last_log_spot(scan, p, noise=NOISE):
    """The last logarithms of the spots of all paths; noise is given, or drawn by the nodes if it is a key."""
    paths, dtype = noise.shape[-1] if noise.shape else PATHS, p.initial_variance.dtype

    def node(state, x):
        drawn = lambda: jax.random.normal(jax.random.fold_in(noise, x), (2, paths), dtype)
        return heston_step(p, 0.01, state, x if noise.shape else drawn()), None

    init = jnp.zeros(paths, dtype), jnp.broadcast_to(p.initial_variance, (paths,))
    xs = noise.astype(dtype) if noise.shape else jnp.arange(5, dtype=jnp.int32)
    return scan(node, init, xs)[0][0]


def of_one_path(scan, p):
    """A chain of one path under `jax.vmap`, whose first state is a number that all share."""

    dtype = p.initial_variance.dtype

    def path(z):
        init = jnp.zeros((), dtype), p.initial_variance
        (x, _), _ = scan(lambda s, z: (heston_step(p, 0.01, s, z), None), init, z)
        return jnp.maximum(jnp.exp(x) - 1.0, 0.0)

    return jnp.mean(jax.vmap(path, in_axes=2)(NOISE.astype(dtype)))


def beside(scan, p):
    """Two means, whose ratio is no part of a kernel, and one term without paths."""
    x = last_log_spot(scan, lax.stop_gradient(p)), last_log_spot(scan, p)
    above = jnp.sum(x[0] > 0.0, dtype=jnp.int32).astype(x[0].dtype)
    ratio = jnp.mean(jnp.exp(x[0])) ** 2 / above
    others = jnp.max(p.initial_variance * jnp.ones(3, ratio.dtype))
    return jnp.mean(x[1]) + lax.stop_gradient(ratio) + others


def variance(scan, p):
    """The cotangents of the last states need the mean of all paths, and so another kernel."""
    x = last_log_spot(scan, p)
    return jnp.mean((x - jnp.mean(x)) ** 2)


def of_two_chains(scan, p):
    """The last state of one chain is the first of the next, under other parameters."""
    x = last_log_spot(scan, p)
    node = lambda v, z: (v + p.mean_reversion * 0.01 * (jnp.sin(x) - v) + 0.1 * z[0] * v, None)
    return jnp.mean(scan(node, jnp.exp(x), NOISE.astype(x.dtype))[0] * x)


def weighted(scan, p):
    """The payoffs are sorted, and the weights of paths come from outside: neither is in a kernel."""
    x = last_log_spot(scan, p)
    return jnp.dot(jnp.sort(jnp.exp(x)), jnp.linspace(0.0, 1.0, PATHS, dtype=x.dtype)) / PATHS


LOSSES = {
    "noise given": lambda scan, p: jnp.mean(
        jnp.maximum(jnp.exp(last_log_spot(scan, p)) - 1.0, 0.0)
    ),
    "noise drawn": lambda scan, p: jnp.mean(jnp.exp(last_log_spot(scan, p, KEY))),
    "one path": of_one_path,
    "beside": beside,
}


def both(loss, kind, kernels):
    """The value and the gradient of a loss in kernels, and by `lax.scan`; and the program in kernels."""
    typed = jax.tree.map(lambda x: jnp.asarray(x, DTYPES[kind]), heston)
    leaves, structure = jax.tree.flatten(typed)

    def of(scan):
        gradient = jax.value_and_grad(functools.partial(loss, scan))
        return lambda *leaves: jax.tree.leaves(gradient(jax.tree.unflatten(structure, leaves)))

    expected = jax.jit(of(lax.scan))(*leaves)
    kernels(kind)
    in_kernels = of(functools.partial(jt.scan, schedule=jt.Revolve(2)))
    rewritten = rewritten_for(PLATFORMS[kind], in_kernels)
    return jax.jit(rewritten)(*leaves), expected, jax.make_jaxpr(rewritten)(*leaves)


def assert_close(found, expected, kind):
    """In double precision on a GPU, and in single precision on a TPU."""
    rtol, atol = (1e-12, 1e-14) if kind == "gpu" else (1e-5, 1e-7)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.costly
@KINDS
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_in_one_kernel(name, kind, interpreted):
    """It ends with sums over its tiles."""
    found, expected, program = both(LOSSES[name], kind, interpreted)
    text = str(program)
    assert_close(found, expected, kind)
    assert "first_sweep" not in text and "reverse_sweep" not in text
    assert text.count("name=fused") == 1


@KINDS
def test_keys_of_nodes(kind, interpreted, monkeypatch):
    """Where there are many they are folded outside, on a TPU in a kernel that counts the nodes itself."""
    monkeypatch.setattr("jaxtape.kernels.node._MOST_OF_NODES", 0)
    found, expected, program = both(LOSSES["noise drawn"], kind, interpreted)
    assert_close(found, expected, kind)
    kernels = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "pallas_call"]
    names = [str(eqn.params["name"]) for eqn in kernels]
    assert names == ["fused"] if kind == "gpu" else {*names} == {"nodes", "fused"}
    of_nodes = [eqn for eqn in kernels if str(eqn.params["name"]) == "nodes"]
    assert all([v.aval.size for v in eqn.invars] == [2] for eqn in of_nodes)  # the words of the key


def test_what_no_tile_can_hold_has_kernels_of_its_own(interpreted, monkeypatch):
    """Each sweep has memory, and one kernel of both has not."""
    monkeypatch.setattr(
        "jaxtape.kernels.fused.check_memory", lambda *args: check_memory(*args[:2], 10**4 * args[2])
    )
    found, expected, program = both(LOSSES["noise given"], "tpu", interpreted)
    assert_close(found, expected, "tpu")
    assert "name=fused" not in str(program)


@KINDS
def test_a_kernel_computes_small_values_that_paths_share(kind, interpreted):
    """No kernel before it has the discount factor, which no other reads."""

    def discounted(scan, p):
        payoff = jnp.maximum(jnp.exp(last_log_spot(scan, p)) - 1.0, 0.0)
        return jnp.mean(jnp.exp(-0.5 * p.mean_reversion) * payoff)

    found, expected, program = both(discounted, kind, interpreted)
    assert_close(found, expected, kind)
    outside = {eqn.primitive.name for eqn in program.jaxpr.eqns}
    assert "pallas_call" in outside and "exp" not in outside


@pytest.mark.parametrize(("kind", "sizes"), [("gpu", [16, PATHS]), ("tpu", [1, 1, PATHS])])
def test_sums_of_what_others_read(kind, sizes, interpreted):
    """A GPU adds up outside what its kernel writes anyway, and on with it; other sums stay in the kernel."""

    def mean_and_spread(scan, p):
        payoff = jnp.exp(x := last_log_spot(scan, p))
        mean, center = jnp.mean(payoff), jnp.mean(payoff[:128])
        return jnp.mean(x), mean + 2.0 * p.initial_variance, jnp.mean((payoff - center) ** 2)

    p = jax.tree.map(lambda x: jnp.asarray(x, DTYPES[kind]), heston)
    leaves, structure = jax.tree.flatten(p)
    of = lambda scan, *leaves: mean_and_spread(scan, jax.tree.unflatten(structure, leaves))
    expected = jax.jit(functools.partial(of, lax.scan))(*leaves)
    interpreted(kind)
    scan = functools.partial(jt.scan, schedule=jt.Revolve(2))
    rewritten = rewritten_for(PLATFORMS[kind], functools.partial(of, scan))
    assert_close(jax.jit(rewritten)(*leaves), expected, kind)
    kernels = (
        eqn
        for eqn in jax.make_jaxpr(rewritten)(*leaves).jaxpr.eqns
        if eqn.primitive.name == "pallas_call" and str(eqn.params["name"]) == "fused"
    )
    (kernel,) = kernels
    assert sorted(v.aval.size for v in kernel.outvars) == sizes


def along_directions(scan, p):
    """A block of paths whose chain has ys, and their tangents, as Greeks have them."""

    dtype = p.initial_variance.dtype

    def outputs(p):
        def node(state, z):
            x, v = heston_step(p, 0.01, state, z)
            return (x, v), (jnp.exp(x), v * v)

        def block(noise):
            start = jnp.sqrt(p.initial_variance) ** 2
            init = jnp.zeros(PATHS, dtype), jnp.broadcast_to(start, (PATHS,))
            (x, v), ys = scan(node, init, noise)
            return jnp.exp(x) * v, x * jnp.log1p(p.initial_variance), ys

        return lax.map(block, NOISE[None].astype(dtype))

    def along(direction):
        return jax.jvp(outputs, (p,), (jax.tree.map(lambda _: direction, p),))

    return jax.vmap(along, out_axes=(None, 0))(jnp.array([1.0, -0.5, 0.25], dtype))


def run_alone(scan, p):
    """A chain without derivatives, beside one whose number of paths no kernel has."""
    dtype = p.initial_variance.dtype
    few, noise = p.initial_variance * jnp.ones(7, dtype), NOISE.astype(dtype)
    sines = scan(lambda s, x: (jnp.sin(s + x), s), few, jnp.arange(3, dtype=dtype))
    node = lambda state, z: (heston_step(p, 0.01, state, z), state[1])
    init = jnp.zeros(PATHS, dtype), jnp.broadcast_to(p.initial_variance, (PATHS,))
    return scan(node, init, noise), sines


@pytest.mark.costly
@pytest.mark.parametrize("function", [along_directions, run_alone])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("gpu", jnp.float64), ("gpu", jnp.float32), ("tpu", jnp.float32)]
)
def test_run_in_one_kernel(function, kind, dtype, interpreted):
    """The kernel computes the first state, which no array holds, and writes ys."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: jnp.asarray(x, dtype), heston))

    def of(scan):
        return lambda *leaves: jax.tree.leaves(
            function(scan, jax.tree.unflatten(structure, leaves))
        )

    expected = jax.jit(of(lax.scan))(*leaves)
    interpreted(kind)
    in_kernels = of(functools.partial(jt.scan, schedule=jt.Revolve(2)))
    rewritten = rewritten_for(PLATFORMS[kind], in_kernels)
    found = jax.jit(rewritten)(*leaves)
    tolerance = 1e-12 if dtype == jnp.float64 else 2e-5
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    (kernel,) = (
        eqn
        for eqn in jax.make_jaxpr(rewritten)(*leaves).jaxpr.eqns
        if eqn.primitive.name == "pallas_call" and str(eqn.params["name"]) != "scalars"
    )
    assert str(kernel.params["name"]) == "fused"
    assert [v.aval.size for v in kernel.invars if v.aval.size >= PATHS] == [NOISE.size]


@KINDS
@pytest.mark.parametrize("loss", [of_two_chains, weighted, variance])
def test_sweeps_with_kernels_of_their_own(loss, kind, interpreted):
    """Where the way back needs another kernel, or a chain reads what paths computed, nothing is fused."""
    found, expected, program = both(loss, kind, interpreted)
    assert_close(found, expected, kind)
    assert "name=fused" not in str(program)


def test_a_platform_without_the_setting_keeps_the_function():
    assert rewritten_for("cuda", of_one_path) is of_one_path


def test_stored_jit_rewrites_programs_of_a_gpu(interpreted, monkeypatch):
    calls = []
    monkeypatch.setattr("jaxtape.programs.stored_jit.current_platform", lambda: "gpu")
    monkeypatch.setattr("jaxtape.programs.stored_jit.store_in_use", lambda: None)
    monkeypatch.setattr(
        "jaxtape.kernels.fused.run_fused", lambda *args: calls.append(args) or run_fused(*args)
    )
    loss = lambda p: jnp.mean(last_log_spot(functools.partial(jt.scan, schedule=jt.Revolve(2)), p))
    p = jax.tree.map(jnp.asarray, heston)
    expected = jt.stored_jit(jax.grad(loss))(p)
    assert not calls
    interpreted("gpu")
    jitted = jt.stored_jit(jax.grad(loss))
    found, lowered = jitted(p), jt.stored_jit(jax.grad(loss)).lower(p).compile()
    assert len(calls) == 2
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    jax.tree.map(close, found, expected)
    jax.tree.map(close, lowered(p), expected)
    assert lowered.compiled.memory_analysis().temp_size_in_bytes > 0
