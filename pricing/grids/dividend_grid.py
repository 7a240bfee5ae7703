"""One asset with dividends, by finite differences in the logarithm of its raw spot.

With y = s log(S / anchor), s = +1 or -1, the value w, discounted to today, solves between ex-dates

    w_t + sigma^2 g^2 / 2 (w_yy - s w_y) + s (r - q) w_y = 0,    g = max(1 - b(t) / S, 0),

with b the value of future cash: `WithDividends` with escrowed dynamics has S = X + b, so that dS = (r - q) S dt
+ sigma (S - b) dW; with spot dynamics b is 0. On an ex-date, w before at S is w after at S (1 - proportion) -
cash. Each step is TR-BDF2 (Bank et al. 1985) with the integrals of sigma^2 and r - q; the splitting of Ikonen
and Toivanen (2009) keeps a right to exercise at any time above its payoff.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule, StoreAll

from ..formulas.stock import stock_model
from ..formulas.terminal import terminal_value
from ..models import WithDividends
from ..numerics.safe_math import clipped, larger, nan_where, smaller
from ..numerics.tridiagonal import Tridiagonal
from ..products import Claim, SingleBarrier
from ..products.above_cash import above_cash
from .dates_on_grid import DateOnGrid, dates_of
from .exercise_periods import ExercisePeriods
from .stencil import averaged_claim, interpolation, rounded

Scalar = Float[Array, ""]
Nodes = Float[Array, " nodes"]

_REACH = 6.5  # standard deviations from the spot
_SHARE = 2.0 - math.sqrt(2.0)
"""The fraction of a step for the trapezoidal rule, for which both stages have the same matrix."""
_FEWEST_STEPS = 6  # fewest steps between two dates


class _Terms(eqx.Module):
    """The contract to solve: a terminal claim, or a rebate less a claim; rights as in `ExercisePeriods`.

    anchor: the spot at y = 0, a barrier if has_barrier is 1; at_barrier: the payment there; is_excess: 1 if the
    payoff is rebate - claim.
    """

    claim: Claim
    orientation: Scalar
    anchor: Scalar
    has_barrier: Scalar
    at_barrier: Scalar
    rebate: Scalar
    is_excess: Scalar
    ends: Float[Array, " periods"]
    is_date: Float[Array, " periods"]
    any_time: Scalar

    @property
    def expiry(self) -> Scalar:
        return self.ends[-1]

    @property
    def strike(self) -> Scalar:
        return self.claim.strike

    @property
    def side(self) -> Scalar:
        return self.claim.side


def _vanilla(strike: Scalar, side: Scalar, expiry: Scalar) -> Claim:
    return Claim(strike, expiry, side, side, -side * strike)


def _payoff(product: SingleBarrier) -> Claim:
    """Return the payoff of a contract whose barrier was not hit; cash is a claim with a tiny strike."""
    if product.cash is None:
        return _vanilla(product.strike, product.side, product.expiry)
    one = jnp.ones_like(product.barrier)
    return Claim(1e-6 * product.barrier, product.expiry, one, 0.0 * one, product.cash * one)


def claim_value(
    claim: Claim, model: WithDividends, sizes: tuple[int, int], schedule: AbstractSchedule
) -> Scalar:
    """Return the value, in currency, of a claim on the spot at expiry."""
    zero, one = jnp.zeros_like(claim.side), jnp.ones_like(claim.side)
    ends, nothing = claim.expiry[None], zero[None]
    terms = _Terms(claim, one, claim.strike, zero, zero, zero, zero, ends, nothing, zero)
    return _extrapolated(terms, model, model.spot, sizes, schedule)


def exercise_value(
    right: ExercisePeriods, model: WithDividends, sizes: tuple[int, int], schedule: AbstractSchedule
) -> Scalar:
    """Return the value, in currency, of a right to exercise on dates or at any time."""
    zero, one = jnp.zeros_like(right.side), jnp.ones_like(right.side)
    is_date = right.is_date.at[-1].set(0.0)  # the payoff is paid there in any case
    terms = _Terms(
        _vanilla(right.strike, right.side, right.ends[-1]),
        *(one, right.strike, zero, zero, zero, zero),
        *(right.ends, is_date, right.any_time),
    )
    held = _extrapolated(terms, model, model.spot, sizes, schedule)
    now = larger(held, right.side * (model.spot - right.strike))
    return jnp.where(right.any_time > 0.0, now, held)


def barrier_value(
    product: SingleBarrier, model: WithDividends, sizes: tuple[int, int], schedule: AbstractSchedule
) -> Scalar:
    """Return the value, in currency, of an option with a continuously monitored barrier."""
    zero, living, into = jnp.zeros_like(product.side), product.barrier_direction, product.knocks_in
    ends, nothing = product.expiry[None], zero[None]
    is_in = jnp.where(into, 1.0, zero)
    terms = _Terms(
        _payoff(product),
        *(living, product.barrier, zero + 1.0),
        *(jnp.where(into, 0.0, product.rebate), product.rebate, is_in, ends, nothing, zero),
    )
    alive = living * (model.spot - product.barrier) > 0.0
    inside = jnp.where(alive, model.spot, product.barrier * (1.0 + 0.1 * living))
    solution = _extrapolated(terms, model, inside, sizes, schedule)
    if model.dynamics == "escrowed":
        vanilla = terminal_value(above_cash(terms.claim, model.cash), stock_model(model))
    else:
        vanilla = claim_value(terms.claim, model, sizes, schedule)
    living_value = jnp.where(into, vanilla + solution, solution)
    return jnp.where(alive, living_value, jnp.where(into, vanilla, product.rebate))


def _extrapolated(
    terms: _Terms,
    model: WithDividends,
    spot: Scalar,
    sizes: tuple[int, int],
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the value extrapolated from a grid and one with half its nodes and steps (second order).

    It is NaN if the value of the cash is not below the spot.
    """
    nodes, steps = sizes
    fine, coarse = (
        _solution(terms, model, spot, nodes // part, steps // part, schedule) for part in (1, 2)
    )
    worth = model.cash(jnp.zeros_like(model.spot))
    return nan_where(worth >= model.spot, fine + (fine - coarse) / 3.0)


class _Law(eqx.Module):
    """The law of the spot between ex-dates."""

    model: WithDividends
    variance_model: Any

    @classmethod
    def of(cls, terms: _Terms, model: WithDividends) -> "_Law":
        if model.dynamics == "spot":
            return cls(model, model.base)
        strike = larger(terms.strike - model.cash(terms.expiry), 1e-6 * terms.strike)
        return cls(model, stock_model(model).at_smile_point((terms.expiry, strike)))

    def variance(self, t: Array) -> Array:
        """Return the variance of the log of the lognormal part."""
        return self.variance_model.state_variance(t)

    def log_growth(self, t: Array) -> Array:
        """Return the log growth from rates and yields since today, without dividends."""
        base = self.model.base
        return jnp.vectorize(lambda t: jnp.log(base.dividend_discount(t) / base.discount(t)))(t)

    def discount(self, t: Array) -> Array:
        return jnp.vectorize(self.model.base.discount)(t)

    def escrow(self, t: Array) -> Array:
        """Return the deterministic part of the spot."""
        return self.model.cash(t) if self.model.dynamics == "escrowed" else jnp.zeros_like(t)


class _Steps(eqx.Module):
    """The steps back from each event to the one before, with their coefficients, stacked.

    escrow: at the midpoints of the steps.
    """

    time: Array
    variance: Array
    log_growth: Array
    discount: Array
    escrow: Array

    @classmethod
    def of(cls, law: _Law, events: DateOnGrid, count: int) -> "_Steps":
        shares = jnp.arange(count + 1, dtype=events.time.dtype) / count
        length = events.time - events.before
        time = events.time[:, None] - length[:, None] * shares[None, :]
        middles = 0.5 * (time[:, 1:] + time[:, :-1])
        numbers = law.variance(time), law.log_growth(time), law.discount(time)
        return cls(time, *numbers, law.escrow(middles))


def _solution(
    terms: _Terms,
    model: WithDividends,
    spot: Scalar,
    num_nodes: int,
    num_steps: int,
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the solution on one grid at a spot."""
    law, s = _Law.of(terms, model), terms.orientation
    events = dates_of(terms.ends, terms.is_date, model.dividends)
    at = s * jnp.log(spot / terms.anchor)
    y, gap = _grid(terms, law, at, num_nodes)
    spots = terms.anchor * jnp.exp(s * y)
    claim = averaged_claim(y, terms.anchor, s, terms.claim)
    payoff = jnp.where(terms.is_excess > 0.0, terms.rebate - claim, claim)
    touches = (terms.has_barrier > 0.0) & (y[0] <= 0.0)
    payoff = payoff.at[0].set(jnp.where(touches, terms.at_barrier, payoff[0]))
    start = law.discount(terms.expiry) * payoff
    exercised = terms.side * (spots - terms.strike)
    any_time = terms.any_time > 0.0
    step = _Step(s, gap, spots, touches)
    count = max(_FEWEST_STEPS, math.ceil(num_steps / events.time.size))

    def back(state: tuple[Nodes, Nodes], of_period: tuple[DateOnGrid, _Steps]):
        (w, force), (event, steps) = state, of_period
        discount = steps.discount[0]
        w = jnp.where(event.is_date > 0.0, larger(w, discount * exercised), w)
        w = _before_ex_date(w, y, gap, spots, terms, event)
        w = jnp.where(any_time, larger(w, discount * exercised), w)
        force = jnp.where((event.cash > 0.0) | (event.proportion > 0.0), 0.0, force)
        moving = jnp.square(larger(1.0 - steps.escrow[:, None] / spots[None, :], 0.0))
        variances = -jnp.diff(steps.variance)[:, None] * moving
        between = steps.discount[:-1] + _SHARE * jnp.diff(steps.discount)

        def one(state: tuple[Nodes, Nodes], of_step: tuple[Array, ...]):
            w, force = state
            variance, growth, dt, middle, discount = of_step
            ends = terms.at_barrier * middle, terms.at_barrier * discount
            free = step(w, variance, growth, dt * force, ends)
            floor = discount * exercised
            above = larger(free - dt * force, floor)
            moves = dt > 0.0
            rate = (floor - free) / jnp.where(moves, dt, 1.0)
            pushed = jnp.where(moves, larger(force + rate, 0.0), force)
            return (jnp.where(any_time, above, free), jnp.where(any_time, pushed, 0.0)), None

        lengths = -jnp.diff(steps.log_growth), -jnp.diff(steps.time)
        of_steps = variances, *lengths, between, steps.discount[1:]
        return jaxtape.scan(one, (w, force), of_steps, schedule=schedule)[0], None

    periods = events, _Steps.of(law, events, count)
    (w, _), _ = jaxtape.scan(back, (start, jnp.zeros_like(start)), periods, schedule=StoreAll())
    place, weights = interpolation(y, at, 6)
    return weights @ jax.lax.dynamic_slice(w, (place,), (6,))


class _Step(eqx.Module):
    """A TR-BDF2 step back in time; far ends are linear in the spot, a barrier has a fixed value."""

    orientation: Scalar
    gap: Scalar
    spots: Nodes
    touches: Array

    def __call__(
        self, w: Nodes, variance: Nodes, growth: Scalar, source: Nodes, ends: tuple[Scalar, Scalar]
    ) -> Nodes:
        spread, drift = 0.5 * variance / self.gap**2, self.orientation * (growth - 0.5 * variance)
        slope = 0.5 * drift / self.gap
        lower, middle, upper = spread - slope, -2.0 * spread, spread + slope
        outward = self.orientation * growth / self.gap
        first = jnp.where(self.touches, 0.0, outward)
        lower = lower.at[0].set(0.0).at[-1].set(-outward)
        middle = middle.at[0].set(-first).at[-1].set(outward)
        upper = upper.at[0].set(first).at[-1].set(0.0)
        operator = Tridiagonal.with_sums(0.0, *(band[:, None] for band in (lower, middle, upper)))
        half = jnp.full_like(self.gap, 0.5 * _SHARE)
        factors = operator.identity_minus(half).factored()
        source = source[:, None]

        def with_end(w: Array, value: Scalar) -> Array:
            return w.at[0, 0].set(jnp.where(self.touches, value, w[0, 0]))

        w = w[:, None]
        explicit = w + half * (operator @ w) + _SHARE * source
        between = factors.solve(with_end(explicit, ends[0]))
        backward = (between - (1.0 - _SHARE) ** 2 * w) / (_SHARE * (2.0 - _SHARE))
        return factors.solve(with_end(backward + half * source, ends[1]))[:, 0]


def _before_ex_date(
    w: Nodes, y: Nodes, gap: Scalar, spots: Nodes, terms: _Terms, event: DateOnGrid
) -> Nodes:
    """Return the values before a dividend: those after it at the reduced spot, by cubic interpolation."""
    least = 0.5 * smaller(spots[0], spots[-1])
    left = larger(spots * (1.0 - event.proportion) - event.cash, least)
    at = clipped(terms.orientation * jnp.log(left / terms.anchor), y[0], y[-1])
    first = jnp.clip(jnp.floor((at - y[0]) / gap).astype(jnp.int32) - 1, 0, y.size - 4)
    x = (at - y[0]) / gap - first.astype(y.dtype)
    weights = (
        -(x - 1.0) * (x - 2.0) * (x - 3.0) / 6.0,
        x * (x - 2.0) * (x - 3.0) / 2.0,
        -x * (x - 1.0) * (x - 3.0) / 2.0,
        x * (x - 1.0) * (x - 2.0) / 6.0,
    )
    found = sum(weight * w[first + place] for place, weight in enumerate(weights))
    falls = (event.cash > 0.0) | (event.proportion > 0.0)
    return jnp.where(falls, found, w)


def _grid(terms: _Terms, law: _Law, at: Scalar, num_nodes: int) -> tuple[Nodes, Scalar]:
    """Return equally spaced nodes around the spot, from the barrier if it is near, and their spacing.

    They are constant under small bumps, and are not differentiated.
    """
    today = jnp.zeros_like(at)
    terms, law, at = jax.lax.stop_gradient((terms, law, at))
    std = jnp.sqrt(law.variance(terms.expiry))
    kept = law.model.dividends.kept(terms.expiry)
    owed = law.model.cash(today) / law.model.spot
    fall = -jnp.log(kept) - jnp.log1p(-jnp.minimum(owed, 0.9))
    unit = rounded(_REACH * std + jnp.abs(law.log_growth(terms.expiry)) + fall) / 8.0
    center = jnp.round(at / unit)
    first = unit * (center - 8.0)
    first = jnp.where(terms.has_barrier > 0.0, larger(first, 0.0), first)
    last = unit * (center + 8.0)
    gap = (last - first) / num_nodes
    return first + gap * jnp.arange(num_nodes + 1, dtype=gap.dtype), gap
