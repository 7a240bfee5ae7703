"""Operations along the axis of the sums of ys as a loop in one kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.jax_private import hi_primitive_of
from jaxtape.kernels.paths import NoKernelError
from jaxtape.programs.rewritten import rewritten_for
from jaxtape.sweeps.joined import joined
from jaxtape.sweeps.rule import Sweep
from jaxtape.sweeps.turns import in_turns

from ..helpers_kernels import run_kernels

PATHS, NODES = 128, 35
NOISE = 0.1 * jnp.sin(jnp.arange(float(NODES * PATHS))).reshape(NODES, PATHS)
POINT, DIRECTIONS = jnp.array([0.3, 0.7]), jnp.array([[1.0, 0.0], [0.0, 1.0], [0.5, -2.0]])


@pytest.fixture
def interpreted(monkeypatch):
    """Return the function that has chains run in kernels from now on."""
    jax.clear_caches()
    yield functools.partial(run_kernels, monkeypatch, "gpu")
    monkeypatch.undo()
    jax.clear_caches()


def sums(p, nodes=35, sum_ys=5):
    """The sums of the ys of a chain: 7 by default."""

    def step(s, z):
        s = s * (1.0 + 0.1 * p[0]) + p[1] * z
        return s, (s, s * s)

    scan = functools.partial(jt.scan, schedule=jt.Revolve(2), sum_ys=sum_ys)
    return scan(step, jnp.full(PATHS, p[0]), NOISE[:nodes].astype(p.dtype))[1]


def gains(p, **options):
    """As a hedge has it: running sums, the entry before, numbers of the dates, and sums."""
    x, y = sums(p, **options)
    count = len(x)
    run = jnp.exp(0.1 * jnp.cumsum(x, axis=0))
    before = jnp.concatenate([jnp.ones_like(run[:1]), run[:-1]])
    date = jnp.arange(1, count + 1, dtype=p.dtype)[:, None] / count
    weight = jnp.exp(-p[1] * date) * jnp.sin(p[0])
    gain = jnp.sum(weight * (run - before) * jnp.where(y > 0.1, y, jnp.square(before)), axis=0)
    return jnp.log1p(jnp.square(gain)) * jnp.cos(p[0]) + jnp.sum(y, axis=0)


def read_by_others(p):
    """Entries of the loop that others read: a sort, a maximum, and operations that need a sum first."""
    x, y = sums(p)
    run = jnp.cumsum(x, axis=0) * y
    total = jnp.sum(run, axis=0)
    shares = run / total[None]
    last = jnp.prod(run[:-1], axis=0) * jnp.exp(run[:-1] * p[0])[-1]
    return jnp.sort(run, axis=0), last, jnp.sum(shares * shares, axis=0)


def along_other_axes(p):
    """Stacks of entries, transposed, with flags and integers, and a sum over another axis."""
    x, y = sums(p)
    both = jnp.stack([x, y]) * jnp.arange(1.0, 3.0)[:, None, None]
    turned = jnp.transpose(both, (1, 2, 0))
    count = jnp.sum((x > y).astype(jnp.int32), axis=0)
    flags = jnp.concatenate([jnp.zeros((1, PATHS), bool), (x > 0.0)[:-1]])
    wide = jnp.concatenate([turned, turned[:, :, :1]], axis=2)
    chosen = jnp.where(flags, jnp.sum(wide, axis=2), jnp.cumsum(both, axis=0)[1])
    return jnp.sum(chosen, axis=0), count, jnp.sum(wide, axis=0)


def sums_over_paths(p):
    """Sums over the paths are outside of the loop, before and after it."""
    x, y = sums(p)
    mean = jnp.mean(x, axis=1)
    return jnp.sum(jnp.cumsum(x - mean[:, None], axis=0) * y, axis=0), jnp.mean(x)


def reverse_sums(p):
    """Running sums from the end, and a shift to the other side, are outside."""
    x, y = sums(p)
    ahead = jnp.concatenate([x[1:], jnp.ones_like(x[:1])])
    return jnp.sum(
        jnp.cumsum(x * y, axis=0) * jnp.flip(jnp.cumsum(jnp.flip(y, 0), 0), 0) * ahead, 0
    )


def along(function, p):
    """The values, and their tangents along several directions."""
    one = lambda d: jax.jvp(function, (p,), (d.astype(p.dtype),))
    return jax.vmap(one, out_axes=(None, 0))(DIRECTIONS)


def second_order(p):
    """The tangents along a direction of tangents, as Greeks have them."""
    slopes = lambda scale: along(lambda p: scale**2 * gains(p), p)
    return jax.jvp(slopes, (jnp.asarray(1.5),), (jnp.asarray(1.0),))


IN_A_LOOP = {
    "gains": gains,
    "gains of tangents": functools.partial(along, gains),
    "second order": second_order,
    "read by others": read_by_others,
    "tangents read by others": functools.partial(along, read_by_others),
    "other axes": along_other_axes,
    "sums over paths": functools.partial(along, sums_over_paths),
    "two dates": functools.partial(gains, nodes=10),
    "one node a date": functools.partial(gains, nodes=31, sum_ys=1),
    "as many directions as dates": lambda p: along(functools.partial(gains, nodes=15), p),
}


def both(function, p, interpreted):
    """The outputs with and without kernels, and the program in kernels."""
    flat = lambda p: jax.tree.leaves(function(p))
    expected = jax.jit(flat)(p)
    jax.clear_caches()
    interpreted()
    rewritten = rewritten_for("cuda", flat)
    return jax.jit(rewritten)(p), expected, jax.make_jaxpr(flat)(p), jax.make_jaxpr(rewritten)(p)


@pytest.mark.costly
@pytest.mark.parametrize("name", IN_A_LOOP)
def test_loop(name, interpreted):
    """The loop is a second chain, and its kernel has what reads its sums."""
    found, expected, _, rewritten = both(IN_A_LOOP[name], POINT, interpreted)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    names = [eqn.params["name"] for eqn in rewritten.jaxpr.eqns if "grid_mapping" in eqn.params]
    assert [str(each) for each in names] == ["fused", "fused"]


def test_loop_in_single_precision(interpreted):
    point = POINT.astype(jnp.float32)
    found, expected, *_ = both(functools.partial(along, gains), point, interpreted)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


NOT_IN_A_LOOP = {
    "one date": functools.partial(gains, nodes=5),
    "no sum": lambda p: jnp.cumsum(sums(p)[0], axis=0),
    "product": lambda p: jnp.prod(sums(p)[0], axis=0),
    "reverse": functools.partial(along, reverse_sums),
}


@pytest.mark.parametrize("name", NOT_IN_A_LOOP)
def test_programs_without_a_loop(name, interpreted):
    function = NOT_IN_A_LOOP[name]
    found, expected, program, _ = both(function, POINT, interpreted)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    with pytest.raises(NoKernelError):
        in_turns(program, "gpu")


@pytest.mark.parametrize("derivative", [jax.grad, jax.hessian])
def test_derivatives_keep_their_sweeps(derivative, interpreted):
    """A gradient has sweeps, whose ys have cotangents; JAX differentiates it before the pass."""
    function = derivative(lambda p: jnp.mean(gains(p)))
    found, expected, *_ = both(function, POINT, interpreted)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_what_all_paths_share_is_no_array(interpreted):
    """The loop reads entries of paths from the chain alone, and computes what they share again."""
    *_, program, _ = both(functools.partial(along, gains), POINT, interpreted)
    first, second = (
        eqn for eqn in in_turns(joined(program), "gpu").jaxpr.eqns if hi_primitive_of(eqn)
    )
    assert isinstance(hi_primitive_of(second), Sweep)
    read = [v for v in second.invars if v.aval.ndim > 1 and v.aval.size > PATHS * 3]
    assert read and {*read} <= {*first.outvars}
