"""Conversion of a list of option quotes to a surface: mids, strikes, weights, and faulty quotes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxtape import stored_jit

from ..numerics.implied_vol import implied_vol
from .fx_delta import DeltaConvention
from .outliers import outlier
from .surface import VolSurface

Column = Float[np.ndarray, " quotes"]
Matrix = Float[np.ndarray, "expiries strikes"]

LEAST_SPREAD = 0.1
"""The smallest spread that affects weights, as a fraction of the median spread."""

_PAIRS = (("vol", "bid", "ask"), ("price", "bid_price", "ask_price"))


class OptionList(NamedTuple):
    """Unordered option quotes, NaN where a number is missing: arrays of shape (quotes,).

    Attributes:
        expiries: The expiries in years.
        strikes: The strikes, in units of the spot; NaN if a delta is given.
        deltas: The spot deltas, in place of strikes: positive for calls, negative for puts.
        mids: The mids, if they are not the means of bids and asks.
        bids: The bids.
        asks: The asks.
        weights: The factors of the quotes' errors in a fit, if they do not come from the spreads.
        sides: +1 for calls, -1 for puts, 0 where not given.
        by_price: Whether mids, bids and asks are prices instead of vols.
    """

    expiries: Column
    strikes: Column
    deltas: Column
    mids: Column
    bids: Column
    asks: Column
    weights: Column
    sides: Column
    by_price: bool = False

    @property
    def is_there(self) -> np.ndarray:
        """The mask of rows with a number; the others are not quotes."""
        return ~(np.isnan(self.mids) & np.isnan(self.bids) & np.isnan(self.asks))

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of mids, bids and asks in files."""
        return _PAIRS[self.by_price]

    @classmethod
    def of_columns(cls, columns: Mapping[str, np.ndarray]) -> "OptionList":
        """Return the quotes in the columns of a table, such as one of `runs_of`.

        Args:
            columns: The column `expiry` in years, and others by their names in tables; absent columns are
                missing.
        """
        nothing = np.full(columns["expiry"].size, np.nan)
        at = lambda name: np.asarray(columns.get(name, nothing), float)
        by_price = any(np.any(~np.isnan(at(name))) for name in _PAIRS[True])
        sides = np.nan_to_num(at("option"))
        mids, bids, asks = map(at, _PAIRS[by_price])
        expiries, strikes, deltas = map(at, ("expiry", "strike", "delta"))
        places = expiries, strikes, deltas
        return cls(*places, mids, bids, asks, at("weight"), sides, by_price)


class Fault(NamedTuple):
    """A mistake in a quote.

    Attributes:
        row: The index of the quote in the list.
        field: The name of the wrong number in files.
        message: A description of the mistake.
        remedy: The way to correct it.
    """

    row: int
    field: str
    message: str
    remedy: str


class ForwardMarket(NamedTuple):
    """The market data that convert prices and deltas, at the expiries of the quotes.

    Attributes:
        forwards: The forwards.
        discounts: The discount factors.
        growths: The discount factors of the dividend yield.
    """

    forwards: Column
    discounts: Column
    growths: Column


class ListedVols(NamedTuple):
    """A surface in NumPy arrays of shape (expiries, strikes), NaN after the last quote of an expiry.

    Attributes:
        expiries: The expiries, increasing, of shape (expiries,).
        strikes: The strikes of each expiry, increasing, also in the padding after the last quote.
        vols: The mids as vols.
        weights: The weights, 0 after the last quote.
        bids: The bids as vols, NaN where unknown; None if all are unknown.
        asks: The asks, likewise.
        rows: The index of each quote in the list, -1 for padding.
    """

    expiries: np.ndarray
    strikes: Matrix
    vols: Matrix
    weights: Matrix
    bids: Matrix | None
    asks: Matrix | None
    rows: np.ndarray

    @property
    def surface(self) -> VolSurface:
        """The surface."""
        return VolSurface(*self[:-1])


