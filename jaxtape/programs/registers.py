"""The register use of GPU kernels, as reported by NVIDIA's assembler."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TRITON = "__gpu$xla.gpu.triton"
"""The name of a Triton kernel in a program."""

_NAME = re.compile(r'\bname = "(\w+)"')
_ENTRY = re.compile(rb"\.entry (\w+)\(")
_TARGET = re.compile(rb"^\.target (\w+)", re.M)
_USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)


# of compute capability 8.0 (A100), 9.0 and 10.0: NVIDIA, CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability"
_WARPS = 64  # that a multiprocessor runs at once, a quarter in each of its parts
_OF_A_PART = 16384  # registers
_UNIT = 8  # by which registers are given to each of the 32 threads of a warp


class Registers(NamedTuple):
    """The registers of a kernel.

    Attributes:
        used: The number of 32-bit registers per thread.
        spilled_bytes: The bytes that each thread spills to memory and reads back.

    Examples:
        >>> import jaxtape as jt
        >>> print(jt.Registers(used=72, spilled_bytes=0))
        72 registers a thread, 0 bytes spilled, occupancy at most 44 %
    """

    used: int
    spilled_bytes: int

    @property
    def occupancy(self) -> float:
        """The warps at once on a multiprocessor that these registers allow, as a share of the most it runs."""
        given = -(-self.used // _UNIT) * _UNIT
        return min(4 * (_OF_A_PART // (32 * given)), _WARPS) / _WARPS

    def __str__(self) -> str:
        return (
            f"{self.used} registers a thread, {self.spilled_bytes:,} bytes spilled, "
            f"occupancy at most {100.0 * self.occupancy:.0f} %"
        )


def dump_options(folder: str) -> dict[str, str | bool]:
    """Return options that make XLA write a program's PTX to a folder."""
    return {"xla_dump_to": folder, "xla_dump_emitter_re": "ptx"}


def registers_of(text: str, folder: Path) -> Mapping[str, Registers]:
    """Return the registers of a program's Triton kernels by name; empty if there is no assembler.

    Args:
        text: XLA's text of the program.
        folder: The folder with its PTX.
    """
    names = {name for line in text.splitlines() if TRITON in line for name in _NAME.findall(line)}
    assembler, found = _assembler(), {}
    for source in sorted(folder.rglob("*.ptx")) if assembler else ():
        content = source.read_bytes()
        entries = {name.decode() for name in _ENTRY.findall(content)}
        target = _TARGET.search(content)
        if target is None or not any(name.partition("__")[0] in names for name in entries):
            continue
        command = [assembler, "-v", "--gpu-name", target[1].decode(), source, "-o", "/dev/null"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        found |= registers_in(result.stderr + result.stdout)
    return found


def registers_in(said: str) -> dict[str, Registers]:
    """Return the registers of kernels by name, from the assembler's output."""
    return {
        name: Registers(int(used), int(stored) + int(loaded))
        for name, stored, loaded, used in _USED.findall(said)
    }


def _assembler() -> str | None:
    """Return the path of NVIDIA's assembler: from the extra `cuda`, or the system's."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(place).glob("*/bin/ptxas")):
            return str(path)
    return shutil.which("ptxas")
