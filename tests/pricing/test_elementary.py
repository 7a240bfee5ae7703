"""Elementary functions that the library writes itself, against NumPy's and against JAX's derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from pricing.models.heston import _exponents
from pricing.numerics.complex_functions import cos_and_sin, exp, log1p_over, reciprocal, sqrt
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
        (lambda z: log1p_over(z)[0], lambda z: np.log1p(z) / z),
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


@pytest.mark.parametrize("size", [1e-4, 0.3])
def test_the_derivatives_of_a_logarithm_over_its_argument(size):
    """By its series, and by its quotient: the first, which comes with the value, and two more."""
    z = size * (DICE.uniform(0.5, 2.0, 10) + 1j * DICE.uniform(-2.0, 2.0, 10))
    along = lambda f: lambda z: jax.jvp(f, (z,), (jnp.ones_like(z),))[1]
    first = lambda z: log1p_over(z)[1]
    with mpmath.workdps(40):
        exact = lambda x, n: complex(mpmath.diff(lambda y: mpmath.log1p(y) / y, x, n))
        wanted = np.array([[exact(x, n) for x in z.tolist()] for n in (1, 2, 3)])
    for ours, theirs in zip((first, along(first), along(along(first))), wanted, strict=True):
        np.testing.assert_allclose(ours(jnp.asarray(z)), theirs, rtol=1e-11)


def _by_the_book(symbol, beta, xi2, t):
    """Return the two exponents of Heston's characteristic function as Albrecher et al. write them."""
    root = jnp.sqrt(beta**2 + xi2 * symbol)
    a = (beta - root) / xi2
    g, decay = (beta - root) / (beta + root), jnp.exp(-root * t)
    of_level = a * t - 2.0 * jnp.log((1.0 - g * decay) / (1.0 - g)) / xi2
    return of_level, a * (1.0 - decay) / (1.0 - g * decay)


@pytest.mark.costly
@pytest.mark.parametrize("numbers", [(1.2, -0.6, 0.5, 0.4), (2.0, 0.3, 0.9, 3.0)])
def test_hestons_exponents_and_their_slopes_in_every_argument(numbers):
    """First derivatives one by one, and gradient and Hessian in real numbers through them."""
    u = jnp.asarray(np.linspace(0.1, 20.0, 40) - 0.5j)

    def arguments(numbers):
        kappa, rho, xi, t = numbers.astype(u.dtype)
        iu = u * jnp.asarray(1j)
        return u * u + iu, kappa - rho * xi * iu, xi * xi, t

    at = arguments(jnp.asarray(numbers))
    for i, argument in enumerate(at):
        dots = [jnp.zeros_like(x) for x in at]
        dots[i] = jnp.full_like(argument, 0.3 + 0.7j)
        pairs = zip(*(jax.jvp(f, at, tuple(dots)) for f in (_exponents, _by_the_book)), strict=True)
        for found, expected in pairs:
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-14)  # the book cancels

    def loss(function):
        return lambda numbers: sum(jnp.real(x).sum() for x in function(*arguments(numbers)))

    for derivative in (jax.grad, jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        found, expected = (
            derivative(loss(f))(jnp.asarray(numbers)) for f in (_exponents, _by_the_book)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)
