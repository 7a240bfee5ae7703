"""Early exercise as a tape: one node for each exercise date, the latest first."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import AbstractSchedule, StoreAll, Tape

from ..models import GaussianState
from ..numerics.chebyshev import chebyshev_points, interpolate
from ..numerics.crossing import as_root, outer_crossings
from ..numerics.safe_math import clipped
from ..products import Exercisable
from .layer import STDS, Layer, panels_for, quadrature

Scalar = Float[Array, ""]
Points = Float[Array, " points"]

NUM_VALUES = 40  # Chebyshev points: exp(8 sqrt(v) x) to rounding up to a state variance v of 4
_SEARCHED = 6.5  # standard deviations: decisions further out have negligible weight
_MOST_TILT = 1.5  # larger shifts from the center of the state's range lose digits at its end
_BREAKS = 2  # an exercise region has at most two ends


class CashFlow(eqx.Module):
    """The exercise value at one date, or at several dates if its leaves are stacked.

    date: years. discount_factor: today's value of 1 paid then. exercise_value: in currency of that date, on the
    states x = STDS sqrt(v) chebyshev_points(NUM_VALUES), with v the state's variance at that date. is_again: 1
    where the date after it is the same, else 0.
    """

    date: Float[Array, "..."]
    discount_factor: Float[Array, "..."]
    exercise_value: Float[Array, "... values"]
    is_again: Float[Array, "..."]


class Exercise(eqx.Module):
    """The node of an exercise date: from the values after the later dates to those after this one.

    V(x) = max(E(x), C(x)), both divided by the numeraire, C(x) = E[V_later | x]. The line is split where E and
    C cross, and each part has Gauss-Legendre nodes. A repeated date changes nothing.
    """

    model: GaussianState
    num_panels: int = eqx.field(static=True)

    @jax.checkpoint
    def __call__(self, cash_flow: CashFlow, later: Layer) -> Layer:
        is_again = cash_flow.is_again > 0.0
        # keep the unused branch finite, as if nothing came later
        apart = Layer(jnp.where(is_again, 0.0, later.variance), later.nodes, later.weighted)
        here = _Decision(self.model, cash_flow, apart)
        breaks = here.boundaries(self.num_panels)
        nodes, weights = quadrature(-here.radius, here.radius, breaks, self.num_panels)
        exercised, continued = here.exercise(nodes), here.continuation(nodes)
        value = jnp.where(exercised > continued, exercised, continued)
        value = jnp.where(here.tilt <= _MOST_TILT, value, jnp.nan)
        new = Layer(here.variance, nodes, weights * value)
        return jax.tree.map(lambda old, new: jnp.where(is_again, old, new), later, new)


class _Decision(eqx.Module):
    """Both deflated values at one date, as functions of the state."""

    model: GaussianState
    cash_flow: CashFlow
    later: Layer

    @property
    def variance(self) -> Scalar:
        """The variance of the state at this date."""
        return self.model.state_variance(self.cash_flow.date)

    @property
    def radius(self) -> Scalar:
        """The largest absolute value of the state on the grid."""
        return STDS * jnp.sqrt(self.variance)

    @property
    def tilt(self) -> Scalar:
        """The shift of the state's mean by the numeraire, in standard deviations."""
        held, std = jax.lax.stop_gradient((self, jnp.sqrt(self.variance)))
        up, down = (held.model.deflator(held.cash_flow.date, x) for x in (std, -std))
        return 0.5 * jnp.abs(jnp.log(up / down))

    def exercise(self, x: Points) -> Points:
        """Return the deflated value of exercising."""
        date = self.cash_flow.date
        deflator = self.model.deflator(date, x) / self.model.discount(date)
        scaled = clipped(x / self.radius, -1.0, 1.0)
        value = interpolate(self.cash_flow.exercise_value, scaled)
        return self.cash_flow.discount_factor * deflator * value

    def continuation(self, x: Points) -> Points:
        """Return the deflated value of continuing."""
        return self.later.expectation(x, self.variance)

    def gain(self, x: Points) -> Points:
        """Return the gain of exercising over continuing."""
        return self.exercise(x) - self.continuation(x)

    def boundaries(self, num_panels: int) -> Float[Array, "2"]:
        """Return the states between which exercise is optimal; outside the nodes if it never is."""
        held = jax.lax.stop_gradient(self)
        reach = _SEARCHED / STDS * held.radius
        grid = reach * jnp.linspace(-1.0, 1.0, 2 * num_panels + 1, dtype=reach.dtype)
        x, found = outer_crossings(held.gain, grid)
        return jnp.where(found, as_root(self.gain, x), -held.radius)


def cash_flows(
    product: Exercisable, model: GaussianState, dates: Float[Array, " dates"] | None = None
) -> CashFlow:
    """Return the cash flows of all exercise dates, stacked, the latest first.

    dates: years, ascending; None for those of the product.
    """
    dates = product.exercise_times() if dates is None else dates

    def of_date(date: Scalar, is_again: Scalar) -> CashFlow:
        radius = STDS * jnp.sqrt(model.state_variance(date))
        states = radius * jnp.asarray(chebyshev_points(NUM_VALUES), radius.dtype)
        paid = lambda x: product.exercise_value(date, model.market_state(date, x))
        return CashFlow(date, model.discount(date), jax.vmap(paid)(states), is_again)

    is_again = (jnp.diff(dates, append=jnp.inf) <= 0.0).astype(dates.dtype)
    return jax.vmap(of_date)(dates[::-1], is_again[::-1])


def induction(
    model: GaussianState,
    cash_flows: CashFlow,
    num_nodes: int,
    schedule: AbstractSchedule | None = None,
) -> Tape:
    """Return the tape of stacked cash flows, the latest date first; its states are `Layer`s.

    Today's value is `tape(nothing_later(model, num_nodes)).value_today()`. It is NaN if the numeraire is
    unsuitable for the volatility of rates: then use `model.anchored(...)` at the last exercise date for cash
    flows and tape.

    - **num_nodes**: on the state's whole range; see `Quadrature`.
    - **schedule**: the states that a reverse sweep keeps; None keeps all. Work within a node is recomputed.
    """
    step = Exercise(model, panels_for(num_nodes))
    return Tape().with_schedule(schedule or StoreAll()).append(step, cash_flows)


def nothing_later(model: GaussianState, num_nodes: int) -> Layer:
    """Return the initial state of the tape, in which there is no later date."""
    return Layer.nothing(panels_for(num_nodes) + _BREAKS, model.underlying)
