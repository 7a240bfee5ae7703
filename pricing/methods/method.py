"""The abstract numerical method: whether it applies, and samples of the value."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from ..models import AbstractModel, LognormalSpots
from ..models.black_scholes import ForwardMoneyVols, ImpliedVols
from ..products import AbstractProduct, TerminalClaim
from ..results import RESULTS

SECOND_ORDER = frozenset({"gamma", "vanna", "volga"})


class Tiling(NamedTuple):
    """The division of a batch of trades into tiles, and of a tile into rows that are valued in turn.

    Attributes:
        trade_bytes: The peak bytes of memory of one trade, including its derivatives.
        trades: The number of trades that run best in parallel, in one row.
        rows: The largest number of rows of a tile. Rows share what their trades share; in the last tile, only
            rows with trades are valued.
    """

    trade_bytes: int = 2**14
    trades: int = 2048
    rows: int = 1


class AbstractMethod(eqx.Module):
    """A numerical method. `samples` is called only if `unsupported_reason` returns None.

    A method must define `unsupported_reason` and `samples`. The other members have defaults, which a method
    overrides if its contracts share values, if it has a grid, if it is fitted to a contract, or if its samples
    come in blocks of paths.

    Attributes:
        is_random: Whether `samples` needs a key.
        is_fitted: Whether `fitted` fits something to each contract.
        group_size: The number of contracts that share the values of `shared`, a power of two; None if they
            share none.
        program_size: The size of its programs relative to those of other methods. The largest programs of a
            book are compiled first.

    Examples:
        >>> from pricing import BlackScholes, European, LeastSquares
        >>> LeastSquares().unsupported_reason(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2))
        'Claim has no right to exercise early'
    """

    is_random: eqx.AbstractClassVar[bool]
    is_fitted: ClassVar[bool] = False
    group_size: ClassVar[int | None] = None
    program_size: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The name of the method in reports and errors."""
        return type(self).__name__

    def reads_dividends(self, model: AbstractModel) -> bool:
        """Return True if the method itself handles the dividends of such a model."""
        del model
        return False

    @abc.abstractmethod
    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        """Return the ability that the method needs and the pair lacks, in words; None if it applies."""

    @abc.abstractmethod
    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"] | Float[Array, ""]:
        """Return independent samples of today's value (currency); a scalar for a deterministic method.

        The derivative of a sample to any number of the product and the model is an unbiased sample of the
        derivative, and so are the second derivatives named by `second_order`.
        """

    def result(self, product: AbstractProduct, model: AbstractModel) -> RESULTS:
        """Return the run-time reason why the method fails for a contract; `samples` are then NaN."""
        return variance_result(product, model)

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        """Return the subset of gamma, vanna, volga that second derivatives of `samples` give without bias."""
        del product, model
        return SECOND_ORDER

    # --- batches of contracts ---------------------------------------------------------------------------

    def runs_briefly(self, products: AbstractProduct) -> bool:
        """Return True if a tile of such contracts takes milliseconds, less than to optimize its program."""
        del products
        return False

    def tiling(self, products: AbstractProduct) -> Tiling:
        """Return the memory of such a trade, the best number of trades in parallel, and the rows of a tile."""
        del products
        return Tiling()

    def canonical(self, product: AbstractProduct) -> AbstractProduct:
        """Return a contract, or a batch, in the form that `samples` takes, so that kinds share a program."""
        return product

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method prepared for a batch of contracts, for instance with a shared grid of dates."""
        del products, model, mesh
        return self

    def shared_key(
        self, product: AbstractProduct, model: AbstractModel
    ) -> tuple[Float[Array, ""], ...]:
        """Return the numbers on which the contracts of a group must agree."""
        del product, model
        return ()

    def shared(self, products: AbstractProduct, model: AbstractModel) -> tuple[PyTree, PyTree]:
        """Return the values shared by a group of [contracts]; they do not depend on the underlying.

        Returns:
            A pair: values to differentiate, and other values, such as nodes.
        """
        del products, model
        return None, None

    def samples_given(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        shared: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " samples"] | Float[Array, ""]:
        """Return `samples` of a contract, given the values that its group shares."""
        del shared
        return self.samples(product, model, key=key)

    def fitted(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Any:
        """Return the method fitted to a contract; the fit is fixed for similar ones and in derivatives."""
        del product, model, key
        return self

    # --- errors of a grid -------------------------------------------------------------------------------

    def coarser(self) -> "AbstractMethod | None":
        """Return the method with half its counts, to estimate the error; None if it has no grid."""
        return None

    def compared_with(self, model: AbstractModel) -> "tuple[AbstractMethod, ...]":
        """Return the grids that estimate the error together: it is the range of all their figures."""
        del model
        coarser = self.coarser()
        return () if coarser is None else (coarser,)

    def finer(self) -> "AbstractMethod":
        """Return the method with twice its counts."""
        return self

    def judged(self, product: AbstractProduct) -> AbstractProduct:
        """Return the contract whose figures set the scale for errors, by default the product itself.

        Contracts that add up to an exact value share it, so that both use the same grid.
        """
        return product

    # --- blocks of paths, each of which can be differentiated alone
    # -------------------------------------

    def setup(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> PyTree:
        """Return the values shared by all blocks of a contract, computed and differentiated once."""
        del product, model, key

    def paths(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        setup: PyTree,
        index: Integer[Array, ""],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[PyTree, PyTree]:
        """Return the values of a block shared by all contracts of a batch, computed from any of them.

        Returns:
            A pair: values to differentiate, and other values, such as random numbers.
        """
        del product, model, setup, key
        return None, index

    def block_samples(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        setup: PyTree,
        paths: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Any:
        """Return the samples of a block; by default a single block holds all samples."""
        del setup, paths
        return self.samples(product, model, key=key)

    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        """Return `function` of every block's index, stacked; blocks run one after another on each device."""
        return jax.tree.map(lambda x: x[None], function(jnp.zeros((), jnp.int32)))


