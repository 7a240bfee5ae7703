"""The time of a gradient by `jt.scan` relative to its schedule's lower bound: the same steps in tight scans.

Run `python -m benchmarks.floors [--steps 4096] [--paths 16384] [--slots 8 16 64 91] [--repeat 5] [--out FILE]`.
float64, with noise given, or drawn in the step. All programs of a problem run in turn; times are the best.

Heston. Let a be the time of n whole steps, b that of n steps that carry only the leaves that a reverse sweep
reads (the variance), and c that of n pullbacks, each kind in a separate scan over the same noise:

    floor, whole steps:    a advances(n, s) / n + c
    floor, needed leaves:  a + b (advances(n, s) + 1 - n) / n + c

The first sweep needs every leaf, for the payoff; recomputation needs only the variance. The second floor is the
lower one, and the aim refers to it. Scans stream given noise from memory; a sweep may find some of it in a
cache. Forward over reverse is the ratio of the temporaries of `jax.jvp` of the gradient to those of the
gradient.

Black-Scholes. No pullback reads the state, so nothing is kept: the floor is a + c.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from rich.table import Table

import jaxtape as jt

from .command import Run, parser_of, table_of, whole
from .problems import BLACK_SCHOLES, HESTON, Problem
from .timing import Compiled, take_turns
from .ways import by_tape, plain

AIM, AIM_NOTHING_KEPT, AIM_SECOND_ORDER = 1.15, 1.3, 2.5
RING = 8


@dataclasses.dataclass(frozen=True)
class Floor:
    """A gradient's seconds, its two floors, its temporaries and those of forward over reverse."""

    title: str
    noise: str
    slots: int
    advances: int
    seconds: float
    whole_floor: float
    needed_floor: float
    temp_bytes: int
    second_order_bytes: int
    aim: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.needed_floor

    @property
    def second_order_ratio(self) -> float:
        return self.second_order_bytes / self.temp_bytes


def advance_alone(problem: Problem, carried: tuple[bool, ...], p, source):
    """Run every forward step, in a tight scan that carries some leaves of the state."""
    start = problem.start(p)

    def node(leaves, x):
        moving = iter(leaves)
        state = tuple(next(moving) if c else s for c, s in zip(carried, start, strict=True))
        return _pick(carried, problem.step(p, source, state, x)), None

    return plain(node, _pick(carried, start), problem.xs(source))


def pull_alone(problem: Problem, p, source, ring, bar):
    """Run every pullback, in a tight scan, last node first: the taped steps of a reverse sweep.

    Node k reads one of the states in `ring`, as a sweep reads its slots, so that no computation is shared by
    all nodes.
    """

    def node(carry, at):
        p_bar, bar = carry
        x, i = at
        state = jax.tree.map(lambda a: a[i], ring)
        _, pullback = jax.vjp(lambda p, state: problem.step(p, source, state, x), p, state)
        more, bar = pullback(bar)
        return (jax.tree.map(jnp.add, p_bar, more), bar), None

    zeros = jax.tree.map(jnp.zeros_like, p)
    indices = jnp.arange(problem.steps, dtype=jnp.int32) % RING
    return lax.scan(node, (zeros, bar), (problem.xs(source), indices), reverse=True)[0]


def first_states(problem: Problem, p, source):
    """Return the first states of the chain, stacked."""
    f = lambda state, x: (problem.step(p, source, state, x), state)
    xs = jax.tree.map(lambda a: a[:RING], problem.xs(source))
    return lax.scan(f, problem.start(p), xs)[1]


def parts_of(problem: Problem, p, source) -> tuple[Compiled, Compiled, Compiled]:
    """Return n whole steps, n steps of the needed leaves, and n pullbacks, compiled."""
    needed = problem.model.needed
    whole = Compiled(functools.partial(advance_alone, problem, (True,) * len(needed)), p, source)
    part = Compiled(functools.partial(advance_alone, problem, needed), p, source)
    ring = jax.jit(functools.partial(first_states, problem))(p, source)
    bar = tuple(jax.random.normal(jax.random.key(1), (problem.paths,)) for _ in needed)
    return whole, part, Compiled(functools.partial(pull_alone, problem), p, source, ring, bar)


def gradient_of(problem: Problem, slots: int):
    scan = functools.partial(by_tape, jt.Revolve(slots))
    return jax.grad(functools.partial(problem.value, scan))


