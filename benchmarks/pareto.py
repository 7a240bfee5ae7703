"""The gradient of a Heston call with respect to six parameters: time against temporary bytes, for every peer.

Run `python -m benchmarks.pareto [--steps 365 4096] [--paths 16384] [--noise given drawn] [--repeat 9] [--budget
20] [--devices CORES] [--limit 6e9] [--ways TEXT ...] [--eager] [--out FILE] [--figure FILE]`. float64. The rows
of a case run in turn, including PyTorch's; a row that would take more than `budget` seconds runs in fewer
rounds. A row whose temporaries exceed `limit` bytes is left out.

Unlike PyTorch, XLA hardly splits such short loops over the cores of a CPU, so some rows of jaxtape and of its
JAX peers also run with the paths shared by as many CPU devices as there are cores; their bytes are those of all
devices.

Temporaries are, for JAX, the compiler's (`temp_size_in_bytes`); for PyTorch, the peak of its allocator in a
separate run (`torch_ways.peak_bytes`). Neither counts the inputs.

Every gradient must agree with jaxtape's to 1e-9. If noise is drawn, PyTorch draws its own, with a seed per
node; its gradients must agree with jaxtape's for the same normals, stacked and given.
"""

import argparse
import dataclasses
import functools
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.table import Table

import jaxtape as jt

from .command import Run, parser_of, table_of, whole, with_eager
from .pareto_figure import draw
from .pareto_points import OURS, Case, Point, beside_equinox, summary
from .problems import HESTON, Problem
from .timing import Compiled, take_turns
from .ways import Way, by_tape, kernels, on_devices, peer_ways, plain, tape_ways

TOLERANCE = 1e-9


def jax_rows(problem: Problem, arguments: tuple, run: Run):
    """Yield every way in JAX, compiled, except those whose temporaries exceed the limit."""
    ways = [*tape_ways(problem.steps), Way("lax.scan", "no checkpoint", plain)]
    ways += peer_ways(problem.steps, run.has("diffrax"))
    if len(jax.devices()) > 1:
        shared = dataclasses.replace(problem, devices=len(jax.devices()))
        on_all = shared.arguments()
        ways += on_devices(ways, shared.devices)
    for way in chosen(ways, run):
        posed, given = (problem, arguments) if way.devices == 1 else (shared, on_all)
        with kernels(way.kernels):
            gradient = jax.grad(functools.partial(posed.value, way.scan))
            jit = jt.stored_jit if way.kernels else jax.jit
            compiled = Compiled(gradient, *given, jit=jit)
        compiled.temp_bytes *= way.devices
        if compiled.temp_bytes <= run.options.limit:
            yield way, compiled
        else:
            gigabytes = compiled.temp_bytes / 1e9
            run.leave_out(f"{problem.title}: {way.name}, {gigabytes:.1f} GB of temporaries")


def chosen(ways: list[Way], run: Run) -> list[Way]:
    """Return the ways named by `--ways`, or all; the run reports that others are left out."""
    words = run.options.ways
    found = [way for way in ways if not words or any(word in way.name for word in words)]
    if len(found) < len(ways):
        run.leave_out(f"ways without {' or '.join(words)}")
    return found


def torch_rows(problem: Problem, source, run: Run):
    """Yield every way in PyTorch, and jaxtape's gradient for the same normals if PyTorch draws its own."""
    if not run.has("torch"):
        return [], None
    from . import torch_ways

    chain, cores = torch_ways.Chain(problem, source), os.cpu_count() or 1
    counts = tuple(sorted({cores, 1}, reverse=True))
    rows = [
        (Way("PyTorch", label, plain), torch_ways.TorchRun(function, counts))
        for label, function in chain.ways().items()
    ]
    if run.compiles():
        way = Way("PyTorch", f"{torch_ways.BY_HAND}, torch.compile", plain)
        rows.append((way, torch_ways.TorchRun(chain.by_compiled, (cores,))))
    if torch_ways.has_triton() and problem.noise == "given":
        way = Way("Triton", "both sweeps by hand", plain)
        rows.append((way, torch_ways.TorchRun(chain.by_triton, (cores,))))
    if problem.noise == "given":
        return rows, None
    normals = jax.dlpack.from_dlpack(chain.normals(0, problem.steps))
    return rows, reference(dataclasses.replace(problem, noise="given"), normals)


def reference(problem: Problem, source):
    """Return the gradient by jaxtape."""
    scan = functools.partial(by_tape, jt.Revolve(24))
    return jax.jit(jax.grad(functools.partial(problem.value, scan)))(problem.arguments()[0], source)


