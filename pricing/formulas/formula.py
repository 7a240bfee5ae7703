"""The closed form of one kind of product: the models for which it holds, and its value."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from ..models import AbstractModel, LognormalSpots
from ..models.black_scholes import ImpliedVols
from ..products import AbstractProduct


class Formula(NamedTuple):
    """The closed form of a kind of product.

    product: the class; missing: a function of (product, model) that returns the missing ability in words, or
        None if the formula holds; value: a function of (product, model), in currency.
    """

    product: type[AbstractProduct]
    missing: Callable[[Any, AbstractModel], str | None]
    value: Callable[[Any, Any], Float[Array, ""]]


def lacks_lognormal(model: AbstractModel, assets: int = 1) -> str | None:
    """Return in words what a model lacks for strike-independent lognormal spots; None if nothing."""
    if not isinstance(model, LognormalSpots):
        return "lognormal spots at all times"
    if isinstance(getattr(model, "vol", None), ImpliedVols):
        return "one law for all strikes"
    if model.underlying.size != assets:
        return f"{assets} asset{'s' if assets > 1 else ''}"
    return None


def lacks_constants(model: AbstractModel) -> str | None:
    """Return in words what a model lacks for lognormal spots with constant rate and vol, or None."""
    known = isinstance(model, LognormalSpots) and getattr(model, "is_constant", False)
    return None if known else "constant rate and volatility"
