"""A control variate for payoffs at expiry under random variance: the zero-mean gains of a hedge."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import LogSpotSteps, MeanVariance

Steps = Float[Array, "steps paths"]

MOST_DATES = 8  # more of them cost as much as they save


def hedge_gains(
    value: Callable[[Steps, Steps], Steps],
    model: MeanVariance,
    walk: LogSpotSteps,
    expiry: Float[Array, ""],
) -> Float[Array, " paths"]:
    """Return the zero-mean gains of holding the derivatives of `value` from each date to the next.

    value: a function B of (m, w), undiscounted. m: the mean of spot / forward given the variance path so far, a
        martingale; w: the remaining variance, which is the part of past steps not explained by the variance
        path, plus the mean of all future steps. From each date to the next, the hedge holds dB/dm of m and
        dB/dw of the expectation of w. Both move with mean zero, so there is no bias; the closer B is to the
        value, the more variance the hedge removes. (Delta-based control variates: Glasserman 2003, sec. 4.1.2.)
    expiry: the end of the steps of `walk`, which have equal lengths, in years.
    """
    mean, variance = (jnp.cumsum(x, axis=0) for x in (walk.mean, walk.variance))
    after = jnp.exp(mean + 0.5 * variance)
    before = jnp.concatenate([jnp.ones_like(after[:1]), after[:-1]])
    reached = model.initial_variance + jnp.cumsum(walk.variance_change, axis=0)
    left = reached - walk.variance_change

    count = len(walk.mean)
    shares = np.arange(count + 1, dtype=expiry.dtype)[:, None] / count
    end, start = expiry * shares[1:], expiry * shares[:-1]
    length, ahead = end - start, expiry - start
    middle = ahead - 0.5 * length
    expected = model.mean_integral(model.mean_variance(left, length), middle)
    surprise = model.mean_integral(reached, middle) - expected
    total = variance - walk.variance + model.mean_integral(left, ahead)

    moves = (before, total), (after - before, surprise)
    return jnp.sum(jax.jvp(value, *moves)[1], axis=0)
