"""What every method is: it says what it needs, and turns a product and a model into samples of the value."""

import abc
from typing import Any

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..products import AbstractProduct

SECOND_ORDER = frozenset({"gamma", "vanna", "volga"})


class AbstractMethod(eqx.Module):
    """A numerical method. `lacks` is asked first; `samples` may then rely on the answer None."""

    @property
    @abc.abstractmethod
    def is_random(self) -> bool:
        """Whether `samples` needs a key."""

    @property
    @abc.abstractmethod
    def trade_bytes(self) -> int:
        """Bytes of memory that one trade of a batch takes at most, its derivatives included."""

    @property
    def trades_a_tile(self) -> int:
        """How many trades of a batch run best side by side."""
        return 256

    @abc.abstractmethod
    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        """The ability this method needs and the pair does not have, in words; None if it applies."""

    @abc.abstractmethod
    def samples(
        self, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray | None
    ) -> Float[Array, " samples"] | Float[Array, ""]:
        """Independent samples of today's value (currency); a scalar from a deterministic method.

        The derivative of a sample in any number of the product and the model is a sample of the
        derivative, and so are the second derivatives that `second_order` names.
        """

    def rolled(self, years: Float[Array, ""]) -> Any:
        """The method when `years` have passed: what it holds of dates moves with the contracts'."""
        del years
        return self

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> Any:
        """The method for a batch of contracts, with what they can share, on the devices it may use."""
        del products, model, mesh
        return self

    def held(self, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray | None) -> Any:
        """The method with what it fits to a contract held: for others like it, and other markets near by."""
        return self.holding(self.fitted(product, model, key))

    def fitted(
        self, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray | None
    ) -> Any:
        """What the method fits to a contract before it values it, part of no derivative; None if nothing."""
        del product, model, key
        return None

    def holding(self, fitted: Any) -> Any:
        """The method that takes this for what it would fit."""
        del fitted
        return self

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        """Which of gamma, vanna, volga the second derivatives of `samples` give without bias."""
        del product, model
        return SECOND_ORDER


def at_least(least: int, method: AbstractMethod, *counts: str) -> None:
    """Raise `ValueError` for a count of the method that is below the least; None is left alone."""
    for name in counts:
        count = getattr(method, name)
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def missing(ability: str, owner: Any) -> str:
    """The sentence for an ability that `owner` does not have."""
    return f"{type(owner).__name__} has no {ability}"
