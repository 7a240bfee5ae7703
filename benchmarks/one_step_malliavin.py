"""The one step Malliavin scheme beside PyTorch: the same networks, paths, batches, iterations and warm starts.

Run `python -m benchmarks.one_step_malliavin [--dim 100] [--iterations 100] [--seeds 3] [--out FILE]`. Hamilton-
Jacobi-Bellman, E, Han, Jentzen (2017), section 4.3; Gamma's network is of its diagonal. PyTorch: derivatives
of the driver by hand, Adam by its own fused step, least squares by a Gram matrix that is factored once a date;
eager, or by `torch.compile` of the loss, of what all paths miss and of what they are worth a step later; no
descent on today's one state, whose networks ours trains and leaves. On all cores. Times are of a whole
training, compile times apart; programs take turns, the best of the seeds is told. Errors: of the value today;
of Delta and Gamma, root mean squares over states at half the maturity.
"""

import copy
import itertools
import math
import os
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or PyTorch's threads spin when idle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from pricing.fbsde import OneStepMalliavin, Problem, Solution, problems, solve

from .training import Errors, arguments, take_turns, tell

STEPS, MATURITY = 20, 1.0
PATHS, BATCH, FIRST_STAGES, ROUNDS = 16384, 256, 5, 3
RATE, LATER_RATE = 1e-2, 3e-3
DT = MATURITY / STEPS
DIFFUSION = math.sqrt(2.0)
TEST_DATE, TEST_STATES = STEPS // 2, 256


# --- What is known -------------------------------------------------------------------------------------


class Known(NamedTuple):
    """u, its gradient and its Hessian."""

    value: float
    delta: np.ndarray
    gamma: np.ndarray


def known(t: float, x: np.ndarray) -> Known:
    """u = -ln E exp(-g(x + sqrt(2) W)): as 2 / (1 + r) is the integral of 2 exp(-a (1 + r)) over a > 0,

    u = -ln int 2 exp(-a) (1 + 4 a (T - t))^(-d / 2) exp(-c |x|^2) da,   c = a / (1 + 4 a (T - t)).
    """
    log_a = np.linspace(-25.0, 7.0, 4001)
    a, step = np.exp(log_a), log_a[1] - log_a[0]
    spread = 1.0 + 4.0 * a * (MATURITY - t)
    c = a / spread
    weight = 2.0 * step * a * np.exp(-a - c * (x @ x)) * spread ** (-0.5 * x.size)
    total = weight.sum()
    mean = (weight @ c) / total
    variance = (weight @ (c - mean) ** 2) / total
    gamma = 2.0 * mean * np.eye(x.size) - 4.0 * variance * np.outer(x, x)
    return Known(-math.log(total), 2.0 * mean * x, gamma)


class Test(NamedTuple):
    """States at the test date, and what is known there; the value today."""

    states: np.ndarray
    value: float
    deltas: np.ndarray
    gammas: np.ndarray

    @classmethod
    def of(cls, dim: int) -> "Test":
        t = TEST_DATE * DT
        noise = np.random.default_rng(0).standard_normal((TEST_STATES, dim))
        states = (DIFFUSION * math.sqrt(t) * noise).astype(np.float32)
        there = [known(t, x) for x in states.astype(float)]
        deltas, gammas = (
            np.stack([getattr(one, name) for one in there]) for name in Known._fields[1:]
        )
        return cls(states, known(0.0, np.zeros(dim)).value, deltas, gammas)

    def errors(self, value: np.ndarray, deltas: np.ndarray, gammas: np.ndarray) -> Errors:
        apart = lambda found, known: float(np.linalg.norm(found - known) / np.linalg.norm(known))  # noqa: E731
        return {
            "value": value.item() / self.value - 1.0,
            "delta": apart(deltas, self.deltas),
            "gamma": apart(gammas, self.gammas),
        }


# --- PyTorch -------------------------------------------------------------------------------------------


class Units(NamedTuple):
    """Deviations of g, of Z and of Gamma."""

    y: Tensor
    z: Tensor
    gamma: Tensor


class Lesson(NamedTuple):
    """What is to be learned, path by path, in these units; turn: of Z along the increments."""

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
    """A date: networks of Y, of Z and of Gamma's diagonal, beside their linear parts."""

    def __init__(self, dim: int):
        super().__init__()
        self.networks = torch.nn.ModuleList(perceptron(dim, outputs) for outputs in (1, dim, dim))
        terms = 1 + 2 * dim
        shapes = (terms, 1), (terms, dim), (dim, dim)
        self.linear = Linear(*map(torch.zeros, shapes))

    def forward(self, seen: Tensor) -> list[Tensor]:
        return [network(seen) for network in self.networks]

    @torch.no_grad()
    def move(self, scale: Tensor, shift: Tensor) -> None:
        """The same functions of x in another date's coordinates: old = scale * new + shift."""
        for network in self.networks:
            network[0].bias += network[0].weight @ shift
            network[0].weight *= scale
        y, z, gamma = self.linear
        self.linear = Linear(
            *(moved(terms, scale[:, None], shift[:, None]) for terms in (y, z)), gamma
        )


