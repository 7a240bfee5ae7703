"""The sensitivities of a Bermudan swaption to 200 zero rates: one reverse sweep, or 201 prices.

Run `python -m benchmarks.bermudan [--repeat 10] [--bumps 10] [--out FILE]`. The contract's times are whole
years of 365 days, so that QuantLib's lattices see the dates that we see. Every bump is 1 bp up, of one
pillar. QuantLib is timed on the first `--bumps` of them and that is scaled to 200; its sensitivities are of
all. The answers: the value of the quadrature to ten digits, and our sweep, which the tests hold against
difference quotients (`tests/pricing/test_bermudan_swaption.py`).
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import QuantLib as ql
from rich.console import Console
from rich.table import Table

from pricing import BermudanSwaption, HullWhite, Quadrature, ZeroCurve, price

from .timing import environment, interleaved

STRIKE, NOTIONAL = 0.0499664907, 1000.0
RATE, MEAN_REVERSION, VOL = 0.04875825, 0.048696, 0.0058904
EXERCISES, PAYMENTS = np.arange(1, 6), np.arange(2, 7)  # years
DAYS = 11 * np.arange(1, 201)  # of the pillars
BUMP = 1e-4
VALUE = 12.9258599208
AIM = 4.0  # prices that the sweep may take


# --- ours ---------------------------------------------------------------------------------------------


def value(zero_rates):
    """Today's value on a curve through `zero_rates` at the pillars."""
    years = [dates.astype(float) for dates in (EXERCISES, PAYMENTS)]
    swaption = BermudanSwaption(STRIKE, *years, np.ones(5), "payer", NOTIONAL)
    model = HullWhite(ZeroCurve(DAYS / 365.0, zero_rates), MEAN_REVERSION, VOL)
    return price(swaption, model, Quadrature()).value


def swept_ways() -> dict[str, Callable]:
    """The value, and the value with its gradient."""
    rates = jnp.full(DAYS.size, RATE)
    price, sweep = jax.jit(value), jax.jit(jax.value_and_grad(value))
    return {"price": lambda: price(rates), "sweep": lambda: sweep(rates)}


def bumped_ways() -> dict[str, Callable]:
    """Values of the curve as it is and of each bumped one, in two ways."""
    rates = jnp.full(DAYS.size, RATE)
    curves = jnp.concatenate([rates[None], rates[None] + BUMP * jnp.eye(DAYS.size)])
    one, batch = jax.jit(value), jax.jit(jax.vmap(value))
    each = list(curves)
    return {
        "201 prices": lambda: jnp.stack([one(curve) for curve in each]),
        "201 prices, one program": lambda: batch(curves),
    }


# --- QuantLib's ---------------------------------------------------------------------------------------


class Peer:
    """QuantLib's Bermudan swaption under Hull and White, on a curve that is linked anew for each bump."""

    def __init__(self, engine: Callable[[ql.HullWhite], ql.PricingEngine]):
        self.today = ql.Date(15, 2, 2002)
        ql.Settings.instance().evaluationDate = self.today
        self.curve = ql.RelinkableYieldTermStructureHandle()
        self.link(np.full(DAYS.size, RATE))
        self.swaption = self._contract()
        self.swaption.setPricingEngine(engine(ql.HullWhite(self.curve, MEAN_REVERSION, VOL)))

    def _day(self, year: int) -> ql.Date:
        return self.today + 365 * int(year)

    def _contract(self) -> ql.Swaption:
        none, count = ql.NullCalendar(), ql.Actual365Fixed()
        year = ql.Period(365, ql.Days)
        index = ql.IborIndex(
            "year", year, 0, ql.EURCurrency(), none, ql.Unadjusted, False, count, self.curve
        )
        schedule = ql.Schedule([self._day(t) for t in (EXERCISES[0], *PAYMENTS)])
        swap = ql.VanillaSwap(
            ql.Swap.Payer, NOTIONAL, schedule, STRIKE, count, schedule, index, 0.0, count
        )
        return ql.Swaption(swap, ql.BermudanExercise([self._day(t) for t in EXERCISES]))

    def link(self, zero_rates: np.ndarray) -> None:
        """Flat before the first pillar, linear in the zero rate between two, as ours."""
        dates = [self.today, *(self.today + int(days) for days in DAYS)]
        rates = [zero_rates[0], *zero_rates.tolist()]
        self.curve.linkTo(ql.ZeroCurve(dates, rates, ql.Actual365Fixed(), ql.NullCalendar()))

    def price(self, bumped: int | None = None) -> float:
        """The value, with one pillar up."""
        bump = np.zeros(DAYS.size)
        if bumped is not None:
            bump[bumped] = BUMP
        self.link(RATE + bump)
        return self.swaption.NPV()

    def prices(self, bumps: int) -> np.ndarray:
        """As it is, and with each of the first pillars up."""
        return np.array([self.price(), *(self.price(k) for k in range(bumps))])


