"""The cost of edits of a tape, by the bytes of its params, compared with cutting an array; and that of a plan.

Run `python -m benchmarks.edits [--nodes 365] [--repeat 200] [--planned 1000000] [--out FILE]`. The array is
NumPy's, cut in the middle.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

import jaxtape as jt

from .command import Run, parser_of, table_of

WIDTHS = (1, 100, 10_000, 100_000)  # sizes of a node's params


def scale(params, state):
    return state * params


def microseconds(edit: Callable, repeat: int) -> float:
    """Return the best of five means."""
    edit()
    means = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeat):
            edit()
        means.append((time.perf_counter() - start) / repeat)
    return 1e6 * min(means)


def plan_seconds(nodes: int) -> float:
    """Return the seconds of a plan of `nodes` nodes, without cached tables."""
    tape, x = jt.Tape().append(scale, jnp.ones(nodes)), jnp.ones(1)
    jt.plan(tape[:10], x, slots=3)  # warm up JAX
    start = time.perf_counter()
    jt.plan(tape, x, slots=12)
    return time.perf_counter() - start


def edits_of(nodes: int, width: int) -> dict[str, Callable]:
    """Return edits of a tape with `nodes` nodes, and the cut of an array of the same bytes."""
    middle, payload = nodes // 2, np.ones((nodes, width), np.float32)
    tape = jt.Tape().with_schedule(jt.Revolve(12)).append(scale, jnp.asarray(payload)).mark(1)
    return {
        "erase": lambda: tape.erase(middle, middle + 1),
        "drop": lambda: tape.drop(1),
        "truncate": lambda: tape.truncate(middle),
        "mark": lambda: tape.mark(middle),
        "split": lambda: tape.split(middle),
        "cut an array": lambda: np.delete(payload, middle, axis=0),
    }


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, nodes=365, repeat=200, planned=1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("edits", parser(), argv, precision="float32")
    options = run.options
    rows = []
    for width in WIDTHS:
        repeat = min(3, options.repeat) if width > 1000 else options.repeat
        edits = edits_of(options.nodes, width)
        times = {name: microseconds(edit, repeat) for name, edit in edits.items()}
        rows.append({"bytes": 4 * options.nodes * width, "microseconds": times})
    title = f"microseconds an edit, {options.nodes} nodes"
    table = table_of(title, "bytes of params", *rows[0]["microseconds"])
    for row in rows:
        table.add_row(f"{row['bytes']:,}", *(f"{t:,.0f}" for t in row["microseconds"].values()))
    run.console.print(table)
    seconds = plan_seconds(options.planned)
    headline = f"a plan of {options.planned:,} nodes: {seconds:.2f} s"
    run.console.print(headline)
    run.keep({"rows": rows, "plan_seconds": seconds}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