def perceptron(inputs: int, outputs: int) -> torch.nn.Sequential:
    sizes = [inputs, inputs + 10, inputs + 10, outputs]
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
    """Coefficients of `quadratic`."""
    dim = len(scale)
    level, slope, curve = terms.split([1, dim, dim])
    level = level + (shift * slope + 0.5 * curve * (shift**2 + scale**2 - 1.0)).sum(0)
    return torch.cat([level, scale * (slope + shift * curve), scale**2 * curve])


def y_and_z(linear: Linear, outputs: list[Tensor], seen: Tensor) -> tuple[Tensor, Tensor]:
    terms = quadratic(seen)
    return (terms @ linear.y + outputs[0])[:, 0], terms @ linear.z + outputs[1]


def driver(z: Tensor, matrix: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """f dt for f = -|z|^2 / 2, and s times its gradient in x, -Gamma^T z dt."""
    return -0.5 * DT * (z**2).sum(1), -DT * (z @ matrix.T + diagonal * z)


def least_squares(features: Tensor) -> Callable[[Tensor], Tensor]:
    """Coefficients with the least squares, of targets; where features do not tell them, near 0."""
    gram = features.T @ features
    limits = torch.finfo(gram.dtype)
    ridge = 16.0 * limits.eps * gram.diagonal().max() + limits.tiny
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram)))
    return lambda targets: torch.cholesky_solve(features.T @ targets, factor)


def at_end(linear: Linear, outputs: list[Tensor], seen: Tensor, units: Units) -> tuple[Tensor, ...]:
    """Y + f dt / 2, and Z and s F dt, of the networks a step later."""
    y, z = y_and_z(linear, outputs, seen)
    z = units.z * z
    gain, slope = driver(z, units.gamma * linear.gamma, units.gamma * outputs[2])
    return units.y * y + 0.5 * gain, z, slope


def at_maturity(x: Tensor) -> tuple[Tensor, ...]:
    """The same at the last date, where Gamma is not used."""
    square = 1.0 + (x**2).sum(1)
    z = 2.0 * DIFFUSION * x / square[:, None]
    return torch.log(0.5 * square) - 0.25 * DT * (z**2).sum(1), z, torch.zeros_like(x)


def missed_turn(linear: Linear, diagonal: Tensor, lesson: Lesson) -> Tensor:
    """Of Gamma."""
    turn = lesson.dw @ linear.gamma + diagonal * lesson.dw
    return (lesson.turn - turn / math.sqrt(MATURITY)) / math.sqrt(DT / MATURITY)


def missed(
    linear: Linear, outputs: list[Tensor], lesson: Lesson, share: Tensor, units: Units
) -> tuple[Tensor, Tensor]:
    """Of Y and Z. share: 2 where f at the end of the step has no Gamma, else 1."""
    dw, diagonal = lesson.dw, outputs[2].detach()
    y, z = y_and_z(linear, outputs, lesson.seen)
    gamma = share * units.gamma
    gain, slope = driver(units.z * z.detach(), gamma * linear.gamma, gamma * diagonal)
    square = ((dw @ linear.gamma + diagonal * dw) * dw).sum(1)
    curve = 0.5 * (square - DT * (linear.gamma.trace() + diagonal.sum(1)))
    return (
        lesson.y + 0.5 * gain / units.y - curve / MATURITY - y,
        lesson.z + 0.5 * slope / units.z - z,
    )


def loss_of(model: Model, linear: Linear, lesson: Lesson, share: Tensor, units: Units) -> Tensor:
    outputs = model(lesson.seen)
    turn = missed_turn(linear, outputs[2], lesson)
    y, z = missed(linear, outputs, lesson, share, units)
    return (y**2).mean() + (z**2).mean() + (turn**2).mean()


class Ways(NamedTuple):
    """What may be compiled."""

    at_end: Callable = at_end
    missed_turn: Callable = missed_turn
    missed: Callable = missed
    loss: Callable = loss_of


