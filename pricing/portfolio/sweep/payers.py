"""Groups of trades that share programs with groups on equities that pay dividends.

An equity without dividends on known dates is one that pays nothing on those of another.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...methods.under_dividends import UnderDividends, for_model
from ...models import AbstractModel, WithDividends
from ...models.black_scholes import ImpliedVols
from .groups import TradeGroup


def among_payers(
    groups: Sequence[TradeGroup], models: Mapping[tuple[str, ...], AbstractModel]
) -> list[TradeGroup]:
    """Return the groups, those with a twin on a payer of dividends as groups on payers of nothing.

    Twins differ in their numbers only: contracts, methods and models have the same structures and shapes.
    Groups whose model reads a surface stay as they are: under dividends its vols are converted.
    """
    payers: dict[Hashable, WithDividends] = {}
    for group in groups:
        model, method = models[group.model_names], group.method
        if isinstance(model, WithDividends) and isinstance(method, UnderDividends):
            payers[_kind(group, method.method, model.base)] = model

    def of_payers(group: TradeGroup) -> TradeGroup:
        model = models[group.model_names]
        payer = payers.get(_kind(group, group.method, model))
        if payer is None or isinstance(getattr(model, "vol", None), ImpliedVols):
            return group
        return replace(group, method=for_model(group.method, payer), payer=payer)

    return [of_payers(group) for group in groups]


def paying_nothing(model: Any, payer: WithDividends) -> WithDividends:
    """Return a model, or a tangent, with zeros in place of the dividends of another."""
    nothing = jax.tree.map(jnp.zeros_like, payer.dividends)
    return eqx.tree_at(lambda m: (m.base, m.dividends), payer, (model, nothing))


def _kind(group: TradeGroup, method: Any, model: Any) -> Hashable:
    """Return the structures and shapes that identify the program of a group."""
    trees = group.products, method, model
    leaves, structure = jax.tree.flatten(trees)
    products = len(jax.tree.leaves(group.products))
    shapes = tuple(
        jnp.shape(leaf)[1:] if place < products else jnp.shape(leaf)
        for place, leaf in enumerate(leaves)
    )
    return structure, shapes, group.is_brief
