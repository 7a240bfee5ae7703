"""The verb: which parameters make a model agree with quotes?"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray
from rich.progress import Progress

from pricing.models import AbstractModel

from .objectives import AbstractObjective, objective_of
from .optimizers import levenberg_marquardt
from .problem import Problem, Quotes, Search, identification
from .results import RESULTS
from .starts import random_starts
from .transforms import AbstractTransform, parameters_of

_STEPS_A_REFRESH = 5


class Calibration(eqx.Module):
    """A fitted model, its residuals (model less market, as the objective measures it) and why the fit ended.

    residuals: in the shape of the quotes, [expiries, strikes] or [expiries, tenors]; per 1.00 vol, unless the
    objective says otherwise. stats: steps; sum_squared_vol_points, the sum over quotes of (100 residual)^2;
    starts_at_optimum, how many starts ended where the best did; covariance and condition_number as in
    `problem.identification`.
    """

    model: AbstractModel
    residuals: Float[Array, "rows columns"]
    result: RESULTS
    stats: dict[str, Any]


def calibrate(
    quotes: Quotes,
    model: AbstractModel,
    *,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    starts: int = 1,
    key: PRNGKeyArray | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    progress: bool = True,
    throw: bool = True,
) -> Calibration:
    """Fit `model`, from its own parameters, to implied vols of options or of swaptions, by least squares.

    optimizer: any optax transformation (default: Levenberg-Marquardt); objective: the residuals (default:
    of implied vols, equal weights); transform: field -> bounds of each free parameter (default: the model's);
    starts: starting points, the first the model itself, the others random (`key`, default seed 0), of which
    the best end wins; rtol: stop once a step would lower the loss by less than this fraction of it;
    progress: a live bar.

    A batch of quotes or of models is mapped over, by `jax.vmap`, with neither `progress` nor `throw`.

    Raises RuntimeError with the message of `result` if the best start did not converge and `throw`; ValueError
    for a batch that is not mapped over.
    """
    is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((quotes, model)))
    if is_traced and (progress or throw):
        raise ValueError(
            "calibrate within jax.vmap or jax.jit can neither show a bar nor raise what it finds: give "
            "progress=False and throw=False, and look at the result"
        )
    parameters = parameters_of(model, transform)
    problem = Problem(quotes, model, objective or objective_of(quotes), parameters)
    optimizer = optimizer or levenberg_marquardt()
    points = random_starts(parameters, model, starts, jax.random.key(0) if key is None else key)

    search = _watched if progress else solved
    calibration = search(problem, optimizer, points, jnp.asarray(rtol), jnp.asarray(max_steps))
    if throw and calibration.result != RESULTS.converged:
        raise RuntimeError(f"calibrating {type(model).__name__}: {RESULTS[calibration.result]}")
    return calibration


@eqx.filter_jit
def solved(
    problem: Problem,
    optimizer: optax.GradientTransformation,
    points: Float[Array, "starts parameters"],
    rtol: Array,
    max_steps: Array,
) -> Calibration:
    """The best of the fits from each of the points, in one program."""
    searches = _advanced(problem, optimizer, _start(problem, optimizer, points), rtol, max_steps)
    return _concluded(problem, searches)


def _watched(problem: Problem, optimizer, points, rtol: Array, max_steps: Array) -> Calibration:
    """The same, a few steps at a time, with a live bar."""
    searches, last_step, end = _start(problem, optimizer, points), 0, int(max_steps)
    with Progress() as bar:
        task = bar.add_task(f"calibrating {type(problem.template).__name__}", total=end)
        while bool(jnp.any(searches.is_on(end))):
            last_step = min(last_step + _STEPS_A_REFRESH, end)
            searches = _advanced(problem, optimizer, searches, rtol, jnp.asarray(last_step))
            bar.update(task, completed=int(jnp.max(searches.step)))
        bar.update(task, completed=end)
    return _concluded(problem, searches)


@eqx.filter_jit
def _start(problem: Problem, optimizer, points: Float[Array, "starts parameters"]) -> Search:
    """A search from each of the points."""
    return jax.vmap(lambda free: Search.start(problem, optimizer, free))(points)


@eqx.filter_jit
def _advanced(
    problem: Problem, optimizer, searches: Search, rtol: Array, last_step: Array
) -> Search:
    """Every search, up to its end or to `last_step`; one alone runs unbatched."""
    optimizer = optax.with_extra_args_support(optimizer)
    onward = lambda search: search.advanced(problem, optimizer, rtol, last_step)  # noqa: E731
    if searches.step.shape[0] > 1:
        return jax.vmap(onward)(searches)
    alone = jax.tree.map(lambda leaf: leaf[0], searches)
    return jax.tree.map(lambda leaf: leaf[None], onward(alone))


@eqx.filter_jit
def _concluded(problem: Problem, searches: Search) -> Calibration:
    """The best of the ends, with its residuals and what they say of the parameters."""
    losses = jnp.where(searches.finite, jax.vmap(lambda search: search.loss)(searches), jnp.inf)
    best = jnp.argmin(losses)
    search = jax.tree.map(lambda leaf: leaf[best], searches)
    stats = {
        "steps": search.step,
        "sum_squared_vol_points": 2e4 * search.loss,
        "starts_at_optimum": jnp.sum(losses <= losses[best] * (1.0 + 1e-6)),
        **identification(problem, search),
    }
    residuals = search.residual.reshape(problem.quotes.vols.shape)
    return Calibration(problem.model(search.free), residuals, search.result, stats)
