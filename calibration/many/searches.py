"""The program: a few searches at a time, and one that has ended makes room for the next job.

There are so many slots; each steps one search, hands in its end and takes the next job.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from jaxtape import stored_jit
from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, CharacteristicFunction

from ..calibration import ended
from ..objectives import AbstractObjective
from ..parameters import Parameters
from ..problem import Problem, Search
from ..results import RESULTS
from .batches import padded_objective


class End(NamedTuple):
    """How a search ended: the parameters, [parameters], their standard errors, the loss, the steps, and why."""

    parameters: Array | np.ndarray
    std_errors: Array | np.ndarray
    sum_squared_vol_points: Array | np.ndarray
    steps: Array | np.ndarray
    result: RESULTS

    @classmethod
    def of_none(cls, parameters: Parameters) -> "End":
        """Return the ends of no job at all."""
        numbers = np.zeros((0, sum(map(math.prod, parameters.shapes))))
        result = jax.tree.map(lambda code: np.zeros(0, code.dtype), RESULTS.converged)
        return cls(numbers, numbers, np.zeros(0), np.zeros(0, int), result)


class Settings(eqx.Module):
    """What is the same for all jobs.

    starts: points of the free space where searches begin, besides the one at the job's own parameters.
    """

    objective: AbstractObjective
    parameters: Parameters
    optimizer: optax.GradientTransformation
    starts: Float[Array, "starts parameters"]
    rtol: Float[Array, ""]
    max_steps: Int[Array, ""]


@stored_jit(quick_to_compile=True)
def searched(batch: PyTree, count: Int[Array, ""], settings: Settings, *, num_slots: int) -> End:
    """Return how each job ended, [jobs]: of a batch of jobs the first `count`, the others as they come."""
    objective, parameters, rtol = settings.objective, settings.parameters, settings.rtol
    optimizer = optax.with_extra_args_support(settings.optimizer)
    quotes, models, priors = batch
    objective = padded_objective(objective, quotes.vols.shape[1:])
    if objective.is_of_moneyness and isinstance(models, CharacteristicFunction):
        quotes, models = jax.vmap(_normalized)(quotes, models)
    batch = quotes, models, priors
    num_jobs, num_starts = len(jax.tree.leaves(batch)[0]), 1 + len(settings.starts)
    size, count = num_jobs * num_starts, count * num_starts  # places: jobs times starts

    def problem_of(job):
        quotes, model, prior = jax.tree.map(lambda x: x[jnp.minimum(job, num_jobs - 1)], batch)
        return Problem(quotes, model, objective, parameters, prior)

    def begun(place):
        problem = problem_of(place // num_starts)
        own = parameters.free(problem.template)[None]
        free = jnp.concatenate([own, settings.starts])[place % num_starts]
        return Search.init(problem, optimizer, free)

    def stepped(place, search):
        return search.step(problem_of(place // num_starts), optimizer, rtol)

    def step(state):
        places, searches, following, ends = state
        searches = jax.vmap(stepped)(places, searches)
        has_ended = ~searches.is_running(settings.max_steps) & (places < count)
        handed_in = jnp.where(has_ended, places, size)
        ends = jax.tree.map(lambda x, new: x.at[handed_in].set(new, mode="drop"), ends, searches)
        taken = jnp.where(has_ended, following + jnp.cumsum(has_ended) - 1, places)
        pick = lambda new, old: jnp.where(has_ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old)  # noqa: E731
        searches = jax.tree.map(pick, jax.vmap(begun)(taken), searches)
        return taken, searches, following + jnp.sum(has_ended), ends

    places = jnp.arange(num_slots)
    ends = jax.vmap(begun)(jnp.arange(size))
    state = places, jax.vmap(begun)(places), jnp.asarray(num_slots), ends
    *_, ends = jax.lax.while_loop(lambda state: jnp.any(state[0] < count), step, state)

    def best(job):
        of_job = job * num_starts + jnp.arange(num_starts)
        searches = jax.tree.map(lambda x: x[of_job], ends)
        losses = jnp.where(searches.finite, jax.vmap(lambda s: s.loss)(searches), jnp.inf)
        search = jax.tree.map(lambda x: x[jnp.argmin(losses)], searches)
        found = ended(problem_of(job), search)
        errors = jnp.sqrt(jnp.diagonal(found.stats["covariance"]))
        total, steps = (found.stats[name] for name in ("sum_squared_vol_points", "steps"))
        return End(parameters.values(search.free), errors, total, steps, found.result)

    return jax.vmap(best)(jnp.arange(num_jobs))


def _normalized(quotes: VolSurface | SmileQuotes, model: Any) -> tuple[SmileQuotes, AbstractModel]:
    """Return quotes as smiles, and the model on a market of forwards 1.

    A model's law of log(S / F) does not depend on the forward F, nor do vols in log-moneyness.
    """
    if isinstance(quotes, VolSurface):
        forwards = jax.vmap(model.forward)(quotes.expiries)
        log_moneyness = jnp.log(forwards[:, None] / quotes.strikes[None, :])
        weights = jnp.ones_like(quotes.vols)
    else:
        log_moneyness, weights = quotes.log_moneyness, quotes.weights
    of_market = lambda m: (m.spot, m.rate, m.dividend_yield)  # noqa: E731
    zero = jnp.zeros_like(model.spot)
    unit = eqx.tree_at(of_market, model, (jnp.ones_like(zero), zero, zero))
    return SmileQuotes(quotes.expiries, log_moneyness, quotes.vols, weights), unit
