"""Functions of one variable with a closed-form mean under a doubly truncated normal distribution."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .corridor import deviations

Scalar = Float[Array, ""]

_WIDTH = 1.3  # width over gap: narrower components ripple, wider ones have cancelling weights
_BEYOND = 3  # gaps by which the centers extend beyond the interval, to fit its ends
_ROOT_HALF = float(np.sqrt(0.5))


class GaussianMixture(NamedTuple):
    """The function w(x) = sum_j weights_j exp(-(x - first - j gap)^2 / (2 h^2)), h = 1.3 gap."""

    first: Scalar
    gap: Scalar
    weights: Float[Array, " components"]

    def __call__(self, x: Scalar) -> Scalar:
        distance = (x - self._centers) / self._width
        return jnp.dot(self.weights, jnp.exp(-0.5 * distance**2))

    def mean_inside(self, mean: Scalar, std: Scalar, lower: Scalar, upper: Scalar) -> Scalar:
        """Return E[w(Y) 1{lower < Y < upper}], Y ~ N(mean, std^2)."""
        square = self._width**2
        total = square + std**2
        middle = (square * mean + std**2 * self._centers) / total
        spread = self._width * std / jnp.sqrt(total)
        upper, lower = (deviations(end - middle, spread) for end in (upper, lower))
        inside = 0.5 * (lax.erf(_ROOT_HALF * upper) - lax.erf(_ROOT_HALF * lower))
        density = jnp.sqrt(square / total) * jnp.exp(-0.5 * (mean - self._centers) ** 2 / total)
        return jnp.dot(self.weights, density * inside)

    @property
    def _centers(self) -> Float[Array, " components"]:
        return self.first + self.gap * jnp.arange(self.weights.size, dtype=self.gap.dtype)

    @property
    def _width(self) -> Scalar:
        return _WIDTH * self.gap


class Interval(NamedTuple):
    """An interval for a fit of `count` components to the values of a function at `points`."""

    low: Scalar
    high: Scalar
    count: int

    @property
    def points(self) -> Float[Array, " points"]:
        places = jnp.asarray(_least_squares(self.count)[0], self.low.dtype)
        return self._first + self._gap * places

    def fit(self, values: Float[Array, " points"]) -> GaussianMixture:
        """Return the least-squares fit of the components to the values."""
        solve = jnp.asarray(_least_squares(self.count)[1], values.dtype)
        return GaussianMixture(self._first, self._gap, solve @ values)

    @property
    def _gap(self) -> Scalar:
        return (self.high - self.low) / (self.count - 1 - 2 * _BEYOND)

    @property
    def _first(self) -> Scalar:
        return self.low - _BEYOND * self._gap


@functools.cache
def _least_squares(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points, in gaps from the first center, and the matrix from values to weights."""
    angles = (np.arange(2 * count) + 0.5) / (2 * count) * np.pi
    points = _BEYOND + (count - 1 - 2 * _BEYOND) * 0.5 * (1.0 - np.cos(angles))
    components = np.exp(-0.5 * ((points[:, None] - np.arange(count)) / _WIDTH) ** 2)
    return points, np.linalg.pinv(components, rcond=1e-9)
