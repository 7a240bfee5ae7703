"""Piecewise linear functions of a normal variable: least squares, conditional means and Hermite moments."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ...numerics import safe_math
from ..path_shares import ALL_PATHS, PathShare

_FURTHEST = 4.0  # standard deviations at which the knots end
# paths whose squared error weighs as much as the squared change of slope at a knot
_STIFFNESS = 1.0
_RIDGE = 1e-3  # paths of value 0 at every knot
MEANS = 129  # points of a table of conditional means
NARROWEST = 2.0 * _FURTHEST / (MEANS - 1)  # least deviation for which these tables are accurate
_AT_ONCE = 64  # contracts whose matrices [knots, knots] are in memory together

Table = Float[Array, "contracts knots"]
Points = Float[Array, "contracts points"]


def places(count: int, dtype) -> Float[Array, " knots"]:
    """Return the knots, equally spaced over 4 standard deviations on both sides."""
    return jnp.linspace(-_FURTHEST, _FURTHEST, count, dtype=dtype)


def clipped(x: Points) -> Points:
    """Return points moved into the range of the knots."""
    return safe_math.clipped(x, -_FURTHEST, _FURTHEST)


def linear(table: Table, x: Points) -> Points:
    """Return the function with the given values at the knots, continued linearly."""
    index, part = _pieces(table.shape[1], x)
    first, second = _at(table, index), _at(table, index + 1)
    return first + part * (second - first)


def cubic(values: Table, slopes: Table, x: Points) -> Points:
    """Return the function with the given values and slopes at equally spaced points, cubic between them."""
    count = values.shape[1]
    index, part = _pieces(count, clipped(x))
    width = 2.0 * _FURTHEST / (count - 1)
    first, second = _at(values, index), _at(values, index + 1)
    start, end = width * _at(slopes, index), width * _at(slopes, index + 1)
    rise = second - first
    bend = 3.0 * rise - 2.0 * start - end + part * (start + end - 2.0 * rise)
    return first + part * (start + part * bend)


def smoothed(
    table: Table, deviation: Float[Array, " contracts"], share: PathShare = ALL_PATHS
) -> tuple[Float[Array, "contracts means"], Float[Array, "contracts means"]]:
    """Return E v(m + deviation N) and its slope in m at 129 points m, N normal, v with values `table`.

    `cubic` adds an error of about 1e-7 between these points unless the deviation is below `NARROWEST`. Devices
    that share the paths share the contracts, too.
    """

    def of_contract(given: tuple[Array, Array]) -> tuple[Array, Array]:
        row, deviation = given
        knots = places(row.size, row.dtype)
        mass, moment, _ = _weights(knots, places(MEANS, row.dtype), deviation)
        rise = jnp.diff(row)
        slopes = rise / (knots[1] - knots[0])
        return mass @ row[:-1] + moment @ rise, mass @ slopes

    least = jnp.asarray(1e-6, table.dtype)
    given = table, jnp.maximum(deviation, least)
    return share.map_rows(of_contract, given, _AT_ONCE)


def moments(table: Table) -> Float[Array, "contracts 3"]:
    """Return E v(N) h(N) for the orthonormal Hermite polynomials h of degree 0 to 2."""
    knots = places(table.shape[1], table.dtype)
    (mass,), (moment,), (drop,) = _weights(
        knots, jnp.zeros(1, table.dtype), jnp.ones((), table.dtype)
    )
    rise = jnp.diff(table)
    slopes = rise / (knots[1] - knots[0])
    mean = table[:, :-1] @ mass + rise @ moment
    return jnp.stack([mean, slopes @ mass, slopes @ drop / math.sqrt(2.0)], axis=1)


class PieceSums(NamedTuple):
    """Sums over paths for the least squares on piecewise linear functions.

    squares: of each knot's hat function; products: of those of neighbours; targets: of target times hat.
    """

    squares: Table
    products: Table
    targets: Table

    @classmethod
    def of(cls, x: Points, target: Points, count: int) -> "PieceSums":
        """Return the sums over points within the range of the knots."""
        index, part = _pieces(count, x)
        is_within = (part >= 0.0) & (part <= 1.0)
        first, second = (jnp.where(is_within, share, 0.0) for share in (1.0 - part, part))
        rows = jnp.arange(len(x))[:, None]
        zero = jnp.zeros((len(x), count), x.dtype)
        by_piece = lambda a: zero.at[rows, index].add(a, mode="promise_in_bounds")
        at_both = lambda a, b: by_piece(a) + jnp.roll(by_piece(b), 1, axis=1)
        squares = at_both(first**2, second**2)
        return cls(squares, by_piece(first * second), at_both(first * target, second * target))

    def table(self) -> Table:
        """Return the fitted values at the knots; where paths are few, slopes hardly change."""
        count, dtype = self.squares.shape[1], self.squares.dtype
        second = np.diff(np.eye(count), 2, axis=0)
        stiff = _STIFFNESS * second.T @ second + _RIDGE * np.eye(count)
        band = lambda k: jnp.asarray(np.append(np.diagonal(stiff, k), np.zeros(k)), dtype)[None]
        diagonal, beside = self.squares + band(0), self.products + band(1)
        beyond = jnp.broadcast_to(band(2), diagonal.shape)
        return _solved(diagonal, beside, beyond, self.targets)


def _solved(diagonal: Table, beside: Table, beyond: Table, right: Table) -> Table:
    """Solve symmetric systems with five diagonals by elimination, L D L' x = right."""

    def down(before, of_row):
        """Eliminate one row: pivots, multipliers and right-hand sides of the two rows before."""
        (pivot, multiplier, far, y), (pivot2, far2, y2) = before
        diagonal, beside, beyond, right = of_row
        own = diagonal - multiplier**2 * pivot - far2**2 * pivot2
        y_own = right - multiplier * y - far2 * y2
        next_ = (beside - far * multiplier * pivot) / own
        found = own, next_, beyond / own, y_own
        return (found, (pivot, far, y)), found

    def up(after, of_row):
        x, x2 = after
        pivot, multiplier, far, y = of_row
        own = y / pivot - multiplier * x - far * x2
        return (own, x), own

    zero = jnp.zeros_like(diagonal[:, 0])
    rows = diagonal.T, beside.T, beyond.T, right.T
    _, found = jax.lax.scan(down, ((zero,) * 4, (zero,) * 3), rows)
    return jax.lax.scan(up, (zero, zero), found, reverse=True)[1].T


