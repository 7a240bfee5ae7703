"""Backward induction over dates by quadrature, for models with one Gaussian state."""

import math
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import AbstractSchedule, StoreAll, stored_jit

from ..formulas.terminal import smile_correction
from ..induction.american_dates import COARSEST, CROWDING, american_by_dates, american_dates
from ..induction.exercise import cash_flows, induction, nothing_later
from ..induction.knock_out import knock_out_induction, paid_always
from ..induction.layer import NODES_A_STD, STDS
from ..models import AbstractModel, BondState, GaussianState, LognormalSpots
from ..numerics.safe_math import nan_where
from ..products import (
    AbstractProduct,
    DiscreteBarrier,
    EarlyExercise,
    Exercisable,
    SwapOption,
)
from ..results import RESULTS
from .method import AbstractMethod, Tiling, at_least, missing_ability

_ROOM = 1.15  # margin over the nodes for equally spaced dates
_FEW_NODES = 128  # those of a dozen dates
_MOST_VARIANCE = 4.0  # above it, values at Chebyshev points lose too many digits


class Quadrature(AbstractMethod):
    """Early exercise and barriers on dates, to about ten digits, as a chain of Gaussian quadratures.

    Backward from the last date, V_k(x) = decision(x, E[V_{k+1}(x_{k+1}) | x_k = x]), with values divided by the
    numeraire. A value function is stored as weighted values at nodes, with panels split where the decision
    changes. The expectation is a sum of normal densities over the nodes (Nystrom's method), so nothing is
    interpolated and derivatives are as accurate as the value. A custom contract needs an `exercise_value` that
    is smooth in the state: it is evaluated at 40 Chebyshev points. The chain is a `jaxtape.Tape`
    (`pricing.induction.exercise`).

    Attributes:
        is_random: False.
        num_nodes: The number of nodes over 16 standard deviations of the state. A product needs 24 sqrt(v /
            dv), with v the state's variance at a date and dv the variance of the step to it; too few nodes are
            refused. None uses enough nodes for equally spaced dates.
        num_dates: The number of exercise dates of an American option, a multiple of 4. The value is
            extrapolated to continuous exercise, with an error of 1e-5 of the strike (see docs/accuracy.md for
            Greeks).
        schedule: The checkpointing schedule of the states at dates; work within a date is always recomputed.

    Raises:
        ValueError: num_nodes is below 1, or num_dates is not a multiple of 4.
    """

    is_random: ClassVar[bool] = False
    reads_exercise_value: ClassVar[bool] = True
    program_size: ClassVar[int] = 20

    num_nodes: int | None = eqx.field(static=True, default=None)
    num_dates: int = eqx.field(static=True, default=64)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    def __check_init__(self):
        at_least(1, self, "num_nodes")
        if self.num_dates < COARSEST or self.num_dates % COARSEST:
            raise ValueError(f"num_dates must be a multiple of {COARSEST}, got {self.num_dates}")

    def runs_briefly(self, products: AbstractProduct) -> bool:
        has_few = self.num_nodes is not None and self.num_nodes <= _FEW_NODES
        return has_few and not (isinstance(products, Exercisable) and products.any_time)

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        nodes = 300 if self.num_nodes is None else self.num_nodes
        # the nodes of one trade fill the vector units; the last tile is padded
        return Tiling(8 * (8 * nodes**2 + 128 * nodes), 16)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if isinstance(product, SwapOption):
            known = isinstance(model, BondState)
            return None if known else missing_ability("bonds in terms of one Gaussian state", model)
        if not isinstance(product.form, (EarlyExercise, DiscreteBarrier)):
            return missing_ability("right to exercise or barrier dates", product)
        known = isinstance(model, LognormalSpots) and not product.multi_asset
        return None if known else missing_ability("spot in terms of one Gaussian state", model)

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method with enough nodes for the closest dates of a batch."""
        del mesh
        if self.num_nodes is not None:
            return self

        most = max(32.0, float(_most_nodes_needed(self, _rounded_up(products), model)))
        halves = math.ceil(2.0 * math.log2(most / 32.0))  # few sizes, hence few programs
        return replace(self, num_nodes=math.ceil(32.0 * 2.0 ** (0.5 * halves)))

    def samples(
        self, product: Any, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        refused = self.result(product, model) != RESULTS.successful
        market = model
        product, model, dates, num_nodes = self._setting(product, model)
        if isinstance(product, DiscreteBarrier):
            tape, state = knock_out_induction(product, model, num_nodes, self.schedule)
            value = tape(state).value_today() + paid_always(product, model)
            value = value + smile_correction(product, market, model)
        elif product.any_time:
            value = american_by_dates(product, model, dates, num_nodes, self.schedule)
        else:
            flows = cash_flows(product, model)
            tape = induction(model, flows, num_nodes, self.schedule)
            value = tape(nothing_later(model, num_nodes)).value_today()
        return nan_where(refused, value)

    def result(self, product: Any, model: Any) -> RESULTS:
        falls = super().result(product, model)
        _, model, dates, num_nodes = self._setting(product, model)
        too_few = _nodes_needed(model, dates) > num_nodes
        near = RESULTS.where(too_few, RESULTS.too_few_nodes, RESULTS.successful)
        far = model.state_variance(dates[-1]) > _MOST_VARIANCE
        still = model.state_variance(dates[-1]) <= 0.0
        near = RESULTS.where(still, RESULTS.no_volatility, near)
        near = RESULTS.where(far, RESULTS.too_volatile, near)
        return RESULTS.where(falls == RESULTS.successful, near, falls)

    def _setting(self, product: Any, model: Any) -> tuple[Any, Any, Float[Array, " dates"], int]:
        """Return the product, the model for it, its dates and the number of nodes."""
        product = product.canonical
        dates, num_nodes = self.dates(product), self.num_nodes
        if num_nodes is None:
            ratio = math.sqrt(_most_equal_steps(product, dates.size))
            num_nodes = math.ceil(_ROOM * _needed(ratio))
        return (
            product,
            model.at_smile_point(product.smile_point).anchored(dates[-1]),
            dates,
            num_nodes,
        )

    def dates(self, product: Exercisable | DiscreteBarrier) -> Float[Array, " dates"]:
        """Return the decision dates in years, ascending."""
        if isinstance(product, DiscreteBarrier):
            return product.dates
        times = product.exercise_times()
        return american_dates(times[-1], self.num_dates) if product.any_time else times


def _most_equal_steps(product: Exercisable | DiscreteBarrier, num_dates: int) -> float:
    """Return the largest ratio of a date to the step before it, for typical dates."""
    crowded = isinstance(product, Exercisable) and product.any_time
    return num_dates / (CROWDING if crowded else 1)


@stored_jit(runs_briefly=True)
def _most_nodes_needed(method: Quadrature, products: Any, model: Any) -> Float[Array, ""]:
    """Return the largest number of nodes that a contract of a batch needs, at least that of equal steps.

    It therefore seldom changes as dates pass, which saves compilations.
    """

    def need(product):
        dates = method.dates(product)
        equal = _needed(math.sqrt(_most_equal_steps(product, dates.size)))
        found = _nodes_needed(model.at_smile_point(product.smile_point), dates)
        return jnp.maximum(found, jnp.asarray(equal, found.dtype))

    canonical = products.canonical.broadcast()
    for _ in canonical.batch_shape:
        need = jax.vmap(need)
    return jnp.max(need(canonical))


def _rounded_up(products: AbstractProduct) -> AbstractProduct:
    """Return the batch padded with its last row to a power of two of at least 128, for few programs."""
    products = products.broadcast()
    if not products.batch_shape:
        return products
    last = products.batch_shape[0] - 1
    rows = np.minimum(np.arange(1 << max(last.bit_length(), 7)), last)
    return jax.device_put(jax.tree.map(lambda column: np.asarray(column)[rows], products))


def _nodes_needed(model: GaussianState, dates: Float[Array, " dates"]) -> Float[Array, ""]:
    """Return the number of nodes that the narrowest step needs over the whole range of the state."""
    variance = model.state_variance(jax.lax.stop_gradient(dates))
    step = jnp.diff(variance)
    moves = (step > 0.0) & (jnp.diff(dates) > 0.0)  # a repeated date takes no step
    ratio = jnp.where(moves, variance[1:] / jnp.where(moves, step, 1.0), 1.0)
    return _needed(jnp.sqrt(jnp.max(ratio, initial=1.0)))


def _needed(ratio: Any) -> Any:
    """Return the number of nodes for a step with the state's standard deviation divided by `ratio`."""
    return NODES_A_STD * 2.0 * STDS * ratio
