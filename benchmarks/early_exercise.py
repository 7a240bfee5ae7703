"""Lower and upper bounds of rights to exercise early, beside what they are worth.

Run `python -m benchmarks.early_exercise [--paths 32768] [--repeat 3] [--out FILE]`. Puts of Longstaff and
Schwartz (2001), Table 1, with 50 dates a year; best-of calls of Andersen and Broadie (2004), Table 2, of two
assets (answer from a grid) and of five (a point estimate); the idealised Bermudan swaption (quadrature). The
seconds are of both bounds, the fit included, once they are compiled.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

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

from .timing import environment, interleaved

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
    """gap: relative to the answer."""

    contract: str
    answer: float
    lower: float
    lower_error: float
    upper: float
    upper_error: float
    gap: float
    seconds: float


def cases():
    """(name, product, model, answer)."""
    for spot, vol, expiry, answer in _PUTS:
        dates = np.arange(1, 50 * expiry + 1) / 50.0
        put = Bermudan(European(40.0, float(expiry), "put"), dates)
        yield f"put {spot:g}, {vol:.0%}, {expiry}y", put, BlackScholes(spot, 0.06, vol), answer
    call = Bermudan(Basket(100.0, 3.0, kind="max"), np.arange(1, 10) / 3.0)
    for assets, answer in _BEST_OF.items():
        spots, vols, yields = (assets * [x] for x in (100.0, 0.2, 0.1))
        model = BlackScholes(spots, 0.05, vols, yields, correlation=np.eye(assets))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=32768)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = [measured(*case, options.paths, options.repeat) for case in cases()]
    table = Table(title=f"{options.paths:,} paths")
    for heading in ("contract", "answer", "lower", "±", "upper", "±", "gap", "seconds"):
        table.add_column(heading, justify="left" if heading == "contract" else "right")
    for row in rows:
        name, *numbers, gap, seconds = asdict(row).values()
        table.add_row(name, *(f"{x:.5f}" for x in numbers), f"{gap:.2%}", f"{seconds:.2f}")
    Console().print(table)
    if options.out is not None:
        found = {**environment(), "paths": options.paths, "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
