"""Forward rates of one vol: Black's, the shifted lognormal and Bachelier's model of caplets."""

from dataclasses import replace

from jaxtyping import Array, Float

from ..fields import FlatOr, Number, Numeric, is_traced, non_negative, positive, word
from .model import Discounts, flat_or_curve
from .rate_curves import ProjectedRates, curve_or_none


class ForwardRates(ProjectedRates):
    """Each forward rate F is a martingale under the measure of its payment, with one vol for all of them.

    Lognormal: F + shift is, dF = vol (F + shift) dW (Black 1976; a shift allows rates below 0). Normal:
    dF = vol dW (Bachelier). There is no law of several rates together.

    Attributes:
        curve: The curve that discounts: zero rates (`ZeroCurve`) or one flat rate, continuous, per year.
        vol: The vol per square root of a year; normal, of the rate itself (0.0085 is 85 bp).
        forward_curve: The curve of the floating rates; None: the curve that discounts.
        shift: The shift of a lognormal law, a rate; a rate or a strike not above -shift has no value (NaN).
        law: The word "lognormal" or "normal".

    Raises:
        ValueError: A normal law has a shift, which would change nothing.

    Examples:
        >>> from pricing import Cap, ForwardRates, price
        >>> floor = Cap(-0.01, [1.0], [1.5], [0.5], "floor", 100.0)
        >>> f"{price(floor, ForwardRates(0.0, 0.3, shift=0.03)).value:.4f}"
        '0.0149'
    """

    curve: FlatOr[Discounts] = flat_or_curve("curve")
    vol: Numeric[Float[Array, ""]] = positive("vol")
    forward_curve: FlatOr[Discounts] = curve_or_none()
    shift: Numeric[Float[Array, ""]] = non_negative("shift", default=0.0)
    law: str = word("law", ("lognormal", "normal"), default="lognormal")

    def __check_init__(self):
        if self.law == "normal" and not is_traced(self.shift) and self.shift != 0.0:
            raise ValueError(
                f"a normal law with the shift {float(self.shift):g}: leave it out, or take the lognormal law"
            )

    def with_vol_shift(self, vol: Number) -> "ForwardRates":
        return replace(self, vol=self.vol + vol)
