"""Small values of a program as a TPU computes them: in few kernels, from scalars."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.jax_private import jaxpr_as_fun
from jaxtape.kernels.node import flat
from jaxtape.kernels.pallas import SCALAR
from jaxtape.sweeps.constants import folded
from jaxtape.sweeps.scalars import in_scalars

from ..helpers_kernels import run_kernels

KEY, X = jax.random.key(3), jnp.float32(0.3)
TIMES = jnp.linspace(0.1, 2.0, 40, dtype=jnp.float32)


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels are interpreted."""
    run_kernels(monkeypatch, "tpu")


def numbers(x):
    """Operations on numbers, whose results are small vectors, flags and integers."""
    root = jnp.sqrt(x * x + 1.0)
    both = jnp.stack([root, -x, jnp.exp(x)])
    flag = jnp.isfinite(both).all() & (x > 0.0)
    return (
        both * jnp.arange(1.0, 4.0, dtype=x.dtype),
        flag,
        jnp.where(flag, jnp.int32(3), jnp.int32(5)),
        both[1],
        both.sum(),
    )


def along_an_axis(x):
    """Vectors of all times, matrices with them on either axis, and what they share."""
    decay = jnp.exp(-x * TIMES)
    slopes = jnp.stack([decay, decay * TIMES])
    turned = jnp.transpose(slopes) * jnp.array([[1.0, 2.0]], jnp.float32)
    return decay, slopes, turned, turned > 0.5, x * 2.0


def in_turns(x):
    """A sort and a sum over the axis lie between small values."""
    scaled = jnp.sin(x) * TIMES
    most = jnp.sort(scaled)[-1] * 2.0
    return jnp.cos(most) * scaled, jnp.sum(scaled) * most, jnp.cumsum(scaled)


def of_keys(x):
    """Keys, which are folded and split by the numbers of steps."""
    key = jax.random.fold_in(KEY, (jnp.float32(10.0) * x).astype(jnp.int32))
    words = jax.random.key_data(jax.random.split(key))
    along = jax.random.bits(key, (2, len(TIMES)), "uint32")
    return jax.random.key_data(key), words, jax.random.bits(key, (3,), "uint32"), along


def small_and_large(x):
    """A large array between small values, and one that a kernel cannot hold."""
    large = jnp.full((40, 300), jnp.sin(x)) * jnp.arange(300.0, dtype=jnp.float32)[None]
    mean = jnp.mean(large) * 2.0 + x
    return large, mean, jnp.float32(1.5), mean.astype(jnp.float64)


def empty(x):
    """Empty arrays, constants and inputs as outputs."""
    return jnp.zeros((0, 40), jnp.float32) * x, x, jnp.ones(3), x.reshape(1)


CASES = [numbers, along_an_axis, in_turns, of_keys, small_and_large, empty]
KERNELS = dict(zip(CASES, (1, 1, 2, 1, 2, 0), strict=True))


def program_of(function):
    """The program of a function of a number, and its small values in kernels."""
    closed = jax.make_jaxpr(lambda x: jax.tree.leaves(function(x)))(X)
    return closed, in_scalars(closed, {len(TIMES)})


@pytest.mark.parametrize("function", CASES)
@pytest.mark.usefixtures("interpreted")
def test_the_same_values(function):
    _, program = program_of(function)
    found, expected = jax.jit(jaxpr_as_fun(program))(X), jax.tree.leaves(jax.jit(function)(X))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=3e-6)
    names = [eqn.primitive.name for eqn in program.jaxpr.eqns]
    assert names.count("pallas_call") == KERNELS[function]


@pytest.mark.usefixtures("interpreted")
def test_small_values_leave_no_operation_outside():
    *_, program = program_of(along_an_axis)
    kinds = {eqn.primitive.name for eqn in program.jaxpr.eqns}
    assert kinds <= {"pallas_call", "reshape", "convert_element_type", "ne"}


