"""CVA, DVA and FVA of a netting set closed out at its risky value, compared with nested Monte Carlo.

Run `python -m benchmarks.xva [--trades 100] [--dates 40] [--paths 16384] [--outer 512] [--inner 64] [--repeat
3] [--out FILE]`. Ten-year swaps, swaptions, Bermudan swaptions and equity options, long and short, under
Hull-White and Black-Scholes with two assets. Ours finds the sign of the exposure by one backward regression,
and values on fresh paths. Nested Monte Carlo takes the adjustments after each date of an outer path as the mean
over inner paths, on which the sign of the clean value decides; its error is of the order of the square of the
adjustments' share. Both use the same functions of trades. For a comparison within 1 % with few outer paths, the
cost by the sign of the clean value is a control variate. Its mean is over other paths, four times the number of
inner ones; the plain standard error is that without it. Seconds are those of the best round, after compilation.
An inner path is simulated from today, so nested seconds count only the steps after the split: a half. "At equal
noise" they are scaled to our standard error, for plain nested Monte Carlo and with the control. Derivatives by
one reverse sweep are compared with central differences on the same random numbers.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing import BermudanSwaption, BlackScholes, European, HullWhite, Swap, Swaption, ZeroCurve
from pricing.fbsde import XVA, CreditCurve, JointModel, NettingSet, xva
from pricing.fbsde.counterparty import (
    Exposure,
    ExposurePaths,
    Weights,
    cost_samples,
    weights_of,
)

from .command import Run, parser_of, table_of
from .timing import Timing, interleaved

BORROWING, LENDING = 0.01, 0.005
QUOTES = {
    "zero rates": ([0.02, 0.025, 0.03], 1e-4),
    "rate vol": (0.01, 1e-4),
    "equity vols": ([0.2, 0.3], 1e-3),
    "spots": ([100.0, 90.0], 0.1),
    "CDS spreads": ([0.02, 0.03], 1e-4),
}
"""Quotes and their bumps; all numbers of a kind are bumped together."""
_OUTER, _CONTROL = 32, 1024  # paths at once

Numbers = dict[str, jax.Array]


def netting_set(count: int) -> NettingSet:
    """Return half swaps, and a sixth each of swaptions, Bermudan swaptions and equity options."""
    dice, trades, assets = np.random.default_rng(3), [], []
    for place in range(count):
        start, years = int(dice.integers(0, 5)), int(dice.integers(2, 6))
        paid = np.arange(start + 1.0, start + years + 1.0)
        rate, side = dice.uniform(0.02, 0.04), ("payer", "receiver")[int(dice.integers(2))]
        strike, assets = dice.uniform(80.0, 120.0), [*assets, int(dice.integers(2))]
        legs: tuple[Any, ...] = (paid, np.ones(years), side)
        kind = 0 if place % 2 == 0 else 1 + (place // 2) % 3
        notional = {"notional": 100.0}
        if kind == 0:
            trades.append(Swap(rate, float(start), *legs, **notional))
        elif kind == 1:
            trades.append(Swaption(rate, start + 0.5, *legs, **notional))
        elif kind == 2:
            entries = start + 0.5 + np.arange(years)
            trades.append(BermudanSwaption(rate, entries, *legs, **notional))
        else:
            trades.append(European(strike, start + 1.0, "put" if place % 4 == 1 else "call"))
    return NettingSet(trades, dice.choice([-1.0, 1.0, 2.0], count), assets=tuple(assets))


def market(numbers: Numbers) -> tuple[JointModel, CreditCurve, CreditCurve]:
    curve = ZeroCurve([1.0, 3.0, 10.0], numbers["zero rates"])
    correlation = [[1.0, 0.4], [0.4, 1.0]]
    vols = numbers["equity vols"]
    equities = BlackScholes(numbers["spots"], 0.03, vols, asset_correlation=correlation)
    client = CreditCurve.from_spreads([3.0, 10.0], numbers["CDS spreads"], curve)
    rates = HullWhite(curve, 0.05, numbers["rate vol"])
    return JointModel(rates, equities, [0.2, -0.1]), client, CreditCurve([10.0], [0.015])


def quotes() -> Numbers:
    return {name: jnp.asarray(value) for name, (value, _) in QUOTES.items()}


class Set:
    """One netting set, and both ways to value its default and funding costs."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.trades = options, netting_set(options.trades)
        self.ours = eqx.filter_jit(self._ours)
        self.slopes = eqx.filter_jit(
            eqx.filter_grad(lambda numbers, key: self._ours(numbers, key).total.mean)
        )
        self.nested = eqx.filter_jit(self._nested)

    def _ours(self, numbers: Numbers, key) -> XVA:
        model, client, bank = market(numbers)
        return xva(
            self.trades,
            model,
            client,
            bank,
            key=key,
            close_out="risky",
            borrowing_spread=BORROWING,
            lending_spread=LENDING,
            num_dates=self.options.dates,
            num_paths=self.options.paths,
            num_fit_paths=min(8192, self.options.paths),
            block=1024,
        )

    def _nested(self, numbers: Numbers, key) -> jax.Array:
        """Return samples of a e^+ - b e^-, e the clean value less nested adjustments, and of the control."""
        paths, middles, weights = self._paths(numbers)
        outer = functools.partial(self._outer, paths, middles, weights)
        count = -(-self.options.outer // _OUTER)
        found = jax.lax.map(outer, jax.random.split(key, count))
        return jnp.moveaxis(found, 1, 0).reshape(2, -1)

    def _control(self, numbers: Numbers, key) -> jax.Array:
        """Return samples of the control only."""
        paths, middles, weights = self._paths(numbers)
        shape = *paths.dates.factor.shape[:2], _CONTROL

        def of_block(key):
            seen = paths.simulate(jax.random.normal(key, shape))
            return _signed(jax.tree.map(lambda leaf: leaf[middles], seen), weights)

        count = max(1, 4 * self.options.outer * self.options.inner // _CONTROL)
        return jax.lax.map(of_block, jax.random.split(key, count)).ravel()

    def _paths(self, numbers: Numbers) -> tuple[ExposurePaths, jax.Array, Weights]:
        model, client, bank = market(numbers)
        flows = self.trades.flows
        grid = jax.tree.map(jnp.asarray, flows.grid(self.options.dates))
        arrays = jax.tree.map(jnp.asarray, flows._replace(exercise=()))
        paths = ExposurePaths.of(
            model, arrays, grid.times, grid.may_exercise, self.trades.threshold
        )
        spreads = jnp.asarray(BORROWING), jnp.asarray(LENDING)
        return paths, grid.middles, weights_of(grid.edges, client, bank, spreads, True)

    def _outer(self, paths: ExposurePaths, middles, weights: Weights, key) -> jax.Array:
        """Return samples of a few outer paths."""
        of_outer, of_inner = jax.random.split(key)
        steps, motions = paths.dates.factor.shape[:2]
        noise = jax.random.normal(of_outer, (steps, motions, _OUTER))
        seen = jax.tree.map(lambda leaf: leaf[middles], paths.simulate(noise))

        def of_date(place):
            date, index = place
            drawn = jax.random.normal(
                jax.random.fold_in(of_inner, index), (steps, motions, _OUTER * self.options.inner)
            )
            is_past = (jnp.arange(steps) <= date)[:, None, None]
            held = jnp.repeat(noise, self.options.inner, axis=2)
            inner = paths.simulate(jnp.where(is_past, held, drawn))
            inner = jax.tree.map(lambda leaf: leaf[middles], inner)
            later = (jnp.arange(middles.size) > index).astype(drawn.dtype)
            costs = (weight * later for weight in weights[:4])
            samples = _signed(inner, Weights(*costs, weights.carry))
            return jnp.mean(samples.reshape(_OUTER, self.options.inner), axis=1)

        later = jax.lax.map(of_date, (middles, jnp.arange(middles.size)))
        return jnp.stack([_costs(seen, later, weights), _signed(seen, weights)])


def _signed(seen: Exposure, weights: Weights) -> jax.Array:
    """Return the cost of each path, if the sign of the clean value decides."""
    return cost_samples(seen, None, weights) @ jnp.array([1.0, 1.0, -1.0, -1.0])


def _costs(seen: Exposure, later: jax.Array, weights: Weights) -> jax.Array:
    owed = seen.value - later
    up, down = weights.cva + weights.borrowing, weights.dva + weights.lending
    return jnp.sum(jnp.where(owed > 0.0, up[:, None] * owed, down[:, None] * owed), axis=0)


def derivatives(one: Set, key) -> list[dict[str, Any]]:
    """Return the total's derivative along each kind of quote, by the sweep and by bumping all its numbers."""
    start, slopes = quotes(), one.slopes(quotes(), key)
    rows = []
    for name, (_, by) in QUOTES.items():
        up, down = (
            float(one.ours(start | {name: start[name] + sign * by}, key).total.mean)
            for sign in (1.0, -1.0)
        )
        swept, bumped = float(jnp.sum(slopes[name])), (up - down) / (2.0 * by)
        rows.append(
            {"quote": name, "sweep": swept, "bump": bumped, "difference": swept / bumped - 1.0}
        )
    return rows


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of the benchmark."""
    one, start = Set(options), quotes()
    ways = {
        "jaxtape": lambda: one.ours(start, jax.random.key(0)),
        "jaxtape, derivatives": lambda: one.slopes(start, jax.random.key(0)),
    }
    found, times = interleaved(ways, options.repeat)
    nested, nested_times = interleaved({"nested": lambda: one.nested(start, jax.random.key(1))}, 1)
    ours, (plain, control) = found["jaxtape"], nested["nested"]
    known = eqx.filter_jit(one._control)(start, jax.random.key(3))
    apart = np.asarray(plain - control)
    mean = float(jnp.mean(known)) + apart.mean()
    error = np.hypot(_error(apart), _error(known))
    plain_error = _error(plain)
    share = 0.5  # of the steps of an inner path are after the split, in the mean over dates
    seconds, noise = times["jaxtape"].best, float(ours.total.std_error)
    peer = share * nested_times["nested"].best
    equal, with_control = (peer * (own / noise) ** 2 for own in (plain_error, error))
    parts = {name: float(getattr(ours, name).mean) for name in ("cva", "dva", "fva", "total")}
    return {
        "value": float(ours.value),
        **parts,
        "total_error": noise,
        "nested": float(mean),
        "nested_error": float(error),
        "nested_plain_error": plain_error,
        "difference": parts["total"] / float(mean) - 1.0,
        "seconds": seconds,
        "nested_seconds": peer,
        "nested_seconds_at_equal_noise": equal,
        "nested_seconds_with_control": with_control,
        "ratio": equal / seconds,
        "ratio_with_control": with_control / seconds,
        "derivative_seconds": times["jaxtape, derivatives"].best,
        "derivatives": derivatives(one, jax.random.key(2)),
        "times": {"ours": times["jaxtape"], "nested": Timing.of(equal, equal)},
    }


def _error(samples) -> float:
    return float(np.std(samples) / np.sqrt(samples.size))


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, trades=100, dates=40, paths=16384, outer=512, inner=64, repeat=3)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("xva", parser(), argv)
    figures = measured(run.options)
    times = figures.pop("times")
    table = table_of(
        f"{run.options.trades} trades, closed out on the risky value", "figure", "found"
    )
    rows = figures.pop("derivatives")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.5g}")
    run.console.print(table)
    slopes = table_of("derivatives of the total", "quote", "sweep", "bump", "difference")
    for row in rows:
        cells = (f"{row['sweep']:.5g}", f"{row['bump']:.5g}", f"{row['difference']:+.2%}")
        slopes.add_row(row["quote"], *cells)
    run.console.print(slopes)
    run.beside(
        "bilateral adjustments", {"jaxtape": times["ours"], "nested Monte Carlo": times["nested"]}
    )
    error = float(np.hypot(figures["total_error"], figures["nested_error"]))
    run.answer("total, nested", figures["difference"], figures["nested"], figures["total"], error)
    run.keep(
        {**figures, "derivatives": rows}, f"nested takes {figures['ratio']:.3g} x at equal noise"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