def peers() -> dict[str, Peer]:
    def tree(steps):
        return Peer(lambda model: ql.TreeSwaptionEngine(model, steps))

    def grid(times, rates):
        return Peer(lambda model: ql.FdHullWhiteSwaptionEngine(model, times, rates))

    return {
        "TreeSwaptionEngine(50)": tree(50),
        "TreeSwaptionEngine(200)": tree(200),
        "FdHullWhiteSwaptionEngine(100, 100)": grid(100, 100),
        "FdHullWhiteSwaptionEngine(400, 400)": grid(400, 400),
    }


# --- the table ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A way to the value and its 200 sensitivities. Seconds: best; errors: relative.

    sensitivity_error: the largest of a pillar, over the largest sensitivity.
    """

    way: str
    price_seconds: float
    seconds: float
    value_error: float
    sensitivity_error: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.price_seconds

    @property
    def cells(self) -> tuple[str, ...]:
        milliseconds = (f"{1e3 * x:,.3g}" for x in (self.price_seconds, self.seconds))
        error = f"{self.sensitivity_error:.1e}" if self.sensitivity_error else "the answer"
        return self.way, *milliseconds, f"{self.ratio:,.1f}", f"{self.value_error:.1e}", error


def measure(repeat: int, bumps: int) -> list[Row]:
    results, times = interleaved(swept_ways(), 20 * repeat)
    _, answer = results["sweep"]
    others = peers()
    ways = bumped_ways() | {name: peer.price for name, peer in others.items()}
    ways |= {f"{name}, bumps": lambda p=peer: p.prices(bumps) for name, peer in others.items()}
    bumped, more = interleaved(ways, repeat)
    results, times = results | bumped, times | more
    largest = float(np.max(np.abs(answer)))

    def row(name, price_time, time, value, slopes):
        slope_error = float(np.max(np.abs(np.asarray(slopes) - answer))) / largest
        error = abs(float(value) / VALUE - 1.0)
        return Row(name, times[price_time].best, time, error, slope_error)

    rows = [row("ours, one reverse sweep", "price", times["sweep"].best, *results["sweep"])]
    for name in ("201 prices", "201 prices, one program"):
        prices = np.asarray(results[name])
        slopes = (prices[1:] - prices[0]) / BUMP
        rows.append(row(f"ours, {name}", "price", times[name].best, prices[0], slopes))
    for name, peer in others.items():
        prices = peer.prices(DAYS.size)
        slopes = (prices[1:] - prices[0]) / BUMP
        seconds = times[f"{name}, bumps"].best * (DAYS.size + 1) / (bumps + 1)
        rows.append(row(f"QuantLib, {name}", name, seconds, prices[0], slopes))
    return rows


def table_of(rows: list[Row]) -> Table:
    table = Table(title="value and 200 sensitivities of a Bermudan swaption")
    columns = ("price, ms", "all, ms", "in prices", "error of value", "of sensitivities")
    table.add_column("way")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row.cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--bumps", type=int, default=10, help="that QuantLib is timed on")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    console = Console(width=140, highlight=False)
    head = environment() | {"command": f"python -m benchmarks.bermudan --repeat {options.repeat}"}
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    rows = measure(options.repeat, options.bumps)
    console.print(table_of(rows))
    ratio = rows[0].ratio
    console.print(f"the sweep takes {ratio:.2f} prices; at most {AIM:g} are asked for")
    if options.out:
        figures = head | {"rows": [vars(row) | {"in_prices": row.ratio} for row in rows]}
        options.out.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
