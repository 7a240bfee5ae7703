"""Deep BSDE beside a plain PyTorch version: the same networks, iterations, batches and driver rule.

Run `python -m benchmarks.deep_bsde [--iterations 1500] [--seeds 3] [--out FILE]`. Allen-Cahn in a hundred
dimensions. PyTorch: Adam by its own fused step, a loop over dates in Python, eager and by `torch.compile` of
the loss; on all cores. Times are of a whole training, compile times apart; programs take turns, the best of the
seeds is told; errors are of the mean over seeds.
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import jax
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pricing.fbsde import DeepBSDE, problems, solve

from .timing import environment

DIM, STEPS, MATURITY, BATCH, WIDTH = 100, 20, 0.3, 64, 110
ANSWER = 0.0527813
RATE, PILOT = 5e-3, 4096
DT = MATURITY / STEPS
DIFFUSION = math.sqrt(2.0)
PROBLEM = problems.allen_cahn(DIM)


class Net(torch.nn.Module):
    """Today's value, an affine part of each date and coordinate, and a network that is told the time."""

    def __init__(self):
        super().__init__()
        self.y0 = torch.nn.Parameter(torch.zeros(()))
        self.level = torch.nn.Parameter(torch.zeros(STEPS, 1, DIM))
        self.slope = torch.nn.Parameter(torch.zeros(STEPS, 1, DIM))
        sizes = [DIM + 1, WIDTH, WIDTH, DIM]
        layers = [torch.nn.Linear(m, n) for m, n in itertools.pairwise(sizes)]
        for layer, inputs in zip(layers, sizes, strict=False):
            torch.nn.init.normal_(layer.weight, std=inputs**-0.5)
            torch.nn.init.zeros_(layer.bias)
        torch.nn.init.zeros_(layers[-1].weight)
        self.hidden, self.last = torch.nn.ModuleList(layers[:-1]), layers[-1]

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        told = (torch.arange(STEPS) / STEPS)[:, None, None].expand(STEPS, seen.shape[1], 1)
        x = torch.cat([seen, told], dim=-1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.level + self.slope * seen + self.last(x)


def terminal(x: torch.Tensor) -> torch.Tensor:
    return 0.5 / (1.0 + 0.2 * (x**2).sum(-1))


def driver(y: torch.Tensor) -> torch.Tensor:
    return y - y**3


def loss_of(net: Net, mean: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """The mean of (Y_T - g)^2 on a fresh batch, in units of g's deviation."""
    dw = math.sqrt(DT) * torch.randn(STEPS, BATCH, DIM)
    states = torch.cat([torch.zeros(1, BATCH, DIM), DIFFUSION * dw.cumsum(0)])
    std = DIFFUSION * torch.sqrt(DT * torch.arange(STEPS).clamp(min=1))
    z = unit / math.sqrt(MATURITY) * net(states[:-1] / std[:, None, None])
    gains = (z * dw).sum(-1)
    y = (mean + (unit + abs(mean)) * net.y0).expand(BATCH)
    for n in range(STEPS):
        slope = driver(y)
        slope = 0.5 * (slope + driver(y - slope * DT + gains[n]))
        y = y - slope * DT + gains[n]
    return (((y - terminal(states[-1])) / unit) ** 2).mean()


def by_torch(seed: int, iterations: int, compiled) -> tuple[float, float]:
    """Today's value, and seconds."""
    torch.manual_seed(seed)
    paid = terminal(DIFFUSION * math.sqrt(MATURITY) * torch.randn(PILOT, DIM))
    mean, unit = paid.mean(), paid.std()  # tensors: new numbers compile nothing
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, 0.01 * RATE)
    start = time.perf_counter()
    for _ in range(iterations):
        optimizer.zero_grad()
        compiled(net, mean, unit).backward()
        optimizer.step()
        cosine.step()
    seconds = time.perf_counter() - start
    return float((mean + (unit + abs(mean)) * net.y0).detach()), seconds


def by_jaxtape(seed: int, iterations: int) -> tuple[float, float]:
    start = time.perf_counter()
    solution = solve(PROBLEM, DeepBSDE(iterations, BATCH, RATE), key=jax.random.key(seed))
    value = float(solution.value(0.0, PROBLEM.x0))
    return value, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    compiled = torch.compile(loss_of)
    ways = {
        "jaxtape": by_jaxtape,
        "PyTorch eager": lambda seed, count: by_torch(seed, count, loss_of),
        "PyTorch compiled": lambda seed, count: by_torch(seed, count, compiled),
    }
    found: dict[str, list] = {name: [] for name in ways}
    for way in ways.values():
        way(0, 100 if way is not ways["jaxtape"] else options.iterations)  # compiles
    for seed in range(options.seeds):
        for name, way in ways.items():
            found[name].append(way(seed, options.iterations))
    rows = []
    ours = min(seconds for _, seconds in found["jaxtape"])
    for name, runs in found.items():
        values, seconds = np.array(runs).T
        best = float(seconds.min())
        error = float(values.mean()) / ANSWER - 1.0
        step = 1e3 * best / options.iterations
        rows.append(
            {"way": name, "seconds": best, "ms": step, "ratio": best / ours, "error": error}
        )
    table = Table(title=f"Allen-Cahn, {DIM} dimensions, {options.iterations} iterations")
    for heading in ("way", "seconds", "ms an iteration", "times ours", "error"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        numbers = f"{row['seconds']:.1f}", f"{row['ms']:.2f}", f"{row['ratio']:.2f}"
        table.add_row(row["way"], *numbers, f"{row['error']:+.3%}")
    Console().print(table)
    if options.out is not None:
        sizes = {"iterations": options.iterations, "seeds": options.seeds}
        head = environment() | {"command": "python -m benchmarks.deep_bsde", **sizes}
        head["backend"] = f"{jax.default_backend()}, float32"
        options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
