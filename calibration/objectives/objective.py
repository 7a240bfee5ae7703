"""Objectives: residuals of a model against quotes."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from pricing.market.interpolation import as_leaf
from pricing.models import AbstractModel

from ..results import RESULTS


class AbstractObjective(eqx.Module):
    """Residuals whose half sum of squares is minimized.

    Attributes:
        usual_for: The kinds of quotes for which this is the default objective.
    """

    usual_for: ClassVar[tuple[type, ...]] = ()

    @abc.abstractmethod
    def residuals(self, model: AbstractModel, quotes: Any) -> Float[Array, "..."]:
        """Return model less market, in the shape of `quoted(quotes)`; the model may need some ability."""

    def quoted(self, quotes: Any) -> Any:
        """Return the quoted numbers, a leaf of `quotes`: by default the vols."""
        return quotes.vols

    @property
    def is_of_moneyness(self) -> bool:
        """Whether residuals depend on a surface only through expiries, log-moneyness and vols, not forwards."""
        return False

    @property
    def finer(self) -> "AbstractObjective | None":
        """The same residuals with a finer integral, to check these against; None if there is none."""
        return None

    def result(self, quotes: Any) -> RESULTS:
        """Return the reason why these numbers cannot be fitted; `residuals` are then NaN."""
        del quotes
        return RESULTS.successful  # pyright: ignore[reportReturnType]


def weighted(errors: Float[Array, "rows columns"], weights: Array | None) -> Array:
    """Return errors times their weights, one for each quote, if there are any."""
    if weights is None:
        return errors
    check_per_quote("weights", weights, errors)
    return errors * weights


def check_per_quote(name: str, numbers: Array, errors: Array) -> None:
    """Check that there is one number for each quote.

    Raises:
        ValueError: If the shapes differ.
    """
    if numbers.shape != errors.shape:
        raise ValueError(
            f"{name} have shape {numbers.shape} and the quotes {errors.shape}: give one for each quote"
        )


def as_weights(values: Any) -> Array | None:
    """Return weights, or flags, as an array of floats, or None; a traced array is already one."""
    if values is None or isinstance(values, Tracer):
        return values
    return as_leaf(np.asarray(values, dtype=float))
