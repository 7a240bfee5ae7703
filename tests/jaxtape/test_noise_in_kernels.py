"""The noise of a step, which the second sweep in kernels draws once per node and keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.kernels.noise import Noise
from jaxtape.kernels.pallas import TILES
from jaxtape.kernels.sweeps import KernelSweeps
from jaxtape.programs.device_limits import FLOATS, INTEGERS

from ..helpers_kernels import forget_sweeps
from ..helpers_tape import heston, heston_step
from .test_kernels import DTYPES, KINDS

pytestmark = pytest.mark.filterwarnings(
    "ignore:The Pallas Triton backend is deprecated"
)  # JAX 0.12
PATHS = 256
KEY = jax.eval_shape(lambda: jax.random.key(0))
ONE, OF_PATHS = jax.ShapeDtypeStruct((), float), jax.ShapeDtypeStruct((PATHS,), float)
NUMBER = jax.ShapeDtypeStruct((), "int32")


def of_heston(p, key, paths: int, nodes: int = 11):
    """The mean payoff of a call under Heston whose nodes draw their noise."""

    def node(state, i):
        z = jax.random.normal(jax.random.fold_in(key, i), (2, paths), p.correlation.dtype)
        return heston_step(p, 0.01, state, z), None

    dtype = p.correlation.dtype
    init = jnp.zeros(paths, dtype), jnp.broadcast_to(p.initial_variance, (paths,))
    (x, _), _ = jt.scan(node, init, jnp.arange(nodes, dtype="int32"), schedule=jt.Revolve(3))
    return jnp.mean(jnp.maximum(jnp.exp(x) - 1.0, 0.0))


@KINDS
def test_gradient_with_noise_kept_and_drawn_again(kind, interpreted, monkeypatch):
    """Both ways give the same gradient; a pullback with kept noise draws none."""
    decisions, paths = interpreted(kind), TILES[kind].size
    p = jax.tree.map(lambda x: jnp.asarray(x, DTYPES[kind]), heston)
    gradient = lambda: jax.grad(of_heston)(p, jax.random.key(3), paths)
    with_noise, (kept, *_) = gradient(), decisions
    assert isinstance(kept, KernelSweeps)
    assert [leaf.shape for leaf in kept.kept] == [(2, paths)]
    assert "3 states and their noise in" in str(kept)
    assert kept.scratch[-1].stack == kept.block == 3

    monkeypatch.setattr("jaxtape.kernels.sweeps._MOST_NOISE", 0)
    jax.clear_caches()
    forget_sweeps()
    again, drawing = gradient(), decisions[-1]
    assert isinstance(drawing, KernelSweeps) and not drawing.kept
    # the pullback hashes two counters, by at least 60 operations each; kept noise costs none
    assert drawing.pull.work()[INTEGERS] > 120 and not kept.pull.work()[INTEGERS]
    assert kept.work()[INTEGERS] < 0.85 * drawing.work()[INTEGERS]
    assert kept.work()[FLOATS] <= drawing.work()[FLOATS]
    assert kept.repeated_bytes() >= drawing.repeated_bytes()
    rtol = 1e-12 if kind == "gpu" else 3e-6
    for a, b in zip(jax.tree.leaves(with_noise), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def normal(key, i, count: int = 2):
    return jax.random.normal(jax.random.fold_in(key, i), (count, PATHS))


def scaled(consts, state, x):
    """Noise times a parameter, of which only the noise has no derivatives."""
    (p, key), (i,) = consts, x
    return (state[0] * jnp.exp(p * normal(key, i)[0]),), (normal(key, i)[1],)


def test_the_rest_of_a_step_computes_the_same():
    noise = Noise.of(scaled, ((ONE, KEY), (OF_PATHS,), (NUMBER,)), PATHS)
    consts, state, x = (jnp.array(0.3), jax.random.key(1)), (jnp.ones(PATHS),), (jnp.int32(5),)
    found = noise.rest(consts, state, (*x, *noise.draw(consts, x)))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(scaled(consts, state, x)), strict=True):
        np.testing.assert_array_equal(a, b)
    slope = lambda p: jnp.sum(noise.rest((p, consts[1]), state, (*x, *noise.draw(consts, x)))[0][0])
    expected = jax.grad(lambda p: jnp.sum(scaled((p, consts[1]), state, x)[0][0]))(0.3)
    np.testing.assert_allclose(jax.grad(slope)(0.3), expected, rtol=1e-12)


def one_number(step):
    return Noise.of(step, ((ONE, KEY), (OF_PATHS,), (NUMBER,)), PATHS)


def test_noise_is_what_a_step_reads_of_it():
    """The normals, or their bits if a step reads more numbers of them; what it scales is not noise."""

    def both(consts, state, x):
        z = normal(consts[1], x[0])
        return (state[0] + consts[0] * z[0] * z[1],), ()

    def powers(consts, state, x):
        z = normal(consts[1], x[0], 1)[0]
        return (state[0] * z + jnp.sin(state[0]) * z**2 + jnp.cos(state[0]) * jnp.exp(z),), ()

    for step, shape, dtype in (
        (both, (2, PATHS), "float64"),
        (powers, (1, PATHS), "uint64"),
    ):
        noise = one_number(step)
        assert [(one.shape, str(one.dtype)) for one in noise.types] == [(shape, dtype)]


def test_steps_without_noise_of_their_own():
    """Draws that all paths share, keys in the state, and keys that a number scales are not noise of paths."""
    shared = lambda consts, state, x: ((state[0] * jax.random.normal(consts[1]),), ())
    assert not one_number(shared).types

    def carried(consts, state, x):
        del consts, x
        prices, key = state
        key, own = jax.random.split(key)
        return (prices * jax.random.normal(own, (PATHS,)), key), ()

    assert not Noise.of(carried, ((), (OF_PATHS, KEY), (NUMBER,)), PATHS).types

    def of_a_number(consts, state, x):
        del x
        key = jax.random.fold_in(consts[1], consts[0].astype("int32"))
        return (state[0] * jax.random.normal(key, (PATHS,)),), ()

    assert not one_number(of_a_number).types
