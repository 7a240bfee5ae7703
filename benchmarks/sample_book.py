"""Write the sample book: 2,000 options on the DAX of 5 July 2002, then other trades of a desk.

Some trades of other kinds follow, then those with a past and in other currencies (`sample_desk.py`).
`python -m benchmarks.sample_book` writes `pricing/samples/dax_book.csv`, always the same. Trades of one kind
have lists of dates of one padded length, so that one program values them all.
"""

import csv
import io
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pricing.samples
from pricing import Book

from . import sample_desk

SPOT = 4468.17
ASOF = date(2002, 7, 5)
LISTED = [ASOF + timedelta(days) for days in (13, 41, 75, 165, 256, 345, 524, 703)]
OPTIONS = {"european": 1350, "digital": 500, "barrier": 150}
"""The first 2,000 trades."""
OTHERS = {
    "american": 2,
    "bermudan": 2,
    "asian": 12,
    "barrier": 12,  # on dates
    "double_knock_out": 6,
    "autocallable": 12,
    "basket": 6,
    "swap": 4,
    "swaption": 5,
    "bermudan_swaption": 3,
}
NONE_IN_RATES = {"basis_swap", "cap", "floor"}
NONE_HERE = {
    *("average_strike", "cliquet", "double_touch", "forward", "forward_start", "lookback"),
    *("spread", "touch"),
    *NONE_IN_RATES,
}
"""The kinds without a trade in the sample; `test_exotics.py`, `test_caps.py` and `test_basis_swaps.py` have
one each."""
BARRIER_MIN_DAYS = 30
BASKET_SPOT = 0.5 * (SPOT + 3150.0)
SEED, OTHER_SEED = 20020705, 5072002
PATH = Path(next(iter(pricing.samples.__path__))) / "dax_book.csv"
COLUMNS = (
    *("id", "type", "underlying", "quantity", "option", "strike", "expiry"),
    *("barrier", "barrier_type", "rebate", "payout", "amount"),
    *("exercise_dates", "averaging_dates", "average", "monitoring_dates", "lower", "upper"),
    *("coupons", "protection", "initial_spot", "notional", "weights"),
    *("side", "fixed_rate", "start", "maturity", *sample_desk.COLUMNS),
)


