"""Standard normals: ours against `jax.random.normal` and `torch.randn`, kept in memory or consumed at once.

Run `python -m benchmarks.noise [--rows 256] [--columns 131072] [--repeat 7] [--devices CORES] [--out FILE]`:
33.5 million normals, in float32 and in float64.

Kept: an array of all of them. Read: only the sums of squares of the columns of blocks of 64 rows and 4,096
columns, as in a Monte Carlo block. The rows of ours and of `jax.random` are shared by as many CPU devices as
there are cores; `torch.randn` runs on one core whatever its settings. A last row of ours lets the compiler use
vectors of 512 bits, if the processor has them (`compiler_options`).

All ways take turns in one process. Wall seconds depend on the load of the machine; processor seconds, summed
over cores, measure the computation. A z-score is the deviation of the mean of the squares from 1, in standard
errors.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from rich.table import Table

from pricing.sampling import normals

from .command import Run, parser_of, table_of
from .timing import Timed, take_turns

BLOCK = (64, 4096)
WIDE = {"xla_cpu_prefer_vector_width": 512}
DRAWS = {"pricing.sampling": normals, "jax.random": jax.random.normal}


def kept(draw: Callable, options, dtype, key):
    """Draw all normals, with a share of the rows on each device."""
    return draw(key, (options.rows // options.devices, options.columns), dtype)


def read(draw: Callable, options, dtype, key):
    """Return the sums of squares of the columns of blocks, [blocks, columns of a block]."""

    def block(number):
        z = draw(jax.random.fold_in(key, number), BLOCK, dtype)
        return lax.scan(lambda total, row: (total + row * row, None), jnp.zeros_like(z[0]), z)[0]

    count = options.rows * options.columns // (BLOCK[0] * BLOCK[1] * options.devices)
    return lax.map(block, jnp.arange(count, dtype=jnp.uint32))


class Way(Timed):
    """A way to draw the normals, and its seconds."""

    def __init__(self, name: str, task: str, dtype: str, function: Callable):
        super().__init__(function)
        self.name, self.task, self.dtype = name, task, dtype

    @property
    def z_score(self) -> float:
        """Return the deviation from 1 of the mean square of the last draw, in standard errors."""
        on_host = self.out.cpu() if hasattr(self.out, "cpu") else self.out
        squares = np.asarray(on_host, np.float64)
        if self.task == "kept":
            return float((np.mean(squares * squares) - 1.0) * np.sqrt(squares.size / 2.0))
        return float((np.mean(squares) / BLOCK[0] - 1.0) * np.sqrt(squares.size * BLOCK[0] / 2.0))


def jax_ways(options, task: Callable, dtype) -> list[Way]:
    """Return ours and `jax.random`'s, on all devices, and ours with wide vectors."""
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    split = PartitionSpec("rows")
    keys = jax.random.split(jax.random.key(5), options.devices)
    ways = []
    for name, draw in DRAWS.items():

        def on_device(keys, draw=draw):
            return task(draw, options, dtype, keys[0])

        spread = jax.shard_map(
            on_device, mesh=mesh, in_specs=split, out_specs=split, check_vma=False
        )
        lowered = jax.jit(spread).lower(keys)
        for suffix, flags in (("", {}), (", 512-bit vectors", WIDE)):
            if flags and (draw is not normals or jax.default_backend() != "cpu"):
                continue
            program = functools.partial(lowered.compile(compiler_options=flags), keys)
            ways.append(Way(name + suffix, task.__name__, jnp.dtype(dtype).name, program))
    return ways


def torch_ways(options, dtype: str) -> list[Way]:
    """`torch.randn`."""
    import torch

    size = options.rows * options.columns // (BLOCK[0] * BLOCK[1])

    def all_kept():
        return ended(torch.randn(options.rows, options.columns, dtype=getattr(torch, dtype)))

    def on_the_spot():
        z = torch.empty(BLOCK, dtype=getattr(torch, dtype))
        return ended(torch.stack([z.normal_().square_().sum(0) for _ in range(size)]))

    def ended(drawn):
        if drawn.is_cuda:
            torch.cuda.synchronize()
        return drawn

    return [
        Way("torch.randn", "kept", dtype, all_kept),
        Way("torch.randn", "read", dtype, on_the_spot),
    ]


def rows_of(ways: list[Way]) -> list[dict]:
    """Return the best times, and our speed-up."""
    rows = []
    for way in ways:
        ours = next(w for w in ways if (w.task, w.dtype) == (way.task, way.dtype))
        rows.append(
            {
                "dtype": way.dtype,
                "task": way.task,
                "way": way.name,
                "seconds": min(way.seconds),
                "processor_seconds": min(way.processor),
                "speed_of_ours": min(way.seconds) / min(ours.seconds),
                "speed_of_ours_by_processor": min(way.processor) / min(ours.processor),
                "z_score": way.z_score,
            }
        )
    return rows


def rows_table(rows: list[dict], title: str) -> Table:
    numbers = ("ms", "processor", "ours is faster", "by processor", "z-score")
    table = table_of(title, "type", "task", "way", *numbers, left=3)
    for row in rows:
        table.add_row(
            *(row["dtype"], row["task"], row["way"]),
            *(f"{1e3 * row[name]:.1f}" for name in ("seconds", "processor_seconds")),
            f"x {row['speed_of_ours']:.2f}",
            f"x {row['speed_of_ours_by_processor']:.2f}",
            f"{row['z_score']:.1f}",
        )
    return table


def parser() -> argparse.ArgumentParser:
    devices = len(os.sched_getaffinity(0))
    return parser_of(__doc__, rows=256, columns=131072, repeat=7, devices=devices)


def main(argv: Sequence[str] | None = None) -> int:
    run, rows = Run("noise", parser(), argv, said="float32 and float64"), []
    options = run.options
    if options.rows * options.columns % (BLOCK[0] * BLOCK[1] * options.devices):
        run.error(f"rows x columns must be whole blocks of {BLOCK} on each device")
    for dtype in ("float32", "float64"):
        ways = [way for task in (kept, read) for way in jax_ways(options, task, dtype)]
        ways += torch_ways(options, dtype) if run.has("torch") else []
        take_turns(ways, options.repeat)
        rows += rows_of(ways)
        for task in ("kept", "read"):
            run.beside(f"{dtype}, {task}", {way.name: way for way in ways if way.task == task})
    run.console.print(rows_table(rows, f"{options.rows * options.columns:,} standard normals"))
    peer = [row["speed_of_ours"] for row in rows if row["way"] == "jax.random"]
    run.keep({"rows": rows}, f"at least {min(peer):.1f} x as fast as jax.random")
    return 0


if __name__ == "__main__":
    sys.exit(main())
