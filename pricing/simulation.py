"""Simulated spots of a model."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from .argument_kinds import of_kinds
from .estimators.path_claim import PathClaimEstimator, log_spot_steps, spots_of
from .fields import in_working_precision
from .methods import MonteCarlo
from .models import AbstractModel, ConditionallyGaussian
from .numerics.differentiable_once import differentiable_once
from .products import PathPayoff
from .valuation import MODEL, unsupported_reason

if TYPE_CHECKING:
    from .fields import Reals

_ONCE = (
    "simulated spots are differentiated along paths, once: a second derivative would miss the kinks of a "
    "payoff; greeks(PathPayoff(...), ...) has Gamma"
)


@of_kinds(model=MODEL)
@full_matmul_precision
def simulate(
    model: AbstractModel,
    dates: "Reals",
    *,
    key: PRNGKeyArray,
    num_paths: int = 65536,
    num_steps: int = 64,
) -> Float[Array, "paths dates *assets"]:
    """Return spots of independent paths of a model on some dates.

    Derivatives are pathwise, which is right for the mean of a function without jumps. A second derivative would
    miss kinks (that of a call would be 0) and raises TypeError; `greeks` of a `PathPayoff` has Gamma.

    Args:
        model: A model that `MonteCarlo` simulates, such as `BlackScholes` or `Heston`.
        dates: The times of the spots in years, increasing, above 0.
        key: The seed.
        num_paths: The number of paths.
        num_steps: The number of time steps to the last date if the variance is random.

    Returns:
        The spots in currency.

    Raises:
        TypeError: `MonteCarlo` cannot simulate the model, or spots are differentiated twice.

    Examples:
        >>> import jax
        >>> from pricing import BlackScholes, simulate
        >>> spots = simulate(BlackScholes(100.0, 0.02, 0.2), [0.5, 1.0], key=jax.random.key(0))
        >>> spots.shape
        (65536, 2)
    """
    method = MonteCarlo(num_paths=num_paths, num_steps=num_steps)
    several = model.underlying.ndim > 0
    product = PathPayoff(jnp.sum, dates, has_jumps=False, multi_asset=several)
    if (reason := unsupported_reason(product, model, method)) is not None:
        raise TypeError(f"MonteCarlo cannot simulate this: {reason}")
    return _spots(product, in_working_precision(model), method, key)[:num_paths]


@stored_jit
def _spots(
    product: PathPayoff, model: ConditionallyGaussian, method: MonteCarlo, key: PRNGKeyArray
) -> Float[Array, "paths dates *assets"]:
    estimator = PathClaimEstimator()

    def spots(product, model, method, key) -> Array:
        def of_block(index: Array) -> Array:
            paths = method.paths(product, model, estimator, index, key=key)
            draw = method.draw(product, model, estimator, paths)
            steps = log_spot_steps(product.dates, model, draw.walk).at(draw.normals)
            return jnp.moveaxis(spots_of(steps), -1, 0)

        found = method.over_blocks(of_block)
        return found.reshape(-1, *found.shape[2:])

    return differentiable_once(spots, _ONCE)(product, model, method, key)
