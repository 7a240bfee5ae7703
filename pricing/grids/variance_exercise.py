"""Rights to exercise under a stochastic variance, with or without dividends on known dates.

The PDE of `alternating_directions` is solved in y = log(Y / anchor), where Y is the model's process without
dividends: S = share(t) Y + cash(t), with share(t) what proportional dividends leave and cash(t) the value of
later cash dividends (`WithDividends`). Y does not fall on ex-dates; instead the payoff side (share Y + cash -
strike) moves in time. On an ex-date, a right to exercise at any time is also compared with the payoff before
the dividend. Such a right solves u_tau = A u + lambda, u >= payoff, by the splitting of Ikonen and Toivanen
(2009).
"""

import functools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

import jaxtape
from jaxtape import AbstractSchedule, StoreAll

from ..market import Dividends
from ..models import StochasticVariance, WithDividends
from ..numerics.safe_math import larger
from .alternating_directions import (
    Grid,
    Operator,
    Rates,
    Stepper,
    excess_rates,
    forward_rates,
    mean_rates,
    read_off,
    variance_grid,
)
from .dates_on_grid import DateOnGrid, dates_of
from .exercise_periods import ExercisePeriods
from .stencil import averaged_vanilla, rounded, sinh_grid

Scalar = Float[Array, ""]

_FEWEST_STEPS = 4  # fewest steps between two dates
_LEAST = 1e-6  # relative to the strike: Y is certain to be above
_LEAST_ANCHOR = 0.05  # relative to the strike: keeps the nodes where Y may be


class _Terms(eqx.Module):
    """The payoff side (share Y + cash - strike), or nothing, on nodes of Y.

    spots: Y at the nodes; any_time: whether exercise is possible at any time.
    """

    spots: Float[Array, " nodes"]
    strike: Scalar
    side: Scalar
    any_time: Bool[Array, ""]

    def payoff(self, spot: "_Spot") -> Float[Array, "nodes 1"]:
        paid = self.side * (spot.share * self.spots + spot.cash - self.strike)
        return larger(paid, 0.0)[:, None]


class _Spot(eqx.Module):
    """The coefficients of S = share Y + cash, at one time or at several."""

    share: Array
    cash: Array

    @classmethod
    def at(cls, model: WithDividends, t: Array) -> "_Spot":
        return cls(model.dividends.kept(t), model.cash(t))

    def before(self, dates: DateOnGrid) -> "_Spot":
        """Return the coefficients before the dividends of each date, from those after."""
        same = dates.time[:, None] == dates.time[None, :]
        left = jnp.prod(jnp.where(same, 1.0 - dates.proportion[None, :], 1.0), axis=1)
        paid = jnp.sum(jnp.where(same, dates.cash[None, :], 0.0), axis=1)
        return _Spot(self.share / left, (self.cash + paid) / left)


class _Periods(eqx.Module):
    """The periods between dates, stacked, the latest first.

    date: the date that ends a period; at, before: coefficients after and before its dividends; length: that of
    one step; excess: the rates of the steps; then: the coefficients at the end of each step, back in time.
    """

    date: DateOnGrid
    at: _Spot
    before: _Spot
    length: Array
    excess: tuple[Array, Array]
    then: _Spot

    @classmethod
    def of(
        cls, dates: DateOnGrid, model: WithDividends, own: Any, means: Rates, count: int
    ) -> "_Periods":
        times = jnp.linspace(dates.time, dates.before, count + 1, axis=1)
        moves = (dates.time > dates.before)[:, None]
        whole = jnp.linspace(dates.time[0], 0.0, count + 1)  # replaces a period of length 0
        rates = jax.vmap(lambda t: forward_rates(own, t))(jnp.where(moves, times, whole))
        at = _Spot.at(model, dates.time)
        length = (dates.time - dates.before) / count
        then = _Spot.at(model, times[:, 1:])
        return cls(dates, at, at.before(dates), length, excess_rates(rates, means), then)


