"""Finite differences: barriers, early exercise under Heston, terminal claims under local volatility."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

import jaxtape
from jaxtape import AbstractSchedule, Revolve, StoreAll
from jaxtape.jax_settings.platform import platforms_in_use

from ..grids import dividend_grid
from ..grids.alternating_directions import (
    Operator,
    excess_rates,
    forward_rates,
    mean_rates,
    read_off,
    time_shares,
    variance_grid,
)
from ..grids.dupire import local_vol_value
from ..grids.exercise_periods import exercise_periods
from ..grids.lognormal_barrier import lognormal_barrier_value
from ..grids.stencil import averaged_payoff, rounded, sinh_grid
from ..grids.variance_exercise import exercise_value
from ..models import (
    AbstractModel,
    CharacteristicFunction,
    LocalVolatility,
    LognormalSpots,
    StochasticVariance,
    WithDividends,
)
from ..numerics.safe_math import clipped, larger, smaller
from ..products import (
    AbstractProduct,
    EarlyExercise,
    SingleBarrier,
    SpotOption,
    TerminalClaim,
    TwoBarriers,
)
from .fourier import Fourier
from .method import AbstractMethod, Tiling, at_least, missing_ability

Scalar = Float[Array, ""]

_FINER = 4  # ratio of nodes and steps in one dimension to those in two


class FiniteDifference(AbstractMethod):
    """Deterministic values on a grid, with Delta and Gamma.

    Lognormal spots with time-dependent rate and vol: one or two continuous barriers by
    `lognormal_barrier_value`, in one dimension, with four times the nodes and steps. Local volatility: terminal
    claims by `local_vol_value`, on num_spots nodes of the log-spot.

    Heston: continuous barriers, American and Bermudan options. The PDE (`alternating_directions`) is solved in
    the log-distance of the spot from the barrier (on the side that is alive) or from the strike (on both
    sides), with the curve's forward rates. Payoffs are averaged over cells; grids are finest at barrier, strike
    and zero variance. A knock-out is worth its rebate at the barrier; a knock-in is the vanilla option, by
    `Fourier`, plus the solution for the payoff rebate - vanilla. A Bermudan option is worth max(u, payoff) at
    its dates. An American option solves u_tau = A u + lambda, u >= payoff, with lambda >= 0, and 0 where u >
    payoff, by the splitting of Ikonen and Toivanen (2009), as in Haentjens and in 't Hout (2015). In both cases
    the asset may pay dividends on known dates (`variance_exercise`).

    Attributes:
        is_random: False.
        num_spots: The nodes along the log-spot, at least 5.
        num_variances: The nodes along the variance, at least 4.
        num_steps: The time steps. Errors are second order in each of the three counts, but first order in the
            steps at a barrier if spot and variance are correlated.
        schedule: The checkpointing schedule of the time loop (`jaxtape.scan`). None uses `StoreAll()` in one
            dimension, where states are small, and `Revolve(40)` in two.
        dimensions: The number of grid dimensions for `tiling`; set by `prepared`.

    Raises:
        ValueError: A count is too small.
    """

    is_random: ClassVar[bool] = False
    program_size: ClassVar[int] = 10

    num_spots: int = eqx.field(static=True, default=120)
    num_variances: int = eqx.field(static=True, default=40)
    num_steps: int = eqx.field(static=True, default=40)
    schedule: AbstractSchedule | None = eqx.field(static=True, default=None)
    dimensions: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        at_least(5, self, "num_spots")  # the value is interpolated by a polynomial on 5 by 4 nodes
        at_least(4, self, "num_variances")
        at_least(1, self, "num_steps")

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        on_cpu = "cpu" in platforms_in_use()
        if self.dimensions == 1:
            trade_bytes = 8 * (_FINER * self.num_steps + 10) * _FINER * self.num_spots
            return Tiling(trade_bytes, 16 if on_cpu else 64)
        trade_bytes = 8 * (self.num_steps + 100) * self.num_spots * self.num_variances
        # the states of a few fit the cache; a CPU core takes one after the other, which moves no
        # data
        side_by_side = 1 if on_cpu else 4
        return Tiling(trade_bytes, side_by_side, rows=4 // side_by_side)

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method with larger tiles if the grid has one dimension."""
        del products, mesh
        process = model.base if isinstance(model, WithDividends) else model
        flat = isinstance(process, LognormalSpots)
        return replace(self, dimensions=1) if flat else self

    def coarser(self) -> "FiniteDifference":
        return self._times(0.5)

    def compared_with(self, model: AbstractModel) -> "tuple[FiniteDifference, ...]":
        """Return a grid with half the nodes and steps, and in two dimensions another one.

        That has half the nodes and twice the steps: it finds errors where those of nodes and steps, of opposite
        signs, cancel.
        """
        process = model.base if isinstance(model, WithDividends) else model
        half = self.coarser()
        if not isinstance(process, StochasticVariance):
            return (half,)
        return half, replace(half, num_steps=2 * self.num_steps)

    def finer(self) -> "FiniteDifference":
        return self._times(2.0)

    def _times(self, factor: float) -> "FiniteDifference":
        least = {"num_spots": 5, "num_variances": 4, "num_steps": 1}
        counts = {name: max(n, int(factor * getattr(self, name))) for name, n in least.items()}
        return replace(self, **counts)

    def judged(self, product: AbstractProduct) -> AbstractProduct:
        """Return the knock-out, which is what the grid solves for a knock-in."""
        return product.knocked_out if isinstance(product, SingleBarrier) else product

    def reads_dividends(self, model: AbstractModel) -> bool:
        known = LognormalSpots, StochasticVariance
        return isinstance(model, WithDividends) and isinstance(model.base, known)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if isinstance(model, WithDividends):
            return self._unsupported_with_dividends(product, model)
        if isinstance(model, LocalVolatility):
            known = isinstance(product, TerminalClaim)
            return None if known else missing_ability("payoff of the spot at expiry alone", product)
        continuous = isinstance(product, SingleBarrier) and product.monitoring_dates is None
        if isinstance(model, LognormalSpots):
            between = isinstance(product, TwoBarriers) and product.monitoring_dates is None
            known = continuous or between
            return None if known else missing_ability("continuously monitored barrier", product)
        if not isinstance(model, StochasticVariance):
            return missing_ability("lognormal spots, Heston variance or local volatility", model)
        early = isinstance(product, EarlyExercise) and isinstance(product, SpotOption)
        if product.multi_asset or not (early or continuous):
            return missing_ability(
                "continuously monitored barrier or early exercise of one asset", product
            )
        if continuous and not isinstance(model, CharacteristicFunction):
            return missing_ability("characteristic function", model)
        return None

    def _unsupported_with_dividends(
        self, product: AbstractProduct, model: WithDividends
    ) -> str | None:
        if not self.reads_dividends(model):
            return missing_ability("lognormal spots or Heston variance", model.base)
        continuous = isinstance(product, SingleBarrier) and product.monitoring_dates is None
        early = isinstance(product, EarlyExercise) and isinstance(product, SpotOption)
        if isinstance(model.base, StochasticVariance):
            one = early and not product.multi_asset
            return None if one else missing_ability("early exercise of one asset", product)
        if product.multi_asset or not (early or continuous or isinstance(product, TerminalClaim)):
            return missing_ability("payoff of one spot, early exercise or one barrier", product)
        return None

    def canonical(self, product: AbstractProduct) -> AbstractProduct:
        return exercise_periods(product) if isinstance(product, EarlyExercise) else product

    def samples(
        self, product: Any, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        if isinstance(model, WithDividends):
            return self._with_dividends(product, model)
        if isinstance(model, LocalVolatility):
            sizes = self.num_spots, self.num_steps
            return local_vol_value(product, model, *sizes, self._schedule(1))
        if isinstance(model, LognormalSpots):
            model = model.at_smile_point(product.smile_point)
            sizes = _FINER * self.num_spots, _FINER * self.num_steps
            return lognormal_barrier_value(product, model, *sizes, self._schedule(1))
        if isinstance(product, SingleBarrier):
            return self._barrier(product, model)
        return self._exercised(self.canonical(product), model)

    def _exercised(self, right: Any, model: Any) -> Scalar:
        sizes = self.num_spots, self.num_variances, self.num_steps
        return exercise_value(right, model, sizes, self._schedule(2))

    def _with_dividends(self, product: Any, model: WithDividends) -> Scalar:
        sizes = _FINER * self.num_spots, _FINER * self.num_steps
        if isinstance(product, SingleBarrier):
            return dividend_grid.barrier_value(product, model, sizes, self._schedule(1))
        if isinstance(product, TerminalClaim):
            return dividend_grid.claim_value(product.canonical, model, sizes, self._schedule(1))
        right: Any = self.canonical(product)
        if isinstance(model.base, StochasticVariance):
            return self._exercised(right, model)
        return dividend_grid.exercise_value(right, model, sizes, self._schedule(1))

    def _schedule(self, dimensions: int) -> AbstractSchedule:
        return self.schedule or (StoreAll() if dimensions == 1 else Revolve(40))

    # --- continuous barriers ----------------------------------------------------------------------------

    def _barrier(self, product: SingleBarrier, model: Any) -> Scalar:
        if product.cash is None:
            vanilla = Fourier().samples(product.vanilla, model)
        else:
            vanilla = product.cash * model.discount(product.expiry)
        living = product.barrier_direction
        alive = living * (model.spot - product.barrier) > 0.0
        spot = jnp.where(alive, model.spot, product.barrier * (1.0 + 0.1 * living))
        inside = eqx.tree_at(lambda m: m.spot, model, spot)
        solution = self._inside(product, inside)
        living_value = jnp.where(product.knocks_in, vanilla + solution, solution)
        touched_value = jnp.where(product.knocks_in, vanilla, product.rebate)
        return jnp.where(alive, living_value, touched_value)

    def _inside(self, product: SingleBarrier, model: StochasticVariance) -> Scalar:
        """Return the solution inside the region at today's spot and variance."""
        side = product.barrier_direction
        distance = side * jnp.log(model.spot / product.barrier)
        y = _distances(self.num_spots, product, model, distance)
        v = variance_grid(self.num_variances, model, product.expiry)
        u = _terminal(product, y)[:, None] * jnp.ones_like(v)[None, :]
        rates = mean_rates(model, product.expiry)
        operator = Operator.of(model, rates, side, y, v, (y[0] <= 0.0).astype(y.dtype))
        length, shares = time_shares(self.num_steps)
        stepper = operator.stepper(product.expiry * length)
        times = product.expiry * (1.0 - jnp.asarray(shares, u.dtype))
        excess = excess_rates(forward_rates(model, times), rates)
        is_first = jnp.arange(self.num_steps) == 0
        step = lambda u, x: (stepper.step(u, x[0], is_first=x[1]), None)
        u, _ = jaxtape.scan(step, u, (excess, is_first), schedule=self._schedule(2))
        return read_off(u, y, v, distance, model)


@jaxtape.no_inline(static_argnames="nodes")
def _distances(
    nodes: int, product: SingleBarrier, model: StochasticVariance, distance: Scalar
) -> Array:
    """Return nodes up to a negligible region, finest at the barrier, or at the spot if that is far away.

    The first node is the barrier, at 0, unless it is out of reach.
    """
    std = jax.lax.stop_gradient(jnp.sqrt(model.total_variance(product.expiry)))
    distance = jax.lax.stop_gradient(distance)
    strike = product.barrier_direction * jnp.log(product.strike / product.barrier)
    reach = rounded(larger(distance, smaller(strike, distance + 5.0 * std)) + 5.0 * std)
    fine = rounded(0.5 * clipped(distance, 0.2 * std, std))
    near = sinh_grid(jnp.linspace(0.0, 1.0, nodes, dtype=reach.dtype), reach, fine)
    unit = rounded(0.5 * std)
    center, most = unit * jnp.round(distance / unit), 12.0 * unit
    below = smaller(center, most)
    shares = jnp.linspace(-1.0, 1.0, nodes, dtype=reach.dtype)
    around = center + sinh_grid(shares, jnp.where(shares < 0.0, below, most), unit)
    return jnp.where(distance > 4.0 * std, around.at[0].set(center - below), near)


@jaxtape.no_inline
def _terminal(product: SingleBarrier, y: Array) -> Array:
    """Return the payoff averaged over each node's cell; the rebate or 0 at a barrier node."""
    vanilla = averaged_payoff(product, y)
    payoff = jnp.where(product.knocks_in, product.rebate - vanilla, vanilla)
    touched = jnp.where(product.knocks_in, 0.0, product.rebate)
    return payoff.at[0].set(jnp.where(y[0] <= 0.0, touched, payoff[0]))
