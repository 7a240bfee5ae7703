"""What a TPU lacks in double precision, such as complex numbers, is rewritten: same numbers and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
from jaxtape.programs.lu_decomposition import lu_decomposition
from jaxtape.programs.rewritten import rewritten_for
from pricing import Heston
from pricing.methods.fourier import Spectrum
from pricing.numerics import complex_functions
from tests.helpers import double

pytestmark = double
X = np.linspace(0.3, 1.7, 6)


def for_a_tpu(function, *arrays) -> str:
    traced = jax.jit(rewritten_for("tpu", function)).trace(*arrays)
    return traced.lower(lowering_platforms=("tpu",)).as_text()


def elementary(x):
    z = lax.complex(x, 0.5 - x)
    w = complex_functions.exp(z) * complex_functions.sqrt(z) + complex_functions.reciprocal(z)
    w = w / (1.0 + z**2) - jnp.conj(z) ** -2 + jnp.exp(-z)
    return jnp.real(w) + jnp.imag(w) * jnp.abs(z)


def in_loops(x):
    def body(carry, z):
        return carry * z + 0.1j, jnp.where(jnp.real(z) > 0.5, z, -carry)

    z = lax.complex(x, x * x)
    end, outputs = lax.scan(body, jnp.ones((), z.dtype), z)
    grown = lax.while_loop(lambda w: jnp.real(w) ** 2 < 4.0, lambda w: 1.5 * w, end + 2.0)
    chosen = lax.cond(x[0] > 0.0, lambda w: w @ outputs, lambda w: jnp.sum(w), outputs[::-1])
    return jnp.real(grown) * x + jnp.imag(chosen) + jnp.real(jnp.stack([z, outputs])[1, ::-1])


def spectral(x):
    model = Heston(100.0, 0.03, 0.04 * x[0], 2.0 * x[1], 0.05, 0.5, -0.5)
    share, cash = Spectrum.of(model, jnp.asarray(0.7), 32).exercise_values(
        jnp.asarray(101.0), 95.0 * x[2], jnp.asarray(1.0)
    )
    return jnp.stack([share, cash]) * x[:2]


@pytest.mark.costly
@pytest.mark.parametrize("function", [elementary, in_loops, spectral])
def test_a_rewritten_function_is_the_same(function):
    """Values, slopes in both modes, and second derivatives: derivatives are taken before."""
    total = lambda x: jnp.sum(function(x))
    forms = [function, jax.jacfwd(function)]
    forms += [] if function is in_loops else [jax.grad(total), jax.jacfwd(jax.grad(total))]
    for form in forms:
        expected, found = jax.jit(form)(X), jax.jit(rewritten_for("tpu", form))(X)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
        assert "complex<f64>" not in for_a_tpu(form, X)


def solved(x):
    matrices = jnp.stack(
        [jnp.diag(x[:3]) + x[3] * jnp.tri(3, dtype=x.dtype)[::-1], jnp.outer(x[:3], x[:3])]
    )
    matrices = matrices.at[1].add(jnp.eye(3, dtype=x.dtype) * x[4])
    found = jnp.linalg.solve(matrices, x[None, 3:, None])
    sizes = jnp.linalg.slogdet(matrices)[1] + jnp.linalg.inv(matrices)[:, 0, 1]
    return jnp.concatenate([found.ravel(), sizes])


def rooted(x):
    return jt.root(lambda y: y**3 + jnp.roll(y, 1) * x - 2.0, 1.0 + 0.0 * x)


def rooted_by_entry(x):
    """A batch of searches, each of which ends by itself."""
    return jax.vmap(lambda x: jt.root(lambda y: y**3 + y * x - 2.0 * x, 0.1 + 9.0 * x))(x)


def chained(x):
    """Steps of a chain with a schedule, which is a primitive until a program is lowered."""

    def step(state, speed):
        root = jt.root(lambda y: y + speed * y**3 - state, state)
        return root + jnp.real(lax.complex(state, speed) ** 2), None

    return jt.scan(step, x[:2], 0.1 * x, schedule=jt.Revolve(2))[0]


@pytest.mark.costly
@pytest.mark.parametrize("function", [solved, rooted, rooted_by_entry, chained])
def test_systems_are_solved_without_the_decomposition_that_a_tpu_lacks(function):
    total = lambda x: jnp.sum(function(x))
    for form in (
        jax.grad(total),
        *(() if function in (chained, rooted_by_entry) else (function, jax.jacfwd(function))),
    ):
        expected, found = jax.jit(form)(X), jax.jit(rewritten_for("tpu", form))(X)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        text = for_a_tpu(form, X)
        assert "LuDecomposition" not in text and "complex<f64>" not in text
    single = jnp.asarray(X, jnp.float32)
    assert "LuDecomposition" in for_a_tpu(solved, single)  # which it has in single precision


@pytest.mark.parametrize("shape", [(3, 5, 5), (4, 3), (2, 3, 4), (1, 1), (0, 2, 2)])
def test_the_decomposition_is_that_of_lapack(shape):
    a = np.random.default_rng(3).normal(size=shape)
    a[..., 0, 0] = 0.0
    for found, expected in zip(lu_decomposition(jnp.asarray(a)), lax.linalg.lu(a), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_a_matrix_without_an_inverse_leaves_a_pivot_of_zero():
    for a in (np.zeros((2, 2)), np.ones((2, 2))):
        lu, _, order = lu_decomposition(jnp.asarray(a))
        lower = np.tril(lu, -1) + np.eye(2)
        np.testing.assert_array_equal(lower @ np.triu(lu), a[np.asarray(order)])
        assert lu[1, 1] == 0.0


KEEPS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable


def layers(x):
    """A chain of layers whose products are kept."""
    layer = lambda state, w: (jnp.tanh(state @ w), None)
    weights = jnp.outer(x, x)[None] * jnp.arange(1.0, 4.0)[:, None, None]
    return jt.scan(layer, x, weights, schedule=jt.StoreAll(policy=KEEPS))[0]


def layer(x):
    return jnp.tanh(jnp.outer(x, x) @ x)


@pytest.mark.parametrize("function", [layers, jax.checkpoint(layer, policy=KEEPS)])
def test_products_that_a_policy_keeps_are_not_rounded(function):
    gradient = jax.grad(lambda x: jnp.sum(function(x)))
    assert "reduce_precision" in str(jax.make_jaxpr(gradient)(X))
    text = for_a_tpu(gradient, X)
    assert "reduce_precision" not in text
    # what is computed again outside a loop must not be merged with its first computation
    assert ("optimization_barrier" in text) == (function is not layers)
    found = jax.jit(rewritten_for("tpu", gradient))(X)
    np.testing.assert_allclose(found, jax.jit(gradient)(X), rtol=1e-13)


def test_rounding_that_a_tpu_lacks_is_refused():
    with pytest.raises(NotImplementedError, match="round float64 to fewer bits"):
        for_a_tpu(lambda x: lax.reduce_precision(x, 8, 23), X)


def by_platform(x):
    """A function that differs between platforms."""
    branches = {"tpu": lambda z: 2.0 * z, "cpu": lambda z: -z, "default": lambda z: z + 1.0}
    return jnp.real(lax.platform_dependent(lax.complex(x, x), **branches) ** 2 * 1j)


@pytest.mark.parametrize("function", [elementary, by_platform])
def test_a_program_for_several_platforms_has_nothing_that_a_tpu_lacks(function):
    loaded = jt.load(jt.export(function, X, platforms=("cpu", "cuda", "tpu")))
    assert "complex<f64>" not in loaded._exported.mlir_module()
    np.testing.assert_allclose(loaded(X), jax.jit(function)(X), rtol=1e-11, atol=1e-11)


def test_a_platform_with_complex_numbers_keeps_the_function():
    assert rewritten_for("cpu", elementary) is elementary
    assert rewritten_for("cuda", elementary) is elementary


def test_an_operation_without_a_rule_is_named():
    """Also one that holds a function, as `reduce` does: that is not inserted as if it were called."""
    longer = lambda x, y: jnp.where(jnp.real(x) > jnp.real(y), x, y)
    for operation, name in (
        (jnp.cumprod, "cumprod"),
        (lambda z: lax.reduce(z, jnp.zeros((), z.dtype), longer, (0,)), "reduce"),
    ):
        function = lambda x, operation=operation: jnp.real(operation(lax.complex(x, x)))
        with pytest.raises(
            NotImplementedError, match=rf"a TPU has no complex128, and {name} has no rule"
        ):
            for_a_tpu(function, X)
