"""A process that compiles programs for a target: `python -m jaxtape.programs.compile_worker TARGET`.

It reads programs of `jax.export` from stdin, each after its length in eight bytes and a line of JSON with the
axes of its mesh, and writes the compiler's report on each to stdout, as a line of JSON. A compiler that aborts
ends the process.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.export
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .compiled_report import CompiledReport, report_of
from .registers import TRITON, dump_options, registers_of
from .targets import Target, target_of


def main() -> None:
    """Compile the programs on stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers print to stdout
    jax.config.update("jax_enable_x64", True)  # programs state their own types
    target = target_of(sys.argv[1])
    answer = lambda words: print(json.dumps(words), file=answers, flush=True)
    try:
        devices = topologies.get_topology_desc(**target.topology).devices
    except Exception as error:
        answer({"refused": f"{error}"})
        return
    answer({"devices": len(devices)})
    while header := sys.stdin.buffer.readline():
        sizes = json.loads(header)
        program = _read(sys.stdin.buffer, sizes["bytes"])
        answer(_compiled(target, devices, program, sizes["axes"]).as_json())


def _read(stream: BinaryIO, size: int) -> bytearray:
    content = bytearray()
    while len(content) < size:
        content += stream.read(size - len(content))
    return content


def _compiled(
    target: Target, devices: list[Any], program: bytearray, axes: Mapping[str, int]
) -> CompiledReport:
    start = time.perf_counter()
    try:
        exported = jax.export.deserialize(program)
        count = exported.nr_devices
        if count > len(devices):
            raise ValueError(f"it needs {count} devices, and {target.name} has {len(devices)}")
        shape = tuple(axes.values()) or (count,)
        mesh = Mesh(np.array(devices[:count]).reshape(shape), tuple(axes) or ("devices",))
        places = exported.in_shardings_jax(mesh)
        whole = NamedSharding(mesh, PartitionSpec())
        arguments = [
            jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place or whole)
            for array, place in zip(exported.in_avals, places, strict=True)
        ]
        lowered, registers = jax.jit(exported.call).lower(*arguments), {}
        if TRITON.encode() in program:
            with tempfile.TemporaryDirectory() as folder:
                compiled = lowered.compile(compiler_options=dump_options(folder))
                registers = registers_of(compiled.as_text() or "", Path(folder))
        else:
            compiled = lowered.compile()
    except Exception as error:
        return CompiledReport(target.name, f"{type(error).__name__}: {error}".strip())
    seconds = time.perf_counter() - start
    return report_of(target, count, compiled, registers, seconds)


if __name__ == "__main__":
    main()
