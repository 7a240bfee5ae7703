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
    """Enclose the value of a right to exercise early between two bounds, both means over the same paths.

    The lower bound is the value of an exercise rule found by regression; the upper bound, given a martingale,
    is one that no rule can exceed (Rogers 2002). Their gap is the error of the regression, in the rule and in
    the martingale; for an American option also the error of its dates. The lower bound exercises on `num_steps`
    dates, the upper one at any time: exercise between two dates is worth, at the second, no more than the
    payoff there with the interest of the step, so that the gap falls as 1 / num_steps.

    Args:
        product: A contract that can be exercised early, or a batch of them.
        model: The model of the product's underlyings.
        method: The regression; None is `LeastSquares()`. A method that does not apply raises TypeError with the
            reason.
        key: The seed of the paths.
        budget: The bytes of memory that the contracts of a batch may take together. A larger batch is valued in
            tiles, one after the other, each of one contract at least.
        throw: Whether to raise RuntimeError if a bound is not finite, where that is known (not within `jax.jit`
            or `jax.vmap`). Otherwise `result` reports it.

    Returns:
        The two bounds and their gap in currency, with a standard error of each.

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
