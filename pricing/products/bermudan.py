"""Options that may be exercised at some dates."""

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..fields import dates
from .basket import Basket
from .european import European
from .product import AbstractProduct

_SAME_DAY = 1e-4  # years


class Bermudan(AbstractProduct):
    """Exercised at one of `dates` (years), pays what its payoff would pay if it expired then.

    payoff_product: a European option or a basket, whose expiry is the last of the dates.
    """

    payoff_product: European | Basket
    dates: Float[Array, "*#batch dates"] = dates("dates")

    def __check_init__(self):
        expiry, last = self.payoff_product.expiry, self.dates[..., -1]
        if isinstance(expiry, Tracer) or isinstance(last, Tracer):
            return
        if np.max(np.abs(np.asarray(last) - np.asarray(expiry))) > _SAME_DAY:
            raise ValueError(
                f"the last exercise date is {last} and the payoff expires at {expiry}: give the same time"
            )

    @property
    def multi_asset(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.payoff_product.multi_asset

    @property
    def vol_at(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.dates[..., -1], self.payoff_product.strike
