"""The models that a fit returns for a market, and their derivatives to its quotes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxtape.jax_settings.single_on_devices import device_program

from ...market import Market
from ...market.caplet_vols import curve_of_caps
from ...models import AbstractModel, ForwardRates, RateCurves, WithDividends
from ...models.baskets import joined
from ...models.surface_models import of_surface
from ...results import RESULTS
from ..book import Book
from .equal_shapes import of_equal_shapes
from .groups import Tile, TradeGroup
from .payers import paying_nothing
from .tile_sweep import brief_tile_sweep, tile_sweep, tile_values

Fit = Callable[[Market], Mapping[str, AbstractModel]]
Models = dict[tuple[str, ...], AbstractModel]

BOOK = Book, "a Book, such as Book.read(path)"
MARKET = Market, "a Market, such as Market.read(path)"
FIT = Callable, "a function of a market that returns a model for each underlying"


class FittedModels(NamedTuple):
    """Models by underlyings: one name, or several for the joint model of a basket.

    The models are of equal shapes (`of_equal_shapes`); `as_fitted` holds them as the fit returned them. vol,
    rate: their tangents to a parallel move of all implied vols, or of all zero rates, per 1.00; pullback: from
    cotangents of the models to those of the market. All are None without derivatives.
    """

    models: Models
    as_fitted: Models
    vol: Models | None = None
    rate: Models | None = None
    pullback: Callable[[Models], tuple[Market]] | None = None

    def models_of(self, group: TradeGroup) -> tuple[Any, ...]:
        """Return the model of a group and its two tangents, which are None without derivatives."""
        trees = self.models, self.vol, self.rate
        return tuple(tree and tree[group.model_names] for tree in trees)

    def sweep(
        self, group: TradeGroup, tile: Tile, *, key: PRNGKeyArray, on_host: bool = False
    ) -> tuple[dict, dict, RESULTS, Any]:
        """Return the results of `tile_sweep` for a tile, or of `tile_values` without derivatives.

        on_host: Whether to compute in double precision on the host even if devices compute in single.
        """
        payer = group.payer
        of_group: list[Any] = [
            x if x is None or payer is None else paying_nothing(x, payer)
            for x in self.models_of(group)
        ]
        model, vol, rate = of_group
        of_tile = tile, model, group.method
        if self.pullback is None:
            found: Any = (tile_values if on_host else device_program(tile_values))(
                *of_tile, key=key
            )
        else:
            swept = brief_tile_sweep if group.is_brief else tile_sweep
            program = swept if on_host else device_program(swept)
            found = program(*of_tile, vol, rate, key=key)
        figures, errors, results, bar = found
        return figures, errors, results, bar if payer is None else bar.base


def fit_models(
    fit: Fit, market: Market, underlyings: Iterable[tuple[str, ...]], derivatives: bool
) -> FittedModels:
    """Return the models of a market, including joint models for baskets among the underlyings.

    The fit reads zero rates: curves of instruments are bootstrapped first.
    """
    fit_all = with_baskets(fit, underlyings)

    def fitted(market: Market) -> tuple[Models, Models]:
        models = fit_all(market)
        return of_equal_shapes(models), models

    if not derivatives:
        return FittedModels(*fitted(_in_zero_rates(market)))
    in_rates, to_rates = jax.linearize(_in_zero_rates, market)
    models, tangent, as_fitted = jax.linearize(fitted, in_rates, has_aux=True)
    vol, rate = tangent(_shift(in_rates, vol=1.0)), tangent(_shift(in_rates, rate=1.0))
    # a separate function: JAX inlines the function that it transposes
    pullback = jax.linear_transpose(lambda dot: tangent(to_rates(dot)), market)
    return FittedModels(models, as_fitted, vol, rate, pullback)


def with_baskets(fit: Fit, underlyings: Iterable[tuple[str, ...]]) -> Callable[[Market], Models]:
    """Return a fit that keys models by tuples of names, with an additional model for each basket.

    An equity in another currency (`Market.parts_of`) is modelled by Black-Scholes on its surface under every
    fit. A basket is left out if an equity has no model or pays dividends on known dates. A curve without a
    model, and a pair of a discount and a forward curve, become `RateCurves`; the names of caps (`caps_of`)
    become `ForwardRates` on the cap quotes.
    """
    names_in_use = tuple(dict.fromkeys(underlyings))

    def fitted(market: Market) -> Models:
        models: Mapping[str, Any] = fit(market)
        alone = (name for name, *more in names_in_use if not more)
        others = {n: of_surface(market, n) for n in alone if len(market.parts_of(n)) > 1}
        models = {**models, **others}
        of_caps = {n: curves for n in names_in_use if (curves := _curves_of_caps(n, market))}
        of_rates = [names for names in names_in_use if _are_curves(names, market)]
        used = (*of_caps, *of_rates)
        baskets = [names for names in names_in_use if len(names) > 1 and names not in used]
        is_known = lambda name: name in models and not isinstance(models[name], WithDividends)
        known = [each for each in baskets if all(map(is_known, each))]
        of_baskets = {
            names: joined([models[name] for name in names], market.correlation(names))
            for names in known
        }
        curves = {names: RateCurves(*map(market.curve, names)) for names in of_rates}
        caps = {names: ForwardRates.of_caps(market, own) for names, own in of_caps.items()}
        of_names = {(name,): model for name, model in models.items()}
        return {**curves, **caps, **of_names, **of_baskets}

    return fitted


def _curves_of_caps(names: tuple[str, ...], market: Market) -> tuple[str, ...] | None:
    """Return the curves of the names of caps that the market quotes; None for other names."""
    curve = curve_of_caps(names[-1])
    if curve is None or curve not in market.cap_vols or names[-1] in market.curves:
        return None
    return (*names[:-1], curve)


def _are_curves(names: tuple[str, ...], market: Market) -> bool:
    return all(name in market.curves and name not in market.underlyings for name in names)


def _in_zero_rates(market: Market) -> Market:
    """Return the market with its curves bootstrapped; equities on a curve that failed become NaN."""
    return market.bootstrapped(throw=False)


def _shift(market: Market, vol: float = 0.0, rate: float = 0.0) -> Market:
    """Return the tangent of a market to parallel moves of all implied vols and of all zero rates, per 1.00."""
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), market)
    swaptions = [] if market.swaption_vols is None else [lambda m: m.swaption_vols.vols]

    def vols(m: Market) -> list[Any]:  # leaves, or their replacements
        of_pairs = [pair.vols.at_the_money for pair in m.fx.values() if pair.vols is not None]
        of_equities = [e.surface.vols for e in m.equities.values()]
        of_caps = [caps.quotes for caps in m.cap_vols.values()]
        return [*of_equities, *of_pairs, *of_caps, *(vols(m) for vols in swaptions)]

    rates = lambda m: [curve.zero_rates for curve in m.curves.values()]
    quotes = lambda m: vols(m) + rates(m)
    shifted = [leaf + vol for leaf in vols(still)] + [leaf + rate for leaf in rates(still)]
    return eqx.tree_at(quotes, still, shifted)