class Scheme:
    """The regressions of one seed, backward in time."""

    def __init__(self, dim: int, iterations: int, ways: Ways):
        self.iterations, self.ways = iterations, ways
        noise = math.sqrt(DT) * DIFFUSION * torch.randn(STEPS, PATHS, dim)
        self.states = torch.cat([torch.zeros(1, PATHS, dim), noise.cumsum(0)])
        self.mean, self.std = self.states.mean(1), self.states.std(1, correction=0)
        self.std[0] = self.std[1]
        unit = torch.log(0.5 * (1.0 + (self.states[-1] ** 2).sum(1))).std(correction=0)
        self.units = Units(unit, unit / math.sqrt(MATURITY), unit / MATURITY)
        self.model = Model(dim)

    def solved(self) -> dict[int, Model]:
        """The models of the test date and of today."""
        kept = {}
        for stage in range(STEPS - 1 + FIRST_STAGES):
            date = STEPS - 1 - max(stage - (FIRST_STAGES - 1), 0)
            self.learn(date, RATE if stage < FIRST_STAGES else LATER_RATE)
            if date in (TEST_DATE, 0):
                kept[date] = copy.deepcopy(self.model)
        return kept

    def learn(self, date: int, rate: float) -> None:
        """From the networks a step later: least squares, descent, least squares. Today has one state."""
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
        if date == 0:  # a curve cannot be told from the level of one state
            terms[:, 1 + lesson.seen.shape[1] :] = 0.0
        return [least_squares(terms), least_squares(lesson.dw / math.sqrt(DT))]

    @torch.no_grad()
    def refine(self, lesson: Lesson, share: Tensor, solvers) -> None:
        """The linear parts that miss the least, given the networks: f follows Y and Z in a few rounds."""
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
        optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, fused=True)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.iterations, 0.01 * rate)
        for _ in range(self.iterations):
            rows = torch.randint(PATHS, (BATCH,))
            batch = Lesson(*(part[rows] for part in lesson))
            optimizer.zero_grad()
            self.ways.loss(self.model, self.model.linear, batch, share, self.units).backward()
            optimizer.step()
            cosine.step()

    def seen(self, date: int, x: Tensor) -> Tensor:
        return (x - self.mean[date]) / self.std[date]


def by_torch(seed: int, test: Test, iterations: int, ways: Ways) -> Errors:
    torch.manual_seed(seed)
    scheme = Scheme(test.states.shape[1], iterations, ways)
    models = scheme.solved()
    with torch.no_grad():
        today = scheme.seen(0, scheme.states[0, :1])
        y, _ = y_and_z(models[0].linear, models[0](today), today)
        there, model = scheme.seen(TEST_DATE, torch.from_numpy(test.states)), models[TEST_DATE]
        outputs = model(there)
        _, z = y_and_z(model.linear, outputs, there)
        matrix = 0.5 * (model.linear.gamma + model.linear.gamma.T) + torch.diag_embed(outputs[2])
        value = scheme.units.y * y
        deltas = scheme.units.z / DIFFUSION * z
        gammas = scheme.units.gamma / DIFFUSION**2 * matrix
    return test.errors(value.numpy(), deltas.numpy(), gammas.numpy())


# --- jaxtape -------------------------------------------------------------------------------------------


@eqx.filter_jit
def figures(solution: Solution, x0: jax.Array, states: jax.Array) -> tuple[jax.Array, ...]:
    """Today's value, Deltas and Gammas at the test date."""
    t = TEST_DATE * DT
    there = jax.lax.map(lambda x: (solution.delta(t, x), solution.gamma(t, x)), states)
    return solution.value(0.0, x0), *there


def by_jaxtape(seed: int, test: Test, iterations: int, problem: Problem) -> Errors:
    solver = OneStepMalliavin(
        gamma="diagonal",
        num_iterations=iterations,
        first_stages=FIRST_STAGES,
        batch_size=BATCH,
        num_paths=PATHS,
        learning_rate=RATE,
        later_learning_rate=LATER_RATE,
    )
    solution = solve(problem, solver, key=jax.random.key(seed))
    found = figures(solution, problem.x0, jnp.asarray(test.states))
    return test.errors(*map(np.asarray, found))


def main() -> None:
    parser = arguments(__doc__, iterations=100)
    parser.add_argument("--dim", type=int, default=100)
    options = parser.parse_args()
    iterations, test, problem = options.iterations, Test.of(options.dim), problems.hjb(options.dim)
    compiled = Ways(*map(torch.compile, Ways()))
    trainings = {"jaxtape": lambda seed: by_jaxtape(seed, test, iterations, problem)} | {
        f"PyTorch {name}": lambda seed, ways=ways: by_torch(seed, test, iterations, ways)
        for name, ways in {"eager": Ways(), "compiled": compiled}.items()
    }
    rows = take_turns(trainings, options.seeds)
    total = iterations * (STEPS - 1 + FIRST_STAGES)
    head = {
        "command": "python -m benchmarks.one_step_malliavin",
        "dim": options.dim,
        "iterations": iterations,
        "seeds": options.seeds,
    }
    title = f"Hamilton-Jacobi-Bellman, {options.dim} dimensions, {iterations} iterations a date"
    tell(rows, total, title, options.out, head)


if __name__ == "__main__":
    main()
