"""Continuously monitored barriers, by Brownian bridges between the steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian
from ..numerics.differentiable_once import differentiable_once
from ..numerics.safe_math import divisor, larger, safe_sqrt
from ..products import AbstractProduct, SingleBarrier
from .estimator import AbstractEstimator, Draw, Needs

_WHY_ONCE = (
    "Monte Carlo samples of a barrier option have a kink where a path meets the barrier: their second "
    "derivative is wrong. Differentiate once, or use FiniteDifference() or ClosedForm() for Gamma."
)


class BridgedBarrier(AbstractEstimator):
    """Between two dates, the probability that the Brownian bridge touches the barrier is known.

    P(touch | x, x') = exp(-2 (x - b)(x' - b) / variance) on the side that is alive (Glasserman 2003, eq. 6.50).
    Samples are continuous in the spot, with kinks: they may be differentiated once, and a second derivative
    raises. The rebate of a knock-out is paid at the end of the step.
    """

    @property
    def dates_are_declared(self) -> bool:
        return False

    def applies(self, product: AbstractProduct) -> bool:
        return isinstance(product, SingleBarrier) and product.monitoring_dates is None

    def last_step_is_enough(self, product: AbstractProduct) -> bool:
        del product
        return True

    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        del model
        return frozenset()

    def dates(self, product: SingleBarrier, num_steps: int) -> Float[Array, " dates"]:
        counts = jnp.arange(1, num_steps + 1, dtype=product.expiry.dtype)
        return product.expiry * (counts / num_steps)

    def needs(self, product: SingleBarrier, model: ConditionallyGaussian, num_dates: int) -> Needs:
        del product, model
        return Needs((num_dates,))

    def values(
        self, product: SingleBarrier, model: ConditionallyGaussian, draw: Draw
    ) -> Float[Array, " paths"]:
        times = self.dates(product, draw.normals.shape[0])
        walk = draw.walk
        return differentiable_once(_values, _WHY_ONCE)(product, model, walk, times, draw.normals)


def _values(product, model, walk, times, shocks) -> Float[Array, " paths"]:
    log_forward = jnp.log(jax.vmap(model.forward)(times) / product.barrier)
    steps = walk.mean + safe_sqrt(walk.variance) * shocks
    position = jnp.cumsum(steps, axis=0) + log_forward[:, None]

    living = product.barrier_direction
    start = living * jnp.log(model.spot / product.barrier)
    distance = larger(living * position, 0.0)
    before = jnp.concatenate(
        [jnp.full_like(distance[:1], larger(start, 0.0)), distance[:-1]], axis=0
    )
    moves = walk.bridge_variance > 0.0
    bridge = jnp.exp(-2.0 * before * distance / divisor(walk.bridge_variance))
    at_once = (distance <= 0.0).astype(distance.dtype)
    touch = jnp.where(moves, bridge, at_once)
    survival = jnp.cumprod(1.0 - touch, axis=0)

    if product.cash is None:
        terminal = product.barrier * jnp.exp(position[-1])
        payoff = larger(product.side * (terminal - product.strike), 0.0)
    else:
        payoff = jnp.broadcast_to(product.cash, position[-1].shape)
    discounts = jax.vmap(model.discount)(times)
    alive = survival[-1]
    earlier = jnp.concatenate([jnp.ones_like(survival[:1]), survival[:-1]], axis=0)
    rebate_at_hit = product.rebate * (discounts @ (earlier - survival))
    knocked_out = discounts[-1] * payoff * alive + rebate_at_hit
    knocked_in = discounts[-1] * (payoff * (1.0 - alive) + product.rebate * alive)
    return jnp.where(product.knocks_in, knocked_in, knocked_out)
