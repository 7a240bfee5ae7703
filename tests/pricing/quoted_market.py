"""A market whose one curve is quoted by deposits, futures and swaps."""

import datetime as dt
import functools
import json

from pricing import CurveQuotes, Market

ASOF = dt.date(2024, 1, 5)
QUOTED = {
    "deposits": {"tenors": ["1D", "1W", "3m"], "rates": [0.0385, 0.039, 0.0392]},
    "futures": {
        "starts": ["2024-03-20", "2024-06-19", "2024-09-18"],
        "prices": [96.2, 96.7, 97.0],
        "convexity": [1e-5, 2e-5, 4e-5],
    },
    "swaps": {
        "tenors": ["18M", "2Y", "5Y", "10Y", "30Y"],
        "rates": [0.031, 0.029, 0.026, 0.0265, 0.025],
        "frequency": "semiannual",
    },
}
SURFACE = {
    "expiries": ["2024-07-05", "2027-01-05"],
    "strikes": [80.0, 120.0],
    "vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]],
}
DOCUMENT = {
    "asof": str(ASOF),
    "currency": "EUR",
    "curves": {"EUR": QUOTED},
    "equities": {"S": {"curve": "EUR", "spot": 100.0, "implied_vols": SURFACE}},
    "swaption_vols": {
        "type": "normal",
        "expiries_years": [1],
        "tenors_years": [5],
        "vols_by_expiry": [[0.009]],
    },
}
TOO_HIGH = {"IR_SWAP/RATE/EUR/30Y": 0.5}
"""A quote that no curve reprices."""


def market(**quotes: float) -> Market:
    return Market.from_text(json.dumps(DOCUMENT)).with_quotes(quotes, confirmed=True)


@functools.cache
def quotes() -> CurveQuotes:
    return market().curves["EUR"]
