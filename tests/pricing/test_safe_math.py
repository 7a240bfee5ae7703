"""Maxima, roots and divisors at their edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.numerics.safe_math import clipped, divisor, larger, maximum, safe_sqrt, smaller

X = jnp.asarray([-1.0, 0.0, 0.5, 2.0, jnp.nan, jnp.inf])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(larger, jnp.maximum), (maximum, jnp.maximum), (smaller, jnp.minimum)],
)
@pytest.mark.parametrize("other", [0.0, 0.5, jnp.nan])
def test_values_are_those_of_jax_with_what_is_no_number_carried_on(ours, theirs, other):
    np.testing.assert_array_equal(ours(X, other), theirs(X, other))
    np.testing.assert_array_equal(ours(jnp.full_like(X, other), X), theirs(X, other))


def test_values_between_two_ends():
    np.testing.assert_array_equal(clipped(X, 0.0, 1.0), jnp.clip(X, 0.0, 1.0))


@pytest.mark.parametrize("choose", [larger, smaller])
def test_the_derivatives_of_both_arguments_add_up_and_a_tie_is_the_first_ones(choose):
    for x, y in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0)):
        of_x, of_y = jax.grad(choose, (0, 1))(x, y)
        first = x == y or choose(x, y) == x
        assert (float(of_x), float(of_y)) == ((1.0, 0.0) if first else (0.0, 1.0))


def test_a_tie_of_a_maximum_has_the_mean_of_both_derivatives():
    for x, y in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0)):
        assert jax.grad(maximum, (0, 1))(x, y) == jax.grad(jnp.maximum, (0, 1))(x, y)


def test_a_root_of_nothing_has_no_slope_and_a_divisor_is_positive():
    assert float(safe_sqrt(jnp.asarray(0.0))) == 0.0
    assert float(jax.grad(safe_sqrt)(jnp.asarray(0.0))) == 0.0
    assert float(divisor(jnp.asarray(0.0))) > 0.0
