"""The verb for many: each set of quotes gets a fit of its own, and one that has ended makes room for the next.

Quotes of equities are brought to one form, smiles in log-moneyness on a market of forwards 1, and padded to a
few shapes with quotes of weight 0, so that few programs serve all. A program has so many slots: each steps one
search at a time, hands in its end and takes the next set of quotes.
"""

import collections
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PyTree

from jaxtape import stored_jit
from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, AbstractTransform, CharacteristicFunction, Quotes
from pricing.progress import Progress

from .calibration import ended
from .objectives import AbstractObjective, ImpliedVolError, objective_of
from .optimizers import levenberg_marquardt
from .parameters import Parameters
from .problem import Problem, Search
from .results import RESULTS


class Job(NamedTuple):
    """One set of quotes, and the model to fit to it, from its own parameters and on its own market.

    Attributes:
        id: The name of the job in the results.
        quotes: A surface or smiles of implied vols, or a matrix of swaption vols. A vol that is NaN is missing.
        model: Its type, its starting parameters, and the market that it stands on.

    Examples:
        >>> from calibration import Job
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> Job("DAX", surface, Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5)).id
        'DAX'
    """

    id: str
    quotes: Quotes
    model: AbstractModel


@dataclass(frozen=True)
class Calibrations:
    """What `calibrate_many` found, in the order of the jobs, as columns of one entry a job.

    Attributes:
        ids: The names of the jobs.
        parameters: Field -> the fitted parameters; NaN where the job failed.
        std_errors: Field -> the standard errors of the parameters, as the residuals and their slopes tell them.
        sum_squared_vol_points: The sum over the quotes of (100 residual)^2; NaN where the job failed.
        num_quotes: How many quotes counted.
        steps: The steps of each search; NaN where there was none.
        status: "ok", or "failed: " and the reason.

    Examples:
        >>> import numpy as np
        >>> from calibration import Calibrations
        >>> none = np.array([np.nan])
        >>> Calibrations(("A",), {"vol": none}, {"vol": none}, none, none, none, ("failed: ...",)).failed
        {'A': 'failed: ...'}
    """

    ids: tuple[str, ...]
    parameters: dict[str, np.ndarray]
    std_errors: dict[str, np.ndarray]
    sum_squared_vol_points: np.ndarray
    num_quotes: np.ndarray
    steps: np.ndarray
    status: tuple[str, ...]

    @property
    def failed(self) -> dict[str, str]:
        """Id -> why a job has no parameters."""
        pairs = zip(self.ids, self.status, strict=True)
        return {name: status for name, status in pairs if status != "ok"}


