"""Result codes of computations, and bounds of a value."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .numbers_shown import repr_with_numbers

Real = Float[Array, "*batch"]


class RESULTS(eqx.Enumeration):
    """The outcome of a numerical computation; calibration and training have subclasses."""

    successful = ""
    non_finite = (
        "The value is not finite. Check the model's parameters and the product's numbers for extremes; "
        "another method may work."
    )
    two_boundaries = (
        "the interest rate and the dividend yield are negative such that exercise is optimal "
        "between two boundaries, but this method finds only one: use Quadrature()"
    )
    no_volatility = (
        "the volatility is zero, or so small that this method or a derivative divides by zero; at "
        "zero volatility an option struck at the forward has no derivatives: give a larger one; "
        "ClosedForm() values a "
        "payoff of the spot at expiry by the forward"
    )
    complex_exponent = (
        "the interest rate is so far below zero that the closed form of a payment at the hit has complex "
        "exponents: use FiniteDifference()"
    )
    arbitrage = (
        "the quotes of the surface have an arbitrage, so that there is no local volatility: "
        "model.arbitrages() lists where the total variance decreases in time or a density is "
        "negative; smooth the "
        "quotes there"
    )
    too_volatile = (
        "the standard deviation of the log-spot to the last date is above 2, where this "
        "quadrature loses digits: use another method"
    )
    falling_variance = (
        "the surface's total variance vol^2 t decreases in time at the contract's strike, so that "
        "no Black-Scholes path has these vols: correct the quotes, or use a model fitted to them, "
        "such as Heston"
    )
    no_implied_vol = (
        "no volatility gives this value, or many do: it must lie between the values at "
        "volatilities near 0 (for a European option the discounted intrinsic value, for an "
        "American one the payoff today) and at large ones (5, or any for a European option); "
        "check the value, the forward (spot, rate, dividend "
        "yield) and the option"
    )
    too_few_nodes = (
        "two dates are so close together that num_nodes nodes do not resolve the step between them: give "
        "Quadrature(num_nodes=...) at least 24 sqrt(v / dv), v the state's variance at the later "
        "date and dv that of the step, or use Quadrature().prepared(product, model), which counts "
        "them"
    )


def outcome(
    figures: PyTree,
    refusals: RESULTS = RESULTS.successful,
    *,
    throw: bool = True,
    model: Any = None,
    batch_shape: tuple[int, ...] = (),
) -> RESULTS:
    """Return the result code of computed figures: refused (for any of a batch), not finite, or successful.

    Under a trace the outcome is unknown: it is returned as data, with NaN figures, and nothing raises.

    model: an object that may know why a figure is not finite (`why_not_finite`); batch_shape: the leading axes
        of all figures, over contracts.

    Raises:
        RuntimeError: The outcome is a known failure, and `throw`; for a batch, the message names the contracts.
    """
    result = _outcome(figures, refusals)
    if result.is_traced() or result == RESULTS.successful:
        return result
    if model is not None and result == RESULTS.non_finite:
        result = model.why_not_finite()
    if throw:
        raise RuntimeError(RESULTS[result] + _which(figures, refusals, batch_shape))
    return result


_MOST_NAMED = 5  # contracts named in a message


def _which(figures: PyTree, refusals: RESULTS, batch_shape: tuple[int, ...]) -> str:
    """Return text that names the refused or non-finite contracts of a batch; "" for a single contract."""
    if not batch_shape:
        return ""
    (codes,), (successful,) = jax.tree.leaves(refusals), jax.tree.leaves(RESULTS.successful)
    bad = np.broadcast_to(np.asarray(codes) != np.asarray(successful), batch_shape).copy()
    for leaf in jax.tree.leaves(figures):
        numbers = np.asarray(leaf).reshape(*batch_shape, -1)
        bad |= ~np.all(np.isfinite(numbers), axis=-1)
    places = [int(i[0]) if len(i) == 1 else tuple(map(int, i)) for i in np.argwhere(bad)]
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    named = ", ".join(map(str, places[:_MOST_NAMED]))
    return f" (of the batch of {bad.size}, counted from 0: contract {named}{more})"


@jax.jit
def _outcome(figures: PyTree, refusals: RESULTS) -> RESULTS:
    """Return the outcome, computed in one program instead of an operation per figure.

    It is separate from the program that computes the figures: XLA would compute them again in the loops of the
    checks.
    """
    refusal = jax.tree.map(jnp.max, refusals)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(figures)]))
    others = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
    return RESULTS.where(refusal == RESULTS.successful, others, refusal)


class Between(eqx.Module):
    """A lower and an upper bound, and the gap between them (currency)."""

    __repr__ = repr_with_numbers

    lower: Real
    upper: Real
    gap: Real


class Bounds(Between):
    """Bounds of an early-exercise value, from the same paths.

    Attributes:
        lower: The lower bound (currency).
        upper: The upper bound (currency).
        gap: The upper bound less the lower (currency).
        std_errors: The standard errors of the bounds.
        result: The outcome of the computation.
        stats: The settings of the computation.

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
        """Return the bounds with their result code; if `throw`, raise RuntimeError if one is not finite."""
        result = outcome((means.gap, std_errors.gap), throw=throw)
        return cls(**vars(means), std_errors=std_errors, result=result, stats=stats)
