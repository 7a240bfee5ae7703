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
        usual_for: The kinds of quotes that this is the usual objective for.
    """

    usual_for: ClassVar[tuple[type, ...]] = ()

    @abc.abstractmethod
    def residuals(self, model: AbstractModel, quotes: Any) -> Float[Array, "..."]:
        """Return model less market, in the shape of `quoted(quotes)`; the model may need an ability."""

    def quoted(self, quotes: Any) -> Any:
        """Return the numbers that the market quotes, a leaf of `quotes`: the vols, unless these are others."""
        return quotes.vols

    @property
    def is_of_moneyness(self) -> bool:
        """Whether residuals depend on a surface by expiries, log-moneyness and vols, not by forwards."""
        return False

    @property
    def finer(self) -> "AbstractObjective | None":
        """The same residuals by a finer integral, to check these against; None if there is none."""
        return None

    def result(self, quotes: Any) -> RESULTS:
        """Return the reason for which these numbers cannot be fitted: `residuals` are then NaN."""
        del quotes
        return RESULTS.successful  # pyright: ignore[reportReturnType]


def weighted(errors: Float[Array, "rows columns"], weights: Array | None) -> Array:
    """Return errors times their weights, if there are any: one for each quote."""
    if weights is None:
        return errors
    check_per_quote("weights", weights, errors)
    return errors * weights


def check_per_quote(name: str, numbers: Array, errors: Array) -> None:
    """Refuse numbers that are not one for each quote.

    Raises:
        ValueError: The shapes differ.
    """
    if numbers.shape != errors.shape:
        raise ValueError(
            f"{name} have shape {numbers.shape} and the quotes {errors.shape}: give one for each quote"
        )


def as_weights(values: Any) -> Array | None:
    """Return weights, or flags, as an array of floats, or None; what is traced has been one before."""
    if values is None or isinstance(values, Tracer):
        return values
    return as_leaf(np.asarray(values, dtype=float))
