"""American options under Black-Scholes: the European value plus the integral of the early-exercise premium.

Kim, Rev. Fin. Studies 3 (1990); Jacka, Math. Finance 1 (1991); Carr, Jarrow and Myneni, Math. Finance 2 (1992).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics.black import black
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import cdf as normal_cdf
from ..numerics.normal_law import density as normal_density
from ..numerics.safe_math import larger
from . import exercise_boundary as boundaries

Scalar = Float[Array, ""]


def american_value(
    spot: Scalar,
    strike: Scalar,
    expiry: Scalar,
    rate: Scalar,
    dividend_yield: Scalar,
    vol: Scalar,
    side: Scalar,
    *,
    num_dates: int = 32,
    num_nodes: int = 24,
    num_points: int = 64,
) -> Scalar:
    """Return the value of an American call (side = +1) or put (side = -1), in currency.

    C(spot, strike, rate, dividend_yield) = P(strike, spot, dividend_yield, rate).

    The value is NaN if the exercise region has two boundaries (a put with dividend_yield < rate < 0, a call
    with rate < dividend_yield < 0), or if the boundary equation does not converge. num_dates: the number of
    collocation dates of the boundary; num_nodes: the number of nodes of the integral in its equation;
    num_points: the number of nodes of the integral for the value.
    """
    is_call = side > 0.0
    spot, strike = jnp.where(is_call, strike, spot), jnp.where(is_call, spot, strike)
    rate, dividend = (
        expiry * jnp.where(is_call, dividend_yield, rate),
        expiry * jnp.where(is_call, rate, dividend_yield),
    )
    std = vol * jnp.sqrt(expiry)
    tiny = np.finfo(std.dtype).eps ** 2
    # bound of the premium from interest on the strike and dividends paid by the holder
    is_early = (rate >= 0.0) & (jnp.maximum(rate, -dividend) > tiny)
    is_double = (rate < 0.0) & (dividend < rate)

    rate_, dividend_ = jnp.where(is_early, rate, 0.05), jnp.where(is_early, dividend, 0.0)
    std_ = jnp.where(is_early, std, 0.2)
    excess = boundaries.exercise_boundary(rate_, dividend_, std_, num_dates, num_nodes)
    start = boundaries.log_start(rate_, dividend_)
    boundary = start - boundaries.depth_of(excess[0], start)
    log_spot = jnp.log(spot / strike)
    is_exercised = is_early & (log_spot <= boundary)
    is_alive = is_early & (log_spot > boundary)
    inside = jnp.where(is_alive, log_spot, boundary + std_)
    roots = boundaries.mesh(num_dates, num_nodes).roots
    premium = _premium(inside, excess, rate_, dividend_, std_, roots, num_points)

    forward = spot * jnp.exp(rate - dividend)
    held = jnp.exp(-rate) * black(forward, strike, std, jnp.full_like(std, -1.0))
    held = held + jnp.where(is_alive, strike * premium, 0.0)
    value = jnp.where(is_exercised, strike - spot, held)
    is_known = ~is_double & ~(is_early & ~jnp.isfinite(boundary))
    return value * jnp.where(is_known, 1.0, jnp.nan).astype(value.dtype)


def _premium(
    log_spot: Scalar,
    excess: Float[Array, " dates"],
    rate: Scalar,
    dividend: Scalar,
    std: Scalar,
    roots: np.ndarray,
    num_points: int,
) -> Scalar:
    """Return the early-exercise premium in units of the strike, with time in units of the expiry.

    int_0^1 [r e^(-r u) N(-d2) - q S e^(-q u) N(-d1)] du, d1, d2 at the spot S and the strike B(1 - u).
    Near the boundary, at the distance a = log(S / B(1)) / std, the integrand bends at sqrt(u) = a, where its
    second derivative in the spot has a peak. The same peak of (r - q S) N(-a / sqrt(u)), whose integral is
    known, is subtracted, and nodes are dense around a.
    """
    start = boundaries.log_start(rate, dividend)
    perpetual = boundaries.log_perpetual(rate, dividend, std)
    here = boundaries.depth_of(excess[0], start)
    distance = (log_spot - start + here) / std
    angle, weights = _points(distance, num_points)

    elapsed = jnp.sin(angle)
    remaining = jnp.maximum(jnp.cos(angle), 0.0)
    weights = weights * 2.0 * elapsed * remaining
    matrix = boundaries.barycentric(roots, remaining)[:, :-1]
    floor = boundaries.least_excess(remaining**2, start, perpetual, std)
    there = boundaries.depth_of(larger(matrix @ excess, floor), start)

    u, spread = elapsed**2, std * elapsed
    d1 = distance / elapsed + (there - here + (rate - dividend) * u) / spread + 0.5 * spread
    spot = jnp.exp(log_spot)
    interest = rate * jnp.exp(-rate * u) * normal_cdf(spread - d1)
    dividends = dividend * spot * jnp.exp(-dividend * u) * normal_cdf(-d1)
    peak = rate - dividend * spot
    tail = normal_cdf(-distance)
    taken_out = peak * ((1.0 + distance**2) * tail - distance * normal_density(distance))
    rest = interest - dividends - peak * normal_cdf(-distance / elapsed)
    return taken_out + jnp.sum(weights * rest)


def _points(
    distance: Scalar, num_points: int
) -> tuple[Float[Array, " points"], Float[Array, " points"]]:
    """Return angles in [0, pi/2] and weights: scale * sinh(t), t in Gauss-Legendre points.

    The spacing is linear up to the scale and logarithmic beyond. They are not differentiated.
    """
    points, weights = gauss_legendre(num_points)
    x, dx = 0.5 * (points + 1.0), 0.5 * weights
    share = jnp.asarray(x * (1.0 + x - x * x), distance.dtype)
    dshare = jnp.asarray((1.0 + 2.0 * x - 3.0 * x * x) * dx, distance.dtype)
    scale = jax.lax.stop_gradient(jnp.clip(distance, 1e-5, 1.0))
    most = jnp.arcsinh(0.5 * np.pi / scale)
    return scale * jnp.sinh(most * share), scale * jnp.cosh(most * share) * most * dshare
