"""Errors of simulated prices of any contracts, on paths that all contracts share."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

import jaxtape as jt
from pricing.fields import Converted
from pricing.market.interpolation import as_leaf
from pricing.methods import AbstractMethod, LeastSquares, MonteCarlo
from pricing.models import AbstractModel
from pricing.products import AbstractProduct
from pricing.valuation import unsupported_reason

from .objective import AbstractObjective

Prices = Float[Array, " quotes"]

_LEAST = 64  # paths in a block
_DATES = 50  # exercise dates of an American option, at most


class PriceQuotes(eqx.Module):
    """Quoted prices of contracts of any kind, such as barrier, Asian and American options.

    Mismatched shapes raise ValueError.

    Attributes:
        products: Batches of contracts, each of one kind and with one axis, in the order of the prices.
        prices: Prices in currency, of shape (quotes,).
        std_errors: Standard error of each price (half a bid-ask spread, or a simulation error), in currency,
            above 0, of shape (quotes,).

    Examples:
        >>> from calibration import PriceQuotes
        >>> from pricing import Asian, Barrier
        >>> barriers = Barrier([95.0, 105.0], 0.5, 80.0, dates=[0.25, 0.5])
        >>> PriceQuotes((barriers, Asian([100.0], [0.25, 0.5])), [8.9, 3.8, 4.4], [0.1, 0.1, 0.1]).prices.size
        3
    """

    products: Converted[tuple[AbstractProduct, ...]] = eqx.field(converter=lambda x: _broadcast(x))
    prices: Converted[Prices] = eqx.field(converter=as_leaf)
    std_errors: Converted[Prices] = eqx.field(converter=as_leaf)

    def __check_init__(self):
        shapes = [batch.batch_shape for batch in self.products]
        count = sum(int(np.prod(shape)) for shape in shapes)
        wanted = (count,)
        fits = self.prices.shape == self.std_errors.shape == wanted
        if not fits or any(len(shape) != 1 for shape in shapes):
            raise ValueError(
                f"products of batch shapes {shapes} have prices of shape {self.prices.shape} and std_errors "
                f"of shape {self.std_errors.shape}: give batches with one axis, and both arrays "
                f"with shape {wanted}"
            )


def _broadcast(products: Sequence[AbstractProduct]) -> tuple[AbstractProduct, ...]:
    return tuple(batch.broadcast() for batch in products)


class SimulatedPriceError(AbstractObjective):
    """Simulated price less quote, in standard errors of the quote; the loss is half a chi squared.

    A fixed key makes the loss a deterministic function of the model, continuous where the scheme is (QE-M, with
    barriers and averages integrated over Gaussian laws), so that any optimizer finds its minimum. Paths come in
    blocks, and a gradient holds one block at a time. All contracts that `MonteCarlo` values on their own dates
    share the variance paths. Build it with `for_quotes`.

    Attributes:
        methods: One for each batch of products, all with the same number of blocks of paths.
        key: Key of the paths.

    Examples:
        >>> import jax
        >>> from calibration import PriceQuotes, SimulatedPriceError
        >>> from pricing import Asian, Heston
        >>> quotes = PriceQuotes((Asian([100.0], [0.25, 0.5]),), [4.4], [0.1])
        >>> heston = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> error = SimulatedPriceError.for_quotes(quotes, heston, 1024, 16, key=jax.random.key(0))
        >>> error.residuals(heston, quotes).shape
        (1,)
    """

    methods: tuple[AbstractMethod, ...]
    key: PRNGKeyArray

    @classmethod
    def for_quotes(
        cls,
        quotes: PriceQuotes,
        model: AbstractModel,
        num_paths: int = 65536,
        num_steps: int = 256,
        *,
        key: PRNGKeyArray,
        budget: int = 2**28,
        schedule: jt.AbstractSchedule | None = None,
    ) -> "SimulatedPriceError":
        """Return the objective for these quotes, with `num_paths` paths and `num_steps` steps.

        TypeError is raised for a product that neither `MonteCarlo` nor `LeastSquares` can value under the
        model, ValueError for a budget that does not hold a block of 64 paths.

        Args:
            quotes: The quotes to fit; the dates of all contracts form one grid.
            model: The model from which a fit starts. Exercise policies are fitted under it, and then held
                fixed: refit from the result until it no longer changes.
            num_paths: Number of paths.
            num_steps: Number of steps to the last date.
            key: Key of the paths.
            budget: Maximum bytes of a gradient's temporaries; blocks of paths are as large as fits.
            schedule: Checkpoint schedule of the reverse sweep over a block's steps; the default stores all.

        Returns:
            The objective.

        """
        schedule = jt.StoreAll() if schedule is None else schedule
        common: dict[str, Any] = {"block": _LEAST, "schedule": schedule}
        plain = MonteCarlo(num_paths, num_steps, **common)
        simulated = [
            batch for batch in quotes.products if unsupported_reason(batch, model, plain) is None
        ]
        plain = plain.on_dates_of(simulated, model) if simulated else plain

        def method_of(batch: AbstractProduct) -> AbstractMethod:
            if (reason := unsupported_reason(batch, model, plain)) is None:
                return plain
            early = LeastSquares(num_paths, num_steps=min(num_steps, _DATES), **common)
            if (other := unsupported_reason(batch, model, early)) is None:
                return jax.vmap(lambda one: early.fitted(one, model, key=key))(batch)
            raise TypeError(
                f"MonteCarlo cannot price this: {reason}; LeastSquares neither: {other}. Give "
                f"quotes of a surface "
                "of implied vols to ImpliedVolError()"
            )

        error = cls(tuple(method_of(batch) for batch in quotes.products), key)
        return error.in_blocks_of(min(num_paths, error.paths_within(budget, model, quotes)))

    def in_blocks_of(self, block: int) -> "SimulatedPriceError":
        """Return the objective with `block` paths at a time."""
        return replace(self, methods=tuple(replace(by, block=block) for by in self.methods))

    def paths_within(self, budget: int, model: AbstractModel, quotes: PriceQuotes) -> int:
        """Return the number of paths, a power of two, for which a gradient needs at most `budget` bytes.

        Half of the bytes are for the states that the reverse sweep of a block keeps, counted from its trace.

        Raises:
            ValueError: If there are fewer than 64 paths.
        """

        def pullback(model: AbstractModel):
            few, first = self.in_blocks_of(_LEAST), jnp.zeros((), jnp.int32)
            samples = lambda m: few.block_samples(m, quotes, few.setups(m, quotes), first)
            return eqx.filter_vjp(samples, model)[1]

        kept = jax.tree.leaves(eqx.filter_eval_shape(pullback, model))
        arrays = [leaf for leaf in kept if isinstance(leaf, jax.ShapeDtypeStruct)]
        of_path = sum(leaf.size * leaf.dtype.itemsize for leaf in arrays) / _LEAST
        paths = int(budget / (2.0 * of_path))
        if paths < _LEAST:
            raise ValueError(
                f"budget: {budget:,} bytes hold {paths} paths of {of_path:,.0f} bytes: give "
                f"{2 * _LEAST * of_path:,.0f} or more, or a schedule that keeps less"
            )
        return 1 << (paths.bit_length() - 1)

    def quoted(self, quotes: PriceQuotes) -> Any:
        return quotes.prices

    def residuals(self, model: AbstractModel, quotes: PriceQuotes) -> Prices:
        samples = self._over_blocks(model, quotes, lambda x: jnp.mean(x, axis=1))
        return (jnp.mean(samples, axis=0) - quotes.prices) / quotes.std_errors

    def covariance(
        self, model: AbstractModel, quotes: PriceQuotes
    ) -> Float[Array, "quotes quotes"]:
        """Return the covariance of the residuals due to the paths, which all contracts share."""
        mean = self.residuals(model, quotes) * quotes.std_errors + quotes.prices

        def of_block(samples: Array) -> tuple[Array, Array]:
            apart = samples - mean[:, None]
            return apart @ apart.T, jnp.asarray(samples.shape[1], samples.dtype)

        squares, counts = self._over_blocks(model, quotes, of_block)
        count = jnp.sum(counts)
        scale = jnp.outer(quotes.std_errors, quotes.std_errors) * count * (count - 1.0)
        return jnp.sum(squares, axis=0) / scale

    def _over_blocks(self, model: AbstractModel, quotes: PriceQuotes, function):
        """Return `function` of the samples of every block, [quotes, samples], stacked."""
        setups = self.setups(model, quotes)
        of_block = jax.checkpoint(lambda i: function(self.block_samples(model, quotes, setups, i)))
        return self.methods[0].over_blocks(of_block)

    def setups(self, model: AbstractModel, quotes: PriceQuotes) -> list[PyTree]:
        """Return the values that all blocks share, for every batch of contracts."""
        of_one = lambda one, by: by.setup(one, model, key=self.key)
        pairs = zip(quotes.products, self.methods, strict=True)
        return [jax.vmap(of_one, (0, _axis(by)))(batch, by) for batch, by in pairs]

    def block_samples(
        self,
        model: AbstractModel,
        quotes: PriceQuotes,
        setups: list[PyTree],
        index: Integer[Array, ""],
    ) -> Float[Array, "quotes samples"]:
        """Return the discounted payoffs of the block of this index."""
        walk, samples = None, []
        for batch, by, setup in zip(quotes.products, self.methods, setups, strict=True):
            first, of_first = (jax.tree.map(lambda x: x[0], tree) for tree in (batch, setup))
            by_first = by if _axis(by) is None else jax.tree.map(lambda x: x[0], by)
            own, noise = by_first.paths(first, model, of_first, index, key=self.key)
            walk = own if walk is None else walk  # the same paths: computed for one batch only
            paths = own if own is None else walk, noise
            values = functools.partial(_samples, model, paths, self.key)
            samples.append(jax.vmap(values, (0, 0, _axis(by)))(batch, setup, by))
        return jnp.concatenate(samples)


def _axis(by: AbstractMethod) -> int | None:
    """Return the axis of a method's per-contract data in a batch."""
    return 0 if by.is_fitted else None


def _samples(model, paths, key, product: AbstractProduct, setup, by: AbstractMethod) -> Array:
    return by.block_samples(product, model, setup, paths, key=key)
