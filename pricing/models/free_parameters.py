"""The free parameters of a calibration, bounded by changes of variables."""

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..market import Market, VolCurve
from .model import AbstractModel, Quotes

Real = Float[Array, "..."]


class AbstractTransform(eqx.Module):
    """A smooth bijection from the real line onto an open interval."""

    @abc.abstractmethod
    def to_parameter(self, free: Real) -> Real:
        """Return the parameter for a point of the real line."""

    @abc.abstractmethod
    def to_free(self, parameter: Real) -> Real:
        """Return the point of the real line for a parameter; infinite at the ends of the interval."""

    def of_field(self, field: Any) -> "AbstractTransform":
        """Return the map for this field of a model: by default the map itself."""
        del field
        return self


class Exp(AbstractTransform):
    """(0, inf): parameter = exp(free).

    Examples:
        >>> from calibration import Exp
        >>> f"{Exp().to_parameter(0.0):.1f}"
        '1.0'
    """

    def to_parameter(self, free: Real) -> Real:
        return jnp.exp(free)

    def to_free(self, parameter: Real) -> Real:
        return jnp.log(parameter)


class Tanh(AbstractTransform):
    """(-1, 1): parameter = tanh(free).

    Examples:
        >>> from calibration import Tanh
        >>> f"{Tanh().to_free(0.0):.1f}"
        '0.0'
    """

    def to_parameter(self, free: Real) -> Real:
        return jnp.tanh(free)

    def to_free(self, parameter: Real) -> Real:
        return jnp.arctanh(parameter)


class Logistic(AbstractTransform):
    """(low, high): parameter = low + (high - low) / (1 + exp(-free)).

    Attributes:
        low: The lower end.
        high: The upper end.

    Examples:
        >>> from calibration import Logistic
        >>> f"{Logistic(0.0, 0.5).to_parameter(0.0):.2f}"
        '0.25'
    """

    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=1.0)

    def to_parameter(self, free: Real) -> Real:
        return self.low + (self.high - self.low) * jax.nn.sigmoid(free)

    def to_free(self, parameter: Real) -> Real:
        return jnp.log((parameter - self.low) / (self.high - parameter))


class Identity(AbstractTransform):
    """The real line: parameter = free."""

    def to_parameter(self, free: Real) -> Real:
        return free

    def to_free(self, parameter: Real) -> Real:
        return parameter


class ForwardVols(AbstractTransform):
    """Vols of a term structure with increasing total variance: free = log of the forward vol.

    free_i = log(forward_i), forward_i^2 = (w_i - w_{i-1}) / (t_i - t_{i-1}), w_i = vol_i^2 t_i and t_0 = 0:
    every point of the space is free of calendar arbitrage, without a penalty. A single number is its own
    forward vol.

    Attributes:
        times: The pillars (years); None for a number. A calibration takes them from the model's `VolCurve`.

    Examples:
        >>> from calibration import ForwardVols
        >>> from pricing import VolCurve
        >>> terms = ForwardVols().of_field(VolCurve([1.0, 2.0], [0.2, 0.25]))
        >>> vols = terms.to_parameter(terms.to_free(terms.to_parameter(0.1 * terms.times)))
        >>> bool(vols[1] ** 2 * 2.0 > vols[0] ** 2)
        True
    """

    times: Float[Array, " pillars"] | None = None

    def of_field(self, field: Any) -> "ForwardVols":
        return ForwardVols(field.times) if isinstance(field, VolCurve) else self

    def to_parameter(self, free: Real) -> Real:
        forwards = jnp.exp(free)
        if self.times is None:
            return forwards
        return jnp.sqrt(jnp.cumsum(forwards**2 * self._gaps) / self.times)

    def to_free(self, parameter: Real) -> Real:
        if self.times is None:
            return jnp.log(parameter)
        grown = jnp.diff(parameter**2 * self.times, prepend=jnp.zeros_like(self.times[:1]))
        return 0.5 * jnp.log(grown / self._gaps)

    @property
    def _gaps(self) -> Real:
        times = self.times
        assert times is not None
        return jnp.diff(times, prepend=jnp.zeros_like(times[:1]))


class FreeParameter(NamedTuple):
    """A model parameter determined by quotes, or an array of parameters that share bounds and starts.

    Attributes:
        transform: The map from the real line, on which an optimizer works, onto the bounds of the parameter.
        start: The default starting point.
        low: The smallest random start.
        high: The largest random start; between the bounds, starts are uniform on the real line.

    Examples:
        >>> from pricing.models import Heston
        >>> Heston.free_parameters["correlation"].start
        -0.5
    """

    transform: AbstractTransform
    start: float
    low: float
    high: float


class Calibratable(AbstractModel):
    """Ability: some fields are free parameters that a calibration determines from quotes.

    Attributes:
        label: The name of the model for readers.
        free_parameters: The free parameters by the names of their fields.

    Examples:
        >>> from pricing.models import HullWhite
        >>> HullWhite.label, list(HullWhite.free_parameters)
        ('Hull-White', ['mean_reversion', 'vol'])
    """

    label: eqx.AbstractClassVar[str]
    free_parameters: eqx.AbstractClassVar[Mapping[str, FreeParameter]]

    @classmethod
    def starting_on(cls, market: Market, name: str) -> Any:
        """Return the model of one underlying of a market as a starting point for calibration."""
        starts = {field: parameter.start for field, parameter in cls.free_parameters.items()}
        model, quotes = cls.from_market(market, name, **starts), cls.quotes_in(market)
        return model.starting_for(quotes[name]) if name in quotes else model

    def starting_for(self, quotes: Quotes) -> Any:
        """Return the starting point of a calibration: by default the model itself, or one scaled to quotes."""
        del quotes
        return self
