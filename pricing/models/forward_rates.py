"""Forward rates of one vol each: Black's, the shifted lognormal and Bachelier's model of caplets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..fields import FlatOr, Number, Numeric, is_traced, non_negative, positive, real, word
from ..market import CapletVols, Market
from .model import Discounts, flat_or_curve
from .rate_curves import ProjectedRates, curve_or_none
from .shapes import Numbers


class ForwardRates(ProjectedRates):
    """Each forward rate F is a martingale under the measure of its payment, with one vol at all times.

    So is the rate of a swap under the measure of its annuity.

    Lognormal: F + shift is, dF = vol (F + shift) dW (Black 1976; a shift allows rates below 0). Normal:
    dF = vol dW (Bachelier). There is no law of several rates together.

    Attributes:
        curve: The curve that discounts: zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        vol: The vol of all rates per square root of a year; normal, of the rate itself (0.0085 is 85 bp). Or
            `CapletVols`, which are read at the fixing and the strike, with the law and the shift that they
            have.
        forward_curve: The curve of the floating rates; None: the curve that discounts.
        shift: The shift of a lognormal law, a rate; a rate or a strike not above -shift has no value (NaN).
        law: The word "lognormal" or "normal".
        mean_reversion: The mean reversion per year, of any sign, of the one-factor model that links the rate of
            a swap to the bonds of its coupon (`CmsCoupon`); 0: zero rates that move in parallel.

    Raises:
        ValueError: A normal law has a shift, which would change nothing, or `CapletVols` are given another
            law or shift than theirs.

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
                f"CapletVols of the {self.vol.kind} law with a law or a shift beside them: leave both out"
            )
        if self.law == "normal" and has_shift:
            raise ValueError(
                f"a normal law with the shift {float(self.shift):g}: leave it out, or take the lognormal law"
            )

    @property
    def rate_law(self) -> str:
        """The word "lognormal" or "normal"."""
        return self.vol.kind if isinstance(self.vol, CapletVols) else self.law

    @property
    def rate_shift(self) -> Float[Array, ""]:
        """The shift of a lognormal law."""
        return self.vol.shift if isinstance(self.vol, CapletVols) else self.shift

    @property
    def dtype(self) -> Any:
        return (self.vol.vols if isinstance(self.vol, CapletVols) else self.vol).dtype

    def rate_vol(self, start: Numbers, strike: Numbers) -> Numbers:
        """Return the vol of a rate that is fixed at a time.

        Args:
            start: The time of the fixing, in years.
            strike: The strike, a rate.
        """
        return self.vol.vol(start, strike) if isinstance(self.vol, CapletVols) else self.vol

    @classmethod
    def of_caps(cls, market: Market, names: Sequence[str]) -> "ForwardRates":
        """Return the model of caps on the rates of a curve, on the caplet vols that their quotes give.

        Args:
            market: The quotes.
            names: The curve that discounts and that of the rates, or one that does both.
        """
        curves = [market.curve(name, throw=False) for name in names]
        return _of_curves(curves, market.caplet_vols(names[-1], throw=False))

    def with_vol_shift(self, vol: Number) -> "ForwardRates":
        moved = self.vol.shifted(vol) if isinstance(self.vol, CapletVols) else self.vol + vol
        return replace(self, vol=moved)


@stored_jit
def _of_curves(curves: Sequence[Any], vols: CapletVols) -> ForwardRates:
    """Return the model; within a program, vols that are NaN are no error but values that are NaN."""
    discount, *forward = curves
    return ForwardRates(discount, vols, *forward)