def _pieces(count: int, x: Points) -> tuple[Int[Array, "contracts points"], Points]:
    """Return the piece of every point, and the part of it before the point; outside, of the nearest piece."""
    place = (x + _FURTHEST) * ((count - 1) / (2.0 * _FURTHEST))
    index = jnp.clip(place, 0.0, count - 2.0).astype(jnp.int32)
    return index, place - index.astype(place.dtype)


def _at(table: Table, index: Int[Array, "contracts points"]) -> Points:
    return jnp.take_along_axis(table, index, axis=1, mode="promise_in_bounds")


def _weights(
    knots: Array, means: Float[Array, " means"], deviation: Array
) -> tuple[Float[Array, "means pieces"], Float[Array, "means pieces"], Array]:
    """Return P(x in piece), E[part of the piece before x; x in piece], and the normal densities at the ends.

    x is normal. The first and the last piece are infinite.
    """
    ends = knots.at[0].set(-jnp.inf).at[-1].set(jnp.inf)
    x = (ends[None] - means[:, None]) / deviation
    below, above, density = norm.cdf(x), norm.cdf(-x), norm.pdf(x)
    mass = jnp.where(x[:, :-1] > 0.0, -jnp.diff(above), jnp.diff(below))
    drop = -jnp.diff(density)
    moment = (means[:, None] - knots[None, :-1]) * mass + deviation * drop
    return mass, moment / (knots[1] - knots[0]), drop
