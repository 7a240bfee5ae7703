"""Chains of Bermudan swaptions under Gaussian rates; the state is that of the bond prices."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import GaussianFactors
from ..numerics.cholesky import semidefinite_cholesky
from ..numerics.safe_math import larger
from ..products import SwapOption
from .claims import Claims, ExercisePayoff
from .exercise_problem import DISPERSION, ExerciseProblem, GaussianStep

_MOST_CLAIMS = 4
_REACH = 10.0  # standard deviations within which the par state of a swap is sought
_HALVINGS = 60

Times = Float[Array, " dates"]


def swaption_chain(product: SwapOption, times: Times, model: GaussianFactors) -> ExerciseProblem:
    """Return the chain; times: starting with 0 (today). The numeraire is the bond maturing at the last time.

    Samples depend on the numeraire, although prices do not, and are differentiated through it.
    """
    covariances = jax.vmap(lambda t: _covariance(model, t, times[-1]))(times)
    dim = covariances.shape[-1]
    factor = semidefinite_cholesky(jnp.diff(covariances, axis=0, prepend=covariances[:1]))
    exercise = _exercise(product, times, model)
    start = jnp.zeros(dim, covariances.dtype)
    steps = GaussianStep(
        exercise,
        jnp.ones(times.shape, bool).at[0].set(False).at[-1].set(False),
        jnp.broadcast_to(model.discount(times[-1]), times.shape),
        jnp.zeros((times.size, dim), start.dtype),
        factor,
        _shift(exercise, covariances),
        _claims(exercise, covariances),
    )
    return ExerciseProblem(start, DISPERSION**0.5 * semidefinite_cholesky(covariances[-1]), steps)


def _covariance(model: GaussianFactors, t: Array, horizon: Array) -> Float[Array, "dim dim"]:
    """Return the covariance of the factors, propagated to the horizon, so that they are martingales."""
    carried = jnp.exp(-model.mean_reversions * (horizon - t))
    return carried[:, None] * model.state_covariance(t) * carried[None, :]


def _exercise(product: SwapOption, times: Times, model: GaussianFactors) -> ExercisePayoff:
    """Return the swap entered at each date as bonds over the numeraire, starting with the bond maturing now."""

    def of_date(t):
        maturities, payments = product.payments(t)
        # a bond over the numeraire is size * exp(slope . x)
        slopes = -model.slopes(times[-1], maturities)
        convexity = 0.5 * jnp.sum((slopes @ _covariance(model, t, times[-1])) * slopes, axis=-1)
        sizes = jax.vmap(model.discount)(maturities) * jnp.exp(-convexity)
        return (payments * sizes)[None], slopes

    amounts, slopes = jax.vmap(of_date)(times)
    return ExercisePayoff(amounts, slopes, jnp.ones(times.shape, amounts.dtype))


def _shift(exercise: ExercisePayoff, covariances: Float[Array, "dates dim dim"]) -> Array:
    """Return the shift of the exercise payoff along the state with a parameter: 0 except for its derivative."""
    if covariances.shape[-1] > 1:
        return jnp.zeros(covariances.shape[:2], covariances.dtype)

    def of_date(amounts, slopes, reach):
        root, _ = _root(amounts, slopes, reach)
        held = jax.lax.stop_gradient((amounts, slopes))
        value = lambda amounts, slopes, x: amounts @ jnp.exp(slopes * x)
        _, steepness = jax.jvp(lambda x: value(*held, x), (root,), (jnp.ones_like(root),))
        gap = value(amounts, slopes, root) - value(*held, root)
        return -gap / jnp.where(steepness == 0.0, 1.0, steepness)

    reach = _REACH * jnp.sqrt(covariances[:, 0, 0])
    return jax.vmap(of_date)(exercise.amounts[:, 0], exercise.slopes[:, :, 0], reach)[:, None]


def _claims(exercise: ExercisePayoff, covariances: Float[Array, "dates dim dim"]) -> Claims:
    """Return European swaptions at some dates, including the last; none for more than one state."""
    dates, dim = covariances.shape[:2]
    count = min(_MOST_CLAIMS, dates - 1) if dim == 1 else 0
    chosen = [dates - 1 - (i * (dates - 1)) // max(count, 1) for i in range(count)]
    at = jnp.asarray(chosen, int)
    amounts, slopes = exercise.amounts[at, 0], exercise.slopes[at]
    levels, sides = jax.vmap(_root)(
        amounts, slopes[:, :, 0], _REACH * jnp.sqrt(covariances[at, 0, 0])
    )
    left = larger(covariances[at][None] - covariances[:, None], 0.0)
    lives = (at[None] >= jnp.arange(dates)[:, None]).astype(amounts.dtype)
    spread = lambda x: jnp.broadcast_to(x, (dates, *x.shape))
    return Claims(
        spread(amounts),
        spread(slopes),
        spread(sides[:, None] * jnp.ones((1, dim), amounts.dtype)),
        spread(sides * levels),
        jnp.zeros((dates, count, dim), amounts.dtype),
        left,
        lives,
    )


def _root(amounts: Array, slopes: Array, reach: Array) -> tuple[Array, Array]:
    """Return (x, side) with sum_i amounts_i exp(slopes_i x) = 0 there and positive beyond on that side.

    It is found by bisection on [-reach, reach]; without a sign change, it is an end of this interval.
    """
    amounts, slopes, reach = jax.lax.stop_gradient((amounts, slopes, reach))
    value = lambda x: amounts @ jnp.exp(slopes * x)
    side = jnp.where(value(reach) > value(-reach), 1.0, -1.0).astype(reach.dtype)

    def halve(_, ends):
        lower, upper = ends
        middle = 0.5 * (lower + upper)
        above = side * value(middle) > 0.0
        return jnp.where(above, lower, middle), jnp.where(above, middle, upper)

    lower, upper = jax.lax.fori_loop(0, _HALVINGS, halve, (-reach, reach))
    return 0.5 * (lower + upper), side
