"""Lower and upper bounds of an early-exercise value."""

from jaxtyping import PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from .argument_kinds import of_kinds
from .batch_tiles import BUDGET, USUAL_BUDGET, over_batch
from .methods import LeastSquares
from .models import AbstractModel
from .products import AbstractProduct
from .results import Between, Bounds
from .valuation import MODEL, PRODUCT, mean_and_error, select_method


@of_kinds(
    product=PRODUCT, model=MODEL, method=(LeastSquares, "LeastSquares(), or None"), budget=BUDGET
)
@full_matmul_precision
def bounds(
    product: AbstractProduct,
    model: AbstractModel,
    method: LeastSquares | None = None,
    *,
    key: PRNGKeyArray,
    budget: int = USUAL_BUDGET,
    throw: bool = True,
) -> Bounds:
    """Compute lower and upper bounds of an early-exercise value, both as means over the same paths.

    The lower bound is the value of an exercise rule found by regression. The upper bound, given a martingale,
    cannot be exceeded by any rule (Rogers 2002). Their gap measures the regression errors of the rule and the
    martingale and, for an American option, the error of discrete dates: the lower bound exercises on
    `num_steps` dates, the upper bound at any time. Exercise between two dates is worth, at the second, at most
    the payoff there plus interest over the step, so the gap decreases as 1 / num_steps.

    Args:
        product: A contract that can be exercised early, or a batch of them.
        model: The model of the product's underlyings.
        method: The regression; None means `LeastSquares()`. A method that does not apply raises TypeError with
            the reason.
        key: The seed of the paths.
        budget: The bytes of memory for the contracts of a batch. A larger batch is valued in tiles of at least
            one contract, one after another.
        throw: Whether to raise RuntimeError if a bound is not finite. Otherwise, and within `jax.jit` or
            `jax.vmap`, `result` reports it.

    Returns:
        The two bounds and their gap in currency, with standard errors.

    Examples:
        >>> import jax
        >>> from pricing import American, BlackScholes, bounds
        >>> put, model = American(110.0, 1.0, "put"), BlackScholes(100.0, 0.05, 0.2)
        >>> gap = lambda key: bounds(put, model, key=key).gap
        >>> jax.eval_shape(gap, jax.random.key(0)).shape  # compiles nothing
        ()
    """
    method = LeastSquares() if method is None else method
    select_method(product, model, method, key=key)
    means, errors = _bounds(product, model, method, key, budget)
    return Bounds.of(means, errors, stats={"method": method}, throw=throw)


@stored_jit
def _bounds(product, model, method: LeastSquares, key, budget: int) -> tuple[Between, Between]:
    def of_one(product):
        lower, upper = method.bound_samples(product, model, key=key)
        pairs = [mean_and_error(samples, method) for samples in (lower, upper, upper - lower)]
        return tuple(Between(*column) for column in zip(*pairs, strict=True))

    return over_batch(of_one, product, budget=budget)
