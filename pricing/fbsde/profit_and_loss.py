"""The P&L of a seller who hedges along paths."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.blas_threads import single_blas_thread
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ..numbers_shown import repr_with_numbers
from .dynamics.exercise_floor import exercise_floor
from .dynamics.forward_paths import over_blocks, simulate
from .problem import Problem, State
from .solution import Solution

_BLOCK = 256  # paths at a time; each needs a Hessian for every contract

Value = Float[Array, "*contracts"]
Money = Float[Array, "hedges *contracts"]
Delta = Float[Array, "*contracts dim"]
Gamma = Float[Array, "*contracts dim dim"]


class ProfitAndLoss(eqx.Module):
    """The P&L of the seller of every contract along each path, discounted to today.

    Attributes:
        samples: The P&L on each path, of shape [*contracts, paths]; negative if the seller loses.
    """

    __repr__ = repr_with_numbers

    samples: Float[Array, "*contracts paths"]

    @property
    def mean(self) -> Value:
        """The mean over paths."""
        return jnp.mean(self.samples, axis=-1)

    @property
    def std(self) -> Value:
        """The standard deviation over paths."""
        return jnp.std(self.samples, axis=-1)

    @property
    def std_error(self) -> Value:
        """The standard error of the mean."""
        return self.std / self.samples.shape[-1] ** 0.5


class Hedging(eqx.Module):
    """The P&L without a hedge, with a Delta hedge, and with a Delta-Gamma hedge.

    Attributes:
        unhedged: The P&L without a hedge.
        delta: The P&L with a Delta hedge.
        delta_gamma: The P&L with a Delta and a Gamma hedge; None if not requested.
    """

    __repr__ = repr_with_numbers

    unhedged: ProfitAndLoss
    delta: ProfitAndLoss
    delta_gamma: ProfitAndLoss | None


@full_matmul_precision
@single_blas_thread
def hedging(
    solution: Solution, *, key: PRNGKeyArray, num_paths: int = 4096, gamma: bool = True
) -> Hedging:
    """Sell each contract for u(0, x0), hedge on every date of the grid, and return the P&L.

    The seller's account V earns according to the driver, and is compared with the contract's payment at
    maturity, at exercise under the solution's rule, or at a stop. Over a step from x to X

        V grows by p . (X - x) - (f(V, s^T p) + p . b) dt + (dW . C dW - dt tr C) / 2,

    where p is the gradient of u (0 without a hedge), held in instruments that gain what the state moves, and f
    and b are means over both ends of the step. The last term is the Gamma hedge with C = s^T Hess(u) s: claims
    on the squared noise at their fair price. It is the remainder after Delta in the stochastic Taylor expansion
    of u, to order dt (Kloeden, Platen (1992), section 5.5). Over n steps, a Delta hedge leaves a standard
    deviation of order n^(-1/2), a Delta-Gamma hedge n^(-1), or n^(-3/4) with a kink in the payoff (Gobet,
    Makhlouf, Math. Finance 22 (2012)). P&L is discounted by exp(integral of df/dy): at the rate r for a driver
    -r y.

    While it runs, BLAS is limited to one thread in the whole process.

    Args:
        solution: The solution whose values and derivatives the seller uses.
        key: The key of the random numbers.
        num_paths: The number of paths, a multiple of 256.
        gamma: Whether to include the Gamma hedge; a solver without Gamma, such as DeepBSDE, raises TypeError.

    Returns:
        The P&L of every hedge.

    Raises:
        ValueError: num_paths is not a multiple of 256, the driver reads Gamma, or values are switched.

    Examples:
        >>> from pricing.fbsde import Solution, hedging
        >>> def delta_hedged(solution: Solution, key):
        ...     return hedging(solution, key=key, gamma=False).delta.std
    """
    if solution.problem.reads_gamma or solution.problem.switch is not None:
        raise ValueError(
            "the driver reads Gamma, or values are switched, which a Delta hedge does not "
            "replicate: solve a problem with one diffusion and one value, and hedge that"
        )
    if num_paths < 1 or num_paths % _BLOCK:
        raise ValueError(f"num_paths={num_paths}: give a multiple of {_BLOCK}.")
    unhedged, *hedged = map(ProfitAndLoss, _samples(solution, key, num_paths // _BLOCK, gamma))
    return Hedging(unhedged, hedged[0], hedged[1] if gamma else None)


@stored_jit
def _samples(
    solution: Solution, key: PRNGKeyArray, blocks: int, gamma: bool
) -> Float[Array, "hedges *contracts paths"]:
    """Return the P&L of every hedge; every block of paths has its own key."""
    floor = exercise_floor(solution.problem).reshape(solution.problem.contracts)

    def of_block(key: PRNGKeyArray):
        on_path = lambda x, dw: _on_path(solution, floor, x, dw, gamma)
        return jax.vmap(on_path, (1, 1), -1)(*simulate(solution.problem, _BLOCK, key=key))

    return over_blocks(of_block, blocks, key)


class _Account(NamedTuple):
    """The account of each hedge and contract on a path; made: discounted P&L of ended contracts."""

    money: Money
    discount: Money
    made: Money
    is_open: Bool[Array, "*contracts"]

    def settled(self, ends: Bool[Array, "*contracts"], paid: Value) -> "_Account":
        """Return the account after the payment of ending contracts."""
        made = self.discount * (self.money - paid[None])
        now = (self.is_open & ends)[None]
        return self._replace(made=jnp.where(now, made, self.made), is_open=self.is_open & ~ends)


def _on_path(
    solution: Solution,
    floor: Value,
    states: Float[Array, "dates dim"],
    increments: Float[Array, "steps dim"],
    gamma: bool,
) -> Money:
    problem, found = solution.problem, solution.approximation
    price = found.value(0, problem.x0)
    zero = jnp.zeros_like(price)

    def advance(account: _Account, of_step):
        date, x, after, dw = of_step
        account = account.settled(*_settlement(solution, floor, date, x))
        p = found.gradient(date, x)
        gains, deltas = [zero, zero], [jnp.zeros_like(p), p]
        if gamma:
            gains.append(_gamma_gain(problem, date, x, dw, found.hessian(date, x)))
            deltas.append(p)
        hold = jax.vmap(lambda money, p: _after_step(problem, date, x, after, money, p))
        money, growth = hold(account.money, jnp.stack(deltas))
        money, discount = money + jnp.stack(gains), account.discount * growth
        return account._replace(money=money, discount=discount), None

    each = jnp.broadcast_to(price, (2 + gamma, *price.shape))
    start = _Account(each, jnp.ones_like(each), jnp.zeros_like(each), jnp.ones(price.shape, bool))
    dates = jnp.arange(problem.num_steps)
    account, _ = jax.lax.scan(advance, start, (dates, states[:-1], states[1:], increments))
    last = states[-1]
    everyone = jnp.ones(price.shape, bool)
    due = _stopped(problem, problem.num_steps, last, everyone, problem.terminal(last))
    return account.settled(*due).made


def _after_step(
    problem: Problem, date: Array, x: State, after: State, money: Value, p: Delta
) -> tuple[Value, Value]:
    """Return the account after a step with holdings p, and the discount factor of the step."""

    def rates(t, x, money):
        f = lambda y: problem.driver(t, x, y, problem.z_of(t, x, p))
        slope, growth = jax.jvp(f, (money,), (jnp.ones_like(money),))
        return -slope - p @ problem.drift(t, x), growth

    dt, gain = problem.dt, p @ (after - x)
    rate, growth = rates(problem.times[date], x, money)
    rate_after, growth_after = rates(problem.times[date + 1], after, money + gain + rate * dt)
    discount = jnp.exp(0.5 * dt * (growth + growth_after))
    return money + gain + 0.5 * dt * (rate + rate_after), discount


def _gamma_gain(problem: Problem, date: Array, x: State, dw: State, hessian: Gamma) -> Value:
    """Return (dW . C dW - dt tr C) / 2."""
    times_s = lambda matrix: problem.z_of(problem.times[date], x, matrix)
    c = times_s(jnp.swapaxes(times_s(hessian), -1, -2))
    return 0.5 * (c @ dw @ dw - problem.dt * jnp.trace(c, axis1=-2, axis2=-1))


def _settlement(solution: Solution, floor: Value, date: Array, x: State):
    """Return the mask of contracts that end at a date before the last, and their payments."""
    problem, found = solution.problem, solution.approximation
    none = jnp.zeros(problem.contracts, x.dtype)
    ends, paid = jnp.zeros(none.shape, bool), none
    if problem.exercise_value is not None:
        paid = problem.exercise_value(problem.times[date], x)
        is_open = jnp.asarray(problem.is_exercise_date)[date]
        ends = is_open & (paid > jnp.maximum(found.value(date, x), floor))
    return _stopped(problem, date, x, ends, paid)


def _stopped(problem: Problem, date, x: State, ends: Array, paid: Array):
    """Return the same with stopped paths, on which all contracts end with the stopped value."""
    if problem.is_alive is None:
        return ends, paid
    t = problem.times[date]
    dead = jnp.asarray(problem.is_stopping_date)[date] & ~problem.is_alive(t, x)
    return ends | dead, jnp.where(dead, problem.paid_at_stop(t, x), paid)
