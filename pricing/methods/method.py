"""The abstract method: it names what it lacks, and turns a product and a model into samples of the value.

Optional features are abilities (`Tiled`, `Formed`, `Prepared`, `Refined`, `Shared`, `Fitted`, `Blocked`). Each
comes with a function that takes any method, and has a default for methods without the ability.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from ..models import AbstractModel, LognormalSpots
from ..products import AbstractProduct, TerminalClaim
from ..results import RESULTS

SECOND_ORDER = frozenset({"gamma", "vanna", "volga"})


class AbstractMethod(eqx.Module):
    """A numerical method: `lacks` is asked first, and `samples` may then rely on the answer None.

    Attributes:
        is_random: Whether `samples` needs a key.
        reads_exercise_value: Whether it reads `exercise_value` of rights to exercise. Another method takes
            their payoff from strike and side, and is not given those with a payoff of their own.

    Examples:
        >>> from pricing import BlackScholes, European, LeastSquares
        >>> LeastSquares().lacks(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2))
        'Claim has no right to exercise early'
    """

    is_random: eqx.AbstractClassVar[bool]
    reads_exercise_value: ClassVar[bool] = False

    @abc.abstractmethod
    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        """Return the ability this method needs and the pair does not have, in words; None if it applies."""

    @abc.abstractmethod
    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"] | Float[Array, ""]:
        """Return independent samples of today's value (currency); a scalar from a deterministic method.

        The derivative of a sample in any number of the product and the model is a sample of the
        derivative, and so are the second derivatives that `second_order` names.
        """

    def result(self, product: AbstractProduct, model: AbstractModel) -> RESULTS:
        """Return the run-time reason that the method fails for one contract; `samples` are then NaN."""
        return variance_result(product, model)

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        """Return those of gamma, vanna, volga that second derivatives of `samples` give without bias."""
        del product, model
        return SECOND_ORDER


class Tiling(NamedTuple):
    """The division of a batch of trades into tiles, and of a tile into rows, which are valued in turn.

    Attributes:
        trade_bytes: The most bytes of memory that one trade takes, including its derivatives.
        trades: The number of trades that run best side by side, in one row.
        rows: The most rows of a tile. Rows share what their trades share; of the last tile, only rows with
            trades are valued.

    Examples:
        >>> from pricing import FiniteDifference
        >>> FiniteDifference().tiling.trades
        4
    """

    trade_bytes: int = 2**14
    trades: int = 2048
    rows: int = 1


class Tiled(AbstractMethod):
    """Ability: the method knows how its trades are cut into tiles.

    Examples:
        >>> from pricing import ClosedForm, Fourier
        >>> [isinstance(method, Tiled) for method in (ClosedForm(), Fourier())]
        [False, True]
    """

    @property
    @abc.abstractmethod
    def tiling(self) -> Tiling:
        """The memory of a trade, the best number of trades side by side, and the rows that share a tile."""


def tiling(method: AbstractMethod) -> Tiling:
    """Return the tiling of the method's trades; a method without one is treated as a formula."""
    return method.tiling if isinstance(method, Tiled) else Tiling()


class Formed(AbstractMethod):
    """Ability: contracts of several kinds are valued in one form, so that one program serves them all.

    Examples:
        >>> from pricing import American, FiniteDifference
        >>> FiniteDifference().in_form(American(100.0, 1.0)).dates.tolist()
        [0.25, 0.5, 0.75, 1.0]
    """

    @abc.abstractmethod
    def in_form(self, product: AbstractProduct) -> AbstractProduct:
        """Return a contract, or a batch, in the form that `samples` values; it may already have that form."""


def in_form(method: AbstractMethod, products: AbstractProduct) -> AbstractProduct:
    """Return a batch of contracts in the method's form: the same where it has none."""
    return method.in_form(products) if isinstance(method, Formed) else products


class Prepared(AbstractMethod):
    """Ability: the contracts of a batch can share something, such as a grid of dates.

    Examples:
        >>> from pricing import MonteCarlo
        >>> isinstance(MonteCarlo(), Prepared)
        True
    """

    @abc.abstractmethod
    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """Return the method for a batch of contracts, with the values they can share, on its devices."""


def prepared(
    method: AbstractMethod, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None
) -> AbstractMethod:
    """Return the method for a batch of contracts: the same where they can share nothing."""
    return method.prepared(products, model, mesh) if isinstance(method, Prepared) else method


class Refined(AbstractMethod):
    """Ability: the same method on half its grid estimates the error, and on twice its grid reduces it.

    Examples:
        >>> from pricing import FiniteDifference
        >>> FiniteDifference().coarser().num_steps, FiniteDifference().finer().num_steps
        (20, 80)
    """

    @abc.abstractmethod
    def coarser(self) -> AbstractMethod:
        """Return the method with half its counts."""

    @abc.abstractmethod
    def finer(self) -> AbstractMethod:
        """Return the method with twice its counts."""

    def judged(self, product: AbstractProduct) -> AbstractProduct:
        """Return the contract beside whose figures an error is large or small, the product itself by default.

        Contracts that add up to an exact value have one in common, so that both have the same grid.
        """
        return product


