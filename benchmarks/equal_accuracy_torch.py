"""Plain Monte Carlo in eager PyTorch; see `equal_accuracy`."""

import numpy as np
import torch

from .accuracy_contracts import BUMPS, FIRST, LEVEL, SPOT, STRIKE, Contract, Figures
from .timing import Timed


def call(spots: torch.Tensor) -> torch.Tensor:
    return torch.clamp(spots[-1] - STRIKE, min=0.0)


def average_call(spots: torch.Tensor) -> torch.Tensor:
    return torch.clamp(spots.mean(0) - STRIKE, min=0.0)


def knock_out_call(spots: torch.Tensor) -> torch.Tensor:
    return call(spots) * (spots.amin(0) > LEVEL)


PAYOFFS = {"European": call, "Asian": average_call, "barrier": knock_out_call}
"""The payoff of spots [dates, paths], by contract."""


def discounted(contract: Contract, noise: torch.Tensor, spot, vol) -> torch.Tensor:
    """Return discounted payoffs [paths]; `spot` and `vol` are numbers, or one per path."""
    dates = torch.as_tensor(contract.dates).float()[:, None]
    steps = torch.diff(dates, dim=0, prepend=torch.zeros(1, 1))
    moves = (contract.rate - 0.5 * vol**2) * steps + vol * torch.sqrt(steps) * noise
    return np.exp(-contract.rate * contract.dates[-1]) * PAYOFFS[contract.kind](
        spot * torch.exp(torch.cumsum(moves, 0))
    )


def along_paths(contract: Contract, noise: torch.Tensor, spot: float) -> tuple[torch.Tensor, ...]:
    """Return value, Delta and vega of each path by one backward sweep."""
    paths = noise.shape[1]
    leaves = [torch.full((paths,), x, requires_grad=True) for x in (spot, contract.vol)]
    values = discounted(contract, noise, *leaves)
    return values.detach(), *torch.autograd.grad(values.sum(), leaves)


def torch_samples(contract: Contract, figures: tuple[str, ...], paths: int) -> dict:
    """Return one sample of each figure per path."""
    noise, bump = torch.randn(len(contract.dates), paths), BUMPS["spot"]
    if contract.is_continuous:
        found = dict(zip(FIRST, along_paths(contract, noise, SPOT), strict=True))
        if "gamma" in figures:
            up, down = (along_paths(contract, noise, SPOT + h)[1] for h in (bump, -bump))
            found["gamma"] = (up - down) / (2.0 * bump)
        return found
    with torch.no_grad():
        at = lambda spot, vol: discounted(contract, noise, SPOT + spot, contract.vol + vol)
        middle, up, down = at(0.0, 0.0), at(bump, 0.0), at(-bump, 0.0)
        dvol = BUMPS["vol"]
        vega = (at(0.0, dvol) - at(0.0, -dvol)) / (2.0 * dvol)
        found = {"value": middle, "delta": (up - down) / (2.0 * bump), "vega": vega}
        if "gamma" in figures:
            found["gamma"] = (up - 2.0 * middle + down) / bump**2
    return found


class Theirs(Timed):
    """Batches of one job in PyTorch: seconds of each, and the moments of its samples."""

    def __init__(self, contract: Contract, figures: tuple[str, ...], batch: int, threads: int):
        super().__init__(self._sampled)
        self.contract, self.figures, self.batch, self.threads = contract, figures, batch, threads
        self.moments: list[dict[str, tuple[float, float]]] = []

    def _sampled(self) -> None:
        torch.set_num_threads(self.threads)
        samples = torch_samples(self.contract, self.figures, self.batch)
        self.moments.append(
            {name: (float(x.mean()), float(x.std())) for name, x in samples.items()}
        )

    @property
    def means(self) -> Figures:
        return {name: float(np.mean([m[name][0] for m in self.moments])) for name in self.figures}

    @property
    def errors(self) -> Figures:
        """Return the standard errors of the means over all batches."""
        count = self.batch * len(self.moments)
        spread = {name: np.mean([m[name][1] ** 2 for m in self.moments]) for name in self.figures}
        return {name: float(np.sqrt(spread[name] / count)) for name in self.figures}

    def paths_for(self, target: float) -> int:
        """Return the number of paths that brings every relative standard error to the target."""
        worst = max(self.errors[name] / abs(self.means[name]) for name in self.figures)
        return int(np.ceil(self.batch * len(self.moments) * (worst / target) ** 2))


def theirs(contract: Contract, figures: tuple[str, ...], batch: int) -> list[Theirs]:
    """Return the job on one thread, and on all cores."""
    threads = {1, torch.get_num_threads()}
    return [Theirs(contract, figures, batch, count) for count in threads]
