"""Monte Carlo: the variance path is sampled, what is Gaussian given it is integrated or bridged."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import AbstractSchedule, StoreAll

from ..models import AbstractModel, ConditionallyGaussian, Walk
from ..once import differentiable_once
from ..products import AbstractProduct, Barrier, TerminalClaim
from .black import exercise_probabilities
from .method import SECOND_ORDER, AbstractMethod, missing

Scalar = Float[Array, ""]

_CONDITIONED = 0.2  # share of a known variance that is integrated out instead of sampled
_WHY_ONCE = (
    "Monte Carlo samples of a barrier option have a kink where a path meets the barrier: their second "
    "derivative is wrong. Differentiate once, or take FiniteDifference() or ClosedForm() for Gamma."
)


class MonteCarlo(AbstractMethod):
    """Sample means over `num_paths` paths of `num_steps` equal steps from today to expiry.

    Terminal claims: given the variance path the spot is lognormal, and Black's formula is averaged (Willard
    1997; where the variance is not random, over the first 80 % of it). So samples are smooth in the spot, and
    gamma and vanna are means of their derivatives; volga is not where the variance is random.

    Barriers: the chance that the bridge between two dates touches the barrier is known, so samples are
    continuous in the spot, with kinks: they may be differentiated once, and a second derivative raises. The
    rebate of a knock-out is paid at the end of the step.

    num_paths is rounded up to whole blocks of `block` paths; a block's random numbers depend on the key and
    its index alone. schedule: what a reverse sweep keeps of the time loop (`jaxtape.scan`).
    """

    num_paths: int = eqx.field(static=True, default=65536)
    num_steps: int = eqx.field(static=True, default=64)
    block: int = eqx.field(static=True, default=4096)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    def __check_init__(self):
        for name in ("num_paths", "num_steps", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def is_random(self) -> bool:
        return True

    @property
    def trade_bytes(self) -> int:
        return 64 * 8 * self.num_steps * min(self.block, self.num_paths)

    @property
    def trades_a_tile(self) -> int:
        return 1

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not isinstance(model, ConditionallyGaussian):
            return missing("Gaussian log-spot given its variance path", model)
        if not isinstance(product, (TerminalClaim, Barrier)):
            return missing("payoff of a spot path", product)
        return None

    def second_order(
        self, product: TerminalClaim | Barrier, model: ConditionallyGaussian
    ) -> frozenset[str]:
        if not isinstance(product, TerminalClaim):
            return frozenset()
        return SECOND_ORDER - {"volga"} if model.variance_is_random else SECOND_ORDER

    def samples(
        self,
        product: TerminalClaim | Barrier,
        model: ConditionallyGaussian,
        key: PRNGKeyArray,
    ) -> Float[Array, " samples"]:
        barrier_values = differentiable_once(_barrier_values, _WHY_ONCE)

        @jax.checkpoint
        def of_block(index):
            paths = _Paths(self, jax.random.fold_in(key, index))
            if isinstance(product, TerminalClaim):
                return _terminal_values(product, model, paths)
            return barrier_values(product, model, paths)

        blocks = -(-self.num_paths // self.block)
        return jax.lax.map(of_block, jnp.arange(blocks)).ravel()


class _Paths(eqx.Module):
    """The random numbers of one block of paths."""

    method: MonteCarlo
    key: PRNGKeyArray

    def normals(self, stream: int, dtype, steps: int | None = None) -> Float[Array, "..."]:
        """[steps, paths] standard normals (or [paths]), independent for each stream."""
        shape = (self.method.block,) if steps is None else (steps, self.method.block)
        return jax.random.normal(jax.random.fold_in(self.key, stream), shape, dtype)

    def walk(
        self, product: TerminalClaim | Barrier, model: ConditionallyGaussian
    ) -> tuple[Walk, Scalar]:
        """The steps of log(S / forward), and their length."""
        steps = self.method.num_steps
        dt = product.expiry / steps
        noise = self.normals(0, dt.dtype, steps)
        return model.walk(noise, dt, product.strike, self.method.schedule), dt


def _terminal_values(
    product: TerminalClaim, model: ConditionallyGaussian, paths: _Paths
) -> Float[Array, " paths"]:
    """Discounted claims given the variance path, or given most of the spot's where that is known."""
    walk, _ = paths.walk(product, model)
    mean, variance = jnp.sum(walk.mean, axis=0), jnp.sum(walk.variance, axis=0)
    if not model.variance_is_random:
        sampled = (1.0 - _CONDITIONED) * variance
        mean = mean + jnp.sqrt(sampled) * paths.normals(1, mean.dtype)
        variance = _CONDITIONED * variance
    forward = model.forward(product.expiry) * jnp.exp(mean + 0.5 * variance)
    std = jnp.sqrt(variance)
    share, cash = exercise_probabilities(forward, product.strike, std, product.side)
    asset_units, cash_units = product.units
    return model.discount(product.expiry) * (asset_units * forward * share + cash_units * cash)


def _barrier_values(
    product: Barrier, model: ConditionallyGaussian, paths: _Paths
) -> Float[Array, " paths"]:
    """Discounted barrier options, the chance of a touch between two dates taken from the Brownian bridge.

    P(touch | x, x') = exp(-2 (x - b)(x' - b) / variance) on the living side
    (Glasserman 2003, eq. 6.50).
    """
    walk, dt = paths.walk(product, model)
    shocks = paths.normals(1, dt.dtype, walk.mean.shape[0])
    times = dt * jnp.arange(1, walk.mean.shape[0] + 1, dtype=dt.dtype)
    log_forward = jnp.log(jax.vmap(model.forward)(times) / product.barrier)
    position = (
        jnp.cumsum(walk.mean + _safe_sqrt(walk.variance) * shocks, axis=0) + log_forward[:, None]
    )

    living = product.living_side
    start = living * jnp.log(model.spot / product.barrier)
    distance = jnp.maximum(living * position, 0.0)
    before = jnp.concatenate(
        [jnp.full_like(distance[:1], jnp.maximum(start, 0.0)), distance[:-1]], axis=0
    )
    moves = walk.bridge_variance > 0.0
    safe = jnp.where(moves, walk.bridge_variance, 1.0)
    bridge = jnp.exp(-2.0 * before * distance / safe)
    at_once = (distance <= 0.0).astype(distance.dtype)
    touch = jnp.where(moves, bridge, at_once)
    survival = jnp.cumprod(1.0 - touch, axis=0)

    terminal = product.barrier * jnp.exp(position[-1])
    payoff = jnp.maximum(product.side * (terminal - product.strike), 0.0)
    discounts = jax.vmap(model.discount)(times)
    alive = survival[-1]
    earlier = jnp.concatenate([jnp.ones_like(survival[:1]), survival[:-1]], axis=0)
    rebate_at_hit = product.rebate * (discounts @ (earlier - survival))
    knocked_out = discounts[-1] * payoff * alive + rebate_at_hit
    knocked_in = discounts[-1] * (payoff * (1.0 - alive) + product.rebate * alive)
    return jnp.where(product.knocks_in, knocked_in, knocked_out)


def _safe_sqrt(x: Array) -> Array:
    """sqrt(x) with derivative 0 at 0."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)
