"""Where a calibration may start: the model's own parameters, then random ones."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pricing.models import AbstractModel, Heston, HullWhite

from .transforms import Parameters

Ranges = Mapping[str, tuple[float, float]]

# Uniform in the free space between the ends: log-uniform for a positive parameter.
RANGES: dict[type, Ranges] = {
    Heston: {
        "initial_variance": (0.01, 0.5),
        "mean_reversion": (0.2, 20.0),
        "long_run_variance": (0.01, 0.5),
        "vol_of_vol": (0.1, 4.0),
        "correlation": (-0.9, 0.5),
    },
    HullWhite: {"mean_reversion": (-0.05, 0.3), "vol": (0.002, 0.03)},
}


@eqx.filter_jit
def random_starts(
    parameters: Parameters, model: AbstractModel, num_starts: int, key: PRNGKeyArray
) -> Float[Array, "starts parameters"]:
    """`num_starts` points of the free space; the first is the model itself.

    Raises TypeError where random starts are asked for and the model's type has no ranges.
    """
    if num_starts < 1:
        raise ValueError(f"starts must be at least 1, got {num_starts}")
    own = parameters.free(model)[None]
    if num_starts == 1:
        return own
    ranges = RANGES.get(type(model), {})
    unknown = [name for name in parameters.names if name not in ranges]
    if unknown:
        raise TypeError(
            f"no range to draw a random start of {', '.join(unknown)} from for "
            f"{type(model).__name__}: use starts=1, or add it to calibration.starts.RANGES"
        )
    low, high = (
        jnp.stack(
            [
                transform.to_free(jnp.asarray(ranges[name][end], own.dtype))
                for name, transform in zip(parameters.names, parameters.transforms, strict=True)
            ]
        )
        for end in (0, 1)
    )
    draw = lambda key: jax.random.uniform(key, own.shape[1:], own.dtype, low, high)  # noqa: E731
    return jnp.concatenate([own, jax.vmap(draw)(jax.random.split(key, num_starts - 1))])
