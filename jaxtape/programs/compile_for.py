"""Compile functions for accelerators that are not attached, in a separate process: a compiler may abort."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.export

from ..jax_settings.platform import traced_for
from .compiled_report import CompiledReport
from .exported import flattened
from .recorded import is_array_or_shape, shape_of_leaf
from .rewritten import rewritten_for
from .targets import Target, target_of

# flags that do not apply to a target's program
_OF_CPUS = "--xla_cpu", "--xla_backend_extra_options"
# autotuning would have to time kernels on the device
_FOR_GPUS = "--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TPU_SKIP_MDS_QUERY": "1",  # otherwise libtpu queries Google Cloud's metadata server
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_FATAL = re.compile(rb"^F\d{4} .*?\] (.*)$", re.M)  # Google's log of an abort
_MOST = 1000  # characters of a reason


def compile_for(function: Callable, *args: Any, target: str) -> CompiledReport:
    """Compile a function for an accelerator that need not be attached, and return its compiler's report.

    The function is traced and lowered for the target in this process (`jax.export`: `lax.platform_dependent`
    takes the target's branch), and compiled in another one, which may abort. Nothing is run. No argument is
    donated. Functions with callbacks to Python are refused.

    Args:
        function: A function that `equinox.filter_jit` can compile.
        *args: Arguments; only the shapes and types of their arrays matter, so `jax.ShapeDtypeStruct` will do.
            The shardings of arguments on several devices are kept; the devices may be virtual ones
            (`JAX_NUM_CPU_DEVICES=256`), as long as the target has as many.
        target: "tpu:v5e:2x2", "tpu:v5e:16x16" (a pod of 256 chips), "gpu:h100", "gpu:h100:8" and the like.

    Returns:
        The report. If the target refuses the program, or its compiler aborts, the report has the reason.

    `ImportError` is raised if the target's compiler is not installed (`pip install 'jaxtape[tpu]'`, or
    `[cuda]`), and `ValueError` if there is no such target.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> import jaxtape as jt
        >>> try:
        ...     report = jt.compile_for(jnp.sum, jnp.ones(8), target="tpu:v5e:2x2")
        ... except ImportError as error:
        ...     report = None  # pip install 'jaxtape[tpu]'
        >>> report is None or report.compiles
        True
    """
    with TargetCompiler(target) as compiler:
        return compiler.compile(function, *args)


class TargetCompiler:
    """A process that compiles programs for a target, one after another; a context manager.

    A compiler that aborts ends the process; a new one is then started.
    """

    def __init__(self, target: str):
        """Find the target's compiler.

        Raises:
            ImportError: If it is not installed.
        """
        self.target = target_of(target)
        if not any(map(importlib.util.find_spec, self.target.modules)):
            raise ImportError(
                f"target is {target!r}, and its compiler is not installed: pip install "
                f"'jaxtape[{self.target.extra}]'"
            )
        self._process: subprocess.Popen | None = None
        self._reason = ""

    def __enter__(self) -> "TargetCompiler":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def compile(self, function: Callable, *args: Any, **kwargs: Any) -> CompiledReport:
        """Return the report of a function for arguments like these, as `compile_for` does."""
        try:
            program, axes = lowered_for(self.target, function, args, kwargs)
        except RefusedError as error:
            return CompiledReport(self.target.name, str(error))
        return self.compile_program(program, axes)

    def compile_program(self, program: bytes, axes: Mapping[str, int]) -> CompiledReport:
        """Return the report of a program that `lowered_for` made."""
        was_used = self._process is not None
        report = self._try(program, axes)
        if report is None and was_used:  # an earlier program may be the cause
            report = self._try(program, axes)
        return report or CompiledReport(self.target.name, self._reason)

    def _try(self, program: bytes, axes: Mapping[str, int]) -> CompiledReport | None:
        """Return the report; None if the process has ended."""
        process = self._process or self._start()
        header = json.dumps({"bytes": len(program), "axes": axes}).encode()
        answer = b""
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(header + b"\n" + program)
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer:
            return CompiledReport.from_json(json.loads(answer))
        self._reason = self._end()
        return None

    def _start(self) -> subprocess.Popen:
        """Start the process.

        Raises:
            ValueError: If the compiler does not know the target's topology.
        """
        flags = [x for x in os.environ.get("XLA_FLAGS", "").split() if not x.startswith(_OF_CPUS)]
        flags += _FOR_GPUS if self.target.platform == "cuda" else ()
        path = os.pathsep.join(filter(None, sys.path))
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.compile_worker", self.target.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=os.environ | _ENVIRONMENT | {"XLA_FLAGS": " ".join(flags), "PYTHONPATH": path},
        )
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline() or b'{"refused": ""}')
        if "refused" in answer:
            reason = self._end()
            raise ValueError(
                f"target is {self.target.name!r}, and its compiler cannot start: "
                f"{answer['refused'] or reason}"
            )
        return process

    def _end(self) -> str:
        """End the process, and return the reason it gave."""
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdin is not None and process.stdout is not None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        status = process.wait()  # it ends when its input does
        with self._said as said:
            said.seek(0)
            words = said.read()
        fatal = _FATAL.findall(words) or words.strip().splitlines()[-1:]
        what = fatal[0].decode(errors="replace")[:_MOST] if fatal else ""
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"the compiler ended its process ({how}): {what}"


class RefusedError(Exception):
    """A program that cannot be lowered for a platform; its text is the reason."""


def lowered_for(
    target: Target, function: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[bytes, dict[str, int]]:
    """Return a function's program for a target, and the axes of the mesh of its arguments.

    Raises:
        RefusedError: If the platform lacks an operation, or the program calls back to Python.
    """
    platform = target.platform
    flat, leaves, _ = flattened(function, args, kwargs, is_array_or_shape)
    shapes = list(map(shape_of_leaf, leaves))
    meshes = [shape.sharding.mesh for shape in shapes if shape.sharding is not None]
    with traced_for([platform]):
        jitted = jax.jit(rewritten_for(platform, flat))
        jitted.trace(*shapes)  # raises the function's own errors
        try:
            checks = [jax.export.DisabledSafetyCheck.custom_call("ALL")]  # not stored
            with contextlib.nullcontext() if meshes else target.described():
                program = jax.export.export(jitted, platforms=[platform], disabled_checks=checks)
                program = program(*shapes)
            return bytes(program.serialize()), dict(meshes[0].shape) if meshes else {}
        except Exception as error:
            raise RefusedError(f"{type(error).__name__}: {error}"[:_MOST]) from error
