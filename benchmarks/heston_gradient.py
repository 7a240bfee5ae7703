"""The gradient of a Heston call to all its parameters, noise drawn anew at every call, beside PyTorch.

Run `python -m benchmarks.heston_gradient [--steps 256] [--paths 65536] [--tile 2048] [--segment 16]
[--repeat 9] [--devices CORES] [--out DIR]`. float32; full-truncation Euler in (log-spot, variance), two normals
a step; the derivatives of the mean discounted payoff to spot, first variance, speed, level, vol of vol,
correlation and rate. The step is one function for all.

jaxtape: tiles of paths, each tile's normals drawn once (`pricing.sampling`) and kept for its reverse sweep;
`jaxtape.scan` keeps the variance at every `segment`th step and computes it again between; parameters are
spread over the paths, so that their cotangents are summed over paths once a tile. Tiles are shared by as
many CPU devices as there are cores. A second row lets the compiler use vectors of 512 bits, where the processor
has them (`compiler_options`).

PyTorch, on one thread or on all cores, whichever is quicker: all paths at once, eager; the same with every run
of `segment` steps compiled by `torch.compile` (runs of 64 compile for minutes, and are no quicker); and that in
tiles of paths. Normals by `torch.randn`.

All ways take turns in one process, each alone. Wall seconds are those of a busy or a quiet machine; seconds of
the processor, all cores together, say what was computed. Bytes: of JAX, the compiler's temporaries, arguments
and results, over all devices; of PyTorch, the most that its allocator had given out at once. Before, all
gradients are compared on the same normals.
"""

import argparse
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from rich.console import Console
from rich.table import Table

import jaxtape as jt
from pricing.sampling import normals

from .timing import environment, take_turns
from .torch_ways import has_compiler, peak_bytes

NAMES = ("spot", "first variance", "speed", "level", "vol of vol", "correlation", "rate")
PARAMETERS = (100.0, 0.04, 1.5, 0.05, 0.4, -0.7, 0.03)
STRIKE = 100.0
WIDE = {"xla_cpu_prefer_vector_width": 512}
AIMS = {"PyTorch, eager": 2.0, "PyTorch, compiled": 1.1}
MEMORY_AIM = 0.25


def step(xp, p, dt: float, state, first, second):
    """One step of the scheme, smoothed at zero variance; `xp` is `jax.numpy` or `torch`."""
    _, _, speed, level, vol_of_vol, correlation, rate = p
    x, v = state
    v_plus = xp.clip(v, min=0.0)
    root = xp.sqrt((v_plus + 1e-12) * dt)
    other = correlation * first + xp.sqrt(1.0 - correlation * correlation) * second
    x = x + (rate - 0.5 * v_plus) * dt + root * other
    return x, v + speed * (level - v_plus) * dt + vol_of_vol * root * first


def payoff(xp, p, log_spot):
    """The discounted call of one year."""
    return xp.exp(-p[6]) * xp.clip(p[0] * xp.exp(log_spot) - STRIKE, min=0.0)


# --- jaxtape ------------------------------------------------------------------------------------------


def tile_gradient(p, pairs, segment: int):
    """The gradient of the sum of the payoffs, given normals [steps, paths] as complex numbers."""
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
    """The mean gradient over the paths of these tiles."""

    def tile(number):
        shape = (options.steps, options.tile)
        pairs = normals(jax.random.fold_in(key, number), shape, jnp.complex64)
        return tile_gradient(p, pairs, options.segment)

    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0) / options.paths, lax.map(tile, tiles))


def shared(options) -> Callable:
    """The gradient with the tiles shared by the devices."""
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


# --- PyTorch ------------------------------------------------------------------------------------------


def torch_steps(p, dt: float, state, block):
    """A run of steps, written out: what is compiled."""
    for first, second in block:
        state = step(torch, p, dt, state, first, second)
    return state


compiled_steps = torch.compile(torch_steps, dynamic=False, fullgraph=True)


def torch_gradient(run: Callable, segment: int, draw: Callable, paths: int, tiles: int = 1):
    """The gradient of the mean payoff, in runs of `segment` steps over normals [steps, 2, paths] a tile."""
    p = [torch.tensor(number, requires_grad=True) for number in PARAMETERS]
    total = [torch.zeros(()) for _ in p]
    for _ in range(tiles):
        block = draw()
        state = torch.zeros(block.shape[2]), p[1].expand(block.shape[2]).contiguous()
        for start in range(0, len(block), segment):
            state = run(p, 1.0 / len(block), state, block[start : start + segment])
        part = torch.autograd.grad(payoff(torch, p, state[0]).sum() / paths, p)
        total = [a + b for a, b in zip(total, part, strict=True)]
    return tuple(map(float, total))


def torch_ways(options) -> dict[str, Callable[[], tuple]]:
    """PyTorch's ways; the compiled ones where there is a compiler."""
    steps, paths, tiles = options.steps, options.paths, options.paths // options.torch_tile
    whole = functools.partial(torch.randn, steps, 2, paths)
    part = functools.partial(torch.randn, steps, 2, options.torch_tile)
    gradient = functools.partial(torch_gradient, paths=paths)
    ways = {"PyTorch, eager": functools.partial(gradient, torch_steps, steps, whole)}
    if has_compiler():
        compiled = functools.partial(gradient, compiled_steps, options.segment)
        ways["PyTorch, compiled"] = functools.partial(compiled, whole)
        ways["PyTorch, compiled, in tiles"] = functools.partial(compiled, part, tiles=tiles)
    return ways