def calibrate_many(
    jobs: Iterable[Job],
    *,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
    block_size: int = 1024,
    num_slots: int = 64,
    progress: Progress | None = None,
) -> Calibrations:
    """Fit models of one type to many sets of quotes, each by itself, as `calibrate` does from one start.

    Quotes may differ in shape, and some may be missing. A job that cannot be fitted has its reason in `status`,
    and the others are fitted all the same. A fit does not depend on the jobs beside it.

    Args:
        jobs: The quotes and the models, all of one type.
        optimizer: As in `calibrate`.
        objective: As in `calibrate`; for all jobs.
        transform: As in `calibrate`; for all jobs.
        max_steps: As in `calibrate`.
        rtol: As in `calibrate`.
        block_size: The jobs of one call of a program, a power of two.
        num_slots: The searches that are in work at once.
        progress: Called with the jobs done, their total and an empty message, after every block.

    Returns:
        The parameters of every job, their standard errors, and how each search ended.

    Raises:
        ValueError: Two jobs have one id, there is none, or their models are of several types, or have arrays as
            parameters.

    Examples:
        >>> from calibration import Job, calibrate_many
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, -0.21]])
        >>> found = calibrate_many([Job("A", surface, Heston(100.0, 0.0, 0.04, 1.0, 0.04, 0.5, -0.5))])
        >>> found.status[0]
        'failed: the vol of expiry 1 at strike 110 is -0.21: give one above 0, or NaN where there is none'
    """
    jobs = tuple(jobs)
    if misfit := _misfit(jobs):
        raise ValueError(misfit)
    objective = objective or objective_of(jobs[0].quotes)
    optimizer = optimizer or levenberg_marquardt()
    parameters = _numbers_alone(jobs[0].model, transform)
    fewest = len(parameters.names)
    refused = {place: why for place, job in enumerate(jobs) if (why := _refusal(job, fewest))}
    settings = objective, parameters, optimizer, jnp.asarray(rtol), jnp.asarray(max_steps)
    found, done = [], len(refused)
    for places, batch in _batches(jobs, refused, objective):
        size = min(block_size, _power_of_two(places.size))
        for start in range(0, places.size, size):
            block = np.arange(start, min(start + size, places.size))
            inputs = jax.tree.map(operator.itemgetter(np.resize(block, size)), batch)
            count, slots = jnp.asarray(block.size), min(num_slots, size)
            ends = _searched(inputs, count, *settings, num_slots=slots)
            ends = jax.tree.map(lambda x, n=block.size: np.asarray(x)[:n], ends)
            found.append((places[block], ends))
            done += block.size
            if progress is not None:
                progress(done, len(jobs), "")
    return _in_order(jobs, refused, found, parameters.names)


class _End(NamedTuple):
    """How a search ended: the parameters, [parameters], their standard errors, the loss, the steps, and why."""

    parameters: Array
    std_errors: Array
    sum_squared_vol_points: Array
    steps: Array
    result: RESULTS


def _in_order(
    jobs: Sequence[Job],
    refused: Mapping[int, str],
    found: Sequence[tuple[np.ndarray, _End]],
    names: Sequence[str],
) -> Calibrations:
    """Return the ends of all jobs in the order of the jobs."""
    rows = np.full((len(jobs), 2 * len(names) + 2), np.nan)
    status = {place: f"failed: {why}" for place, why in refused.items()}
    for places, ends in found:
        (codes,) = jax.tree.leaves(ends.result)
        one = lambda code, ends=ends: jax.tree.map(lambda _: np.asarray(code), ends.result)  # noqa: E731
        why = {code: RESULTS[one(code)] for code in np.unique(codes)}
        good = codes == jax.tree.leaves(RESULTS.converged)[0]
        numbers = [ends.parameters, ends.std_errors, ends.sum_squared_vol_points[:, None]]
        rows[places, :-1] = np.where(good[:, None], np.concatenate(numbers, axis=1), np.nan)
        rows[places, -1] = ends.steps
        reasons = [
            "ok" if fine else f"failed: {why[code]}" for fine, code in zip(good, codes, strict=True)
        ]
        status |= dict(zip(places.tolist(), reasons, strict=True))
    parameters, errors, (total, steps) = np.split(rows.T, [len(names), 2 * len(names)])
    return Calibrations(
        tuple(job.id for job in jobs),
        dict(zip(names, parameters, strict=True)),
        dict(zip(names, errors, strict=True)),
        total,
        np.array([np.sum(_counts(job.quotes)) for job in jobs]),
        steps,
        tuple(status[place] for place in range(len(jobs))),
    )


def _misfit(jobs: Sequence[Job]) -> str | None:
    """Return why jobs cannot be calibrated together."""
    if not jobs:
        return "there is no job to calibrate: give at least one"
    ids = collections.Counter(job.id for job in jobs)
    if twice := [name for name, count in ids.items() if count > 1]:
        return f"several jobs have the id {twice[0]!r}: give each one of its own"
    kinds = sorted({type(job.model).__name__ for job in jobs})
    if len(kinds) > 1:
        return f"the jobs have models of {', '.join(kinds)}: calibrate one type at a time"
    return None