class Dice(random.Random):
    """Draws from `random()` only, the one sequence that Python promises never to change."""

    def pick(self, options):
        return options[int(self.random() * len(options))]

    def level(self, low: float, high: float, step: int) -> int:
        """Return a multiple of `step` between two fractions of the spot."""
        return self.pick(range(-int(-low * SPOT // step) * step, int(high * SPOT) + 1, step))


def on_dax_alone(book: Book) -> Book:
    """Return the trades on the DAX not yet changed by a fixing."""
    of_today = (row for row in book.rows if not row.id.startswith(sample_desk.PAST))
    rows = tuple(row for row in of_today if row.raw.values["underlying"] == "DAX")
    return replace(book, rows=rows)


def text() -> str:
    """Return the sample book as CSV."""
    dice = Dice(SEED)
    days = (LISTED[-1] - LISTED[0]).days
    between = [LISTED[0] + timedelta(day) for day in range(days)]
    unlisted = [day for day in between if day.weekday() < 5 and day not in LISTED]
    make = {"european": _european, "digital": _digital, "barrier": _continuous_barrier}
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for kind, count in OPTIONS.items():
        soonest = ASOF + timedelta(BARRIER_MIN_DAYS if kind == "barrier" else 1)
        expiries = [[day for day in days if day >= soonest] for days in (LISTED, unlisted)]
        for index in range(count):
            trade = {
                "id": f"{kind[0].upper()}{index + 1:04d}",
                "type": kind,
                "underlying": "DAX",
                "quantity": dice.pick((-1, 1)) * dice.pick(range(1, 101)),
                "expiry": dice.pick(expiries[index % 2]),
            }
            writer.writerow(trade | make[kind](dice, index // 2))
    writer.writerows(_others())
    writer.writerows(sample_desk.trades())
    return page.getvalue()


def _european(dice: Dice, index: int) -> dict:
    return {"option": ("call", "put")[index % 2], "strike": dice.level(0.6, 1.4, 50)}


def _digital(dice: Dice, index: int) -> dict:
    trade = _european(dice, index)
    if index // 2 % 2:
        return trade | {"payout": "asset"}
    return trade | {"payout": "cash", "amount": dice.pick(range(100, 1001, 50))}


def _continuous_barrier(dice: Dice, index: int) -> dict:
    """Return a barrier option that is alive and can pay.

    An up-and-out call is struck below its barrier, a down-and-out put above.
    """
    option = ("call", "put")[index % 2]
    side, knock = ("down", "up")[index // 2 % 2], ("out", "in")[index // 4 % 2]
    barrier = dice.level(0.7, 0.95, 10) if side == "down" else dice.level(1.05, 1.35, 10)
    low, high = 0.6, 1.4
    if (side, knock, option) == ("up", "out", "call"):
        high = (barrier - 50) / SPOT
    if (side, knock, option) == ("down", "out", "put"):
        low = (barrier + 50) / SPOT
    trade = {
        "option": option,
        "strike": dice.level(low, high, 50),
        "barrier": barrier,
        "barrier_type": f"{side}-and-{knock}",
        "start": ASOF,
    }
    return trade | ({"rebate": dice.pick(range(10, 101, 5))} if dice.random() < 0.25 else {})


def _others() -> Iterator[dict]:
    """Yield the trades of the other kinds, one dictionary of cells each."""
    dice = Dice(OTHER_SEED)
    for kind, count in OTHERS.items():
        for index in range(count):
            trade = {
                "id": f"{_LETTERS[kind]}{index + 1:03d}",
                "type": kind,
                "underlying": "DAX",
                "quantity": dice.pick((-1, 1)) * dice.pick(range(1, 51)),
            }
            yield trade | _MAKE[kind](dice, index)


def _american(dice: Dice, index: int) -> dict:
    return _option(dice, index) | {"expiry": months_on(dice.pick(range(3, 19)))}


def _bermudan(dice: Dice, index: int) -> dict:
    return _option(dice, index) | {"exercise_dates": _list(every(3, 12))}


def _asian(dice: Dice, index: int) -> dict:
    return _option(dice, index) | {"averaging_dates": _list(every(1, dice.pick((7, 8))))}


def _barrier(dice: Dice, index: int) -> dict:
    """Return a barrier option that is monitored every month."""
    side, knock = ("down", "up")[index // 2 % 2], ("out", "in")[index // 4 % 2]
    barrier = dice.level(0.7, 0.9, 10) if side == "down" else dice.level(1.1, 1.35, 10)
    dates = every(1, dice.pick((7, 8)))
    return _option(dice, index, 0.9, 1.1) | {
        "barrier": barrier,
        "barrier_type": f"{side}-and-{knock}",
        "monitoring_dates": _list(dates),
        "expiry": dates[-1],
    }


def _double_knock_out(dice: Dice, index: int) -> dict:
    return _option(dice, index, 0.9, 1.1) | {
        "lower": dice.level(0.6, 0.75, 10),
        "upper": dice.level(1.25, 1.4, 10),
        "monitoring_dates": _list(every(1, dice.pick((7, 8)))),
    }


def _autocallable(dice: Dice, index: int) -> dict:
    """Return an autocallable with quarterly dates and a coupon for each quarter passed."""
    dates, coupon = every(3, 21 + index % 2 * 3), dice.pick(range(20, 41, 5)) / 1000
    return {
        "exercise_dates": _list(dates),
        "coupons": "|".join(f"{coupon * (count + 1):g}" for count in range(len(dates))),
        "barrier": dice.level(0.95, 1.05, 10),
        "protection": dice.level(0.6, 0.75, 10),
        "initial_spot": SPOT,
        "notional": 1000,
    }


def _basket(dice: Dice, index: int) -> dict:
    trade = {
        "underlying": "DAX|SX5E",
        "option": ("call", "put")[index % 2],
        "strike": round(dice.pick(range(90, 111)) * BASKET_SPOT / 5000) * 50,
        "expiry": months_on(dice.pick(range(6, 13))),
    }
    return trade | ({"weights": "0.6|0.4"} if index % 2 else {})


def _swap(dice: Dice, index: int) -> dict:
    """Return a five-year swap, with as many payments as those of the swaptions, for one program."""
    months = dice.pick((3, 6, 9, 12))
    return _fixed_leg(dice, index, months + 60) | {"start": same_day(months)}


def _swaption(dice: Dice, index: int) -> dict:
    years = index + 1
    return _fixed_leg(dice, index, 12 * years + 60) | {"expiry": same_day(12 * years)}


def _bermudan_swaption(dice: Dice, index: int) -> dict:
    """Return a swaption exercisable at the start of each year of a five-year swap."""
    dates = [same_day(12 * year) for year in range(1, 6)]
    return _fixed_leg(dice, index, 72) | {"exercise_dates": _list(dates)}


def _fixed_leg(dice: Dice, index: int, months: int) -> dict:
    return {
        "underlying": "EUR",
        "side": ("payer", "receiver")[index % 2],
        "fixed_rate": dice.pick(range(350, 526, 25)) / 10000,
        "maturity": same_day(months),
        "notional": 100000,
    }


def _option(dice: Dice, index: int, low: float = 0.85, high: float = 1.15) -> dict:
    return {"option": ("call", "put")[index % 2], "strike": dice.level(low, high, 50)}


def every(months: int, last: int) -> list[date]:
    """Return the dates every few months up to `last` months from the as-of date."""
    return [months_on(count) for count in range(months, last + 1, months)]


def months_on(count: int) -> date:
    """Return the date some months after the as-of date; a weekend moves to Monday."""
    day = same_day(count)
    return day + timedelta((0, 0, 0, 0, 0, 2, 1)[day.weekday()])


def same_day(count: int) -> date:
    """Return the same day some months after the as-of date, business day or not."""
    years, month = divmod(ASOF.month - 1 + count, 12)
    return date(ASOF.year + years, month + 1, ASOF.day)


def _list(dates: list[date]) -> str:
    return "|".join(map(str, dates))


_LETTERS = {
    "american": "AM",
    "bermudan": "BM",
    "asian": "AS",
    "barrier": "BD",
    "double_knock_out": "DK",
    "autocallable": "AC",
    "basket": "BK",
    "swap": "SW",
    "swaption": "SN",
    "bermudan_swaption": "BS",
}
_MAKE = {
    "american": _american,
    "bermudan": _bermudan,
    "asian": _asian,
    "barrier": _barrier,
    "double_knock_out": _double_knock_out,
    "autocallable": _autocallable,
    "basket": _basket,
    "swap": _swap,
    "swaption": _swaption,
    "bermudan_swaption": _bermudan_swaption,
}


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
