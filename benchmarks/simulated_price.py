"""The value, the gradient and the Greeks of a simulated call under Heston, with and without kernels.

Run `python -m benchmarks.simulated_price [--paths 65536] [--steps 256] [--block 65536] [--repeat 5] [--out
FILE]`. It uses float32, without a schedule. `jt.set_kernels` changes nothing on CPUs, which have only the rows
without kernels. Both ways use the same noise, and so give the same figures.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxtape as jt
from pricing import European, greeks, price
from pricing.methods import MonteCarlo
from pricing.models import Heston

from .command import Run, parser_of, table_of
from .timing import Compiled, take_turns
from .ways import kernels


def functions(method: MonteCarlo, key: jax.Array) -> dict[str, Callable[[Heston], Any]]:
    """Return the functions of the model to measure."""
    option = European(100.0, 0.7)

    def value(model):
        return price(option, model, method, key=key).value

    def all_greeks(model):
        return eqx.filter(greeks(option, model, method, key=key), eqx.is_array)

    return {"value": value, "gradient": jax.value_and_grad(value), "Greeks": all_greeks}


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference of the figures, relative if they are above 1."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1.0))) for a, b in pairs)


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, paths=65536, steps=256, block=65536, repeat=5)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("simulated_price", parser(), argv, precision="float32")
    options = run.options
    model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
    model = jax.tree.map(jnp.float32, model)
    method = MonteCarlo(num_paths=options.paths, num_steps=options.steps, block=options.block)
    rows = []
    for name, function in functions(method, jax.random.key(0)).items():
        ways = {}
        for on in (False, True) if jax.default_backend() != "cpu" else (False,):
            jax.clear_caches()
            with kernels(on):
                way = Compiled(function, model, jit=jt.stored_jit if on else jax.jit)
                ways["in kernels" if on else "without kernels"] = way
        take_turns(ways.values(), options.repeat)
        outs = [way.out for way in ways.values()]
        gap = difference(outs[-1], outs[0])
        run.answer(f"{name}: largest difference of the ways", gap)
        if len(ways) > 1:
            run.beside(name, dict(reversed(ways.items())))
        rows += [
            {
                "figure": name,
                "way": way,
                "seconds": min(timed.seconds),
                "compile_seconds": timed.compile_seconds,
                "temp_bytes": timed.temp_bytes,
            }
            for way, timed in ways.items()
        ]
    title = f"European under Heston, {options.paths} paths x {options.steps} steps"
    table = table_of(title, "figure", "way", "ms", "compile s", "MB", left=2)
    for row in rows:
        table.add_row(
            *(row["figure"], row["way"], f"{1e3 * row['seconds']:.2f}"),
            *(f"{row['compile_seconds']:.1f}", f"{row['temp_bytes'] / 1e6:.0f}"),
        )
    run.console.print(table)
    run.keep({"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
