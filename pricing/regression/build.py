"""Builds the chain of exercise decisions from a product and a model."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, GaussianFactors, LognormalSpots, StochasticVariance
from ..products import AbstractProduct, EarlyExercise, SpotOption, SwapOption
from .any_time import most_in_step
from .backward import ExercisePolicy
from .equities import lognormal_chain
from .exercise_problem import ExerciseProblem
from .rates import swaption_chain
from .variance_chains import variance_chain

USUAL_INNER_PATHS = 16


def unsupported_reason(product: AbstractProduct, model: AbstractModel) -> str | None:
    """Return in words the reason why the pair has no chain; None if it has one."""
    name, law = type(product).__name__, type(model).__name__
    if not isinstance(product, EarlyExercise):
        return f"{name} has no right to exercise early"
    if isinstance(product, SwapOption):
        known = isinstance(model, GaussianFactors)
        return None if known else f"{law} has no Gaussian state at exercise dates that gives bonds"
    if not isinstance(product, SpotOption):
        return f"{name} has no payoff of the spot alone"
    if isinstance(model, LognormalSpots):
        return None
    if not isinstance(model, StochasticVariance):
        return f"{law} has no path of the spot on exercise dates"
    return (
        f"several assets under {law} have no martingale in closed form"
        if product.multi_asset
        else None
    )


def exercise_problem_of(
    product: EarlyExercise, model: AbstractModel, num_steps: int
) -> ExerciseProblem:
    """Return the chain of one contract.

    num_steps: The number of steps of a random variance, and of dates that discretize a right to exercise at any
        time.
    """
    model, dates = model.at_smile_point(product.smile_point), product.exercise_times(num_steps)
    times = jnp.concatenate([jnp.zeros_like(dates[:1]), dates])
    if isinstance(product, SwapOption) and isinstance(model, GaussianFactors):
        return swaption_chain(product, times, model)
    assert isinstance(product, SpotOption)  # checked by `unsupported_reason`
    if isinstance(model, LognormalSpots):
        return _at_any_time(lognormal_chain(product, times, model), product, times, model)
    assert isinstance(model, StochasticVariance)
    substeps = -(-num_steps // dates.size)
    is_open = jnp.arange(dates.size * substeps + 1) % substeps == 0
    is_open = is_open.at[0].set(product.any_time).at[-1].set(False)
    chain = variance_chain(product, _refined(times, substeps), is_open, model)
    return _at_any_time(chain, product, times, model)


def _at_any_time(
    chain: ExerciseProblem, product: SpotOption, times: Float[Array, " dates"], model: Any
) -> ExerciseProblem:
    """Return the chain with an upper bound, at the next date, of the value of exercise at any time.

    Rights at any time are only on sums of spots and cash (arithmetic averages).
    """
    if not product.any_time or product.average != "arithmetic":
        return chain
    starts = jnp.concatenate([times[:1], times[:-1]])
    exercise = chain.steps.exercise
    amounts = jax.vmap(partial(most_in_step, model))(starts, times, exercise.amounts)
    return replace(chain, between=replace(exercise, amounts=amounts))


def usual_inner_paths(rule: ExercisePolicy) -> int:
    """Return the inner paths of an upper bound; known means suffice if exercise pays a single sum."""
    return 0 if rule.basis.ordered is None else USUAL_INNER_PATHS


def _refined(times: Float[Array, " dates"], substeps: int) -> Float[Array, " times"]:
    """Return the times with equal substeps between them."""
    shares = jnp.arange(substeps, dtype=times.dtype) / substeps
    steps = times[:-1, None] + jnp.diff(times)[:, None] * shares[None, :]
    return jnp.concatenate([steps.ravel(), times[-1:]])
