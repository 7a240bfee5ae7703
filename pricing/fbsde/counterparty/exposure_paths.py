"""Values of a netting set along joint paths of rates and equities."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...models import HullWhite
from ...numerics.black import black
from ...numerics.chebyshev import chebyshev_points, coefficients, polynomials
from ...numerics.cholesky import semidefinite_cholesky
from ...numerics.safe_math import clipped, divisor, larger
from .joint_model import JointModel
from .netting_set import Flows
from .value_tables import POINTS, REACH, value_tables

_WINDOW = 0.25  # half-width for smoothing a decision, in standard deviations of its gain

Paths = Float[Array, " paths"]
State = Float[Array, "factors paths"]


class Exposure(NamedTuple):
    """The exposures of one date, of shape (dates, paths) if stacked. Values are divided by the numeraire.

    value: after collateral; deflator: 1 over the numeraire; state: of the model, (dates, factors, paths); gain,
        loss: zeros whose derivatives are those of value^+ and value^- from changing exercise decisions; neither
        is in the derivative of `value`.
    """

    value: Paths
    deflator: Paths
    state: State
    gain: Paths
    loss: Paths


class ExposurePaths(eqx.Module):
    """The functions of the state that value a netting set at each of a list of dates."""

    rates: HullWhite
    dates: "_Date"
    threshold: Array
    quantities: Float[Array, " options"]
    units: Float[Array, " claims"]
    forwards: Float[Array, " claims"]
    strikes: Float[Array, " claims"]
    sides: Float[Array, " claims"]
    expiries: Float[Array, " claims"]
    assets: Int[Array, " claims"]
    today: Array

    @classmethod
    def of(
        cls,
        model: JointModel,
        flows: Flows,
        times: Float[Array, " dates"],
        may_exercise: Bool[Array, "dates options"],
        threshold: Array,
    ) -> "ExposurePaths":
        """Return them for given cash flows; times: decision and other dates in years, increasing."""
        real = lambda values: jnp.asarray(values, model.rates.vol.dtype)
        t, pays_at, until, expiries, strikes, sides, quantities, units = map(
            real,
            (
                times,
                flows.pays_at,
                flows.until,
                flows.expiries,
                flows.strikes,
                flows.sides,
                flows.quantities,
                flows.units,
            ),
        )
        rates = model.rates.anchored(jnp.max(jnp.concatenate([pays_at, expiries])))
        model = eqx.tree_at(lambda model: model.rates, model, rates)
        amounts = real(jnp.concatenate([flows.swaps[:, None], flows.options], axis=1))
        tables, today = value_tables(rates, t, pays_at, until, amounts, may_exercise)
        step = model.steps(t)
        covariances = model.covariances(step)
        moved = model.forward_variances(step, rates.slope(expiries), flows.assets)
        left = jnp.where(t[:, None] <= expiries[None], moved, 0.0)
        left = jnp.cumsum(left[::-1], axis=0)[::-1]
        dates = _Date(
            t,
            jnp.sqrt(rates.state_variance(t)),
            coefficients(tables),
            _spread(tables, quantities.size),
            may_exercise,
            semidefinite_cholesky(covariances),
            jnp.cumsum(jnp.diagonal(covariances, axis1=1, axis2=2), axis=0),
            jnp.concatenate([left[1:], jnp.zeros_like(left[:1])]),
            t[:, None] < expiries[None],
        )
        discount = rates.discount(expiries)
        forwards = model.forwards(expiries)[jnp.arange(units.size), flows.assets] * discount
        of_claims = units @ black(forwards, discount * strikes, jnp.sqrt(left[0]), sides)
        value = today[0] + today[1 + quantities.size :] @ quantities + of_claims
        claims = forwards, strikes, sides, expiries, flows.assets
        return cls(rates, dates, threshold, quantities, units, *claims, value)

    def simulate(self, noise: Float[Array, "dates factors paths"]) -> Exposure:
        """Return the exposures on all dates along paths from standard normals."""
        paths = noise.shape[-1]
        options = self.quantities.size
        none = jnp.zeros((options, paths), noise.dtype)
        start = jnp.zeros(noise.shape[1:], noise.dtype), none > 0.0, none
        step = jax.checkpoint(lambda before, here: self._step(before, here))
        return jax.lax.scan(step, start, (self.dates, noise))[1]

    def _step(self, before, here):
        state, exercised, moved = before
        date, noise = here
        state = state + date.factor @ noise
        swaps, entered, waiting = self._of_rates(date, state[0])
        gain = entered - waiting
        decides = date.may[:, None] & (gain > 0.0)
        weight = _window(gain, date.spread[:, None]) * (gain - jax.lax.stop_gradient(gain))
        moved = jnp.where(decides, 0.0, moved)
        moved = moved + jnp.where(date.may[:, None] & ~exercised, weight, 0.0)
        exercised = exercised | decides
        deflator = self.rates.deflator(date.t, state[0])
        quantities = self.quantities[:, None]
        of_options = quantities * jnp.where(exercised, entered, waiting)
        total = swaps + jnp.sum(of_options, axis=0) + self._of_equities(date, state)
        value = self._kept(total, deflator)
        others, held = jax.lax.stop_gradient((total[None] - of_options, deflator[None]))
        one, other = (
            self._kept(others + jax.lax.stop_gradient(quantities * worth), held)
            for worth in (entered, waiting)
        )
        positive = lambda x: larger(x, 0.0)
        found = Exposure(
            value,
            deflator,
            state,
            jnp.sum(moved * (positive(one) - positive(other)), axis=0),
            jnp.sum(moved * (positive(-one) - positive(-other)), axis=0),
        )
        return (state, exercised, moved), found

    def _kept(self, value: Array, deflator: Array) -> Array:
        """Return the value less its collateral, unchanged for an infinite threshold."""
        is_finite = jnp.isfinite(self.threshold)
        most = jnp.where(is_finite, self.threshold, 0.0) * deflator
        return jnp.where(is_finite, clipped(value, -most, most), value)

    def _of_rates(self, date: "_Date", x: Paths) -> tuple[Paths, Array, Array]:
        """Return the values of the swaps, of each right's swap, and of each right if it is kept."""
        at = clipped(x / (REACH * date.std), -1.0, 1.0)
        values = date.tables.T @ polynomials(at, POINTS)
        options = self.quantities.size
        return values[0], values[1 : 1 + options], values[1 + options :]

    def _of_equities(self, date: "_Date", state: State) -> Paths:
        """Return the value of the equity options, by Black's formula, divided by the numeraire."""
        if not self.units.size:
            return jnp.zeros_like(state[0])
        column = lambda values: values[:, None]
        at = self.assets + 1
        forward = column(self.forwards) * jnp.exp(state[at] - 0.5 * column(date.variance[at]))
        later = jnp.where(date.lives, self.expiries, date.t)
        bonds = self.rates.deflated_bond(date.t, column(later), state[:1])
        std = column(jnp.sqrt(jnp.where(date.lives, date.left, 1.0)))
        values = black(forward, column(self.strikes) * bonds, std, column(self.sides))
        return jnp.where(date.lives, self.units, 0.0) @ values


