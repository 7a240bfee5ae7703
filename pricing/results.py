"""The result of a computation, and bounds of a value."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .numbers_shown import repr_with_numbers

Real = Float[Array, "*batch"]


class RESULTS(eqx.Enumeration):
    """Outcome of a numerical computation; calibrations and trainings have subclasses."""

    successful = ""
    non_finite = (
        "The value is not finite. Check the model's parameters and the product's numbers for extremes; "
        "another method may reach them."
    )
    two_boundaries = (
        "the interest rate and the dividend yield are below zero such that exercise pays between two "
        "boundaries, and this method finds one: take Quadrature()"
    )
    no_volatility = (
        "the volatility is zero, or so small that this method or a derivative divides by nothing, and where an "
        "option whose forward is at the strike has no derivatives: give a larger one; ClosedForm() values a "
        "payoff of the spot at expiry by the forward"
    )
    complex_exponent = (
        "the interest rate is so far below zero that the closed form of a payment at the hit has complex "
        "exponents: take FiniteDifference()"
    )
    arbitrage = (
        "the quotes of the surface have an arbitrage, so that there is no local volatility: "
        "model.arbitrages() lists where the total variance falls in time or a density is negative; smooth the "
        "quotes there"
    )
    too_volatile = (
        "the standard deviation of the log-spot to the last date is above 2, where this quadrature loses "
        "digits: take another method"
    )
    falling_variance = (
        "the surface's total variance vol^2 t falls in time at the contract's strike, so that no Black-Scholes "
        "path has these vols: correct the quotes, or take a model that is fitted to them, such as Heston"
    )
    no_implied_vol = (
        "no volatility gives this value, or many do: it must lie between the values at volatilities near 0 (of "
        "a European option the discounted intrinsic value, of an American one what exercise pays today) and at "
        "large ones (5, or of a European option any); check the value, the forward (spot, rate, dividend "
        "yield) and the option"
    )
    too_few_nodes = (
        "two dates are so close together that num_nodes nodes do not resolve the step between them: give "
        "Quadrature(num_nodes=...) at least 24 sqrt(v / dv), v the state's variance at the later date and dv "
        "that of the step, or take Quadrature().prepared(product, model), which counts them"
    )


def outcome(
    figures: PyTree,
    refusals: RESULTS = RESULTS.successful,
    *,
    throw: bool = True,
    model: Any = None,
    batch_shape: tuple[int, ...] = (),
) -> RESULTS:
    """Return the result of a computation of figures: refused for one of a batch, not finite, or successful.

    Under a trace the outcome is not known: it is then data, beside figures that are NaN, and nothing raises.

    model: an object that may know the reason for a figure that is not finite (`why_not_finite`); batch_shape:
        the axes of contracts, with which all figures begin.

    Raises:
        RuntimeError: It is known, not successful, and `throw`; for a batch, the message names the contracts.
    """
    result = _outcome(figures, refusals)
    if result.is_traced() or result == RESULTS.successful:
        return result
    if model is not None and result == RESULTS.non_finite:
        result = model.why_not_finite()
    if throw:
        raise RuntimeError(RESULTS[result] + _which(figures, refusals, batch_shape))
    return result


_MOST_NAMED = 5  # contracts


def _which(figures: PyTree, refusals: RESULTS, batch_shape: tuple[int, ...]) -> str:
    """Return a text that names the contracts of a batch that are refused or not finite; "" for one contract."""
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

    __repr__ = repr_with_numbers

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
