"""Mutation testing: small mistakes in schedules, estimators and Levenberg-Marquardt, to be noticed by tests.

Run `python -m tests.mutation [--only NAME ...] [--mutants N] [--seed N] [--seconds N] [--processes N]
[--least SHARE] [--out FILE]`. Each mutant is run in a process of its own, in a copy of the packages, with the
few test files that are about its module. It is killed if they fail, or do not end in time. Survivors that
`EQUIVALENT` names, with why no test can tell them, do not count. The exit status is 1 if fewer than the least
share are killed.
"""

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import Queue

from benchmarks.command import command_of, write_json
from benchmarks.timing import environment

from .copies import ROOT, Copy
from .equivalent import EQUIVALENT
from .mutants import Mutant, sample_of

_SCHEDULES = "tests/jaxtape/test_schedule.py", "tests/jaxtape/test_online.py"
_STEPS = ("tests/calibration/test_levenberg_marquardt.py",)
_AVERAGES = "tests/pricing/test_baskets.py", "tests/pricing/test_references.py"
_PATHS = tuple(f"tests/pricing/test_{name}.py" for name in ("estimators", "barrier", "monte_carlo"))


@dataclass(frozen=True)
class Target:
    """Modules, how many mutants of them in the usual sample, and the tests that are to notice."""

    modules: tuple[str, ...]
    mutants: int
    tests: tuple[str, ...]


def _estimators(*names: str) -> tuple[str, ...]:
    return tuple(f"pricing/estimators/{name}.py" for name in names)


TARGETS = {
    "schedules": Target(
        tuple(f"jaxtape/schedules/{name}.py" for name in ("table", "schedule", "online", "arena")),
        40,
        (*_SCHEDULES, "tests/jaxtape/test_cost.py"),
    ),
    "levenberg-marquardt": Target(("calibration/optimizers.py",), 24, _STEPS),
    "averages": Target(_estimators("average", "best_of", "points"), 12, _AVERAGES),
    "estimators": Target(
        _estimators("bridged", "corridor", "gaussian_mixture", "monitored", "score", "terminal"),
        24,
        _PATHS,
    ),
}


def chosen(target: Target, count: int, seed: int) -> list[tuple[str, Mutant]]:
    """The mutants of a target's modules: of each as many as its share of all lines."""
    sources = {module: (ROOT / module).read_text(encoding="utf-8") for module in target.modules}
    lines = sum(source.count("\n") for source in sources.values())
    return [
        (module, mutant)
        for module, source in sources.items()
        for mutant in sample_of(source, max(1, round(count * source.count("\n") / lines)), seed)
    ]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    found.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    found.add_argument("--mutants", type=int, metavar="N", help="of each target")
    found.add_argument("--seed", type=int, default=0, metavar="N")
    found.add_argument(
        "--seconds", type=float, default=300.0, metavar="N", help="of a mutant, at most"
    )
    found.add_argument("--processes", type=int, default=2, metavar="N")
    found.add_argument("--least", type=float, default=0.85, metavar="SHARE")
    found.add_argument("--out", type=Path, metavar="FILE", help="keep the outcomes as JSON")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    head = environment() | {"command": command_of("tests.mutation", argv)}
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as top, ThreadPool(options.processes) as pool:
        copies: Queue[Copy] = Queue()
        for number in range(options.processes):
            copies.put(Copy(f"{top}/{number}"))
        for name in options.only:
            target, copy = TARGETS[name], copies.get()
            if copy.outcome(target.tests, 10 * options.seconds) != "survived":
                print((copy.folder / "printed.txt").read_text(encoding="utf-8")[-3000:])
                print(f"{name}: its tests fail as it is: mend them first")
                return 2
            copies.put(copy)
            mutants = chosen(target, options.mutants or target.mutants, options.seed)
            row_of = functools.partial(_row, name, copies, options.seconds)
            for row in pool.imap(row_of, mutants):
                rows.append(row)
                said = "{module}, {mutant}: {outcome} ({seconds:.0f} s)".format_map(row)
                print(said, flush=True)
                if options.out is not None:
                    write_json(options.out, {**head, **summary(rows), "rows": rows})
    found = summary(rows)
    print(*(f"{name}: {said}" for name, said in found["shares"].items()), sep="\n")
    return int(found["share"] < options.least)


def _row(name: str, copies: Queue, seconds: float, mutant_of: tuple[str, Mutant]) -> dict:
    """What became of one mutant, in a copy that no other uses meanwhile."""
    (module, mutant), copy, start = mutant_of, copies.get(), time.perf_counter()
    outcome = copy.outcome_with(module, mutant, TARGETS[name].tests, seconds)
    copies.put(copy)
    why = EQUIVALENT.get((module, mutant.was, mutant.now))
    if outcome == "survived" and why:
        outcome = f"equivalent: {why}"
    told = {"target": name, "module": module, "mutant": str(mutant), "outcome": outcome}
    return told | {"seconds": round(time.perf_counter() - start, 1)}


def summary(rows: Sequence[dict]) -> dict:
    """The share that was killed, of all and of each target, without what is equivalent."""
    counted = [row for row in rows if not row["outcome"].startswith("equivalent")]
    killed = lambda rows: sum(row["outcome"].startswith("killed") for row in rows)
    shares = {}
    for name in dict.fromkeys(row["target"] for row in counted):
        own = [row for row in counted if row["target"] == name]
        shares[name] = f"{killed(own)} of {len(own)} killed"
    return {"share": killed(counted) / max(1, len(counted)), "shares": shares}


if __name__ == "__main__":
    sys.exit(main())
