"""Greeks to the same standard error: seconds here, and by plain Monte Carlo in eager PyTorch.

Run `python -m benchmarks.equal_accuracy [--target 0.001] [--batch 262144] [--repeat 5] [--kinds European Asian
barrier] [--out FILE]`. There are two jobs for each contract: value, Delta and vega; and those with Gamma. A job
is done when the relative standard error of each of its figures is at most the target.

PyTorch: pseudo-random paths in float32, exact in law at all dates, in batches of `--batch`, on one thread or on
all cores, whichever is faster. For a continuous payoff, Delta and vega are one backward sweep, and Gamma the
central difference of Delta; for a barrier, for which a backward sweep is wrong, all are central differences on
the same noise. The noise of a batch determines the number of paths that a job needs; its seconds are scaled
accordingly.

jaxtape: `MonteCarlo` with its control variates, on scrambled Sobol points or on pseudo-random ones, whichever
is faster, in float64; the number of paths is doubled until the reported standard errors are small enough, and
that program is timed, with fresh noise in each run. Programs take turns. Means are compared: "off" is the
largest difference in units of the joint standard error.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from pricing import MonteCarlo
from pricing.sampling import AbstractSampler, PseudoRandom, Sobol

from .accuracy_contracts import FIRST, Contract, Figures, contracts
from .beside import Turns
from .command import Run, parser_of, table_of
from .timing import Timed, take_turns

KINDS = ["European", "Asian", "barrier"]
JOBS = {"value, Delta, vega": FIRST, "and Gamma": (*FIRST, "gamma")}
SAMPLERS = {"Sobol": Sobol(), "pseudo-random": PseudoRandom()}
FEWEST, MOST = 2**9, 2**22  # our numbers of paths

# --- jaxtape ------------------------------------------------------------------------------------------


class Ours(Timed):
    """One of our jobs: a program for means and standard errors, its seconds and its last results."""

    def __init__(
        self, contract: Contract, figures: tuple[str, ...], paths: int, sampler: AbstractSampler
    ):
        method = MonteCarlo(paths, sampler=sampler)
        keys = (jax.random.key(seed) for seed in itertools.count(1))
        program = jax.jit(lambda key: _figures(contract, figures, method, key))
        super().__init__(lambda: jax.device_get(program(next(keys))))
        self.paths, self.figures = paths, figures
        self.run()  # compiles
        self.forget()

    @property
    def means(self) -> Figures:
        return self.out[0]

    @property
    def errors(self) -> Figures:
        return self.out[1]

    def is_within(self, target: float) -> bool:
        return all(self.errors[name] <= target * abs(self.means[name]) for name in self.figures)


def _figures(contract: Contract, figures: tuple[str, ...], method: MonteCarlo, key):
    """Return means and standard errors by figure: slopes in spot and vol, and of Delta in the spot."""
    along = {"delta": jnp.asarray([1.0, 0.0]), "vega": jnp.asarray([0.0, 1.0])}

    def value(at):
        model = contract.model.shifted(underlying=at[0], vol=at[1])
        return method.samples(contract.product, model, key=key)

    def slopes(at):
        push = lambda way: jax.jvp(value, (at,), (way,))
        return jax.vmap(push, out_axes=(None, 0))(jnp.stack(list(along.values())))

    at = jnp.zeros(2)
    if "gamma" in figures:
        (found, (delta, vega)), (_, (gamma, _)) = jax.jvp(slopes, (at,), (along["delta"],))
    else:
        (found, (delta, vega)), gamma = slopes(at), None
    samples = {"value": found, "delta": delta, "vega": vega, "gamma": gamma}
    error = lambda x: jnp.std(x, ddof=1) / jnp.sqrt(x.size)
    return tuple({name: of(samples[name]) for name in figures} for of in (jnp.mean, error))


def ours_within(contract: Contract, figures: tuple[str, ...], target: float, sampler) -> Ours:
    """Return our job with the smallest power of two of paths that meets the target in three runs of three."""
    paths = FEWEST
    while paths <= MOST:
        way = Ours(contract, figures, paths, sampler)
        tries = []
        for _ in range(3):
            way.run()
            tries.append(way.is_within(target))
        way.forget()
        if all(tries):
            return way
        paths *= 2
    raise RuntimeError(f"{contract.name}: {MOST} paths are not enough for {target:g}")


# --- the two in turn ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A job: its cost here and, if PyTorch is installed, there."""

    contract: str
    job: str
    sampler: str
    our_paths: int
    our_seconds: float
    relative_error: float
    their_paths: int | None = None
    their_seconds: float | None = None
    their_threads: int | None = None
    off: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.their_seconds is None else self.their_seconds / self.our_seconds

    @property
    def cells(self) -> tuple[str, ...]:
        ours = f"{self.our_paths:,} {self.sampler}", f"{1e3 * self.our_seconds:.2f}"
        if self.their_seconds is None or self.ratio is None:
            return self.contract, self.job, *ours
        theirs = f"{self.their_paths:,}", f"{1e3 * self.their_seconds:,.1f}"
        return self.contract, self.job, *ours, *theirs, f"{self.ratio:,.0f}", f"{self.off:.1f}"


def row_of(contract: Contract, job: str, run: Run, rivals: Callable) -> Row:
    """Return the row of a job; `rivals` are PyTorch's ways to do it, if any."""
    figures, options = JOBS[job], run.options
    ways = {
        name: ours_within(contract, figures, options.target, sampler)
        for name, sampler in SAMPLERS.items()
    }
    others = rivals(contract, figures, options.batch)
    take_turns([*ways.values(), *others], options.repeat)
    name, ours = min(ways.items(), key=lambda way: min(way[1].seconds))
    error = max(float(ours.errors[f] / abs(ours.means[f])) for f in figures)
    row = Row(contract.name, job, name, ours.paths, min(ours.seconds), error)
    if not others:
        return row
    other = min(others, key=lambda way: min(way.seconds))
    paths = other.paths_for(options.target)
    scale = paths / options.batch
    seconds = min(other.seconds) * scale
    theirs = Turns({turn: scale * each for turn, each in other.by_turn.items()})
    run.beside(f"{contract.name}: {job}", {"jaxtape": ours, "PyTorch": theirs})
    off = max(
        abs(ours.means[f] - other.means[f]) / np.hypot(ours.errors[f], other.errors[f])
        for f in figures
    )
    return replace(
        row,
        their_paths=paths,
        their_seconds=seconds,
        their_threads=other.threads,
        off=float(off),
    )


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, batch=2**18, repeat=5)
    found.add_argument("--target", type=float, default=0.001, help="relative standard error")
    found.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="contracts")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("equal_accuracy", parser(), argv)
    options, rivals = run.options, lambda *job: []
    if run.has("torch"):
        from .equal_accuracy_torch import theirs as rivals
    chosen = [contract for contract in contracts() if contract.kind in options.kinds]
    rows = [row_of(contract, job, run, rivals) for contract in chosen for job in JOBS]
    columns = ("paths", "ms", "PyTorch's paths", "its ms", "times", "off")
    title = f"relative standard errors of at most {options.target:g}"
    table = table_of(title, "contract", "figures", *columns, left=2)
    for row in rows:
        table.add_row(*row.cells)
    run.console.print(table)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    headline = f"{min(ratios):,.0f} to {max(ratios):,.0f} x as fast as PyTorch" if ratios else ""
    run.keep({"rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
