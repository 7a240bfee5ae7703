"""Deep BSDE for Allen-Cahn in PyTorch; see `deep_bsde`."""

import itertools
import math
from collections.abc import Callable

import torch

DIM, STEPS, MATURITY, WIDTH = 100, 20, 0.3, 110
RATE, PILOT = 5e-3, 4096
DT = MATURITY / STEPS
DIFFUSION = math.sqrt(2.0)


class Net(torch.nn.Module):
    """Today's value, an affine part for each date and coordinate, and a network with time as an input."""

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
        dates = torch.arange(STEPS)[:, None, None]
        self.register_buffer("told", dates / STEPS)
        self.register_buffer("std", DIFFUSION * torch.sqrt(DT * dates.clamp(min=1)))

    def forward(self, states: torch.Tensor, dates: int | slice) -> torch.Tensor:
        """Return Z at one date, [batch, dim], or at many, [dates, batch, dim]."""
        seen = states / self.std[dates]
        x = torch.cat([seen, self.told[dates].expand(*seen.shape[:-1], 1)], dim=-1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.level[dates] + self.slope[dates] * seen + self.last(x)

    def today(self, mean: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        return mean + (unit + abs(mean)) * self.y0


def terminal(x: torch.Tensor) -> torch.Tensor:
    return 0.5 / (1.0 + 0.2 * (x**2).sum(-1))


def driver(y: torch.Tensor) -> torch.Tensor:
    return y - y**3


def moved(y: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Return Y a step later; `gain` is Z dW."""
    slope = driver(y)
    slope = 0.5 * (slope + driver(y - slope * DT + gain))
    return y - slope * DT + gain


def plain_loss(net: Net, mean: torch.Tensor, unit: torch.Tensor, dw: torch.Tensor) -> torch.Tensor:
    """Return the mean of (Y_T - g)^2 in units of g's standard deviation; `dw` is [steps, batch, dim]."""
    x = torch.zeros_like(dw[0])
    y = net.today(mean, unit).expand(len(x))
    for n in range(STEPS):
        z = unit / math.sqrt(MATURITY) * net(x, n)
        y = moved(y, (z * dw[n]).sum(-1))
        x = x + DIFFUSION * dw[n]
    return (((y - terminal(x)) / unit) ** 2).mean()


def batched_loss(
    net: Net, mean: torch.Tensor, unit: torch.Tensor, dw: torch.Tensor
) -> torch.Tensor:
    """Return the same, with one evaluation of the network for all dates."""
    states = torch.cat([torch.zeros_like(dw[:1]), DIFFUSION * dw.cumsum(0)])
    z = unit / math.sqrt(MATURITY) * net(states[:-1], slice(None))
    gains = (z * dw).sum(-1)
    y = net.today(mean, unit).expand(dw.shape[1])
    for n in range(STEPS):
        y = moved(y, gains[n])
    return (((y - terminal(states[-1])) / unit) ** 2).mean()


def trained(seed: int, iterations: int, batch: int, loss: Callable[..., torch.Tensor]) -> float:
    """Return today's value after a training."""
    torch.manual_seed(seed)
    paid = terminal(DIFFUSION * math.sqrt(MATURITY) * torch.randn(PILOT, DIM))
    mean, unit = paid.mean(), paid.std()  # tensors, so that new numbers do not recompile
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, 0.01 * RATE)
    for _ in range(iterations):
        optimizer.zero_grad()
        loss(net, mean, unit, math.sqrt(DT) * torch.randn(STEPS, batch, DIM)).backward()
        optimizer.step()
        cosine.step()
    return float(net.today(mean, unit).detach())


def losses(compiles: bool) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the loss to differentiate, by way."""
    eager = {"PyTorch plain": plain_loss, "PyTorch batched": batched_loss}
    found = {f"{way} eager": loss for way, loss in eager.items()}
    if compiles:
        found |= {f"{way} compiled": torch.compile(loss) for way, loss in eager.items()}
    return found
