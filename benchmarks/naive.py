"""The usual Monte Carlo Greeks, for comparison with the library's: biased, or very noisy.

Paths are lognormal in steps given the variance path, as in the library; payoffs are plain functions of spots.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import StoreAll
from pricing.models import ConditionallyGaussian

Spots = Float[Array, "steps paths"]
Samples = Float[Array, " paths"]
Payoff = Callable[[Spots], Samples]


class Paths(NamedTuple):
    """Paths spot * growth; the first step's log has this standard deviation, and comes from `normal`."""

    growth: Spots
    first_std: Samples
    first_normal: Samples

    @classmethod
    def draw(
        cls,
        model: ConditionallyGaussian,
        times: Float[Array, " steps"],
        key: PRNGKeyArray,
        count: int,
        at_once: bool = False,
    ) -> "Paths":
        """Draw paths; with `at_once`, the spot, given the variance path, goes to the last time in one step."""
        of_variance, of_spot = (
            jax.random.normal(k, (times.size, count)) for k in jax.random.split(key)
        )
        walk = model.walk(of_variance, times, StoreAll())
        mean, variance = walk.mean, walk.variance
        if at_once:
            mean, variance = (jnp.sum(x, axis=0, keepdims=True) for x in (mean, variance))
            times, of_spot = times[-1:], of_spot[-1:]
        std = jnp.sqrt(variance)
        forward = jax.vmap(model.forward)(times) / model.spot
        growth = forward[:, None] * jnp.exp(jnp.cumsum(mean + std * of_spot, axis=0))
        return cls(growth, std[0], of_spot[0])


def twice_pathwise(payoff: Payoff, paths: Paths, spot: float) -> Samples:
    """Return the second derivative of each sample, which ignores kinks and jumps."""
    value = lambda s: payoff(s * paths.growth)
    return _derivative(_derivative(value))(jnp.asarray(spot))


def likelihood_ratio(payoff: Payoff, paths: Paths, spot: float) -> Samples:
    """Return the payoff times p''/p, where p is the density of the spot after the first step."""
    z, std = paths.first_normal, paths.first_std
    weight = (z**2 - 1.0) / (spot * std) ** 2 - z / (spot**2 * std)
    return weight * payoff(spot * paths.growth)


def pathwise_then_likelihood_ratio(payoff: Payoff, paths: Paths, spot: float) -> Samples:
    """Return pathwise Delta, differentiated through the density of the spot after the first step.

    Delta is slope(spots) . spots / spot: with the spots held, the second factor still depends on the spot.
    """
    delta = _derivative(lambda s: payoff(s * paths.growth))(jnp.asarray(spot))
    score = paths.first_normal / (spot * paths.first_std)
    return delta * (score - 1.0 / spot)


def differences(payoff: Payoff, paths: Paths, spot: float, bump: float) -> Samples:
    """Return central second differences, with the same noise on all three spots."""
    up, middle, down = (payoff(s * paths.growth) for s in (spot + bump, spot, spot - bump))
    return (up - 2.0 * middle + down) / bump**2


def _derivative(function: Callable[[Array], Samples]) -> Callable[[Array], Samples]:
    return lambda s: jax.jvp(function, (s,), (jnp.ones_like(s),))[1]


def full_truncation_euler(
    parameters: Float[Array, "5"],
    normals: Float[Array, "2 steps paths"],
    strike: float,
    rate: float,
) -> Samples:
    """Return discounted payoffs of a one-year call on a spot of 100 under Heston, by full-truncation Euler.

    `parameters` are initial_variance, mean_reversion, long_run_variance, vol_of_vol, correlation. Along paths,
    sqrt(max(v, 0)) has no bounded derivative: see dV/dv0.
    """
    start, kappa, theta, xi, rho = parameters
    dt = 1.0 / normals.shape[1]

    def step(state, z):
        v, log_spot = state
        positive = v > 0.0
        root = jnp.where(positive, jnp.sqrt(jnp.where(positive, v, 1.0)), 0.0)
        held = jnp.maximum(v, 0.0)
        shock = rho * z[0] + jnp.sqrt(1.0 - rho**2) * z[1]
        log_spot = log_spot + (rate - 0.5 * held) * dt + root * jnp.sqrt(dt) * shock
        return (v + kappa * (theta - held) * dt + xi * root * jnp.sqrt(dt) * z[0], log_spot), None

    paths = jnp.zeros(normals.shape[-1])
    (_, log_spot), _ = jax.lax.scan(step, (start + paths, paths), jnp.swapaxes(normals, 0, 1))
    return jnp.exp(-rate) * jnp.maximum(100.0 * jnp.exp(log_spot) - strike, 0.0)
