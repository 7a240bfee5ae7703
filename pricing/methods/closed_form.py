"""Closed forms: terminal claims, continuous barriers, geometric averages, and swaptions."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..fields import are_known
from ..formulas.forward import forward_value
from ..formulas.geometric_average import geometric_average_value
from ..formulas.jamshidian import swap_value, swaption_value
from ..formulas.registry import formula_of
from ..formulas.reiner_rubinstein import barrier_value, has_complex_exponent
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
    FloatingPayments,
    SingleBarrier,
    SwapEntry,
    SwapOption,
    VarianceSwap,
)
from ..results import RESULTS
from .method import AbstractMethod, Tiling, missing_ability


class ClosedForm(AbstractMethod):
    """Closed forms: Black for terminal claims and averages, Reiner-Rubinstein for barriers; swaptions.

    A payoff of one spot at one time (terminal claims; barriers, averages and notes with one date) is valued
    under the distribution implied by the smile, including its slope where the payoff jumps
    (`pricing.formulas.terminal`). These payoffs and averages depend only on total variance and the discount
    factor, so curves and term structures are exact; a barrier needs constant rate and vol (`FiniteDifference`
    prices the others). Swaps are discounted on one curve, `FloatingPayments` on the curves of the model; known
    payments and forwards on averages are valued under any model. A European swaption under a Gaussian short
    rate is Jamshidian's sum of bond options; under G2++, the integral of this sum over one factor.

    Attributes:
        is_random: False.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> f"{price(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2), ClosedForm()).value:.2f}"
        '10.45'
    """

    is_random: ClassVar[bool] = False

    def runs_briefly(self, products: AbstractProduct) -> bool:
        del products
        return True

    def tiling(self, products: AbstractProduct) -> Tiling:
        usual = super().tiling(products)
        is_integral = isinstance(products, VarianceSwap)
        return usual._replace(trades=64) if is_integral else usual

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if isinstance(product, EarlyExercise):
            return missing_ability("closed form", product)
        if isinstance(product, FixedPayments):
            return None
        if isinstance(product, AverageForward):
            known = isinstance(model, AbstractEquityModel) and model.underlying.size == 1
            return None if known else missing_ability("forward of one asset", model)
        if isinstance(product, FloatingPayments):
            known = isinstance(model, AbstractRateModel)
            return None if known else missing_ability("curve of bonds", model)
        if isinstance(product, SwapOption):
            known = isinstance(model, GaussianFactors) and model.mean_reversions.size <= 2
            return (
                None
                if known
                else missing_ability("Gaussian short rate of one factor or two", model)
            )
        if isinstance(product, SwapEntry):
            known = isinstance(model, AbstractRateModel) and not model.has_forward_curve
            return None if known else missing_ability("one curve of bonds", model)
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
        if isinstance(product, SingleBarrier) and product.monitoring_dates is None:
            if not (isinstance(model, LognormalSpots) and model.is_constant):
                return missing_ability("constant rate and volatility", model)
            known = are_known((product, model)) and np.any(np.asarray(product.rebate))
            if known and bool(jnp.any(_is_complex(product, model))):
                return missing_ability(
                    "closed form of a payment at the hit at these rates", product
                )
            return None
        return missing_ability("closed form", product)

    def result(self, product: AbstractProduct, model: AbstractModel) -> RESULTS:
        if reads_spot_once(product.canonical, model):
            return RESULTS.successful  # one spot has a law even if paths do not
        falls = super().result(product, model)
        if not isinstance(product, SingleBarrier):
            return falls
        code = RESULTS.where(
            _is_complex(product, model), RESULTS.complex_exponent, RESULTS.successful
        )
        return RESULTS.where(falls == RESULTS.successful, code, falls)

    def samples(
        self, product: AbstractProduct, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        if isinstance(product, FixedPayments | FloatingPayments | AverageForward):
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


def _barrier_value(product: SingleBarrier, model: Any) -> Float[Array, ""]:
    numbers = _constants(product, model)
    return nan_where(numbers[-1] <= 0.0, barrier_value(product, model.spot, *numbers))


def _is_complex(product: SingleBarrier, model: Any) -> Bool[Array, "..."]:
    return has_complex_exponent(product, *_constants(product, model))


def _constants(product: SingleBarrier, model: Any) -> tuple[Array, Array, Array]:
    """Return the rate, dividend yield and vol to a contract's expiry; arrays for a batch."""

    def at(t: Array, strike: Array) -> tuple[Array, Array, Array]:
        factors = model.discount(t), model.dividend_discount(t)
        rate, dividend_yield = (-jnp.log(factor) / t for factor in factors)
        return rate, dividend_yield, model.black_vol(t, strike)

    return jnp.vectorize(at)(product.expiry, product.strike)
