"""What a calibration makes small: residuals of a model against quotes."""

import abc
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from pricing.models import AbstractModel

from ..results import RESULTS


class AbstractObjective(eqx.Module):
    """Residuals whose half sum of squares is minimized.

    Attributes:
        usual_for: The kinds of quotes that this is the usual objective for.

    Examples:
        >>> from calibration import AbstractObjective, ImpliedVolError
        >>> issubclass(ImpliedVolError, AbstractObjective)
        True
    """

    usual_for: ClassVar[tuple[type, ...]] = ()

    @abc.abstractmethod
    def residuals(self, model: AbstractModel, quotes: Any) -> Float[Array, "..."]:
        """Return model less market, in the shape of `quoted(quotes)`; the model may need an ability."""

    def quoted(self, quotes: Any) -> Any:
        """Return the numbers that the market quotes, a leaf of `quotes`: the vols, unless these are others."""
        return quotes.vols

    def result(self, quotes: Any) -> RESULTS:
        """Return why the quotes cannot be fitted, where only their numbers tell: `residuals` are then NaN."""
        del quotes
        return RESULTS.successful  # pyright: ignore[reportReturnType]
