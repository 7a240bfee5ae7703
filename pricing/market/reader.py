"""The reader of market files: from text to curves, equities, rate vols, quote ids and errors."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from jaxtyping import Array
from pydantic import BaseModel, RootModel

from pricing.ingestion.errors import InputError, listed, show, unreadable
from pricing.ingestion.field_types import FIRST_DAY, LAST_DAY, closest
from pricing.ingestion.files import parse_json
from pricing.ingestion.locator import Locator
from pricing.ingestion.validation import ValidationIssue, validate

from .bootstrap import CurveQuotes, curves_beside, zero_curve
from .cap_quotes import CapQuotes
from .cap_records import CapVolsRecord
from .caplet_vols import CapletVols
from .conventions import CURRENCIES
from .correlations import Pair, least_eigenvalue, missing_pairs, quoted
from .curve import ZeroCurve
from .curve_records import CurveRecord, reading_depths
from .dividends import Dividends
from .equity import Equity
from .fixings import is_rate_name
from .fx import FxPair, are_linked, fx_rate
from .fx_delta import DeltaConvention
from .fx_records import FxRecord, fx_labels
from .fx_vols import NO_SMILE, DeltaQuotes
from .interpolation import as_leaf
from .level_bounds import LevelBounds
from .listed_quotes import EquityMarket, quotes_of_equity
from .option_tables import OptionTable, read_option_tables
from .quote_tables import NAME
from .records import (
    Correlation,
    DividendsRecord,
    DividendYieldRecord,
    EquityRecord,
    IsoDate,
    Name,
    Rate,
    Spot,
    SwaptionVolsRecord,
)
from .surface import SwaptionVols

DAYS_PER_YEAR = 365.0  # ACT/365
_KNOWN = (
    *("asof", "currency", "curves", "equities", "fx", "correlations", "swaption_vols", "cap_vols"),
    *("fixings", "source", "settle", "swap"),
)
_SINGULAR = {"curves": "curve", "equities": "equity"}


class _Header(BaseModel):
    asof: IsoDate


@dataclass
class Contents:
    """The contents of a market file, to which parts of the document, or their errors, are added.

    `labels`: path of an array of quotes in the market -> the ids of its numbers, in row-major order.
    """

    document: dict
    file: str
    locator: Locator
    asof: date
    currency: str = ""
    curves: dict[str, ZeroCurve | CurveQuotes] = field(default_factory=dict)
    curve_currencies: dict[str, str] = field(default_factory=dict)
    sure_currencies: set[str] = field(default_factory=set)
    discount_curves: dict[str, str] = field(default_factory=dict)
    equities: dict[str, Equity] = field(default_factory=dict)
    fx: dict[str, FxPair] = field(default_factory=dict)
    swaption_vols: SwaptionVols | None = None
    cap_vols: dict[str, CapQuotes | CapletVols] = field(default_factory=dict)
    correlations: dict[Pair, Array] = field(default_factory=dict)
    fixings: dict[tuple[str, date], float] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    option_tables: Mapping[str, OptionTable] = field(default_factory=dict)
    errors: list[InputError] = field(default_factory=list)

    def report(self, problems: tuple[ValidationIssue, ...], *prefix: str):
        """Record the problems of the value at the path `prefix`."""
        for problem in problems:
            path = (*prefix, *problem.path)
            place, label = self.locator.place(path), ".".join(map(str, path))
            said = problem.value, problem.message, problem.remedy
            self.errors.append(InputError(self.file, *place, label, *said))

    def read_names(self):
        """Check the names of top-level fields."""
        for name in self.document:
            if name not in _KNOWN:
                remedy = f"{closest(name, _KNOWN)}the fields are {', '.join(_KNOWN)}"
                self.report((ValidationIssue((name,), "", "is not a known field", remedy),))
        currency = self.document.get("currency", "")
        if not isinstance(currency, str):
            message = f"{show(currency)} is not a currency"
            remedy = 'give an ISO code in quotes, such as "EUR"'
            self.report((ValidationIssue(("currency",), show(currency), message, remedy),))
        elif not currency or self._is_name("currency", value=currency):
            self.currency = currency.strip()

    def _is_name(self, *path: str, value: str) -> bool:
        """Return True if a text is a valid name; otherwise record the reason."""
        _, problems = validate(RootModel[Name], value)
        self.report(problems, *path)
        return not problems

    def section(self, key: str) -> list[tuple[str, object]]:
        """Return the named objects under a top-level key, without those with invalid names."""
        section = self.document.get(key, {})
        if isinstance(section, dict):
            return [item for item in section.items() if self._is_name(key, item[0], value=item[0])]
        message = f"{show(section)} is not an object"
        self.report(
            (ValidationIssue((key,), show(section), message, f"give {key} by name, in braces"),)
        )
        return []

    def read_curve(self, name: str, value: object):
        record, problems = validate(CurveRecord, value, asof=self.asof)
        other = record and record.discount_curve
        if other:
            problems = (*problems, *self._not_discounting("discount_curve", other))
        if record is not None and record.basis_curve is not None:
            problems = (*problems, *self._not_basis(record.basis_curve, other))
        self.report(problems, "curves", name)
        if record is None or problems:
            return
        curve = record.curve(self.asof)
        unmet = None
        if isinstance(curve, CurveQuotes):
            unmet = curve.first_unmet(curves_beside(curve, self.curves))
        if unmet is not None:
            *path, instrument = record.places[unmet]
            message = f"no zero rate reprices {instrument} after those before it"
            remedy = "correct its quote, or one before it"
            self.report((ValidationIssue(tuple(path), "", message, remedy),), "curves", name)
            return
        self.curves[name] = curve
        if other:
            self.discount_curves[name] = other
        own = name if name in CURRENCIES else self.curve_currencies.get(other or "", self.currency)
        self.curve_currencies[name] = record.currency or own
        if record.currency or name in CURRENCIES:
            self.sure_currencies.add(name)
        ids = record.labels(name, self.asof).items()
        self.labels |= {f".curves[{name!r}]{path}": own for path, own in ids}

    def read_equity(self, name: str, value: object):
        table = self.option_tables.get(name)
        record, problems = validate(EquityRecord, value, asof=self.asof, table=table)
        if "|" in name:
            message = f"{name!r} would be taken for a basket"
            remedy = "give the equity a name without |"
            problems = (*problems, ValidationIssue((), show(name), message, remedy))
        if record is not None:
            problems = (*problems, *self._not_discounting("curve", record.curve))
        self.report(problems, "equities", name)
        if record is None or problems:
            return
        dividend_yield = self._dividend_yield(name, record.dividend_yield)
        paid = self._dividends(name, record.dividends)
        market = EquityMarket(record.spot, dividend_yield, paid, self.curves[record.curve])
        found = quotes_of_equity(name, record, self.option_tables.get(name), market, self.asof)
        self.errors += found.errors
        self.report(found.problems, "equities", name)
        if found.surface is None:
            return
        is_sure = record.curve in self.sure_currencies
        default = self.curve_currencies[record.curve] if is_sure else self.currency
        currency = record.currency or default
        equity = Equity(record.spot, dividend_yield, found.surface, record.curve, currency, paid)
        self.equities[name] = equity
        path = f".equities[{name!r}]"
        self.labels |= {
            f"{path}.spot": (f"EQUITY/PRICE/{name}",),
            f"{path}.surface.vols": found.ids,
        }

    def _other_currency(self, path: str, curve: str, currency: str) -> tuple[ValidationIssue, ...]:
        """Return the problem of a side of an FX pair whose curve is in another currency."""
        of_curve = self.curve_currencies.get(curve, "")
        if curve not in self.sure_currencies or of_curve == currency:
            return ()
        message = f"{curve} is a curve of {of_curve}, and this is the side of {currency}"
        remedy = f"give a curve of {currency}"
        return (ValidationIssue((path,), show(curve), message, remedy),)

    def read_fx(self, name: str, value: object):
        record, problems = validate(FxRecord, value, asof=self.asof)
        foreign, domestic = name[:3], name[3:]
        if foreign == domestic or not {foreign, domestic} <= CURRENCIES:
            message = f"{show(name)} is not a pair of currencies"
            remedy = "give two ISO codes, such as EURUSD: the dollars that one euro costs"
            problems = (*problems, ValidationIssue((), show(name), message, remedy))
        elif name in self.equities:
            message = f"{show(name)} is the name of an equity too"
            problems = (*problems, ValidationIssue((), "", message, "rename the equity"))
        if record is not None and not problems:
            pair, problems = self._pair(record, foreign, domestic)
            if not problems:
                self.fx[name] = pair
                self.labels |= fx_labels(name, record, self.asof)
        self.report(problems, "fx", name)

    def _pair(
        self, record: FxRecord, foreign: str, domestic: str
    ) -> tuple[FxPair, tuple[ValidationIssue, ...]]:
        """Return an FX pair, and its problems given the rest of the market."""
        of_foreign, of_domestic = record.foreign_curve or foreign, record.domestic_curve or domestic
        curves = {"foreign_curve": of_foreign, "domestic_curve": of_domestic}
        of_pair: dict[str, Any] = {"foreign": foreign, "domestic": domestic, **curves}
        pair = FxPair(record.spot, **of_pair)
        if are_linked(self.fx, foreign, domestic) != (record.spot is None):
            if record.spot is None:
                message, remedy = "is missing", "give it: the pairs before do not give this rate"
            else:
                cross = float(fx_rate(self.fx, foreign, domestic))
                message = f"the pairs before it give the rate {cross:g}, beside {record.spot:g}"
                remedy = "leave the spot out: each rate has one quote, and the others are crosses"
            return pair, (ValidationIssue(("spot",), "", message, remedy),)
        if record.vols is None:
            return pair, ()
        both = zip(curves.items(), (foreign, domestic), strict=True)
        if wrong := [
            issue for (path, curve), own in both for issue in self._other_currency(path, curve, own)
        ]:
            return pair, (wrong[0],)
        for field_name, curve in curves.items():
            if wrong := self._not_discounting(field_name, curve):
                return pair, wrong
        vols, expiries = record.vols, record.vols.pillars(self.asof)
        words = vols.delta, vols.premium_adjusted, vols.at_the_money_strike
        reversals, butterflies = vols.columns("risk_reversals"), vols.columns("butterflies")
        terms = reversals, butterflies, DeltaConvention(*words), vols.strangles
        quotes = DeltaQuotes(self._years(expiries), vols.at_the_money, *terms)
        pair = replace(pair, vols=quotes)
        spot = fx_rate({**self.fx, "": pair}, foreign, domestic)
        surface: Any = pair.asset(spot, self.curves).surface
        if (wrong := surface.first_fault()) is not None:
            message = f"the quotes of {expiries[wrong]} {NO_SMILE}"
            return pair, (ValidationIssue(("vols",), "", message, "correct them"),)
        return pair, ()

    def _dividends(self, name: str, record: DividendsRecord | None) -> Dividends | None:
        """Return the dividends of an equity, and record the ids of their quotes."""
        if record is None:
            return None
        path, days = f".equities[{name!r}].dividends", record.ex_dates(self.asof)
        amounts: dict[str, Any] = {"cash": record.cash, "proportions": record.proportions}
        for amount, kind in (("cash", "CASH"), ("proportions", "PROPORTION")):
            if amounts[amount] is not None:
                ids = tuple(f"DIVIDEND/{kind}/{name}/{day}" for day in days)
                self.labels[f"{path}.{amount}"] = ids
        return Dividends(self._years(days), **amounts)

    def _dividend_yield(self, name: str, record: DividendYieldRecord) -> float | ZeroCurve:
        """Return the dividend yield of an equity, and record the ids of its quotes."""
        path, quote = f".equities[{name!r}].dividend_yield", f"EQUITY_DIVIDEND/RATE/{name}"
        if record.rates is None:
            self.labels[path] = (quote,)
            return record.rate or 0.0
        pillars = record.pillars(self.asof)
        self.labels[f"{path}.zero_rates"] = tuple(f"{quote}/{day}" for day in pillars)
        return ZeroCurve(self._years(pillars), record.rates)

    def read_cap_vols(self, name: str, value: object):
        record, problems = validate(CapVolsRecord, value, asof=self.asof)
        if name not in self.curves:
            problems = (self._absent("curves", name, self.curves), *problems)
        self.report(problems, "cap_vols", name)
        if record is None or problems:
            return
        quotes, discount = record.quotes(self.asof), self.discount_curves.get(name, name)
        curves = (zero_curve(n, self.curves) for n in (discount, name))
        if unmet := record.unmet(quotes, *curves):
            self.report((unmet,), "cap_vols", name)
            return
        self.cap_vols[name] = quotes
        self.labels[f".cap_vols[{name!r}].quotes"] = record.ids(name)

    def read_fixings(self, name: str, value: object):
        is_asset = name in self.equities or name in self.fx
        is_rate = not is_asset and is_rate_name(name, self.curves)
        level: Any = Rate if is_rate else Spot
        record, problems = validate(RootModel[dict[IsoDate, level]], value)
        if not is_asset and not is_rate:
            problems = (self._absent("equities", name, self.equities),)
        elif record is not None and (late := [day for day in record.root if day > self.asof]):
            message = f"{late[0]} is after the as-of date {self.asof}"
            problems = (ValidationIssue((str(late[0]),), "", message, "give fixings of the past"),)
        elif record is not None:
            bounds = LevelBounds(self.equities, self.fx, self.curves, self.asof)
            problems = bounds.issues(name, record.root)
        self.report(problems, "fixings", name)
        if record is not None and not problems:
            self.fixings |= {(name, day): spot for day, spot in record.root.items()}

    def read_correlation(self, name: str, value: object):
        record, problems = validate(RootModel[Correlation], value)
        problems = problems or self._no_pair(name)
        self.report(problems, "correlations", name)
        if record is not None and not problems:
            one, other = name.split("|")
            self.correlations[one, other] = as_leaf(record.root)
            self.labels[f".correlations[{(one, other)!r}]"] = (f"CORRELATION/{one}/{other}",)

    def _no_pair(self, name: str) -> tuple[ValidationIssue, ...]:
        """Return the problem of a name that is not a new pair of equities or FX rates, if it is not."""
        names = name.split("|")
        if len(names) != 2 or names[0] == names[1]:
            message, remedy = "is not a pair of equities", "name two equities, such as DAX|SX5E"
            return (ValidationIssue((), show(name), f"{show(name)} {message}", remedy),)
        if twin := quoted(names[0], names[1], self.correlations):
            message = f"{show('|'.join(twin))} is the same pair"
            return (ValidationIssue((), show(name), message, "keep one of them"),)
        absent = [name for name in names if name not in {**self.equities, **self.fx}]
        return tuple(self._absent("equities", name, self.equities) for name in absent[:1])

    def check_correlations(self):
        """Leave out correlations whose matrix is not positive definite."""
        pairs = self.correlations
        names = sorted(set(itertools.chain(*pairs)))
        if not pairs or missing_pairs(names, pairs):
            return
        if (least := least_eigenvalue(names, pairs)) <= 0.0:
            message = f"the matrix of {listed(names)} has the eigenvalue {least:g}, not above 0"
            remedy = "correct the numbers: no equities have such correlations"
            self.report((ValidationIssue(("correlations",), "", message, remedy),))
            pairs.clear()

    def check_option_tables(self):
        """Report tables of option quotes whose equity is not in the file."""
        given = self.document.get("equities", {})
        for name, table in self.option_tables.items():
            if name not in given:
                remedy = f"{closest(name, given)}the equities are {listed(given)}"
                place = table.file, int(table.lines[0]), None, NAME, show(name)
                self.errors.append(InputError(*place, "is not an equity of the market", remedy))

    def _absent(self, section: str, name: str, known: Iterable[str], *path: str) -> ValidationIssue:
        """Return the problem of a name that is not among the curves or equities that were read."""
        given, one = self.document.get(section), _SINGULAR[section]
        if isinstance(given, dict) and name in given:
            message = f"the {one} {name!r} is left out for its own error"
            remedy = f"correct the {one}"
        else:
            message = f"there is no {one} {name!r} in this file"
            remedy = f"{closest(name, known)}the {section} are {listed(known)}"
        return ValidationIssue(path, show(name), message, remedy)

    def _not_discounting(self, field_name: str, curve: str) -> tuple[ValidationIssue, ...]:
        """Return the problem of a name that is not that of a discount curve, if it is not."""
        if curve not in self.curves:
            return (self._absent("curves", curve, self.curves, field_name),)
        if curve not in self.discount_curves:
            return ()
        message = f"{show(curve)} is a forward curve, and discounts nothing"
        remedy = f"name its discount curve, {self.discount_curves[curve]}"
        return (ValidationIssue((field_name,), show(curve), message, remedy),)

    def _not_basis(self, curve: str, discount: str | None) -> tuple[ValidationIssue, ...]:
        """Return the problem of a curve that cannot be that of the other leg of basis swaps, if it cannot."""
        place = "basis_swaps", "other_curve"
        if curve not in self.curves:
            return (self._absent("curves", curve, self.curves, *place),)
        own = self.discount_curves.get(curve, curve)
        if own == discount:
            return ()
        message = f"{show(curve)} is discounted on {own}, and this curve on {discount}"
        return (ValidationIssue(place, show(curve), message, "name one with that discount_curve"),)

    def _years(self, dates: tuple[date, ...]) -> list[float]:
        return [(day - self.asof).days / DAYS_PER_YEAR for day in dates]

    def read_swaption_vols(self, value: object):
        record, problems = validate(SwaptionVolsRecord, value)
        curve = (record and record.curve) or self.currency
        if record is not None and record.curve is not None:
            problems = self._not_discounting("curve", curve)
        if record is not None and curve in self.equities:
            message = f"{show(curve)} is the name of an equity too"
            problems = (ValidationIssue(("curve",), "", message, "give the equity another name"),)
        self.report(problems, "swaption_vols")
        if record is None or problems:
            return
        expiries, tenors = record.expiries_years, record.tenors_years
        vols = SwaptionVols(expiries, tenors, record.vols_by_expiry, record.type, curve)
        self.swaption_vols = vols
        self.labels[".swaption_vols.vols"] = record.ids(self.currency)


def read_contents(text: str, file: str, option_quotes: Any = None) -> Contents:
    """Return the usable parts of a market file, and the errors of the rest.

    option_quotes: a table of option quotes, which replace those in the file.

    Raises:
        unreadable: No part is usable (an `UnreadableFile`).
    """
    document, locator = parse_json(text, file), Locator(text)
    if not isinstance(document, dict):
        message = f"{show(document)} is not a market"
        raise unreadable(file, message, "give an object with asof, curves and equities")
    header, problems = validate(_Header, document)
    if header is None:
        remedy = f"give asof, the valuation date, as YYYY-MM-DD, from {FIRST_DAY} to {LAST_DAY}"
        place, value = locator.place(("asof",)), problems[0].value
        raise unreadable(file, problems[0].message, remedy, place=place, field="asof", value=value)
    contents = Contents(document, file, locator, header.asof)
    if option_quotes is not None:
        contents.option_tables = read_option_tables(option_quotes, header.asof)
    contents.read_names()
    sections = {"curves": contents.read_curve, "equities": contents.read_equity}
    sections |= {"fx": contents.read_fx}
    sections |= {"cap_vols": contents.read_cap_vols, "correlations": contents.read_correlation}
    sections |= {"fixings": contents.read_fixings}
    for section, read in sections.items():
        given = contents.section(section)
        # a forward curve comes after the curves that it depends on
        depths = reading_depths(dict(given)) if section == "curves" else {}
        for name, value in sorted(given, key=lambda item: depths.get(item[0], 0)):
            read(name, value)
    contents.check_correlations()
    contents.check_option_tables()
    if document.get("swaption_vols") is not None:
        contents.read_swaption_vols(document["swaption_vols"])
    return contents
