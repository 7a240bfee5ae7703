"""The gradient of a Heston call to its six parameters: time against temporary bytes, beside every peer.

Run `python -m benchmarks.pareto [--steps 365 4096] [--paths 16384] [--noise given drawn] [--repeat 9]
[--budget 20] [--devices CORES] [--limit 6e9] [--out DIR] [--figure FILE]`. float64. The rows of a case run in
turn, PyTorch's among them; a row that would take more than `budget` seconds runs in fewer rounds. A row
whose temporaries pass `limit` bytes is left out.

XLA hardly splits loops as short as these over the cores of a CPU, as PyTorch does, so some rows of jaxtape
and of its JAX peers also run with the paths shared by as many CPU devices as there are cores; their bytes
are those of all devices.

Temporaries: of JAX, the compiler's (`temp_size_in_bytes`); of PyTorch, the most bytes live at once of those
that its allocator gave out, in a run of its own (`torch_ways.peak_bytes`). Neither counts the inputs.

Every gradient must agree with jaxtape's to 1e-9. Where noise is drawn, PyTorch draws its own, each node's from
a seed; its gradients must agree with jaxtape's for the same normals, stacked and given.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import os
import statistics
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

import jaxtape as jt

from .pareto_figure import draw
from .pareto_points import Case, Point, summary
from .problems import HESTON, Problem
from .timing import Compiled, environment, take_turns
from .ways import Way, by_tape, on_devices, peer_ways, plain, tape_ways

TOLERANCE = 1e-9


def jax_rows(problem: Problem, arguments: tuple, limit: float, left_out: list[str]):
    """Every way in JAX, compiled; those whose temporaries pass the limit are named in `left_out`."""
    ways = [*tape_ways(problem.steps), Way("lax.scan", "no checkpoint", plain)]
    ways += peer_ways(problem.steps)
    if len(jax.devices()) > 1:
        shared = dataclasses.replace(problem, devices=len(jax.devices()))
        on_all = shared.arguments()
        ways += on_devices(ways, shared.devices)
    for way in ways:
        posed, given = (problem, arguments) if way.devices == 1 else (shared, on_all)
        compiled = Compiled(jax.grad(functools.partial(posed.value, way.scan)), *given)
        compiled.temp_bytes *= way.devices
        if compiled.temp_bytes <= limit:
            yield way, compiled
        else:
            gigabytes = compiled.temp_bytes / 1e9
            left_out.append(f"{way.system}, {way.label}: {gigabytes:.1f} GB of temporaries")


def torch_rows(problem: Problem, source, left_out: list[str]):
    """Every way in PyTorch, and the gradient of jaxtape for the same normals if it draws its own."""
    if importlib.util.find_spec("torch") is None:
        left_out.append("PyTorch is not installed")
        return [], None
    from . import torch_ways

    chain, cores = torch_ways.Chain(problem, source), os.cpu_count() or 1
    counts = tuple(sorted({cores, 1}, reverse=True))
    rows = [
        (Way("PyTorch", label, plain), torch_ways.TorchRun(function, counts))
        for label, function in chain.ways().items()
    ]
    if torch_ways.has_compiler():
        way = Way("PyTorch", f"{torch_ways.BY_HAND}, torch.compile", plain)
        rows.append((way, torch_ways.TorchRun(chain.by_compiled, (cores,))))
    else:
        left_out.append("torch.compile: there is no C++ compiler")
    if problem.noise == "given":
        return rows, None
    normals = jax.dlpack.from_dlpack(chain.normals(0, problem.steps))
    return rows, reference(dataclasses.replace(problem, noise="given"), normals)


def reference(problem: Problem, source):
    """The gradient by jaxtape."""
    scan = functools.partial(by_tape, jt.Revolve(24))
    return jax.jit(jax.grad(functools.partial(problem.value, scan)))(problem.arguments()[0], source)


def relative_error(gradient, expected) -> float:
    return max(abs(float(a / b) - 1.0) for a, b in zip(gradient, expected, strict=True))


def point_of(way: Way, timed, expected) -> Point:
    """A row's figures."""
    return Point(
        way.system,
        way.label,
        way.slots,
        min(timed.seconds),
        statistics.median(timed.seconds),
        len(timed.seconds),
        int(timed.temp_bytes),
        timed.compile_seconds,
        timed.threads,
        tuple(map(float, timed.out)),
        relative_error(timed.out, expected),
    )


