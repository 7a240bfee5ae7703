"""Curves alone: rates at their forwards, on one curve that discounts and another that gives floating rates."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import FlatOr, Number
from ..market import Market
from .model import Discounts, flat_or_curve
from .rates import AbstractRateModel, growth_on, shifted_curve
from .shapes import Numbers


def _or_none(value: Any) -> Any:
    """Return a curve or a flat rate as a field holds it, or None."""
    return None if value is None else flat_or_curve("forward_curve").metadata["converter"](value)


class RateCurves(AbstractRateModel):
    """Curves without a law: swaps and FRAs are valued, and no option is.

    The floating rate of a period is the forward rate of the curve of forwards, and payments are discounted on
    the other: no convexity, and no spread between both that moves (Henrard, *Interest Rate Modelling in the
    Multi-Curve Framework*, 2014, chapter 2).

    Attributes:
        curve: The curve that discounts: zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        forward_curve: The curve of the floating rates; None: the curve that discounts.

    Examples:
        >>> from pricing import RateCurves
        >>> f"{RateCurves(0.03, 0.035).growth(1.0, 2.0) - 1.0:.4f}"
        '0.0356'
    """

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    forward_curve: FlatOr[Discounts] = eqx.field(converter=_or_none, default=None)

    @property
    def has_forward_curve(self) -> bool:
        return self.forward_curve is not None

    @property
    def vol(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """0: rates have no volatility."""
        return jnp.zeros((), jnp.result_type(self.discount(jnp.ones(()))))

    @property
    def underlying(self) -> Numbers:
        """0 for the level of the zero rates of each curve: one, or two where the forwards have their own."""
        return jnp.zeros((2,) if self.has_forward_curve else (), self.vol.dtype)

    def growth(self, start: Numbers, end: Numbers) -> Numbers:
        return growth_on(
            self.curve if self.forward_curve is None else self.forward_curve, start, end
        )

    def shifted(
        self, *, underlying: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "RateCurves":
        by = jnp.broadcast_to(jnp.asarray(underlying) + rate, (2,))
        curve, forward = shifted_curve(self.curve, by[0]), self.forward_curve
        if forward is not None:
            forward = shifted_curve(forward, by[1])
        return replace(self, curve=curve, forward_curve=forward).with_vol_shift(vol)

    def with_vol_shift(self, vol: Number) -> "RateCurves":
        del vol
        return self

    @classmethod
    def from_market(cls, market: Market, name: str, **parameters: Any) -> "RateCurves":
        """Return the curves of a market: of a forward curve, with the curve that discounts its quotes.

        Args:
            market: The market.
            name: The name of a curve.
            **parameters: None; the curves are all there is.
        """
        discount = dict(market.discount_curves).get(name)
        if discount is None:
            return cls(market.curve(name), **parameters)
        return cls(market.curve(discount), market.curve(name), **parameters)

    def on_market(self, market: Market, name: str) -> "RateCurves":
        return type(self).from_market(market, name)
