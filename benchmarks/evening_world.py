"""A world for a book that lives: markets and fixings of evening after evening, and a book of all kinds.

One equity pays dividends on known dates, one of them within the evenings. It has no trades of kinds that are
refused on it, nor of those whose programs on the grid of dividends compile for minutes.
"""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any

from pricing import Book, Market
from pricing.market import Observed

BEGIN = date(2026, 1, 5)
CURRENCIES = {"EUR": 0.025, "USD": 0.04, "GBP": 0.042, "CHF": 0.01, "JPY": 0.008}
EQUITIES = dict(zip(("ADE", "BUS", "CGB", "DCH", "EJP"), CURRENCIES, strict=True))
FX = {"EURUSD": 1.08, "EURGBP": 0.86, "EURCHF": 0.95, "EURJPY": 160.0}
DIVIDENDS = {"ADE": {date(2026, 2, 16): 1.5, date(2026, 8, 17): 1.5, date(2027, 2, 15): 1.5}}
NOT_PAYING = tuple(name for name in EQUITIES if name not in DIVIDENDS)
HISTORY, FUTURE = 90, 56  # days of spots before the first evening, and beyond the last
STRIKES = (60.0, 80.0, 100.0, 120.0, 140.0)

Row = dict[str, Any]


class World:
    """The markets of all evenings: spots, vols, rates and FX rates that walk, by a seed."""

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
        """Return the market file of a day; its pillars are the same days on every evening."""
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
            "curves": {
                name: {
                    "dates": pillars(150, 800, 4000),
                    "zero_rates": [rate[day] + slope for slope in (0.0, 0.002, 0.005)],
                }
                for name, rate in self.rates.items()
            },
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
                pair: {"spot": rate[day], **(fx_vols if pair == "EURUSD" else {})}
                for pair, rate in self.fx.items()
            },
            "correlations": {"BUS|EURUSD": -0.2},
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

    def fixings(self, day: date) -> list[tuple[str, date, float]]:
        """Return the spots of all days up to one."""
        return [
            (name, fixed, spot)
            for name, walk in {**self.spots, **self.fx}.items()
            for fixed, spot in walk.items()
            if fixed <= day
        ]


def rate_fixings(book: Book, market: Market) -> list[tuple[str, date, float]]:
    """Return the rates that are fixed on a market's day for the swaps of a book; earlier ones are 2.5 %."""
    today, found = market.asof, {}
    for trade in book.trades:
        if trade.type != "swap":
            continue
        swap: Any = trade
        name = f"{swap.underlying} {swap.floating_months}M"
        for start, end in itertools.pairwise(swap.floating_dates):
            if start < BEGIN == today:
                found[name, start] = 0.025
            elif start == today:
                period = start, end, (end - start).days / 360.0
                observed = Observed(today, market)
                found[name, start] = observed.rate(swap.underlying, swap.floating_months, *period)
    return [(*place, rate) for place, rate in found.items()]


