"""The gradient of a Heston call with respect to all its parameters, on fresh noise, compared with PyTorch.

Run `python -m benchmarks.heston_gradient [--steps 256] [--paths 65536] [--tile 2048] [--torch-tile 4096]
[--segment 16] [--repeat 9] [--devices CORES] [--eager] [--out FILE]`. float32; full-truncation Euler in
(log-spot, variance), two normals a step; the derivatives of the mean discounted payoff with respect to spot,
first variance, speed, level, vol of vol, correlation and rate. All ways share the function of a step.

jaxtape: tiles of paths, each tile's normals drawn once (`pricing.sampling`) and kept for its reverse sweep;
`jaxtape.scan` keeps the variance at every `segment`th step and recomputes it in between; parameters are
broadcast over the paths, so that their cotangents are summed over paths once per tile. Tiles are shared by as
many CPU devices as there are cores. A second row lets the compiler use vectors of 512 bits, if the processor
has them (`compiler_options`).

PyTorch, on one thread or on all cores, whichever is faster: all paths at once, eager; the same with every run
of `segment` steps compiled by `torch.compile` (runs of 64 compile for minutes, and are no faster); and that in
tiles of paths. Normals are from `torch.randn`.

All ways take turns in one process, each alone. Wall seconds depend on the load of the machine; processor
seconds, summed over cores, measure the computation. Bytes are, for JAX, the compiler's temporaries, arguments
and results, over all devices; for PyTorch, the peak of its allocator. Before that, all gradients are compared
on the same normals.
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

import jaxtape as jt
from pricing.sampling import normals

from .command import Run, parser_of, table_of, with_eager
from .heston_scheme import NAMES, PARAMETERS, payoff, step
from .timing import Timed, memory_of, take_turns
from .ways import by_tape, kernels, nested

WIDE = {"xla_cpu_prefer_vector_width": 512}
AIMS = {"PyTorch, eager": 2.0, "PyTorch, compiled": 1.1}
MEMORY_AIM = 0.25


# --- jaxtape ------------------------------------------------------------------------------------------


def tile_gradient(p, pairs, segment: int):
    """Return the gradient of the sum of the payoffs, given normals [steps, paths] as complex numbers."""
    steps, paths = pairs.shape
    dt = 1.0 / steps

    def total(p):
        p = tuple(jnp.broadcast_to(leaf, (paths,)) for leaf in p)

        def node(state, pair):
            return step(jnp, p, dt, state, lax.real(pair), lax.imag(pair)), None

        start = (jnp.zeros_like(p[0]), p[1])
        state, _ = jt.scan(node, start, pairs, schedule=jt.Periodic(segment))
        return jnp.sum(payoff(jnp, p, state[0]))

    return jax.grad(total)(p)


def by_tiles(options, p, key, tiles):
    """Return the mean gradient over the paths of these tiles."""

    def tile(number):
        shape = (options.steps, options.tile)
        pairs = normals(jax.random.fold_in(key, number), shape, jnp.complex64)
        return tile_gradient(p, pairs, options.segment)

    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0) / options.paths, lax.map(tile, tiles))


def shared(options) -> Callable:
    """Return the gradient with the tiles shared by the devices."""
    mesh = Mesh(np.array(jax.devices()), ("tiles",))
    own, split = PartitionSpec(), PartitionSpec("tiles")

    def on_device(p, key, tiles):
        return lax.psum(by_tiles(options, p, key, tiles), "tiles")

    spread = jax.shard_map(
        on_device, mesh=mesh, in_specs=(own, own, split), out_specs=own, check_vma=False
    )

    def gradient(p, key):
        return spread(p, key, jnp.arange(options.paths // options.tile, dtype=jnp.uint32))

    return gradient


def drawn(scan: Callable, options):
    """Return the mean gradient, jitted, with all paths in one tile; each node draws its step's normals."""
    steps, paths = options.steps, options.paths

    def value(p, key):
        def node(state, i):
            z = jax.random.normal(jax.random.fold_in(key, i), (2, paths))
            return step(jnp, p, 1.0 / steps, state, *z), None

        start = jnp.zeros(paths), jnp.broadcast_to(p[1], (paths,))
        log_spot, _ = scan(node, start, jnp.arange(steps, dtype=jnp.int32))
        return jnp.mean(payoff(jnp, p, log_spot))

    return jt.stored_jit(jax.grad(value))


def in_one_tile(options, p) -> tuple[Callable, Callable]:
    """Return the gradient in one tile, compiled: in kernels, and with two levels of `jax.checkpoint`."""
    slots = options.steps // options.segment
    ways = functools.partial(by_tape, jt.Revolve(slots)), functools.partial(nested, 2, False)
    compiled = []
    for scan, on in zip(ways, (True, False), strict=True):
        with kernels(on):
            compiled.append(drawn(scan, options).lower(p, jax.random.key(0)).compile())
    return compiled[0], compiled[1]


# --- measurement --------------------------------------------------------------------------------------


