"""Forward starts, cliquets, average strikes and realized variances under lognormal spots.

The ratio of spots at two dates is lognormal and independent of the past. A forward-start option is therefore
Black's formula times the forward at the start (Rubinstein 1991), and a cliquet a sum of call spreads. The
geometric average and the last spot are jointly lognormal: an option on their difference is Margrabe's (1978).
E[log(S_i / S_(i-1))^2] is the variance of the step plus the square of its mean.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, LognormalSpots
from ..numerics.black import black
from ..numerics.safe_math import safe_sqrt, smaller
from ..products import AverageStrike, Cliquet, ForwardStart
from .formula import Formula, lacks_lognormal

Scalar = Float[Array, ""]
Steps = Float[Array, " steps"]


def steps_of(
    model: LognormalSpots, dates: Float[Array, " dates"], initial: Scalar | None
) -> tuple[Steps, Steps]:
    """Return the forward of S_i / S_(i-1) for each period and the variance of its log, 0 for no time.

    initial: the spot at the start of the first period; None if it starts at the first date.
    """
    forwards, variances = jax.vmap(model.forward)(dates), model.state_variance(dates)
    if initial is not None:
        forwards = jnp.concatenate([initial[None], forwards])
        variances = jnp.concatenate([jnp.zeros_like(initial)[None], variances])
        dates = jnp.concatenate([jnp.zeros_like(dates[:1]), dates])
    moves = jnp.diff(dates) > 0.0  # a date may be repeated
    return forwards[1:] / forwards[:-1], jnp.where(moves, jnp.diff(variances), 0.0)


def _no_surface(product: object, model: AbstractModel) -> str | None:
    del product
    return lacks_lognormal(model)


def _forward_start(product: ForwardStart, model: LognormalSpots) -> Scalar:
    growth, variance = (x[0] for x in steps_of(model, product.dates, None))
    value = black(growth, product.moneyness, safe_sqrt(variance), product.side)
    return model.discount(product.expiry) * model.forward(product.start) * value


def _no_limits_of_the_sum(product: Cliquet, model: AbstractModel) -> str | None:
    if product.floor is not None or product.cap is not None:
        return "closed form of a sum with a floor or a cap"
    return lacks_lognormal(model)


def _cliquet(product: Cliquet, model: LognormalSpots) -> Scalar:
    growth, variance = steps_of(model, product.dates, product.initial_spot)
    std, one = safe_sqrt(variance), jnp.ones_like(growth)
    floor, cap = product.local_floor, product.local_cap
    returns = growth - 1.0 if floor is None else floor + black(growth, one + floor, std, one)
    if cap is not None:
        returns = returns - black(growth, one + cap, std, one)
    total = product.accrued + product.is_counted @ returns
    return model.discount(product.dates[-1]) * product.notional * total


def _geometric_alone(product: AverageStrike, model: AbstractModel) -> str | None:
    if product.average != "geometric":
        return "closed form of an arithmetic average"
    return lacks_lognormal(model)


def _average_strike(product: AverageStrike, model: LognormalSpots) -> Scalar:
    dates = product.dates
    variances = model.state_variance(dates)
    shared = smaller(variances[:, None], variances[None, :])
    count = product.num_past + jnp.sum(product.is_new)
    weights = product.is_new / count
    log_mean = product.past_sum / count
    log_mean = log_mean + weights @ (jnp.log(jax.vmap(model.forward)(dates)) - 0.5 * variances)
    of_mean, together = weights @ shared @ weights, weights @ variances
    variance = variances[-1] + of_mean - 2.0 * together
    mean = jnp.exp(log_mean + 0.5 * of_mean)
    value = black(
        model.forward(dates[-1]), product.moneyness * mean, safe_sqrt(variance), product.side
    )
    return model.discount(dates[-1]) * value


FORWARD_START = Formula(ForwardStart, _no_surface, _forward_start)
CLIQUET = Formula(Cliquet, _no_limits_of_the_sum, _cliquet)
AVERAGE_STRIKE = Formula(AverageStrike, _geometric_alone, _average_strike)
