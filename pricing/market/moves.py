"""Moves of quotes: new numbers by quote id, checked like a market file's, accepted all or none."""

from collections.abc import Iterable, Mapping
from typing import Any

from pricing.ingestion.errors import InputError, show
from pricing.ingestion.field_types import closest

from .bootstrap import CurveQuotes, in_order
from .cap_quotes import first_unmet
from .correlations import least_eigenvalue, missing_pairs
from .market import Market, replaced
from .odd_quotes import newly_odd, smile_faults
from .quote_kinds import kind_of, read_quote

_SCALES = {
    **dict.fromkeys(
        (
            *("ZERO/RATE", "MM/RATE", "FRA/RATE", "OIS/RATE", "IR_SWAP/RATE"),
            *("BASIS_SWAP/BASIS_SPREAD", "EQUITY_DIVIDEND/RATE"),
        ),
        (0.1, (1e4, "basis points")),
    ),
    "DIVIDEND/CASH": (0.1, (100.0, "% of the spot")),
    "DIVIDEND/PROPORTION": (0.1, (100.0, "% of the spot")),
    **dict.fromkeys(
        ("FX_OPTION/RISK_REVERSAL", "FX_OPTION/BUTTERFLY"), (0.1, (100.0, "vol points"))
    ),
    "MM_FUTURE/PRICE": (10.0, (1.0, "points")),
    "CORRELATION": (1.0, (1.0, "of correlation")),
}
"""Kinds of quotes with absolute moves -> the unit scale of a move, and the unit in words.

Moves of cash dividends are measured relative to the spot.
"""

_HINTED = 20  # errors with a hint at the closest quote, which is slow to find


def moved(
    market: Market,
    values: Mapping[str, object],
    file: str = "quotes.json",
    most: float | None = None,
    *,
    confirmed: bool = False,
) -> tuple[Market, tuple[InputError, ...]]:
    """Return the market with some quotes moved, or the unchanged market and every error of the move.

    A quote must satisfy the bounds of market files. Zero rates and caplet vols must still reprice the quotes of
    curves and caps, and the correlation matrix must stay positive definite.

    Args:
        market: The market.
        values: Quote id -> its new number.
        file: The name of the values in error messages.
        most: The largest move of a quote. For a price or a vol it is relative (0.5: up by a factor of 1.5, or
            down by the same factor); for other quotes it is in units of 0.1 (1,000 basis points) for a rate, 10
            % of the spot for a dividend, 10 points for a futures price and 1 for a correlation. None: any move
            within the bounds.
        confirmed: Whether to take numbers that are probably in another unit (see `Market.with_quotes`).

    Returns:
        The market, and the errors. A single error leaves every quote unchanged.

    Examples:
        >>> from pricing import Market
        >>> text = '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        >>> market, errors = moved(Market.from_text(text), {"ZERO/RATE/EUR/2002-07-05": 4})
        >>> print(errors[0])
        quotes.json: field 'ZERO/RATE/EUR/2002-07-05': 4 is larger than 1; give a rate >= -0.2 and <= 1, as a decimal: 1 % is 0.01
    """  # noqa: E501
    known, numbers, errors = dict(market.flat_quotes()), {}, []

    def report(quote: str, value: str, message: str, remedy: str) -> None:
        errors.append(InputError(file, None, None, quote, value, message, remedy))

    for quote, value in values.items():
        if quote not in known:
            hint = closest(quote, known) if len(errors) < _HINTED else ""
            remedy = f"{hint}give the id of a quote of the market"
            report(quote, show(value), "is not a quote of this market", remedy)
            continue
        kind = kind_of(quote)
        number, problems = read_quote(quote, value)
        for problem in problems:
            report(quote, problem.value, problem.message, problem.remedy)
        if number is not None:
            numbers[quote] = number
            spot = _spot_of(quote, market) if kind == "DIVIDEND/CASH" else 1.0
            if most is not None and (far := _too_far(kind, known[quote], number, most, spot)):
                remedy = "correct it, or move there in smaller steps (jaxtape serve: --max-move)"
                report(quote, show(value), far, remedy)
    if errors or not numbers:
        return market, tuple(errors)
    after = replaced(market, numbers)
    for quote, message in () if confirmed else newly_odd(market, after, numbers).items():
        value = show(values[quote]) if quote in values else ""
        report(quote, value, message, 'correct it, or confirm it: "confirmed": true')
    if errors:
        return market, tuple(errors)
    for quote, message, remedy in _contradictions(after, numbers):
        report(quote, "", message, remedy)
    return (market, tuple(errors)) if errors else (after, ())


def _spot_of(quote: str, market: Market) -> float:
    """Return the spot of the equity of a dividend."""
    return float(market.equities[quote.split("/", 2)[2].rpartition("/")[0]].spot)


def _too_far(kind: str, before: float, after: float, most: float, one: float = 1.0) -> str:
    """Return the reason why a move exceeds the bound, or "".

    one: the unit of an absolute move.
    """
    if kind in _SCALES:
        scale, unit = _SCALES[kind]
        move, bound = abs(after - before) / one, most * scale
        said, allowed = (f"{x * unit[0]:.6g} {unit[1]}" for x in (move, bound))
    else:
        move, bound = max(after, before) / min(after, before) - 1.0, most
        said, allowed = (f"{100.0 * x:.6g} %" for x in (move, bound))
    if move <= bound * (1.0 + 1e-9):
        return ""
    return f"{after:.10g} is {said} from {before:.10g}, and at most {allowed} are taken at once"


def _contradictions(market: Market, moved_ids: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the quotes that are inconsistent after a move, each with a message and a remedy."""
    found, ids, moving = [], market.quote_ids(), set(moved_ids)
    own = {
        name: [q for kind in ids.curves[name].quotes for q in kind]
        if isinstance(curve, CurveQuotes)
        else []
        for name, curve in market.curves.items()
    }
    for name, curve in market.curves.items():
        if not isinstance(curve, CurveQuotes):
            continue
        quotes = own[name]
        depends = {quote for before in in_order(market.curves, [name]) for quote in own[before]}
        if moving & depends and (unmet := market.first_unmet(name)) is not None:
            message = "no zero rate reprices it after those before it"
            found.append((quotes[unmet], message, "correct it, or one before it"))
    for name in market.cap_vols if moving else ():
        if (unmet := first_unmet(market.caplet_vols(name, throw=False))) is not None:
            caps: Any = ids.cap_vols[name]
            message = "no caplet vol gives it after the caps before it, on the curves as they are"
            found.append((caps.quotes[unmet], message, "correct it, or what moves the curves"))
    for name, equity in market.equities.items():
        paid, spots = equity.dividends, {ids.equities[name].spot.item()}
        if paid is None or paid.cash is None:
            continue
        amounts: Any = ids.equities[name].dividends
        if moving & (spots | set(amounts.cash)) and float(paid.owed) >= float(equity.spot):
            message = (
                f"the dividends of {name} are {paid.owed:g}, more than the spot, {equity.spot:g}"
            )
            found.append((*spots, message, "correct the numbers"))
    faults = smile_faults(market, moving)
    found += [(quote, message, "correct the numbers") for quote, message in faults.items()]
    pairs = market.correlations
    if moving & {ids.correlations[pair].item() for pair in pairs}:
        names = sorted({name for pair in pairs for name in pair})
        if not missing_pairs(names, pairs) and (least := least_eigenvalue(names, pairs)) <= 0.0:
            message = f"the matrix of correlations has the eigenvalue {least:g}, not above 0"
            found.append(("CORRELATION", message, "correct the numbers"))
    return found
