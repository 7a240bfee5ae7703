"""As many fuzzed inputs as one likes, in several processes, and a count of what became of them.

Run `python -m tests.fuzz [--files N] [--command-lines N] [--comparisons N] [--processes N] [--first-seed N]
[--out FILE]`. A file is a market with a book; every fourth is a quote table, scenarios, known figures or a run
that is monitored. A comparison is a file of a user's functions. One of 500 command lines is typed in a process
of odd surroundings. The exit status is 1 if an input made a traceback, hung, had a wrong exit
status or was refused without place, value and remedy.
"""

import argparse
import importlib.util
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import command_of, write_json
from benchmarks.timing import environment

from .counts import check

KINDS = "files", "command lines", "comparisons"
_CHUNK = 500  # inputs of one kind between two lines of progress


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    for kind, count in zip(KINDS, (76_000, 20_000, 4_000), strict=True):
        found.add_argument(f"--{kind.replace(' ', '-')}", type=int, default=count, metavar="N")
    found.add_argument("--processes", type=int, default=2, metavar="N")
    found.add_argument("--first-seed", type=int, default=100_000, metavar="N")
    found.add_argument("--out", type=Path, metavar="FILE", help="keep the counts as JSON")
    return found


def chunks_of(options: argparse.Namespace) -> list[tuple[str, range]]:
    first, chunks = options.first_seed, []
    for kind in KINDS:
        count = getattr(options, kind.replace(" ", "_"))
        if kind == "comparisons" and importlib.util.find_spec("torch") is None:
            print("left out: comparisons: PyTorch is not installed", flush=True)
            continue
        for at in range(first, first + count, _CHUNK):
            chunks.append((kind, range(at, min(at + _CHUNK, first + count))))
    return chunks


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    head = environment() | {"command": command_of("tests.fuzz", argv)}
    kinds: dict[str, dict] = {}
    done, chunks = 0, chunks_of(options)
    total = sum(len(seeds) for _, seeds in chunks)
    for kind, number, counts, failed, seconds in _checked(chunks, options.processes):
        found = kinds.setdefault(kind, {"inputs": 0, "seconds": 0.0, "outcomes": {}})
        found["inputs"] += number
        found["seconds"] = round(found["seconds"] + seconds, 1)
        for outcome, count in counts.items():
            found["outcomes"][outcome] = found["outcomes"].get(outcome, 0) + count
        done += number
        print(f"{done:,} of {total:,}", *failed, sep="\n", flush=True)
        if options.out is not None:
            write_json(options.out, {**head, "inputs": done, "kinds": kinds})
    print(json.dumps(kinds, indent=1))
    return int(any("failed" in found["outcomes"] for found in kinds.values()))


def _checked(chunks: list, processes: int):
    if processes == 1:
        yield from (check(*chunk) for chunk in chunks)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for found in [pool.apply_async(check, chunk) for chunk in chunks]:
            yield found.get()


if __name__ == "__main__":
    sys.exit(main())