class Shared(AbstractMethod):
    """Ability: contracts that are alike in some numbers share work, which is done once for a bunch of them.

    Attributes:
        bunch_size: The contracts of a bunch, a power of two.

    Examples:
        >>> from pricing import European, Fourier, Heston
        >>> model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> [float(x) for x in Fourier().alike(European(120.0, 0.5), model)]
        [0.5, -1.0]
    """

    bunch_size: ClassVar[int] = 8

    @abc.abstractmethod
    def alike(self, product: AbstractProduct, model: AbstractModel) -> tuple[Float[Array, ""], ...]:
        """Return the numbers in which contracts must agree to share."""

    @abc.abstractmethod
    def shared(self, products: AbstractProduct, model: AbstractModel) -> tuple[PyTree, PyTree]:
        """Return the values that alike contracts share, [contracts]; they do not depend on the underlying.

        Returns:
            A pair: values to differentiate, and others, such as nodes.
        """

    @abc.abstractmethod
    def samples_of(
        self, product: AbstractProduct, model: AbstractModel, shared: tuple[PyTree, PyTree]
    ) -> Float[Array, ""]:
        """Return `samples` of a contract, given its shared values."""

    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        alone = jax.tree.map(lambda x: jnp.asarray(x)[None], product)
        return self.samples_of(product, model, self.shared(alone, model))


def shared(
    method: AbstractMethod, products: AbstractProduct, model: AbstractModel
) -> tuple[PyTree, PyTree]:
    """Return the values that alike contracts share: (None, None) if the method shares nothing."""
    return method.shared(products, model) if isinstance(method, Shared) else (None, None)


def samples_of(
    method: AbstractMethod,
    product: AbstractProduct,
    model: AbstractModel,
    shared: tuple[PyTree, PyTree],
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " samples"] | Float[Array, ""]:
    """Return the method's samples of a contract, given the values that it shares with others."""
    if isinstance(method, Shared):
        return method.samples_of(product, model, shared)
    return method.samples(product, model, key=key)


def bunch_size(method: AbstractMethod, trades: int) -> int:
    """Return the number of a row's trades in a bunch: all if the method shares nothing."""
    return math.gcd(method.bunch_size, trades) if isinstance(method, Shared) else trades


class Fitted(AbstractMethod):
    """Ability: something is fitted to a contract before it is valued, and is part of no derivative.

    Examples:
        >>> from pricing import LeastSquares
        >>> isinstance(LeastSquares(), Fitted)
        True
    """

    @abc.abstractmethod
    def held(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Any:
        """Return the method with its fit to a contract held fixed: for others like it, and markets near by."""


def held(
    method: AbstractMethod,
    product: AbstractProduct,
    model: AbstractModel,
    *,
    key: PRNGKeyArray | None = None,
) -> AbstractMethod:
    """Return the method with its fit to a contract held fixed: the same method if it fits nothing."""
    return method.held(product, model, key=key) if isinstance(method, Fitted) else method


class Blocked(AbstractMethod):
    """Ability: samples come in blocks of paths, each of which can be differentiated while it is in work.

    Examples:
        >>> from pricing import LeastSquares, MonteCarlo
        >>> issubclass(LeastSquares, Blocked), issubclass(MonteCarlo, Blocked)
        (True, True)
    """

    @abc.abstractmethod
    def prologue(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> PyTree:
        """Return the values that all blocks of a contract share, computed once and differentiated."""

    def paths(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        prologue: PyTree,
        index: Integer[Array, ""],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[PyTree, PyTree]:
        """Return the values of one block that all contracts of a batch share, computed from any one of them.

        Returns:
            A pair: values to differentiate, and others, such as random numbers.
        """
        del product, model, prologue, key
        return None, index

    @abc.abstractmethod
    def block_samples(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        prologue: PyTree,
        paths: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " samples"]:
        """Return the samples of a block."""

    @abc.abstractmethod
    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        """Return `function` of the index of every block, stacked: one after the other on each device."""

    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"]:
        prologue = self.prologue(product, model, key=key)

        @jax.checkpoint
        def of_block(index: Array) -> Array:
            paths = self.paths(product, model, prologue, index, key=key)
            return self.block_samples(product, model, prologue, paths, key=key)

        return self.over_blocks(of_block).ravel()


class _OneBlock(Blocked):
    """A method that is not `Blocked`, its samples taken as one block."""

    is_random: ClassVar[bool] = True
    method: AbstractMethod

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        return self.method.lacks(product, model)

    def prologue(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> PyTree:
        del product, model, key

    def block_samples(self, product, model, prologue, paths, *, key=None) -> Array:
        del prologue, paths
        return self.method.samples(product, model, key=key)

    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        return jax.tree.map(lambda x: x[None], function(jnp.zeros((), jnp.int32)))


def blocked(method: AbstractMethod) -> Blocked:
    """Return the random method as one whose samples come in blocks: in one block if it is not `Blocked`."""
    return method if isinstance(method, Blocked) else _OneBlock(method)


def variance_result(product: AbstractProduct, model: AbstractModel) -> RESULTS:
    """Return `falling_variance` if, under a surface, the variance of a contract's paths falls in time."""
    read = model.read_at(product.vol_at)
    of_path = product.vol_at is not None and not isinstance(product, TerminalClaim)
    if read is model or not isinstance(read, LognormalSpots) or not of_path:
        return RESULTS.successful
    assert product.vol_at is not None
    expiry, strike = product.vol_at
    quoted = jnp.isfinite(model.black_vol(expiry, strike))  # pyright: ignore[reportAttributeAccessIssue]
    falls = quoted & jnp.any(jnp.isnan(read.state_variance(expiry)))
    return RESULTS.where(falls, RESULTS.falling_variance, RESULTS.successful)


def at_least(least: int, method: AbstractMethod, *counts: str) -> None:
    """Check counts of the method; None is left alone.

    Raises:
        ValueError: If one of them is below the least.
    """
    for name in counts:
        count = getattr(method, name)
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def missing(ability: str, owner: Any) -> str:
    """Return the sentence for an ability that a product or a model does not have.

    Args:
        ability: The missing ability, in words.
        owner: The product or model that lacks it.

    Returns:
        The sentence, as `lacks` returns it.

    Examples:
        >>> missing("closed form", 1.0)
        'float has no closed form'
    """
    return f"{type(owner).__name__} has no {ability}"
