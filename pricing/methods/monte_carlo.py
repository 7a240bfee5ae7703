"""Monte Carlo: the variance path is sampled, what is Gaussian given it is integrated as far as it goes."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from jaxtape import AbstractSchedule, StoreAll

from ..estimators import ESTIMATORS, AbstractEstimator, Draw
from ..models import AbstractModel, ConditionallyGaussian, LocalVolatility, LognormalSpots, Walk
from ..products import AbstractProduct
from ..sampling import AbstractSampler, PseudoRandom
from ..sampling.time_grid import between, grid_through, refined
from .method import Blocked, Prepared, Tiled, Tiling, at_least, missing

_PATHS = "paths"


class MonteCarlo(Tiled, Prepared, Blocked):
    """Sample means over `num_paths` paths of about `num_steps` steps from today to expiry.

    The steps end on the dates on which the product reads the spot, with as many between two dates as make
    up `num_steps`; where the variance is not random there are no others. How the payoff becomes samples
    whose derivatives are right is told by the estimators (`pricing/estimators`, table in docs/pricing.md).

    Attributes:
        is_random: True.
        num_paths: The number of paths, rounded up to whole blocks.
        num_steps: The number of steps, at least 1.
        block: The paths of a block, whose random numbers depend on the key and its index alone.
        sampler: `PseudoRandom()`, `PseudoRandom(antithetic=True)`, or `Sobol()`, which cuts its own blocks.
        control: Whether to take the control variate, if there is one.
        schedule: What a reverse sweep keeps of the time loop (`jaxtape.scan`).
        mesh: Devices that share the blocks (axis "paths"); None for one device.
        grid: Times in years that hold all dates of all contracts of a batch, so that they share one set of
            variance paths (`prepared`); None if each contract has its own.

    Raises:
        ValueError: If a count is below 1.

    Examples:
        >>> MonteCarlo(10_000, 12).tiling.trades
        64
    """

    is_random: ClassVar[bool] = True

    num_paths: int = eqx.field(static=True, default=65536)
    num_steps: int = eqx.field(static=True, default=64)
    block: int = eqx.field(static=True, default=4096)
    sampler: AbstractSampler = eqx.field(static=True, default=PseudoRandom())
    control: bool = eqx.field(static=True, default=True)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())
    mesh: Mesh | None = eqx.field(static=True, default=None)
    grid: Float[Array, " steps"] | None = eqx.field(default=None, metadata={"time": True})

    def __check_init__(self):
        at_least(1, self, "num_paths", "num_steps", "block")

    @property
    def tiling(self) -> Tiling:
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        return Tiling(64 * 8 * self.num_steps * paths, 64)

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method with a grid of all dates of the batch, no step above last date / num_steps."""
        if mesh is not None and _PATHS in mesh.axis_names:
            return replace(self, mesh=mesh).prepared(products, model)
        canonical = products.broadcast().canonical
        estimator = _estimator(canonical)
        shares = (  # where only the last step is open each contract needs its own
            isinstance(model, ConditionallyGaussian)
            and not isinstance(model, LognormalSpots | LocalVolatility)
        )
        if estimator is None or not (estimator.dates_are_declared and shares):
            return self
        dates_of = functools.partial(estimator.dates, num_steps=self.num_steps)
        for _ in canonical.batch_shape:
            dates_of = jax.vmap(dates_of)
        return replace(self, grid=grid_through(np.asarray(dates_of(canonical)), self.num_steps))

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not isinstance(model, ConditionallyGaussian):
            return missing("Gaussian log-spot given its variance path", model)
        estimator = _estimator(product.form)
        if estimator is None:
            return missing("payoff of a spot path", product)
        if isinstance(model, LocalVolatility) and not estimator.last_step_is_enough:
            return missing("Gaussian steps to the dates of this product, given all noise", model)
        return None

    def second_order(
        self, product: AbstractProduct, model: ConditionallyGaussian
    ) -> frozenset[str]:
        estimator = _estimator(product.form)
        return frozenset() if estimator is None else estimator.second_order(model)

    def prologue(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        *,
        key: PRNGKeyArray | None = None,
    ) -> AbstractEstimator:
        """Return what estimates the product, with its control variate.

        Raises:
            TypeError: If nothing estimates it.
        """
        del key
        product = product.canonical
        model = model.read_at(product.vol_at)
        estimator = _estimator(product)
        if estimator is None:
            raise TypeError(missing("payoff of a spot path", product))
        return estimator.controlled(product, model, self.num_steps) if self.control else estimator

    def block_samples(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        prologue: AbstractEstimator,
        index: Integer[Array, ""],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " samples"]:
        product = product.canonical
        model = model.read_at(product.vol_at)
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        draw = self._draw(prologue, product, model, key, index, paths)
        values = prologue.values(product, model, draw)
        chex.assert_shape(values, (paths,))
        return self.sampler.reduce(values)

    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        blocks = self.sampler.blocks(self.num_paths, self.block)[0]
        if self.mesh is None:
            return jax.lax.map(function, jnp.arange(blocks))
        devices = self.mesh.shape[_PATHS]
        index = jnp.arange(-(-blocks // devices) * devices).reshape(devices, -1)
        index = jax.lax.with_sharding_constraint(
            index, NamedSharding(self.mesh, PartitionSpec(_PATHS, None))
        )
        found = jax.vmap(lambda share: jax.lax.map(function, share))(index)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:blocks], found)

    def _draw(self, estimator: AbstractEstimator, product, model, key, index, paths: int) -> Draw:
        """Return the random numbers of one block."""
        dates = estimator.dates(product, self.num_steps)
        needs = estimator.needs(product, model, dates.size)
        is_random = not isinstance(model, LognormalSpots)
        substeps = -(-self.num_steps // dates.size) if is_random else 1
        num_steps = substeps * dates.size if self.grid is None else self.grid.size
        walks = (num_steps, *model.underlying.shape)
        streams = (walks if is_random else (0,), needs.normals)
        noise = self.sampler.noise(key, index, paths, streams, needs.uniforms, dates.dtype)
        of_variance, normals = noise.normals
        if not is_random:
            of_variance = jnp.zeros((*walks, paths), dates.dtype)

        def walk(model: ConditionallyGaussian, dates: Float[Array, " dates"]) -> Walk:
            if self.grid is not None:
                steps = model.walk(of_variance, self.grid, self.schedule)
                return jax.tree.map(functools.partial(between, self.grid, dates), steps)
            steps = model.walk(of_variance, refined(dates, substeps), self.schedule)
            joined = lambda x: jnp.sum(x.reshape(dates.size, substeps, *x.shape[1:]), axis=1)  # noqa: E731
            return jax.tree.map(joined, steps)

        return Draw(walk, normals, noise.uniforms)


def _estimator(product: AbstractProduct) -> AbstractEstimator | None:
    """Return what estimates a product in its canonical form, if anything does."""
    return next((found for found in ESTIMATORS if found.applies(product)), None)