# --- measurement --------------------------------------------------------------------------------------


class Way:
    """A way to compute the gradient, the bytes it takes, and its seconds: wall and processor."""

    def __init__(self, name: str, function: Callable[[], tuple], peak: int, threads: int):
        self.name, self.function, self.peak_bytes, self.threads = name, function, peak, threads
        self.seconds, self.processor = [], []

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        start, used = time.perf_counter(), time.process_time()
        self.out = tuple(map(float, self.function()))
        self.processor.append(time.process_time() - used)
        self.seconds.append(time.perf_counter() - start)


def our_ways(options) -> list[Way]:
    """Our gradient, with the compiler's own vectors and with wide ones."""
    p = tuple(map(jnp.float32, PARAMETERS))
    lowered = jax.jit(shared(options)).lower(p, jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 10_000))
    ways = []
    for name, flags in (("jaxtape", {}), ("jaxtape, 512-bit vectors", WIDE)):
        compiled = lowered.compile(compiler_options=flags)
        size = compiled.memory_analysis()
        peak = size.temp_size_in_bytes + size.argument_size_in_bytes + size.output_size_in_bytes
        run = lambda compiled=compiled: compiled(p, next(keys))  # noqa: E731
        ways.append(Way(name, run, peak * options.devices, options.devices))
    return ways


def their_way(name: str, function: Callable[[], tuple], options) -> Way:
    """PyTorch's, on as many threads as were quickest in a trial: one, or as many as there are cores."""
    function()  # compiles
    peak = peak_bytes(function)
    trials = [Way(name, function, peak, threads) for threads in {1, options.devices}]
    take_turns(trials, 3)
    best = min(trials, key=lambda way: min(way.seconds))
    return Way(name, function, peak, best.threads)


def disagreement(options) -> float:
    """The largest relative difference of the gradients on the same normals, PyTorch's ways from ours."""
    pairs = normals(jax.random.key(3), (options.steps, options.torch_tile), jnp.complex64)
    block = torch.from_numpy(np.stack([pairs.real, pairs.imag], axis=1))
    p, paths = tuple(map(jnp.float32, PARAMETERS)), options.torch_tile
    ours = np.array(jax.jit(tile_gradient, static_argnums=2)(p, pairs, options.segment)) / paths
    runs = [torch_steps, compiled_steps] if has_compiler() else [torch_steps]
    gaps = [
        np.abs(np.array(torch_gradient(run, options.segment, lambda: block, paths)) / ours - 1.0)
        for run in runs
    ]
    return float(np.max(gaps))


def rows_of(ways: list[Way]) -> list[dict]:
    """Best times, bytes, and how much better ours are."""
    ours = ways[0]
    return [
        {
            "way": way.name,
            "threads": way.threads,
            "seconds": min(way.seconds),
            "median_seconds": float(np.median(way.seconds)),
            "processor_seconds": min(way.processor),
            "peak_bytes": way.peak_bytes,
            "speed_of_ours": min(way.seconds) / min(ours.seconds),
            "speed_of_ours_by_processor": min(way.processor) / min(ours.processor),
            "memory_of_ours": ours.peak_bytes / way.peak_bytes,
            "gradient": dict(zip(NAMES, way.out, strict=True)),
        }
        for way in ways
    ]


def table_of(rows: list[dict], title: str) -> Table:
    table = Table(title=title)
    table.add_column("way")
    for name in (
        "threads",
        "ms",
        "median",
        "processor",
        "MB",
        "ours is faster",
        "by processor",
        "memory",
    ):
        table.add_column(name, justify="right")
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
    """What is below its aim."""
    lines = []
    for row in rows:
        if row["speed_of_ours"] < (aim := AIMS.get(row["way"], 0.0)):
            lines.append(f"{row['speed_of_ours']:.2f} times {row['way']}, aim {aim}")
        if row["way"] in AIMS and row["memory_of_ours"] > MEMORY_AIM:
            lines.append(f"{row['memory_of_ours']:.2f} of the memory of {row['way']}")
    return lines


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--paths", type=int, default=65536)
    parser.add_argument("--tile", type=int, default=2048, help="paths of a tile of ours")
    parser.add_argument("--torch-tile", type=int, default=4096, help="paths of a tile of PyTorch's")
    parser.add_argument("--segment", type=int, default=16, help="steps between kept states")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--devices", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="folder for heston_gradient.json")
    return parser.parse_args()


def main() -> None:
    options = options_of()
    jax.config.update("jax_num_cpu_devices", options.devices)
    torch.set_num_threads(options.devices)
    console = Console(width=120, highlight=False)
    given = {name: value for name, value in vars(options).items() if name != "out"}
    head = environment() | {"backend": "cpu, float32"}
    head |= {"command": "python -m benchmarks.heston_gradient", "options": given}
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    gap = disagreement(options)
    console.print(f"largest relative difference of gradients on the same normals: {gap:.1e}")
    ways = our_ways(options)
    ways += [their_way(name, function, options) for name, function in torch_ways(options).items()]
    take_turns(ways, options.repeat)
    for way in ways:
        del way.processor[0]  # the warming run's
    rows = rows_of(ways)
    console.print(table_of(rows, f"Heston, {options.paths} paths x {options.steps} steps"))
    console.print(f"below its aim: {missed(rows) or 'nothing'}", soft_wrap=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        figures = {"relative_difference_on_the_same_normals": gap, "rows": rows}
        text = json.dumps(head | figures, indent=1)
        (options.out / "heston_gradient.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
