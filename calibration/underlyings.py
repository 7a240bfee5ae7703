"""What of a market a model is fitted to, and stands on: by the kind of the model."""

from typing import TypeVar

import equinox as eqx

from pricing.market import Market
from pricing.models import AbstractModel, AbstractRateModel

from .problem import Quotes

Model = TypeVar("Model", bound=AbstractModel)


def quotes_of(model: AbstractModel, market: Market) -> dict[str, Quotes]:
    """By underlying: of a model of rates the swaption vols, by the name of their curve; else every surface."""
    if isinstance(model, AbstractRateModel):
        vols = market.swaption_vols
        return {vols.curve: vols} if vols is not None and vols.curve in market.curves else {}
    return {name: equity.surface for name, equity in market.equities.items()}


def market_model(model: Model, market: Market, name: str) -> Model:
    """`model` on the curve `name`, or on the spot, curve and dividend yield of the equity `name`."""
    if isinstance(model, AbstractRateModel):
        return eqx.tree_at(lambda m: m.curve, model, market.curves[name])
    equity = market.equities[name]
    return eqx.tree_at(
        lambda m: (m.spot, m.rate, m.dividend_yield),
        model,
        (equity.spot, market.curves[equity.curve], equity.dividend_yield),
    )
