"""Chains of options on assets with lognormal spots: the state is the log-spots."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import LognormalSpots
from ..numerics.safe_math import safe_sqrt
from ..products import SpotOption
from .claims import Claims, ExercisePayoff
from .exercise_problem import DISPERSION, ExerciseProblem, GaussianStep

_MOST_PAIRS = 5  # largest number of assets with claims on each pair

Times = Float[Array, " dates"]


def lognormal_chain(product: SpotOption, times: Times, model: LognormalSpots) -> ExerciseProblem:
    """Return the chain of an option; times: starting with 0 (today)."""
    log_spot, covariances, correlation = _moments(model, times)
    discount = jax.vmap(model.discount)(times)
    if product.average == "geometric":
        weights = product.weights_of(log_spot.shape[-1])
        log_spot = (log_spot @ weights)[:, None]
        covariances = (weights @ covariances @ weights)[:, None, None]
        correlation = jnp.ones((1, 1), log_spot.dtype)
    steps = jnp.diff(covariances, axis=0, prepend=covariances[:1])
    std = safe_sqrt(jnp.diagonal(steps, axis1=-2, axis2=-1))
    factor = std[:, :, None] * jnp.linalg.cholesky(correlation)[None]
    drift = jnp.diff(log_spot, axis=0, prepend=log_spot[:1])
    is_open = jnp.ones(times.shape, bool).at[0].set(product.any_time).at[-1].set(False)
    dim = log_spot.shape[-1]
    exercise = exercise_of(product, discount, jnp.eye(dim + 1, dim, dtype=log_spot.dtype))
    claims = _claims(product, discount[-1], log_spot, covariances)
    total = jnp.sqrt(jnp.diagonal(covariances[-1]))[:, None] * jnp.linalg.cholesky(correlation)
    return ExerciseProblem(
        log_spot[0],
        DISPERSION**0.5 * total,
        GaussianStep(exercise, is_open, discount, drift, factor, jnp.zeros_like(drift), claims),
    )


def _moments(model: LognormalSpots, times: Times) -> tuple[Array, Array, Array]:
    """Return means (dates, assets), covariances and the correlation of the log-spots."""
    forward, variance = jax.vmap(model.forward)(times), model.state_variance(times)
    if forward.ndim == 1:
        forward, variance = forward[:, None], variance[:, None]
        correlation = jnp.ones((1, 1), forward.dtype)
    else:
        correlation = model.residual_correlation
    std = safe_sqrt(variance)
    covariances = correlation[None] * std[:, :, None] * std[:, None, :]
    return jnp.log(forward) - 0.5 * variance, covariances, correlation


def exercise_of(
    product: SpotOption, discount: Times, slopes: Float[Array, "terms dim"]
) -> ExercisePayoff:
    """Return side * (average - strike) over dates; slopes: one for each log-spot in the state, and cash."""
    side, strike, dim = product.side, product.strike, len(slopes) - 1
    spots, cash = jnp.eye(dim, dtype=strike.dtype), jnp.ones((dim, 1), strike.dtype)
    if product.average == "arithmetic":
        spots, cash = product.weights_of(dim)[None], cash[:1]
    amounts = side * jnp.concatenate([spots, -strike * cash], axis=1)
    return ExercisePayoff(
        discount[:, None, None] * amounts[None],
        jnp.broadcast_to(slopes, (discount.size, *slopes.shape)),
        jnp.broadcast_to(side, discount.shape),
        best=product.average != "min",
    )


def _claims(product: SpotOption, discount: Array, means: Array, covariances: Array) -> Claims:
    """Return options to exchange one lognormal for another, or for cash, at expiry.

    For an arithmetic average, it is the option on the geometric average weighted by the assets' shares and
    scaled to the same forward; for one asset, the European option. For the best or worst, these are options on
    each asset and each pair.
    """
    dim, side, strike = means.shape[-1], product.side, product.strike
    axes = jnp.eye(dim, dtype=strike.dtype)
    zero, one = jnp.zeros_like(axes[0]), jnp.ones_like(strike)
    pairs = [(one, axes[i], strike, zero) for i in range(dim)]
    if product.average == "arithmetic":
        pairs = [(*_geometric(product, means[-1], covariances[-1]), strike, zero)]
    elif dim <= _MOST_PAIRS:
        pairs += [(one, axes[i], one, axes[j]) for i in range(dim) for j in range(i)]
    amounts = [discount * side * jnp.stack([bought, -sold]) for bought, _, sold, _ in pairs]
    slopes = [jnp.stack([rising, falling]) for _, rising, _, falling in pairs]
    normals = [side * (rising - falling) for _, rising, _, falling in pairs]
    levels = [side * jnp.log(sold / bought) for bought, _, sold, _ in pairs]
    dates, count = len(means), len(pairs)
    spread = lambda rows: jnp.broadcast_to(jnp.stack(rows), (dates, count, *rows[0].shape))
    over_claims = lambda x: jnp.broadcast_to(x[:, None], (dates, count, *x.shape[1:]))
    return Claims(
        spread(amounts),
        spread(slopes),
        spread(normals),
        spread(levels),
        over_claims(means[-1:] - means),
        over_claims(covariances[-1:] - covariances),
        jnp.ones((dates, count), side.dtype),
    )


def _geometric(product: SpotOption, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Return (c, g) such that c exp(g . x) has the forward and the slopes of the arithmetic average."""
    parts = product.weights_of(mean.size) * jnp.exp(mean + 0.5 * jnp.diagonal(covariance))
    total = jnp.sum(parts)
    shares = parts / total
    return total * jnp.exp(-(shares @ mean) - 0.5 * (shares @ covariance @ shares)), shares
