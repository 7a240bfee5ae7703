"""Ways to run a chain in JAX and differentiate it: `way(f, init, xs)` returns the last state."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax

import jaxtape as jt

SLOTS = (2, 4, 8, 12, 16, 24, 32, 64, 91, 128)
PEER_SLOTS = (8, 16, 32, 64)
SHARED = (  # ways that also run with the paths on several devices
    *(f"Revolve(slots={slots})" for slots in (4, 8, 12, 16, 24, 64)),
    "lax.scan + checkpoint on the body",
    "2 levels of scan + checkpoint, checkpointed nodes",
    "2 levels of scan + checkpoint, plain nodes",
    "3 levels of scan + checkpoint, checkpointed nodes",
    "16 checkpoints",
)


@dataclass(frozen=True)
class Way:
    """A way to differentiate a chain.

    Attributes:
        system: The system that it belongs to.
        label: Its name within the system.
        scan: The function `scan(f, init, xs)` that returns the last state.
        slots: The number of states that it keeps; None if no number is given.
        devices: The number of devices that share the paths.
        kernels: Whether it is compiled under `jt.set_kernels(True)`.
    """

    system: str
    label: str
    scan: Callable
    slots: int | None = None
    devices: int = 1
    kernels: bool = False

    @property
    def name(self) -> str:
        return f"{self.system}, {self.label}"


@contextlib.contextmanager
def kernels(on: bool) -> Iterator[None]:
    """Trace programs with or without chains in kernels."""
    jt.set_kernels(on)
    try:
        yield
    finally:
        jt.set_kernels(False)


def on_devices(ways: list[Way], count: int) -> list[Way]:
    """Return some of the ways with the paths shared by `count` devices."""
    shared = [way for way in ways if way.label in SHARED]
    label = f"paths on {count} devices"
    return [Way(way.system, f"{way.label}, {label}", way.scan, None, count) for way in shared]


def plain(f, init, xs):
    return lax.scan(f, init, xs)[0]


def by_tape(schedule, f, init, xs):
    return jt.scan(f, init, xs, schedule=schedule)[0]


def checkpointed(f, init, xs):
    """Use `jax.checkpoint` on the body, as its documentation recommends inside a scan."""
    return lax.scan(jax.checkpoint(f, prevent_cse=False), init, xs)[0]


def nested(levels: int, keep_block: bool, f, init, xs):
    """Nest scans, with every block checkpointed, and the remainder of each level run at its end.

    Nodes read `xs` by index, because cutting it into blocks would copy it. With `keep_block`, the innermost
    block keeps the residuals of its nodes, which saves one forward step per node.
    """
    read = lambda state, k: f(state, jax.tree.map(lambda a: a[k], xs))
    node = read if keep_block else jax.checkpoint(read, prevent_cse=False)

    def run(level, state, ks):
        if level == 1:
            return lax.scan(node, state, ks)[0]
        size = math.floor(len(ks) ** ((level - 1) / level) + 1e-9)
        block = jax.checkpoint(lambda s, ks: (run(level - 1, s, ks), None), prevent_cse=False)
        whole = len(ks) // size * size
        state = lax.scan(block, state, ks[:whole].reshape(-1, size))[0]
        return run(1, state, ks[whole:]) if whole < len(ks) else state

    return run(levels, init, jnp.arange(length_of(xs)))


def by_equinox(slots, f, init, xs):
    """Use Equinox's checkpointed loop, which knows the number of steps."""
    return eqxi.scan(f, init, xs, length_of(xs), kind="checkpointed", checkpoints=slots)[0]


def tape_ways(n: int) -> list[Way]:
    """Return `jt.scan` under its schedules; short chains have at least two slots."""
    schedules = [jt.Periodic(math.isqrt(n)), jt.Recursive(3), jt.StoreAll()]
    slots = [s for s in SLOTS if s < n and (s > 2 or n <= 1000)]
    if jax.default_backend() != "cpu":  # a CPU's memory is the host's
        schedules += [jt.MultiStage(4, s) for s in (12, 28, 60) if s + 4 < n]
    make = functools.partial(functools.partial, by_tape)
    ways = [Way("jaxtape", repr(jt.Revolve(s)), make(jt.Revolve(s)), s) for s in slots]
    ways += [Way("jaxtape", repr(schedule), make(schedule)) for schedule in schedules]
    if jax.default_backend() == "cpu":  # it has no kernels
        return ways
    return ways + [
        Way("jaxtape", f"{jt.Revolve(s)!r}, kernels", make(jt.Revolve(s)), s, kernels=True)
        for s in slots
        if s >= 8
    ]


def peer_ways(n: int, with_diffrax: bool) -> list[Way]:
    """Return nested checkpoints, equinox, and diffrax if it is installed."""
    rivals = {"equinox": by_equinox}
    if with_diffrax:
        from .diffrax_way import by_diffrax

        rivals["diffrax"] = by_diffrax
    ways = [Way("jax.checkpoint", "lax.scan + checkpoint on the body", checkpointed)]
    for levels in (2, 3):
        for keep, inside in ((False, "checkpointed nodes"), (True, "plain nodes")):
            label = f"{levels} levels of scan + checkpoint, {inside}"
            ways.append(Way("jax.checkpoint", label, functools.partial(nested, levels, keep)))
    for system, run in rivals.items():
        for s in (s for s in PEER_SLOTS if s < n):
            ways.append(Way(system, f"{s} checkpoints", functools.partial(run, s), s))
    return ways


def length_of(xs) -> int:
    return len(jax.tree.leaves(xs)[0])