def listed_vols(
    quotes: OptionList, market_at: Callable[[Column], ForwardMarket]
) -> tuple[ListedVols | None, list[Fault]]:
    """Return the vols of the valid quotes, and the faults of the others.

    Prices are those of European options. They are converted to vols, and deltas to strikes, with the market of
    the quotes. Of a call and a put at the same strike, the out-of-the-money option is used. A missing weight is
    m / max(s, m / 10), with s the bid-ask spread in vol and m the median spread, or 1 without a spread.

    Args:
        quotes: The quotes.
        market_at: A function that returns the market data at given expiries in years.

    Returns:
        The vols, None if no quote is valid; and the faults, in the order of the quotes.
    """
    faults, nothing = _faults(quotes), np.full(quotes.expiries.size, np.nan)
    reads_market = quotes.by_price or bool(np.any(~np.isnan(quotes.deltas)))
    market = market_at(quotes.expiries) if reads_market else ForwardMarket(*[nothing] * 3)
    mids = np.where(np.isnan(quotes.mids), 0.5 * (quotes.bids + quotes.asks), quotes.mids)
    sound = quotes.is_there
    sound[[fault.row for fault in faults]] = False
    vols = mids, quotes.bids, quotes.asks
    if quotes.by_price:
        vols, more = _vols_of_prices(quotes, vols, market, np.flatnonzero(sound))
        sound[[fault.row for fault in more]] = False
        faults += more
    strikes = np.where(np.isnan(quotes.strikes), _strikes(quotes, vols[0], market), quotes.strikes)
    no_strike = "no strike has this delta", "give one nearer to 0, or the strike"
    faults += [
        Fault(r, "delta", *no_strike) for r in np.flatnonzero(sound & np.isnan(strikes)).tolist()
    ]
    sound &= ~np.isnan(strikes)
    if quotes.by_price:
        sound &= ~_in_the_money_twins(quotes, strikes, market.forwards, sound)
    order = np.lexsort((strikes, quotes.expiries))
    order = order[sound[order]]
    for row, before in _twins(quotes.expiries, strikes, order):
        later = max(row, before)
        at = f"expiry {quotes.expiries[row]:.6g} at strike {strikes[row]:.10g}"
        faults.append(Fault(later, "", f"the quote of {at} appears twice", "keep one of them"))
        order = order[order != later]
    while fault := odd_vol(quotes.expiries, strikes, vols[0], order):
        field = quotes.names[1 if np.isnan(quotes.mids[fault.row]) else 0]
        faults.append(fault._replace(field=field))
        order = order[order != fault.row]
    return _in_rows(quotes, strikes, vols, order) if order.size else None, sorted(faults)


def _faults(quotes: OptionList) -> list[Fault]:
    """Return the first fault of each quote that is visible in its own numbers."""
    found: dict[int, Fault] = {}
    is_there = quotes.is_there
    for field, wrong, message, remedy in (*_tests_of_levels(quotes), *_tests_of_places(quotes)):
        for row in np.flatnonzero(wrong & is_there).tolist():
            found.setdefault(row, Fault(row, field, message, remedy))
    return list(found.values())


def _tests_of_levels(quotes: OptionList) -> Iterator[tuple[str, np.ndarray, str, str]]:
    """Yield the field, the mask of wrong quotes, the message and the remedy of each test of levels."""
    mid, bid, ask = quotes.names
    no_bid, no_ask = np.isnan(quotes.bids), np.isnan(quotes.asks)
    alone = f"give both {bid} and {ask}, or the {mid} alone"
    yield bid, no_bid & ~no_ask, f"is missing beside the {ask}", alone
    yield ask, no_ask & ~no_bid, f"is missing beside the {bid}", alone
    remedy = f"leave the quote out, or give {mid} alone"
    yield bid, quotes.bids <= 0.0, "a bid of 0 is not a quote", remedy
    crossed = "is crossed: the bid is above the ask"
    yield bid, quotes.bids > quotes.asks, crossed, "correct one of them, or leave the quote out"
    yield mid, quotes.mids <= 0.0, "a price or vol of 0 is not a quote", "leave it out"
    is_beyond = (quotes.mids < quotes.bids) | (quotes.mids > quotes.asks)
    yield mid, is_beyond, "is not between bid and ask", "leave it out: it defaults to their mean"


