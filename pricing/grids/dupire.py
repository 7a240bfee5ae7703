"""Terminal claims under local volatility, by finite differences for the difference from Black's formula."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..models import LocalVolatility
from ..models.local_vol import LocalVariance
from ..numerics.black import exercise_probabilities
from ..numerics.tridiagonal import Tridiagonal
from ..products import TerminalClaim
from .stencil import first_difference, interpolation, rounded, second_difference, sinh_grid

Scalar = Float[Array, ""]
Nodes = Float[Array, " nodes"]

_REACH = 6.0  # standard deviations from the strike, and from the forward
_FINE = 0.3  # standard deviations within which nodes are dense


def local_vol_value(
    product: TerminalClaim,
    model: LocalVolatility,
    num_nodes: int,
    num_steps: int,
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the value in currency: discount (B(y, A) + d(y)) at y = log(forward / strike).

    With y = log(forward / strike), s(t, y) the local variance and tau the time to expiry, the undiscounted
    value solves u_tau = s / 2 (u_yy - u_y). B is Black's formula with the variance A integrated along the
    strike, so B_tau = s(t, 0) / 2 (B_yy - B_y). The rest, d = u - B, is 0 at expiry and has the source (s(t, y)
    / s(t, 0) - 1) B_tau, which vanishes at the strike: d is smooth, and 0 if s is flat. The scheme is
    Crank-Nicolson, with the source integrated over each step; nodes are dense at the strike, steps at expiry.
    """
    log_forward = jnp.log(model.forward(product.expiry) / product.strike)
    variances_at = model.local_variances
    y = _nodes(variances_at, product.expiry, log_forward, num_nodes)
    shares = jnp.arange(num_steps + 1, dtype=y.dtype) / num_steps
    times = product.expiry * (1.0 - shares**2)
    variances = jax.vmap(
        lambda start, end: variances_at.local_variance(start, end, y - log_forward)
    )(times[1:], times[:-1])
    along_strike = variances[:, y.size // 2]
    total = jnp.cumsum(along_strike)

    black = jax.vmap(lambda variance: _black(product, y, variance))(total)
    before = jnp.concatenate([_payoff(product, y)[None], black[:-1]])
    sources = (variances / along_strike[:, None] - 1.0) * (black - before)

    interior = jnp.ones_like(y).at[0].set(0.0).at[-1].set(0.0)
    d1, d2 = first_difference(y), second_difference(y)
    bands = [0.5 * interior * (b - a) for a, b in zip(d1, d2, strict=True)]

    def step(rest, of_step):
        variance, source = of_step
        operator = Tridiagonal.with_sums(0.0, *((variance * band)[:, None] for band in bands))
        explicit = rest + 0.5 * (operator @ rest) + (interior * source)[:, None]
        half = jnp.asarray(0.5, y.dtype)
        return operator.identity_minus(half).factored().solve(explicit), None

    start = jnp.zeros_like(y)[:, None]
    rest, _ = jaxtape.scan(step, start, (variances, sources), schedule=schedule)
    first, weights = interpolation(y, log_forward, 6)
    found = weights @ jax.lax.dynamic_slice(rest[:, 0], (first,), (6,))
    return model.discount(product.expiry) * (_black(product, log_forward, total[-1]) + found)


def _black(claim: TerminalClaim, y: Any, variance: Scalar) -> Any:
    """Return Black's undiscounted value at y = log(forward / strike)."""
    forward = claim.strike * jnp.exp(y)
    share, cash = exercise_probabilities(forward, claim.strike, jnp.sqrt(variance), claim.side)
    asset_units, cash_units = claim.units
    return asset_units * forward * share + cash_units * cash


def _payoff(claim: TerminalClaim, y: Nodes) -> Nodes:
    asset_units, cash_units = claim.units
    pays = claim.side * y > 0.0
    return jnp.where(pays, asset_units * claim.strike * jnp.exp(y) + cash_units, 0.0)


def _nodes(variances: LocalVariance, expiry: Scalar, log_forward: Scalar, count: int) -> Nodes:
    """Return an odd number of symmetric nodes, which are constant under small moves of the market."""
    strike_and_forward = jnp.stack([-log_forward, jnp.zeros_like(log_forward)])
    std = jnp.sqrt(jnp.max(variances.total_variance(expiry, strike_and_forward)))
    reach, fine = rounded(jnp.abs(log_forward) + _REACH * std), rounded(_FINE * std)
    half = count // 2
    return sinh_grid(jnp.arange(-half, half + 1, dtype=reach.dtype) / half, reach, fine)
