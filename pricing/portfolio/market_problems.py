"""The checks of a trade against a market: names, curves, correlations, units and currency."""

import functools
import math
import operator
from collections.abc import Hashable

from pricing.ingestion.errors import listed, show
from pricing.ingestion.field_types import closest
from pricing.ingestion.validation import ValidationIssue
from pricing.market import Market
from pricing.market.correlations import least_eigenvalue, missing_pairs, shown
from pricing.market.quote_bounds import far_from
from pricing.products.cap_trade import CapTrade
from pricing.products.trade import Trade

from .batching import currencies_in


class MarketProblems:
    """Checks trades against one market; what depends only on names and kind is computed once."""

    def __init__(self, market: Market):
        self.market = market
        self._spot = functools.cache(lambda name: float(market.spot(name)))
        self._currency_of = currencies_in(market)
        self._found: dict[Hashable, list[ValidationIssue]] = {}

    def __call__(self, trade: Trade) -> tuple[ValidationIssue, ...]:
        """Return the reasons why the market cannot value a trade, or would not value it as written."""
        names = trade.underlyings
        key = type(trade), trade.underlying, names
        if key not in self._found:
            self._found[key] = _of_names(trade, self.market)
        problems = [*self._found[key]]
        # past fixings reduce the strike of a started trade, so that it may be far from the spot
        if not problems and trade.is_row and not trade.in_rates:
            problems += _far_levels(trade, [self._spot(name) for name in names])
        if not problems and trade.currency is not None:
            problems += _other_currency(trade, trade.currency, self._currency_of(trade))
        return tuple(problems)


def _of_names(trade: Trade, market: Market) -> list[ValidationIssue]:
    """Return the problems that all trades of a kind on the same names have."""
    names = trade.underlyings
    problems = [issue for name in names for issue in _unknown(name, trade.in_rates, market)]
    if not problems and trade.in_rates:
        return _no_curves(trade, market) or _no_cap_vols(trade, market)
    if not problems and len(names) > 1:
        return _no_basket(trade, market)
    return problems


_PRICES = "initial_spot", "extreme"
_LEVELS = "barrier", "lower", "upper", "protection", "coupon_barrier", "knock_in"


