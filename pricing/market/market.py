"""The market of one day: curves, equities and rate vols, every number a differentiable leaf."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pricing.fields import Converted
from pricing.ingestion.errors import InputError
from pricing.ingestion.field_types import closest
from pricing.ingestion.files import read_text

from .bootstrap import CurveQuotes, curves_beside, in_order, zero_curve
from .cap_quotes import CapQuotes, strip_caps
from .caplet_vols import CapletVols
from .conversions import (
    Conversion,
    conversion_of,
    converted,
    missing_part,
    pair_between,
)
from .correlations import matrix
from .curve import ZeroCurve
from .equity import DerivedEquity, Equity
from .fixings import Fixings, misspelt_names
from .fx import FxPair, fx_rate
from .level_bounds import LevelBounds
from .odd_quotes import check_moves
from .option_frames import option_table
from .quote_kinds import read_quote
from .reader import DAYS_PER_YEAR, read_contents
from .surface import SwaptionVols


def _as_pairs(levels: Any) -> tuple[tuple[tuple[str, date], float], ...]:
    """Return levels as sorted pairs, equal for two markets with the same levels."""
    return tuple(sorted(dict(levels).items()))


class Market(eqx.Module):
    """The quotes of one day; a pytree whose leaves are arrays of floats.

    A derivative with respect to a market is a market again; `by_quote` turns it into numbers by quote id.

    Attributes:
        curves: Name -> discount curve, given by zero rates or by quotes of instruments.
        equities: Name -> share or index.
        swaption_vols: The matrix of swaption vols, or None.
        asof: The day of the quotes.
        currency: The ISO code of totals, and of values whose equity gives no currency.
        labels: Path of a leaf -> the quote ids of its numbers, in row-major order.
        errors: The parts of the file that were left out, with the reasons.
        correlations: Pair of equities, such as ("DAX", "SX5E"), in either order -> correlation.
        curve_currencies: Pairs of a curve's name and the ISO code of the payments on it.
        discount_curves: Pairs of the name of a forward curve, which only gives floating rates, and the name of
            the curve that discounts its instruments.
        fixings: Pairs of (name of an equity or a curve, day up to `asof`) and the fixing;
            `Fixings(market.fixings)` looks them up.
        fx: Name of an FX pair, such as "EURUSD" -> its spot, and the quotes of its options.
        cap_vols: Curve of floating rates -> cap quotes, or caplet vols.

    Examples:
        >>> from pricing import Market
        >>> text = '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        >>> [quote for quote, _ in Market.from_text(text).flat_quotes()]
        ['ZERO/RATE/EUR/2002-07-05']
    """

    curves: dict[str, ZeroCurve | CurveQuotes]
    equities: dict[str, Equity]
    swaption_vols: SwaptionVols | None
    asof: date = eqx.field(static=True)
    currency: str = eqx.field(static=True, default="")
    labels: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True, default=(), repr=False)
    errors: tuple[InputError, ...] = eqx.field(static=True, default=())
    correlations: dict[tuple[str, str], Float[Array, ""]] = eqx.field(default_factory=dict)
    curve_currencies: tuple[tuple[str, str], ...] = eqx.field(static=True, default=())
    discount_curves: tuple[tuple[str, str], ...] = eqx.field(static=True, default=())
    fixings: Converted[tuple[tuple[tuple[str, date], float], ...]] = eqx.field(
        static=True, default=(), repr=False, converter=_as_pairs
    )
    fx: dict[str, FxPair] = eqx.field(default_factory=dict)
    cap_vols: dict[str, CapQuotes | CapletVols] = eqx.field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike, *, option_quotes: Any = None) -> "Market":
        """Return the market in a JSON file (format: docs/data.md).

        A bad part is left out and reported in `errors`. A file without any usable part raises `UnreadableFile`:
        missing, not UTF-8, not JSON, not an object, or without `asof`.

        Args:
            path: The file.
            option_quotes: A table of option quotes that replaces those of the equities: the path of a CSV or
                Parquet file, or a frame of pandas (2.2 or later), polars, pyarrow or any library that exports
                Arrow streams.
        """
        return cls.from_text(read_text(path), os.fspath(path), option_quotes=option_quotes)

    @classmethod
    def from_text(
        cls, text: str, file: str = "market.json", *, option_quotes: Any = None
    ) -> "Market":
        """Return the market in JSON text.

        Args:
            text: The text.
            file: The name of the text in error messages.
            option_quotes: A table of option quotes, as in `read`.
        """
        found = read_contents(text, file, option_quotes)
        static = {
            "labels": tuple(found.labels.items()),
            "errors": tuple(found.errors),
            "curve_currencies": tuple(found.curve_currencies.items()),
            "discount_curves": tuple(found.discount_curves.items()),
            "fixings": found.fixings,
        }
        return cls(**{field.name: getattr(found, field.name) for field in fields(cls)} | static)

    @property
    def option_table(self) -> Any:
        """The option quotes of all equities as a `pyarrow.Table`, for `option_quotes` of `read`.

        Each row is a quote with its strike, vol, bid, ask and weight.
        """
        return option_table(self.equities, self.asof)

    def currency_of(self, name: str, *, in_rates: bool = False) -> str:
        """Return the ISO code of the currency of trades on an underlying, by default the market's.

        Args:
            name: The name of an equity, an FX pair or a curve.
            in_rates: Whether it is the name of a curve.
        """
        if in_rates:
            return dict(self.curve_currencies).get(name) or self.currency
        if name in self.fx:
            return self.fx[name].domestic
        if found := self.conversion(name):
            return found.currency
        return (name in self.equities and self.equities[name].currency) or self.currency

    @property
    def underlyings(self) -> tuple[str, ...]:
        """The names of option underlyings: equities, and FX pairs with vols."""
        pairs = (name for name, pair in self.fx.items() if pair.vols is not None)
        return *self.equities, *pairs

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the market data that the underlying of a trade needs.

        Args:
            name: An equity, an FX pair, or an equity in another currency, such as "SX5E quanto USD".

        Returns:
            The name itself, or those of the equity and the FX pair.
        """
        found = self.conversion(name)
        if found is None:
            return (name,)
        pair = pair_between(self.fx, self.currency_of(found.asset), found.currency)
        return (found.asset, pair) if pair else (found.asset,)

    def missing_of(self, name: str) -> tuple[str, str] | None:
        """Return the quote missing for an equity in another currency, and the remedy, or None.

        Args:
            name: The underlying of a trade, whose equity the market has.
        """
        found = self.conversion(name)
        if found is None:
            return None
        asset, own = self.equities[found.asset], self.currency_of(found.asset)
        return missing_part(found, own, asset, self.fx, self.correlations)

    def conversion(self, name: str) -> Conversion | None:
        """Return the parts of the name of an equity in another currency; None for other names.

        Args:
            name: The underlying of a trade.
        """
        return None if name in self.equities else conversion_of(name)

    def curve_of(self, name: str) -> str:
        """Return the name of the curve that discounts trades on an underlying."""
        if found := self.conversion(name):
            pair = self.fx[self.parts_of(name)[1]]
            is_domestic = pair.domestic == found.currency
            return pair.domestic_curve if is_domestic else pair.foreign_curve
        return self.fx[name].domestic_curve if name in self.fx else self.equities[name].curve

    def is_forward_curve(self, name: str) -> bool:
        """Return True if a curve gives only floating rates and does not discount."""
        return name in dict(self.discount_curves)

    def curve(self, name: str, *, throw: bool = True) -> ZeroCurve:
        """Return a curve as zero rates.

        Args:
            name: The name of the curve.
            throw: Whether to raise RuntimeError if no zero rates reprice its quotes, or those of the curve that
                discounts them. Otherwise, and under a trace, they are NaN.
        """
        return zero_curve(name, self.curves, throw=throw)

    def first_unmet(self, name: str) -> int | None:
        """Return the index of the first instrument of a curve that no zero rate reprices.

        None if all are repriced, under a trace, or if the curve has no instruments.

        Args:
            name: The name of the curve.
        """
        curve = self.curves[name]
        if isinstance(curve, ZeroCurve):
            return None
        return curve.first_unmet(curves_beside(curve, self.curves, throw=False))

    def spot(self, name: str) -> Float[Array, ""]:
        """Return the spot of an equity (for a compo, in the payment currency), or the rate of an FX pair."""
        if found := self.conversion(name):
            spot = self.equities[found.asset].spot
            if found.kind == "quanto":
                return spot
            return spot * self.fx_rate(self.currency_of(found.asset), found.currency)
        if name in self.equities:
            return self.equities[name].spot
        return self.fx_rate(self.fx[name].foreign, self.fx[name].domestic)

    def asset(self, name: str) -> Equity | DerivedEquity:
        """Return the market data of an underlying: an equity, in its own or another currency, or an FX pair."""
        if found := self.conversion(name):
            pair = self.parts_of(name)[1]
            own = self.equities[found.asset], (pair, self.fx[pair]), self.spot(pair)
            return converted(found, *own, self.curves, self.correlations)
        if name in self.equities:
            return self.equities[name]
        return self.fx[name].asset(self.spot(name), self.curves)

    def fx_rate(self, source: str, target: str) -> Float[Array, ""]:
        """Return the units of `target` that one unit of `source` costs, by chaining quoted pairs.

        If no chain of quoted pairs links them, MissingRate, a ValueError, is raised.

        Args:
            source: The ISO code of the currency to convert from.
            target: The ISO code of the currency to convert to.
        """
        return fx_rate(self.fx, source, target)

    def time(self, day: date) -> float:
        """Return the years (ACT/365) from the as-of date to `day`."""
        return (day - self.asof).days / DAYS_PER_YEAR

    def dates(self, times: Float[Array, " times"]) -> tuple[date, ...]:
        """Return the days at times in years (ACT/365) from the as-of date."""
        today = self.asof.toordinal()
        return tuple(date.fromordinal(today + round(DAYS_PER_YEAR * t)) for t in times.tolist())

    def correlation(self, names: Sequence[str]) -> Float[Array, "names names"]:
        """Return the correlation matrix of some equities; a pair without a quote raises KeyError."""
        return matrix(names, self.correlations)

    def caplet_vols(self, name: str, *, throw: bool = True) -> CapletVols:
        """Return the caplet vols that reprice the quoted caps on a curve's rates.

        Args:
            name: The name of the curve; one without quotes of caps raises KeyError.
            throw: Whether to raise RuntimeError if no vol reprices a quote. Otherwise, and under a trace, it is
                NaN.
        """
        quotes = self.cap_vols[name]
        if isinstance(quotes, CapletVols):
            return quotes
        discount = dict(self.discount_curves).get(name, name)
        curves = (self.curve(of, throw=throw) for of in (discount, name))
        return strip_caps(quotes, *curves, throw=throw)

    def bootstrapped(self, *, throw: bool = True) -> "Market":
        """Return this market with every curve as zero rates, and cap quotes as caplet vols.

        Args:
            throw: Whether to raise RuntimeError if no zero rates reprice the quotes of a curve, or no vols
                those of caps. Otherwise, and under a trace, they are NaN.
        """
        found = self.curves
        for name in in_order(self.curves):
            found = {**found, name: replace(self, curves=found).curve(name, throw=throw)}
        market = replace(self, curves=found)
        vols = {name: market.caplet_vols(name, throw=throw) for name in self.cap_vols}
        return replace(market, cap_vols=vols)

    def with_fixings(self, fixings: Fixings) -> "Market":
        """Return this market with more fixings; its own take precedence.

        Args:
            fixings: The levels. Names that the market does not have, and days after `asof`, are ignored. Errors
                are added to the market's: those of the fixings, those of a spot or a rate that is probably in
                another unit, unless confirmed, and those of a name that matches only up to case and blanks.
        """
        bounds = LevelBounds(self.equities, self.fx, self.curves, self.asof)
        wrong = {
            place: bounds.wrong(*place, level)
            for place, level in fixings.items()
            if place not in fixings.confirmed or level <= 0.0
        }
        odd = {place: why for place, why in wrong.items() if why}
        remedy = "give it in the unit of the market, or confirmed = yes beside it"
        errors = tuple(
            InputError(
                *(fixings.file, None, None, "value", f"{fixings[name, day]:g}"),
                *(f"{fixings[name, day]:g} is not a level of {name} on {day}: {why}", remedy),
            )
            for (name, day), why in odd.items()
        )
        errors += misspelt_names(fixings, (*self.equities, *self.fx), self.curves)
        own = {place: level for place, level in fixings.items() if place not in odd}
        errors = (*self.errors, *fixings.errors, *errors)
        return replace(self, fixings={**own, **dict(self.fixings)}, errors=errors)

    def quote_ids(self) -> "Market":
        """Return the tree of quote ids: arrays of ids at the leaves of quotes, "" at times and strikes."""
        labels = dict(self.labels)

        def name(path, leaf):
            blank = ("",) * np.size(leaf)
            ids = labels.get(jax.tree_util.keystr(path), blank)
            return np.array(ids, dtype=object).reshape(np.shape(leaf))

        return jax.tree_util.tree_map_with_path(name, self)

    def by_quote(self, values: "Market") -> dict[str, float]:
        """Return quote id -> number for a tree with the structure of this market, such as a gradient.

        Raises:
            ValueError: The tree has another structure.
        """
        if jax.tree.structure(values) != jax.tree.structure(self):
            raise ValueError(
                "the values do not have the structure of this market: give, for example, a gradient"
            )
        flat = lambda tree: itertools.chain.from_iterable(map(np.ravel, jax.tree.leaves(tree)))
        pairs = zip(flat(self.quote_ids()), flat(jax.device_get(values)), strict=True)
        return {quote: float(x) for quote, x in pairs if quote}

    def flat_quotes(self) -> list[tuple[str, float]]:
        """Return the id and value of every quote, in the order of the leaves."""
        return list(self.by_quote(self).items())

    def with_quotes(self, values: Mapping[str, float], *, confirmed: bool = False) -> "Market":
        """Return this market with some quotes replaced, by id.

        Args:
            values: Quote id -> its new number.
            confirmed: Whether to take a number that is probably in another unit, such as a vol of five times
                its neighbours. Numbers outside the bounds of market files are refused in any case.

        Raises:
            KeyError: The market has no quote with such an id.
            ValueError: A number violates the bounds of market files or is probably in another unit, or the
                quotes of an FX pair have no smile.
        """
        known, numbers = dict(self.flat_quotes()), {}
        for quote, value in values.items():
            if quote not in known:
                raise KeyError(f"no quote {quote!r} in this market; {closest(quote, known)}")
            number, problems = read_quote(quote, float(value))
            if problems:
                raise ValueError(f"{quote}: {problems[0].message}; {problems[0].remedy}")
            numbers[quote] = number
        after = replaced(self, numbers)
        check_moves(self, after, numbers, confirmed=confirmed)
        return after


def replaced(market: Market, numbers: Mapping[str, Any]) -> Market:
    """Return a market with some quotes replaced.

    Args:
        market: The market.
        numbers: Quote id -> its new number, within the bounds of `read_quote`.
    """

    def new(leaf, ids):
        found = [numbers.get(i, old) for i, old in zip(ids.flat, np.ravel(leaf), strict=True)]
        return jnp.asarray(np.reshape(found, ids.shape), leaf.dtype)

    return jax.tree.map(new, market, market.quote_ids())
