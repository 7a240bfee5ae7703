"""Values of rights to enter swaps as functions of the rate state, at each of a list of dates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...models import HullWhite
from ...numerics import normal_law
from ...numerics.chebyshev import chebyshev_points
from ...numerics.safe_math import larger, smaller

REACH = 5.0  # standard deviations of the state covered for paths
POINTS = 64  # Chebyshev points on this range
_NODES, _EDGE = 257, 7.0  # equally spaced nodes up to this number of standard deviations
_GAP = 2.0 * _EDGE / (_NODES - 1)
_FAR = 3.0  # gaps beyond which a B-spline's contribution is negligible

Table = Float[Array, "dates points all"]


def value_tables(
    rates: HullWhite,
    times: Float[Array, " dates"],
    pays_at: Float[Array, " payments"],
    until: Float[Array, " payments"],
    amounts: Float[Array, "payments columns"],
    may_exercise: Bool[Array, "dates options"],
) -> tuple[Table, Float[Array, " all"]]:
    """Return deflated values at Chebyshev points of the state for each date, and today's values.

    Columns: all swaps; the swap of each right, if entered; each right, if not exercised on that date. Points
    are `chebyshev_points(POINTS)` times REACH standard deviations of the state.

    Backward from the last date, V_k(x) = max(swap_k(x), E[V_{k+1} | x]) on equally spaced nodes, between which
    V_{k+1} is a cubic spline. Its mean over a Gaussian step of any length is known in closed form.

    times: decision and other dates in years, increasing; amounts: those of all swaps first, then of each
    right's swap, in currency, with `pays_at` and `until` as in `Flows`.
    """
    variance = rates.state_variance(times)
    std = jnp.sqrt(variance)
    grid = jnp.asarray(np.linspace(-_EDGE, _EDGE, _NODES), times.dtype)
    seen = jnp.asarray(REACH * chebyshev_points(POINTS), times.dtype)
    both = jnp.concatenate([grid, seen])
    step = jnp.append(jnp.sqrt(jnp.diff(variance)), 0.0)
    after = jnp.append(std[1:], std[-1])

    def swaps(t, x):
        bonds = rates.deflated_bond(t, jnp.maximum(pays_at, t)[None], x[:, None])
        return jnp.where(until[None] > t, bonds, 0.0) @ amounts

    @jax.checkpoint
    def back(later, here):
        t, std, step, after, may = here
        x = std * both
        waiting = _means(x, step, after) @ (_spline(later.dtype) @ later)
        entered = swaps(t, x)
        worth, on_grid = entered[:_NODES, 1:], waiting[:_NODES]
        value = jnp.where(may[None] & (worth > on_grid), worth, on_grid)
        return value, jnp.concatenate([entered, waiting], axis=1)[_NODES:]

    nothing = jnp.zeros((_NODES, amounts.shape[1] - 1), times.dtype)
    rows = (times, std, step, after, may_exercise)
    first, tables = jax.lax.scan(back, nothing, rows, reverse=True)
    start = jnp.zeros(1, times.dtype)
    today = _means(start, std[0], std[0]) @ (_spline(first.dtype) @ first)
    return tables, jnp.concatenate([swaps(jnp.zeros_like(times[0]), start), today], axis=1)[0]


def _means(x: Float[Array, " points"], step: Array, std: Array) -> Float[Array, "points splines"]:
    """Return E[B_j(x + step z)] for the cubic B-splines on the nodes of a state with standard deviation `std`.

    B_j is a fourth difference of the cubes (d)_+^3 / 6, whose mean over d + s z is
    (d^3 + 3 d s^2) N(d / s) + (d^2 + 2 s^2) s n(d / s); nodes on the left of x take the cubes of -d.
    """
    gap = std * _GAP
    point, spread = x / gap + _EDGE / _GAP, step / gap
    knots = jnp.arange(-3, _NODES + 3, dtype=x.dtype)
    distance = point[:, None] - knots[None]
    right, left = (_fourth(_cube_mean(d, spread)) for d in (distance, -distance))
    is_right = jnp.arange(-1, _NODES + 1, dtype=x.dtype)[None] >= point[:, None]
    return jnp.where(is_right, right, left)


def _cube_mean(d: Array, s: Array) -> Array:
    """Return E[(d + s z)_+^3], for d not far above 0."""
    d = smaller(d, _FAR)
    moves = s > 0.0
    safe = jnp.where(moves, s, 1.0)
    scaled = d / safe
    moved = (d**3 + 3.0 * d * safe**2) * normal_law.cdf(scaled)
    moved = moved + (d**2 + 2.0 * safe**2) * safe * normal_law.density(scaled)
    return jnp.where(moves, moved, larger(d, 0.0) ** 3)


def _fourth(cubes: Float[Array, "points knots"]) -> Float[Array, "points splines"]:
    last = cubes.shape[1] - 4
    one, two, three, four, five = (cubes[:, r : r + last] for r in range(5))
    return (one - 4.0 * two + 6.0 * three - 4.0 * four + five) / 6.0


@functools.cache
def _natural() -> np.ndarray:
    """Return the matrix from values at the nodes to B-spline coefficients, linear at both ends."""
    rows = np.zeros((_NODES + 2, _NODES + 2))
    for i in range(_NODES):
        rows[i + 1, i : i + 3] = np.array([1.0, 4.0, 1.0]) / 6.0
    rows[0, :3] = rows[-1, -3:] = [1.0, -2.0, 1.0]
    return np.linalg.inv(rows)[:, 1:-1]


def _spline(dtype) -> Float[Array, "splines nodes"]:
    return jnp.asarray(_natural(), dtype)
