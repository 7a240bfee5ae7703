"""Swaps and European swaptions under Gaussian short rates: Jamshidian's sum of bond options."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractRateModel, GaussianFactors
from ..numerics import normal_law
from ..numerics.cholesky import semidefinite_cholesky
from ..numerics.crossing import as_root
from ..numerics.safe_math import clipped, larger
from ..products import SwapEntry, SwapOption

Scalar = Float[Array, ""]
Payments = Float[Array, " payments"]

_STEPS = 12
_REACH = 12.0  # standard deviations within which the critical state is sought
_NODES = 64
_STEEPEST = 3.0  # above it, the error of 64 nodes exceeds 1e-10


def swap_value(product: SwapEntry, model: AbstractRateModel) -> Scalar:
    """Return the sum of discounted payments, the floating leg as P(start) - P(end)."""
    return jnp.sum(_discounted(product, model)[0])


def swaption_value(product: SwapOption, model: GaussianFactors) -> Scalar:
    """Return today's value of the right to the swap's payments."""
    amounts, times = _discounted(product, model)
    sign = product.sign * jnp.sign(product.notional)
    return right_to_payments(amounts, times, sign, product.exercise_times()[0], model)


def right_to_payments(
    amounts: Payments, times: Payments, sign: Scalar, expiry: Scalar, model: GaussianFactors
) -> Scalar:
    """Return E[max(sum_j a_j exp(-k_j . z - |k_j|^2 / 2), 0)], z standard normal, a_j today's values.

    amounts: a_j, which have `sign` at first and the opposite sign later; times: payment times in years, not
    before the expiry. For one factor, Jamshidian (1989). For two factors, Jamshidian's formula applies given
    one combination of them. The outer integral is over a line, as in Brigo and Mercurio (2006), eq. 4.31, but
    rotated to the direction in which the swap's value does not change, where the integrand is nearly constant
    (Gauss-Hermite).
    """
    slopes, covariance = model.slopes(expiry, times), model.state_covariance(expiry)
    if slopes.shape[-1] == 1:
        return _option_value(amounts, slopes[:, 0] * jnp.sqrt(covariance[0, 0]), sign)
    chex.assert_shape(slopes, (times.size, 2))
    return _two_factor_value(amounts, slopes @ semidefinite_cholesky(covariance), sign)


def _discounted(
    product: SwapEntry, model: AbstractRateModel
) -> tuple[Float[Array, " amounts"], Float[Array, " amounts"]]:
    """Return today's values and the times of the payments of a swap with one entry date, in time order."""
    times, amounts = product.payments(product.entry_dates[0])
    return amounts * model.discount(times), times


def _option_value(amounts: Payments, slopes: Payments, sign: Scalar) -> Scalar:
    """Return E[max(sum_j a_j exp(-p_j s - p_j^2 / 2), 0)], s ~ N(0, 1), if the sum changes sign once."""
    owed = sign * amounts
    held = jax.lax.stop_gradient((owed, slopes))

    def newton(_, s):
        value, slope = jax.jvp(functools.partial(_balance, *held), (s,), (jnp.ones_like(s),))
        return clipped(s - value / slope, -_REACH, _REACH)

    start = jnp.zeros((1,), slopes.dtype)
    root = jax.lax.fori_loop(0, _STEPS, newton, start)
    critical = as_root(functools.partial(_balance, owed, slopes), root)
    return jnp.sum(amounts * normal_law.cdf(-sign * (critical + slopes)))


def _balance(owed: Payments, slopes: Payments, s: Float[Array, "1"]) -> Float[Array, "1"]:
    """Return the log ratio of a payer's receipts to payments in state s, increasing and nearly linear."""
    bonds = owed * jnp.exp(-slopes * s - 0.5 * slopes**2)
    tiny = jnp.finfo(bonds.dtype).tiny
    received, paid = (jnp.sum(larger(x, 0.0)) for x in (bonds, -bonds))
    return (jnp.log(received + tiny) - jnp.log(paid + tiny))[None]


def _two_factor_value(
    amounts: Payments, slopes: Float[Array, "payments 2"], sign: Scalar
) -> Scalar:
    """Return E[max(sum_j a_j exp(-k_j . z - |k_j|^2 / 2), 0)], z two independent standard normals.

    Along the inner direction the k_j must increase with maturity, otherwise the critical state may not be
    unique, and sufficiently so relative to the outer direction, otherwise there are too few nodes. The result
    is NaN if this fails, at correlations near -1.
    """
    along = jax.lax.stop_gradient(_inner_direction(sign * amounts, slopes))
    across = jnp.stack([-along[1], along[0]])
    inner, outer = slopes @ along, slopes @ across
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = jnp.asarray(weights / np.sqrt(2.0 * np.pi), slopes.dtype)

    def given(node: Scalar) -> Scalar:
        return _option_value(amounts * jnp.exp(-outer * node - 0.5 * outer**2), inner, sign)

    value = weights @ jax.vmap(given)(jnp.asarray(nodes, slopes.dtype))
    one_root = _rises(inner)
    is_smooth = jnp.max(jnp.abs(outer - outer[0])) < _STEEPEST * (inner[-1] - inner[0])
    return jnp.where(one_root & is_smooth, value, jnp.nan)


def _inner_direction(owed: Payments, slopes: Float[Array, "payments 2"]) -> Float[Array, "2"]:
    """Return the direction of the swap's gradient if slopes increase along it, else that of one factor."""
    own = -(owed @ slopes)
    own = own / jnp.linalg.norm(own)
    return jnp.where(_rises(slopes @ own), own, jnp.array([0.0, 1.0], own.dtype))


def _rises(slopes: Payments) -> Array:
    """Return True if slopes increase with maturity; padding may repeat a date."""
    rounding = 64.0 * float(jnp.finfo(slopes.dtype).eps) * jnp.max(jnp.abs(slopes))
    return jnp.all(jnp.diff(slopes) >= -rounding)
