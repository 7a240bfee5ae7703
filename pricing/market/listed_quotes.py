"""Listed option quotes of a market: the list of an equity in the market file, or the rows of a table."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from pydantic import model_validator

from jaxtape import stored_jit

from ..ingestion.errors import InputError, show
from ..ingestion.field_types import choice, number, problem
from ..ingestion.validation import ValidationIssue, validate
from .bootstrap import CurveQuotes
from .curve import ZeroCurve
from .dividends import Dividends
from .option_list import Fault, ForwardMarket, ListedVols, OptionList, listed_vols
from .option_tables import OptionTable
from .quote_bounds import BOUNDS, slip_of
from .quote_checks import first_fault
from .quote_tables import LEVELS
from .records import Days, EquityRecord, IsoDate, Record, Strike, Vol
from .surface import VolSurface

_DAYS_PER_YEAR = 365.0
_SIDES = {"call": 1.0, "put": -1.0}
Price = Annotated[float, number("price", **BOUNDS["price"])]


class OptionQuoteRecord(Record):
    """One quote of the list."""

    expiry: IsoDate | None = None
    days: Days | None = None
    strike: Strike | None = None
    delta: Annotated[float, number("delta", **BOUNDS["delta"])] | None = None
    option: Annotated[str, choice("call", "put")] | None = None
    vol: Vol | None = None
    bid: Annotated[float, number("bid", **BOUNDS["bid"])] | None = None
    ask: Annotated[float, number("ask", **BOUNDS["ask"])] | None = None
    price: Price | None = None
    bid_price: Price | None = None
    ask_price: Price | None = None
    weight: Annotated[float, number("weight", **BOUNDS["weight"])] | None = None

    @model_validator(mode="after")
    def _check(self, info):
        if (self.expiry is None) == (self.days is None):
            raise problem("needs an expiry or days", "give one of them")
        if (day := self.day(info.context["asof"])) <= info.context["asof"]:
            label = "expiry" if self.days is None else "days"
            raise problem(f"{day} is not after the as-of date", "leave the quote out", label)
        given = [name for name in LEVELS if getattr(self, name) is not None]
        if {*given} & {*LEVELS[:3]} and {*given} & {*LEVELS[3:]}:
            raise problem("has a vol and a price", "give the quote as one of them", given[-1])
        return self

    @property
    def by_price(self) -> bool | None:
        """Whether the quote is a price; None if it has no number."""
        given = [name for name in LEVELS if getattr(self, name) is not None]
        return given[0] in LEVELS[3:] if given else None

    def day(self, asof: date) -> date:
        """Return the expiry."""
        return self.expiry or asof + timedelta(days=self.days or 0)


class EquityMarket(NamedTuple):
    """The market data of an equity for converting its option quotes.

    Attributes:
        spot: Its spot.
        dividend_yield: Its dividend yield, a number or a curve.
        dividends: Its dividends on known dates, or None.
        curve: Its discount curve.
    """

    spot: float
    dividend_yield: float | ZeroCurve
    dividends: Dividends | None
    curve: ZeroCurve | CurveQuotes

    def at(self, t: np.ndarray) -> ForwardMarket:
        """Return forwards and discount factors at times in years."""
        size = 2 ** (t.size - 1).bit_length()
        times = jnp.asarray(np.append(t, np.repeat(t[-1:], size - t.size)))
        found = _forward_market(
            *(times, jnp.asarray(self.spot), self.dividend_yield, self.dividends),
            self.curve.bootstrapped(),
        )
        return ForwardMarket(*(np.asarray(x)[: t.size] for x in found))


@stored_jit
def _forward_market(t, spot, dividend_yield, dividends: Dividends | None, curve: ZeroCurve):
    """Return F(t) = R(t) (S - b(0)) + b(t), with R the growth factor and b the value of later cash."""

    def yields(t):
        if isinstance(dividend_yield, ZeroCurve):
            return dividend_yield.discount(t)
        return jnp.exp(-dividend_yield * t)

    if dividends is None:
        return spot * yields(t) / curve.discount(t), curve.discount(t), yields(t)
    growth = lambda t: yields(t) / curve.discount(t) * dividends.kept(t)
    start = spot - dividends.value_after(jnp.zeros_like(spot), growth)
    forwards = growth(t) * start + dividends.value_after(t, growth)
    return forwards, curve.discount(t), yields(t)


class ListedQuotes(NamedTuple):
    """The surface of an equity from a list of quotes.

    Attributes:
        vols: The valid quotes; None if there are none.
        names: The name of each row in quote ids: an expiry, and a strike or a delta.
        problems: The mistakes in the other quotes, with their paths in the list.
    """

    vols: ListedVols | None
    names: tuple[str, ...]
    problems: tuple[ValidationIssue, ...]

    def ids(self, kind: str) -> tuple[str, ...]:
        """Return the ids of the quotes in row-major order, "" where there is no quote; `kind` is the prefix."""
        assert self.vols is not None
        return tuple(f"{kind}/{self.names[i]}" if i >= 0 else "" for i in self.vols.rows.flat)


class EquityQuotes(NamedTuple):
    """The quotes of the options on an equity.

    Attributes:
        surface: The surface; None if no quote is valid.
        ids: The ids of its quotes in row-major order, "" where there is no quote.
        problems: The mistakes in the market file.
        errors: The mistakes in a table.
    """

    surface: VolSurface | None
    ids: tuple[str, ...] = ()
    problems: tuple[ValidationIssue, ...] = ()
    errors: tuple[InputError, ...] = ()


def quotes_of_equity(
    name: str, record: EquityRecord, table: OptionTable | None, market: EquityMarket, asof: date
) -> EquityQuotes:
    """Return the quotes of an equity, from a table or else from the market file.

    Args:
        name: The equity.
        record: The equity in the file.
        table: Its rows in a table, or None.
        market: The market data of the equity.
        asof: The date of the market.
    """
    kind, vols, errors = f"EQUITY_OPTION/RATE_LNVOL/{name}", record.implied_vols, ()
    if table is not None:
        path, found = (), of_table(table, market, asof)
        found, errors = found._replace(problems=()), input_errors(found, table)
    elif vols is None:
        path, found = ("option_quotes",), _of_list(record.option_quotes or (), market, asof)
    else:
        path, expiries, rows = ("implied_vols",), vols.pillars(asof), vols.vols_by_expiry
        if not any(vol is None for row in rows for vol in row):
            times = [(day - asof).days / _DAYS_PER_YEAR for day in expiries]
            surface = VolSurface(times, vols.strikes, rows)  # pyright: ignore[reportArgumentType]
            pairs = itertools.product(expiries, vols.strikes)
            return EquityQuotes(surface, tuple(f"{kind}/{day}/{_plain(k)}" for day, k in pairs))
        quotes = [
            {"expiry": day, "strike": strike, "vol": vol}
            for day, row in zip(expiries, rows, strict=True)
            for strike, vol in zip(vols.strikes, row, strict=True)
            if vol is not None
        ]
        found = _of_list(quotes, market, asof)
    problems = tuple(replace(each, path=(*path, *each.path)) for each in found.problems)
    if found.vols is None:
        none = ValidationIssue(path, "", "no quote is valid", "correct one of them")
        return EquityQuotes(None, (), (*problems, none), errors)
    return EquityQuotes(found.vols.surface, found.ids(kind), problems, errors)


def _of_list(rows: Iterable[object], market: EquityMarket, asof: date) -> ListedQuotes:
    """Return the surface of the quotes of a list in a market file.

    Args:
        rows: The quotes, each an object.
        market: The market data of the equity.
        asof: The date of the market.
    """
    records, places, problems = [], [], []
    for place, row in enumerate(rows):
        record, wrong = validate(OptionQuoteRecord, row, asof=asof)
        problems += [replace(issue, path=(place, *issue.path)) for issue in wrong]
        if record is not None and record.by_price is not None:
            if record.by_price != (records or [record])[0].by_price:
                message = "the list mixes prices and vols"
                remedy = "give all quotes of an equity as prices or all as vols"
                problems.append(ValidationIssue((place,), "", message, remedy))
                continue
            records.append(record)
            places.append(place)
    if not records:
        return ListedQuotes(None, (), tuple(problems))
    columns = _columns(records, asof)
    found, faults = listed_vols(OptionList.of_columns(columns), market.at)
    faults = [fault._replace(row=places[fault.row]) for fault in faults]
    names = _names([record.day(asof) for record in records], columns)
    rows = list(rows)
    problems += [_issue(fault, _given(rows[fault.row], fault.field)) for fault in faults]
    return _checked(ListedQuotes(found, names, tuple(problems)), market.spot)


def of_table(table: OptionTable, market: EquityMarket, asof: date) -> ListedQuotes:
    """Return the surface of an equity's rows in a table.

    Args:
        table: The rows.
        market: The market data of the equity.
        asof: The date of the market.
    """
    constant = {"spot": market.spot, "rate": 0.0, "dividend_yield": 0.0}
    count = table.lines.size
    own = {**table.columns, **{name: np.full(count, value) for name, value in constant.items()}}
    if (fault := first_fault(own)) is not None:
        return ListedQuotes(None, (), (_issue(fault, _cell(fault, own)),))
    found, faults = listed_vols(OptionList.of_columns(own), market.at)
    days = [asof + timedelta(days=round(_DAYS_PER_YEAR * t)) for t in own["expiry"].tolist()]
    issues = tuple(_issue(fault, _cell(fault, own)) for fault in faults)
    return _checked(ListedQuotes(found, _names(days, own), issues), market.spot)


def input_errors(found: ListedQuotes, table: OptionTable) -> tuple[InputError, ...]:
    """Return the problems of the rows of a table, with their lines."""
    return tuple(
        InputError(
            table.file,
            int(table.lines[int(issue.path[0])]) if issue.path else None,
            None,
            ".".join(map(str, issue.path[1:])),
            issue.value,
            issue.message,
            issue.remedy,
        )
        for issue in found.problems
    )


def _columns(records: list[OptionQuoteRecord], asof: date) -> dict[str, np.ndarray]:
    """Return the numbers of records as columns, NaN where missing."""
    names = ("strike", "delta", *LEVELS, "weight")
    number_of = lambda record, name: (
        np.nan if getattr(record, name) is None else getattr(record, name)
    )
    columns = {name: np.array([number_of(x, name) for x in records], float) for name in names}
    columns["option"] = np.array([_SIDES.get(x.option or "", 0.0) for x in records])
    days = [(record.day(asof) - asof).days for record in records]
    columns["expiry"] = np.array(days, float) / _DAYS_PER_YEAR
    return columns


def _names(days: Iterable[date], columns: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the names of rows in quote ids: the expiry, and the strike or the delta."""

    def place(strike: float, delta: float) -> str:
        if np.isnan(strike):
            return f"{100.0 * abs(delta):.10g}{'C' if delta > 0.0 else 'P'}"
        return _plain(strike)

    nothing = np.full(len(columns["strike"]), np.nan)
    pairs = zip(columns["strike"].tolist(), columns.get("delta", nothing).tolist(), strict=True)
    return tuple(f"{day}/{place(*pair)}" for day, pair in zip(days, pairs, strict=True))


def _plain(value: float) -> str:
    """Return a strike as plain text: no exponent, no trailing zeros."""
    return str(int(value)) if value.is_integer() else repr(value)


def _given(row: object, field: str) -> Any:
    return row.get(field) if isinstance(row, dict) else None


def _cell(fault: Fault, columns: Mapping[str, np.ndarray]) -> Any:
    column = columns.get(fault.field)
    return None if column is None else column[fault.row].item()


def _issue(fault: Fault, value: Any) -> ValidationIssue:
    path = (fault.row, fault.field) if fault.field else (fault.row,)
    return ValidationIssue(path, "" if value is None else show(value), fault.message, fault.remedy)


def _checked(found: ListedQuotes, spot: float) -> ListedQuotes:
    """Return a surface, with its vols dropped if they or the strikes are in another unit."""
    if found.vols is None:
        return found
    slip = slip_of(spot, found.vols.strikes[found.vols.rows >= 0], found.vols.vols)
    if slip is None:
        return found
    issue = ValidationIssue((), "", slip.message, slip.remedy)
    return found._replace(vols=None, problems=(*found.problems, issue))
