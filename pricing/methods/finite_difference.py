"""Finite differences for Heston's equation on the living side of a barrier, by alternating directions."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import jaxtape
from jaxtape import AbstractSchedule, Revolve

from ..models import AbstractModel, Heston, LocalVol
from ..products import AbstractProduct, Barrier, TerminalClaim
from .dupire import local_vol_value
from .fourier import Fourier
from .method import AbstractMethod, missing
from .stencil import first_difference, interpolation, second_difference
from .tridiagonal import Factored, Tridiagonal

Scalar = Float[Array, ""]
Stencil = tuple[Array, Array, Array]
Grid = Float[Array, "distances variances"]

# stable from 1/3 on (in 't Hout and Welfert 2009); towards 1/2 steps are truer, and kinks ring longer
_THETA = 0.4


class FiniteDifference(AbstractMethod):
    """Barriers under Heston, terminal claims under local volatility: with Delta and Gamma from the grid.

    Local volatility: `local_vol_value`, on num_distances nodes of the log-spot. Heston, continuously monitored:
    with y = s log(S / barrier), s = +1 above the barrier and -1 below, and time to expiry tau,
    u_tau = v/2 u_yy + s (r - q - v/2) u_y + s rho xi v u_yv + xi^2 v/2 u_vv + kappa (theta - v) u_v - r u
    on y > 0, with u = rebate at y = 0 (knock-out) and r the curve's forward rate. A knock-in is the vanilla
    option, by `Fourier`, plus the solution for the payoff rebate - vanilla. The modified Craig-Sneyd scheme (in
    't Hout and Foulon 2010, eq. 2.6); grids are finer at the barrier and at zero variance.

    num_distances, num_variances: grid nodes; num_steps: time steps; the error falls with the square of each.
    schedule: what a reverse sweep keeps of the time loop (`jaxtape.scan`).
    """

    num_distances: int = eqx.field(static=True, default=120)
    num_variances: int = eqx.field(static=True, default=40)
    num_steps: int = eqx.field(static=True, default=40)
    schedule: AbstractSchedule = eqx.field(static=True, default=Revolve(40))

    @property
    def is_random(self) -> bool:
        return False

    @property
    def trade_bytes(self) -> int:
        return 8 * (self.num_steps + 100) * self.num_distances * self.num_variances

    @property
    def trades_a_tile(self) -> int:
        return 4  # the states of more would leave the cache

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if isinstance(model, LocalVol):
            known = isinstance(product, TerminalClaim)
            return None if known else missing("payoff of the spot at expiry alone", product)
        if not isinstance(product, Barrier) or product.dates is not None:
            return missing("continuously monitored barrier", product)
        if not isinstance(model, Heston):
            return missing("Heston variance or local volatility", model)
        return None

    def samples(self, product: Any, model: Any, key: PRNGKeyArray | None) -> Float[Array, ""]:
        if isinstance(model, LocalVol):
            sizes = self.num_distances, self.num_steps
            return local_vol_value(product, model, *sizes, self.schedule)
        return self._barrier(product, model, key)

    def _barrier(self, product: Barrier, model: Heston, key: PRNGKeyArray | None) -> Scalar:
        vanilla = Fourier().samples(product.vanilla, model, key)
        living = product.living_side
        alive = living * (model.spot - product.barrier) > 0.0
        spot = jnp.where(alive, model.spot, product.barrier * (1.0 + 0.1 * living))
        inside = eqx.tree_at(lambda m: m.spot, model, spot)
        solution = self._solve(product, inside)
        living_value = jnp.where(product.knocks_in, vanilla + solution, solution)
        touched_value = jnp.where(product.knocks_in, vanilla, product.rebate)
        return jnp.where(alive, living_value, touched_value)

    def _solve(self, product: Barrier, model: Heston) -> Scalar:
        """The solution at today's spot and variance."""
        distance = product.living_side * jnp.log(model.spot / product.barrier)
        y = _distances(self.num_distances, product, model, distance)
        v = _variances(self.num_variances, model, product.expiry)
        u = _terminal(product, y)[:, None] * jnp.ones_like(v)[None, :]
        operator = _Operator.of(product, model, y, v)
        stepper = operator.stepper(product.expiry / self.num_steps)
        excess = _forward_rates(model, product.expiry, self.num_steps) - operator.rate
        step = lambda u, excess: (stepper.step(u, excess), None)  # noqa: E731
        u, _ = jaxtape.scan(step, u, excess, schedule=self.schedule)
        i, along_y = interpolation(y, distance, 5)
        j, along_v = interpolation(v, model.initial_variance, 4)
        patch = jax.lax.dynamic_slice(u, (i, j), (5, 4))
        return along_y @ patch @ along_v


class _Slopes(NamedTuple):
    """dt times the parts of A u: those taken explicitly, along distance, and along variance."""

    explicit: Grid
    along_y: Grid
    along_v: Grid

    @property
    def total(self) -> Grid:
        return self.explicit + self.along_y + self.along_v


class _Operator(eqx.Module):
    """The right-hand side: along distance and along variance (transposed), at the mean rate, and the rest."""

    rate: Scalar
    living_side: Scalar
    along_y: Tridiagonal
    along_v: Tridiagonal
    slope_y: Stencil
    mixed_v: Stencil

    @classmethod
    def of(cls, product: Barrier, model: Heston, y: Array, v: Array) -> "_Operator":
        rate = -jnp.log(model.discount(product.expiry)) / product.expiry
        side = product.living_side
        inner = jnp.ones_like(y).at[0].set(0.0)  # the barrier's node keeps its value

        drift = side * (rate - model.dividend_yield - 0.5 * v)
        half_rate = 0.5 * rate
        d1, d2 = first_difference(y), second_difference(y)
        # linear in the spot at the far end: u_yy = s u_y
        d2 = tuple(b.at[-1].set(side * a[-1]) for a, b in zip(d1, d2, strict=True))
        along_y = [
            inner[:, None] * (a[:, None] * drift[None, :] + b[:, None] * (0.5 * v)[None, :])
            for a, b in zip(d1, d2, strict=True)
        ]
        along_y[1] = along_y[1] - half_rate * inner[:, None]

        e1, e2 = first_difference(v), second_difference(v)
        pull = model.mean_reversion * (model.long_run_variance - v)
        diffusion = model.vol_of_vol**2 * v
        along_v = [
            (a * pull + 0.5 * b * diffusion)[:, None] * inner[None, :]
            for a, b in zip(e1, e2, strict=True)
        ]
        along_v[1] = along_v[1] - half_rate * inner[None, :]

        cross = (side * model.correlation * model.vol_of_vol * v).at[-1].set(0.0)
        slope_y, mixed_v = _scaled(d1, inner), _scaled(e1, cross)
        return cls(rate, side, Tridiagonal(*along_y), Tridiagonal(*along_v), slope_y, mixed_v)

    def explicit(self, u: Grid, excess_rate: Scalar) -> Grid:
        """The mixed derivative, and what a rate above the mean adds: s u_y - u for each unit of it."""
        slope = _apply(self.slope_y, u)
        mixed = _apply(self.mixed_v, slope.at[-1].set(0.0).T).T
        return mixed + excess_rate * (self.living_side * slope - u.at[0].set(0.0))

    def stepper(self, dt: Scalar) -> "_Stepper":
        implicit = (
            direction.identity_minus(_THETA * dt).factored()
            for direction in (self.along_y, self.along_v)
        )
        return _Stepper(self, dt, *implicit)


class _Stepper(eqx.Module):
    """Steps of length dt, both directions factored."""

    operator: _Operator
    dt: Scalar
    implicit_y: Factored
    implicit_v: Factored

    def step(self, u: Grid, excess_rate: Scalar) -> Grid:
        """Modified Craig and Sneyd: a Douglas step, and a second one with the explicit parts corrected."""
        before = self._slopes(u, excess_rate)
        after = self._slopes(self._sweep(u + before.total, before), excess_rate)
        correction = _THETA * (after.explicit - before.explicit)
        correction = correction + (0.5 - _THETA) * (after.total - before.total)
        return self._sweep(u + before.total + correction, before)

    def _slopes(self, u: Grid, excess_rate: Scalar) -> _Slopes:
        parts = (
            self.operator.explicit(u, excess_rate),
            self.operator.along_y @ u,
            (self.operator.along_v @ u.T).T,
        )
        return _Slopes(*(self.dt * part for part in parts))

    def _sweep(self, start: Grid, before: _Slopes) -> Grid:
        """Implicit corrections of one direction after the other."""
        first = self.implicit_y.solve(start - _THETA * before.along_y)
        return self.implicit_v.solve((first - _THETA * before.along_v).T).T


def _forward_rates(model: Heston, expiry: Scalar, num_steps: int) -> Float[Array, " steps"]:
    """The mean rate over each step, from expiry back to today."""
    times = jnp.linspace(expiry, 0.0, num_steps + 1)
    return jnp.diff(jnp.log(jax.vmap(model.discount)(times))) * num_steps / expiry


def _scaled(bands: Stencil, by: Array) -> Stencil:
    """A three-point stencil times a number for each node."""
    lower, diagonal, upper = bands
    return lower * by, diagonal * by, upper * by


def _apply(bands: Stencil, u: Array) -> Array:
    """A three-point stencil along the leading axis."""
    lower, diagonal, upper = (band[:, None] for band in bands)
    below, above = jnp.pad(u[:-1], ((1, 0), (0, 0))), jnp.pad(u[1:], ((0, 1), (0, 0)))
    return lower * below + diagonal * u + upper * above


def _distances(nodes: int, product: Barrier, model: Heston, distance: Scalar) -> Array:
    """From the barrier out to where it no longer matters, finest at the barrier."""
    std = jnp.sqrt(model.total_variance(product.expiry))
    strike = product.living_side * jnp.log(product.strike / product.barrier)
    reach = _rounded(jnp.maximum(distance, strike) + 5.0 * std)
    fine = _rounded(0.5 * jnp.clip(distance, 0.2 * std, std))
    return _sinh_grid(nodes, reach, fine)


def _variances(nodes: int, model: Heston, expiry: Scalar) -> Array:
    """From zero to where the variance never is, finest at zero."""
    kappa, xi = model.mean_reversion, model.vol_of_vol
    level = jnp.maximum(model.initial_variance, model.long_run_variance)
    scale = -0.5 * xi**2 * jnp.expm1(-kappa * expiry) / kappa
    reach = _rounded(level + 4.0 * jnp.sqrt(level * scale) + 6.0 * scale)
    return _sinh_grid(nodes, reach, 0.006 * reach)


def _sinh_grid(nodes: int, reach: Scalar, fine: Scalar) -> Array:
    t = jnp.linspace(0.0, 1.0, nodes, dtype=reach.dtype) * jnp.arcsinh(reach / fine)
    return fine * jnp.sinh(t)


def _rounded(x: Scalar) -> Scalar:
    """To a power of 2^(1/4): grids stand still while the market is bumped, and are not differentiated."""
    return 2.0 ** (jnp.round(4.0 * jnp.log2(jax.lax.stop_gradient(x))) / 4.0)


def _terminal(product: Barrier, y: Array) -> Array:
    """The payoff averaged over each node's cell; the rebate or nothing on the barrier."""
    side, living = product.side, product.living_side
    middles = 0.5 * (y[1:] + y[:-1])
    low, high = jnp.concatenate([y[:1], middles]), jnp.concatenate([middles, y[-1:]])
    strike = living * jnp.log(product.strike / product.barrier)
    pays_above = side * living > 0.0
    start = jnp.where(pays_above, jnp.clip(strike, low, high), low)
    end = jnp.where(pays_above, high, jnp.clip(strike, low, high))
    spots = product.barrier * living * (jnp.exp(living * end) - jnp.exp(living * start))
    vanilla = side * (spots - product.strike * (end - start)) / (high - low)
    payoff = jnp.where(product.knocks_in, product.rebate - vanilla, vanilla)
    return payoff.at[0].set(jnp.where(product.knocks_in, 0.0, product.rebate))
