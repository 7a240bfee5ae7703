"""A book that lives: `jaxtape risk` and `jaxtape explain` on every evening, as trades come to an end.

Run `python -m benchmarks.evenings [--trades 300] [--evenings 60] [--paths 16384] [--out FILE]`.

The book is written once, with every kind of trade on five equities in five currencies, and is never touched
again. Each evening has another market, and one more row of fixings for each name: spots move by 1 % a day, vols
by .2 points, rates by 2 bp, FX rates by .5 %. Both commands run in this process as they are typed. An evening
counts as right if both exit with 0, every row of the book is in the table, none has failed, and the
remainder of `explain` is below 1 % of the sum of its absolute parts. The seconds of the first evening contain
tracing and compiling.
"""

import csv
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from jaxtape.cli.main import app
from pricing import Book, Market
from pricing.market import Observed
from pricing.products.trade import COLUMNS

from .command import Run, parser_of, table_of

BEGIN = date(2026, 1, 5)
CURRENCIES = {"EUR": 0.025, "USD": 0.04, "GBP": 0.042, "CHF": 0.01, "JPY": 0.008}
EQUITIES = dict(zip(("ADE", "BUS", "CGB", "DCH", "EJP"), CURRENCIES, strict=True))
FX = {"EURUSD": 1.08, "EURGBP": 0.86, "EURCHF": 0.95, "EURJPY": 160.0}
HISTORY = 90  # days of fixings before the first evening
STRIKES = (60.0, 80.0, 100.0, 120.0, 140.0)


