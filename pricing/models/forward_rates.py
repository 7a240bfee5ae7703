"""Forward rates with one vol each: the Black, shifted lognormal and Bachelier models of caplets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..fields import FlatOr, Number, Numeric, is_traced, non_negative, positive, real, word
from ..market import CapletVols, Market
from .model import Discounts, flat_or_curve
from .rate_curves import ProjectedRates, curve_or_none
from .shapes import Numbers


class ForwardRates(ProjectedRates):
    """Each forward rate F is a martingale under the measure of its payment date, with a constant vol.

    The same holds for a swap rate under its annuity measure.

    Lognormal: dF = vol (F + shift) dW (Black 1976; a shift allows negative rates). Normal: dF = vol dW
    (Bachelier). The joint distribution of several rates is not modelled.

    Attributes:
        curve: The discount curve: zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        vol: The vol of all rates per square root of a year; a normal vol is in units of the rate (0.0085 is 85
            bp). Or `CapletVols`, which are read at fixing and strike, with their own law and shift.
        forward_curve: The curve of the floating rates; None for the discount curve.
        shift: The shift of the lognormal law, a rate; for a rate or strike not above -shift, values are NaN.
        law: "lognormal" or "normal".
        mean_reversion: The mean reversion per year, of any sign, of the one-factor model that links a swap rate
            to the bonds of its coupon (`CmsCoupon`); 0 for parallel moves of zero rates.

    Raises:
        ValueError: A normal law has a shift, which would have no effect, or `CapletVols` are given with a law
            or shift.

    Examples:
        >>> from pricing import Cap, ForwardRates, price
        >>> floor = Cap(-0.01, [1.0], [1.5], [0.5], "floor", 100.0)
        >>> f"{price(floor, ForwardRates(0.0, 0.3, shift=0.03)).value:.4f}"
        '0.0149'
    """

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    vol: FlatOr[CapletVols] = flat_or_curve("vol", CapletVols, positive)
    forward_curve: FlatOr[Discounts] = curve_or_none()
    shift: Numeric[Float[Array, ""]] = non_negative("shift", default=0.0)
    law: str = word("law", ("lognormal", "normal"), default="lognormal")
    mean_reversion: Numeric[Float[Array, ""]] = real("mean_reversion", default=0.0)

    def __check_init__(self):
        has_own = isinstance(self.vol, CapletVols)
        has_shift = not is_traced(self.shift) and float(self.shift) != 0.0
        if has_own and (has_shift or self.law != "lognormal"):
            raise ValueError(
                f"CapletVols of the {self.vol.kind} law with a separate law or shift: leave both "
                f"out"
            )
        if self.law == "normal" and has_shift:
            raise ValueError(
                f"a normal law with the shift {float(self.shift):g}: leave it out, or use the "
                f"lognormal law"
            )

    @property
    def rate_law(self) -> str:
        """The law of the rates: "lognormal" or "normal"."""
        return self.vol.kind if isinstance(self.vol, CapletVols) else self.law

    @property
    def rate_shift(self) -> Float[Array, ""]:
        """The shift of a lognormal law."""
        return self.vol.shift if isinstance(self.vol, CapletVols) else self.shift

    @property
    def dtype(self) -> Any:
        return (self.vol.vols if isinstance(self.vol, CapletVols) else self.vol).dtype

    def rate_vol(self, start: Numbers, strike: Numbers) -> Numbers:
        """Return the vol of a rate fixed at a given time.

        Args:
            start: The time of the fixing, in years.
            strike: The strike, a rate.
        """
        return self.vol.vol(start, strike) if isinstance(self.vol, CapletVols) else self.vol

    @property
    def kinks(self) -> Float[Array, " strikes"]:
        """The strikes at which `rate_vol` has a kink; none for one vol."""
        is_smile = isinstance(self.vol, CapletVols)
        return self.vol.strikes if is_smile else jnp.zeros(0, self.dtype)

    @classmethod
    def of_caps(cls, market: Market, names: Sequence[str]) -> "ForwardRates":
        """Return the model of caps on a curve's rates with the caplet vols of their quotes.

        Args:
            market: The quotes.
            names: The discount curve and the forward curve, or one curve for both.
        """
        curves = [market.curve(name, throw=False) for name in names]
        return _of_curves(curves, market.caplet_vols(names[-1], throw=False))

    def with_vol_shift(self, vol: Number) -> "ForwardRates":
        moved = self.vol.shifted(vol) if isinstance(self.vol, CapletVols) else self.vol + vol
        return replace(self, vol=moved)


@stored_jit(runs_briefly=True)
def _of_curves(curves: Sequence[Any], vols: CapletVols) -> ForwardRates:
    """Return the model; under a trace, NaN vols give NaN values instead of an error."""
    discount, *forward = curves
    return ForwardRates(discount, vols, *forward)