@functools.cache
def _names_of(kind: type[Trade]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a kind of trade that are prices, and those that are levels."""
    fields = kind.model_fields  # Pydantic looks for a missing attribute in many places
    prices, levels = (tuple(n for n in names if n in fields) for names in (_PRICES, _LEVELS))
    return prices, levels


def _far_levels(trade: Trade, spots: list[float]) -> list[ValidationIssue]:
    """Return the problems of prices in another unit than the spot, recognized by their distance from it.

    The strike of a basket may be near each of its spots or near their weighted sum; other levels of a trade on
    several equities are those of the first.
    """
    first, *rest = zip(trade.underlyings, spots, strict=True)
    weights = getattr(trade, "all_weights", None)
    near_strike = [first]
    if weights is not None:
        near_strike += [*rest, (trade.underlying, math.fsum(map(operator.mul, weights, spots)))]
    found = [_far_from_all("strike", getattr(trade, "strike", None), near_strike)]
    prices, levels = _names_of(type(trade))
    found += [_far_from_all(name, getattr(trade, name), [first]) for name in prices]
    found += [_far_from_all(name, getattr(trade, name), [first], True) for name in levels]
    others = zip(getattr(trade, "other_initial_spots", None) or (), rest, strict=False)
    found += [_far_from_all("other_initial_spots", level, [own]) for level, own in others]
    return [issue for issue in found if issue is not None]


def _far_from_all(
    name: str, level: float | None, near: list[tuple[str, float]], from_below: bool = False
) -> ValidationIssue | None:
    """Return the problem of a level that is far from each of the named prices, or None."""
    if level is None or not all(far_from(spot, level) for _, spot in near):
        return None
    of, spot = near[-1]
    if from_below and level > spot:
        return None
    message = f"{level:g} is far from the spot {spot:g} of {of}"
    remedy = f"give {name} as a price in the currency of the spot, or correct the spot"
    return ValidationIssue((name,), show(level), message, remedy)


def _other_currency(trade: Trade, said: str, found: str) -> list[ValidationIssue]:
    """Return the problem of a row that names another currency than the one it is valued in."""
    if not found or said.upper() == found.upper():
        return []
    message = f"a trade on {trade.underlying} is valued in {found}, not in {said}"
    remedy = f"correct it, or name what pays in {said}, such as {trade.underlying} quanto {said}"
    return [ValidationIssue(("currency",), show(said), message, remedy)]


def _unknown(name: str, in_rates: bool, market: Market) -> list[ValidationIssue]:
    """Return the problem of a name that the market lacks, or whose entry was left out."""
    known = market.curves if in_rates else market.underlyings
    if name in known:
        return []
    if not in_rates and (asset := market.parts_of(name)[0]) != name:
        if problems := _unknown(asset, in_rates, market):
            return problems
        missing = market.missing_of(name)
        return [ValidationIssue(("underlying",), show(name), *missing)] if missing else []
    paths = ("curves",) if in_rates else ("equities", "fx")
    places = tuple(f"{section}.{name}." for section in paths)
    reason = next((e for e in market.errors if f"{e.field}.".startswith(places)), None)
    if reason:
        message, remedy = f"{name!r} is left out of the market", f"correct {reason}"
    elif name in market.fx and not in_rates:
        message = f"the market has no vols of {name}"
        remedy = f"give them, under fx.{name}.vols in the market"
    else:
        what = "a curve" if in_rates else "an underlying"
        message = f"{name!r} is not {what} of the market"
        remedy = f"{closest(name, known)}the {what.split()[1]}s are {listed(known)}"
    return [ValidationIssue(("underlying",), show(name), message, remedy)]


def _no_curves(trade: Trade, market: Market) -> list[ValidationIssue]:
    """Return the problem of a pair of curves: the first is a forward curve, or the currencies differ."""
    discount, *forwards = trade.underlyings
    if market.is_forward_curve(discount):
        other = dict(market.discount_curves)[discount]
        message = f"{discount!r} is a forward curve, and discounts nothing"
        remedy = f"give underlying {other}"
        if "forward_curve" in type(trade).model_fields:
            remedy += f" and forward_curve {discount}"
        return [ValidationIssue(("underlying",), show(discount), message, remedy)]
    currency = market.currency_of(discount, in_rates=True)
    for name in forwards:
        if (own := market.currency_of(name, in_rates=True)) != currency:
            message = f"{name} is a curve of {own}, and {discount} of {currency}"
            remedy = "give curves of one currency"
            return [ValidationIssue(("forward_curve",), show(name), message, remedy)]
    return []


def _no_cap_vols(trade: Trade, market: Market) -> list[ValidationIssue]:
    """Return the problem of a cap on rates of two curves whose vols are missing or were left out."""
    if not isinstance(trade, CapTrade) or trade.rates_curve in market.cap_vols:
        return []
    name = trade.rates_curve
    of_vols = (e for e in market.errors if f"{e.field}.".startswith(f"cap_vols.{name}."))
    if (reason := next(of_vols, None)) is not None:
        message, remedy = f"the vols of caps on {name} are left out", f"correct {reason}"
    elif len(trade.underlyings) > 1:
        message = f"the market has no vols of caps on {name}"
        remedy = f"give them, under cap_vols.{name} in the market"
    else:
        return []
    return [ValidationIssue(("underlying",), show(name), message, remedy)]


def _no_basket(trade: Trade, market: Market) -> list[ValidationIssue]:
    """Return the problem of equities that have no joint distribution in this market, or None."""
    names = trade.underlyings
    if pairs := [name for name in names if name in market.fx]:
        message, remedy = f"{pairs[0]} is a pair of currencies", "give equities alone"
        return [ValidationIssue(("underlying",), show(trade.underlying), message, remedy)]
    if others := [name for name in names if name not in market.equities]:
        message = f"{others[0]} is paid in another currency than its equity"
        remedy = "give equities in their own currency: a basket has no quanto or compo"
        return [ValidationIssue(("underlying",), show(trade.underlying), message, remedy)]
    settlement = {(market.equities[name].curve, market.equities[name].currency) for name in names}
    if len(settlement) > 1:
        message = "the equities differ in curve or currency"
        remedy = "give equities that are discounted on one curve, in one currency"
    elif lacking := missing_pairs(names, market.correlations):
        message = f"the market has no correlation of {listed(shown(lacking))}"
        remedy = "give it under correlations in the market"
    elif (least := least_eigenvalue(names, market.correlations)) <= 0.0:
        message = f"the matrix of correlations has the eigenvalue {least:g}, not above 0"
        remedy = "correct the correlations of the market"
    else:
        return []
    return [ValidationIssue(("underlying",), show(trade.underlying), message, remedy)]