def samples_by_blocks(
    method: AbstractMethod, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray | None
) -> Float[Array, " samples"]:
    """Return the samples of all blocks of a method; a reverse sweep recomputes each block."""
    setup = method.setup(product, model, key=key)

    @jax.checkpoint
    def of_block(index: Array) -> Array:
        paths = method.paths(product, model, setup, index, key=key)
        return method.block_samples(product, model, setup, paths, key=key)

    return method.over_blocks(of_block).ravel()


def variance_result(product: AbstractProduct, model: AbstractModel) -> RESULTS:
    """Return `falling_variance` if, under a surface, the total variance of a contract decreases in time."""
    read = model.at_smile_point(product.smile_point)
    of_path = product.smile_point is not None and not isinstance(product, TerminalClaim)
    if read is model or not isinstance(read, LognormalSpots) or not of_path:
        return RESULTS.successful
    assert product.smile_point is not None
    expiry, strike = product.smile_point
    quoted = jnp.isfinite(model.black_vol(expiry, strike))  # pyright: ignore[reportAttributeAccessIssue]
    falls = quoted & jnp.any(jnp.isnan(read.state_variance(expiry)))
    return RESULTS.where(falls, RESULTS.falling_variance, RESULTS.successful)


def has_law_of_its_own(product: AbstractProduct, model: AbstractModel) -> bool:
    """Return True if a contract has its own distribution of paths because it reads one vol of a surface.

    Under a surface, Black-Scholes reads the vols of a path at the contract's strike, and those of a basket's
    assets at their forwards. A payoff of one spot at one time is valued under the distribution implied by all
    strikes.
    """
    vol = getattr(model, "vol", None)
    if isinstance(vol, ForwardMoneyVols):
        return any(isinstance(asset.vol, ImpliedVols) for asset in vol.models)
    if not isinstance(vol, ImpliedVols):
        return False
    form = jax.eval_shape(lambda product: product.canonical, product)
    return not isinstance(form, TerminalClaim)


def at_least(least: int, method: AbstractMethod, *counts: str) -> None:
    """Check that counts of a method are large enough; None is not checked.

    Raises:
        ValueError: A count is below `least`.
    """
    for name in counts:
        count = getattr(method, name)
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def missing_ability(ability: str, owner: Any) -> str:
    """Return the sentence for an ability that a product or a model does not have.

    Args:
        ability: The missing ability, in words.
        owner: The product or model that lacks it.

    Returns:
        The sentence, as `unsupported_reason` returns it.

    Examples:
        >>> missing_ability("closed form", 1.0)
        'float has no closed form'
    """
    return f"{type(owner).__name__} has no {ability}"
