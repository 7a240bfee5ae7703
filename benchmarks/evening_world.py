"""A simulated world for a living book: the markets and fixings of successive evenings.

Three equities in three currencies pay cash dividends on known dates, one of each within the evenings. Euros are
discounted on overnight swaps, and their six-month rates have a separate curve, on which caps are quoted.
"""

import math
import random
from collections.abc import Mapping
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any

from pricing import Market
from pricing.market import Observed

BEGIN = date(2026, 1, 5)
CURRENCIES = {"EUR": 0.025, "USD": 0.04, "GBP": 0.042, "CHF": 0.01, "JPY": 0.008}
EQUITIES = {
    **dict(zip(("ADE", "BUS", "CGB", "DCH", "EJP"), CURRENCIES, strict=True)),
    "FDE": "EUR",  # in baskets
    "GDE": "EUR",
}
FX = {"EURUSD": 1.08, "EURGBP": 0.86, "EURCHF": 0.95, "EURJPY": 160.0}
WITH_VOLS = "EURUSD", "EURCHF", "EURJPY"
DIVIDENDS = {
    "ADE": {date(2026, 2, 16): 1.5, date(2026, 8, 17): 1.5, date(2027, 2, 15): 1.5},
    "BUS": {date(2026, 1, 29): 0.6, date(2026, 4, 30): 0.6, date(2026, 7, 30): 0.6},
    "CGB": {date(2026, 3, 5): 2.0, date(2026, 9, 3): 1.0},
}
CORRELATIONS = {"DCH|EURCHF": -0.2, "EJP|EURJPY": 0.15, "FDE|GDE": 0.6}
FIXED = {"EUR": (1, 3, 6, 12), "EUR6M": (6,), "USD": (3,), "GBP": (3,)}
"""Curve -> the months of the rates fixed every day, besides the overnight rate."""
HISTORY, FUTURE = 90, 56  # days of spots before the first evening, and beyond the last
STRIKES = (60.0, 80.0, 100.0, 120.0, 140.0)

Row = dict[str, Any]


