"""Write the sample book: 2,000 options on the DAX of 5 July 2002, then some trades of every other kind.

`python -m pricing.samples.make_book` writes `dax_book.csv` beside this file, always the same.
"""

import csv
import io
from datetime import timedelta
from pathlib import Path

from pricing.samples import other_trades
from pricing.samples.dice import ASOF, SPOT, Dice

LISTED = [ASOF + timedelta(days) for days in (13, 41, 75, 165, 256, 345, 524, 703)]
COUNTS = {"european": 1350, "digital": 500, "barrier": 150}
"""The first 2,000 trades; those of the other kinds: `other_trades.COUNTS`."""
BARRIER_MIN_DAYS = 30
SEED = 20020705
PATH = Path(__file__).with_name("dax_book.csv")
COLUMNS = (
    *("id", "type", "underlying", "quantity", "option", "strike", "expiry"),
    *("barrier", "barrier_type", "rebate", "payout", "amount"),
    *("exercise_dates", "averaging_dates", "average", "monitoring_dates", "lower", "upper"),
    *("coupons", "protection", "initial_spot", "notional", "kind", "weights"),
    *("side", "fixed_rate", "start", "maturity"),
)


def text() -> str:
    """Return the sample book as CSV."""
    dice = Dice(SEED)
    days = (LISTED[-1] - LISTED[0]).days
    between = [LISTED[0] + timedelta(day) for day in range(days)]
    unlisted = [day for day in between if day.weekday() < 5 and day not in LISTED]
    make = {"european": _european, "digital": _digital, "barrier": _barrier}
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for kind, count in COUNTS.items():
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
    writer.writerows(other_trades.rows())
    return page.getvalue()


def _european(dice: Dice, index: int) -> dict:
    return {"option": ("call", "put")[index % 2], "strike": dice.level(0.6, 1.4, 50)}


def _digital(dice: Dice, index: int) -> dict:
    trade = _european(dice, index)
    if index // 2 % 2:
        return trade | {"payout": "asset"}
    return trade | {"payout": "cash", "amount": dice.pick(range(100, 1001, 50))}


def _barrier(dice: Dice, index: int) -> dict:
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
    }
    return trade | ({"rebate": dice.pick(range(10, 101, 5))} if dice.random() < 0.25 else {})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
