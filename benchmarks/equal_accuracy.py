"""Greeks to the same standard error: the seconds they take here, and by plain Monte Carlo in eager PyTorch.

Run `python -m benchmarks.equal_accuracy [--target 0.001] [--repeat 5] [--out FILE]`. Two jobs for each
contract: value, Delta and vega; and those with Gamma. A job is done when the relative standard error of each
of its figures is at most the target.

PyTorch: pseudo-random paths in float32, exact in law at all dates, in batches of `--batch`, on one thread or on
all cores, whichever is quicker. Of a continuous payoff Delta and vega are one backward sweep, Gamma the central
difference of Delta; of a barrier, where a backward sweep is wrong, all are central differences on the same
noise. What a batch leaves of noise says how many paths a job needs; its seconds are in proportion.

jaxtape: `MonteCarlo` with its controls, on scrambled Sobol points and on pseudo-random ones, whichever is
quicker, in float64; the number of paths is doubled until the standard errors that it reports are small enough,
and that program is timed, with fresh noise at each run. Programs take turns. Means are compared: "off" is the
largest difference of the two in their common standard errors.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pricing import Asian, Barrier, BlackScholes, European, MonteCarlo
from pricing.price import mean_and_error
from pricing.sampling import AbstractSampler, PseudoRandom, Sobol

from .timing import environment, take_turns

FIRST = ("value", "delta", "vega")
JOBS = {"value, Delta, vega": FIRST, "and Gamma": (*FIRST, "gamma")}
SPOT, STRIKE, LEVEL = 100.0, 100.0, 90.0
BUMPS = {"spot": 1.0, "vol": 0.01}
SAMPLERS = {"Sobol": Sobol(), "pseudo-random": PseudoRandom()}
FEWEST, MOST = 2**9, 2**22  # paths of ours

Figures = dict[str, float]


@dataclass(frozen=True)
class Contract:
    """payoff: of spots [dates, paths] in PyTorch; is_continuous: so that it may be differentiated."""

    name: str
    product: European | Asian | Barrier
    rate: float
    vol: float
    dates: np.ndarray
    payoff: Callable[[torch.Tensor], torch.Tensor]
    is_continuous: bool

    @property
    def model(self) -> BlackScholes:
        return BlackScholes(SPOT, self.rate, self.vol)


def call(spots: torch.Tensor) -> torch.Tensor:
    return torch.clamp(spots[-1] - STRIKE, min=0.0)


def average_call(spots: torch.Tensor) -> torch.Tensor:
    return torch.clamp(spots.mean(0) - STRIKE, min=0.0)


def knock_out_call(spots: torch.Tensor) -> torch.Tensor:
    return call(spots) * (spots.amin(0) > LEVEL)


def contracts() -> list[Contract]:
    year, month, days = np.ones(1), np.arange(1, 13) / 12.0, 0.2 * np.arange(1, 51) / 50.0
    out = Barrier(STRIKE, 0.2, LEVEL, dates=days)
    return [
        Contract("European call", European(STRIKE, 1.0), 0.05, 0.2, year, call, True),
        Contract(
            "Asian call, 12 dates", Asian(STRIKE, month), 0.05, 0.2, month, average_call, True
        ),
        Contract("call, out below 90 on 50 dates", out, 0.1, 0.3, days, knock_out_call, False),
    ]


# --- PyTorch ------------------------------------------------------------------------------------------


def discounted(contract: Contract, noise: torch.Tensor, spot, vol) -> torch.Tensor:
    """Discounted payoffs [paths]; spot and vol: numbers, or one for each path."""
    dates = torch.from_numpy(contract.dates).float()[:, None]
    steps = torch.diff(dates, dim=0, prepend=torch.zeros(1, 1))
    moves = (contract.rate - 0.5 * vol**2) * steps + vol * torch.sqrt(steps) * noise
    return np.exp(-contract.rate * contract.dates[-1]) * contract.payoff(
        spot * torch.exp(torch.cumsum(moves, 0))
    )


def along_paths(contract: Contract, noise: torch.Tensor, spot: float) -> tuple[torch.Tensor, ...]:
    """Value, Delta and vega of each path by one backward sweep."""
    paths = noise.shape[1]
    leaves = [torch.full((paths,), x, requires_grad=True) for x in (spot, contract.vol)]
    values = discounted(contract, noise, *leaves)
    return values.detach(), *torch.autograd.grad(values.sum(), leaves)


def torch_samples(contract: Contract, figures: tuple[str, ...], paths: int) -> dict:
    """One sample of each figure a path."""
    noise, bump = torch.randn(len(contract.dates), paths), BUMPS["spot"]
    if contract.is_continuous:
        found = dict(zip(FIRST, along_paths(contract, noise, SPOT), strict=True))
        if "gamma" in figures:
            up, down = (along_paths(contract, noise, SPOT + h)[1] for h in (bump, -bump))
            found["gamma"] = (up - down) / (2.0 * bump)
        return found
    with torch.no_grad():
        at = lambda spot, vol: discounted(contract, noise, SPOT + spot, contract.vol + vol)  # noqa: E731
        middle, up, down = at(0.0, 0.0), at(bump, 0.0), at(-bump, 0.0)
        dvol = BUMPS["vol"]
        vega = (at(0.0, dvol) - at(0.0, -dvol)) / (2.0 * dvol)
        found = {"value": middle, "delta": (up - down) / (2.0 * bump), "vega": vega}
        if "gamma" in figures:
            found["gamma"] = (up - 2.0 * middle + down) / bump**2
    return found


class Theirs:
    """Batches of one job in PyTorch: seconds of each, and the moments of its samples."""

    def __init__(self, contract: Contract, figures: tuple[str, ...], batch: int, threads: int):
        self.contract, self.figures, self.batch, self.threads = contract, figures, batch, threads
        self.seconds: list[float] = []
        self.moments: list[dict[str, tuple[float, float]]] = []

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        start = time.perf_counter()
        samples = torch_samples(self.contract, self.figures, self.batch)
        moments = {name: (float(x.mean()), float(x.std())) for name, x in samples.items()}
        self.seconds.append(time.perf_counter() - start)
        self.moments.append(moments)

    @property
    def means(self) -> Figures:
        return {name: float(np.mean([m[name][0] for m in self.moments])) for name in self.figures}

    @property
    def errors(self) -> Figures:
        """Of the mean over all batches."""
        count = self.batch * len(self.moments)
        spread = {name: np.mean([m[name][1] ** 2 for m in self.moments]) for name in self.figures}
        return {name: float(np.sqrt(spread[name] / count)) for name in self.figures}

    def paths_for(self, target: float) -> int:
        """How many bring every relative standard error to the target."""
        worst = max(self.errors[name] / abs(self.means[name]) for name in self.figures)
        return int(np.ceil(self.batch * len(self.moments) * (worst / target) ** 2))


# --- jaxtape ------------------------------------------------------------------------------------------


class Ours:
    """One job here: a program for means and standard errors, its seconds and its last results."""

    def __init__(
        self, contract: Contract, figures: tuple[str, ...], paths: int, sampler: AbstractSampler
    ):
        method = MonteCarlo(paths, sampler=sampler)
        self.paths, self.figures, self.seconds = paths, figures, []
        self._keys = (jax.random.key(seed) for seed in itertools.count(1))
        self._program = jax.jit(lambda key: _figures(contract, figures, method, key))
        self.run()  # compiles
        self.seconds.clear()

    def run(self) -> None:
        start = time.perf_counter()
        self.means, self.errors = jax.device_get(self._program(next(self._keys)))
        self.seconds.append(time.perf_counter() - start)

    def is_within(self, target: float) -> bool:
        return all(self.errors[name] <= target * abs(self.means[name]) for name in self.figures)


def _figures(contract: Contract, figures: tuple[str, ...], method: MonteCarlo, key):
    """Means and standard errors by figure: slopes along spot and vol, and those of Delta along the spot."""
    along = {"delta": jnp.asarray([1.0, 0.0]), "vega": jnp.asarray([0.0, 1.0])}

    def value(at):
        model = contract.model.shifted(underlying=at[0], vol=at[1])
        return method.samples(contract.product, model, key)

    def slopes(at):
        push = lambda way: jax.jvp(value, (at,), (way,))  # noqa: E731
        return jax.vmap(push, out_axes=(None, 0))(jnp.stack(list(along.values())))

    at = jnp.zeros(2)
    if "gamma" in figures:
        (found, (delta, vega)), (_, (gamma, _)) = jax.jvp(slopes, (at,), (along["delta"],))
    else:
        (found, (delta, vega)), gamma = slopes(at), None
    samples = {"value": found, "delta": delta, "vega": vega, "gamma": gamma}
    pairs = {name: mean_and_error(samples[name], method) for name in figures}
    return tuple({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))


def ours_within(contract: Contract, figures: tuple[str, ...], target: float, sampler) -> Ours:
    """With the least power of two of paths that brings the errors to the target in three runs of three."""
    paths = FEWEST
    while paths <= MOST:
        way = Ours(contract, figures, paths, sampler)
        tries = []
        for _ in range(3):
            way.run()
            tries.append(way.is_within(target))
        way.seconds.clear()
        if all(tries):
            return way
        paths *= 2
    raise RuntimeError(f"{contract.name}: {MOST} paths are not enough for {target:g}")


# --- the two in turn ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    contract: str
    job: str
    sampler: str
    our_paths: int
    our_seconds: float
    their_paths: int
    their_seconds: float
    their_threads: int
    off: float

    @property
    def ratio(self) -> float:
        return self.their_seconds / self.our_seconds


def row_of(contract: Contract, job: str, options: argparse.Namespace) -> Row:
    figures = JOBS[job]
    ways = {
        name: ours_within(contract, figures, options.target, sampler)
        for name, sampler in SAMPLERS.items()
    }
    threads = {1, torch.get_num_threads()}
    theirs = [Theirs(contract, figures, options.batch, count) for count in threads]
    take_turns([*ways.values(), *theirs], options.repeat)
    name, ours = min(ways.items(), key=lambda way: min(way[1].seconds))
    other = min(theirs, key=lambda way: min(way.seconds))
    paths = other.paths_for(options.target)
    off = max(
        abs(ours.means[f] - other.means[f]) / np.hypot(ours.errors[f], other.errors[f])
        for f in figures
    )
    return Row(
        *(contract.name, job, name, ours.paths, min(ours.seconds)),
        *(paths, min(other.seconds) * paths / options.batch, other.threads, float(off)),
    )


def table_of(rows: list[Row], target: float) -> Table:
    table = Table(title=f"relative standard errors of at most {target:g}")
    for name in ("contract", "figures"):
        table.add_column(name)
    for name in ("paths", "ms", "PyTorch's paths", "its ms", "times", "off"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(row.contract, row.job, f"{row.our_paths:,} {row.sampler}"),
            *(f"{1e3 * row.our_seconds:.2f}", f"{row.their_paths:,}"),
            *(f"{1e3 * row.their_seconds:,.1f}", f"{row.ratio:,.0f}", f"{row.off:.1f}"),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=float, default=0.001, help="relative standard error")
    parser.add_argument("--batch", type=int, default=2**18, help="paths of a batch of PyTorch's")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    console = Console(width=130, highlight=False)
    head = environment() | {
        "command": f"python -m benchmarks.equal_accuracy --target {options.target}"
    }
    for name, text in head.items():
        console.print(f"{name}: {text}", soft_wrap=True)
    rows = [row_of(contract, job, options) for contract in contracts() for job in JOBS]
    console.print(table_of(rows, options.target))
    if options.out:
        figures = head | {"rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
        options.out.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
