"""Monte Carlo: sample the variance path, and integrate the Gaussian remainder where possible."""

import functools
from collections.abc import Callable, Sequence
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
from ..formulas.terminal import smile_correction
from ..models import (
    AbstractModel,
    ConditionallyGaussian,
    LocalVolatility,
    LognormalSpots,
    LogSpotSteps,
)
from ..models.black_scholes import ImpliedVols
from ..products import AbstractProduct
from ..sampling import AbstractSampler, Noise, PseudoRandom
from ..sampling.time_grid import between, grid_through, refined
from .method import AbstractMethod, Tiling, at_least, missing_ability, samples_by_blocks

Dates = Float[Array, " dates"]

_PATHS = "paths"


class MonteCarlo(AbstractMethod):
    """Sample means over `num_paths` paths of about `num_steps` steps from today to expiry.

    Steps end on the dates on which the product reads the spot. If the variance is random, there are additional
    steps between them, about `num_steps` in total. The estimators (`pricing/estimators`, table in
    docs/pricing.md) turn payoffs into samples with unbiased derivatives.

    Attributes:
        is_random: True.
        num_paths: The number of paths, rounded up to whole blocks.
        num_steps: The number of steps, at least 1.
        block: The number of paths of a block, whose random numbers depend only on the key and its index.
        sampler: `PseudoRandom()`, `PseudoRandom(antithetic=True)`, or `Sobol()`, which sets its own blocks.
        control_variate: Whether to use the control variate, if there is one.
        schedule: The checkpointing schedule of the time loop (`jaxtape.scan`).
        mesh: Devices that share the blocks (axis "paths"); None for one device.
        grid: Times in years that include all dates of all contracts of a batch, so that they share variance
            paths (`prepared`); None if each contract has its own.

    Raises:
        ValueError: A count is below 1.
    """

    is_random: ClassVar[bool] = True
    program_size: ClassVar[int] = 10

    num_paths: int = eqx.field(static=True, default=65536)
    num_steps: int = eqx.field(static=True, default=64)
    block: int = eqx.field(static=True, default=4096)
    sampler: AbstractSampler = eqx.field(static=True, default=PseudoRandom())
    control_variate: bool = eqx.field(static=True, default=True)
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())
    mesh: Mesh | None = eqx.field(static=True, default=None)
    grid: Float[Array, " steps"] | None = eqx.field(default=None, metadata={"time": True})

    def __check_init__(self):
        at_least(1, self, "num_paths", "num_steps", "block")

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        trade_bytes = 64 * 8 * self.num_steps * paths
        return Tiling(trade_bytes, 16) if self.grid is None else Tiling(trade_bytes, 4, rows=16)

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method with a grid of all dates of the batch and steps <= last date / num_steps."""
        if mesh is not None and _PATHS in mesh.axis_names:
            return replace(self, mesh=mesh).prepared(products, model)
        return self.on_dates_of((products,), model)

    def on_dates_of(self, batches: Sequence[AbstractProduct], model: AbstractModel) -> "MonteCarlo":
        """Return the method with one grid for several batches, which then share variance paths.

        The method is unchanged if a batch does not declare its dates, or if paths depend on the contract.
        """
        shares = (  # if only the last step is integrated, each contract needs its own grid
            isinstance(model, ConditionallyGaussian)
            and not isinstance(model, LognormalSpots | LocalVolatility)
            and type(model).at_smile_point
            is AbstractModel.at_smile_point  # the same model for every contract
        )
        found = [self._declared_dates(products) for products in batches]
        dates = [each for each in found if each is not None]
        if not shares or len(dates) < len(found):
            return self
        return replace(self, grid=grid_through(np.concatenate(dates), self.num_steps))

    def _declared_dates(self, products: AbstractProduct) -> np.ndarray | None:
        """Return all dates of a batch as one row, or None if they depend on num_steps."""
        canonical = products.broadcast().canonical
        estimator = _estimator(canonical)
        if estimator is None or not estimator.dates_are_declared:
            return None
        dates_of = functools.partial(estimator.dates, num_steps=self.num_steps)
        for _ in canonical.batch_shape:
            dates_of = jax.vmap(dates_of)
        return np.asarray(dates_of(canonical)).ravel()

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not isinstance(model, ConditionallyGaussian):
            return missing_ability("Gaussian log-spot given its variance path", model)
        estimator = _estimator(product.form)
        if estimator is None:
            return missing_ability("payoff of a spot path", product)
        reads_a_surface = isinstance(getattr(model, "vol", None), ImpliedVols)
        strike = lambda product: product.broadcast().canonical.smile_point
        if reads_a_surface and jax.eval_shape(strike, product) is None:
            return missing_ability("one law for all strikes (as Heston and LocalVol have)", model)
        if isinstance(model, LocalVolatility) and not estimator.last_step_is_enough(product):
            return missing_ability(
                "Gaussian steps to the dates of this product, given all noise", model
            )
        return None

    def second_order(
        self, product: AbstractProduct, model: ConditionallyGaussian
    ) -> frozenset[str]:
        estimator = _estimator(product.form)
        return frozenset() if estimator is None else estimator.second_order(model)

    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"]:
        return samples_by_blocks(self, product, model, key)

    def setup(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        *,
        key: PRNGKeyArray | None = None,
    ) -> AbstractEstimator:
        """Return the estimator of the product, with its control variate.

        Raises:
            TypeError: No estimator applies.
        """
        del key
        product = product.canonical
        model = model.at_smile_point(product.smile_point)
        estimator = _estimator(product)
        if estimator is None:
            raise TypeError(missing_ability("payoff of a spot path", product))
        return (
            estimator.controlled(product, model, self.num_steps)
            if self.control_variate
            else estimator
        )

    def paths(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        setup: AbstractEstimator,
        index: Integer[Array, ""],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[LogSpotSteps | None, Noise]:
        """Return the walk on the grid (if the batch has a grid) and the noise of a block."""
        assert key is not None  # checked by `select_method`
        product = product.canonical
        dates = setup.dates(product, self.num_steps)
        needs = setup.needs(product, model, dates.size)
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        num_steps = self._substeps(model, dates) * dates.size
        walks = (num_steps if self.grid is None else self.grid.size, *model.underlying.shape)
        is_random = not isinstance(model, LognormalSpots)
        streams = (walks if is_random else (0,), needs.normals)
        noise = self.sampler.noise(key, index, paths, streams, needs.uniforms, dates.dtype)
        if not is_random:
            still = jnp.zeros((*walks, paths), dates.dtype)
            noise = noise._replace(normals=(still, noise.normals[1]))
        if self.grid is None:
            return None, noise
        return model.walk(noise.normals[0], self.grid, self.schedule), noise

    def block_samples(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        setup: AbstractEstimator,
        paths: tuple[LogSpotSteps | None, Noise],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " samples"]:
        del key
        product, market = product.canonical, model
        model = model.at_smile_point(product.smile_point)
        values = setup.values(product, model, self.draw(product, model, setup, paths))
        chex.assert_shape(values, paths[1].normals[0].shape[-1:])
        values = values + smile_correction(product, market, model)
        return self.sampler.reduce(values)

    def draw(
        self,
        product: AbstractProduct,
        model: ConditionallyGaussian,
        setup: AbstractEstimator,
        paths: tuple[LogSpotSteps | None, Noise],
    ) -> Draw:
        """Return, for a block of `paths`, the steps between the dates of an estimator, and its noise."""
        on_grid, noise = paths
        dates = setup.dates(product, self.num_steps)
        if self.grid is None or on_grid is None:
            walk = self._walk(model, dates, noise)
        else:
            walk = jax.tree.map(functools.partial(between, self.grid, dates), on_grid)
        return Draw(walk, noise.normals[1], noise.uniforms)

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

    def _substeps(self, model: ConditionallyGaussian, dates: Dates) -> int:
        """Return the steps between two dates of a contract with its own grid; more for random variance."""
        return 1 if isinstance(model, LognormalSpots) else -(-self.num_steps // dates.size)

    def _walk(self, model: ConditionallyGaussian, dates: Dates, noise: Noise) -> LogSpotSteps:
        """Return the steps between the dates of one contract."""
        substeps = self._substeps(model, dates)
        times = refined(dates, substeps)
        return model.walk_by_substeps(noise.normals[0], times, self.schedule, substeps)


def _estimator(product: AbstractProduct) -> AbstractEstimator | None:
    """Return the estimator of a product in its canonical form, or None."""
    return next((found for found in ESTIMATORS if found.applies(product)), None)
