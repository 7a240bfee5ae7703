"""The quotes of a market that a file would not take beside the others, such as a vol of 2.3 among .23."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import numpy as np

from .basis_swaps import BasisSwaps
from .bootstrap import CurveQuotes
from .cap_quotes import CapQuotes
from .fx_vols import NO_SMILE
from .outliers import Outlier, odd_rate, odd_wing, outlier
from .quote_bounds import rate_vol_slip, slip_of
from .surface import VolSurface

Found = Iterator[tuple[Any, str]]


def odd_quotes(market: Any) -> dict[str, str]:
    """Return quote id -> the reason why it is probably in another unit, by the rules of market files.

    Args:
        market: The `Market`, with known numbers.
    """
    ids = market.quote_ids()
    found = [*_of_curves(market, ids), *_of_equities(market, ids), *_of_pairs(market, ids)]
    for name, quoted in market.cap_vols.items():
        if isinstance(quoted, CapQuotes) and quoted.unit == "vols":
            found += _of_matrix(quoted.quotes, ids.cap_vols[name].quotes, quoted.kind)
    if (quoted := market.swaption_vols) is not None:
        wanted: Any = ids.swaption_vols
        found += _of_matrix(quoted.vols, wanted.vols, quoted.kind)
    return {quote: message for quote, message in found if quote}


def check_moves(before: Any, after: Any, moving: Collection[str], *, confirmed: bool) -> None:
    """Check the quotes of a market after some moves.

    Args:
        before: The `Market` before the moves.
        after: The `Market` after them.
        moving: The ids of the quotes that moved.
        confirmed: Whether a number that is probably in another unit is right.

    Raises:
        ValueError: A number is probably in another unit, or the quotes of an FX pair have no smile.
    """
    odd = {} if confirmed else newly_odd(before, after, moving)
    for quote, message in odd.items():
        raise ValueError(f"{quote}: {message}; correct it, or give confirmed=True")
    for quote, message in smile_faults(after, moving).items():
        raise ValueError(f"{quote}: {message}; correct the numbers")


def newly_odd(before: Any, after: Any, moving: Collection[str]) -> dict[str, str]:
    """Return the odd quotes of a market that some moves made odd, by id, with the reasons.

    Args:
        before: The `Market` before the moves.
        after: The `Market` after them.
        moving: The ids of the quotes that moved.
    """
    found = odd_quotes(after)
    if not found:
        return found
    known = odd_quotes(before).keys() - set(moving)
    return {quote: why for quote, why in found.items() if quote not in known}


def smile_faults(market: Any, moving: Collection[str]) -> dict[str, str]:
    """Return quote id -> the fault of FX smiles whose quotes moved, by the first expiry with a fault.

    Args:
        market: The `Market` after the moves.
        moving: The ids of the quotes that moved.
    """
    found, ids = {}, market.quote_ids()
    for name, pair in market.fx.items():
        if pair.vols is None or set(moving).isdisjoint(ids.fx[name].vols.quotes):
            continue
        if (wrong := market.asset(name).surface.first_fault()) is not None:
            found[ids.fx[name].vols.at_the_money[wrong]] = f"the quotes of this expiry {NO_SMILE}"
    return found


def _of_curves(market: Any, ids: Any) -> Found:
    for name, curve in market.curves.items():
        own = ids.curves[name]
        if isinstance(curve, CurveQuotes):
            pairs = zip(curve.instruments, own.instruments, strict=True)
            kinds = [(x, of.quotes) for x, of in pairs if not isinstance(x, BasisSwaps)]
            rates = [rate for kind, _ in kinds for rate in np.ravel(kind.rates)]
            quotes = [quote for _, of in kinds for quote in np.ravel(of)]
        else:
            rates, quotes = np.ravel(curve.zero_rates), np.ravel(own.zero_rates)
        yield from _far(odd_rate, rates, quotes)


def _of_equities(market: Any, ids: Any) -> Found:
    for name, equity in market.equities.items():
        surface = equity.surface
        if not isinstance(surface, VolSurface):
            continue
        vols, quotes = np.asarray(surface.vols), np.ravel(ids.equities[name].surface.vols)
        strikes = np.broadcast_to(surface.strikes, vols.shape)
        yield from _far(partial(outlier, np.indices(vols.shape)[0], strikes), vols, quotes)
        if slip := slip_of(float(equity.spot), surface.all_strikes, vols):
            is_vol = slip.field == "vol"
            yield (quotes[0] if is_vol else ids.equities[name].spot.item()), slip.message


def _of_pairs(market: Any, ids: Any) -> Found:
    for name, pair in market.fx.items():
        if pair.vols is None:
            continue
        own, money = ids.fx[name].vols, np.asarray(pair.vols.at_the_money)
        is_odd = partial(outlier, np.arange(money.size), np.zeros_like(money))
        yield from _far(is_odd, money, own.at_the_money)
        if slip := slip_of(1.0, [], money):
            yield own.at_the_money[0], slip.message
        for label in ("risk_reversals", "butterflies"):
            wings, quotes = np.asarray(getattr(pair.vols, label)), getattr(own, label)
            for column, of_column in zip(wings.T, quotes.T, strict=True):
                if odd := odd_wing(column, money):
                    yield of_column[odd.place], odd.message


def _of_matrix(vols: Any, ids: Any, kind: str) -> Found:
    """Yield the odd quotes of a matrix of vols with an expiry or a maturity in each row."""
    vols, quotes = np.asarray(vols), np.ravel(ids)
    rows, columns = np.indices(vols.shape)
    yield from _far(partial(outlier, rows, columns), vols, quotes)
    if slip := rate_vol_slip(kind, vols):
        yield quotes[0], slip.message


def _far(odd_of: Callable[[Any], Outlier | None], numbers: Any, ids: Any) -> Found:
    """Yield the quotes far from their neighbours, the furthest first, each compared without those before."""
    rest = np.array(np.ravel(numbers), float)
    while odd := odd_of(rest):
        yield ids[odd.place], odd.message
        rest[odd.place] = np.nan
