"""What every method is: it says what it needs, and turns a product and a model into samples of the value.

What only some methods do is an ability (`Tiled`, `Prepared`, `Fitted`). Beside it is a function that asks any
method for it, and knows what the others do instead.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..products import AbstractProduct

SECOND_ORDER = frozenset({"gamma", "vanna", "volga"})


class AbstractMethod(eqx.Module):
    """A numerical method. `lacks` is asked first; `samples` may then rely on the answer None."""

    is_random: eqx.AbstractClassVar[bool]
    """Whether `samples` needs a key."""

    @abc.abstractmethod
    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        """The ability this method needs and the pair does not have, in words; None if it applies."""

    @abc.abstractmethod
    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"] | Float[Array, ""]:
        """Independent samples of today's value (currency); a scalar from a deterministic method.

        The derivative of a sample in any number of the product and the model is a sample of the
        derivative, and so are the second derivatives that `second_order` names.
        """

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        """Which of gamma, vanna, volga the second derivatives of `samples` give without bias."""
        del product, model
        return SECOND_ORDER


class Tiling(NamedTuple):
    """How a batch of trades is cut into tiles that are valued one after the other.

    trade_bytes: of memory that one trade takes at most, its derivatives included; trades: how many run best
    side by side.
    """

    trade_bytes: int = 2**14
    trades: int = 256


class Tiled(AbstractMethod):
    """Ability: knows how its trades are cut into tiles."""

    @property
    @abc.abstractmethod
    def tiling(self) -> Tiling: ...


def tiling(method: AbstractMethod) -> Tiling:
    """How the method's trades are cut into tiles; a method that says nothing is taken for a formula."""
    return method.tiling if isinstance(method, Tiled) else Tiling()


class Prepared(AbstractMethod):
    """Ability: the contracts of a batch can share something."""

    @abc.abstractmethod
    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """The method for a batch of contracts, with what they can share, on the devices it may use."""


def prepared(
    method: AbstractMethod, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None
) -> AbstractMethod:
    """The method for a batch of contracts: the same where they can share nothing."""
    return method.prepared(products, model, mesh) if isinstance(method, Prepared) else method


class Fitted(AbstractMethod):
    """Ability: something is fitted to a contract before it is valued, part of no derivative."""

    @abc.abstractmethod
    def held(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Any:
        """The method with what it fits to a contract held: for others like it, and other markets near by."""


def held(
    method: AbstractMethod,
    product: AbstractProduct,
    model: AbstractModel,
    *,
    key: PRNGKeyArray | None = None,
) -> AbstractMethod:
    """The method with what it fits to a contract held: the same where it fits nothing."""
    return method.held(product, model, key=key) if isinstance(method, Fitted) else method


def at_least(least: int, method: AbstractMethod, *counts: str) -> None:
    """Raise `ValueError` for a count of the method that is below the least; None is left alone."""
    for name in counts:
        count = getattr(method, name)
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def missing(ability: str, owner: Any) -> str:
    """The sentence for an ability that `owner` does not have."""
    return f"{type(owner).__name__} has no {ability}"