def _numbers_alone(
    model: AbstractModel, transform: Mapping[str, AbstractTransform] | None
) -> Parameters:
    """Return the free parameters of a model.

    Raises:
        ValueError: One of them is an array.
    """
    found = Parameters.of(model, transform)
    pairs = zip(found.names, found.shapes, strict=True)
    if arrays := ", ".join(name for name, shape in pairs if shape):
        kind = type(model).__name__
        raise ValueError(f"{kind} has arrays as parameters ({arrays}): calibrate each by itself")
    return found


def _refusal(job: Job, fewest: int) -> str | None:
    """Return why a job cannot be fitted, as far as its numbers tell beforehand."""
    quotes = job.quotes
    vols, expiries = np.asarray(quotes.vols), np.asarray(quotes.expiries)
    if vols.ndim != 2:
        return f"its vols have shape {vols.shape}: give each set of quotes a job of its own"
    bad = ~np.isfinite(expiries) | (expiries <= 0.0)
    if np.any(bad):
        return f"an expiry is {expiries[bad][0]:g}: give years above 0"
    if isinstance(quotes, VolSurface) and not np.all(np.asarray(quotes.strikes) > 0.0):
        return f"a strike is {np.min(quotes.strikes):g}: give prices above 0"
    wrong = _counts(quotes) & ~((vols > 0.0) & np.isfinite(vols))
    if np.any(wrong):
        row, column = np.argwhere(wrong)[0].tolist()
        at = f"expiry {expiries[row]:g} at {_column_of(quotes, row, column)}"
        return f"the vol of {at} is {vols[row, column]:g}: give one above 0, or NaN where there is none"
    if (count := int(np.sum(_counts(quotes)))) < fewest:
        return f"it has {count} quotes for {fewest} parameters: give at least as many"
    return None


def _column_of(quotes: Quotes, row: int, column: int) -> str:
    if isinstance(quotes, VolSurface):
        return f"strike {quotes.strikes[column]:g}"
    if isinstance(quotes, SmileQuotes):
        return f"log-moneyness {quotes.log_moneyness[row, column]:g}"
    return f"tenor {quotes.tenors[column]:g}"


def _counts(quotes: Quotes) -> np.ndarray:
    """Return which quotes are there: those that are not NaN, and weigh something."""
    is_there = ~np.isnan(np.asarray(quotes.vols))
    return (
        is_there & (np.asarray(quotes.weights) != 0.0)
        if isinstance(quotes, SmileQuotes)
        else is_there
    )


def _batches(
    jobs: Sequence[Job], refused: Mapping[int, str], objective: AbstractObjective
) -> Iterator[tuple[np.ndarray, tuple[Quotes, AbstractModel]]]:
    """Yield the jobs of one shape: their places, and their quotes and models, [jobs, ...]."""
    raw: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        if place not in refused:
            raw.setdefault(_shape_of(job[1:]), []).append(place)
    shaped: dict[Hashable, list[tuple[np.ndarray, Any]]] = {}
    for places in raw.values():
        pair = _stacked([jobs[place][1:] for place in places])
        model = jobs[places[0]].model
        if isinstance(objective, ImpliedVolError) and isinstance(model, CharacteristicFunction):
            quotes, models = _smiles(*pair)
            pair = jax.tree.map(np.asarray, (_padded(jax.tree.map(np.asarray, quotes)), models))
        shaped.setdefault(_shape_of(pair, 1), []).append((np.asarray(places), pair))
    for parts in shaped.values():
        places, pairs = zip(*parts, strict=True)
        yield np.concatenate(places), jax.tree.map(lambda *x: np.concatenate(x), *pairs)


def _shape_of(tree: PyTree, batch_axes: int = 0) -> Hashable:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape[batch_axes:], leaf.dtype) for leaf in leaves)


