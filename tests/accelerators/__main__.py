"""Compile every public program for accelerators that are not here: `python -m tests.accelerators TARGET ...`.

One line a program, and a table in JSON with `--out`. Exit status: 0; 1 if a program does not compile.

For a TPU in double precision, each kind of operation in the programs is compiled once; with `--whole`, the
programs are.
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

from .operations import ByOperation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accelerators", description=__doc__)
    parser.add_argument("targets", nargs="+", help="such as tpu:v5e:2x2 gpu:h100")
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--only", default="", help="the starts of names, such as risk,solve")
    parser.add_argument("--whole", action="store_true", help="programs for a TPU in double, too")
    parser.add_argument("--out", type=Path, help="a file for the table, in JSON")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.precision == "double")
    jax.config.update("jax_disable_most_optimizations", True)  # of what runs here

    from .programs import direct  # arrays, of the precision
    from .verbs import recorded

    start = time.perf_counter()
    head = environment() | {"command": command_of("tests.accelerators", sys.argv[1:])}
    rows: list[dict] = []

    def compile_one(
        compiler: TargetCompiler | ByOperation, name: str, lowered: tuple | CompiledReport
    ) -> None:
        """Compile a program, and write all rows: a run that is ended keeps what it has found."""
        rows.append({"precision": options.precision, **_compiled(compiler, name, lowered)})
        if options.out:
            taken = {"seconds": round(time.perf_counter() - start)}
            kinds = {x.target.name: x.reasons for x in compilers if isinstance(x, ByOperation)}
            table = {"operations": kinds, "rows": rows} if kinds else {"rows": rows}
            write_json(options.out, {**head, **taken, **table})

    is_in_parts = options.precision == "double" and not options.whole
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        compilers: list[TargetCompiler | ByOperation] = []
        for name in options.targets:
            compiler = stack.enter_context(TargetCompiler(name))
            in_parts = is_in_parts and compiler.target.platform == "tpu"
            compilers.append(ByOperation(compiler) if in_parts else compiler)
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


def _lowered(compiler: TargetCompiler | ByOperation, program) -> tuple | CompiledReport:
    """Return the program for a target, or the report of what cannot be lowered."""
    try:
        return lowered_for(compiler.target, program.function, program.args, program.kwargs)
    except Exception as error:  # the other programs are compiled nevertheless
        return CompiledReport(compiler.target.name, f"{type(error).__name__}: {error}")


def _compiled(
    compiler: TargetCompiler | ByOperation, name: str, lowered: tuple | CompiledReport
) -> dict[str, object]:
    if isinstance(lowered, CompiledReport):
        row = lowered.as_json()
    elif isinstance(compiler, ByOperation):
        row = compiler.row_of(lowered[0])
    else:
        row = compiler.compile_program(*lowered).as_json()
    said = f"{row['compile_seconds']:.1f} s" if row["compiles"] else f"NO: {row['reason']}"
    print(f"{row['target']} {name}: {said}", flush=True)
    return {"program": name, **row}


if __name__ == "__main__":
    raise SystemExit(main())