def measure(problem: Problem, repeat: int, budget: float, limit: float) -> Case:
    """Compile every way, let them take turns, and compare their gradients."""
    arguments, left_out = problem.arguments(), []
    in_jax = list(jax_rows(problem, arguments, limit, left_out))
    in_torch, torch_expected = torch_rows(problem, arguments[1], left_out)
    take_turns((timed for _, timed in (*in_jax, *in_torch)), repeat, budget)
    expected = in_jax[0][1].out
    points = [point_of(way, timed, expected) for way, timed in in_jax]
    points += [point_of(way, timed, torch_expected or expected) for way, timed in in_torch]
    shape = problem.steps, problem.paths, problem.noise, problem.state_bytes
    return Case(problem.title, *shape, points, left_out)


def table_of(case: Case) -> Table:
    """The rows, each beside the fastest."""
    table = Table(title=case.title)
    for column in ("system", "way", "ms", "ratio", "states", "compile s", "runs", "error"):
        table.add_column(column, justify="left" if column in ("system", "way") else "right")
    fastest = min(point.seconds for point in case.points)
    for point in case.points:
        table.add_row(
            *(point.system, point.label),
            f"{1e3 * point.seconds:.1f}",
            f"{point.seconds / fastest:.2f}",
            f"{point.temp_bytes / case.state_bytes:.1f}",
            f"{point.compile_seconds:.1f}",
            *(str(point.runs), f"{point.error:.0e}"),
        )
    return table


def write(folder: Path, head: dict, cases: list[Case]) -> None:
    """All figures, as JSON that `benchmarks.pareto_figure` can draw again."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [{**dataclasses.asdict(case), "summary": summary(case)} for case in cases]
    text = json.dumps(head | {"cases": figures}, indent=1)
    (folder / "pareto.json").write_text(f"{text}\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[365, 4096])
    parser.add_argument("--paths", type=int, default=16384)
    parser.add_argument(
        "--noise", nargs="+", default=["given", "drawn"], choices=["given", "drawn"]
    )
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument(
        "--budget", type=float, default=20.0, help="seconds of a row, of two runs at least"
    )
    parser.add_argument(
        "--devices", type=int, default=os.cpu_count() or 1, help="CPU devices that share the paths"
    )
    parser.add_argument("--limit", type=float, default=6e9, help="bytes of temporaries")
    parser.add_argument("--out", type=Path, help="folder for pareto.json")
    parser.add_argument("--figure", type=Path, help="file for the picture, SVG or PNG")
    return parser.parse_args()


def main() -> int:
    options = parse()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", options.devices)
    console, cases = Console(width=120, highlight=False), []
    given = {name: value for name, value in vars(options).items() if name not in ("out", "figure")}
    head = environment() | {"command": "python -m benchmarks.pareto", "options": given}
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    for steps in options.steps:
        for noise in options.noise:
            problem = Problem(HESTON, steps, options.paths, noise)
            cases.append(measure(problem, options.repeat, options.budget, options.limit))
            console.print(table_of(cases[-1]), *(f"left out: {row}" for row in cases[-1].left_out))
            for name, value in summary(cases[-1]).items():
                console.print(f"{name}: {value}", soft_wrap=True)
            if options.out:
                write(options.out, head, cases)
    if options.figure:
        draw(cases, options.figure)
    return int(any(point.error > TOLERANCE for case in cases for point in case.points))


if __name__ == "__main__":
    raise SystemExit(main())
