"""Nonuniform grids, three-point differences on them, and smooth interpolation between their nodes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..numerics.safe_math import clipped
from ..products import SingleBarrier, TerminalClaim, TwoBarriers

Nodes = Float[Array, " nodes"]
Bands = tuple[Nodes, Nodes, Nodes]


def sinh_grid(
    shares: Float[Array, " nodes"], reach: Float[Array, "..."], fine: Float[Array, ""]
) -> Nodes:
    """Return a sinh map of [-1, 1] to +-`reach`, finest at 0, with slope fine * arcsinh(reach / fine)."""
    return fine * jnp.sinh(shares * jnp.arcsinh(reach / fine))


def rounded(x: Float[Array, ""]) -> Float[Array, ""]:
    """Return x rounded to a power of 2^(1/4), so that bumps do not change grids; not differentiated."""
    return 2.0 ** (jnp.round(4.0 * jnp.log2(jax.lax.stop_gradient(x))) / 4.0)


def first_difference(x: Nodes) -> Bands:
    """Return (lower, diagonal, upper) of d/dx, second order inside, one-sided first order at the ends."""
    left, right = _spacings(x)
    lower = -right / (left * (left + right))
    upper = left / (right * (left + right))
    lower = lower.at[0].set(0.0).at[-1].set(-1.0 / left[-1])
    upper = upper.at[0].set(1.0 / right[0]).at[-1].set(0.0)
    return lower, -(lower + upper), upper


def second_difference(x: Nodes) -> Bands:
    """Return (lower, diagonal, upper) of d2/dx2 inside; zero at the ends."""
    left, right = _spacings(x)
    lower = (2.0 / (left * (left + right))).at[0].set(0.0).at[-1].set(0.0)
    upper = (2.0 / (right * (left + right))).at[0].set(0.0).at[-1].set(0.0)
    return lower, -(lower + upper), upper


def _spacings(x: Nodes) -> tuple[Nodes, Nodes]:
    """Return the distances to the left and right neighbors; the ends repeat their only distance."""
    gaps = jnp.diff(x)
    return jnp.concatenate([gaps[:1], gaps]), jnp.concatenate([gaps, gaps[-1:]])


def interpolation(
    x: Nodes, at: Float[Array, ""], points: int
) -> tuple[Int[Array, ""], Float[Array, " points"]]:
    """Return the first index and the weights of the Lagrange polynomial on the `points` nodes around `at`."""
    nearest = jnp.searchsorted(x, jax.lax.stop_gradient(at)) - points // 2
    first = jnp.clip(nearest, 0, x.size - points)
    nodes = jax.lax.dynamic_slice(x, (first,), (points,))
    gaps = nodes[:, None] - nodes[None, :] + jnp.eye(points, dtype=x.dtype)
    others = jnp.where(jnp.eye(points, dtype=bool), 1.0, (at - nodes)[None, :] / gaps)
    return first, jnp.prod(others, axis=1)


def averaged_vanilla(
    y: Nodes,
    anchor: Float[Array, ""],
    living: Float[Array, ""],
    strike: Float[Array, ""],
    side: Float[Array, ""],
) -> Nodes:
    """Return max(side (S - strike), 0) at log(S / anchor) = living y, averaged over each node's cell."""
    return _averaged(y, anchor, living, strike, side, (side, -side * strike))


def averaged_claim(
    y: Nodes, anchor: Float[Array, ""], living: Float[Array, ""], claim: TerminalClaim
) -> Nodes:
    """Return the payoff of a terminal claim at log(S / anchor) = living y, averaged over each node's cell."""
    return _averaged(y, anchor, living, claim.strike, claim.side, claim.units)


def _averaged(y, anchor, living, strike, side, units) -> Nodes:
    middles = 0.5 * (y[1:] + y[:-1])
    low, high = jnp.concatenate([y[:1], middles]), jnp.concatenate([middles, y[-1:]])
    kink = living * jnp.log(strike / anchor)
    pays_above = side * living > 0.0
    start = jnp.where(pays_above, clipped(kink, low, high), low)
    end = jnp.where(pays_above, high, clipped(kink, low, high))
    spots = anchor * living * (jnp.exp(living * end) - jnp.exp(living * start))
    asset, cash = units
    return (asset * spots + cash * (end - start)) / (high - low)


def averaged_payoff(product: SingleBarrier | TwoBarriers, y: Nodes) -> Nodes:
    """Return the payoff at log(S / barrier) = direction y of a contract whose barrier was not hit."""
    if product.cash is not None:
        return jnp.broadcast_to(product.cash, y.shape)
    anchor, living = product.barrier, product.barrier_direction
    return averaged_vanilla(y, anchor, living, product.strike, product.side)
