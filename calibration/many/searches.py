"""The program that fits a block: it runs a few searches at a time, and replaces each finished one by the next.

Each of `num_slots` slots steps one search, stores its result and takes the next job. If the integral of a fit
is slightly too coarse, a deferred correction fixes it without another program: the deviation of its residuals
from those of a finer integral is added to them, and the search continues. If the quotes do not identify the
parameters, the search is repeated with a weak prior.
"""

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from jaxtape import stored_jit

from ..calibration import ended
from ..least_squares_problem import LeastSquaresProblem, Search, at_optimum, is_small
from ..objectives import AbstractObjective
from ..parameters import FreeParameters
from ..results import RESULTS
from ..unit_forwards import is_of_forwards, on_unit_forwards
from ..weak_prior import MORE_STEPS, WeakPrior
from .job_blocks import padded_objective

_MENDED = 100.0  # irrelevant deviations: an integral finer by a third has 1 % of the error
_MOST_MENDED = 2  # corrections of a job's integral


class SearchResult(NamedTuple):
    """Result of a search: the parameters, [parameters], their standard errors, loss, steps and result.

    `num_within` is the number of quotes for which the fitted vol lies within bid and ask.
    """

    parameters: Array | np.ndarray
    std_errors: Array | np.ndarray
    sum_squared_vol_points: Array | np.ndarray
    steps: Array | np.ndarray
    result: RESULTS
    num_within: Array | np.ndarray

    @classmethod
    def empty(
        cls, parameters: FreeParameters, num_jobs: int = 0, dtype: Any = float
    ) -> "SearchResult":
        """Return arrays with room for the results of `num_jobs` jobs."""
        numbers = np.zeros((num_jobs, sum(map(math.prod, parameters.shapes))), dtype)
        total, steps = np.zeros(num_jobs, dtype), np.zeros(num_jobs, int)
        result = jax.tree.map(lambda code: np.zeros(num_jobs, code.dtype), RESULTS.converged)
        return cls(numbers, numbers, total, steps, result, steps)


class Settings(eqx.Module):
    """Settings that all jobs share.

    `starts` are starting points in the free space, in addition to the job's own parameters.
    """

    objective: AbstractObjective
    parameters: FreeParameters
    optimizer: optax.GradientTransformation
    starts: Float[Array, "starts parameters"]
    rtol: Float[Array, ""]
    max_steps: Int[Array, ""]


@stored_jit(quick_to_compile=True)
def searched(
    batch: PyTree, count: Int[Array, ""], settings: Settings, *, num_slots: int
) -> SearchResult:
    """Return the result of each job's search, [jobs]; only the first `count` jobs are searched."""
    jobs = _JobBatch.of(batch, settings)
    numbers = jnp.arange(jobs.size)
    starts = jax.vmap(jobs.points)(numbers).reshape(jobs.size * jobs.num_starts, -1)
    # all of one size: a smaller remainder would have other last bits
    at_once = num_slots if jobs.size % num_slots == 0 else jobs.size

    def once(state):
        is_left, points, noises, mended, defects, found = state
        ends = _ends(jobs, is_left, points, noises, defects, num_slots)
        of_job = lambda x: x.reshape(jobs.size, jobs.num_starts, *x.shape[1:])
        of_all = numbers, noises, defects, jax.tree.map(of_job, ends)
        best = lambda of_one: jobs.best(*of_one)
        new, noise, deviations = jax.lax.map(best, of_all, batch_size=at_once)
        found = where_rows(is_left, new._replace(steps=found.steps + new.steps), found)
        is_open = is_left & (new.result == RESULTS.not_identified) & (noises == 0.0)
        is_off = is_left & (new.result == RESULTS.inaccurate_integral)
        is_little = jax.vmap(partial(is_small, times=_MENDED))(deviations)
        is_off = is_off & is_little & (mended < _MOST_MENDED)
        # as in `calibrate`, only the steps of the last search count
        found = found._replace(steps=jnp.where(is_open, 0, found.steps))
        points = where_rows(jnp.repeat(is_open, jobs.num_starts), starts, ends.free)
        noises = jnp.where(is_open, noise, noises)
        defects = where_rows(is_off, defects + deviations, defects)
        return is_off | is_open, points, noises, mended + is_off.astype(int), defects, found

    noises = jnp.zeros(jobs.size, starts.dtype)
    defects = jnp.zeros((jobs.size, jobs.problem(0).num_residuals), starts.dtype)
    begun = numbers < count, starts, noises, jnp.zeros(jobs.size, int), defects
    nothing = jax.tree.map(
        jnp.asarray, SearchResult.empty(settings.parameters, jobs.size, starts.dtype)
    )
    *_, found = jax.lax.while_loop(lambda state: jnp.any(state[0]), once, (*begun, nothing))
    return found


@stored_jit(quick_to_compile=True)
def polished(
    batch: PyTree,
    parameters: Float[Array, "jobs parameters"],
    settings: Settings,
    *,
    num_slots: int,
) -> SearchResult:
    """Return the optimum of each job near these parameters, [jobs]."""
    jobs = _JobBatch.of(batch, settings)
    unmended = jnp.zeros(jobs.problem(0).num_residuals, parameters.dtype)

    def of_job(at: tuple[Array, Array]) -> SearchResult:
        job, values = at
        search = at_optimum(jobs.problem(job), settings.parameters.to_free(values))
        alone = jax.tree.map(lambda x: x[None], search)
        return jobs.best(job, jnp.zeros((), parameters.dtype), unmended, alone)[0]

    return jax.lax.map(of_job, (jnp.arange(jobs.size), parameters), batch_size=num_slots)


