"""Elementary functions that the library writes itself, against NumPy's and against JAX's derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.numerics.complex_functions import cos_and_sin, exp, log1p_over, reciprocal, sqrt
from pricing.numerics.elementwise import elementwise
from tests.helpers import double

pytestmark = double

DICE = np.random.default_rng(5)


@pytest.mark.parametrize("reach", [1.0, 40.0, 1e6])
def test_cosine_and_sine_are_numpys(reach):
    x = DICE.uniform(-reach, reach, 20_000)
    for found, expected in zip(cos_and_sin(jnp.asarray(x)), (np.cos(x), np.sin(x)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=2.3e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cosine_and_sine_at_quarter_turns(dtype):
    x = np.asarray([0.0, 0.5, -0.5, 1.0, -1.0, 1.5, np.nan], dtype) * dtype(np.pi)
    for found, expected in zip(cos_and_sin(jnp.asarray(x)), (np.cos(x), np.sin(x)), strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        (exp, np.exp),
        (sqrt, np.sqrt),
        (reciprocal, np.reciprocal),
        (log1p_over, lambda z: np.log1p(z) / z),
    ],
    ids=["exp", "sqrt", "reciprocal", "log1p_over"],
)
def test_complex_functions_and_their_slopes(ours, numpys):
    """The slope along a direction is that of a central difference."""
    z = jnp.asarray(DICE.uniform(0.1, 2.0, 500) + 1j * DICE.uniform(-2.0, 2.0, 500))
    np.testing.assert_allclose(ours(z), numpys(z), rtol=1e-14)
    step = 1e-6 * (1.0 + 2.0j)
    _, slope = jax.jvp(ours, (z,), (jnp.full_like(z, step),))
    np.testing.assert_allclose(slope, 0.5 * (ours(z + step) - ours(z - step)), rtol=1e-8)


def _plain(x, y, scale):
    return jnp.sin(x * y) / scale, scale * jnp.exp(x - y)


def test_elementwise_functions_have_the_derivatives_of_what_they_are_made_of():
    """Forward, in reverse, forward over reverse; of arrays that broadcast, some of which stand still."""
    x, y = jnp.linspace(0.3, 1.0, 5), jnp.linspace(0.2, 2.0, 3)[:, None] * jnp.ones((1, 5))
    x, scale = x[None, :], jnp.asarray(1.7)

    def loss(function):
        def of(x, scale):
            first, second = function(x, y, scale)
            return jnp.sum(first**2) + jnp.sum(second)

        return of

    ours, theirs = loss(elementwise(_plain)), loss(_plain)
    for of in (
        lambda f: jax.jacfwd(f, (0, 1)),
        lambda f: jax.grad(f, (0, 1)),
        lambda f: jax.jacfwd(jax.grad(f)),
        lambda f: jax.jacrev(jax.jacfwd(f)),
    ):
        for found, expected in zip(
            *(jax.tree.leaves(of(f)(x, scale)) for f in (ours, theirs)), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-13)
