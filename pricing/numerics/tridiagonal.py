"""Tridiagonal systems along the leading axis, many at once, factored once and solved often."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Band = Float[Array, "rows systems"]


class Tridiagonal(eqx.Module):
    """A x for A with the given bands, [rows, systems]; lower[0] and upper[-1] are not read."""

    lower: Band
    diagonal: Band
    upper: Band

    def __check_init__(self):
        chex.assert_equal_shape([self.lower, self.diagonal, self.upper])

    def __matmul__(self, x: Band) -> Band:
        below = jnp.pad(x[:-1], ((1, 0), (0, 0)))
        above = jnp.pad(x[1:], ((0, 1), (0, 0)))
        return self.lower * below + self.diagonal * x + self.upper * above

    def identity_minus(self, scale: Float[Array, ""]) -> "Tridiagonal":
        """Return I - scale A."""
        return Tridiagonal(-scale * self.lower, 1.0 - scale * self.diagonal, -scale * self.upper)

    def factored(self) -> "Factored":
        """Return a = L U by elimination without pivoting: for diagonally dominant A."""

        def eliminate(pivot, bands):
            lower, diagonal, upper_before = bands
            weight = lower * pivot
            pivot = 1.0 / (diagonal - weight * upper_before)
            return pivot, (weight, pivot)

        upper_before = jnp.pad(self.upper[:-1], ((1, 0), (0, 0)))
        bands = jax.lax.stop_gradient((self.lower, self.diagonal, upper_before))
        start = jnp.zeros_like(bands[0][0])
        _, (weights, pivots) = jax.lax.scan(eliminate, start, bands)
        return Factored(self, weights, pivots)


class Factored(eqx.Module):
    """The factors of `matrix`: L = I + weights below the diagonal, U = 1 / pivots beside the upper band."""

    matrix: Tridiagonal
    weights: Band
    pivots: Band

    def solve(self, b: Band) -> Band:
        """Return A^{-1} b, differentiable in b and in the bands, by one more solve."""
        return jax.lax.custom_linear_solve(
            lambda x: self.matrix @ x, b, self._solve, self._transpose_solve
        )

    def _solve(self, _, b: Band) -> Band:
        upper = jax.lax.stop_gradient(self.matrix.upper)
        y = _substituted(self.weights, None, b)
        return _substituted(upper, self.pivots, y, reverse=True)

    def _transpose_solve(self, _, b: Band) -> Band:
        upper_before = jnp.pad(jax.lax.stop_gradient(self.matrix.upper)[:-1], ((1, 0), (0, 0)))
        weight_after = jnp.pad(self.weights[1:], ((0, 1), (0, 0)))
        y = _substituted(upper_before, self.pivots, b)
        return _substituted(weight_after, None, y, reverse=True)


def _substituted(band: Band, pivots: Band | None, b: Band, *, reverse: bool = False) -> Band:
    """Return x with x[i] = (b[i] - band[i] x[i - 1]) pivots[i], or x[i + 1] in reverse; None is all 1."""

    def step(beside, of_row):
        band, pivot, b = of_row
        here = b - band * beside
        here = here if pivot is None else here * pivot
        return here, here

    return jax.lax.scan(step, jnp.zeros_like(b[0]), (band, pivots, b), reverse=reverse)[1]
