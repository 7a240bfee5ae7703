"""American options under Black-Scholes by an integral equation, without grids or paths."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..fields import are_known
from ..formulas.early_exercise_premium import american_value
from ..models import AbstractModel, BlackVol
from ..numerics.safe_math import nan_where
from ..products import AbstractProduct, SpotOption
from ..results import RESULTS
from .method import AbstractMethod, Tiling, at_least, missing_ability


class IntegralEquation(AbstractMethod):
    """American options: the exercise boundary from its integral equation, the value from the boundary.

    Rate and vol must be constant, or curves and surfaces with one pillar (otherwise use `Quadrature`). Puts
    with dividend_yield < rate < 0 and calls with rate < dividend_yield < 0 have two boundaries: they are left
    to `Quadrature` if the numbers are known, and are NaN under a trace (`RESULTS.two_boundaries`). See
    `american_value` for the formulas.

    Attributes:
        is_random: False.
        num_dates: The number of times at which the boundary is computed, at least 2.
        num_nodes: The number of nodes of the integral in the boundary equation, at least 2.
        num_points: The number of nodes of the integral for the value, at least 2.

    Raises:
        ValueError: A count is below 2.
    """

    is_random: ClassVar[bool] = False

    num_dates: int = eqx.field(default=32, static=True)
    num_nodes: int = eqx.field(default=24, static=True)
    num_points: int = eqx.field(default=64, static=True)

    def __check_init__(self):
        at_least(2, self, "num_dates", "num_nodes", "num_points")

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        return Tiling(8 * 60 * self.num_dates * self.num_nodes + 2**15, 256)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not (isinstance(product, SpotOption) and product.any_time):
            return missing_ability("single right to exercise at any time (American)", product)
        if not isinstance(model, BlackVol):
            return missing_ability("Black volatility (lognormal terminal spots)", model)
        if not model.is_constant:
            return missing_ability("constant rate and volatility", model)
        if _is_known_to_have_two_boundaries(product, model):
            return missing_ability("single exercise boundary at these negative rates", product)
        return None

    def result(self, product: SpotOption, model: BlackVol) -> RESULTS:
        t, falls = product.exercise_times()[-1], super().result(product, model)
        double = _has_two_boundaries(product.side, *_rates(model, t))
        found = RESULTS.where(double, RESULTS.two_boundaries, RESULTS.successful)
        still = model.black_vol(t, product.strike) <= 0.0
        found = RESULTS.where(still, RESULTS.no_volatility, found)
        return RESULTS.where(falls == RESULTS.successful, found, falls)

    def samples(
        self, product: SpotOption, model: BlackVol, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        t, strike = product.exercise_times()[-1], product.strike
        refused = self.result(product, model) != RESULTS.successful
        value = american_value(
            *(model.spot, strike, t),
            *_rates(model, t),
            *(model.black_vol(t, strike), product.side),
            num_dates=self.num_dates,
            num_nodes=self.num_nodes,
            num_points=self.num_points,
        )
        return nan_where(refused, value)


def _rates(model: BlackVol, t: Array) -> tuple[Array, Array]:
    """Return the constant interest rate and dividend yield."""
    rate, dividend_yield = (
        -jnp.log(factor(t)) / t for factor in (model.discount, model.dividend_discount)
    )
    return rate, dividend_yield


def _is_known_to_have_two_boundaries(product: SpotOption, model: BlackVol) -> bool:
    """Return True if a contract of a batch has two boundaries; False if the numbers are not concrete."""
    if not are_known((product, model)):
        return False
    rate, dividend_yield = map(np.asarray, _rates(model, jnp.ones_like(model.spot)))
    if not np.any(dividend_yield < 0.0):
        return False
    return bool(np.any(_has_two_boundaries(np.asarray(product.side), rate, dividend_yield)))


def _has_two_boundaries(side: Any, rate: Any, dividend_yield: Any) -> Any:
    """Return True where an option is exercised between two boundaries."""
    put = (side < 0.0) & (dividend_yield < rate) & (rate < 0.0)
    return put | ((side > 0.0) & (rate < dividend_yield) & (dividend_yield < 0.0))
