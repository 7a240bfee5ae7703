"""The common parts of all benchmark commands: options, machine, missing peers, and output of figures."""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import jaxtape as jt

from .beside import Answer, Measured, as_kept, comparisons
from .timing import environment

PEERS = {"torch": "PyTorch", "QuantLib": "QuantLib", "diffrax": "diffrax"}
EXTRAS = {"torch": "torch", "QuantLib": "bench", "diffrax": "bench"}

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # otherwise PyTorch's threads spin when idle
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave room for PyTorch


def installed(peer: str) -> bool:
    """Return True if a peer's module can be imported."""
    return importlib.util.find_spec(peer) is not None


def whole(text: str) -> int:
    """Parse a count of at least 1 from an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def parser_of(description: str | None, **counts: int) -> argparse.ArgumentParser:
    """Return a parser of options that are counts, each with its default, and of `--out`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in counts.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=whole, default=default, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser


def with_eager(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option that leaves `torch.compile` out."""
    said = "leave out the rows of torch.compile, which compile for minutes"
    parser.add_argument("--eager", action="store_true", help=said)
    return parser


class Run:
    """One run of a benchmark: its options, its console, the rows it leaves out, and the figures it keeps.

    It prints the machine and the command at the start. `precision` is JAX's from then on, and `said` replaces
    it in the printed line. The option `devices` is the number of CPU devices to make.
    """

    def __init__(
        self,
        name: str,
        parser: argparse.ArgumentParser,
        argv: Sequence[str] | None,
        precision: str = "float64",
        said: str | None = None,
        width: int = 140,
    ):
        self.options, self.error = parser.parse_args(argv), parser.error
        self.console, self.left_out = Console(width=width, highlight=False, markup=False), []
        self.comparisons, self.answers = [], []
        jt.set_program_store(None)  # so that a first call traces and compiles, whatever ran before
        jax.config.update("jax_enable_x64", precision == "float64")
        if hasattr(self.options, "devices"):
            self.options.devices = use_devices(self.options.devices)
        options = vars(self.options).items()
        given = {key: value for key, value in options if not isinstance(value, Path | None)}
        self.head = environment() | {
            "backend": f"{backend()}, {said or precision}",
            "command": command_of(f"benchmarks.{name}", argv),
            "options": given,
        }
        for key, text in self.head.items():
            self.console.print(f"{key}: {text}", soft_wrap=True)

    def leave_out(self, what: str) -> None:
        """Report that some rows are missing, and the reason."""
        if what not in self.left_out:
            self.left_out.append(what)
            self.console.print(f"left out: {what}", soft_wrap=True)

    def has(self, peer: str) -> bool:
        """Return True if a peer takes part; report it if it cannot."""
        if not (found := installed(peer)):
            remedy = f'pip install -e ".[{EXTRAS[peer]}]"'
            self.leave_out(f"{PEERS[peer]}: it is not installed; {remedy} installs it")
        elif peer == "torch" and jax.default_backend() == "gpu":
            self._take_the_gpu()
        return found

    def _take_the_gpu(self) -> None:
        """Make PyTorch compute on JAX's device, with float32 products of the same precision."""
        import torch

        if torch.cuda.is_available():
            torch.set_default_device("cuda")
            chosen = os.environ.get("JAX_DEFAULT_MATMUL_PRECISION")
            torch.set_float32_matmul_precision("high" if chosen == "tensorfloat32" else "highest")
        else:
            self.leave_out(
                "PyTorch on the GPU: it is a build for CPUs, and its rows are from the CPU"
            )

    def compiles(self) -> bool:
        """Return True if rows of `torch.compile` take part; report it if they do not."""
        if not self.has("torch"):
            return False
        compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
        if getattr(self.options, "eager", False):
            self.leave_out("torch.compile: --eager was given")
        elif not any(map(shutil.which, compilers)):
            self.leave_out("torch.compile: there is no C++ compiler")
        else:
            return True
        return False

    def beside(
        self,
        task: str,
        ways: Mapping[str, Measured],
        size: Mapping[str, float | None] | None = None,
    ) -> None:
        """Keep our ratio to each peer, from ways that took turns, ours first; `size` is bytes by way."""
        self.comparisons += comparisons(task, ways, size)

    def answer(
        self,
        figure: str,
        error: float,
        known: float | None = None,
        found: float | None = None,
        std_error: float | None = None,
    ) -> None:
        """Keep the relative error of a known figure."""
        numbers = (None if x is None else float(x) for x in (known, found, std_error))
        self.answers.append(Answer(figure, float(error), *numbers))

    def keep(self, figures: Mapping[str, Any], headline: str = "") -> None:
        """Write head, headline, ratios, known answers and figures to the file of `--out`."""
        if self.options.out is not None:
            shared = {
                "left_out": self.left_out,
                "headline": headline,
                "comparisons": as_kept(self.comparisons),
                "answers": as_kept(self.answers),
            }
            found = {**self.head, **shared, **figures}
            write_json(self.options.out, found)


def command_of(module: str, argv: Sequence[str] | None) -> str:
    """Return the command as given, without `--out`, which does not affect the run."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    return shlex.join(["python", "-m", module, *words])


def backend() -> str:
    """Return JAX's backend, with the name of an accelerator."""
    name = jax.default_backend()
    return name if name == "cpu" else f"{name}, {jax.devices()[0].device_kind}"


def use_devices(count: int) -> int:
    """Make `count` CPU devices; a process that has started to compute keeps those it has.

    Returns:
        The number of devices; for an accelerator, its own.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if jax.default_backend() == "cpu" and len(jax.devices()) != count:
            raise
    return len(jax.devices())


def write_json(file: Path, figures: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")
    part.replace(file)


def table_of(title: str, *columns: str, left: int = 1) -> Table:
    """Return a table whose first columns are text, and whose others are numbers."""
    table = Table(title=title)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right")
    return table