def _tests_of_places(quotes: OptionList) -> Iterator[tuple[str, np.ndarray, str, str]]:
    """Yield the same for the tests of strikes, deltas and options."""
    strikes, deltas = quotes.strikes, quotes.deltas
    message = "a quote has a strike or a delta, and not both"
    yield "strike", np.isnan(strikes) == np.isnan(deltas), message, "give one of them"
    remedy = "give one between -1 and 1, negative for a put"
    yield "delta", (np.abs(deltas) >= 1.0) | (deltas == 0.0), "no strike has this delta", remedy
    remedy = "give a positive one for a call, a negative one for a put"
    yield "delta", quotes.sides * deltas < 0.0, "does not have the sign of its option", remedy
    if quotes.by_price:
        is_open, needs = (quotes.sides == 0.0) | np.isnan(strikes), "option and strike"
        yield "option", is_open, f"a price needs its {needs}", "give call or put, and a strike"


def _vols_of_prices(
    quotes: OptionList, prices: tuple, market: ForwardMarket, rows: np.ndarray
) -> tuple[tuple[Column, Column, Column], list[Fault]]:
    """Return the vols of mids, bids and asks at some rows, and the faults of rows without a vol.

    A bid at or below the intrinsic value has a vol of 0.
    """
    found, faults = np.full((3, quotes.strikes.size), np.nan), {}
    if rows.size:
        forwards, strikes, sides = market.forwards[rows], quotes.strikes[rows], quotes.sides[rows]
        values = np.stack(prices)[:, rows] / market.discounts[rows]
        floor = np.maximum(sides * (forwards - strikes), 0.0)
        ceiling = np.where(sides > 0.0, forwards, strikes)
        vols = _implied(values, forwards, strikes, quotes.expiries[rows], sides)
        vols[1, values[1] <= floor] = 0.0
        found[:, rows] = vols
        for name, place in ((quotes.names[0], 0), (quotes.names[2], 2)):
            for at in np.flatnonzero(np.isnan(vols[place]) & ~np.isnan(values[place])).tolist():
                low, high = (market.discounts[rows[at]] * x[at] for x in (floor, ceiling))
                message = (
                    f"{prices[place][rows[at]]:g} is not between {low:.6g} and {high:.6g}, where a European "
                    "option has a vol"
                )
                remedy = "correct it, the spot, the curve or the dividends, or leave the quote out"
                faults.setdefault(int(rows[at]), Fault(int(rows[at]), name, message, remedy))
    return (found[0], found[1], found[2]), list(faults.values())


def _implied(
    values: np.ndarray, forwards: Column, strikes: Column, expiries: Column, sides: Column
) -> np.ndarray:
    """Return implied vols, NaN where there is none; lists are padded to powers of two to share programs."""
    size = 2 ** (strikes.size - 1).bit_length()
    wide = lambda x: np.concatenate([x, np.repeat(x[..., -1:], size - strikes.size, axis=-1)], -1)
    numbers = (wide(x) for x in (values, forwards, strikes, expiries, sides))
    return np.array(_implied_vols(*numbers))[:, : strikes.size]


@stored_jit
def _implied_vols(values, forwards, strikes, expiries, sides):
    return implied_vol(values, forwards, strikes, expiries, sides)


