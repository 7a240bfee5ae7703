"""The abstract interest-rate model, and abilities of Gaussian models."""

import abc
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number
from ..market import Market, SwaptionVols
from ..market.state import MarketState
from ..numerics.gauss_legendre import gauss_legendre
from .model import AbstractModel, Discounts, GaussianState, Scalar
from .shapes import Numbers

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


def discount_on(curve: Any, t: Numbers) -> Numbers:
    """Return the discount factor on a curve, or at a flat rate."""
    return curve.discount(t) if isinstance(curve, Discounts) else jnp.exp(-curve * t)


def growth_on(curve: Any, start: Numbers, end: Numbers) -> Numbers:
    """Return P(start) / P(end) on a curve, or at a flat rate."""
    return discount_on(curve, start) / discount_on(curve, end)


def shifted_curve(curve: Any, by: Number) -> Any:
    """Return a curve, or a flat rate, with all zero rates shifted by a number."""
    return curve.shifted(by) if isinstance(curve, Discounts) else curve + by


class AbstractRateModel(AbstractModel):
    """A model of rates that starts from today's curve.

    The underlying is the parallel shift of the zero rates, 0 for the given curve.

    Attributes:
        curve: An object that discounts, or a flat, continuously compounded rate.
        vol: The volatility level, which a shift of volatility moves.
    """

    curve: AbstractVar[Any]
    vol: AbstractVar[Scalar]

    @property
    def underlying(self) -> Scalar:
        return jnp.zeros_like(self.vol)

    @property
    def has_forward_curve(self) -> bool:
        """Whether floating rates come from another curve than the discount curve."""
        return False

    def discount(self, t: Numbers) -> Numbers:
        return discount_on(self.curve, t)

    def growth(self, start: Numbers, end: Numbers) -> Numbers:
        """Return P(start) / P(end) on the forward curve: 1 + accrual times the forward rate.

        Args:
            start: The start of the period in years.
            end: The end of the period in years; if it is before the start, the growth is the inverse.
        """
        return growth_on(self.curve, start, end)

    def growth_at(self, place: Numbers, start: Numbers, end: Numbers) -> Numbers:
        """Return P(start) / P(end) on one of the curves; NaN if there is no such curve.

        Args:
            place: The index of the curve: 0 for the discount curve, 1 for the forward curve.
            start: The start of the period in years.
            end: The end of the period in years.
        """
        found = jnp.where(place < 0.5, growth_on(self.curve, start, end), self.growth(start, end))
        return jnp.where(place < 1.5, found, jnp.nan)

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "AbstractRateModel":
        curve = shifted_curve(self.curve, underlying + rate)
        return replace(self, curve=curve).with_vol_shift(vol)

    @classmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> Any:
        found: Any = {"curve": market.curve(name)}
        return cls(**found, **parameters)

    def on_market(self, market: Market, name: str) -> Any:
        return eqx.tree_at(lambda model: model.curve, self, market.curve(name))

    @classmethod
    def quotes_in(cls, market: Market) -> Mapping[str, SwaptionVols]:
        vols = market.swaption_vols
        return {vols.curve: vols} if vols is not None and vols.curve in market.curves else {}

    @abc.abstractmethod
    def with_vol_shift(self, vol: Number) -> "AbstractRateModel":
        """Return the model with its volatility level shifted by `vol` (per 1.00)."""


class BondState(AbstractRateModel, GaussianState):
    """Ability: every bond is a known function of a single Gaussian state.

    Examples:
        >>> from pricing.models import HullWhite
        >>> f"{HullWhite(0.03, 0.05, 0.01).deflated_bond(0.0, 1.0, 0.0):.4f}"
        '0.9704'
    """

    @abc.abstractmethod
    def deflated_bond(self, t: Numbers, maturity: Numbers, x: Numbers) -> Numbers:
        """Return P(t, maturity) / numeraire at t in state x."""

    def deflator(self, t: Scalar, x: Numbers) -> Numbers:
        return self.deflated_bond(t, t, x)

    def market_state(self, t: Scalar, x: Scalar) -> MarketState:
        bonds = lambda maturities: self.deflated_bond(t, maturities, x) / self.deflator(t, x)
        return MarketState(bonds=bonds)


class GaussianFactors(AbstractRateModel):
    """Ability: r = sum_i x_i + phi(t), dx_i = -a_i x_i dt + sigma_i dW_i, fitted to today's curve.

    Let x be centred under the measure of the bond maturing at t. Then x ~ N(0, V(t)), and
    P(t, T) = P(0, T) / P(0, t) exp(-b . x - b . V(t) b / 2), b_i = (1 - e^{-a_i (T - t)}) / a_i.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.models import HullWhite
        >>> HullWhite(0.03, 0.05, 0.01).slopes(1.0, jnp.array([2.0, 3.0])).shape
        (2, 1)
    """

    @property
    @abc.abstractmethod
    def mean_reversions(self) -> Float[Array, " factors"]:
        """a, per year, of any sign."""

    @abc.abstractmethod
    def state_covariance(self, t: Scalar) -> Float[Array, "factors factors"]:
        """Return V(t)."""

    def slopes(
        self, t: Scalar, maturities: Float[Array, " bonds"]
    ) -> Float[Array, "bonds factors"]:
        """Return b for each bond: minus the derivatives of log P(t, T) to x (years)."""
        left = (maturities - t)[:, None]
        return left * mean_exponential(-self.mean_reversions[None, :] * left)


_POINTS, _WEIGHTS = gauss_legendre(7)  # exact to 1e-15 for |y| < 1, also in three derivatives


def mean_exponential(y: Numbers) -> Numbers:
    """Return (exp(y) - 1) / y, the mean of exp(s y) over s in [0, 1], smooth at 0."""
    return _moment(y, 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
@functools.partial(jax.jit, static_argnums=1)
def _moment(y: Numbers, order: int) -> Numbers:
    """Return the mean of s^order exp(s y) over s in [0, 1]; its derivative is the moment of the next order."""
    small = jnp.abs(y) < 1.0
    inside, outside = jnp.where(small, y, 0.0), jnp.where(small, 1.0, y)
    s = 0.5 + 0.5 * _POINTS
    points, weights = (
        jnp.asarray(x, y.dtype).reshape(-1, *(1,) * y.ndim) for x in (s, 0.5 * _WEIGHTS * s**order)
    )
    mean = jnp.sum(weights * jnp.exp(points * inside[None]), axis=0)
    last = jnp.exp(outside)
    beyond = (last - 1.0) / outside
    for lower in range(order):  # by parts
        beyond = (last - (lower + 1) * beyond) / outside
    return jnp.where(small, mean, beyond)


@_moment.defjvp
def _moment_jvp(order, primals, tangents):
    (y,), (dy,) = primals, tangents
    return _moment(y, order), _moment(y, order + 1) * dy
