"""Fit a model to quotes by least squares."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from jaxtape.jax_settings.single_on_devices import (
    device_program,
    devices_are_single,
    in_host_precision,
)
from pricing.argument_kinds import of_kinds
from pricing.fields import in_working_precision
from pricing.models import AbstractModel, AbstractTransform, Calibratable, Quotes
from pricing.numbers_shown import repr_with_numbers
from pricing.progress import Progress

from .least_squares_problem import (
    LeastSquaresProblem,
    Search,
    at_optimum,
    identification,
    is_small,
)
from .objectives import AbstractObjective, PriceQuotes, bid_ask_counts, objective_of
from .optimizers import levenberg_marquardt
from .parameters import FreeParameters, random_starts
from .prior import Prior
from .results import REASONS, RESULTS
from .weak_prior import weak_prior

_STEPS_A_REPORT = 5
_LEAST_ROOM = 256  # trials in a history: enough for every fit with the default settings


class Calibration(eqx.Module):
    """A fitted model, its residuals and the reason why the fit ended.

    Attributes:
        model: The fitted model.
        residuals: Model less market, as the objective measures it, in the shape of the quotes: (expiries,
            strikes), (expiries, tenors) or (quotes,); per 1.00 vol, unless the objective says otherwise. NaN
            for a missing quote.
        result: The reason why the search ended.
        stats: `steps`; `sum_squared_vol_points`, the sum over quotes of (100 residual)^2; `num_quotes`, the
            number of quotes that are not missing; if quotes have bids and asks, `num_bid_ask`, the number of
            those, and `num_within_bid_ask`, the number for which the model's vol lies between them; `reason`,
            the criterion that ended the search (`REASONS`); `history`, its trials (`calibration.History`);
            `starts_at_optimum`, the number of starts that ended at the best point; `covariance`, `noise`,
            `condition_number` and `not_identified` as in `calibration.least_squares_problem.identification`.
        problem: The solved problem, which `quote_sensitivities` differentiates; None if unknown.
    """

    __repr__ = repr_with_numbers

    model: AbstractModel
    residuals: Float[Array, "..."]
    result: RESULTS
    stats: dict[str, Any]
    problem: LeastSquaresProblem | None = None

    @property
    def label(self) -> str:
        """The name of the model, such as Hull-White."""
        model = self.model
        return model.label if isinstance(model, Calibratable) else type(model).__name__

    @property
    def is_held(self) -> bool:
        """Whether a weak prior holds parameters that the quotes do not identify."""
        return bool(self.result == RESULTS.not_identified)

    @property
    def has_failed(self) -> bool:
        """Whether the parameters are not at an optimum; an optimum held by a weak prior counts as one."""
        return bool(self.result != RESULTS.converged) and not self.is_held

    @property
    def not_identified(self) -> tuple[str, ...]:
        """The parameters that the quotes do not identify."""
        labels = FreeParameters.of(self.model).labels
        is_open = np.asarray(self.stats["not_identified"]).tolist()
        return tuple(label for label, open_ in zip(labels, is_open, strict=True) if open_)

    @property
    def message(self) -> str:
        """A description of the result: the held parameters, or the reason of a failure."""
        if self.is_held:
            names = ", ".join(self.not_identified) or "all parameters together"
            return f"{RESULTS[self.result]} Held: {names}."
        reason = self.stats.get("reason")
        if reason is None or not self.has_failed:
            return RESULTS[self.result]
        return REASONS[reason]

    @property
    def solved_problem(self) -> LeastSquaresProblem:
        """The solved problem.

        Raises:
            ValueError: If it is unknown.
        """
        if self.problem is None:
            raise ValueError(
                "the calibration does not hold its problem: give what calibrate returned"
            )
        return self.problem

    @full_matmul_precision
    def prior(self, drift: Mapping[str, ArrayLike] | None = None, days: float = 1.0) -> Prior:
        """Return a prior for a fit some days later, from the information in this fit.

        Each parameter follows a random walk; a chain of such fits is an extended Kalman filter. Directions that
        the quotes do not identify stay unidentified: the prior carries the information of this fit, its own
        prior included.

        Args:
            drift: Field -> standard deviation of a day's move, in the parameter's units. An omitted field does
                not move.
            days: The number of days.

        Raises:
            ValueError: If the calibration does not hold its problem, or a field is not free.
        """
        problem = self.solved_problem
        if unknown := set(drift or {}) - set(problem.parameters.names):
            free = ", ".join(problem.parameters.names)
            raise ValueError(f"{min(unknown)!r} is not a free parameter: give the drift of {free}")
        variance = days * problem.parameters.spread(drift or {}, missing=0.0) ** 2
        return _drifted(problem, self.model, self.stats["noise"], variance)


@of_kinds(model=(AbstractModel, "the model to start from, such as Heston(...)"))
@full_matmul_precision
def calibrate(
    quotes: Quotes | PriceQuotes,
    model: AbstractModel,
    *,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    prior: Prior | None = None,
    num_starts: int = 1,
    key: PRNGKeyArray | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    progress: Progress | None = None,
    throw: bool = True,
) -> Calibration:
    """Fit `model`, from its own parameters, to implied vols of options or of swaptions, by least squares.

    Map over a batch of quotes or of models with `jax.vmap`, with neither `progress` nor `throw`.

    Args:
        quotes: One surface of implied vols of an equity, one matrix of swaption vols, or prices. NaN means a
            missing quote.
        model: A model, which gives the type, the starting parameters and the market data.
        optimizer: Any optax transformation; the default is Levenberg-Marquardt.
        objective: The residuals; by default, of implied vols with equal weights.
        transform: Field -> bounds of each free parameter; the default is the model's own. TypeError is raised
            if it is missing and the model is not `Calibratable`.
        prior: Prior of the parameters; its residuals are minimized with those of the quotes.
        num_starts: The number of starting points. The first is the model itself, the others are random; the
            best result wins.
        key: Key of the random starts; the default is seed 0.
        max_steps: Maximum number of steps of each start; doubled if a weak prior holds parameters.
        rtol: A search stops once a step would lower the loss by less than this fraction of it.
        progress: Called with the steps done, `max_steps` and a message, every few steps.
        throw: Whether a search that did not converge raises.

    Returns:
        The fitted model, its residuals, and why the search ended.

    Raises:
        RuntimeError: If the best start did not converge and `throw`; the message is `result`'s.
        ValueError: If a batch is not mapped over, or is mapped over with `progress` or `throw`.

    Examples:
        >>> from calibration import calibrate
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> calibrate([surface], Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5))
        Traceback (most recent call last):
        TypeError: quotes are a list: give one of VolSurface, SmileQuotes, SwaptionVols, or an objective for it
    """
    model = in_working_precision(model)
    is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((quotes, model)))
    if is_traced and (progress is not None or throw):
        raise ValueError(
            "calibrate within jax.vmap or jax.jit can neither report progress nor raise errors: "
            "give "
            "progress=None and throw=False, and check the result"
        )
    parameters = FreeParameters.of(model, transform)
    about = weak_prior(parameters, model)
    objective = objective or objective_of(quotes)
    problem = LeastSquaresProblem(quotes, model, objective, parameters, prior, weak_prior=about)
    optimizer = optimizer or levenberg_marquardt()
    key = jax.random.key(0) if key is None else key
    points = random_starts(parameters, model, num_starts, key=key)

    settings = search_settings(optimizer, rtol, max_steps)
    with jax.debug_nans(False):  # NaN marks missing quotes, and `result` reports failures
        calibration = None
        if devices_are_single() and not is_traced:
            calibration = _polished_from_single(problem, points, *settings, progress)
        if calibration is None:
            problem, calibration = identified(problem, points, *settings, progress)
        while not is_traced and calibration.result == RESULTS.inaccurate_integral:
            assert problem.finer is not None  # which showed this one to be too coarse
            problem, ended_at = problem.finer, parameters.free(calibration.model)
            points = jnp.where(jnp.isfinite(ended_at), ended_at, points[0])[None]
            problem, calibration = identified(problem, points, *settings, progress)
        history = calibration.stats["history"].first(max_steps + 1)
        calibration = eqx.tree_at(lambda c: c.stats["history"], calibration, history)
    if throw and calibration.result != RESULTS.converged:
        raise RuntimeError(f"calibrating {type(model).__name__}: {RESULTS[calibration.result]}")
    return dataclasses.replace(calibration, problem=problem)


def _polished_from_single(
    problem: LeastSquaresProblem, points: Array, optimizer, rtol: Array, *settings
) -> Calibration | None:
    """Return the optimum near the end of a search in single precision on the device.

    None if the search did not converge, or the quotes do not identify the parameters: the caller then searches
    in double precision.
    """
    search = optimizer, jnp.maximum(rtol, least_rtol(jnp.float32)), *settings
    _, coarse = device_program(identified)(problem, points, *search)
    if coarse.result != RESULTS.converged:
        return None
    coarse = in_host_precision(coarse)
    found = _polished(problem, coarse.model)
    kept = {name: coarse.stats[name] for name in ("history", "starts_at_optimum")}
    steps = found.stats["steps"] + coarse.stats["steps"]
    found = dataclasses.replace(found, stats={**found.stats, **kept, "steps": steps})
    return found if found.result == RESULTS.converged else None


@stored_jit(quick_to_compile=True)
def _polished(problem: LeastSquaresProblem, model: AbstractModel) -> Calibration:
    """Return the fit at the optimum near the parameters of a model."""
    search = at_optimum(problem, problem.parameters.free(model))
    return ended(problem, search, problem.deviation(search.free, search.residual))


def least_rtol(dtype: Any) -> float:
    """Return the smallest relative gain in the loss that a step can resolve in a precision."""
    return max(1e-10, 100.0 * float(jnp.finfo(dtype).eps))


def identified(
    problem: LeastSquaresProblem,
    points: Array,
    optimizer,
    rtol: Array,
    max_steps: Array,
    num_trials: int,
    progress: Progress | None = None,
) -> tuple[LeastSquaresProblem, Calibration]:
    """Return the best of the fits from each of the points, and the problem that it solves.

    If the quotes do not identify the parameters, the fits are repeated with the weak prior switched on. Under a
    trace that is unknown, so a second search is traced, which ends at once if the first one succeeded.
    """
    settings = optimizer, rtol, max_steps, num_trials, progress
    found = _found(problem, points, *settings)
    if found.result.is_traced():
        return _identified_in_trace(problem, points, found, settings)
    if found.result == RESULTS.not_identified and not problem.is_held:
        problem, is_open = problem.held(found.stats["noise"]), found.stats["not_identified"]
        found = _found(problem, points, *settings)
        found.stats["not_identified"] |= is_open
    return problem, found


def _identified_in_trace(
    problem: LeastSquaresProblem, points: Array, first: Calibration, settings: tuple
) -> tuple[LeastSquaresProblem, Calibration]:
    assert problem.weak_prior is not None
    is_open = (first.result == RESULTS.not_identified) & ~problem.is_held
    held = problem.held(first.stats["noise"])
    noise = lambda p: p.weak_prior.noise
    problem = eqx.tree_at(noise, problem, jnp.where(is_open, noise(held), noise(problem)))
    points = jnp.where(is_open, points, problem.parameters.free(first.model)[None])
    second = _found(problem, points, *settings)
    chosen = lambda new, old: jnp.where(is_open, new, old)
    second.stats["not_identified"] |= first.stats["not_identified"]
    return problem, jax.tree.map(chosen, second, first)


def _found(
    problem: LeastSquaresProblem,
    points: Array,
    optimizer,
    rtol: Array,
    max_steps: Array,
    num_trials: int,
    progress: Progress | None,
) -> Calibration:
    settings = problem, optimizer, points, rtol, max_steps, num_trials
    return solved(*settings) if progress is None else _watched(*settings, progress)


def search_settings(
    optimizer: optax.GradientTransformation, rtol: float, max_steps: int
) -> tuple[optax.GradientTransformation, Array, Array, int]:
    """Return the settings of `identified`; call it outside of a trace, or the stored program is not found."""
    return optimizer, jnp.asarray(rtol), jnp.asarray(max_steps), _room_for(max_steps)


def _room_for(max_steps: int) -> int:
    """Return the capacity of a history: a power of 2, so that few programs are compiled."""
    return max(_LEAST_ROOM, 1 << int(max_steps).bit_length())


@stored_jit(quick_to_compile=True)
def solved(
    problem: LeastSquaresProblem,
    optimizer: optax.GradientTransformation,
    points: Float[Array, "starts parameters"],
    rtol: Array,
    max_steps: Array,
    num_trials: int,
) -> Calibration:
    """Return the best of the fits from each of the points, in one program.

    `num_trials` is the capacity of a history.
    """
    searches = _init(problem, optimizer, points, num_trials)
    most = problem.most_steps(max_steps)
    return _postprocess(problem, _run(problem, optimizer, searches, rtol, most))


def _watched(
    problem: LeastSquaresProblem,
    optimizer,
    points,
    rtol: Array,
    max_steps: Array,
    num_trials: int,
    progress: Progress,
) -> Calibration:
    """Return the same result, computed a few steps at a time, with progress reports in between."""
    searches, until = _init(problem, optimizer, points, num_trials), 0
    end = int(problem.most_steps(max_steps))
    while bool(jnp.any(searches.is_running(end))):
        until = min(until + _STEPS_A_REPORT, end)
        searches = _run(problem, optimizer, searches, rtol, jnp.asarray(until))
        progress(int(jnp.max(searches.num_steps)), end, "")
    progress(end, end, "")
    return _postprocess(problem, searches)


@stored_jit
def _init(
    problem: LeastSquaresProblem,
    optimizer,
    points: Float[Array, "starts parameters"],
    num_trials: int,
) -> Search:
    return jax.vmap(lambda free: Search.init(problem, optimizer, free, num_trials))(points)


@stored_jit
def _run(
    problem: LeastSquaresProblem, optimizer, searches: Search, rtol: Array, max_steps: Array
) -> Search:
    """Run every search to its end or for `max_steps`; a single one runs unbatched."""
    optimizer = optax.with_extra_args_support(optimizer)
    run = lambda search: search.run(problem, optimizer, rtol, max_steps)
    if searches.num_steps.shape[0] > 1:
        return jax.vmap(run)(searches)
    alone = jax.tree.map(lambda leaf: leaf[0], searches)
    return jax.tree.map(lambda leaf: leaf[None], run(alone))


@stored_jit
def _postprocess(problem: LeastSquaresProblem, searches: Search) -> Calibration:
    """Return the best result, with its residuals and statistics."""
    losses = jnp.where(searches.finite, jax.vmap(lambda search: search.loss)(searches), jnp.inf)
    best = jnp.argmin(losses)
    search = jax.tree.map(lambda leaf: leaf[best], searches)
    found = ended(problem, search, problem.deviation(search.free, search.residual))
    at_optimum = jnp.sum(losses <= losses[best] * (1.0 + 1e-6))
    return eqx.tree_at(lambda c: c.stats, found, found.stats | {"starts_at_optimum": at_optimum})


def ended(problem: LeastSquaresProblem, search: Search, deviation: Array) -> Calibration:
    """Return the result at the end of a search: the model, its residuals and its statistics.

    `deviation` is the residuals of a finer integral less these.
    """
    residuals, known = problem.of_quotes(search.residual), identification(problem, search)
    is_open = jnp.isfinite(search.loss) & jnp.any(known["not_identified"]) & ~problem.is_held
    is_held = problem.is_held & search.finite & (search.converged | search.is_close)
    found = RESULTS.where(is_open | is_held, RESULTS.not_identified, search.result)
    is_off = search.finite & ~is_small(deviation) & ~is_open
    found = RESULTS.where(is_off, RESULTS.inaccurate_integral, found)
    is_sound = problem.refusal == RESULTS.successful
    result = RESULTS.where(is_sound, found, problem.refusal)
    stats = {
        "steps": search.num_steps,
        "sum_squared_vol_points": 1e4 * jnp.sum(residuals**2),
        "num_quotes": problem.num_quotes,
        **bid_ask_counts(problem.quotes, problem.model(search.free)),
        "reason": search.reason(problem, result),
        "history": search.history,
        **known,
    }
    residuals = jnp.where(jnp.isnan(problem.quoted), jnp.nan, residuals)
    return Calibration(problem.model(search.free), residuals, result, stats)


@stored_jit
def _drifted(
    problem: LeastSquaresProblem, model: AbstractModel, noise: Array, variance: Array
) -> Prior:
    parameters, free = problem.parameters, problem.parameters.free(model)
    jacobian = problem.linearized(free)[1][
        : problem.num_quoted_rows
    ]  # without the weak prior's rows
    per_parameter = jnp.linalg.inv(jax.jacfwd(parameters.values)(free))
    return Prior.drifted(parameters.values(free), jacobian @ per_parameter, noise, variance)
