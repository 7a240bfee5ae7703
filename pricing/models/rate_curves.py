"""Rates on a discount curve and a forward curve: the ability, and a model of curves without volatility."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import FlatOr, Number
from ..market import Market
from .model import Discounts, flat_or_curve
from .rate_model import AbstractRateModel, growth_on, shifted_curve
from .shapes import Numbers

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


def _converted(value: Any) -> Any:
    return None if value is None else flat_or_curve("forward_curve").metadata["converter"](value)


def curve_or_none() -> Any:
    """Return a field for a curve, a flat rate or None."""
    return eqx.field(converter=_converted, default=None)


class ProjectedRates(AbstractRateModel):
    """Ability: floating rates come from a forward curve, or from the discount curve.

    Attributes:
        forward_curve: The curve of the floating rates; None for the discount curve.

    Examples:
        >>> from pricing import RateCurves
        >>> RateCurves(0.03, 0.035).underlying.shape, RateCurves(0.03).underlying.shape
        ((2,), ())
    """

    forward_curve: AbstractVar[Any]

    @property
    def has_forward_curve(self) -> bool:
        return self.forward_curve is not None

    @property
    def dtype(self) -> Any:
        """The dtype of the numbers."""
        return self.vol.dtype

    @property
    def underlying(self) -> Numbers:
        """The shifts of the zero rates of each curve, all 0: one, or two with a forward curve."""
        return jnp.zeros((2,) if self.has_forward_curve else (), self.dtype)

    def growth(self, start: Numbers, end: Numbers) -> Numbers:
        curve = self.curve if self.forward_curve is None else self.forward_curve
        return growth_on(curve, start, end)

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "ProjectedRates":
        by = jnp.broadcast_to(jnp.asarray(underlying) + rate, (2,))
        curve, forward = shifted_curve(self.curve, by[0]), self.forward_curve
        if forward is not None:
            forward = shifted_curve(forward, by[1])
        moved: Any = replace(self, curve=curve, forward_curve=forward)
        return moved.with_vol_shift(vol)

    @classmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> Any:
        discount = dict(market.discount_curves).get(name)
        curves: dict[str, Any] = {"curve": market.curve(name if discount is None else discount)}
        if discount is not None:
            curves["forward_curve"] = market.curve(name)
        return cls(**curves, **parameters)

    def on_market(self, market: Market, name: str) -> Any:
        found = RateCurves.from_market(market, name)
        return replace(self, curve=found.curve, forward_curve=found.forward_curve)


class RateCurves(ProjectedRates):
    """Curves without volatility, for swaps, basis swaps and FRAs, but not for options.

    The floating rate of a period is the forward rate on the forward curve, and payments are discounted on the
    discount curve, without convexity and with a deterministic spread between both (Henrard, *Interest Rate
    Modelling in the Multi-Curve Framework*, 2014, chapter 2).

    Attributes:
        curve: The discount curve: zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        forward_curve: The curve of the floating rates; None for the discount curve.
        other_curve: The curve of the other floating leg of basis swaps, a third curve, or None.

    Raises:
        ValueError: There is an other_curve without a forward_curve.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing import RateCurves
        >>> f"{RateCurves(0.03, 0.035).growth(jnp.array(1.0), jnp.array(2.0)) - 1.0:.4f}"
        '0.0356'
    """

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    forward_curve: FlatOr[Discounts] = curve_or_none()
    other_curve: FlatOr[Discounts] = curve_or_none()

    def __check_init__(self):
        if self.other_curve is not None and self.forward_curve is None:
            raise ValueError("an other_curve without a forward_curve: give it as the forward_curve")

    @property
    def underlying(self) -> Numbers:
        if self.other_curve is None:
            return super().underlying
        return jnp.zeros((3,), self.dtype)

    def growth_at(self, place: Numbers, start: Numbers, end: Numbers) -> Numbers:
        found = super().growth_at(place, start, end)
        if self.other_curve is None:
            return found
        return jnp.where(place > 1.5, growth_on(self.other_curve, start, end), found)

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "RateCurves":
        if self.other_curve is None:
            return super().shifted(underlying=underlying, vol=vol, rate=rate)  # pyright: ignore
        by = jnp.broadcast_to(jnp.asarray(underlying) + rate, (3,))
        curves = self.curve, self.forward_curve, self.other_curve
        return RateCurves(*map(shifted_curve, curves, by))

    @property
    def vol(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """0: rates have no volatility."""
        return jnp.zeros((), jnp.result_type(self.discount(jnp.ones(()))))

    def with_vol_shift(self, vol: Number) -> "RateCurves":
        del vol
        return self