def forward_over_reverse(gradient, p, source):
    """Return the gradient and its derivative in one direction."""
    return jax.jvp(lambda p: gradient(p, source), (p,), (jax.tree.map(jnp.ones_like, p),))


def measure(problem: Problem, slots: list[int], repeat: int) -> list[Floor]:
    """Time the gradient at every number of slots, and the parts of its floor, in turn."""
    p, source = problem.arguments()
    gradients = {s: gradient_of(problem, s) for s in slots}
    compiled = {s: Compiled(gradient, p, source) for s, gradient in gradients.items()}
    second = {
        s: Compiled(functools.partial(forward_over_reverse, gradient), p, source).temp_bytes
        for s, gradient in gradients.items()
    }
    parts = parts_of(problem, p, source)
    take_turns((*compiled.values(), *parts), repeat)
    times = [min(part.seconds) for part in parts]
    return [floor_of(problem, s, compiled[s], second[s], times) for s in slots]


def floor_of(problem: Problem, slots: int, compiled: Compiled, second: int, times) -> Floor:
    whole, part, pull = times
    n, count, aim = problem.steps, jt.advances(problem.steps, slots), AIM
    again = part * (count + 1 - n) / n
    whole_floor = whole * count / n + pull
    if not any(problem.model.needed):
        again, whole_floor, aim = 0.0, whole + pull, AIM_NOTHING_KEPT
    return Floor(
        problem.model.name,
        problem.noise,
        slots,
        count,
        min(compiled.seconds),
        whole_floor,
        whole + again + pull,
        compiled.temp_bytes,
        second,
        aim,
    )


def floors_table(floors: list[Floor], state_bytes: int, title: str) -> Table:
    names = ("noise", "slots", "advances", "ms", "whole steps", "ratio", "needed leaves", "ratio")
    table = table_of(title, *names, "aim", "states", "2nd order", "aim")
    for floor in floors:
        table.add_row(
            *(floor.noise, str(floor.slots), f"{floor.advances:,}"),
            f"{1e3 * floor.seconds:.1f}",
            f"{1e3 * floor.whole_floor:.1f}",
            f"{floor.seconds / floor.whole_floor:.2f}",
            f"{1e3 * floor.needed_floor:.1f}",
            *(f"{floor.ratio:.2f}", f"<= {floor.aim}"),
            f"{floor.temp_bytes / state_bytes:.1f}",
            *(f"x {floor.second_order_ratio:.2f}", f"<= {AIM_SECOND_ORDER}"),
        )
    return table


def missed(floors: list[Floor]) -> list[str]:
    """Describe the figures above their aims."""
    lines = []
    for floor in floors:
        name = f"{floor.title}, noise {floor.noise}, {floor.slots} slots"
        if floor.ratio > floor.aim:
            lines.append(f"{name}: {floor.ratio:.2f} x its floor")
        if floor.second_order_ratio > AIM_SECOND_ORDER:
            lines.append(f"{name}: forward over reverse needs x {floor.second_order_ratio:.2f}")
    return lines


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, steps=4096, paths=16384, repeat=5)
    found.add_argument("--slots", type=whole, nargs="+", default=[8, 16, 64, 91])
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run, floors = Run("floors", parser(), argv), []
    options = run.options
    for model, slots in ((HESTON, options.slots), (BLACK_SCHOLES, [8])):
        problems = [
            Problem(model, options.steps, options.paths, noise) for noise in ("given", "drawn")
        ]
        rows = [floor for problem in problems for floor in measure(problem, slots, options.repeat)]
        title = f"{model.name}, {options.steps} steps, {options.paths} paths: ms beside two floors"
        run.console.print(floors_table(rows, problems[0].state_bytes, title))
        floors += rows
    run.console.print(f"above its aim: {missed(floors) or 'nothing'}", soft_wrap=True)
    figures = [{**dataclasses.asdict(floor), "ratio": floor.ratio} for floor in floors]
    worst = max(floor.ratio for floor in floors)
    run.keep({"floors": figures}, f"at most {worst:.2f} x its floor")
    return 0


def _pick(mask, leaves) -> tuple:
    return tuple(leaf for chosen, leaf in zip(mask, leaves, strict=True) if chosen)


if __name__ == "__main__":
    sys.exit(main())
