"""Between what lies today's value: what the found rule of exercise earns, and what no rule can."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..sampling import normals
from .expansion import Composed, expanded
from .paths import simulate
from .problem import Problem
from .solution import Solution

_BLOCK = 256  # paths at a time; each has its inner paths

Samples = Float[Array, "*contracts paths"]


class Bounds(eqx.Module):
    """Means over fresh paths, of every contract, and their standard errors; gap = upper - lower."""

    lower: Float[Array, "*contracts"]
    upper: Float[Array, "*contracts"]
    gap: Float[Array, "*contracts"]
    lower_error: Float[Array, "*contracts"]
    upper_error: Float[Array, "*contracts"]


class _Held(NamedTuple):
    """Of every path, in money of today: what u has moved so far, but for its drift; what is earned."""

    moved: Samples
    earned: Samples
    is_held: Bool[Array, "*contracts paths"]


def bounds(
    solution: Solution, key: PRNGKeyArray, num_paths: int = 4096, num_inner_paths: int = 64
) -> Bounds:
    """A lower and an upper bound of u(0, x0), from the same fresh paths.

    Lower: what is earned by exercising where that pays more than the solution says holding is worth, less the
    sum of the moves of u over the steps (Z dW and the term of Gamma), whose mean is zero. Upper: the mean of
    max over dates of (discounted payoff - M) (Rogers, 2002; Haugh, Kogan, 2004), where M grows from one date of
    exercise to the next by V - E[V], V the larger of payoff and continuation value, its mean taken over
    `num_inner_paths` antithetic inner paths (Andersen, Broadie, 2004).

    The driver must discount: f = -r(t, x) y. Raises ValueError for another one, for paths that may be stopped,
    for a problem without early exercise, and for num_paths that is no multiple of 256.
    """
    problem = solution.problem
    if num_paths % _BLOCK or num_inner_paths % 2:
        raise ValueError(
            f"num_paths={num_paths}, num_inner_paths={num_inner_paths}: give a multiple of {_BLOCK}, and of 2."
        )
    if problem.stopping_dates or problem.exercise_value is None:
        raise ValueError("bounds are of early exercise, on paths that are not stopped.")
    _must_discount(problem)
    return _bounds(solution, key, num_paths, num_inner_paths)


def _must_discount(problem: Problem) -> None:
    """f is linear in y and does not know z, at x0."""
    shape = problem.contracts
    zero, one = jnp.zeros(shape, problem.x0.dtype), jnp.ones(shape, problem.x0.dtype)
    z = jnp.ones((*shape, problem.dim), problem.x0.dtype)
    at = lambda y, z: problem.driver(problem.times[0], problem.x0, y, z)  # noqa: E731
    rate = at(one, 0.0 * z)
    linear = jnp.allclose(at(3.0 * one, z), 3.0 * rate) & jnp.allclose(at(zero, z), zero)
    if not linear:
        raise ValueError(
            "bounds need a driver that discounts, f = -r(t, x) y: what a rule earns is no bound under another."
        )


@eqx.filter_jit
def _bounds(solution: Solution, key: PRNGKeyArray, num_paths: int, num_inner_paths: int) -> Bounds:
    def of_block(index):
        return _samples(solution, jax.random.fold_in(key, index), num_inner_paths)

    found = jax.lax.map(of_block, jnp.arange(num_paths // _BLOCK))
    lower, upper = (jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1) for x in found)
    error = lambda x: jnp.std(x, axis=-1) / num_paths**0.5  # noqa: E731
    mean = lambda x: jnp.mean(x, axis=-1)  # noqa: E731
    return Bounds(mean(lower), mean(upper), mean(upper - lower), error(lower), error(upper))


def _samples(solution: Solution, key: PRNGKeyArray, num_inner: int) -> tuple[Samples, Samples]:
    """Of both bounds, from one block of paths."""
    problem = solution.problem
    outer, inner = jax.random.split(key)
    states, increments = (jnp.swapaxes(x, 1, 2) for x in simulate(problem, outer, _BLOCK))
    rates = jax.vmap(lambda t, x: _rate(problem, t, x))(problem.times, states)
    growth = 0.5 * problem.dt * (rates[1:] + rates[:-1])
    discounts = jnp.exp(-jnp.cumsum(jnp.concatenate([jnp.zeros_like(growth[:1]), growth]), axis=0))
    paid = _discounted(discounts[-1], jax.vmap(problem.terminal, -1, -1)(states[-1]))
    lower = _earned(solution, states, increments, discounts, paid)
    return lower, _best(solution, inner, states, discounts, paid, num_inner)


def _earned(solution: Solution, states, increments, discounts, paid: Samples) -> Samples:
    """What the rule earns on every path, less what u moves."""
    problem = solution.problem
    zero = jnp.zeros_like(paid)

    def onward(held: _Held, of_step):
        date, is_open, x, dw, discount = of_step
        now, against = _exercise(solution, date, x)
        takes = is_open & held.is_held & (now > against) & (now > 0.0)
        earned = jnp.where(takes, _discounted(discount, now) - held.moved, held.earned)
        moved = held.moved + _discounted(discount, _moves(solution, date, x, dw))
        return _Held(moved, earned, held.is_held & ~takes), None

    xs = (
        jnp.arange(problem.num_steps),
        jnp.asarray(problem.is_exercise_date[:-1]),
        states[:-1],
        increments,
        discounts[:-1],
    )
    held, _ = jax.lax.scan(onward, _Held(zero, zero, jnp.ones(paid.shape, bool)), xs)
    return jnp.where(held.is_held, paid - held.moved, held.earned)


def _best(solution: Solution, key, states, discounts, paid: Samples, num_inner: int) -> Samples:
    """The most of discounted payoff less martingale on every path."""
    problem = solution.problem
    is_open = problem.is_exercise_date
    dates = _periods(problem)

    def onward(both, of_period):
        martingale, best = both
        first, last, key, can = of_period
        now, _ = _exercise(solution, first, states[first])
        now = _discounted(discounts[first], now) - martingale
        best = jnp.where(can & (now > best), now, best)
        mean = _mean_ahead(solution, key, first, last, states[first], num_inner)
        ahead = _discounted(discounts[last], _worth(solution, last, states[last]))
        return (martingale + ahead - _discounted(discounts[first], mean), best), None

    keys = jax.random.split(key, len(dates) - 1)
    xs = jnp.asarray(dates[:-1]), jnp.asarray(dates[1:]), keys, jnp.asarray(is_open[dates[:-1]])
    start = jnp.zeros_like(paid), jnp.full_like(paid, -jnp.inf)
    (martingale, best), _ = jax.lax.scan(onward, start, xs)
    return jnp.maximum(best, paid - martingale)


def _mean_ahead(solution: Solution, key, first, last, x, num_inner: int) -> Samples:
    """The discounted mean of what is worth having at date `last`, given x at date `first`."""
    problem = solution.problem
    dim, paths = x.shape
    longest = int(np.max(np.diff(_periods(problem))))
    count = 1 if problem.step is not None else longest
    noise = normals(key, (count, dim, num_inner // 2, paths), x.dtype)
    noise = jnp.concatenate([noise, -noise], axis=2).reshape(count, dim, -1)
    x = jnp.broadcast_to(x[:, None], (dim, num_inner, paths)).reshape(dim, -1)
    span = problem.dt if problem.step is None else (last - first).astype(x.dtype) * problem.dt

    def onward(state, of_step):
        step, noise = of_step
        x, log_discount = state
        t = problem.times[first] + step.astype(span.dtype) * span
        move = lambda x, w: problem.advance(t, x, jnp.sqrt(span) * w, span)  # noqa: E731
        after = jax.vmap(move, -1, -1)(x, noise)
        growth = 0.5 * span * (_rate(problem, t, x) + _rate(problem, t + span, after))
        is_on = (first + step < last) | (count == 1)
        return (jnp.where(is_on, after, x), log_discount - jnp.where(is_on, growth, 0.0)), None

    start = x, jnp.zeros(x.shape[1], x.dtype)
    (x, log_discount), _ = jax.lax.scan(onward, start, (jnp.arange(count), noise))
    worth = _discounted(jnp.exp(log_discount), _worth(solution, last, x))
    return jnp.mean(worth.reshape(*worth.shape[:-1], num_inner, paths), axis=-2)


def _periods(problem: Problem) -> np.ndarray:
    """Today, the dates of exercise, and the end."""
    return np.unique([0, *problem.exercise_dates, problem.num_steps])


def _worth(solution: Solution, date, x) -> Samples:
    """The larger of what exercise pays and what holding is worth; at the end what is paid."""
    problem = solution.problem
    last = problem.num_steps

    def before():
        now, against = _exercise(solution, jnp.minimum(date, last - 1), x)
        return jnp.maximum(now, against)

    return jax.lax.cond(date == last, lambda: jax.vmap(problem.terminal, -1, -1)(x), before)


def _exercise(solution: Solution, date, x) -> tuple[Samples, Samples]:
    """What exercise pays, and what it is held against."""
    problem, found = solution.problem, solution.approximation
    t = problem.times[date]
    assert problem.exercise_value is not None  # `bounds` has asked
    now = jax.vmap(problem.exercise_value, (None, -1), -1)(t, x)
    return now, jax.vmap(lambda x: found.value(date, x), -1, -1)(x)


def _moves(solution: Solution, date, x, dw) -> Samples:
    """How u moves over the step but for its drift."""
    problem, found = solution.problem, solution.approximation

    def value(x):
        flat = jax.vmap(lambda x: found.value(date, x), -1, -1)(x)
        return flat.reshape(-1, x.shape[-1])

    _, moves = expanded(problem, [Composed(value)], problem.times[date], x, dw)
    return moves.reshape(*problem.contracts, x.shape[-1])


def _discounted(discount: Float[Array, " paths"], values: Samples) -> Samples:
    """The values of every contract, in money of today."""
    return values * discount.reshape((1,) * (values.ndim - 1) + discount.shape)


def _rate(problem: Problem, t, x) -> Float[Array, " paths"]:
    """r of f = -r y."""
    one = jnp.ones(problem.contracts, x.dtype)
    z = jnp.zeros((*problem.contracts, problem.dim), x.dtype)
    return -jax.vmap(lambda x: jnp.ravel(problem.driver(t, x, one, z))[0], -1)(x)
