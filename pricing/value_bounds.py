"""The verb: between what lies the value of a right to exercise early?"""

import equinox as eqx
from jaxtyping import PRNGKeyArray

from .methods import LeastSquares
from .models import AbstractModel
from .products import AbstractProduct
from .results import Between, Bounds
from .valuation import applicable, mean_and_error, over_batch


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
    applicable(product, model, method, key=key)
    means, errors = _bounds(product, model, method, key)
    return Bounds.of(means, errors, stats={"method": method}, throw=throw)


@eqx.filter_jit
def _bounds(product, model, method: LeastSquares, key) -> tuple[Between, Between]:
    def of_one(product):
        lower, upper = method.bound_samples(product, model, key=key)
        pairs = [mean_and_error(samples, method) for samples in (lower, upper, upper - lower)]
        return tuple(Between(*column) for column in zip(*pairs, strict=True))

    return over_batch(of_one, product)
