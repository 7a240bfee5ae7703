"""Compile every public program for accelerators that are not here: `python -m tests.accelerators TARGET ...`.

One line a program, and a table in JSON with `--out`. Exit status: 0; 1 if a program does not compile.
"""

import argparse
import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from benchmarks.command import command_of, write_json
from benchmarks.timing import environment
from jaxtape.jax_settings.matmul_precision import matmul_precision_context
from jaxtape.jax_settings.platform import traced_for
from jaxtape.programs.compile_for import TargetCompiler, lowered_for
from jaxtape.programs.compiled_report import CompiledReport


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accelerators", description=__doc__)
    parser.add_argument("targets", nargs="+", help="such as tpu:v5e:2x2 gpu:h100")
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--only", default="", help="the starts of names, such as risk,solve")
    parser.add_argument("--out", type=Path, help="a file for the table, in JSON")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.precision == "double")
    jax.config.update("jax_disable_most_optimizations", True)  # of what runs here

    from .programs import direct  # arrays, of the precision
    from .verbs import recorded

    start = time.perf_counter()
    head = environment() | {"command": command_of("tests.accelerators", sys.argv[1:])}
    rows: list[dict] = []

    def compile_one(compiler: TargetCompiler, name: str, lowered: tuple | CompiledReport) -> None:
        """Compile a program, and write all rows: a run that is ended keeps what it has found."""
        rows.append({"precision": options.precision, **_compiled(compiler, name, lowered)})
        if options.out:
            taken = {"seconds": round(time.perf_counter() - start)}
            write_json(options.out, {**head, **taken, "rows": rows})

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        compilers = [stack.enter_context(TargetCompiler(name)) for name in options.targets]
        for group in (direct, recorded):
            programs = list(group(tuple(options.only.split(","))))
            for compiler in compilers:
                waiting = []
                with traced_for([compiler.target.platform]), matmul_precision_context():
                    for program in programs:
                        lowered = _lowered(compiler, program)
                        waiting.append(pool.submit(compile_one, compiler, program.name, lowered))
                for each in waiting:
                    each.result()
    failed = [row for row in rows if not row["compiles"]]
    seconds = time.perf_counter() - start
    print(f"{len(rows) - len(failed)} of {len(rows)} compile, in {seconds:.0f} s")
    for row in failed:
        print(f"{row['target']} {row['precision']} {row['program']}: {row['reason']}")
    return bool(failed)


def _lowered(compiler: TargetCompiler, program) -> tuple | CompiledReport:
    """Return the program for a target, or the report of what cannot be lowered."""
    try:
        return lowered_for(compiler.target, program.function, program.args, program.kwargs)
    except Exception as error:  # the other programs are compiled nevertheless
        return CompiledReport(compiler.target.name, f"{type(error).__name__}: {error}")


def _compiled(
    compiler: TargetCompiler, name: str, lowered: tuple | CompiledReport
) -> dict[str, object]:
    is_report = isinstance(lowered, CompiledReport)
    report = lowered if is_report else compiler.compile_program(*lowered)
    said = f"{report.compile_seconds:.1f} s" if report.compiles else f"NO: {report.reason}"
    print(f"{report.target} {name}: {said}", flush=True)
    return {"program": name, **report.as_json()}


if __name__ == "__main__":
    raise SystemExit(main())
