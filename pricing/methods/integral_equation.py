"""American options under Black and Scholes, without a grid and without paths."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..formulas.american import american_value
from ..models import AbstractModel, BlackVol
from ..products import AbstractProduct, SpotOption
from .method import Tiled, Tiling, at_least, missing


class IntegralEquation(Tiled):
    """American options: the exercise boundary from its integral equation, the value from the boundary.

    Rate and vol are constants (else: `Quadrature`), or curves and surfaces of one pillar. Puts
    with dividend_yield < rate < 0 and calls with rate < dividend_yield < 0 have two boundaries: their value
    is NaN here (`RESULTS.non_finite`). The formulas stand at `american_value`.

    Attributes:
        is_random: False.
        num_dates: Where the boundary is known, at least 2.
        num_nodes: The nodes of the integral in its equation, at least 2.
        num_points: The nodes of the integral in the value, at least 2.

    Raises:
        ValueError: If a count is below 2.

    Examples:
        >>> IntegralEquation(num_dates=16).num_nodes
        24
    """

    is_random: ClassVar[bool] = False

    num_dates: int = eqx.field(default=32, static=True)
    num_nodes: int = eqx.field(default=24, static=True)
    num_points: int = eqx.field(default=64, static=True)

    def __check_init__(self):
        at_least(2, self, "num_dates", "num_nodes", "num_points")

    @property
    def tiling(self) -> Tiling:
        return Tiling(8 * 60 * self.num_dates * self.num_nodes + 2**15, 256)

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not (isinstance(product, SpotOption) and product.any_time):
            return missing("single right to exercise at any time (American)", product)
        if not isinstance(model, BlackVol):
            return missing("Black volatility (lognormal terminal spots)", model)
        if not model.is_constant:
            return missing("constant rate and volatility", model)
        return None

    def samples(
        self, product: SpotOption, model: BlackVol, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        t, strike = product.exercise_times()[-1], product.strike
        rate = -jnp.log(model.discount(t)) / t  # `is_constant`
        return american_value(
            *(model.spot, strike, t),
            *(rate, model.dividend_yield),
            *(model.black_vol(t, strike), product.side),
            num_dates=self.num_dates,
            num_nodes=self.num_nodes,
            num_points=self.num_points,
        )