@pytest.mark.usefixtures("interpreted")
def test_constants_are_no_inputs_of_a_kernel():
    """Neither small arrays nor long ones of equal entries."""
    function = lambda x: (
        x * jnp.array([1.0, 3.0], jnp.float32),
        x * jnp.full(40, 2.0, jnp.float32),
    )
    _, program = program_of(function)
    (kernel,) = (eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "pallas_call")
    assert [v.aval.size for v in kernel.invars] == [1]
    found = jaxpr_as_fun(program)(X)
    for a, b in zip(found, function(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def mean_and_squares(x):
    """Sums of numbers and of their squares about a center, which is known before."""
    large = jnp.full((40, 300), jnp.sin(x)) * jnp.arange(300.0, dtype=jnp.float32)[None]
    total, first = jnp.sum(large), jnp.sum(large[0])
    mean, center = total / 12000.0, first / 300.0
    return mean, jnp.sum((large - center) ** 2) / 12000.0 - (mean - center) ** 2


@pytest.mark.usefixtures("interpreted")
def test_values_are_computed_as_late_as_others_wait_for_them():
    """No sum waits for a kernel that reads another, but the second for the center."""
    _, program = program_of(mean_and_squares)
    kernels = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "pallas_call"]
    assert [len(eqn.invars) for eqn in kernels] == [1, 1, 3]
    assert [len(eqn.outvars) for eqn in kernels] == [1, 1, 2]
    found, expected = jaxpr_as_fun(program)(X), mean_and_squares(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def with_constants(x):
    """Steps and keys that depend on no argument, behind a barrier, beside values that do."""
    steps = jnp.diff(jnp.linspace(0.0, 2.0, 41, dtype=jnp.float32), prepend=-1.0)
    key, steps = jax.lax.optimization_barrier((jax.random.fold_in(KEY, 2), steps))
    noise = jax.random.normal(key, (200, 40), jnp.float32)
    return x * steps, noise, jnp.cumsum(steps)


def test_constants_are_folded():
    closed = jax.make_jaxpr(lambda x: with_constants(x))(X)
    program = folded(closed)
    found, expected = jax.jit(jaxpr_as_fun(program))(X), jax.jit(with_constants)(X)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    kinds = {eqn.primitive.name for eqn in program.jaxpr.eqns}
    assert "random_bits" in kinds  # the noise is large
    assert kinds.isdisjoint({"optimization_barrier", "random_fold_in", "cumsum", "concatenate"})


@pytest.mark.parametrize(
    ("platform", "kept"), [("tpu", "sin"), ("cuda", "exp"), ("cpu", "cos"), (None, "cond")]
)
def test_a_choice_between_platforms_is_its_branch(platform, kept):
    branches = {"tpu": jnp.sin, "cuda": jnp.exp, "default": jnp.cos}
    chosen = jax.jit(lambda x: lax.platform_dependent(x, **branches))
    found = flat(jax.make_jaxpr(chosen)(X), platform)
    names = {eqn.primitive.name for eqn in found.jaxpr.eqns}
    assert names & {"sin", "exp", "cos", "cond"} == {kept}
    if platform is not None:
        function = branches.get(platform, jnp.cos)
        assert float(jaxpr_as_fun(found)(X)[0]) == float(function(X))


def test_a_program_without_constants_is_the_same():
    closed = jax.make_jaxpr(lambda x: jnp.sin(x) + x)(X)
    assert [str(eqn) for eqn in folded(closed).jaxpr.eqns] == [
        str(eqn) for eqn in closed.jaxpr.eqns
    ]


def every_function(x):
    """All functions that kernels compute for a number in single precision."""
    one = (
        lax.abs,
        lax.sign,
        lax.square,
        lax.exp,
        lax.exp2,
        lax.log,
        lax.log1p,
        lax.sqrt,
        lax.rsqrt,
    )
    one += (lax.sin, lax.cos, lax.tan, lax.tanh, lax.logistic, lax.erf_inv, lax.erf, lax.erfc)
    one += (lax.expm1, lax.floor, lax.ceil, jnp.round, lambda x: lax.integer_pow(x, -3))
    two = lax.max, lax.min, lax.div, lax.pow, lax.atan2, lambda x, y: lax.clamp(y, x, y + 1.0)
    number = x.astype(jnp.int32)
    word = lax.bitcast_convert_type(x, jnp.uint32) >> jnp.uint32(3)
    flag = (x > 0.2) & ~(x > 0.4) & lax.is_finite(x)
    return [f(x) for f in one] + [f(x, 0.5 * x) for f in two] + [number, word, flag]


@pytest.mark.usefixtures("interpreted")
def test_every_function():
    _, program = program_of(every_function)
    pairs = zip(jax.jit(jaxpr_as_fun(program))(X), jax.jit(every_function)(X), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=3e-6)
    kinds = [eqn.primitive.name for eqn in program.jaxpr.eqns]
    assert kinds.count("pallas_call") == 1 and "pow" in kinds and "exp" not in kinds


def test_every_function_compiled_for_a_tpu():
    """One kernel, a copy of its argument, and the power, which Mosaic computes for vectors alone."""
    _, program = program_of(every_function)
    try:
        report = jt.compile_for(jaxpr_as_fun(program), X, target="tpu:v5e:2x2")
    except ImportError:
        pytest.skip("pip install 'jaxtape[tpu]'")
    assert report.compiles, report.reason
    assert report.kernels <= 6


def test_a_tile_of_scalars_is_one_number():
    assert SCALAR.size == 1 and SCALAR.folded(40) == (40,)
