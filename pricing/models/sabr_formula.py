"""SABR: the implied volatility of dF = a F^beta dW, da = nu a dB, d<W, B> = rho dt, to first order in time."""

import functools
from collections.abc import Callable, Sequence
from math import comb, factorial

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from ..market.interpolation import as_floats
from ..numerics.safe_math import clipped, larger, nan_where, smaller

Real = Float[Array, "..."]
Reals = Num[ArrayLike, "..."]


def sabr_vol(
    forward: Reals,
    strike: Reals,
    expiry: Reals,
    alpha: Reals,
    beta: Reals,
    rho: Reals,
    nu: Reals,
    *,
    leading: str = "obloj",
) -> Real:
    """Return the implied volatility sigma = I0 (1 + I1 expiry) of Black's formula; shapes broadcast.

    With x = log(F / K), a = alpha (F K)^{-(1 - beta) / 2} and u = (1 - beta) x / 2,
    I0 = a u / sinh(u) z / chi(z), chi(z) = log((sqrt(1 - 2 rho z + z^2) + z - rho) / (1 - rho)),
    I1 = (1 - beta)^2 a^2 / 24 + rho beta nu a / 4 + (2 - 3 rho^2) nu^2 / 24.

    "obloj": z = nu x sinh(u) / (u a), with which I0 is exact as expiry -> 0: Obloj (2008), eq. 3. "hagan":
    z = nu x / a, and sinh(u) / u to fourth order, as first published: Hagan, Kumar, Lesniewski and Woodward
    (2002), eq. 2.17a. The two agree for beta = 1, and at the money.

    Both are expansions for small nu^2 expiry and a^2 expiry. I1 is the at-the-money correction for every
    strike; far from the money the vols imply arbitrage.

    Args:
        forward: F, above 0, in any unit.
        strike: The strike K, above 0, in the unit of the forward.
        expiry: The expiry in years.
        alpha: The initial volatility of F^beta, above 0, in units of the forward to the power 1 - beta.
        beta: The exponent, in [0, 1].
        rho: The correlation, in (-1, 1).
        nu: The volatility of volatility per square root of a year, at least 0.
        leading: The leading term: "obloj" or "hagan".

    Returns:
        The annualised volatility; NaN, with NaN derivatives, where the expansion is not above 0.

    Raises:
        ValueError: There is no such leading term.

    Examples:
        >>> from pricing.models import sabr_vol
        >>> vols = [sabr_vol(1.0, strike, 10.0, 0.25, 0.3, -0.8, 0.3) for strike in (0.5, 1.0, 2.0)]
        >>> " ".join(f"{vol:.4f}" for vol in vols)
        '0.3843 0.2427 0.1321'
    """
    if leading not in ("obloj", "hagan"):
        raise ValueError(f"leading must be one of 'obloj', 'hagan', got {leading!r}")
    forward, strike, expiry, alpha, beta, rho, nu = (
        as_floats(number) for number in (forward, strike, expiry, alpha, beta, rho, nu)
    )
    x, skew = jnp.log(forward / strike), 1.0 - beta
    level = alpha * jnp.exp(-0.5 * skew * jnp.log(forward * strike))
    u, z = 0.5 * skew * x, nu * x / level
    if leading == "obloj":
        stretch = _sinh_over(u)
        z = z * stretch
    else:
        stretch = _polynomial((1.0, 1.0 / 6.0, 1.0 / 120.0), u * u)
    of_time = (
        (skew * level) ** 2 / 24.0
        + 0.25 * rho * beta * nu * level
        + (2.0 - 3.0 * rho * rho) * nu * nu / 24.0
    )
    growth = 1.0 + of_time * expiry
    return nan_where(growth <= 0.0, level * growth / (stretch * _distance_over(z, rho)))


def _distance_over(z: Real, rho: Real) -> Real:
    """Return chi(z) / z, smooth through z = 0, where it is 1, and accurate as rho -> -1 or 1.

    With D = sqrt(1 - 2 rho z + z^2) and p = rho (rho - z), chi(z) = asinh(z h) by the addition theorem of
    asinh, with h = (1 + q) / (1 + D) and q = (D - p) / (1 - rho^2) = (1 + (rho - z)^2) / (D + p), whichever has
    no cancellation. Both hold on either side of p = 0.
    """
    gap, rest = rho - z, (1.0 - rho) * (1.0 + rho)
    root = jnp.sqrt(gap * gap + rest)
    p = rho * gap
    behind = (1.0 + gap * gap) / (root + larger(p, -0.5 * root))
    ahead = (root - smaller(p, 0.5 * root)) / rest
    h = (1.0 + jnp.where(p > 0.0, behind, ahead)) / (1.0 + root)
    return h * _asinh_over(z * h)


def _sinh_over(x: Real) -> Real:
    """Return sinh(x) / x."""
    return _even_quotient(jnp.sinh, x, [1.0 / factorial(2 * k + 1) for k in range(9)], 0.5)


def _asinh_over(x: Real) -> Real:
    """Return asinh(x) / x."""
    series = [(-0.25) ** k * comb(2 * k, k) / (2 * k + 1) for k in range(14)]
    return _even_quotient(jnp.arcsinh, x, series, 0.2)


def _even_quotient(
    function: Callable[[Real], Real], x: Real, series: Sequence[float], edge: float
) -> Real:
    """Return function(x) / x for an odd function; a series in x^2 within the edge keeps derivatives accurate.

    Both forms hold slightly beyond the edge, so rounding in the comparison does not matter.
    """
    inside = clipped(x, -1.1 * edge, 1.1 * edge)
    outside = larger(jnp.abs(x), 0.9 * edge)
    near = _polynomial(series, inside * inside)
    return jnp.where(jnp.abs(x) < edge, near, function(outside) / outside)


def _polynomial(coefficients: Sequence[float], x: Real) -> Real:
    return functools.reduce(lambda sum_, c: sum_ * x + c, reversed(coefficients), jnp.zeros_like(x))
