"""What is left for the seller of a contract who hedges along paths."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .paths import simulate
from .problem import Problem, State
from .solution import Solution

_BLOCK = 256  # paths at a time; each has a Hessian of every contract

Money = Float[Array, "hedges *contracts"]
Delta = Float[Array, "*contracts dim"]
Gamma = Float[Array, "*contracts dim dim"]


class ProfitAndLoss(eqx.Module):
    """Of every contract along each path, in money of today: below zero the seller loses."""

    samples: Float[Array, "*contracts paths"]

    @property
    def mean(self) -> Float[Array, "*contracts"]:
        return jnp.mean(self.samples, axis=-1)

    @property
    def std(self) -> Float[Array, "*contracts"]:
        return jnp.std(self.samples, axis=-1)

    @property
    def std_error(self) -> Float[Array, "*contracts"]:
        """Of the mean."""
        return self.std / self.samples.shape[-1] ** 0.5


class Hedging(eqx.Module):
    """What the seller is left with who does not hedge, who hedges Delta, and Delta and Gamma, if asked."""

    unhedged: ProfitAndLoss
    delta: ProfitAndLoss
    delta_gamma: ProfitAndLoss | None


def hedging(
    solution: Solution, key: PRNGKeyArray, num_paths: int = 4096, *, gamma: bool = True
) -> Hedging:
    """The P&L of whoever sells each contract for u(0, x0), and hedges on every date of the grid.

    His money V is invested as the driver says, and is held against what the contract pays: at the end, where
    the solution's rule exercises it, or where the path is stopped. Over a step from x to X

        V grows by p . (X - x) - (f(V, s^T p) + p . b) dt + (dW . C dW - dt tr C) / 2,

    p: the gradient of u (0 without a hedge), on instruments that gain what the state moves; f and b are means
    over both ends of the step. The last term is the Gamma hedge, C = s^T Hess(u) s: claims on the squares of
    the noise at their fair price. It is what Delta leaves in the stochastic Taylor expansion of u, to order dt
    (Kloeden, Platen (1992), section 5.5): over n steps Delta leaves a deviation of order n^(-1/2), Delta and
    Gamma n^(-1), with a kink in the payoff n^(-3/4) (Gobet, Makhlouf, Math. Finance 22 (2012)). P&L is
    discounted by exp(integral of df/dy), of a driver -r y by r.

    gamma: whether that hedge is made, too; DeepBSDE has none. Raises ValueError for num_paths that is no
    multiple of 256, TypeError for a Gamma that the solver has not learned.
    """
    if num_paths < 1 or num_paths % _BLOCK:
        raise ValueError(f"num_paths={num_paths}: give a multiple of {_BLOCK}.")
    unhedged, *hedged = map(ProfitAndLoss, _made(solution, key, num_paths // _BLOCK, gamma))
    return Hedging(unhedged, hedged[0], hedged[1] if gamma else None)


@eqx.filter_jit
def _made(solution: Solution, key: PRNGKeyArray, blocks: int, gamma: bool):
    """[hedges, *contracts, paths]: every block of paths has its own key."""

    def of_block(index):
        states, increments = simulate(solution.problem, jax.random.fold_in(key, index), _BLOCK)
        along = lambda x, dw: _along(solution, x, dw, gamma)  # noqa: E731
        return jax.vmap(along, (1, 1), -1)(states, increments)

    found = jnp.moveaxis(jax.lax.map(of_block, jnp.arange(blocks)), 0, -2)
    return found.reshape(*found.shape[:-2], -1)


class _Account(NamedTuple):
    """Of each hedge and contract on a path; made: discounted P&L of contracts that are no longer open."""

    money: Money
    discount: Money
    made: Money
    is_open: Bool[Array, "*contracts"]

    def settled(self, ends: Bool[Array, "*contracts"], paid: Float[Array, "*contracts"]):
        made = self.discount * (self.money - paid[None])
        now = (self.is_open & ends)[None]
        return self._replace(made=jnp.where(now, made, self.made), is_open=self.is_open & ~ends)


def _along(
    solution: Solution,
    states: Float[Array, "dates dim"],
    increments: Float[Array, "steps dim"],
    gamma: bool,
) -> Money:
    """P&L of one path."""
    problem, found = solution.problem, solution.approximation
    price = found.value(0, problem.x0)
    zero = jnp.zeros_like(price)

    def onward(account: _Account, of_step):
        date, x, after, dw = of_step
        account = account.settled(*_due(solution, date, x))
        p = found.gradient(date, x)
        gains, deltas = [zero, zero], [jnp.zeros_like(p), p]
        if gamma:
            gains.append(_gamma_gain(problem, date, x, dw, found.hessian(date, x)))
            deltas.append(p)
        hold = jax.vmap(lambda money, p: _held(problem, date, x, after, money, p))
        money, growth = hold(account.money, jnp.stack(deltas))
        money, discount = money + jnp.stack(gains), account.discount * growth
        return account._replace(money=money, discount=discount), None

    each = jnp.broadcast_to(price, (2 + gamma, *price.shape))
    start = _Account(each, jnp.ones_like(each), jnp.zeros_like(each), jnp.ones(price.shape, bool))
    dates = jnp.arange(problem.num_steps)
    account, _ = jax.lax.scan(onward, start, (dates, states[:-1], states[1:], increments))
    last = states[-1]
    everyone = jnp.ones(price.shape, bool)
    due = _stopped(problem, problem.num_steps, last, everyone, problem.terminal(last))
    return account.settled(*due).made


def _held(
    problem: Problem,
    date: Array,
    x: State,
    after: State,
    money: Float[Array, "*contracts"],
    p: Delta,
) -> tuple[Float[Array, "*contracts"], Float[Array, "*contracts"]]:
    """The money after a step with p held, and the discount over it."""

    def rates(t, x, money):
        f = lambda y: problem.driver(t, x, y, problem.z_of(t, x, p))  # noqa: E731
        slope, growth = jax.jvp(f, (money,), (jnp.ones_like(money),))
        return -slope - p @ problem.drift(t, x), growth

    dt, gain = problem.dt, p @ (after - x)
    rate, growth = rates(problem.times[date], x, money)
    rate_after, growth_after = rates(problem.times[date + 1], after, money + gain + rate * dt)
    discount = jnp.exp(0.5 * dt * (growth + growth_after))
    return money + gain + 0.5 * dt * (rate + rate_after), discount


def _gamma_gain(
    problem: Problem, date: Array, x: State, dw: State, hessian: Gamma
) -> Float[Array, "*contracts"]:
    """(dW . C dW - dt tr C) / 2."""
    times_s = lambda matrix: problem.z_of(problem.times[date], x, matrix)  # noqa: E731
    c = times_s(jnp.swapaxes(times_s(hessian), -1, -2))
    return 0.5 * (c @ dw @ dw - problem.dt * jnp.trace(c, axis1=-2, axis2=-1))


def _due(solution: Solution, date: Array, x: State):
    """Which contracts end at a date before the last, and what is paid then."""
    problem, found = solution.problem, solution.approximation
    none = jnp.zeros(problem.contracts, x.dtype)
    ends, paid = none > 0.0, none
    if problem.exercise_value is not None:
        paid = problem.exercise_value(problem.times[date], x)
        is_open = jnp.asarray(problem.is_exercise_date)[date]
        ends = is_open & (paid > found.value(date, x)) & (paid > 0.0)
    return _stopped(problem, date, x, ends, paid)


def _stopped(problem: Problem, date, x: State, ends: Array, paid: Array):
    """The same, where paths may be stopped: all contracts end, and are worth the stopped value."""
    if problem.is_alive is None:
        return ends, paid
    t = problem.times[date]
    dead = jnp.asarray(problem.is_stopping_date)[date] & ~problem.is_alive(t, x)
    rest = jnp.zeros_like(paid) if problem.stopped_value is None else problem.stopped_value(t, x)
    return ends | dead, jnp.where(dead, rest, paid)