def _stacked(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


@stored_jit
@jax.vmap
def _smiles(quotes: VolSurface | SmileQuotes, model: Any) -> tuple[SmileQuotes, AbstractModel]:
    """Return quotes as smiles, a missing one with weight 0, and the model on a market of forwards 1.

    A model's law of log(S / F) does not depend on the forward F, nor do vols in log-moneyness.
    """
    if isinstance(quotes, VolSurface):
        forwards = jax.vmap(model.forward)(quotes.expiries)
        log_moneyness = jnp.log(forwards[:, None] / quotes.strikes[None, :])
        weights = jnp.ones_like(quotes.vols)
    else:
        log_moneyness, weights = quotes.log_moneyness, quotes.weights
    is_there = ~jnp.isnan(quotes.vols) & (weights != 0.0)
    vols = jnp.where(is_there, quotes.vols, 1.0)
    weights = jnp.where(is_there, weights, 0.0)
    of_market = lambda m: (m.spot, m.rate, m.dividend_yield)  # noqa: E731
    zero = jnp.zeros_like(model.spot)
    unit = eqx.tree_at(of_market, model, (jnp.ones_like(zero), zero, zero))
    return SmileQuotes(quotes.expiries, log_moneyness, vols, weights), unit


def _padded(quotes: SmileQuotes) -> SmileQuotes:
    """Return smiles [jobs, expiries, strikes] with powers of two of both, filled up with weights of 0."""
    _, *shape = quotes.vols.shape
    more = [(0, 0), *((0, _power_of_two(count) - count) for count in shape)]
    wider = lambda x: np.pad(x, more[: np.ndim(x)], mode="edge")  # noqa: E731
    weights = np.pad(quotes.weights, more)
    return eqx.tree_at(lambda q: q.weights, jax.tree.map(wider, quotes), weights)


def _power_of_two(count: int) -> int:
    return 2 ** (count - 1).bit_length()


@stored_jit
def _searched(
    batch: PyTree,
    count: Int[Array, ""],
    objective: AbstractObjective,
    parameters: Parameters,
    optimizer: optax.GradientTransformation,
    rtol: Array,
    max_steps: Array,
    *,
    num_slots: int,
) -> _End:
    """Return how each of the first `count` jobs ended, [jobs]."""
    optimizer = optax.with_extra_args_support(optimizer)
    size = jax.tree.leaves(batch)[0].shape[0]

    def problem_of(place):
        at = lambda x: x[jnp.minimum(place, size - 1)]  # noqa: E731
        quotes, model = jax.tree.map(at, batch)
        return Problem(quotes, model, objective, parameters)

    def begun(place):
        problem = problem_of(place)
        return Search.init(problem, optimizer, parameters.free(problem.template))

    def stepped(place, search):
        return search.step(problem_of(place), optimizer, rtol)

    def step(state):
        places, searches, following, ends = state
        searches = jax.vmap(stepped)(places, searches)
        has_ended = ~searches.is_running(max_steps) & (places < count)
        handed_in = jnp.where(has_ended, places, size)
        ends = jax.tree.map(lambda x, new: x.at[handed_in].set(new, mode="drop"), ends, searches)
        taken = jnp.where(has_ended, following + jnp.cumsum(has_ended) - 1, places)
        pick = lambda new, old: jnp.where(has_ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old)  # noqa: E731
        searches = jax.tree.map(pick, jax.vmap(begun)(taken), searches)
        return taken, searches, following + jnp.sum(has_ended), ends

    places = jnp.arange(num_slots)
    state = (
        places,
        jax.vmap(begun)(places),
        jnp.asarray(num_slots),
        jax.vmap(begun)(jnp.arange(size)),
    )
    *_, ends = jax.lax.while_loop(lambda state: jnp.any(state[0] < count), step, state)

    def end_of(place, search):
        found = ended(problem_of(place), search)
        errors = jnp.sqrt(jnp.diagonal(found.stats["covariance"]))
        total, steps = (found.stats[name] for name in ("sum_squared_vol_points", "steps"))
        return _End(parameters.values(search.free), errors, total, steps, found.result)

    return jax.vmap(end_of)(jnp.arange(size), ends)
