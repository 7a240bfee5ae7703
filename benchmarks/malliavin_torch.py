"""The one-step Malliavin scheme in PyTorch, for Hamilton-Jacobi-Bellman; see `one_step_malliavin`."""

import copy
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .malliavin_sizes import (
    DIFFUSION,
    DT,
    FIRST_STAGES,
    LATER_RATE,
    MATURITY,
    RATE,
    ROUNDS,
    STEPS,
    TEST_DATE,
    Size,
)


class Units(NamedTuple):
    """Standard deviations of g, of Z and of Gamma."""

    y: Tensor
    z: Tensor
    gamma: Tensor


class Lesson(NamedTuple):
    """The regression targets, path by path, in these units; `turn` is the change of Z along the increments."""

    seen: Tensor
    dw: Tensor
    y: Tensor
    z: Tensor
    turn: Tensor


class Linear(NamedTuple):
    """Y and Z on (1, x, x^2), and Gamma's matrix, transposed."""

    y: Tensor
    z: Tensor
    gamma: Tensor


class Model(torch.nn.Module):
    """The networks of Y, of Z and of Gamma's diagonal at a date, and their linear parts."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.networks = torch.nn.ModuleList(
            perceptron(dim, width, outputs) for outputs in (1, dim, dim)
        )
        terms = 1 + 2 * dim
        shapes = (terms, 1), (terms, dim), (dim, dim)
        self.linear = Linear(*map(torch.zeros, shapes))

    def forward(self, seen: Tensor) -> list[Tensor]:
        return [network(seen) for network in self.networks]

    @torch.no_grad()
    def move(self, scale: Tensor, shift: Tensor) -> None:
        """Transform to another date's coordinates, with the same functions of x: old = scale * new + shift."""
        for network in self.networks:
            network[0].bias += network[0].weight @ shift
            network[0].weight *= scale
        y, z, gamma = self.linear
        self.linear = Linear(
            *(moved(terms, scale[:, None], shift[:, None]) for terms in (y, z)), gamma
        )


def perceptron(inputs: int, width: int, outputs: int) -> torch.nn.Sequential:
    sizes = [inputs, width, width, outputs]
    layers = [torch.nn.Linear(m, n) for m, n in itertools.pairwise(sizes)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        torch.nn.init.zeros_(layer.bias)
    torch.nn.init.zeros_(layers[-1].weight)
    first, second, last = layers
    return torch.nn.Sequential(first, torch.nn.Tanh(), second, torch.nn.Tanh(), last)


def quadratic(seen: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(seen[:, :1]), seen, 0.5 * (seen**2 - 1.0)], dim=1)


