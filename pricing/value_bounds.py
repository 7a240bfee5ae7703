"""The verb: between what lies the value of a right to exercise early?"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .methods import LeastSquares
from .models import AbstractModel
from .products import AbstractProduct
from .results import RESULTS
from .valuation import applicable, mean_and_error, over_batch

Real = Float[Array, "*batch"]


class Between(eqx.Module):
    """A lower and an upper bound, and the gap between them (currency)."""

    lower: Real
    upper: Real
    gap: Real


class Bounds(Between):
    """`Between`, and the standard error of each: lower and upper come from the same paths."""

    std_errors: Between
    result: RESULTS
    stats: dict[str, Any]


def bounds(
    product: AbstractProduct,
    model: AbstractModel,
    method: LeastSquares | None = None,
    *,
    key: PRNGKeyArray,
    throw: bool = True,
) -> Bounds:
    """What a rule of exercise earns, and what none can: means of samples of `LeastSquares`.

    Their distance is what the regression leaves open, in the rule and in the martingale. Arguments and errors
    as in `price`; method None is `LeastSquares()`.
    """
    method = LeastSquares() if method is None else method
    applicable(product, model, method, key)
    means, errors = _bounds(product, model, method, key)
    finite = jnp.all(jnp.isfinite(means.gap) & jnp.isfinite(errors.gap))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
    if throw:
        means = result.error_if(means, ~finite)
    return Bounds(**vars(means), std_errors=errors, result=result, stats={"method": method})


@eqx.filter_jit
def _bounds(product, model, method: LeastSquares, key) -> tuple[Between, Between]:
    def of_one(product):
        lower, upper = method.bound_samples(product, model, key=key)
        pairs = [mean_and_error(samples, method) for samples in (lower, upper, upper - lower)]
        return tuple(Between(*column) for column in zip(*pairs, strict=True))

    return over_batch(of_one, product)
