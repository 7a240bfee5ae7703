"""Describe a trade in a few words."""

from typing import Any

from ..products.trade import Trade
from .formats import day, plain

_LEVELS = {"lower": "above {}", "upper": "below {}", "protection": "protection {}"}


def terms(trade: Trade) -> str:
    """Return the terms of a trade, such as "DAX, call 4,600, 7 Jun 2004"."""
    given = {name: value for name, value in vars(trade).items() if value is not None}
    words = [
        trade.underlying.replace("|", " and "),
        *_kind(given),
        *_claim(given),
        *_barriers(given),
    ]
    if "payout" in given:
        words.append(f"pays {plain(given['amount'])} {given['payout']}")
    until = day(trade.expiry)
    words.append(f"{len(trade.dates)} dates to {until}" if trade.dates else until)
    if trade.in_rates and given["maturity"] != trade.expiry:
        words.append(f"swap to {day(given['maturity'])}")
    return ", ".join(words)


def _kind(given: dict[str, Any]) -> list[str]:
    return [str(given[name]) for name in ("average", "side") if name in given]


def _claim(given: dict[str, Any]) -> list[str]:
    level = given.get("strike", given.get("fixed_rate"))
    if level is None:
        return []
    if "option" not in given and "notional" in given:
        return [f"{plain(100.0 * level)} % on {plain(given['notional'])}"]
    return [f"{given.get('option', 'strike')} {plain(level)}"]


def _barriers(given: dict[str, Any]) -> list[str]:
    words = []
    if "barrier" in given:
        words.append(f"{given.get('barrier_type', 'call level')} {plain(given['barrier'])}")
    return words + [
        text.format(plain(given[name])) for name, text in _LEVELS.items() if name in given
    ]