def _ends(
    jobs: "_JobBatch", is_left: Array, points: Array, noises: Array, defects: Array, num_slots: int
) -> Search:
    """Return the ends of the searches of the remaining jobs, [jobs * starts], each from its starting point."""
    settings, size = jobs.settings, len(points)
    optimizer = optax.with_extra_args_support(settings.optimizer)
    count = jnp.sum(is_left) * jobs.num_starts
    in_turn = jnp.argsort(~jnp.repeat(is_left, jobs.num_starts), stable=True)
    place_of = lambda turn: in_turn[jnp.minimum(turn, size - 1)]

    def begun(turn):
        place = place_of(turn)
        return Search.init(jobs.problem(place // jobs.num_starts), optimizer, points[place])

    def stepped(turn, search):
        job = place_of(turn) // jobs.num_starts
        return search.step(jobs.problem(job, noises[job], defects[job]), optimizer, settings.rtol)

    def step(state):
        turns, searches, following, ends = state
        searches = jax.vmap(stepped)(turns, searches)
        is_held = noises[place_of(turns) // jobs.num_starts] > 0.0
        most = settings.max_steps * jnp.where(is_held, MORE_STEPS, 1)
        has_ended = ~searches.is_running(most) & (turns < count)
        handed_in = jnp.where(has_ended, place_of(turns), size)
        ends = jax.tree.map(lambda x, new: x.at[handed_in].set(new, mode="drop"), ends, searches)
        turns = jnp.where(has_ended, following + jnp.cumsum(has_ended) - 1, turns)
        searches = where_rows(has_ended, jax.vmap(begun)(turns), searches)
        return turns, searches, following + jnp.sum(has_ended), ends

    first = jnp.arange(num_slots)
    ends = jax.vmap(begun)(jnp.arange(size))
    state = first, jax.vmap(begun)(first), jnp.asarray(num_slots), ends
    return jax.lax.while_loop(lambda state: jnp.any(state[0] < count), step, state)[-1]


class _JobBatch(eqx.Module):
    """Quotes, models and priors, [jobs, ...], and the settings for quotes of their shape."""

    inputs: PyTree
    settings: Settings

    @classmethod
    def of(cls, inputs: PyTree, settings: Settings) -> "_JobBatch":
        quotes, models, priors = inputs
        objective = padded_objective(settings.objective, quotes.vols.shape[1:])
        if is_of_forwards(objective, models):
            quotes, models = jax.vmap(on_unit_forwards)(quotes, models)
        return cls((quotes, models, priors), dataclasses.replace(settings, objective=objective))

    @property
    def size(self) -> int:
        return len(jax.tree.leaves(self.inputs)[0])

    @property
    def num_starts(self) -> int:
        return 1 + len(self.settings.starts)

    def problem(
        self,
        job: Int[Array, ""] | int,
        noise: Array | float = 0.0,
        defect: Array | None = None,
    ) -> LeastSquaresProblem:
        """Return the problem of a job, with the noise of its weak prior."""
        quotes, model, prior = jax.tree.map(lambda x: x[job], self.inputs)
        objective, parameters = self.settings.objective, self.settings.parameters
        weak_prior = dataclasses.replace(
            WeakPrior.about(parameters, model), noise=jnp.asarray(noise)
        )
        return LeastSquaresProblem(quotes, model, objective, parameters, prior, defect, weak_prior)

    def points(self, job: Int[Array, ""]) -> Float[Array, "starts parameters"]:
        """Return the starting points of a job's searches, its own model first."""
        own = self.settings.parameters.free(self.problem(job).template)
        return jnp.concatenate([own[None], self.settings.starts])

    def best(
        self, job: Int[Array, ""], noise: Array, defect: Array, searches: Search
    ) -> tuple[SearchResult, Array, Array]:
        """Return the best result of a job's searches.

        Returned with it are the noise of a weak prior there, and the deviation of the residuals from a finer
        integral's.
        """
        losses = jnp.where(searches.finite, jax.vmap(lambda s: s.loss)(searches), jnp.inf)
        search = jax.tree.map(lambda x: x[jnp.argmin(losses)], searches)
        problem = self.problem(job, noise, defect)
        deviation = problem.deviation(search.free, search.residual)
        found = ended(problem, search, deviation)
        errors = jnp.sqrt(jnp.diagonal(found.stats["covariance"]))
        total, steps = (found.stats[name] for name in ("sum_squared_vol_points", "steps"))
        values = self.settings.parameters.values(search.free)
        num_within = jnp.asarray(found.stats.get("num_within_bid_ask", 0), steps.dtype)
        end = SearchResult(values, errors, total, steps, found.result, num_within)
        weak_prior = problem.weak_prior
        assert weak_prior is not None
        return end, weak_prior.switched_on(found.stats["noise"]).noise, deviation


def where_rows(chosen: Array | np.ndarray, new: PyTree, old: PyTree) -> PyTree:
    """Return the chosen rows from `new`, and the others from `old`."""
    of_rows = lambda x: chosen.reshape(-1, *(1,) * (x.ndim - 1))
    return jax.tree.map(lambda new, old: jnp.where(of_rows(new), new, old), new, old)
