"""The verb: which parameters make a model agree with quotes?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from pricing.models import AbstractModel, AbstractTransform, Quotes
from pricing.progress import Progress

from .objectives import AbstractObjective, PriceQuotes, objective_of
from .optimizers import levenberg_marquardt
from .parameters import Parameters, random_starts
from .problem import Problem, Search, identification
from .results import RESULTS

_STEPS_A_REPORT = 5


class Calibration(eqx.Module):
    """A fitted model, its residuals and why the fit ended.

    Attributes:
        model: The fitted model.
        residuals: Model less market, as the objective measures it, in the shape of the quotes: (expiries,
            strikes), (expiries, tenors) or (quotes,); per 1.00 vol, unless the objective says otherwise.
        result: Why the search ended.
        stats: `steps`; `sum_squared_vol_points`, the sum over quotes of (100 residual)^2; `starts_at_optimum`,
            how many starts ended where the best did; `covariance` and `condition_number` of the parameters as
            in `calibration.problem.identification`.
        problem: What was solved, which `quote_sensitivities` differentiates; None where it is not known.

    Examples:
        >>> import jax.numpy as jnp
        >>> from calibration import RESULTS, Calibration
        >>> from pricing import HullWhite
        >>> found = Calibration(HullWhite(0.03, 0.05, 0.01), jnp.zeros((2, 3)), RESULTS.converged, {})
        >>> found.residuals.shape
        (2, 3)
    """

    model: AbstractModel
    residuals: Float[Array, "..."]
    result: RESULTS
    stats: dict[str, Any]
    problem: Problem | None = None


def calibrate(
    quotes: Quotes | PriceQuotes,
    model: AbstractModel,
    *,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    num_starts: int = 1,
    key: PRNGKeyArray | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    progress: Progress | None = None,
    throw: bool = True,
) -> Calibration:
    """Fit `model`, from its own parameters, to implied vols of options or of swaptions, by least squares.

    A batch of quotes or of models is mapped over, by `jax.vmap`, with neither `progress` nor `throw`.

    Args:
        quotes: One surface of implied vols of an equity, one matrix of swaption vols, or prices.
        model: Its type, its starting parameters, and the market that it stands on.
        optimizer: Any optax transformation; the default is Levenberg-Marquardt.
        objective: The residuals; the default are those of implied vols, with equal weights.
        transform: Field -> bounds of each free parameter; the default are the model's own. A model that is not
            `Calibratable` has none, which is a TypeError.
        num_starts: Starting points. The first is the model itself, the others are random; the best end wins.
        key: Of the random starts; the default is seed 0.
        max_steps: Steps of each start at most.
        rtol: A search stops once a step would lower the loss by less than this fraction of it.
        progress: Called with the steps done, `max_steps` and a message, every few steps.
        throw: Whether a search that did not converge raises.

    Returns:
        The fitted model, its residuals, and why the search ended.

    Raises:
        RuntimeError: The best start did not converge and `throw`; the message is that of `result`.
        ValueError: A batch is not mapped over, or is mapped over with `progress` or `throw`.

    Examples:
        >>> from calibration import calibrate
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> calibrate([surface], Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5))
        Traceback (most recent call last):
        TypeError: quotes are a list: give one of VolSurface, SmileQuotes, SwaptionVols, or an objective for it
    """
    is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((quotes, model)))
    if is_traced and (progress is not None or throw):
        raise ValueError(
            "calibrate within jax.vmap or jax.jit can neither report progress nor raise what it finds: give "
            "progress=None and throw=False, and look at the result"
        )
    parameters = Parameters.of(model, transform)
    problem = Problem(quotes, model, objective or objective_of(quotes), parameters)
    optimizer = optimizer or levenberg_marquardt()
    key = jax.random.key(0) if key is None else key
    points = random_starts(parameters, model, num_starts, key=key)

    settings = problem, optimizer, points, jnp.asarray(rtol), jnp.asarray(max_steps)
    calibration = solved(*settings) if progress is None else _watched(*settings, progress)
    if throw and calibration.result != RESULTS.converged:
        raise RuntimeError(f"calibrating {type(model).__name__}: {RESULTS[calibration.result]}")
    return dataclasses.replace(calibration, problem=problem)


@stored_jit
def solved(
    problem: Problem,
    optimizer: optax.GradientTransformation,
    points: Float[Array, "starts parameters"],
    rtol: Array,
    max_steps: Array,
) -> Calibration:
    """Return the best of the fits from each of the points, in one program."""
    searches = _init(problem, optimizer, points)
    return _postprocess(problem, _run(problem, optimizer, searches, rtol, max_steps))


def _watched(
    problem: Problem, optimizer, points, rtol: Array, max_steps: Array, progress: Progress
) -> Calibration:
    """Return the same, found a few steps at a time, with progress in between."""
    searches, until, end = _init(problem, optimizer, points), 0, int(max_steps)
    while bool(jnp.any(searches.is_running(end))):
        until = min(until + _STEPS_A_REPORT, end)
        searches = _run(problem, optimizer, searches, rtol, jnp.asarray(until))
        progress(int(jnp.max(searches.num_steps)), end, "")
    progress(end, end, "")
    return _postprocess(problem, searches)


@stored_jit
def _init(problem: Problem, optimizer, points: Float[Array, "starts parameters"]) -> Search:
    """Return a search from each of the points."""
    return jax.vmap(lambda free: Search.init(problem, optimizer, free))(points)


@stored_jit
def _run(problem: Problem, optimizer, searches: Search, rtol: Array, max_steps: Array) -> Search:
    """Return every search at its end or after `max_steps`; one alone runs unbatched."""
    optimizer = optax.with_extra_args_support(optimizer)
    onward = lambda search: search.run(problem, optimizer, rtol, max_steps)  # noqa: E731
    if searches.num_steps.shape[0] > 1:
        return jax.vmap(onward)(searches)
    alone = jax.tree.map(lambda leaf: leaf[0], searches)
    return jax.tree.map(lambda leaf: leaf[None], onward(alone))


@stored_jit
def _postprocess(problem: Problem, searches: Search) -> Calibration:
    """Return the best of the ends, with its residuals and what they say of the parameters."""
    losses = jnp.where(searches.finite, jax.vmap(lambda search: search.loss)(searches), jnp.inf)
    best = jnp.argmin(losses)
    found = ended(problem, jax.tree.map(lambda leaf: leaf[best], searches))
    at_optimum = jnp.sum(losses <= losses[best] * (1.0 + 1e-6))
    return eqx.tree_at(lambda c: c.stats, found, found.stats | {"starts_at_optimum": at_optimum})


def ended(problem: Problem, search: Search) -> Calibration:
    """Return what a search says at its end: the model, its residuals and what they say of the parameters."""
    stats = {
        "steps": search.num_steps,
        "sum_squared_vol_points": 2e4 * search.loss,
        **identification(problem, search),
    }
    residuals = search.residual.reshape(problem.quoted.shape)
    refusal = problem.objective.result(problem.quotes)
    result = RESULTS.where(refusal == RESULTS.successful, search.result, refusal)
    return Calibration(problem.model(search.free), residuals, result, stats)
