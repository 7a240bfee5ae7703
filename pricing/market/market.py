"""The market: curves, equities and vols of rates of one day, every number a differentiable leaf."""

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
from pricing.ingestion.fields import closest
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
from .option_frames import option_table
from .quote_kinds import read_quote
from .reader import DAYS_PER_YEAR, read_contents
from .surface import SwaptionVols


def _as_pairs(levels: Any) -> tuple[tuple[tuple[str, date], float], ...]:
    """Return levels by place as pairs in order, which two markets with the same levels share."""
    return tuple(sorted(dict(levels).items()))


class Market(eqx.Module):
    """The quotes of one day; a pytree whose leaves are arrays of floats.

    A derivative with respect to a market is a market again; `by_quote` turns it into numbers by quote id.

    Attributes:
        curves: Name -> discount curve, given by zero rates or by quotes of instruments.
        equities: Name -> share or index.
        swaption_vols: The matrix of swaption vols, or None.
        asof: The day of the quotes.
        currency: The ISO code of the values for which no equity gives a currency, and of totals.
        labels: Path of a leaf -> the quote ids of its numbers, in row-major order.
        errors: The parts of the file that were left out, with the reasons.
        correlations: Pair of equities, such as ("DAX", "SX5E"), in either order -> correlation.
        curve_currencies: Pairs of a curve's name and the ISO code of the payments on it.
        discount_curves: Pairs of a forward curve's name, which gives floating rates and discounts nothing, and
            the name of the curve that discounts its instruments.
        fixings: Pairs of a place, the name of an equity or a curve with a day up to `asof`, and the level that
            was fixed there; `Fixings(market.fixings)` finds them by place.
        fx: Name of a pair, such as "EURUSD" -> its spot, and the quotes of its options.
        cap_vols: Curve of floating rates -> the quotes of caps on them, or their caplet vols.

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

        A bad part is left out and reported in `errors`. Where nothing can be used, `UnreadableFile` is
        raised: no such file, not UTF-8, not JSON, not an object, no `asof`.

        Args:
            path: The file.
            option_quotes: A table of option quotes, which takes the place of the equities' own: the path of a
                CSV or Parquet file, or a frame of pandas (2.2 or later), polars, pyarrow or another that
                exports Arrow's streams.
        """
        return cls.from_text(read_text(path), os.fspath(path), option_quotes=option_quotes)

    @classmethod
    def from_text(
        cls, text: str, file: str = "market.json", *, option_quotes: Any = None
    ) -> "Market":
        """Return the market in a JSON text.

        Args:
            text: The text.
            file: The name of the text in error messages.
            option_quotes: A table of option quotes, as of `read`.
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
        """The option quotes of all equities as a `pyarrow.Table`, which `read` takes as `option_quotes`.

        A quote is a row with its strike, vol, bid, ask and weight.
        """
        return option_table(self.equities, self.asof)

    def currency_of(self, name: str, *, in_rates: bool = False) -> str:
        """Return the ISO code of the payments of trades on an equity; the market's if the equity has none.

        Args:
            name: The name of the equity, of a pair of currencies, or of a curve.
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
        """The names of what options are on: the equities, and the pairs of currencies with vols."""
        pairs = (name for name, pair in self.fx.items() if pair.vols is not None)
        return *self.equities, *pairs

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the market's parts that the underlying of a trade is made of.

        Args:
            name: An equity, a pair of currencies, or an equity in another currency, as "SX5E quanto USD".

        Returns:
            The name itself, or those of the equity and of the pair.
        """
        found = self.conversion(name)
        if found is None:
            return (name,)
        pair = pair_between(self.fx, self.currency_of(found.asset), found.currency)
        return (found.asset, pair) if pair else (found.asset,)

    def missing_of(self, name: str) -> tuple[str, str] | None:
        """Return the quote that the market lacks for an equity in another currency, and the remedy, or None.

        Args:
            name: The underlying of a trade, whose equity the market has.
        """
        found = self.conversion(name)
        if found is None:
            return None
        asset, own = self.equities[found.asset], self.currency_of(found.asset)
        return missing_part(found, own, asset, self.fx, self.correlations)

    def conversion(self, name: str) -> Conversion | None:
        """Return the parts of the name of an equity in another currency; None of another name.

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
        """Return True if a curve gives floating rates alone, and discounts nothing."""
        return name in dict(self.discount_curves)

    def curve(self, name: str, *, throw: bool = True) -> ZeroCurve:
        """Return a curve as zero rates.

        Args:
            name: The name of the curve.
            throw: Whether to raise RuntimeError where no zero rates reprice its quotes, or those of the curve
                that discounts them, and that is known. Otherwise, and under a trace, they are NaN.
        """
        return zero_curve(name, self.curves, throw=throw)

    def first_unmet(self, name: str) -> int | None:
        """Return the first instrument of a curve of quotes, from 0, that no zero rate reprices.

        None: all are repriced, or that is not known under a trace, or the curve has no quotes of instruments.

        Args:
            name: The name of the curve.
        """
        curve = self.curves[name]
        if isinstance(curve, ZeroCurve):
            return None
        return curve.first_unmet(curves_beside(curve, self.curves, throw=False))

    def spot(self, name: str) -> Float[Array, ""]:
        """Return the spot of an equity, in the currency of a compo's payments, or the rate of a pair."""
        if found := self.conversion(name):
            spot = self.equities[found.asset].spot
            if found.kind == "quanto":
                return spot
            return spot * self.fx_rate(self.currency_of(found.asset), found.currency)
        if name in self.equities:
            return self.equities[name].spot
        return self.fx_rate(self.fx[name].foreign, self.fx[name].domestic)

    def asset(self, name: str) -> Equity | DerivedEquity:
        """Return the market data of an underlying: an equity, in its currency or another, or a pair."""
        if found := self.conversion(name):
            pair = self.parts_of(name)[1]
            own = self.equities[found.asset], (pair, self.fx[pair]), self.spot(pair)
            return converted(found, *own, self.curves, self.correlations)
        if name in self.equities:
            return self.equities[name]
        return self.fx[name].asset(self.spot(name), self.curves)

    def fx_rate(self, source: str, target: str) -> Float[Array, ""]:
        """Return the units of one currency that a unit of another costs, by the pairs that link them.

        Where no chain of quoted pairs does, it raises MissingRate, a ValueError.

        Args:
            source: The ISO code of the currency to convert from.
            target: The ISO code of the currency to convert to.
        """
        return fx_rate(self.fx, source, target)

    def time(self, day: date) -> float:
        """Return the years (ACT/365) from the as-of date to `day`."""
        return (day - self.asof).days / DAYS_PER_YEAR

    def dates(self, times: Float[Array, " times"]) -> tuple[date, ...]:
        """Return the days at some times, in years (ACT/365) from the as-of date."""
        today = self.asof.toordinal()
        return tuple(date.fromordinal(today + round(DAYS_PER_YEAR * t)) for t in times.tolist())

    def correlation(self, names: Sequence[str]) -> Float[Array, "names names"]:
        """Return the correlation matrix of some equities; a pair without a quote raises KeyError."""
        return matrix(names, self.correlations)

    def caplet_vols(self, name: str, *, throw: bool = True) -> CapletVols:
        """Return the caplet vols at which the caps on a curve's rates have their quoted prices.

        Args:
            name: The name of the curve; one without quotes of caps raises KeyError.
            throw: Whether to raise RuntimeError where it is known that no vol gives a quote. Otherwise, and
                under a trace, it is NaN.
        """
        quotes = self.cap_vols[name]
        if isinstance(quotes, CapletVols):
            return quotes
        discount = dict(self.discount_curves).get(name, name)
        curves = (self.curve(of, throw=throw) for of in (discount, name))
        return strip_caps(quotes, *curves, throw=throw)

    def bootstrapped(self, *, throw: bool = True) -> "Market":
        """Return this market with every curve as zero rates, and every quote of a cap as caplet vols.

        Args:
            throw: Whether to raise RuntimeError where no zero rates reprice the quotes of a curve, or no vols
                those of caps, and that is known. Otherwise, and under a trace, they are NaN.
        """
        found = self.curves
        for name in in_order(self.curves):
            found = {**found, name: replace(self, curves=found).curve(name, throw=throw)}
        market = replace(self, curves=found)
        vols = {name: market.caplet_vols(name, throw=throw) for name in self.cap_vols}
        return replace(market, cap_vols=vols)

    def with_fixings(self, fixings: Fixings) -> "Market":
        """Return this market with more fixings; where both have one, its own stays.

        Args:
            fixings: The levels; names that the market does not have, and days after `asof`, are not read. Its
                errors become the market's. So does a spot or a rate that is probably in another unit, unless it
                is confirmed, and a name that is one of the market's but for case and blanks.
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
                *(f"{fixings[name, day]:g} is no level of {name} on {day}: {why}", remedy),
            )
            for (name, day), why in odd.items()
        )
        errors += misspelt_names(fixings, (*self.equities, *self.fx), self.curves)
        own = {place: level for place, level in fixings.items() if place not in odd}
        errors = (*self.errors, *fixings.errors, *errors)
        return replace(self, fixings={**own, **dict(self.fixings)}, errors=errors)

    def quote_ids(self) -> "Market":
        """Return a tree like this market whose leaves are arrays of quote ids, "" at times and strikes."""
        labels = dict(self.labels)

        def name(path, leaf):
            blank = ("",) * np.size(leaf)
            ids = labels.get(jax.tree_util.keystr(path), blank)
            return np.array(ids, dtype=object).reshape(np.shape(leaf))

        return jax.tree_util.tree_map_with_path(name, self)

    def by_quote(self, values: "Market") -> dict[str, float]:
        """Return quote id -> number, for a tree like this market, such as a gradient with respect to it.

        Raises:
            ValueError: The tree has another structure.
        """
        if jax.tree.structure(values) != jax.tree.structure(self):
            raise ValueError(
                "the values are no tree like this market: give, for example, a gradient"
            )
        flat = lambda tree: itertools.chain.from_iterable(map(np.ravel, jax.tree.leaves(tree)))
        pairs = zip(flat(self.quote_ids()), flat(jax.device_get(values)), strict=True)
        return {quote: float(x) for quote, x in pairs if quote}

    def flat_quotes(self) -> list[tuple[str, float]]:
        """Return every quote, its id and its value, in the order of the leaves."""
        return list(self.by_quote(self).items())

    def with_quotes(self, values: Mapping[str, float]) -> "Market":
        """Return this market with some quotes replaced, by id.

        Raises:
            KeyError: The market has no quote of an id.
            ValueError: A number is beyond the bounds that it has in a market file.
        """
        known = dict(self.flat_quotes())
        for quote, value in values.items():
            if quote not in known:
                raise KeyError(f"no quote {quote!r} in this market; {closest(quote, known)}")
            if problems := read_quote(quote, float(value))[1]:
                raise ValueError(f"{quote}: {problems[0].message}; {problems[0].remedy}")

        def replace(leaf, ids):
            numbers = [values.get(i, old) for i, old in zip(ids.flat, np.ravel(leaf), strict=True)]
            return jnp.asarray(np.reshape(numbers, ids.shape), leaf.dtype)

        return jax.tree.map(replace, self, self.quote_ids())
