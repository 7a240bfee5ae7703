"""Lower and upper bounds of early-exercise values, compared with known values.

Run `python -m benchmarks.early_exercise [--paths 32768] [--repeat 3] [--only WORD] [--out FILE]`. Puts of
Longstaff and Schwartz (2001), Table 1, with 50 dates a year; best-of calls of Andersen and Broadie (2004),
Table 2, of two assets (answer from a grid) and of five (a point estimate); the idealised Bermudan swaption
(quadrature). The seconds are those of both bounds, including the fit but not compilation.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import jax
import numpy as np

from pricing import (
    Basket,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    European,
    HullWhite,
    LeastSquares,
    bounds,
)

from .command import Run, parser_of, table_of
from .timing import interleaved

_PUTS = (
    (36.0, 0.2, 1, 4.4778),
    (40.0, 0.2, 1, 2.3141),
    (44.0, 0.2, 1, 1.1099),
    (36.0, 0.4, 2, 8.5068),
    (40.0, 0.4, 2, 6.9171),
    (44.0, 0.4, 2, 5.6412),
)
_BEST_OF = {2: 13.90178, 5: 26.159}


@dataclass(frozen=True)
class Row:
    """The bounds of a contract; `gap` is relative to the answer."""

    contract: str
    answer: float
    lower: float
    lower_error: float
    upper: float
    upper_error: float
    gap: float
    seconds: float


def cases():
    """Yield (name, product, model, answer)."""
    for spot, vol, expiry, answer in _PUTS:
        dates = np.arange(1, 50 * expiry + 1) / 50.0
        put = Bermudan(European(40.0, float(expiry), "put"), dates)
        yield f"put {spot:g}, {vol:.0%}, {expiry}y", put, BlackScholes(spot, 0.06, vol), answer
    call = Bermudan(Basket(100.0, 3.0, average="max"), np.arange(1, 10) / 3.0)
    for assets, answer in _BEST_OF.items():
        spots, vols, yields = (assets * [x] for x in (100.0, 0.2, 0.1))
        model = BlackScholes(spots, 0.05, vols, yields, asset_correlation=np.eye(assets))
        yield f"best of {assets}", call, model, answer
    swaption = BermudanSwaption(
        0.0499664907, np.arange(1.0, 6.0), np.arange(2.0, 7.0), np.ones(5), "payer", 1000.0
    )
    yield "Bermudan swaption", swaption, HullWhite(0.04875825, 0.048696, 0.0058904), 12.9258599208


def measured(name, product, model, answer, paths: int, repeat: int) -> Row:
    method, key = LeastSquares(paths), jax.random.key(2026)
    found, times = interleaved({"": lambda: bounds(product, model, method, key=key)}, repeat)
    found, seconds = found[""], times[""].best
    figures = (found.lower, found.std_errors.lower, found.upper, found.std_errors.upper)
    return Row(name, answer, *map(float, figures), float(found.gap) / answer, seconds)


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, paths=32768, repeat=3)
    found.add_argument("--only", default="", help="only contracts whose names contain this")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("early_exercise", parser(), argv)
    options = run.options
    chosen = [case for case in cases() if options.only in case[0]]
    if not chosen:
        run.error(f"no contract's name contains {options.only!r}: {[name for name, *_ in cases()]}")
    rows = [measured(*case, options.paths, options.repeat) for case in chosen]
    headings = ("answer", "lower", "±", "upper", "±", "gap", "seconds")
    table = table_of(f"{options.paths:,} paths", "contract", *headings)
    for row in rows:
        name, *numbers, gap, seconds = asdict(row).values()
        table.add_row(name, *(f"{x:.5f}" for x in numbers), f"{gap:.2%}", f"{seconds:.2f}")
    run.console.print(table)
    for row in rows:
        for side in ("lower", "upper"):
            found, error = getattr(row, side), getattr(row, f"{side}_error")
            run.answer(
                f"{row.contract}, {side}", found / row.answer - 1.0, row.answer, found, error
            )
    widest = max(row.gap for row in rows)
    run.keep({"rows": [asdict(row) for row in rows]}, f"bounds at most {widest:.2%} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
