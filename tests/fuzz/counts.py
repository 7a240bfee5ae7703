"""How many fuzzed inputs ended in which way, of one process."""

import collections
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import jax

from .answers import commands_in, fuzzed_command_line, fuzzed_comparison, fuzzed_files

_MAPS = Path("/proc/self/maps")
_MANY = 28_000  # of the 65,530 memory maps that Linux allows a process; compiled programs hold them


def check(kind: str, seeds: range) -> tuple[str, int, dict[str, int], list[str], float]:
    """Check the inputs of these seeds, and return how many ended in which way, and what failed."""
    jax.config.update("jax_enable_x64", True)
    counts, failed, start = collections.Counter(), [], time.perf_counter()
    with tempfile.TemporaryDirectory() as name, commands_in(Path(name).resolve()) as run:
        ways: dict[str, Callable[[int], str]] = {
            "files": lambda seed: fuzzed_files(Path.cwd(), seed),
            "command lines": lambda seed: fuzzed_command_line(run, seed),
            "comparisons": lambda seed: fuzzed_comparison(run, seed),
        }
        for seed in seeds:
            try:
                counts[ways[kind](seed)] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                counts["failed"] += 1
                said = "".join(traceback.format_exception(error, limit=-4))
                failed.append(f"{kind}, seed {seed}: {said}")
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY:
        jax.clear_caches()
    return kind, len(seeds), dict(counts), failed, time.perf_counter() - start
