"""Double one-touch and double no-touch contracts."""

import math
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8
from pydantic import Field

from ..fields import Numeric, Word, choice, is_traced, positive, real, time
from .barrier_option import TwoBarriers
from .european import European
from .product import CALL_OR_PUT, Real
from .touch import TOUCH_KINDS, PaidByTouch, TouchingTrade
from .trade import Level
from .watched import check_corridor


class DoubleTouch(PaidByTouch, TwoBarriers):
    """Pays an amount if the spot touches one of two barriers by expiry, or if it touches neither.

    Both are monitored continuously. A one-touch pays at the hit, a one-touch-at-expiry and a no-touch at
    expiry. A spot that is not between the barriers today has touched one.

    Attributes:
        lower: The lower barrier in units of the spot, above 0.
        upper: The upper barrier in units of the spot, above the lower one.
        expiry: The end of the monitoring in years, above 0.
        kind: One of "one-touch", "one-touch-at-expiry" and "no-touch", stored as a code.
        amount: The amount, in currency.

    Raises:
        ValueError: The lower barrier is not below the upper one.

    Examples:
        >>> from pricing import BlackScholes, price
        >>> found = price(DoubleTouch(80.0, 125.0, 1.0, "no-touch"), BlackScholes(100.0, 0.03, 0.2))
        >>> f"{found.value:.3f}"
        '0.458'
    """

    lower: Numeric[Float[Array, "..."]] = positive("lower")
    upper: Numeric[Float[Array, "..."]] = positive("upper")
    expiry: Numeric[Float[Array, "..."]] = time("expiry")
    kind: Word[Int8[Array, "..."]] = choice("kind", TOUCH_KINDS, default="one-touch")
    amount: Numeric[Float[Array, "..."]] = real("amount", default=1.0)

    def __check_init__(self):
        levels = self.lower, self.upper
        if not is_traced(levels) and not np.all(np.less(*map(np.asarray, levels))):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    @property
    def strike(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jnp.sqrt(self.lower * self.upper)

    @property
    def side(self) -> Real:
        return jnp.ones_like(self.lower)

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.expiry, self.strike

    @property
    def vanilla(self) -> European:
        return European(self.strike, self.expiry, jnp.full_like(self.kind, CALL_OR_PUT["call"]))


class DoubleTouchTrade(TouchingTrade):
    """Cash that is paid if an equity touches one of two barriers by expiry, or if it never does."""

    type = "double_touch"
    product = DoubleTouch
    renamed: ClassVar[dict[str, str]] = {"kind": "touch_kind"}
    neutral = ("amount",)

    lower: Level = Field(description="a lower barrier > 0")
    upper: Level = Field(description="an upper barrier > lower")

    @property
    def level(self) -> float:
        return math.sqrt(self.lower * self.upper)

    def check(self) -> None:
        super().check()
        check_corridor(self.lower, self.upper)

    def touches(self, spot: float) -> bool:
        return not self.lower < spot < self.upper