class Writer:
    """Rows of trades of every kind, at random; half of them end within 60 evenings."""

    def __init__(self, world: World):
        self.dice, self.days = world.dice, world.days
        self.kinds: dict[str, Callable[[], Row]] = {
            "european": lambda: self.option() | {"expiry": self.expiry()},
            "digital": lambda: self.option() | {"expiry": self.expiry(), "amount": 10},
            "pending": lambda: (
                self.option() | {"type": "european", "expiry": self.expiry(), "settlement_lag": 2}
            ),
            "geometric": lambda: self.average() | self.no_payer() | {"average": "geometric"},
            "asian": self.average,
            "american": lambda: self.option() | self.no_payer() | {"expiry": self.expiry()},
            "barrier": lambda: self.barrier() | self.no_payer() | self.life(),
            "touch": lambda: self.touch() | self.no_payer() | self.life(),
            "variance_swap": lambda: (
                self.no_payer() | {"vol_strike": 0.22, "notional": 500} | self.life()
            ),
            "quanto": lambda: self.option() | self.converted("quanto") | {"expiry": self.expiry()},
            "compo": lambda: self.option() | self.converted("compo") | {"expiry": self.expiry()},
            "monitored": lambda: self.barrier() | {"monitoring_dates": self.every(10, 8)},
            "double_knock_out": self.double_barrier,
            "autocallable": self.note,
            "bermudan": lambda: self.option() | {"exercise_dates": self.every(20, 6)},
            "swap": self.forward_swap,
            "started": self.started_swap,
            "swaption": self.swaption,
            "bermudan_swaption": self.bermudan_swaption,
        }

    def book(self, count: int, kinds: Sequence[str] = ()) -> str:
        """Return a book of `count` trades in CSV, one of each kind in turn."""
        turns = itertools.cycle(kinds or self.kinds)
        rows = []
        for place, kind in zip(range(count), turns, strict=False):
            row = {"type": kind, "underlying": self.dice.choice(tuple(EQUITIES))}
            row |= self.kinds[kind]()
            if "monitoring_dates" in row:
                row["expiry"] = row["monitoring_dates"].split("|")[-1]
            rows.append({"id": f"T{place}", "quantity": self.dice.choice((-3, -2, 2, 3, 5)), **row})
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[str(row.get(name, "")) for name in columns] for row in rows]
        return "\n".join(map(",".join, [columns, *cells]))

    def level(self, low: float, high: float) -> str:
        return f"{100.0 * self.dice.uniform(low, high):.2f}"

    def after(self, least: int, most: int) -> date:
        day = BEGIN + timedelta(self.dice.randint(least, most))
        return day + timedelta(7 - day.weekday() if day.weekday() > 4 else 0)

    def expiry(self) -> date:
        return self.after(2, 84) if self.dice.random() < 0.5 else self.after(85, 700)

    def every(self, step: int, count: int, begun: int = 0) -> str:
        """Return `count` dates that are `step` business days apart, of which `begun` have passed."""
        place = self.days.index(BEGIN) + self.dice.randint(1, step) - step * begun
        dates = (self.days[place] + timedelta(7 * (step // 5) * n) for n in range(count))
        return "|".join(map(str, dates))

    def option(self) -> Row:
        return {"option": self.dice.choice(("call", "put")), "strike": self.level(0.85, 1.15)}

    def average(self) -> Row:
        dates = self.every(5, 12, self.dice.randint(0, 5))
        return self.option() | {"type": "asian", "averaging_dates": dates}

    def barrier(self) -> Row:
        kind = self.dice.choice(("down-and-out", "down-and-in"))
        down = {"type": "barrier", "barrier": self.level(0.75, 0.92), "barrier_type": kind}
        return self.option() | down

    def no_payer(self) -> Row:
        return {"underlying": self.dice.choice(NOT_PAYING)}

    def life(self) -> Row:
        return {"expiry": self.expiry(), "start": BEGIN}

    def converted(self, how: str) -> Row:
        return {"type": "european", "underlying": f"BUS {how} EUR"}

    def touch(self) -> Row:
        own = {"touch_kind": "one-touch", "touched_from": "above", "amount": 10}
        return {"barrier": self.level(0.75, 0.92)} | own

    def double_barrier(self) -> Row:
        levels = {"lower": self.level(0.7, 0.85), "upper": self.level(1.2, 1.4)}
        return self.option() | levels | {"monitoring_dates": self.every(10, 8)}

    def note(self) -> Row:
        return {
            "exercise_dates": self.every(20, 8, self.dice.randint(0, 2)),
            "coupons": "|".join(f"{0.02 * (n + 1):.2f}" for n in range(8)),
            "barrier": self.level(1.02, 1.1),
            "protection": self.level(0.65, 0.8),
            "initial_spot": 100,
            "notional": 100,
        }

    def swap(self, begin: date, years: int) -> Row:
        return {
            "side": self.dice.choice(("payer", "receiver")),
            "fixed_rate": f"{self.dice.uniform(0.015, 0.035):.4f}",
            "notional": 100,
            "underlying": "EUR",
            "maturity": begin.replace(year=begin.year + years),
        }

    def forward_swap(self) -> Row:
        begin = self.after(3, 200)
        return self.swap(begin, 3) | {"start": begin}

    def started_swap(self) -> Row:
        begin = BEGIN - timedelta(self.dice.randint(5, 80))
        own = {"type": "swap", "start": begin, "floating_frequency": "quarterly"}
        return self.swap(begin, 4) | own

    def swaption(self) -> Row:
        begin = self.after(3, 300)
        return self.swap(begin, 4) | {"expiry": begin}

    def bermudan_swaption(self) -> Row:
        begin = self.after(20, 300)
        dates = (begin.replace(year=begin.year + n) for n in range(3))
        return self.swap(begin, 4) | {"exercise_dates": "|".join(map(str, dates))}
