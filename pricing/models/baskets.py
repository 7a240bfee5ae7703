"""Models of several assets, joined from models of one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxtyping import Array, Float

from ..market import Market
from .model import AbstractEquityModel, AbstractModel, Joinable

Fit = Callable[[Market], dict[str, Any]]


def joined(
    models: Sequence[AbstractEquityModel], correlation: Float[Array, "assets assets"]
) -> AbstractEquityModel:
    """Return one model of several assets from models of one asset each, all of one type, on one curve.

    Args:
        models: All of one type with the ability `Joinable`.
        correlation: What `joined` of that type asks for: of the log-spots under Black and Scholes,
            `asset_correlation` under Heston.

    Raises:
        TypeError: The models are of several types, or of a type that cannot be joined.
    """
    first, *others = {type(model): model for model in models}.values()
    if others or not isinstance(first, Joinable):
        names = ", ".join(sorted({type(model).__name__ for model in models}))
        raise TypeError(
            f"models of {names} cannot be joined: give models of one type that are Joinable, such as "
            "Heston or BlackScholes"
        )
    return type(first).joined(models, correlation)


def with_baskets(fit: Fit, underlyings: Iterable[str]) -> Fit:
    """Return a fit with one model more for each basket, such as "DAX|SX5E", among the underlyings of a book.

    A basket is left out if the fit has no model for one of its equities.
    """
    baskets = {name: name.split("|") for name in dict.fromkeys(underlyings) if "|" in name}

    def fitted(market: Market) -> dict[str, AbstractModel]:
        models = fit(market)
        known = {name: parts for name, parts in baskets.items() if set(parts) <= set(models)}
        of_baskets = {
            name: joined([models[part] for part in parts], market.correlation(parts))
            for name, parts in known.items()
        }
        return {**models, **of_baskets}

    return fitted