def our_ways(run: Run) -> dict[str, Timed]:
    """Return the gradient in JAX, in every way that the platform supports, and the bytes that each takes."""
    options = run.options
    p = tuple(map(jnp.float32, PARAMETERS))
    lowered = jax.jit(shared(options)).lower(p, jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 10_000))
    ways = {}
    built = {"jaxtape": lowered.compile()}
    if jax.default_backend() == "cpu":
        built["jaxtape, 512-bit vectors"] = lowered.compile(compiler_options=WIDE)
    elif options.devices == 1:
        in_kernels, nested_twice = in_one_tile(options, p)
        built = {"jaxtape, kernels": in_kernels, **built, "jax.checkpoint, nested": nested_twice}
        pairs = zip(*(way(p, jax.random.key(2)) for way in (in_kernels, nested_twice)), strict=True)
        gap = max(abs(float(a / b) - 1.0) for a, b in pairs)
        run.answer("gradient in kernels, largest difference from nested checkpoints", gap)
    for name, compiled in built.items():
        size = memory_of(compiled)
        peak = size.temp_size_in_bytes + size.argument_size_in_bytes + size.output_size_in_bytes
        way = ways[name] = Timed(lambda compiled=compiled: compiled(p, next(keys)))
        way.temp_bytes, way.threads = peak * options.devices, options.devices
    return ways


def gradient_of(pairs, segment: int) -> np.ndarray:
    """Return our mean gradient on these normals."""
    p = tuple(map(jnp.float32, PARAMETERS))
    return np.array(jax.jit(tile_gradient, static_argnums=2)(p, pairs, segment)) / pairs.shape[1]


def disagreement(options, compiles: bool) -> float:
    """Return the largest relative difference of PyTorch's gradients from ours on the same normals."""
    from .heston_gradient_torch import gradients

    pairs = normals(jax.random.key(3), (options.steps, options.torch_tile), jnp.complex64)
    ours = gradient_of(pairs, options.segment)
    noise = np.stack([pairs.real, pairs.imag], axis=1)
    theirs = gradients(noise, options.segment, compiles)
    return float(max(np.max(np.abs(found / ours - 1.0)) for found in theirs))


def rows_of(ways: dict[str, Timed]) -> list[dict]:
    """Return best times, bytes, and our advantage."""
    ours = next(iter(ways.values()))
    return [
        {
            "way": name,
            "threads": way.threads,
            "seconds": min(way.seconds),
            "median_seconds": float(np.median(way.seconds)),
            "processor_seconds": min(way.processor),
            "peak_bytes": way.temp_bytes,
            "speed_of_ours": min(way.seconds) / min(ours.seconds),
            "speed_of_ours_by_processor": min(way.processor) / min(ours.processor),
            "memory_of_ours": ours.temp_bytes / way.temp_bytes,
            "gradient": dict(zip(NAMES, map(float, way.out), strict=True)),
        }
        for name, way in ways.items()
    ]


def rows_table(rows: list[dict], title: str) -> Table:
    columns = ("threads", "ms", "median", "processor", "MB")
    table = table_of(title, "way", *columns, "ours is faster", "by processor", "memory")
    for row in rows:
        times = (row["seconds"], row["median_seconds"], row["processor_seconds"])
        table.add_row(
            *(row["way"], str(row["threads"])),
            *(f"{1e3 * t:.1f}" for t in times),
            f"{row['peak_bytes'] / 1e6:.1f}",
            f"x {row['speed_of_ours']:.2f}",
            f"x {row['speed_of_ours_by_processor']:.2f}",
            f"{row['memory_of_ours']:.4f}",
        )
    return table


def missed(rows: list[dict]) -> list[str]:
    """Describe the figures below their aims."""
    lines = []
    for row in rows:
        if row["speed_of_ours"] < (aim := AIMS.get(row["way"], 0.0)):
            lines.append(f"{row['speed_of_ours']:.2f} times {row['way']}, aim {aim}")
        if row["way"] in AIMS and row["memory_of_ours"] > MEMORY_AIM:
            lines.append(f"{row['memory_of_ours']:.2f} of the memory of {row['way']}")
    return lines


def parser() -> argparse.ArgumentParser:
    devices = len(os.sched_getaffinity(0))
    sizes = {"steps": 256, "paths": 65536, "tile": 2048, "torch_tile": 4096, "segment": 16}
    return with_eager(parser_of(__doc__, **sizes, repeat=9, devices=devices))


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("heston_gradient", parser(), argv, precision="float32")
    options, figures, ways = run.options, {}, our_ways(run)
    if run.has("torch"):
        from .heston_gradient_torch import torch_ways

        compiles = run.compiles()
        gap = disagreement(options, compiles)
        run.console.print(
            f"largest relative difference of gradients on the same normals: {gap:.1e}"
        )
        figures["relative_difference_on_the_same_normals"] = gap
        run.answer("gradient, largest difference from PyTorch's on the same normals", gap)
        ways |= torch_ways(options, compiles)
    take_turns(ways.values(), options.repeat)
    rows = rows_of(ways)
    run.beside("", ways, {name: way.temp_bytes for name, way in ways.items()})
    run.console.print(rows_table(rows, f"Heston, {options.paths} paths x {options.steps} steps"))
    run.console.print(f"below its aim: {missed(rows) or 'nothing'}", soft_wrap=True)
    speeds = {row["way"]: row["speed_of_ours"] for row in rows}
    eager = speeds.get("PyTorch, eager")
    run.keep(figures | {"rows": rows}, f"{eager:.1f} x as fast as eager PyTorch" if eager else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