def moved(terms: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return the transformed coefficients of `quadratic`."""
    dim = len(scale)
    level, slope, curve = terms.split([1, dim, dim])
    level = level + (shift * slope + 0.5 * curve * (shift**2 + scale**2 - 1.0)).sum(0)
    return torch.cat([level, scale * (slope + shift * curve), scale**2 * curve])


def y_and_z(linear: Linear, outputs: list[Tensor], seen: Tensor) -> tuple[Tensor, Tensor]:
    terms = quadratic(seen)
    return (terms @ linear.y + outputs[0])[:, 0], terms @ linear.z + outputs[1]


def driver(z: Tensor) -> Tensor:
    """Return f dt."""
    return -0.5 * DT * (z**2).sum(1)


# Of z and Gamma, as matrix and diagonal.
Slope = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def slope_by_hand(z: Tensor, matrix: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return f dt, and s times its gradient in x, -Gamma^T z dt."""
    return driver(z), -DT * (z @ matrix.T + diagonal * z)


def slope_by_autograd(z: Tensor, matrix: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same, for any driver."""
    along = lambda v: driver(z + v @ matrix + diagonal * v)
    gain, back, *_ = torch.func.vjp(along, torch.zeros_like(z))
    return gain, back(torch.ones_like(gain))[0]


Fit = Callable[[Tensor], Callable[[Tensor], Tensor]]  # of features, and then of targets


def solved_anew(features: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from targets to least-squares coefficients, with a new factorization for each."""
    return lambda targets: torch.linalg.lstsq(features, targets).solution


def factored_once(features: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from targets to least-squares coefficients; undetermined ones are near 0."""
    gram = features.T @ features
    limits = torch.finfo(gram.dtype)
    ridge = 16.0 * limits.eps * gram.diagonal().max() + limits.tiny
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram)))
    return lambda targets: torch.cholesky_solve(features.T @ targets, factor)


def at_end(
    slope_of: Slope, linear: Linear, outputs: list[Tensor], seen: Tensor, units: Units
) -> tuple[Tensor, ...]:
    """Return Y + f dt / 2, and Z and s F dt, from the networks a step later."""
    y, z = y_and_z(linear, outputs, seen)
    z = units.z * z
    gain, slope = slope_of(z, units.gamma * linear.gamma, units.gamma * outputs[2])
    return units.y * y + 0.5 * gain, z, slope


def at_maturity(x: Tensor) -> tuple[Tensor, ...]:
    """Return the same at the last date, where Gamma is not used."""
    square = 1.0 + (x**2).sum(1)
    z = 2.0 * DIFFUSION * x / square[:, None]
    return torch.log(0.5 * square) - 0.25 * DT * (z**2).sum(1), z, torch.zeros_like(x)


def missed_turn(linear: Linear, diagonal: Tensor, lesson: Lesson) -> Tensor:
    """Return the residual of Gamma."""
    turn = lesson.dw @ linear.gamma + diagonal * lesson.dw
    return (lesson.turn - turn / math.sqrt(MATURITY)) / math.sqrt(DT / MATURITY)


def missed(
    slope_of: Slope,
    linear: Linear,
    outputs: list[Tensor],
    lesson: Lesson,
    share: Tensor,
    units: Units,
) -> tuple[Tensor, Tensor]:
    """Return the residuals of Y and Z; `share` is 2 if f at the end of the step has no Gamma, else 1."""
    dw, diagonal = lesson.dw, outputs[2].detach()
    y, z = y_and_z(linear, outputs, lesson.seen)
    gamma = share * units.gamma
    gain, slope = slope_of(units.z * z.detach(), gamma * linear.gamma, gamma * diagonal)
    square = ((dw @ linear.gamma + diagonal * dw) * dw).sum(1)
    curve = 0.5 * (square - DT * (linear.gamma.trace() + diagonal.sum(1)))
    return (
        lesson.y + 0.5 * gain / units.y - curve / MATURITY - y,
        lesson.z + 0.5 * slope / units.z - z,
    )


def loss_of(
    slope_of: Slope, model: Model, linear: Linear, lesson: Lesson, share: Tensor, units: Units
) -> Tensor:
    outputs = model(lesson.seen)
    turn = missed_turn(linear, outputs[2], lesson)
    y, z = missed(slope_of, linear, outputs, lesson, share, units)
    return (y**2).mean() + (z**2).mean() + (turn**2).mean()


class Ways(NamedTuple):
    """A version: the functions that may be compiled, and those left to PyTorch."""

    at_end: Callable
    missed_turn: Callable
    missed: Callable
    loss: Callable
    fit: Fit
    adam: Callable[..., torch.optim.Optimizer]

    @classmethod
    def plain(cls) -> "Ways":
        return cls(*_of(slope_by_autograd), solved_anew, torch.optim.Adam)

    @classmethod
    def tuned(cls) -> "Ways":
        return cls(*_of(slope_by_hand), factored_once, partial(torch.optim.Adam, fused=True))

    def compiled(self) -> "Ways":
        return Ways(*map(torch.compile, self[:4]), *self[4:])


def _of(slope_of: Slope) -> tuple[Callable, ...]:
    worth, losses = partial(at_end, slope_of), partial(loss_of, slope_of)
    return worth, missed_turn, partial(missed, slope_of), losses


class Scheme:
    """The regressions of one seed, backward in time; `keep` is a date whose model is kept, besides today's."""

    def __init__(self, size: Size, ways: Ways, keep: int):
        dim, self.size, self.ways, self.keep = size.dim, size, ways, keep
        noise = math.sqrt(DT) * DIFFUSION * torch.randn(STEPS, size.paths, dim)
        self.states = torch.cat([torch.zeros(1, size.paths, dim), noise.cumsum(0)])
        self.mean, self.std = self.states.mean(1), self.states.std(1, correction=0)
        self.std[0] = self.std[1]
        unit = torch.log(0.5 * (1.0 + (self.states[-1] ** 2).sum(1))).std(correction=0)
        self.units = Units(unit, unit / math.sqrt(MATURITY), unit / MATURITY)
        self.model = Model(dim, size.width)

    def solved(self) -> dict[int, Model]:
        """Return the kept models, by date."""
        kept = {}
        for stage in range(STEPS - 1 + FIRST_STAGES):
            date = STEPS - 1 - max(stage - (FIRST_STAGES - 1), 0)
            self.learn(date, RATE if stage < FIRST_STAGES else LATER_RATE)
            if date in (self.keep, 0):
                kept[date] = copy.deepcopy(self.model)
        return kept

    def learn(self, date: int, rate: float) -> None:
        """Fit a date, given the next one: least squares, descent, least squares. Today has one state."""
        share = torch.tensor(2.0 if date == STEPS - 1 else 1.0)
        lesson = self.lesson(date)
        before = min(date + 1, STEPS - 1)
        shift = (self.mean[date] - self.mean[before]) / self.std[before]
        self.model.move(self.std[date] / self.std[before], shift)
        solvers = self.solvers(date, lesson)
        self.refine(lesson, share, solvers)
        if date > 0:
            self.descend(lesson, share, rate)
            self.refine(lesson, share, solvers)

    @torch.no_grad()
    def lesson(self, date: int) -> Lesson:
        x = self.states[date]
        dw = math.sqrt(DT) * torch.randn_like(x)
        (y, z, slope), (y_back, z_back, slope_back) = (
            self.worth(date + 1, x + DIFFUSION * step) for step in (dw, -dw)
        )
        y = 0.5 * (y + y_back) / self.units.y
        even = 0.5 * (z + z_back + 0.5 * (slope + slope_back)) / self.units.z
        odd = 0.5 * (z + slope - z_back - slope_back) / self.units.z
        return Lesson(self.seen(date, x), dw, y, even, odd)

    def worth(self, date: int, x: Tensor) -> tuple[Tensor, ...]:
        if date == STEPS:
            return at_maturity(x)
        seen = self.seen(date, x)
        return self.ways.at_end(self.model.linear, self.model(seen), seen, self.units)

    @torch.no_grad()
    def solvers(self, date: int, lesson: Lesson) -> list[Callable[[Tensor], Tensor]]:
        terms = quadratic(lesson.seen)
        fitting = terms if date > 0 else terms[:, :1]  # one state only determines the level
        fitted, rest = self.ways.fit(fitting), terms.shape[1] - fitting.shape[1]
        padded = lambda targets: torch.nn.functional.pad(fitted(targets), (0, 0, 0, rest))
        return [padded, self.ways.fit(lesson.dw / math.sqrt(DT))]

    @torch.no_grad()
    def refine(self, lesson: Lesson, share: Tensor, solvers) -> None:
        """Refit the linear parts given the networks; f follows Y and Z in a few rounds."""
        outputs = self.model(lesson.seen)
        solve_y_and_z, solve_gamma = solvers
        y, z, gamma = self.model.linear
        turn = self.ways.missed_turn(self.model.linear, outputs[2], lesson)
        linear = Linear(y, z, gamma + solve_gamma(turn))
        for _ in range(ROUNDS):
            y, z = self.ways.missed(linear, outputs, lesson, share, self.units)
            change = solve_y_and_z(torch.cat([y[:, None], z], dim=1))
            linear = linear._replace(y=linear.y + change[:, :1], z=linear.z + change[:, 1:])
        self.model.linear = linear

    def descend(self, lesson: Lesson, share: Tensor, rate: float) -> None:
        count = self.size.iterations
        optimizer = self.ways.adam(self.model.parameters(), lr=rate)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, count, 0.01 * rate)
        for _ in range(count):
            rows = torch.randint(self.size.paths, (self.size.batch,))
            batch = Lesson(*(part[rows] for part in lesson))
            optimizer.zero_grad()
            self.ways.loss(self.model, self.model.linear, batch, share, self.units).backward()
            optimizer.step()
            cosine.step()

    def seen(self, date: int, x: Tensor) -> Tensor:
        return (x - self.mean[date]) / self.std[date]


def versions(compiles: bool) -> dict[str, Ways]:
    """Return the versions by name, with the compiled ones if PyTorch can compile."""
    eager = {"plain": Ways.plain(), "tuned": Ways.tuned()}
    found = {f"{name}, eager": ways for name, ways in eager.items()}
    if compiles:
        found |= {f"{name}, compiled": ways.compiled() for name, ways in eager.items()}
    return found


def trained(seed: int, states: np.ndarray, size: Size, ways: Ways) -> tuple[np.ndarray, ...]:
    """Return today's value, and Deltas and Gammas at the states of the test date."""
    torch.manual_seed(seed)
    scheme = Scheme(size, ways, keep=TEST_DATE)
    models = scheme.solved()
    with torch.no_grad():
        today = scheme.seen(0, scheme.states[0, :1])
        y, _ = y_and_z(models[0].linear, models[0](today), today)
        there, model = scheme.seen(TEST_DATE, torch.as_tensor(states)), models[TEST_DATE]
        outputs = model(there)
        _, z = y_and_z(model.linear, outputs, there)
        matrix = 0.5 * (model.linear.gamma + model.linear.gamma.T) + torch.diag_embed(outputs[2])
        value = scheme.units.y * y
        deltas = scheme.units.z / DIFFUSION * z
        gammas = scheme.units.gamma / DIFFUSION**2 * matrix
    return tuple(found.cpu().numpy() for found in (value, deltas, gammas))