class World:
    """The markets of all evenings: random walks of spots, vols, rates and FX rates, by a seed."""

    def __init__(self, evenings: int, seed: int = 20260105):
        self.dice = random.Random(seed)
        first = BEGIN - timedelta(HISTORY)
        days = (first + timedelta(n) for n in range(HISTORY + 7 * (evenings // 5 + 1) + FUTURE))
        self.days = [day for day in days if day.weekday() < 5]
        start = self.days.index(BEGIN)
        self.evenings = self.days[start : start + evenings]
        self.spots = {
            name: self._walk(100.0, 0.01, relative=True, falls=DIVIDENDS.get(name, {}))
            for name in EQUITIES
        }
        self.fx = {pair: self._walk(rate, 0.005, relative=True) for pair, rate in FX.items()}
        self.rates = {name: self._walk(rate, 0.0002) for name, rate in CURRENCIES.items()}
        self.vols = {name: self._walk(0.22, 0.002) for name in EQUITIES}
        self.cap_vols = self._walk(0.0, 0.00005)

    def _walk(
        self,
        at: float,
        scale: float,
        relative: bool = False,
        falls: Mapping[date, float] = MappingProxyType({}),
    ) -> dict[date, float]:
        found = {}
        for day in self.days:
            step = self.dice.gauss(0.0, scale)
            at = at * math.exp(step) if relative else at + step
            at -= falls.get(day, 0.0)
            found[day] = at
        return found

    def market(self, day: date) -> Row:
        """Return the market file of a day; its pillars are the same dates on every evening."""
        pillars = lambda *days: [str(BEGIN + timedelta(n)) for n in days]
        skew = [[0.03 - 0.0015 * (k - 60.0) / (1.0 + n) for k in STRIKES] for n in range(3)]
        vols = lambda name: {
            "expiries": pillars(120, 365, 900),
            "strikes": list(STRIKES),
            "vols_by_expiry": [[self.vols[name][day] + x for x in row] for row in skew],
        }
        fx_vols: Row = {
            "vols": {
                "expiries": pillars(120, 900),
                "at_the_money": [0.08, 0.085],
                "risk_reversals_25": [-0.006, -0.008],
                "butterflies_25": [0.002, 0.003],
            }
        }
        return {
            "asof": str(day),
            "currency": "EUR",
            "curves": self._curves(day, pillars),
            "equities": {
                name: {
                    "curve": currency,
                    "currency": currency,
                    "spot": self.spots[name][day],
                    "dividend_yield": 0.01,
                    "implied_vols": vols(name),
                    **self._dividends(name),
                }
                for name, currency in EQUITIES.items()
            },
            "fx": {
                pair: {"spot": rate[day], **(fx_vols if pair in WITH_VOLS else {})}
                for pair, rate in self.fx.items()
            },
            "correlations": CORRELATIONS,
            "cap_vols": {
                "EUR6M": {
                    "type": "normal",
                    "frequency": "semiannual",
                    "maturities": ["1Y", "2Y", "5Y"],
                    "strikes": [0.01, 0.025, 0.04],
                    "vols_by_maturity": [[0.008 + self.cap_vols[day] for _ in range(3)]] * 3,
                }
            },
            "swaption_vols": {
                "type": "normal",
                "expiries_years": [1, 2, 5],
                "tenors_years": [2, 5],
                "vols_by_expiry": [[0.008, 0.0075], [0.0078, 0.0073], [0.007, 0.0068]],
            },
        }

    def _dividends(self, name: str) -> Row:
        paid = DIVIDENDS.get(name)
        if paid is None:
            return {}
        return {"dividends": {"dates": list(map(str, paid)), "cash": list(paid.values())}}

    def _curves(self, day: date, pillars: Any) -> Row:
        """Return the euro curves by swaps, with tenors from the day, and the others by zero rates."""
        euro = self.rates["EUR"][day]
        terms = {"1W": 0.0, "3M": 0.0002, "1Y": 0.001, "2Y": 0.002, "5Y": 0.003, "10Y": 0.005}
        swaps = {"2Y": 0.002, "5Y": 0.003, "10Y": 0.005}
        quoted = lambda found, spread: {
            "tenors": list(found),
            "rates": [euro + spread + slope for slope in found.values()],
        }
        return {
            "EUR": {"overnight_swaps": quoted(terms, 0.0)},
            "EUR6M": {
                "discount_curve": "EUR",
                "deposits": quoted({"6M": 0.0005}, 0.001),
                "swaps": quoted(swaps, 0.001) | {"floating_frequency": "semiannual"},
            },
            **{
                name: {
                    "dates": pillars(150, 800, 4000),
                    "zero_rates": [rate[day] + slope for slope in (0.0, 0.002, 0.005)],
                }
                for name, rate in self.rates.items()
                if name != "EUR"
            },
        }

    def fixings(self, day: date) -> list[tuple[str, date, float]]:
        """Return the spots and the overnight rates of all days up to one."""
        overnight = {f"{name} 1D": self.rates[name] for name in FIXED if name in CURRENCIES}
        return [
            (name, fixed, level)
            for name, walk in {**self.spots, **self.fx, **overnight}.items()
            for fixed, level in walk.items()
            if fixed <= day
        ]

    def past_rates(self) -> list[tuple[str, date, float]]:
        """Return the rates fixed before the first evening."""
        past = [day for day in self.days if day < BEGIN]
        return [
            (f"{curve} {count}M", day, self.rates[curve[:3]][day])
            for curve, months in FIXED.items()
            for count in months
            for day in past
        ]


def rate_fixings(market: Market) -> list[tuple[str, date, float]]:
    """Return the rates fixed on a market's day, from its curves."""
    today = market.asof
    observed, found = Observed(today, market), []
    for curve, months in FIXED.items():
        for count in months:
            end = today + timedelta(round(365.25 * count / 12.0))
            rate = observed.rate(curve, count, today, end, (end - today).days / 360.0)
            found.append((f"{curve} {count}M", today, rate))
    return found
