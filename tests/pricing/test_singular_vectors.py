"""Singular values without LAPACK, beside LAPACK's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.numerics.singular_vectors import singular_vectors
from tests.helpers import double

pytestmark = double


def matrices(rows, columns):
    """Columns of any length, two that are equal, one of zeros, nothing at all."""
    dice = np.random.default_rng(columns)
    found = dice.normal(size=(12, rows, columns)) * 10.0 ** dice.uniform(-4, 4, (12, 1, columns))
    found[2:4, :, -1] = found[2:4, :, 0]
    found[4, :, 0] = 0.0
    found[5] = 0.0
    return jnp.asarray(found)


@pytest.mark.parametrize(("rows", "columns"), [(4, 1), (7, 2), (3, 3), (104, 5), (3, 5), (60, 24)])
def test_values_and_vectors_are_lapacks(rows, columns):
    batch = matrices(rows, columns)
    values, vectors = jax.vmap(singular_vectors)(batch)
    known = np.linalg.svd(batch, compute_uv=False)
    for row in range(len(batch)):
        scale = known[row, 0] + 1e-300
        both = np.zeros(columns), np.asarray(values[row])
        both[0][: known.shape[1]] = known[row]
        np.testing.assert_allclose(both[1] / scale, both[0] / scale, atol=1e-14)
        v, matrix = np.asarray(vectors[row]), np.asarray(batch[row]) / scale
        np.testing.assert_allclose(v * (both[1] / scale) ** 2 @ v.T, matrix.T @ matrix, atol=1e-13)
        np.testing.assert_allclose(v.T @ v, np.eye(columns), atol=1e-13)
    alone, rank = singular_vectors(batch[0]).values, min(rows, columns)
    np.testing.assert_allclose(alone[:rank], values[0][:rank], rtol=1e-13)
    assert np.all(alone[rank:] <= 1e-14 * alone[0])  # zeros, as rounding leaves them


def test_small_values_are_as_true_as_the_digits_allow():
    """Eigenvalues of J'J would lose half of the digits."""
    turned, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(9, 3)))
    mixed, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    known = np.array([1.0, 1e-5, 1e-11])
    values, _ = singular_vectors(jnp.asarray(turned * known @ mixed))
    np.testing.assert_allclose(values, known, rtol=1e-4)


def test_batches_call_no_library():
    text = jax.jit(jax.vmap(singular_vectors)).lower(matrices(7, 2)).as_text()
    assert "custom_call" not in text
