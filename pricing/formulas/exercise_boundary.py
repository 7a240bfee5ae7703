"""The exercise boundary of an American put: its integral equation, solved by collocation and Newton's method.

Andersen, Lake and Offengenden, "High performance American option pricing", J. Comput. Finance 20(1) (2016):
log(B)^2 is a polynomial in the square root of time through Chebyshev points. Newton's method for all dates
together replaces their fixed-point iteration, because the derivative of one date's equation to the other dates
costs little more than the equation.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics.elimination import eliminate
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import cdf as normal_cdf
from ..numerics.normal_law import density as normal_density
from ..numerics.safe_math import larger

Scalar = Float[Array, ""]
MOST_STEPS = 40  # Newton steps; five or six are typical


class Mesh(NamedTuple):
    """The collocation dates of the boundary, and the points at which its equations evaluate it.

    roots: square roots of the dates in units of the expiry, Chebyshev points of [0, 1] in descending order,
        ending with 0 [dates + 1]; angles: the integral's nodes, so that sin(angle)^2 is the fraction of a
        date's time that has passed and cos(angle)^2 the fraction that remains, and square roots are resolved at
        both ends; weights: the integral's weights, in units of a date's time [nodes]; interpolation: from dates
        to nodes [dates, nodes, dates].
    """

    roots: np.ndarray
    angles: np.ndarray
    weights: np.ndarray
    interpolation: np.ndarray


@functools.cache
def mesh(num_dates: int, num_nodes: int) -> Mesh:
    """Return the mesh with the given numbers of boundary dates and integral nodes."""
    roots = 0.5 * (1.0 + np.cos(np.pi * np.arange(num_dates + 1) / num_dates))
    points, weights = gauss_legendre(num_nodes)
    angles = 0.25 * np.pi * (points + 1.0)
    at = roots[:-1, None] * np.cos(angles)
    matrix = np.asarray(barycentric(roots, at.reshape(-1), np))
    weights = 0.25 * np.pi * weights * np.sin(2.0 * angles)
    return Mesh(roots, angles, weights, matrix.reshape(*at.shape, -1)[..., :-1])


def barycentric(roots: np.ndarray, at, xp=jnp):
    """Return the matrix (m, n) from values at the n Chebyshev points `roots` to values at the m points `at`.

    Berrut and Trefethen, SIAM Review 46 (2004), eq. 5.4.
    """
    signs = (-1.0) ** np.arange(len(roots))
    signs[0] *= 0.5
    signs[-1] *= 0.5
    distance = at[:, None] - xp.asarray(roots, at.dtype)[None, :]
    distance = xp.where(distance == 0.0, 1e-30, distance)
    terms = xp.asarray(signs, at.dtype)[None, :] / distance
    return terms / xp.sum(terms, axis=1, keepdims=True)


def log_start(rate: Scalar, dividend: Scalar) -> Scalar:
    """Return the log of the boundary at expiry, log min(1, rate / dividend)."""
    below = dividend > rate
    return jnp.log(jnp.where(below, rate / jnp.where(below, dividend, 1.0), 1.0))


def log_perpetual(rate: Scalar, dividend: Scalar, std: Scalar) -> Scalar:
    """Return the log of the boundary of the perpetual put (McKean 1965; Merton 1973)."""
    slope = (rate - dividend) / std**2 - 0.5
    root = jnp.sqrt(slope**2 + 2.0 * rate / std**2)
    # one of the two forms has no cancellation
    small = 2.0 * rate / std**2 / jnp.where(slope < 0.0, root - slope, 1.0)
    power = jnp.where(slope < 0.0, small, slope + root)
    return -jnp.log1p(1.0 / jnp.maximum(power, 1e-30))


def least_excess(times: Array, start: Scalar, perpetual: Scalar, std: Scalar) -> Array:
    """Return a lower bound of log(B)^2 less its start, to keep interpolated values positive."""
    square = 0.1 / (1.0 / (std**2 * times) + 1.0 / perpetual**2)
    return larger(square - start**2, 0.0)


def depth_of(excess: Array, start: Scalar) -> Array:
    """Return the distance of log(B) below its start."""
    return excess / (jnp.sqrt(excess + start**2) - start)


def _equation(
    excess: Float[Array, " dates"], rate: Scalar, dividend: Scalar, std: Scalar, grid: Mesh
) -> tuple[Float[Array, " dates"], Float[Array, "dates dates"]]:
    """Return log(gain / cost) of holding at the boundary at each date, and its derivative to `excess`.

    Delta is -1 at the boundary B (rate, dividend, std and time are in units of the expiry):
    e^(-q t) N(d(t)) + q int_0^t e^(-q u) N(d) du = int_0^t e^(-q u) n(d) (r / B(t - u) - q) / (std sqrt(u)) du,
    d(u) = log(B(t) / B(t - u)) / (std sqrt(u)) + ((r - q) / std + std / 2) sqrt(u), B(0) = 1 in d(t).
    """
    typed = functools.partial(jnp.asarray, dtype=std.dtype)
    root, weights, matrix = map(typed, (grid.roots[:-1], grid.weights, grid.interpolation))
    elapsed = typed(np.sin(grid.angles))[None, :] * root[:, None]
    remaining = typed(np.cos(grid.angles))[None, :] * root[:, None]
    start, perpetual = log_start(rate, dividend), log_perpetual(rate, dividend, std)
    drift = (rate - dividend) / std + 0.5 * std

    here, inside = depth_of(excess, start), matrix @ excess
    floor = least_excess(remaining**2, start, perpetual, std)
    there = depth_of(larger(inside, floor), start)

    spread = std * elapsed  # std sqrt(u)
    d = (there - here[:, None]) / spread + drift / std * spread
    fade = jnp.exp(-dividend * elapsed**2) * root[:, None] ** 2 * weights[None, :]
    mass, density = fade * normal_cdf(d), fade * normal_density(d) / spread
    growth = larger(rate, dividend)  # rate / B at expiry
    slope = growth * jnp.expm1(there) + larger(rate - dividend, 0.0)
    paid, received = larger(dividend, 0.0), larger(-dividend, 0.0)
    d_end, outlast = (start - here) / (std * root) + drift * root, jnp.exp(-dividend * root**2)
    gain = outlast * normal_cdf(d_end) + paid * jnp.sum(mass, axis=1)
    cost = jnp.sum(received * mass + slope * density, axis=1)

    by_here = density * ((received - d * slope / spread) / cost[:, None] - (paid / gain)[:, None])
    by_there = -by_here - density * growth * jnp.exp(there) / cost[:, None]
    by_end = outlast * normal_density(d_end) / (std * root * gain)
    by_excess = 0.5 / jnp.sqrt(excess + start**2)
    by_inside = jnp.where(inside > floor, 0.5 / (there - start), 0.0)
    jacobian = jnp.einsum("ik,ikj->ij", by_there * by_inside, matrix)
    jacobian += jnp.diag((jnp.sum(by_here, axis=1) - by_end) * by_excess)
    return jnp.log(gain) - jnp.log(cost), jacobian


def _first_guess(rate: Scalar, dividend: Scalar, std: Scalar, grid: Mesh) -> Float[Array, " dates"]:
    """Return an initial boundary between the asymptotics near expiry and the perpetual boundary.

    Near expiry: Evans, Kuske and Keller, Math. Finance 12 (2002), theorem 2; their 0.638 for a start below 1.
    """
    times = jnp.asarray(grid.roots[:-1] ** 2, std.dtype)
    start, perpetual = log_start(rate, dividend), log_perpetual(rate, dividend, std)
    pull = (jnp.maximum(rate - dividend, 0.0) / std) ** 2 + 2.0 * rate**2 * times
    wide = std * jnp.sqrt(times * jnp.log(1.5 + 1.0 / (8.0 * np.pi * times * pull + 1e-30)))
    depth = jnp.maximum(wide + start, 0.64 * std * jnp.sqrt(times))
    most = start - perpetual
    depth = most * jnp.sqrt(-jnp.expm1(-((depth / most) ** 2)))
    return depth * (depth - 2.0 * start)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _solution(
    rate: Scalar, dividend: Scalar, std: Scalar, num_dates: int, num_nodes: int
) -> tuple[Float[Array, " dates"], Float[Array, "dates dates"]]:
    """Return the excess, and the inverse of the equation's derivative there, which must not be differentiated.

    The derivative is nearly triangular, because dates depend mostly on earlier ones, and needs no pivoting.
    """
    grid = mesh(num_dates, num_nodes)
    enough = np.sqrt(np.finfo(std.dtype).eps)  # convergence is quadratic

    def is_open(state):
        _, change, step = state
        return (change > enough) & (step < MOST_STEPS)

    def improved(state):
        excess, _, step = state
        error, jacobian = _equation(excess, rate, dividend, std, grid)
        move = eliminate(jacobian, error[:, None])[:, 0]
        change = jnp.max(jnp.abs(move)) / jnp.max(excess)
        better = jnp.clip(excess - move, 0.25 * excess, 4.0 * excess)
        return jnp.clip(better, 0.1 * guess, 40.0 * guess), change, step + 1

    guess = _first_guess(rate, dividend, std, grid)
    first = (guess, jnp.full((), np.inf, std.dtype), jnp.zeros((), jnp.int32))
    excess, change, _ = jax.lax.while_loop(is_open, improved, first)
    excess = jnp.where(change <= enough, excess, jnp.nan)
    _, jacobian = _equation(excess, rate, dividend, std, grid)
    return excess, eliminate(jacobian, jnp.eye(num_dates, dtype=std.dtype))


@_solution.defjvp
def _solution_jvp(num_dates, num_nodes, numbers, tangents):
    """Differentiate implicitly: d excess = -(d equation / d excess)^-1 d equation, at the solution."""
    rate, dividend, std = numbers
    grid = mesh(num_dates, num_nodes)
    excess, inverse = _solution(rate, dividend, std, num_dates, num_nodes)
    held = lambda rate, dividend, std: _equation(excess, rate, dividend, std, grid)[0]
    _, error = jax.jvp(held, numbers, tangents)
    _, jacobian = _equation(excess, rate, dividend, std, grid)
    fixed = jax.lax.stop_gradient(inverse)
    moved = jax.lax.custom_linear_solve(
        lambda x: jacobian @ x,
        -error,
        solve=lambda _, b: fixed @ b,
        transpose_solve=lambda _, b: b @ fixed,
    )
    return (excess, inverse), (moved, jnp.zeros_like(inverse))


def exercise_boundary(
    rate: Scalar, dividend: Scalar, std: Scalar, num_dates: int, num_nodes: int
) -> Float[Array, " dates"]:
    """Return log(B)^2 less its value at expiry, at the dates of `mesh`; NaN if Newton does not converge.

    It applies to a put with strike and expiry 1, and rate > 0, or rate = 0 > dividend. It has derivatives of
    every order to rate, dividend and std (implicit function theorem).
    """
    return _solution(rate, dividend, std, num_dates, num_nodes)[0]
