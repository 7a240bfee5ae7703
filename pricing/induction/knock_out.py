"""Barriers on dates as a tape: one node for each monitoring date, the latest first."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import AbstractSchedule, Tape

from ..models import LognormalSpots
from ..numerics import normal_law
from ..numerics.black import exercise_probabilities
from ..numerics.safe_math import clipped, larger
from ..products import DiscreteBarrier
from .layer import STDS, Layer, panels_for, quadrature

Scalar = Float[Array, ""]
Points = Float[Array, " points"]


class BarrierDate(eqx.Module):
    """A date at which the contract ends outside (lower, upper), or several dates if its leaves are stacked.

    time: years; discount_factor: today's value of 1 paid then; lower, upper: barriers of the spot, 0 and
    infinity for none; paid_below, paid_above: in currency at that date.
    """

    time: Float[Array, "..."]
    discount_factor: Float[Array, "..."]
    lower: Float[Array, "..."]
    upper: Float[Array, "..."]
    paid_below: Float[Array, "..."]
    paid_above: Float[Array, "..."]


class Corridor(eqx.Module):
    """The deflated values after a date: a layer for states between `lower` and `upper`, constants beyond."""

    layer: Layer
    lower: Scalar
    upper: Scalar
    below: Scalar
    above: Scalar

    def expectation(self, x: Points, variance: Scalar) -> Points:
        """Return E[value(y)] over y ~ N(x, self.layer.variance - variance)."""
        std = jnp.sqrt(self.layer.step_variance(variance))
        ended = self.below * normal_law.cdf((self.lower - x) / std)
        ended = ended + self.above * normal_law.cdf((x - self.upper) / std)
        return self.layer.expectation(x, variance) + ended

    def value_today(self) -> Scalar:
        """Return E[value] from today's state."""
        zero = jnp.zeros_like(self.lower)
        return self.expectation(zero[None], zero)[0]


class KnockOut(eqx.Module):
    """The node of a monitoring date: from the values after the later dates to those after this one."""

    model: LognormalSpots
    num_panels: int = eqx.field(static=True)
    num_breaks: int = eqx.field(static=True)

    @jax.checkpoint
    def __call__(self, date: BarrierDate, later: Corridor) -> Corridor:
        no_breaks = jnp.full(self.num_breaks, -jnp.inf, later.lower.dtype)
        new = _after(self.model, date, no_breaks, self.num_panels, later.expectation)
        is_open = (date.lower <= 0.0) & jnp.isinf(date.upper)
        return jax.tree.map(lambda old, new: jnp.where(is_open, old, new), later, new)


def knock_out_induction(
    product: DiscreteBarrier, model: LognormalSpots, num_nodes: int, schedule: AbstractSchedule
) -> tuple[Tape, Corridor]:
    """Return the tape of the dates before the last, the latest first, and its initial state.

    The initial state holds the payoff at the last date of a contract that is still alive. Today's value,
    without unconditional payments, is `tape(state).value_today()`.
    """
    alive, discount = product.alive, jax.vmap(model.discount)(product.dates)
    levels = product.lower, product.upper, product.paid_below, product.paid_above
    dates = BarrierDate(product.dates, discount, *levels)
    tape = Tape().with_schedule(schedule)
    if product.dates.size > 1:
        step = KnockOut(model, panels_for(num_nodes), alive.strike.size)
        tape = tape.append(step, jax.tree.map(lambda leaf: leaf[-2::-1], dates))
    last = jax.tree.map(lambda leaf: leaf[-1], dates)
    forward = model.forward(last.time)
    strikes = jnp.log(alive.strike / forward) + 0.5 * model.state_variance(last.time)

    def paid(x: Points, variance: Scalar) -> Points:
        spot = (forward * jnp.exp(x - 0.5 * variance))[None, :]
        units = alive.asset_units[:, None] * spot + alive.cash_units[:, None]
        pays = alive.side[:, None] * (spot - alive.strike[:, None]) > 0.0
        return last.discount_factor * jnp.sum(jnp.where(pays, units, 0.0), axis=0)

    return tape, _after(model, last, strikes, panels_for(num_nodes), paid)


def paid_always(product: DiscreteBarrier, model: LognormalSpots) -> Scalar:
    """Return today's value of the unconditional payments."""
    expiry, claim = product.dates[-1], product.always
    forward, std = model.forward(expiry), jnp.sqrt(model.state_variance(expiry))
    share, cash = exercise_probabilities(forward, claim.strike, std, claim.side)
    units = claim.asset_units * forward * share + claim.cash_units * cash
    return model.discount(expiry) * jnp.sum(units)


def _after(
    model: LognormalSpots,
    date: BarrierDate,
    breaks: Float[Array, " breaks"],
    num_panels: int,
    value: Callable[[Points, Scalar], Points],
) -> Corridor:
    """Return the values after a date; between the barriers, `value` of a state and its variance.

    A missing barrier is placed far out. Nodes cover the intersection of the state's range and the corridor.
    """
    variance, forward = model.state_variance(date.time), model.forward(date.time)
    radius = STDS * jnp.sqrt(variance)

    def level(barrier: Scalar, is_none, beyond: Scalar) -> Scalar:
        safe = jnp.where(is_none, forward, barrier)
        return jnp.where(is_none, beyond, jnp.log(safe / forward) + 0.5 * variance)

    lower = level(date.lower, date.lower <= 0.0, -4.0 * radius)
    upper = level(date.upper, jnp.isinf(date.upper), 4.0 * radius)
    inside = clipped(jnp.stack([lower, upper]), -radius, radius)
    nodes, weights = quadrature(inside[0], larger(*inside), breaks, num_panels)
    layer = Layer(variance, nodes, weights * value(nodes, variance))
    paid = date.discount_factor * date.paid_below, date.discount_factor * date.paid_above
    return Corridor(layer, lower, upper, *paid)
