"""How a computation ended, and bounds of a value."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Real = Float[Array, "*batch"]


class RESULTS(eqx.Enumeration):
    """Outcome of a numerical computation; those of calibrations and of trainings are subclasses.

    Examples:
        >>> from pricing import RESULTS
        >>> RESULTS[RESULTS.successful]
        ''
    """

    successful = ""
    non_finite = (
        "The value is not finite. Check the model's parameters and the product's numbers for extremes; "
        "another method may reach them."
    )
    too_volatile = (
        "the standard deviation of the log-spot to the last date is above 2, where this quadrature loses "
        "digits: take another method"
    )
    falling_variance = (
        "the surface's total variance vol^2 t falls in time at the contract's strike, so that no Black-Scholes "
        "path has these vols: correct the quotes, or take a model that is fitted to them, such as Heston"
    )
    too_few_nodes = (
        "two dates are so close together that num_nodes nodes do not resolve the step between them: give "
        "Quadrature(num_nodes=...) at least 24 sqrt(v / dv), v the state's variance at the later date and dv "
        "that of the step, or take Quadrature().prepared(product, model), which counts them"
    )


def outcome(
    figures: PyTree, refusals: RESULTS = RESULTS.successful, *, throw: bool = True
) -> RESULTS:
    """Return how a computation of figures ended: refused for one of a batch, not finite, or successful.

    Under a trace the outcome is not known; then it is data, beside figures that are NaN, and nothing raises.

    Raises:
        RuntimeError: It is known, not successful, and `throw`.
    """
    result = _outcome(figures, refusals)
    if throw and not result.is_traced() and result != RESULTS.successful:
        raise RuntimeError(RESULTS[result])
    return result


@jax.jit
def _outcome(figures: PyTree, refusals: RESULTS) -> RESULTS:
    """Return the outcome, in one program rather than an operation a figure.

    It is not the program that computes the figures: XLA would compute them once more in the loops of the tests.
    """
    refusal = jax.tree.map(jnp.max, refusals)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(figures)]))
    others = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
    return RESULTS.where(refusal == RESULTS.successful, others, refusal)


class Between(eqx.Module):
    """A lower and an upper bound, and the gap between them (currency)."""

    lower: Real
    upper: Real
    gap: Real


class Bounds(Between):
    """Bounds of the value of a right to exercise early, from the same paths.

    Attributes:
        lower: The lower bound (currency).
        upper: The upper bound (currency).
        gap: The upper bound less the lower (currency).
        std_errors: The standard error of each.
        result: How the computation ended.
        stats: What it was computed by.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.results import Between, Bounds
        >>> one = jnp.ones(())
        >>> found = Bounds.of(Between(3.0 * one, 4.0 * one, one), Between(one, one, one), stats={})
        >>> float(found.gap), float(found.std_errors.lower)
        (1.0, 1.0)
    """

    std_errors: Between
    result: RESULTS
    stats: dict[str, Any]

    @classmethod
    def of(
        cls, means: Between, std_errors: Between, *, stats: dict[str, Any], throw: bool = True
    ) -> "Bounds":
        """Return the bounds with their result; raise RuntimeError if one is not finite, and `throw`."""
        result = outcome((means.gap, std_errors.gap), throw=throw)
        return cls(**vars(means), std_errors=std_errors, result=result, stats=stats)
