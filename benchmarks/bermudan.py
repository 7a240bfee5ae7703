"""The sensitivities of a Bermudan swaption to 200 zero rates, by one reverse sweep or by 201 prices.

Run `python -m benchmarks.bermudan [--pillars 200] [--repeat 10] [--bumps 10] [--engines 4] [--out FILE]`. The
contract's times are whole years of 365 days, so that QuantLib's lattices use the same dates as we do. Every
bump moves one pillar up by 1 bp. QuantLib is timed on the first `--bumps` of them, scaled to 200; its
sensitivities are to all. The references are the value by quadrature to ten digits, and our sweep, which tests
compare with difference quotients (`tests/pricing/test_bermudan_swaption.py`).
"""

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pricing import BermudanSwaption, HullWhite, Quadrature, ZeroCurve, price

from .bermudan_contract import (
    BUMP,
    EXERCISES,
    MEAN_REVERSION,
    NOTIONAL,
    PAYMENTS,
    RATE,
    STRIKE,
    VOL,
    days_of,
)
from .beside import Measured, Turns
from .command import Run, parser_of, table_of, whole
from .timing import interleaved

VALUE = 12.9258599208
AIM = 4.0  # maximum cost of the sweep, in prices


# --- ours ---------------------------------------------------------------------------------------------


def value(days: np.ndarray, zero_rates):
    """Return today's value on a curve through `zero_rates` at the pillars."""
    years = [dates.astype(float) for dates in (EXERCISES, PAYMENTS)]
    swaption = BermudanSwaption(STRIKE, *years, np.ones(5), "payer", NOTIONAL)
    model = HullWhite(ZeroCurve(days / 365.0, zero_rates), MEAN_REVERSION, VOL)
    return price(swaption, model, Quadrature()).value


@functools.cache
def our_ways(pillars: int) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """Return the price and the price with its gradient; prices on the base curve and each bumped one."""
    days = days_of(pillars)
    rates, at = jnp.full(pillars, RATE), functools.partial(value, days)
    price, sweep, batch = jax.jit(at), jax.jit(jax.value_and_grad(at)), jax.jit(jax.vmap(at))
    curves = jnp.concatenate([rates[None], rates[None] + BUMP * jnp.eye(pillars)])
    each = list(curves)
    name = f"{len(each)} prices"
    swept = {"price": lambda: price(rates), "sweep": lambda: sweep(rates)}
    bumped = {
        name: lambda: jnp.stack([price(curve) for curve in each]),
        f"{name}, one program": lambda: batch(curves),
    }
    return swept, bumped


# --- the table ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A method for the value and its sensitivities, with its best seconds and relative errors.

    `sensitivity_error` is the largest over the pillars, relative to the largest sensitivity.
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


def measure(run: Run, days: np.ndarray, others: dict[str, Any]) -> list[Row]:
    swept, ours = our_ways(days.size)
    repeat, bumps = run.options.repeat, min(run.options.bumps, days.size)
    results, times = interleaved(swept, 20 * repeat)
    _, answer = results["sweep"]
    ways = ours | {"beside": swept["sweep"]} | {name: peer.price for name, peer in others.items()}
    ways |= {f"{name}, bumps": lambda p=peer: p.prices(bumps) for name, peer in others.items()}
    bumped, more = interleaved(ways, repeat)
    results, times = results | bumped, times | more
    largest = float(np.max(np.abs(answer)))

    def row(name, price_time, time, value, slopes):
        slope_error = float(np.max(np.abs(np.asarray(slopes) - answer))) / largest
        error = abs(float(value) / VALUE - 1.0)
        return Row(name, times[price_time].best, time, error, slope_error)

    scale = (days.size + 1) / (bumps + 1)
    sides: dict[str, Measured] = {"ours, one reverse sweep": times["beside"]}
    for name in others:
        turns = times[f"{name}, bumps"].by_turn
        sides[name] = Turns({turn: scale * seconds for turn, seconds in turns.items()})
    run.beside(f"value and {days.size} sensitivities", sides)
    rows = [row("ours, one reverse sweep", "price", times["sweep"].best, *results["sweep"])]
    for name in ours:
        prices = np.asarray(results[name])
        slopes = (prices[1:] - prices[0]) / BUMP
        rows.append(row(f"ours, {name}", "price", times[name].best, prices[0], slopes))
    for name, peer in others.items():
        prices = peer.prices(days.size)
        slopes = (prices[1:] - prices[0]) / BUMP
        seconds = times[f"{name}, bumps"].best * scale
        rows.append(row(f"QuantLib, {name}", name, seconds, prices[0], slopes))
    return rows


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, pillars=200, repeat=10, bumps=10)
    found.add_argument("--engines", type=whole, default=4, help="number of QuantLib engines")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("bermudan", parser(), argv)
    days, others = days_of(run.options.pillars), {}
    if run.has("QuantLib"):
        from .bermudan_quantlib import peers

        others = dict(itertools.islice(peers(days).items(), run.options.engines))
    rows = measure(run, days, others)
    for row in rows:
        run.answer(f"value, {row.way}", row.value_error, VALUE)
    columns = ("price, ms", "all, ms", "in prices", "error of value", "of sensitivities")
    table = table_of(f"value and {days.size} sensitivities of a Bermudan swaption", "way", *columns)
    for row in rows:
        table.add_row(*row.cells)
    run.console.print(table)
    headline = f"the sweep takes {rows[0].ratio:.2f} prices; the aim is at most {AIM:g}"
    run.console.print(headline)
    run.keep({"rows": [vars(row) | {"in_prices": row.ratio} for row in rows]}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
