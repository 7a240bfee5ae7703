"""The registers of a GPU's kernels, as NVIDIA's assembler reports them."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TRITON = "__gpu$xla.gpu.triton"
"""The name in a program of a kernel that Triton compiles."""

_NAME = re.compile(r'\bname = "(\w+)"')
_ENTRY = re.compile(rb"\.entry (\w+)\(")
_TARGET = re.compile(rb"^\.target (\w+)", re.M)
_USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)


class Registers(NamedTuple):
    """The registers of a kernel.

    Attributes:
        used: The number that each thread has, of 32 bits each.
        spilled_bytes: The bytes that a thread writes to memory and reads again for want of registers.
    """

    used: int
    spilled_bytes: int


def dump_options(folder: str) -> dict[str, str | bool]:
    """Return options by which XLA writes the assembler's sources of a program to a folder."""
    return {"xla_dump_to": folder, "xla_dump_emitter_re": "ptx"}


def registers_of(text: str, folder: Path) -> Mapping[str, Registers]:
    """Return the registers of a program's Triton kernels by name; none where there is no assembler.

    Args:
        text: XLA's text of the program.
        folder: The folder with its sources.
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
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        found |= registers_in(said.stderr + said.stdout)
    return found


def registers_in(said: str) -> dict[str, Registers]:
    """Return the registers of kernels by name, from the words of the assembler."""
    return {
        name: Registers(int(used), int(stored) + int(loaded))
        for name, stored, loaded, used in _USED.findall(said)
    }


def _assembler() -> str | None:
    """Return the path of NVIDIA's assembler: that of the extra `cuda`, or the machine's."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(place).glob("*/bin/ptxas")):
            return str(path)
    return shutil.which("ptxas")
