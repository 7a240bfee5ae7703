"""The first price and the first Greeks of a process: without stored programs, storing them, reading them.

Run `python -m benchmarks.first_price [--repeat 5] [--out FILE]`. A round starts three fresh processes: with
`JAXTAPE_CACHE=off`, with an empty folder, and with the folder that the second one filled. Each imports the
library, values a European call under Heston, and takes its Greeks. A ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .command import Run, parser_of, table_of

WAYS = "off", "empty", "filled"
PARTS = "import", "price", "greeks"
PROGRAM = """
import json, time
times = [time.perf_counter()]
from pricing import European, Heston, greeks, price
times.append(time.perf_counter())
model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
for verb in (price, greeks):
    float(verb(European(100.0, 1.0), model).value)
    times.append(time.perf_counter())
print(json.dumps(times))
"""


def seconds_of(cache: str) -> dict[str, float]:
    """Return the seconds of each part of a fresh process that stores programs in a folder, or not ("off")."""
    environment = os.environ | {"JAXTAPE_CACHE": cache, "JAX_COMPILATION_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parent.parent,
    )
    times = json.loads(done.stdout)
    return {name: b - a for name, a, b in zip(PARTS, times[:-1], times[1:], strict=True)}


def measured(repeat: int) -> list[dict[str, dict[str, float]]]:
    """Return the seconds of each way by round, after a process that compiles bytecode."""
    seconds_of("off")
    rounds = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            caches = dict(zip(WAYS, ("off", folder, folder), strict=True))
            rounds.append({way: seconds_of(cache) for way, cache in caches.items()})
    return rounds


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, repeat=5)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("first_price", parser(), argv)
    rounds = measured(run.options.repeat)
    rows = []
    for way in WAYS:
        median = {part: statistics.median(each[way][part] for each in rounds) for part in PARTS}
        ratio = statistics.median(
            sum(each[way][part] for part in PARTS[1:])
            / sum(each["off"][part] for part in PARTS[1:])
            for each in rounds
        )
        rows.append({"cache": way, **median, "ratio": ratio})
    table = table_of("seconds of fresh processes", *rows[0])
    for row in rows:
        table.add_row(*(x if isinstance(x, str) else f"{x:.2f}" for x in row.values()))
    run.console.print(table)
    last = rows[-1]
    headline = (
        f"with stored programs the first price takes {last['price']:.2f} s and the first Greeks "
        f"{last['greeks']:.2f} s, together {last['ratio']:.2f} of the time without"
    )
    run.console.print(headline)
    run.keep({"rows": rows}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
