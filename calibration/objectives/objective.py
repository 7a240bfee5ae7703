"""What a calibration makes small: residuals of a model against quotes."""

import abc
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from pricing.models import AbstractModel


class AbstractObjective(eqx.Module):
    """Residuals whose half sum of squares is minimised."""

    usual_for: ClassVar[type | None] = None
    """The kind of quotes that this is the usual objective for."""

    @abc.abstractmethod
    def residuals(self, model: AbstractModel, quotes: Any) -> Float[Array, "rows columns"]:
        """Model less market, in the shape of `quotes.vols`; an objective may ask an ability of the model."""
