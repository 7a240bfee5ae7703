"""Sensitivities to quotes through a fit, compared with one residual Jacobian, and with bumping every quote.

Run `python -m benchmarks.quote_sensitivities [--bumps 8] [--repeat 100] [--out FILE]`. Two fits: Heston to the
DAX's 104 vols, Hull and White to a matrix of 25. The value is cheap, a product of parameters, so that the time
is that of the derivative through the fit. One residual Jacobian is `LeastSquaresProblem.linearized`, the cost
of a step of the search. The peer bumps a quote up and down and refits (`calibration.fit`, from the optimum),
for the first few quotes, scaled to all of them. All are warmed up and take turns.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from calibration import Calibration, calibrate, fit, quote_sensitivities
from pricing import Heston, HullWhite, Market

from .command import Run, parser_of, table_of, whole
from .large_book import SAMPLES
from .timing import Timed, take_turns

STEP = 1e-4  # bump of a vol


def of_heston(model: Any):
    return model.initial_variance * model.vol_of_vol


def of_hull_white(model: Any):
    return model.mean_reversion * model.vol


def cases() -> dict[str, tuple[Market, str, Any, Any]]:
    """Name -> market, underlying, start and value."""
    market = Market.read(SAMPLES / "dax_2002-07-05.json")
    equities = {"DAX": market.equities["DAX"]}
    dax = dataclasses.replace(market, equities=equities, correlations={}, swaption_vols=None)
    rates = dataclasses.replace(market, equities={}, correlations={})
    return {
        "Heston, DAX": (dax, "DAX", Heston.starting_on(dax, "DAX"), of_heston),
        "Hull-White, 5 x 5": (rates, "EUR", HullWhite.starting_on(rates, "EUR"), of_hull_white),
    }


@eqx.filter_jit
def linearized(calibration: Calibration):
    problem = calibration.problem
    return problem.linearized(problem.parameters.free(calibration.model))


class Bumps:
    """The peer: central differences of fits to bumped quotes."""

    def __init__(self, market: Market, name: str, calibration: Calibration, value: Any, count: int):
        self.market, self.name, self.value, self.count = market, name, value, count
        self.fit = fit(calibration.model)
        vols = calibration.problem.quotes.vols
        self.vols = lambda m: (
            m.swaption_vols.vols if m.swaption_vols else m.equities[name].surface.vols
        )
        self.places = [np.unravel_index(i, vols.shape) for i in range(min(count, vols.size))]

    def value_at(self, place: tuple, step: float) -> float:
        vols = np.array(self.vols(self.market))
        vols[place] += step
        moved = eqx.tree_at(self.vols, self.market, jax.device_put(vols))
        return float(self.value(self.fit(moved)[self.name]))

    def __call__(self) -> np.ndarray:
        pairs = (
            [self.value_at(place, sign * STEP) for sign in (1.0, -1.0)] for place in self.places
        )
        return np.array([(up - down) / (2.0 * STEP) for up, down in pairs])


def of_case(name: str, case: tuple, options: argparse.Namespace) -> dict[str, Any]:
    market, underlying, start, value = case
    quotes = start.quotes_in(market)[underlying]
    calibration = calibrate(quotes, start)
    ways = {
        "residual Jacobian": Timed(lambda: linearized(calibration)),
        "quote_sensitivities": Timed(lambda: quote_sensitivities(calibration, value)),
        "Gauss-Newton": Timed(
            lambda: quote_sensitivities(calibration, value, hessian="gauss-newton")
        ),
    }
    take_turns(ways.values(), options.repeat)
    bumps = Timed(Bumps(market, underlying, calibration, value, options.bumps))
    take_turns([bumps], 2)
    ours = np.ravel(ways["quote_sensitivities"].out)
    seconds = {way: min(timed.seconds) for way, timed in ways.items()}
    gap = np.max(np.abs(ours[: bumps.out.size] - bumps.out)) / np.max(np.abs(ours))
    return {
        "case": name,
        "quotes": int(ours.size),
        "seconds": seconds | {"bumps of all": min(bumps.seconds) / bumps.out.size * ours.size},
        "jacobians": seconds["quote_sensitivities"] / seconds["residual Jacobian"],
        "difference": float(gap),
    }


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, repeat=100)
    found.add_argument("--bumps", type=whole, default=8, metavar="N", help="quotes to bump")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("quote_sensitivities", parser(), argv)
    rows = [of_case(name, case, run.options) for name, case in cases().items()]
    table = table_of(
        "to quotes through the fit, ms",
        "fit", "quotes", "residual Jacobian", "sensitivities", "Jacobians", "Gauss-Newton",
        "bumps of all", "difference", left=1,
    )  # fmt: skip
    for row in rows:
        ms = {way: f"{1e3 * seconds:.2f}" for way, seconds in row["seconds"].items()}
        jacobian, ours, gauss_newton, bumps = ms.values()
        cells = jacobian, ours, f"{row['jacobians']:.2f}", gauss_newton, bumps
        table.add_row(row["case"], str(row["quotes"]), *cells, f"{row['difference']:.0e}")
    run.console.print(table)
    text = ", ".join(f"{row['jacobians']:.2f} ({row['case']})" for row in rows)
    run.keep({"rows": rows}, f"{text} residual Jacobians")
    return 0


if __name__ == "__main__":
    sys.exit(main())