class _Date(NamedTuple):
    """One date, or all of them stacked.

    tables: coefficients of Chebyshev polynomials, (points, 1 + 2 options); spread: that of the exercise gain;
    may: whether a right may be exercised; factor: that of the step's covariance; variance: that of the state;
    left: the remaining variance of each claim's log forward; lives: whether a claim is still alive.
    """

    t: Array
    std: Array
    tables: Array
    spread: Array
    may: Bool[Array, "*dates options"]
    factor: Array
    variance: Array
    left: Array
    lives: Array


def _spread(
    tables: Float[Array, "dates points columns"], options: int
) -> Float[Array, "dates options"]:
    """Return the standard deviation of each exercise gain, from its values near the mean state."""
    gain = tables[:, :, 1 : 1 + options] - tables[:, :, 1 + options :]
    middle, off = POINTS // 2, POINTS // 10
    apart = REACH * (
        chebyshev_points(POINTS)[middle + off] - chebyshev_points(POINTS)[middle - off]
    )
    return jax.lax.stop_gradient(jnp.abs(gain[:, middle + off] - gain[:, middle - off]) / apart)


def _window(gain: Array, spread: Array) -> Array:
    """Return weights with integral 1 over the gain, on a window around 0."""
    width = _WINDOW * divisor(spread)
    near = jnp.maximum(1.0 - jnp.abs(gain) / width, 0.0) / width
    return jax.lax.stop_gradient(near)
