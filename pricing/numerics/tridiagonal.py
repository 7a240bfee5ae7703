"""Batches of tridiagonal systems along the leading axis, factored once and solved repeatedly."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape.jax_settings.platform import platforms_in_use

Band = Float[Array, "rows systems"]


class Tridiagonal(eqx.Module):
    """A tridiagonal matrix A with the given bands, [rows, systems]; lower[0] and upper[-1] are ignored.

    sums: The sum of each row, if known; None in double precision, which does not need it. Where the diagonal is
    much larger than the sum, as for differences on a fine grid, so is its rounding error; A x is then computed
    from differences of x, and factors from the sums (Grassmann, Taksar and Heyman 1985).
    """

    lower: Band
    diagonal: Band
    upper: Band
    sums: Band | None = None

    def __check_init__(self):
        chex.assert_equal_shape([self.lower, self.diagonal, self.upper])

    @classmethod
    def with_sums(
        cls, sums: Array | float, lower: Band, diagonal: Band, upper: Band
    ) -> "Tridiagonal":
        """Return A with the sums of its rows, which broadcast to a band, in single precision."""
        if diagonal.dtype == jnp.float64:
            return cls(lower, diagonal, upper)
        sums = jnp.broadcast_to(jnp.asarray(sums, diagonal.dtype), diagonal.shape)
        return cls(lower, diagonal, upper, sums)

    def __matmul__(self, x: Band) -> Band:
        below = jnp.pad(x[:-1], ((1, 0), (0, 0)))
        above = jnp.pad(x[1:], ((0, 1), (0, 0)))
        return self._applied(below, x, above)

    def across(self, x: Float[Array, "systems rows"]) -> Float[Array, "systems rows"]:
        """Return A x along the last axis, for an A with transposed bands, without moving data."""
        below = jnp.pad(x[:, :-1], ((0, 0), (1, 0)))
        above = jnp.pad(x[:, 1:], ((0, 0), (0, 1)))
        return self._applied(below, x, above)

    def _applied(self, below: Array, x: Array, above: Array) -> Array:
        if self.sums is not None:
            return self.lower * (below - x) + self.upper * (above - x) + self.sums * x
        return self.lower * below + self.diagonal * x + self.upper * above

    @property
    def transposed(self) -> "Tridiagonal":
        """The same A with bands in the other layout, for `across` or `@`."""
        return jax.tree.map(jnp.transpose, self)

    def scaled(self, scale: Float[Array, ""]) -> "Tridiagonal":
        """Return scale A."""
        return jax.tree.map(lambda band: scale * band, self)

    def identity_minus(self, scale: Float[Array, ""] | float) -> "Tridiagonal":
        """Return I - scale A."""
        sums = None if self.sums is None else 1.0 - scale * self.sums
        return Tridiagonal(
            -scale * self.lower, 1.0 - scale * self.diagonal, -scale * self.upper, sums
        )

    def factored(self) -> "Factored":
        """Return a = L U by elimination without pivoting: for diagonally dominant A."""

        def eliminate(pivot, bands):
            lower, diagonal, upper_before = bands
            weight = lower * pivot
            pivot = 1.0 / (diagonal - weight * upper_before)
            return pivot, (weight, pivot)

        def eliminate_by_sums(before, bands):
            (pivot, rest), (lower, sums, upper) = before, bands
            weight = lower * pivot
            rest = sums - weight * rest  # the sum of this row of U
            pivot = 1.0 / (rest - upper)
            return (pivot, rest), (weight, pivot)

        lower, diagonal, upper, sums = jax.lax.stop_gradient(
            (self.lower, self.diagonal, self.upper, self.sums)
        )
        zero = jnp.zeros_like(lower[0])
        if sums is not None:
            bands = lower, sums, upper.at[-1].set(0.0)
            _, (weights, pivots) = jax.lax.scan(eliminate_by_sums, (zero, zero), bands)
        else:
            bands = lower, diagonal, jnp.pad(upper[:-1], ((1, 0), (0, 0)))
            _, (weights, pivots) = jax.lax.scan(eliminate, zero, bands)
        return Factored(self, weights, pivots)


class Factored(eqx.Module):
    """The factors of `matrix`: L = I + weights below the diagonal; U has 1 / pivots and the upper band."""

    matrix: Tridiagonal
    weights: Band
    pivots: Band

    def solve(self, b: Band) -> Band:
        """Return A^{-1} b, differentiable in b and the bands by one additional solve."""
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
    """Return x with x[i] = (b[i] - band[i] x[i - 1]) pivots[i], or x[i + 1] in reverse; None means 1."""

    def step(beside, of_row):
        band, pivot, b = of_row
        here = b - band * beside
        here = here if pivot is None else here * pivot
        return here, here

    rows = band, pivots, b
    # two rows a turn save overhead, but XLA's code for CPUs is then slower on long systems: one row
    # or two take 52 or 30 us for 120 x 40, and 43 or 107 us for 481 x 16
    is_slower = max(b.shape) > 128 and "cpu" in platforms_in_use()
    start = jnp.zeros_like(b[0])
    return jax.lax.scan(step, start, rows, reverse=reverse, unroll=1 if is_slower else 2)[1]
