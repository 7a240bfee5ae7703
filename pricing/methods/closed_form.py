"""Closed forms: claims on one spot at one time, continuous barriers and geometric averages; swaptions."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..formulas.barrier import barrier_value
from ..formulas.forward import forward_value
from ..formulas.geometric_average import geometric_average_value
from ..formulas.registry import formula_of
from ..formulas.swap import swap_value, swaption_value
from ..formulas.terminal import reads_spot_once, terminal_value
from ..models import (
    AbstractEquityModel,
    AbstractModel,
    AbstractRateModel,
    BlackVol,
    GaussianFactors,
    LognormalSpots,
)
from ..numerics.safe_math import nan_where
from ..products import (
    AbstractProduct,
    Average,
    AverageForward,
    EarlyExercise,
    FixedPayments,
    SingleBarrier,
    SwapEntry,
    SwapOption,
)
from ..results import RESULTS
from .method import AbstractMethod, missing_ability


class ClosedForm(AbstractMethod):
    """Closed forms: Black's for terminal claims and averages, Reiner and Rubinstein's for barriers, swaptions.

    What reads one spot at one time alone (terminal claims; barriers, averages and notes of one date) is valued
    under the law that the smile implies, with its slope where the payoff jumps (`pricing.formulas.terminal`).
    That and averages see the total variance and the discount factor alone, so that curves and term structures
    are exact; a barrier needs a rate and a vol that are constant (`FiniteDifference` prices the
    others). Swaps are discounted; under any model, so are known payments and forwards on averages. A European
    swaption under a Gaussian short rate is Jamshidian's sum of bond options, under G2++ an integral of it over
    one factor.

    Attributes:
        is_random: False.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> f"{price(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2), ClosedForm()).value:.2f}"
        '10.45'
    """

    is_random: ClassVar[bool] = False

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if isinstance(product, EarlyExercise):
            return missing_ability("closed form", product)
        if isinstance(product, FixedPayments):
            return None
        if isinstance(product, AverageForward):
            known = isinstance(model, AbstractEquityModel) and model.underlying.size == 1
            return None if known else missing_ability("forward of one asset", model)
        if isinstance(product, SwapOption):
            known = isinstance(model, GaussianFactors) and model.mean_reversions.size <= 2
            return (
                None
                if known
                else missing_ability("Gaussian short rate of one factor or two", model)
            )
        if isinstance(product, SwapEntry):
            known = isinstance(model, AbstractRateModel)
            return None if known else missing_ability("curve of bonds", model)
        if formula := formula_of(product):
            lack = formula.missing(product, model)
            return lack and missing_ability(lack, model)
        if not isinstance(model, BlackVol):
            return missing_ability("Black volatility (lognormal terminal spots)", model)
        if reads_spot_once(product.form, model):
            return None
        if isinstance(product, Average) and product.average == "geometric":
            known = isinstance(model, LognormalSpots)
            return None if known else missing_ability("lognormal spots at all times", model)
        continuous = isinstance(product, SingleBarrier) and product.monitoring_dates is None
        if continuous:
            known = isinstance(model, LognormalSpots) and model.is_constant
            return None if known else missing_ability("constant rate and volatility", model)
        return missing_ability("closed form", product)

    def result(self, product: AbstractProduct, model: AbstractModel) -> RESULTS:
        if reads_spot_once(product.canonical, model):
            return RESULTS.successful  # there is a law of one spot, whatever that of paths is
        return super().result(product, model)

    def samples(
        self, product: AbstractProduct, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        if isinstance(product, FixedPayments | AverageForward):
            return forward_value(product, model)
        if formula := formula_of(product):
            return formula.value(product, model)
        if isinstance(product, SwapOption):
            return swaption_value(product, model)
        if isinstance(product, SwapEntry):
            return swap_value(product, model)
        if reads_spot_once(product.canonical, model):
            return terminal_value(product, model)
        if isinstance(product, Average):
            return geometric_average_value(product, model.at_smile_point(product.smile_point))
        if isinstance(product, SingleBarrier):
            return _barrier_value(product, model)
        raise TypeError(missing_ability("closed form", product))


def _barrier_value(product: SingleBarrier, model: BlackVol) -> Float[Array, ""]:
    t = product.expiry
    rate, dividend_yield = (
        -jnp.log(factor(t)) / t for factor in (model.discount, model.dividend_discount)
    )
    vol = model.black_vol(t, product.strike)
    value = barrier_value(product, model.spot, rate, dividend_yield, vol)
    return nan_where(vol <= 0.0, value)
