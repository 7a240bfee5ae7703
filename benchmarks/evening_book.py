"""A random book for a simulated world: rows of every kind of trade in a trades file."""

import itertools
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from .evening_world import BEGIN, DIVIDENDS, EQUITIES, FX, WITH_VOLS, Row, World

Kinds = dict[str, Callable[[], Row]]
NOT_PAYING = tuple(name for name in EQUITIES if name not in DIVIDENDS)
UNITS = {"EJP": 160, "EURJPY": 60}  # trades on cheap underlyings are larger
OF_PAIRS = 100  # units of a currency per share
ONE_LAW = (
    "lookback", "floating_lookback", "forward_start", "cliquet", "average_strike",
    "monitored_variance",
)  # fmt: skip
"""The kinds that need one law of the path: Black-Scholes on a smile has none, so Heston values them."""


class Writer:
    """Rows of trades of every kind; half of them end within 60 evenings.

    Equities with dividends get the kinds with a closed form under cash dividends, and notes and Bermudan
    options on grids.
    """

    def __init__(self, world: World):
        self.dice, self.days = world.dice, world.days
        self.kinds = {**self._on_equities(), **self._on_pairs_and_rates()}

    def _on_equities(self) -> Kinds:
        return {
            "european": lambda: self.option() | {"expiry": self.expiry()},
            "forward": lambda: {"strike": self.level(0.9, 1.1), "expiry": self.expiry()},
            "digital": lambda: self.option() | self.digital() | {"expiry": self.expiry()},
            "pending": lambda: (
                self.option() | {"type": "european", "expiry": self.expiry(), "settlement_lag": 2}
            ),
            "geometric": lambda: self.average() | self.no_payer() | {"average": "geometric"},
            "asian": self.average,
            "american": lambda: self.option() | self.no_payer() | {"expiry": self.expiry()},
            "barrier": lambda: self.barrier() | self.no_payer() | self.life(),
            "monitored": lambda: self.barrier() | {"monitoring_dates": self.every(10, 8)},
            "double_knock_out": lambda: self.corridor() | {"monitoring_dates": self.every(10, 8)},
            "corridor": lambda: (
                self.corridor() | self.no_payer() | self.life() | {"type": "double_knock_out"}
            ),
            "touch": lambda: self.touch() | self.no_payer() | self.life(),
            "double_touch": lambda: (
                self.double_levels() | self.touching() | self.no_payer() | self.life()
            ),
            "lookback": lambda: self.lookback() | self.life(),
            "monitored_lookback": lambda: (
                self.lookback_on_dates() | {"strike": self.level(0.95, 1.05)}
            ),
            "floating_lookback": self.lookback_on_dates,
            "forward_start": self.forward_start,
            "cliquet": self.cliquet,
            "average_strike": lambda: (
                self.no_payer()
                | {"option": self.side("call", "put"), "averaging_dates": self.every(5, 12)}
            ),
            "variance_swap": lambda: self.variance() | self.life(),
            "monitored_variance": lambda: (
                self.variance()
                | {"type": "variance_swap", "monitoring_dates": self.every(5, 12)}
                | {"annualization": 52}
            ),
            "basket": lambda: self.option() | {"underlying": "FDE|GDE", "expiry": self.expiry()},
            "spread": lambda: {
                "underlying": "FDE|GDE",
                "option": self.side("call", "put"),
                "spread_strike": self.dice.choice((0, 5)),
                "expiry": self.expiry(),
            },
            "autocallable": self.note,
            "phoenix": lambda: self.note() | self.phoenix() | {"watched": "dates"},
            "watched_note": lambda: (
                self.note()
                | self.phoenix()
                | self.no_payer()
                | {"watched": "always"}
                | {"start": BEGIN}
            ),
            "worst_of": lambda: (
                self.note()
                | {"type": "autocallable", "underlying": "FDE|GDE"}
                | {"other_initial_spots": 100}
            ),
            "bermudan": lambda: self.option() | {"exercise_dates": self.every(20, 6)},
            "quanto": lambda: self.option() | self.converted("quanto") | {"expiry": self.expiry()},
            "compo": lambda: self.option() | self.converted("compo") | {"expiry": self.expiry()},
        }

    def _on_pairs_and_rates(self) -> Kinds:
        return {
            "fx_option": lambda: self.on_pair("european") | {"expiry": self.expiry()},
            "fx_forward": lambda: self.at_pair() | {"type": "forward", "expiry": self.expiry()},
            "fx_digital": lambda: (
                self.on_pair("digital") | {"amount": 0.1, "expiry": self.expiry()}
            ),
            "fx_barrier": lambda: self.fx_barrier() | self.life(),
            "swap": self.forward_swap,
            "started": self.started_swap,
            "six_month_swap": self.six_month_swap,
            "overnight_swap": self.overnight_swap,
            "fra": self.fra,
            "cap": self.cap,
            "floor": self.cap,
            "six_month_cap": lambda: (
                self.cap() | {"type": "cap", "forward_curve": "EUR6M", "underlying": "EUR"}
            ),
            "swaption": self.swaption,
            "bermudan_swaption": self.bermudan_swaption,
        }

    def book(self, count: int, kinds: Sequence[str] = ()) -> str:
        """Return a book of `count` trades in CSV, one of each kind in turn: all but `ONE_LAW`, or `kinds`."""
        turns = itertools.cycle(kinds or [kind for kind in self.kinds if kind not in ONE_LAW])
        rows = []
        for place, kind in zip(range(count), turns, strict=False):
            row = {"type": kind, "underlying": self.dice.choice(tuple(EQUITIES))}
            row |= self.kinds[kind]()
            if "monitoring_dates" in row:
                row["expiry"] = row["monitoring_dates"].split("|")[-1]
            contracts = self.dice.choice((-3, -2, 2, 3, 5)) * row.pop("units", 1)
            contracts *= UNITS.get(row["underlying"], 1)
            rows.append({"id": f"T{place}", "quantity": contracts, **row})
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[str(row.get(name, "")) for name in columns] for row in rows]
        return "\n".join(map(",".join, [columns, *cells]))

    def side(self, *words: str) -> str:
        return self.dice.choice(words)

    def level(self, low: float, high: float, of: float = 100.0) -> str:
        return f"{of * self.dice.uniform(low, high):.4f}"

    def after(self, least: int, most: int) -> date:
        day = BEGIN + timedelta(self.dice.randint(least, most))
        return day + timedelta(7 - day.weekday() if day.weekday() > 4 else 0)

    def expiry(self) -> date:
        return self.after(2, 84) if self.dice.random() < 0.5 else self.after(85, 700)

    def every(self, step: int, count: int, begun: int = 0) -> str:
        """Return `count` dates, `step` business days apart, the first `begun` of which have passed."""
        place = self.days.index(BEGIN) + self.dice.randint(1, step) - step * begun
        dates = (self.days[place] + timedelta(7 * (step // 5) * n) for n in range(count))
        return "|".join(map(str, dates))

    def no_payer(self) -> Row:
        return {"underlying": self.dice.choice(NOT_PAYING)}

    def life(self) -> Row:
        return {"expiry": self.expiry(), "start": BEGIN}

    # --- on equities and pairs -------------------------------------------------------------------------

    def option(self) -> Row:
        return {"option": self.side("call", "put"), "strike": self.level(0.85, 1.15)}

    def digital(self) -> Row:
        return {"payout": "asset"} if self.dice.random() < 0.3 else {"amount": 10}

    def average(self) -> Row:
        dates = self.every(5, 12, self.dice.randint(0, 5))
        return self.option() | {"type": "asian", "averaging_dates": dates}

    def barrier(self) -> Row:
        kind = self.side("down-and-out", "down-and-in", "up-and-out", "up-and-in")
        level = self.level(0.75, 0.92) if kind[0] == "d" else self.level(1.1, 1.3)
        return self.option() | {"type": "barrier", "barrier": level, "barrier_type": kind}

    def double_levels(self) -> Row:
        return {"lower": self.level(0.75, 0.9), "upper": self.level(1.12, 1.35)}

    def corridor(self) -> Row:
        return self.option() | self.double_levels()

    def touching(self) -> Row:
        kinds = "one-touch", "one-touch-at-expiry", "no-touch"
        return {"touch_kind": self.side(*kinds), "amount": 10}

    def touch(self) -> Row:
        side = self.side("above", "below")
        level = self.level(0.75, 0.92) if side == "above" else self.level(1.1, 1.3)
        return self.touching() | {"barrier": level, "touched_from": side}

    def lookback(self) -> Row:
        fixed = {"strike": self.level(0.95, 1.05)} if self.dice.random() < 0.5 else {}
        return self.no_payer() | {"option": self.side("call", "put")} | fixed

    def lookback_on_dates(self) -> Row:
        own = {"type": "lookback", "option": self.side("call", "put")}
        return self.no_payer() | own | {"monitoring_dates": self.every(10, 8)}

    def forward_start(self) -> Row:
        start = self.after(3, 60)
        own = {"option": self.side("call", "put"), "moneyness": self.level(0.95, 1.05, 1.0)}
        return self.no_payer() | own | {"start": start, "expiry": start + timedelta(91)}

    def cliquet(self) -> Row:
        own = {"local_floor": -0.02, "local_cap": 0.03, "floor": 0.0, "notional": 100}
        return self.no_payer() | own | {"monitoring_dates": self.every(10, 6)}

    def variance(self) -> Row:
        return self.no_payer() | {"vol_strike": 0.22, "notional": 500}

    def converted(self, how: str) -> Row:
        name = self.side("DCH", "EJP")
        own = {"type": "european", "underlying": f"{name} {how} EUR"}
        scale = 100.0 / FX[f"EUR{EQUITIES[name]}"] if how == "compo" else 100.0
        return own | {"strike": self.level(0.85, 1.15, scale)}

    def at_pair(self) -> Row:
        pair = self.side(*WITH_VOLS)
        return {"underlying": pair, "strike": self.level(0.93, 1.07, FX[pair]), "units": OF_PAIRS}

    def on_pair(self, kind: str) -> Row:
        return self.at_pair() | {"type": kind, "option": self.side("call", "put")}

    def fx_barrier(self) -> Row:
        own = self.on_pair("barrier")
        level = self.level(0.9, 0.96, FX[own["underlying"]])
        return own | {"barrier": level, "barrier_type": "down-and-out"}

    def note(self) -> Row:
        return {
            "type": "autocallable",
            "exercise_dates": self.every(20, 8, self.dice.randint(0, 2)),
            "coupons": "|".join(f"{0.02 * (n + 1):.2f}" for n in range(8)),
            "barrier": self.level(1.02, 1.1),
            "protection": self.level(0.65, 0.8),
            "initial_spot": 100,
            "notional": 100,
        }

    def phoenix(self) -> Row:
        own = {"coupons": "|".join(["0.01"] * 8), "coupon_barrier": self.level(0.8, 0.9)}
        return own | {"memory": self.side("yes", "no"), "knock_in": self.level(0.6, 0.8)}

    # --- of rates --------------------------------------------------------------------------------------

    def swap(self, begin: date, years: int, curve: str = "EUR") -> Row:
        return {
            "side": self.side("payer", "receiver"),
            "fixed_rate": f"{self.dice.uniform(0.015, 0.035):.4f}",
            "notional": 1000,
            "underlying": curve,
            "maturity": begin.replace(year=begin.year + years),
        }

    def forward_swap(self) -> Row:
        begin = self.after(3, 200)
        return self.swap(begin, 3) | {"start": begin}

    def started_swap(self) -> Row:
        begin = self.begun()
        own = {"type": "swap", "start": begin, "floating_frequency": "quarterly"}
        return self.swap(begin, 4) | own

    def begun(self) -> date:
        return BEGIN - timedelta(self.dice.randint(5, 80))

    def six_month_swap(self) -> Row:
        begin = self.begun() if self.dice.random() < 0.5 else self.after(3, 100)
        own = {"type": "swap", "start": begin, "floating_frequency": "semiannual"}
        return self.swap(begin, 4) | own | {"forward_curve": "EUR6M"}

    def overnight_swap(self) -> Row:
        begin = self.begun() if self.dice.random() < 0.5 else self.after(3, 100)
        curve = self.side("EUR", "USD", "GBP")
        return self.swap(begin, 2, curve) | {"start": begin, "payment_lag": 2}

    def fra(self) -> Row:
        begin, curve = self.after(3, 150), self.side("EUR", "USD")
        own = {"side": self.side("payer", "receiver"), "notional": 1000, "underlying": curve}
        months = 6 if curve == "EUR" else 3
        year, month = divmod(begin.month - 1 + months, 12)
        end = date(begin.year + year, month + 1, min(begin.day, 28))
        forward = {"forward_curve": "EUR6M"} if curve == "EUR" else {}
        rate = f"{self.dice.uniform(0.015, 0.035):.4f}"
        return own | forward | {"fixed_rate": rate, "start": begin, "maturity": end}

    def cap(self) -> Row:
        begin = self.begun() if self.dice.random() < 0.5 else self.after(3, 100)
        own = {"underlying": "EUR", "strike": f"{self.dice.uniform(0.015, 0.035):.4f}"}
        end = begin.replace(year=begin.year + 3)
        return own | {"start": begin, "maturity": end, "frequency": "semiannual", "notional": 1000}

    def swaption(self) -> Row:
        begin = self.after(3, 300)
        return self.swap(begin, 4) | {"expiry": begin}

    def bermudan_swaption(self) -> Row:
        begin = self.after(20, 300)
        dates = (begin.replace(year=begin.year + n) for n in range(3))
        return self.swap(begin, 4) | {"exercise_dates": "|".join(map(str, dates))}