def relative_error(gradient, expected) -> float:
    return max(abs(float(a / b) - 1.0) for a, b in zip(gradient, expected, strict=True))


def point_of(way: Way, timed, expected) -> Point:
    """Return a row's figures."""
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


def beside_peers(rows: list[tuple[int, Any, Point]]) -> Iterator[tuple[dict, dict]]:
    """Yield each peer with our fastest row on the same devices in no more bytes, or else our leanest."""
    for devices, timed, peer in rows:
        if peer.system == OURS:
            continue
        ours = [row for row in rows if row[2].system == OURS and row[0] == devices]
        lean = [row for row in ours if row[2].temp_bytes <= peer.temp_bytes]
        _, our_timed, point = (
            min(lean, key=lambda row: row[2].seconds)
            if lean
            else min(ours, key=lambda row: row[2].temp_bytes)
        )
        size = {point.name: point.temp_bytes, peer.name: peer.temp_bytes}
        yield {point.name: our_timed, peer.name: timed}, size


def measure(problem: Problem, run: Run) -> Case:
    """Compile every way, run them in turn, and compare their gradients."""
    arguments, before = problem.arguments(), len(run.left_out)
    in_jax = list(jax_rows(problem, arguments, run))
    in_torch, torch_expected = torch_rows(problem, arguments[1], run)
    all_timed = [timed for _, timed in (*in_jax, *in_torch)]
    take_turns(all_timed, run.options.repeat, run.options.budget)
    expected = in_jax[0][1].out
    points = [point_of(way, timed, expected) for way, timed in in_jax]
    points += [point_of(way, timed, torch_expected or expected) for way, timed in in_torch]
    pairs = zip((*in_jax, *in_torch), points, strict=True)
    for peer in beside_peers([(way.devices, timed, point) for (way, timed), point in pairs]):
        run.beside(f"{problem.title}, in no more bytes where ours can", *peer)
    gap = max(point.error for point in points)
    run.answer(f"{problem.title}: gradient, largest difference of all ways", gap)
    shape = problem.steps, problem.paths, problem.noise, problem.state_bytes
    return Case(problem.title, *shape, points, run.left_out[before:])


def case_table(case: Case) -> Table:
    """Return the rows, each compared with the fastest."""
    columns = ("system", "way", "ms", "ratio", "states", "compile s", "runs", "error")
    table = table_of(case.title, *columns, left=2)
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


def headline(cases: list[Case]) -> str:
    """Describe our speed and bytes relative to equinox's at equal numbers of states: medians over cases."""
    pairs = [pair for case in cases for pair in beside_equinox(case)]
    if not pairs:
        return ""
    speed, memory = (statistics.median(column) for column in list(zip(*pairs, strict=True))[1:])
    return f"{speed:.1f} x as fast as equinox at equal slots, {memory:.2f} of its bytes"


def parser() -> argparse.ArgumentParser:
    found = with_eager(parser_of(__doc__, paths=16384, repeat=9, devices=os.cpu_count() or 1))
    found.add_argument("--steps", type=whole, nargs="+", default=[365, 4096])
    noises = ["given", "drawn"]
    found.add_argument("--noise", nargs="+", default=noises, choices=noises)
    budget_of = "maximum seconds of a row, for at least two runs"
    found.add_argument("--budget", type=float, default=20.0, help=budget_of)
    found.add_argument("--limit", type=float, default=6e9, help="bytes of temporaries")
    ways_of = "only ways in JAX whose names contain one of these"
    found.add_argument("--ways", nargs="+", default=[], metavar="TEXT", help=ways_of)
    found.add_argument("--figure", type=Path, help="file for the figure, SVG or PNG")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run, cases = Run("pareto", parser(), argv), []
    options = run.options
    for steps in options.steps:
        for noise in options.noise:
            cases.append(measure(Problem(HESTON, steps, options.paths, noise), run))
            case, found = cases[-1], summary(cases[-1])
            run.console.print(case_table(case))
            for name, value in found.items():
                run.console.print(f"{name}: {value}", soft_wrap=True)
            kept = [{**dataclasses.asdict(case), "summary": summary(case)} for case in cases]
            run.keep({"cases": kept}, headline(cases))
    if options.figure:
        draw(cases, options.figure)
    return int(any(point.error > TOLERANCE for case in cases for point in case.points))


if __name__ == "__main__":
    sys.exit(main())
