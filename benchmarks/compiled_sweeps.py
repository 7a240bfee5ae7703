"""The gradient of a Heston call as compiled for accelerators; no accelerator is needed.

Run `python -m benchmarks.compiled_sweeps [--target gpu:h100] [--steps 365] [--paths 262144] [--precision
float64] [--out FILE]`, after `pip install 'jaxtape[cuda]'` (or `[tpu]`). For each way: the bytes of temporaries
in units of the states of all paths, the kernels that a gradient launches, the loops, those of them whose length
the compiler does not know (a GPU copies their condition to the host at every iteration), the copies in loop
bodies, and the bytes of temporaries on the host. Rows of `while_loop` run the same steps by a loop whose length
depends on the data.
"""

import argparse
import functools
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import jaxtape as jt

from .command import parser_of
from .problems import HESTON, Problem
from .ways import Way, by_tape, length_of, peer_ways

SCHEDULES = (
    *(jt.Revolve(slots) for slots in (12, 15, 19, 24, 26, 64)),
    jt.Periodic(20),
    jt.Recursive(3),
    jt.MultiStage(4, 28),
)
WHILE_SLOTS = 8, 26, 64


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    dtype = jnp.dtype(options.precision)
    jax.config.update("jax_enable_x64", dtype == jnp.float64)
    problem = Problem(HESTON, options.steps, options.paths, "given")
    ways = [Way("jaxtape", repr(each), functools.partial(by_tape, each)) for each in SCHEDULES]
    ways += [
        Way("jaxtape", f"while_loop, {slots} slots", functools.partial(by_while, slots))
        for slots in WHILE_SLOTS
    ]
    ways += [way for way in peer_ways(problem.steps, False) if way.system == "jax.checkpoint"]
    rows = [row_of(way, problem, dtype, options.target) for way in ways]
    table = Table("way", *list(rows[0])[1:], title=f"{problem.title}, {dtype}, {options.target}")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=140, highlight=False).print(table)
    if options.out:
        options.out.write_text(json.dumps({**vars(options), "out": None, "rows": rows}, indent=1))


def by_while(slots: int, f, init, xs):
    """Run a chain by `jt.while_loop`."""
    n = length_of(xs)

    def body(carry):
        k, state = carry
        return k + 1, f(state, jax.tree.map(lambda a: a[k], xs))[0]

    return jt.while_loop(lambda carry: carry[0] < n, body, (0, init), n, slots=slots)[1]


def row_of(way: Way, problem: Problem, dtype: Any, target: str) -> dict[str, Any]:
    """Return the figures of one way."""
    gradient = jax.grad(functools.partial(problem.value, way.scan))
    parameters = tuple(jnp.asarray(p, dtype) for p in problem.model.parameters)
    normals = jax.ShapeDtypeStruct((problem.steps, *problem.normals_shape), dtype)
    report = jt.compile_for(gradient, parameters, normals, target=target)
    if not report.compiles:
        return {"way": way.name, "states": report.reason}
    state = len(problem.model.needed) * problem.paths * dtype.itemsize
    return {
        "way": way.name,
        "states": round(report.temporary_bytes / state, 2),
        "kernels": report.kernels,
        "loops": len(report.loops),
        "of unknown length": sum(loop.turns is None for loop in report.loops),
        "copies": sum(loop.copies for loop in report.loops),
        "host bytes": report.host_bytes,
    }


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, steps=365, paths=262144)
    parser.add_argument("--target", default="gpu:h100", help="a target of `jaxtape.compile_for`")
    parser.add_argument("--precision", choices=("float32", "float64"), default="float64")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
