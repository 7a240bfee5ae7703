"""Totals of the trades in each currency, and of all trades in one currency."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..fields import as_real
from ..market import FxPair, Market, MissingRate
from ..market.fx import fx_rate
from .batching import currency_of
from .sweep.fitted_models import FittedModels, Models
from .sweep.trade_risk import GroupRisk


@dataclass(frozen=True)
class CurrencyRisk:
    """The value of some trades in one currency, and its derivatives to the quotes of the market.

    Attributes:
        value: The sum of quantity times value over the trades that were valued, in the currency.
        sensitivities: Quote id -> derivative of `value` per 1.00 of the quote.
        gradient: The derivative of `value` to every number of the market; None without `greeks`.
        parts: Part of the book (`RiskEngine`) -> its own `gradient`; they add up to the whole. Empty without
            `greeks`.
    """

    value: float
    sensitivities: dict[str, float] = field(default_factory=dict)
    gradient: Market | None = None
    parts: Mapping[str, Market] = field(default_factory=dict)


class Total(NamedTuple):
    """The value of all trades in one currency, or NaN.

    currency: its ISO code, or "". rates: ISO code of a trade's currency -> units of `currency` for one unit.
    note: the reason why there is no total, or "".
    """

    risk: CurrencyRisk
    currency: str
    rates: dict[str, float]
    note: str = ""


def by_currency(
    found: Sequence[GroupRisk],
    market: Market,
    fitted: FittedModels,
    cotangents: Mapping[str, Models],
) -> dict[str, CurrencyRisk]:
    """Return the value of the trades in each currency, and its derivatives.

    cotangents: part of the book -> the derivative of each model's trades to its parameters. The trades of a
        model have one currency.
    """
    groups: dict[str, list[GroupRisk]] = {}
    for risk in found:
        if risk.is_finite.any():
            groups.setdefault(currency_of(risk.group.trades[0], market), []).append(risk)
    of_models = {risk.group.model_names: name for name, own in groups.items() for risk in own}
    pullback, totals = fitted.pullback, {}
    for currency in groups or {market.currency: []}:
        own = groups.get(currency, [])
        value = sum((risk.value for risk in own), 0.0)
        if pullback is None:
            totals[currency] = CurrencyRisk(value)
            continue
        is_other = lambda names, name=currency: len(groups) > 1 and of_models.get(names) != name
        in_use = dict.fromkeys(part for risk in own for part in risk.group.tile_parts)
        parts = {part: pullback(_without(cotangents[part], is_other))[0] for part in in_use or [""]}
        first, *others = parts.values()
        gradient = jax.tree.map(_sum, first, *others) if others else first
        totals[currency] = CurrencyRisk(value, market.by_quote(gradient), gradient, parts)
    return totals


def _without(cotangents: Models, is_other: Callable[[tuple[str, ...]], bool]) -> Models:
    """Return the cotangents, 0 for other models."""
    return {
        names: jax.tree.map(np.zeros_like, own) if is_other(names) else own
        for names, own in cotangents.items()
    }


def _sum(*leaves: Any) -> Any:
    """Return a sum on the host: on a device each shape would load a program."""
    return sum(map(np.asarray, leaves))


def total_of(parts: Mapping[str, CurrencyRisk], market: Market, currency: str | None) -> Total:
    """Return the total of the parts in one currency, and its derivatives, including those to FX rates.

    With the rate x_c of each currency and the value V_c of its trades, the total is the sum of x_c V_c, and
    its derivative the sum of x_c dV_c + V_c dx_c.

    Args:
        parts: ISO code -> the value of the trades in that currency.
        market: The market, whose FX pairs give the rates.
        currency: The currency of the total. None: the market's if FX rates convert all parts to it, else the
            parts' own if they have only one.

    Raises:
        MissingRate: A part cannot be converted to `currency`.
    """
    target = market.currency if currency is None else currency
    try:
        rates = {name: float(market.fx_rate(name, target)) for name in parts}
    except MissingRate as error:
        if currency is not None:
            raise
        if len(parts) > 1:
            nothing = CurrencyRisk(float("nan"))
            return Total(nothing, "", {}, f"the book has no total: {error}")
        ((target, part),) = parts.items()
        return Total(part, target, {target: 1.0})
    if list(rates) == [target]:
        return Total(parts[target], target, rates)
    return Total(_converted(parts, rates, market, target), target, rates)


def _converted(
    parts: Mapping[str, CurrencyRisk], rates: Mapping[str, float], market: Market, target: str
) -> CurrencyRisk:
    value = sum(rates[name] * part.value for name, part in parts.items())
    gradients = {name: part.gradient for name, part in parts.items()}
    if any(gradient is None for gradient in gradients.values()):
        return CurrencyRisk(value)

    # on the host: otherwise each shape would load a program
    scaled = [
        jax.tree.map(lambda x, r=rates[name]: r * np.asarray(x), own)
        for name, own in gradients.items()
    ]
    gradient = jax.tree.map(lambda *of_parts: sum(of_parts), *scaled)
    values = {name: as_real(part.value) for name, part in parts.items()}
    of_rates = jax.device_get(_to_rates(market.fx, values, target))
    of_fx = jax.tree.map(np.add, gradient.fx, of_rates)
    gradient = replace(jax.device_put(gradient), fx=jax.device_put(of_fx))
    return CurrencyRisk(value, market.by_quote(gradient), gradient)


@stored_jit(runs_briefly=True)
def _to_rates(
    pairs: dict[str, FxPair], values: dict[str, Float[Array, ""]], target: str
) -> dict[str, FxPair]:
    """Return the derivative of the total in one currency to the FX spots."""

    def total(pairs: dict[str, FxPair]) -> Any:
        return sum(value * fx_rate(pairs, name, target) for name, value in values.items())

    return jax.grad(total)(pairs)
