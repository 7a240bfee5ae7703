"""The PDE of stochastic variance on a grid of log-spots and variances, by alternating directions (ADI).

With y = s log(S / anchor), s = +1 or -1, and time to expiry tau,
u_tau = v/2 u_yy + s (r - q - v/2) u_y + s rho b sqrt(v) u_yv + b^2/2 u_vv + a u_v - r u, where
dv = a(v) dt + b(v) dB (`StochasticVariance`; Heston's a = kappa (theta - v), b = xi sqrt(v)).
The modified Craig-Sneyd scheme (in 't Hout and Foulon 2010, eq. 2.6).
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

import jaxtape

from ..models import StochasticVariance
from ..numerics.tridiagonal import Factored, Tridiagonal
from .stencil import first_difference, interpolation, rounded, second_difference, sinh_grid

Scalar = Float[Array, ""]
Grid = Float[Array, "distances variances"]

# stable from 1/3 on (in 't Hout and Welfert 2009); each step halves a stiff mode of one direction,
# but only scales it by .875 at .4, where a payoff jump at a barrier would ring
_THETA = 1.0 / 3.0


Rates = tuple[Scalar, Scalar]
"""The interest rate and the dividend yield, per year."""

Slopes = tuple[Grid, Grid, Grid]
"""dt times the parts of A u: the explicit part, along distance, and along variance."""


class Operator(eqx.Module):
    """The right-hand side: along distance and variance (`across`), at mean rates, and the rest.

    The last node of y is a far end, linear in the spot; the first is a barrier with a fixed value, or another
    far end (has_barrier 1 or 0). rates: mean forward rates of interest and dividends. interior: [distances], 0
    at the barrier.
    """

    rates: Rates
    side: Scalar
    interior: Float[Array, " distances"]
    along_y: Tridiagonal
    along_v: Tridiagonal
    slope_y: Tridiagonal
    mixed_v: Tridiagonal

    @classmethod
    def of(
        cls,
        model: StochasticVariance,
        rates: Rates,
        side: Scalar,
        y: Array,
        v: Array,
        has_barrier: Scalar,
    ) -> "Operator":
        interior = jnp.ones_like(y).at[0].set(1.0 - has_barrier)
        drift = side * (rates[0] - rates[1] - 0.5 * v)
        decay = 0.0, 0.5 * rates[0], 0.0
        d1, d2 = first_difference(y), second_difference(y)
        ends = jnp.asarray([0, -1])
        # linear in the spot: u_yy = s u_y
        d2 = tuple(b.at[ends].set(side * a[ends]) for a, b in zip(d1, d2, strict=True))
        along_y = [
            interior[:, None] * (a[:, None] * drift[None, :] + b[:, None] * (0.5 * v)[None, :] - c)
            for a, b, c in zip(d1, d2, decay, strict=True)
        ]
        e1, e2 = first_difference(v), second_difference(v)
        pull, diffusion = model.variance_drift(v), model.variance_of_variance(v)
        along_v = [
            interior[:, None] * (a * pull + 0.5 * b * diffusion - c)[None, :]
            for a, b, c in zip(e1, e2, decay, strict=True)
        ]
        cross = (side * model.spot_covariance(v)).at[-1].set(0.0)
        slope_y = [(band * interior)[:, None] for band in d1]
        between_ends = jnp.pad(jnp.ones_like(y[1:-1]), 1)
        mixed_v = [between_ends[:, None] * (band * cross)[None, :] for band in e1]
        discounted = -decay[1] * interior  # differences of constants are zero
        sums = discounted[:, None], discounted[:, None], 0.0, 0.0
        bands = along_y, along_v, slope_y, mixed_v
        operators = (Tridiagonal.with_sums(rest, *x) for rest, x in zip(sums, bands, strict=True))
        return cls(rates, side, interior, *operators)

    def explicit(self, u: Grid, excess: Rates) -> Grid:
        """Return the mixed derivative, and the effect of rates above their means.

        Per unit it is s u_y - u for the interest rate, and -s u_y for the dividend rate.
        """
        slope = self.slope_y @ u
        mixed = self.mixed_v.across(slope)
        growth = (excess[0] - excess[1]) * self.side * slope
        return mixed + growth - excess[0] * self.interior[:, None] * u

    def stepper(self, dt: Scalar) -> "Stepper":
        parts = self.along_y, self.along_v, self.mixed_v
        along_y, along_v, mixed_v = (part.scaled(dt) for part in parts)
        over_step = replace(self, along_y=along_y, along_v=along_v, mixed_v=mixed_v)
        implicit = (a.identity_minus(_THETA).factored() for a in (along_y, along_v.transposed))
        return Stepper(over_step, dt, *implicit)


class Stepper(eqx.Module):
    """Steps of length dt, with both directions factored. operator: its parts over the step, times dt."""

    operator: Operator
    dt: Scalar
    implicit_y: Factored
    implicit_v: Factored

    def step(
        self,
        u: Grid,
        excess: Rates,
        source: Grid | float = 0.0,
        is_first: Bool[Array, ""] | bool = False,
    ) -> Grid:
        """Take a modified Craig-Sneyd step: a Douglas step, then one with corrected explicit parts.

        The first step from a payoff with jumps is an implicit Euler step of length dt / 3 with the same
        matrices: it damps the jump, and a single first-order step keeps the scheme second order (Rannacher
        1984).

        source: The source term added to the equation over the whole step, per year.
        """
        length = jnp.where(is_first, _THETA, 1.0)
        change = self._implicit(length * sum(self._slopes(u, excess)) + self.dt * source)
        explicit, along_y, along_v = self._slopes(change, excess)
        correction = 0.5 * explicit + (0.5 - _THETA) * (along_y + along_v)
        return u + change + self._implicit(jnp.where(is_first, 0.0, correction))

    def _slopes(self, u: Grid, excess: Rates) -> Slopes:
        by_part = self.operator
        explicit = by_part.explicit(u, (self.dt * excess[0], self.dt * excess[1]))
        return explicit, by_part.along_y @ u, by_part.along_v.across(u)

    def _implicit(self, change: Grid) -> Grid:
        """Return (I - theta dt A_v)^-1 (I - theta dt A_y)^-1 change: one direction after the other."""
        return self.implicit_v.solve(self.implicit_y.solve(change).T).T


def time_shares(num_steps: int) -> tuple[float, Float[np.ndarray, " edges"]]:
    """Return the length of a step and the ends of the steps, back from expiry, as fractions of the time.

    The first is an implicit Euler step, a third as long (`Stepper.step`).
    """
    edges = np.append(0.0, _THETA + np.arange(num_steps))
    return float(1.0 / edges[-1]), edges / edges[-1]


@jaxtape.no_inline
def forward_rates(
    model: StochasticVariance, times: Float[Array, " times"]
) -> tuple[Float[Array, " steps"], Float[Array, " steps"]]:
    """Return the mean interest and dividend rates over each step between times."""
    mean = lambda factor: -jnp.diff(jnp.log(jax.vmap(factor)(times))) / jnp.diff(times)
    return mean(model.discount), mean(model.dividend_discount)


def mean_rates(model: StochasticVariance, expiry: Scalar) -> Rates:
    """Return the mean interest and dividend rates up to expiry."""
    mean = lambda factor: -jnp.log(factor(expiry)) / expiry
    return mean(model.discount), mean(model.dividend_discount)


def excess_rates(rates: tuple[Array, Array], means: Rates) -> tuple[Array, Array]:
    """Return the rates of each step less their means."""
    return rates[0] - means[0], rates[1] - means[1]


@jaxtape.no_inline(static_argnames="nodes")
def variance_grid(nodes: int, model: StochasticVariance, expiry: Scalar) -> Array:
    """Return a grid from zero to an upper bound of the variance, finest at zero."""
    reach = rounded(model.highest_variance(expiry))
    return sinh_grid(jnp.linspace(0.0, 1.0, nodes, dtype=reach.dtype), reach, 0.006 * reach)


@jaxtape.no_inline
def read_off(u: Grid, y: Array, v: Array, distance: Scalar, model: StochasticVariance) -> Scalar:
    """Return the grid's value at a distance and today's variance."""
    i, along_y = interpolation(y, distance, 5)
    j, along_v = interpolation(v, model.initial_variance, 4)
    return along_y @ jax.lax.dynamic_slice(u, (i, j), (5, 4)) @ along_v
