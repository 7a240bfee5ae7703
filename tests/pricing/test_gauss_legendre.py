"""Gauss-Legendre nodes and weights against an independent precise computation."""

import mpmath
import numpy as np
import pytest

from pricing.numerics.gauss_legendre import gauss_legendre


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_polynomials_are_integrated_to_rounding(count):
    nodes, weights = gauss_legendre(count)
    assert np.all(np.diff(nodes) > 0.0)
    for degree in range(2 * count):
        exact = 0.0 if degree % 2 else 2.0 / (degree + 1)
        assert np.sum(weights * nodes**degree) == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize("index", [0, 1, 128, 255])
def test_nodes_and_weights_are_those_of_thirty_digits(index):
    nodes, weights = gauss_legendre(512)
    with mpmath.workdps(30):
        x = mpmath.findroot(lambda z: mpmath.legendre(512, z), nodes[index])
        slope = 512 * (x * mpmath.legendre(512, x) - mpmath.legendre(511, x)) / (x * x - 1)
        weight = 2 / ((1 - x * x) * slope**2)
    assert nodes[index] == pytest.approx(float(x), abs=1e-16)
    assert weights[index] == pytest.approx(float(weight), rel=2e-12)  # NumPy: 1e-10
