"""Gauss-Legendre quadrature."""

import functools

import numpy as np

_NEWTON_STEPS = 5  # quadratic from 1e-3: two or three suffice, and more change nothing


@functools.cache
def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes on [-1, 1], ascending, and the weights, of shape (count,) each.

    Nodes are the zeros of the Legendre polynomial P of this degree, by Newton's method from
    cos(pi (k - 1/4) / (count + 1/2)); the weights are 2 / ((1 - x^2) P'(x)^2). NumPy's `leggauss` takes the
    eigenvalues of a full matrix, for which a linear algebra library starts threads that wait in a loop.

    Args:
        count: The number of nodes, at least 1.
    """
    k = np.arange(count, 0, -1)
    x, slope = np.cos(np.pi * (k - 0.25) / (count + 0.5)), np.ones(count)
    for _ in range(_NEWTON_STEPS):
        before, value = np.ones_like(x), x
        for degree in range(2, count + 1):
            before, value = value, x * value + (1.0 - 1.0 / degree) * (x * value - before)
        slope = count * (before - x * value) / ((1.0 - x) * (1.0 + x))
        x = x - value / slope
    x = 0.5 * (x - x[::-1])  # symmetric, with zero in the middle
    weights = 2.0 / ((1.0 - x) * (1.0 + x) * slope**2)
    weights = 0.5 * (weights + weights[::-1])
    return x, weights * (2.0 / weights.sum())
