"""What an edit of a tape costs, beside the bytes of its params, and beside an array that is cut; and what a
plan of a long tape does.

Run `python -m benchmarks.edits [--nodes 365] [--repeat 200]`. The array is NumPy's, cut in the middle.
"""

import argparse
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxtape as jt


def scale(params, state):
    return state * params


def microseconds(edit: Callable, repeat: int) -> float:
    """The best of five means."""
    edit()
    means = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeat):
            edit()
        means.append((time.perf_counter() - start) / repeat)
    return 1e6 * min(means)


def plan_seconds(nodes: int) -> float:
    """Of a plan of so many nodes, no table of which is remembered."""
    tape, x = jt.Tape().append(scale, jnp.ones(nodes)), jnp.ones(1)
    jt.plan(tape[:10], x, slots=3)  # JAX's own start
    start = time.perf_counter()
    jt.plan(tape, x, slots=12)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=365)
    parser.add_argument("--repeat", type=int, default=200)
    options = parser.parse_args()
    n, middle = options.nodes, options.nodes // 2
    table = Table(title=f"microseconds an edit, {n} nodes")
    table.add_column("bytes of params")
    names = ("erase", "drop", "truncate", "mark", "split", "cut an array")
    for name in names:
        table.add_column(name, justify="right")
    for width in (1, 100, 10_000, 100_000):
        payload = np.ones((n, width), np.float32)
        tape = jt.Tape().with_schedule(jt.Revolve(12)).append(scale, jnp.asarray(payload)).mark(1)
        edits = (
            lambda tape=tape: tape.erase(middle, middle + 1),
            lambda tape=tape: tape.drop(1),
            lambda tape=tape: tape.truncate(middle),
            lambda tape=tape: tape.mark(middle),
            lambda tape=tape: tape.split(middle),
            lambda payload=payload: np.delete(payload, middle, axis=0),
        )
        times = (microseconds(edit, 3 if width > 1000 else options.repeat) for edit in edits)
        table.add_row(f"{payload.nbytes:,}", *(f"{t:,.0f}" for t in times))
    console = Console(width=110)
    console.print(table)
    console.print(f"a plan of 1,000,000 nodes: {plan_seconds(1_000_000):.2f} s")


if __name__ == "__main__":
    main()