def exercise_value(
    right: ExercisePeriods,
    model: StochasticVariance | WithDividends,
    sizes: tuple[int, int, int],
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the value, in currency, of a right to exercise on dates or at any time.

    Args:
        right: The contract.
        model: The model of one asset; with dividends, a model of its raw spot.
        sizes: The numbers of nodes along the log-spot and the variance, and of steps.
        schedule: The checkpointing schedule of the steps.
    """
    paying, own = _with_dividends(model)
    num_spots, num_variances, num_steps = sizes
    expiry, strike, side = right.ends[-1], right.strike, right.side
    last = _Spot.at(paying, expiry)
    level = (strike - last.cash) / last.share
    anchor = larger(level, _LEAST_ANCHOR * strike)
    distance = jnp.log(own.spot / anchor)
    y = _both_sides(num_spots, own, expiry, distance)
    v = variance_grid(num_variances, own, expiry)
    above, is_free = jnp.ones_like(side), right.any_time > 0.0
    kink = larger(level, _LEAST * strike)
    u = last.share * averaged_vanilla(y, anchor, above, kink, side)
    u = u[:, None] * jnp.ones_like(v)[None, :]
    rates = mean_rates(own, expiry)
    operator = Operator.of(own, rates, above, y, v, 0.0 * above)
    terms = _Terms(anchor * jnp.exp(y), strike, side, is_free)
    # the payoff is paid at expiry in any case
    dates = dates_of(right.ends, right.is_date.at[-1].set(0.0), paying.dividends)
    least = _FEWEST_STEPS if paying.dividends.times.size else 1
    count = max(least, math.ceil(num_steps / dates.time.size))
    back = functools.partial(_back, terms, operator, schedule)
    periods = _Periods.of(dates, paying, own, rates, count)
    (u, _), _ = jaxtape.scan(back, (u, jnp.zeros_like(u)), periods, schedule=StoreAll())
    held = read_off(u, y, v, distance, own)
    now = larger(held, side * (paying.spot - strike))
    return jnp.where(is_free, now, held)


def _with_dividends(model: Any) -> tuple[WithDividends, Any]:
    """Return a model with its dividends (possibly none), and the model of Y."""
    if isinstance(model, WithDividends):
        return model, replace(model.base, spot=model.stock.spot)
    none = jnp.zeros((0,), model.spot.dtype)
    return WithDividends(model, Dividends(none, proportions=none)), model


def _back(
    terms: _Terms,
    operator: Operator,
    schedule: AbstractSchedule,
    state: tuple[Grid, Grid],
    period: _Periods,
) -> tuple[tuple[Grid, Grid], None]:
    """Step back over one period: from the right and the dividend at its end to the previous date."""
    (u, force), date = state, period.date
    u = jnp.where(date.is_date > 0.0, larger(u, terms.payoff(period.at)), u)
    falls = terms.any_time & ((date.cash > 0.0) | (date.proportion > 0.0))
    u = jnp.where(falls, larger(u, terms.payoff(period.before)), u)
    force = jnp.where(falls, 0.0, force)
    step = functools.partial(_step, terms, operator.stepper(period.length))
    return jaxtape.scan(step, (u, force), (period.excess, period.then), schedule=schedule)[0], None


def _step(
    terms: _Terms, stepper: Stepper, state: tuple[Grid, Grid], of_step: tuple[Rates, _Spot]
) -> tuple[tuple[Grid, Grid], None]:
    """Step back the value and, for exercise at any time, the multiplier that keeps it above the payoff."""
    (u, force), (excess, spot) = state, of_step
    payoff, dt = terms.payoff(spot), stepper.dt
    free = stepper.step(u, excess, force)
    above = larger(free - dt * force, payoff)
    pushed = larger(force + (payoff - free) / jnp.where(dt > 0.0, dt, 1.0), 0.0)
    force = jnp.where(dt > 0.0, pushed, force)
    is_free = terms.any_time
    return (jnp.where(is_free, above, free), jnp.where(is_free, force, 0.0)), None


@jaxtape.no_inline(static_argnames="nodes")
def _both_sides(nodes: int, model: StochasticVariance, expiry: Scalar, distance: Scalar) -> Array:
    """Return nodes on both sides of the strike, up to a negligible region, finest at the strike."""
    std = jnp.sqrt(model.total_variance(expiry))
    reach, fine = rounded(jnp.abs(distance) + 5.0 * std), rounded(0.5 * std)
    return sinh_grid(jnp.linspace(-1.0, 1.0, nodes, dtype=reach.dtype), reach, fine)
