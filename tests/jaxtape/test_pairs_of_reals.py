"""Complex numbers as pairs of reals: the same numbers and derivatives, and no complex128 in a TPU's program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtape.programs.pairs_of_reals import rewritten_for
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
