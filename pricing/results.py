"""How a computation ended, and bounds of a value."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

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
        finite = jnp.all(jnp.isfinite(means.gap) & jnp.isfinite(std_errors.gap))
        result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
        if throw:
            means = result.error_if(means, ~finite)
        return cls(**vars(means), std_errors=std_errors, result=result, stats=stats)