def _strikes(quotes: OptionList, vols: Column, market: ForwardMarket) -> np.ndarray:
    """Return the strikes of the quotes with a delta, NaN for the others."""
    found, rows = np.full(vols.size, np.nan), np.flatnonzero(~np.isnan(quotes.deltas) & (vols > 0))
    if rows.size:
        deltas, std = quotes.deltas[rows], vols[rows] * np.sqrt(quotes.expiries[rows])
        given = np.abs(deltas), np.sign(deltas), market.forwards[rows], std, market.growths[rows]
        found[rows] = np.asarray(DeltaConvention().strike(*given))
    return found


def _in_the_money_twins(
    quotes: OptionList, strikes: Column, forwards: Column, sound: np.ndarray
) -> np.ndarray:
    """Return the mask of in-the-money options with an out-of-the-money quote at the same strike."""
    is_out = np.where(quotes.sides > 0.0, strikes >= forwards, strikes < forwards)
    pairs = list(zip(quotes.expiries.tolist(), strikes.tolist(), strict=True))
    out = {pairs[row] for row in np.flatnonzero(is_out & sound)}
    return ~is_out & np.array([pair in out for pair in pairs], bool)


def _twins(expiries: Column, strikes: Column, order: np.ndarray) -> list[tuple[int, int]]:
    """Return adjacent pairs, in order, with the same expiry and strike."""
    in_order = strikes[order]
    is_close = np.abs(np.diff(in_order)) <= 1e-9 * in_order[1:]
    places = np.flatnonzero((np.diff(expiries[order]) == 0.0) & is_close) + 1
    return [(int(order[place]), int(order[place - 1])) for place in places]


def _weights(given: Column, spreads: Column) -> Column:
    """Return the weights of quotes: given, from their spreads, or 1."""
    known = spreads[~np.isnan(spreads)]
    usual = float(np.median(known)) if known.size else 0.0
    spreads = np.where(np.isnan(spreads), usual, spreads)
    by_spread = (
        usual / np.maximum(spreads, LEAST_SPREAD * usual) if usual else np.ones_like(spreads)
    )
    return np.where(np.isnan(given), by_spread, given)


def odd_vol(
    expiries: Column, strikes: Column, vols: Column, rows: Any = slice(None)
) -> Fault | None:
    """Return the fault of a vol that is far from its neighbours, or None.

    Args:
        expiries: The expiry of each quote.
        strikes: The strike of each.
        vols: The vol of each.
        rows: The places of the quotes to compare.
    """
    if (found := outlier(expiries[rows], strikes[rows], vols[rows])) is None:
        return None
    row = int(np.arange(vols.size)[rows][found.place])
    return Fault(row, "vol", found.message, "correct it, or leave the quote out")


def _in_rows(
    quotes: OptionList, strikes: Column, vols: Sequence[Column], order: np.ndarray
) -> ListedVols:
    """Return sorted quotes as one row per expiry, padded to a power of two of strikes."""
    expiries, which = np.unique(quotes.expiries[order], return_inverse=True)
    counts = np.bincount(which)
    places = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    size = 2 ** (int(np.max(counts)) - 1).bit_length()

    def wide(values: np.ndarray, missing: float | int) -> np.ndarray:
        found = np.full((expiries.size, size), missing, values.dtype)
        found[which, places] = values[order]
        return found

    last = np.zeros(expiries.size)
    np.maximum.at(last, which, strikes[order])
    beyond = np.arange(size)[None, :] - counts[:, None] + 1
    rows = wide(strikes, np.nan)
    rows = np.where(beyond > 0, last[:, None] * (1.0 + beyond), rows)
    mids, bids, asks = vols
    weights = np.full(mids.size, np.nan)
    weights[order] = _weights(quotes.weights[order], (asks - bids)[order])
    has_sides = bool(np.any(~np.isnan(asks[order])))
    return ListedVols(
        *(expiries, rows, wide(mids, np.nan), wide(weights, 0.0)),
        wide(bids, np.nan) if has_sides else None,
        wide(asks, np.nan) if has_sides else None,
        wide(np.arange(mids.size), -1),
    )
