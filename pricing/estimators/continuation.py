"""A control variate for discrete barriers: fitted continuation values, corrected by simulation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import StoreAll

from ..models import ConditionallyGaussian
from ..numerics.safe_math import clipped, larger, safe_sqrt
from ..products import DiscreteBarrier, Payoff
from .corridor import MonitoringDate, Paths, monitoring_dates, paid_always, payoff_inside
from .gaussian_mixture import GaussianMixture, Interval

Scalar = Float[Array, ""]
States = Float[Array, "dates paths"]

_REACH = 8.0  # standard deviations of the log-spot covered by a fit, including where no path goes


class TerminalPayoff(NamedTuple):
    """The payment of a contract at its last date if it is still alive."""

    alive: Payoff
    forward: Scalar
    discount: Scalar

    @classmethod
    def of(cls, product: DiscreteBarrier, model: ConditionallyGaussian) -> "TerminalPayoff":
        expiry = product.dates[-1]
        return cls(product.alive, model.forward(expiry), model.discount(expiry))

    def ahead(self, date: MonitoringDate, position: Paths) -> Paths:
        """Return the mean over the last step, including exit payments, discounted to today."""
        low, high = date.bounds(position)
        forward = self.forward * jnp.exp(position + date.mean + 0.5 * date.std**2)
        alive = payoff_inside(self.alive, forward, date.std, low, high)
        return date.paid_outside(low, high) + self.discount * alive


class Continuation(NamedTuple):
    """A control variate of functions w_k of the position at date k < n that approximate the value.

    For any such functions, the value is the telescoping sum

    V = T w_1 + sum_k E[weight_k (T w_{k+1} - w_k)(x_k)],

    with T the mean over the next step, including exit payments, T w_n the mean over the last step, and weight_k
    the survival probability. The closer w_k is to the continuation value, the smaller is the variance, in every
    derivative; there is no bias for any w_k. A path samples the term of one date, times their number.
    (Approximating martingales: Henderson and Glynn 2002.)

    today: T w_1; fits: those of all dates except the last, stacked; both are differentiable in product and
        model.
    """

    today: Scalar
    fits: GaussianMixture

    @classmethod
    def fit(cls, product: DiscreteBarrier, model: ConditionallyGaussian) -> "Continuation":
        """Fit the functions by backward induction, for a model with deterministic variance."""
        noise = jnp.zeros((product.dates.size, 1), product.dates.dtype)
        walk = model.walk(noise, product.dates, StoreAll())
        dates = monitoring_dates(product, model, walk)
        dates = dates._replace(mean=dates.mean[:, 0], std=dates.std[:, 0])
        lows, highs = _corridors(dates)
        components = 16 + 8 * round(product.dates.size**0.5)

        end = TerminalPayoff.of(product, model)
        last = Interval(lows[-1], highs[-1], components)
        ahead = jax.vmap(end.ahead, (None, 0))(date_of(dates, -1), last.points)
        latest = last.fit(ahead)

        def earlier(later: GaussianMixture, of_date) -> tuple[GaussianMixture, GaussianMixture]:
            date, low, high = of_date
            interval = Interval(low, high, components)
            fit = interval.fit(jax.vmap(_ahead, (None, None, 0))(later, date, interval.points))
            return fit, later

        later_dates = jax.tree.map(lambda x: x[1:-1], dates)
        first, fits = jax.lax.scan(
            earlier, latest, (later_dates, lows[:-1], highs[:-1]), reverse=True
        )
        fits = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, fits)
        always = model.discount(product.dates[-1]) * paid_always(product.always, end.forward, walk)
        today = _ahead(first, date_of(dates, 0), jnp.zeros_like(end.forward)) + always[0]
        return cls(today, fits)

    def controlled_samples(
        self,
        dates: MonitoringDate,
        end: TerminalPayoff,
        states: tuple[States, States],
        uniform: Paths,
    ) -> Paths:
        """Return samples of the value.

        states: (position, weight) at all dates except the last; uniform: the random choice of the term of a
            path.
        """
        positions, weights = states
        count = positions.shape[0]

        def of_path(positions, weights, dates, uniform) -> Scalar:
            index = jnp.minimum((count * uniform).astype(jnp.int32), count - 1)
            position, date = positions[index], date_of(dates, index + 1)
            later = date_of(self.fits, jnp.minimum(index + 1, count - 1))
            is_last = index == count - 1
            ahead = jnp.where(is_last, end.ahead(date, position), _ahead(later, date, position))
            missed = ahead - date_of(self.fits, index)(position)
            return self.today + count * weights[index] * missed

        by_path = MonitoringDate(-1, -1, None, None, None, None)  # pyright: ignore[reportArgumentType]
        return jax.vmap(of_path, (-1, -1, by_path, 0))(positions, weights, dates, uniform)


def _ahead(later: GaussianMixture, date: MonitoringDate, position: Scalar) -> Scalar:
    """Return T applied to a fit, from a position."""
    inside = later.mean_inside(position + date.mean, date.std, date.lower, date.upper)
    return date.paid_outside(*date.bounds(position)) + inside


def _corridors(dates: MonitoringDate) -> tuple[Float[Array, " dates"], Float[Array, " dates"]]:
    """Return the smallest and largest position at all dates except the last."""
    mean, variance = jnp.cumsum(dates.mean)[:-1], jnp.cumsum(dates.std**2)[:-1]
    std = safe_sqrt(variance)
    ends = mean - _REACH * std, mean + _REACH * std
    low, high = (clipped(level[:-1], *ends) for level in (dates.lower, dates.upper))
    return low, larger(high, low + 0.01 * std)


def date_of(tree, index):
    """Return one date of a stacked tree."""
    return jax.tree.map(lambda x: x[index], tree)