class World:
    """The markets of all evenings: spots, vols, rates and FX rates that walk, by a seed."""

    def __init__(self, evenings: int, seed: int = 20260105):
        self.dice = random.Random(seed)
        first = BEGIN - timedelta(HISTORY)
        days = (first + timedelta(n) for n in range(HISTORY + 7 * (evenings // 5 + 8)))
        self.days = [day for day in days if day.weekday() < 5]
        start = self.days.index(BEGIN)
        self.evenings = self.days[start : start + evenings]
        walk = lambda at, scale: self._walk(at, scale, relative=True)
        self.spots = {name: walk(100.0, 0.01) for name in EQUITIES}
        self.fx = {pair: walk(rate, 0.005) for pair, rate in FX.items()}
        self.rates = {name: self._walk(rate, 0.0002) for name, rate in CURRENCIES.items()}
        self.vols = {name: self._walk(0.22, 0.002) for name in EQUITIES}

    def _walk(self, at: float, scale: float, relative: bool = False) -> dict[date, float]:
        found = {}
        for day in self.days:
            step = self.dice.gauss(0.0, scale)
            at = at * math.exp(step) if relative else at + step
            found[day] = at
        return found

    def market(self, day: date) -> dict[str, Any]:
        """Return the market file of a day; its pillars are the same days on every evening."""
        expiries = [str(BEGIN + timedelta(days)) for days in (120, 365, 900)]
        skew = [[0.03 - 0.0015 * (k - 60.0) / (1.0 + n) for k in STRIKES] for n in range(3)]
        return {
            "asof": str(day),
            "currency": "EUR",
            "curves": {
                name: {
                    "dates": [str(BEGIN + timedelta(days)) for days in (150, 800, 4000)],
                    "zero_rates": [rate[day], rate[day] + 0.002, rate[day] + 0.005],
                }
                for name, rate in self.rates.items()
            },
            "equities": {
                name: {
                    "curve": currency,
                    "currency": currency,
                    "spot": self.spots[name][day],
                    "dividend_yield": 0.01,
                    "implied_vols": {
                        "expiries": expiries,
                        "strikes": list(STRIKES),
                        "vols_by_expiry": [[self.vols[name][day] + x for x in row] for row in skew],
                    },
                }
                for name, currency in EQUITIES.items()
            },
            "fx": {pair: {"spot": rate[day]} for pair, rate in self.fx.items()},
            "swaption_vols": {
                "type": "normal",
                "expiries_years": [1, 2, 5],
                "tenors_years": [2, 5],
                "vols_by_expiry": [[0.008, 0.0075], [0.0078, 0.0073], [0.007, 0.0068]],
            },
        }

    def fixings(self, day: date) -> list[tuple[str, date, float]]:
        """Return the spots of all days up to one."""
        return [
            (name, fixed, spot)
            for name, walk in self.spots.items()
            for fixed, spot in walk.items()
            if fixed <= day
        ]


def book(world: World, count: int) -> str:
    """Return a book of so many trades, in CSV, of all kinds in turn; half of them end within 60 evenings."""
    dice, known = world.dice, world.days
    listed = lambda days: "|".join(map(str, days))
    level = lambda low, high: f"{100.0 * dice.uniform(low, high):.2f}"

    def after(least: int, most: int) -> date:
        day = BEGIN + timedelta(dice.randint(least, most))
        return day + timedelta(max(0, 7 - day.weekday()) if day.weekday() > 4 else 0)

    def expiry() -> date:
        return after(2, 84) if dice.random() < 0.5 else after(85, 700)

    def every(step: int, number: int, begun: int = 0) -> list[date]:
        place = known.index(BEGIN) + dice.randint(1, step) - step * begun
        return [known[place] + timedelta(7 * (step // 5) * n) for n in range(number)]

    option = lambda: {"option": dice.choice(("call", "put")), "strike": level(0.85, 1.15)}
    down = lambda: {
        "barrier": level(0.75, 0.92),
        "barrier_type": dice.choice(("down-and-out", "down-and-in")),
    }
    swap = lambda: {
        "side": dice.choice(("payer", "receiver")),
        "fixed_rate": f"{dice.uniform(0.015, 0.035):.4f}",
        "notional": 100,
        "underlying": "EUR",
        "frequency": "annual",
    }

    def entry(begin: date, years: int) -> dict[str, Any]:
        return {"maturity": begin.replace(year=begin.year + years)}

    def started() -> dict[str, Any]:
        begin = BEGIN - timedelta(dice.randint(5, 80))
        return {
            "type": "swap",
            **swap(),
            "start": begin,
            "floating_frequency": "quarterly",
        } | entry(begin, 4)

    def forward_swap() -> dict[str, Any]:
        begin = after(3, 200)
        return {"type": "swap", **swap(), "start": begin} | entry(begin, 3)

    def swaption() -> dict[str, Any]:
        begin = after(3, 300)
        return {"type": "swaption", **swap(), "expiry": begin} | entry(begin, 4)

    def bermudan_swaption() -> dict[str, Any]:
        begin = after(20, 300)
        dates = [begin.replace(year=begin.year + n) for n in range(3)]
        return {"type": "bermudan_swaption", **swap(), "exercise_dates": listed(dates)} | entry(
            begin, 4
        )

    kinds = [
        lambda: {"type": "european", **option(), "expiry": expiry()},
        lambda: {"type": "digital", **option(), "expiry": expiry(), "amount": 10},
        lambda: {"type": "american", **option(), "expiry": expiry()},
        lambda: {
            "type": "asian",
            **option(),
            "averaging_dates": listed(every(5, 12, dice.randint(0, 5))),
        },
        lambda: {"type": "barrier", **option(), **down(), "expiry": expiry(), "start": BEGIN},
        lambda: {
            "type": "asian",
            **option(),
            "average": "geometric",
            "averaging_dates": listed(every(5, 12, dice.randint(0, 5))),
        },
        lambda: {"type": "european", **option(), "expiry": expiry(), "settlement_lag": 2},
        lambda: (
            {"type": "barrier", **option(), **down()}
            | (lambda days: {"monitoring_dates": listed(days), "expiry": days[-1]})(every(10, 8))
        ),
        lambda: {
            "type": "double_knock_out",
            **option(),
            "lower": level(0.7, 0.85),
            "upper": level(1.2, 1.4),
            "monitoring_dates": listed(every(10, 8)),
        },
        lambda: {
            "type": "autocallable",
            "exercise_dates": listed(every(20, 8, dice.randint(0, 2))),
            "coupons": "|".join(f"{0.02 * (n + 1):.2f}" for n in range(8)),
            "barrier": level(1.02, 1.1),
            "protection": level(0.65, 0.8),
            "initial_spot": 100,
            "notional": 100,
        },
        lambda: {"type": "bermudan", **option(), "exercise_dates": listed(every(20, 6))},
        started,
        forward_swap,
        swaption,
        bermudan_swaption,
    ]
    rows = []
    for place in range(count):
        row = {
            "id": f"T{place}",
            "underlying": dice.choice(tuple(EQUITIES)),
            **kinds[place % len(kinds)](),
        }
        rows.append({"quantity": dice.choice((-3, -2, 2, 3, 5)), **row})
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    return "\n".join(
        [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]
    )


def rate_fixings(text: str, market: dict[str, Any]) -> list[tuple[str, date, float]]:
    """Return the rates that are fixed on a market's day for the swaps of a book; before it, 2.5 %."""
    today = Market.from_text(json.dumps(market))
    found = []
    for trade in Book.from_text(text).trades:
        if trade.type != "swap":
            continue
        swap: Any = trade
        for start, end in zip(swap.floating_dates, swap.floating_dates[1:], strict=False):
            name = f"{swap.underlying} {swap.floating_months}M"
            if start == today.asof:
                accrual = (end - start).days / 360.0
                rate = Observed(today.asof, today).rate(
                    swap.underlying, swap.floating_months, start, end, accrual
                )
                found.append((name, start, rate))
            elif start < BEGIN == today.asof:
                found.append((name, start, 0.025))
    return list({row[:2]: row for row in found}.values())


class Desk:
    """A folder with the book, where the commands of every evening run."""

    def __init__(self, folder: Path, world: World, count: int, paths: int):
        self.folder, self.world, self.paths = folder, world, paths
        self.text, self.rates = book(world, count), []
        (folder / "book.csv").write_text(self.text, encoding="utf-8")

    def write(self, day: date) -> None:
        """Write the market and the fixings of a day."""
        market = self.world.market(day)
        (self.folder / f"{day}.json").write_text(json.dumps(market), encoding="utf-8")
        self.rates += rate_fixings(self.text, market)
        rows = [*self.world.fixings(day), *self.rates]
        lines = [f"{name},{fixed},{value!r}" for name, fixed, value in rows]
        (self.folder / "fixings.csv").write_text(
            "\n".join(["name,date,value", *lines]), encoding="utf-8"
        )

    def run(self, command: str, *words: str) -> float:
        """Run a command on the book, and return its seconds.

        Raises:
            RuntimeError: It does not exit with 0.
        """
        where = str(self.folder / command)
        common = [
            "--trades",
            str(self.folder / "book.csv"),
            "--fixings",
            str(self.folder / "fixings.csv"),
        ]
        common += ["--out", where, "--model", "black-scholes", "--paths", str(self.paths)]
        begun = time.perf_counter()
        outcome = CliRunner().invoke(app, [command, *common, *words])
        if outcome.exit_code != 0:
            raise RuntimeError(
                f"{command} {' '.join(words)}: exit status {outcome.exit_code}: {outcome.output}"
            )
        return time.perf_counter() - begun

    def evening(self, day: date, before: date | None) -> dict[str, Any]:
        """Return the figures of an evening: seconds, trades by status, and the share that is not explained."""
        self.write(day)
        market = lambda day: str(self.folder / f"{day}.json")
        seconds = {"risk": self.run("risk", "--market", market(day))}
        with (self.folder / "risk" / "npv.csv").open(encoding="utf-8") as table:
            status = Counter(row["status"].partition(":")[0] for row in csv.DictReader(table))
        found = {"day": str(day), "seconds": seconds, "status": dict(status)}
        if before is not None:
            markets = ("--before", market(before), "--after", market(day))
            seconds["explain"] = self.run("explain", *markets)
            said = json.loads(
                (self.folder / "explain" / "explain.json").read_text(encoding="utf-8")
            )
            found |= self._explained(said, day)
        return found

    def _explained(self, said: dict[str, Any], day: date) -> dict[str, Any]:
        """Return the change and the remainder in euros."""
        rates = {
            f"EUR{name}": self.world.fx[f"EUR{name}"][day] for name in CURRENCIES if name != "EUR"
        }
        euros = lambda name: 1.0 / rates.get(f"EUR{name}", 1.0)
        total: Counter[str] = Counter()
        for currency, own in said["by_currency"].items():
            total.update({part: euros(currency) * x for part, x in own["parts"].items()})
        residual = total.pop("residual")
        size = sum(map(abs, total.values()))
        paid = sum(len(own["payments"]) for own in said["by_currency"].values())
        return {
            "parts": dict(total),
            "residual": residual,
            "share": abs(residual) / size,
            "payments": paid,
        }


def parser() -> Any:
    return parser_of(__doc__, trades=300, evenings=60, paths=16384)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("evenings", parser(), argv)
    options = run.options
    world, found = World(options.evenings), []
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder), world, options.trades, options.paths)
        for before, day in zip([None, *world.evenings], world.evenings, strict=False):
            found.append(desk.evening(day, before))
            run.console.print(_line(found[-1]), soft_wrap=True)
    lost = [own["day"] for own in found if sum(own["status"].values()) != options.trades]
    failed = [own["day"] for own in found if own["status"].get("failed")]
    shares = [own["share"] for own in found[1:]]
    later = [sum(own["seconds"].values()) for own in found[1:]]
    rows = [
        ("evenings with exit status 0 twice", len(found)),
        ("evenings that lost a trade", len(lost)),
        ("evenings with a failed trade", len(failed)),
        ("largest share not explained, %", f"{100.0 * max(shares, default=0.0):.3f}"),
        ("second evening, s", f"{later[0]:.1f}" if later else ""),
        ("slowest later evening, s", f"{max(later[1:], default=0.0):.1f}"),
        ("trades at the end", str(found[-1]["status"])),
    ]
    table = table_of("a book that lives", "figure", "")
    for name, figure in rows:
        table.add_row(name, str(figure))
    run.console.print(table)
    run.keep({"evenings": found, "largest_share": max(shares, default=0.0)})
    return int(bool(lost or failed))


def _line(found: dict[str, Any]) -> str:
    seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in found["seconds"].items())
    share = f", {100.0 * found['share']:.3f} % not explained" if "share" in found else ""
    return f"{found['day']}: {seconds}{share}, {found['status']}"


if __name__ == "__main__":
    sys.exit(main())
