"""The gradient of a Heston call through a year of daily steps, beside other ways to checkpoint.

Run `python -m benchmarks.tape [--steps 365] [--paths 16384] [--slots 12] [--repeat 9]`. Every row is
compiled and timed in this run, in turn; memory is the compiler's temporaries, in states.
"""

import argparse
import functools
import math
import time

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from rich.console import Console
from rich.table import Table

import jaxtape as jt

DEFAULTS = {"steps": 365, "paths": 16384, "slots": 12, "repeat": 9}
PARAMETERS = (0.03, 0.04, 1.5, 0.05, 0.4, -0.7)


def heston_step(p, dt, state, noise):
    """Full-truncation Euler in (log-spot, variance), smoothed at zero variance."""
    rate, _, speed, level, vol_of_vol, correlation = p
    x, v = state
    v_plus = jnp.maximum(v, 0.0)
    root = jnp.sqrt((v_plus + 1e-12) * dt)
    other = correlation * noise[0] + jnp.sqrt(1.0 - correlation**2) * noise[1]
    x = x + (rate - 0.5 * v_plus) * dt + root * other
    return x, v + speed * (level - v_plus) * dt + vol_of_vol * root * noise[0]


def payoff(scan, p, noise):
    """Mean payoff of a call at the money, the paths run by `scan(f, init, xs)`."""
    paths, dt = noise.shape[-1], 1.0 / noise.shape[0]
    init = jnp.zeros(paths), jnp.full(paths, p[1])
    x, _ = scan(lambda state, z: (heston_step(p, dt, state, z), None), init, noise)
    return jnp.mean(jnp.maximum(jnp.exp(x) - 1.0, 0.0))


def plain(f, init, xs):
    return lax.scan(f, init, xs)[0]


def checkpointed(f, init, xs):
    return lax.scan(jax.checkpoint(f), init, xs)[0]


def nested(f, init, xs):
    """Two levels of scan and checkpoint: square root of n blocks, and the rest at the end.

    Nodes read `xs` by index, for cutting it into blocks would copy it.
    """
    n = jax.tree.leaves(xs)[0].shape[0]
    size = math.isqrt(n)
    node = jax.checkpoint(lambda state, k: f(state, jax.tree.map(lambda a: a[k], xs)))
    block = jax.checkpoint(lambda state, ks: lax.scan(node, state, ks))
    ks = jnp.arange(n)
    whole = n // size * size
    state = lax.scan(block, init, ks[:whole].reshape(-1, size))[0]
    return lax.scan(node, state, ks[whole:])[0]


def by_equinox(slots, f, init, xs):
    """Equinox's checkpointed loop, which knows the number of steps."""
    n = jax.tree.leaves(xs)[0].shape[0]
    return eqxi.scan(f, init, xs, n, kind="checkpointed", checkpoints=slots)[0]


def by_tape(schedule, f, init, xs):
    return jt.scan(f, init, xs, schedule=schedule)[0]


def advance_alone(p, noise):
    """Every forward step, in a tight scan."""
    return payoff(plain, p, noise)


def pull_alone(p, noise):
    """Every pullback at the first state, in a tight scan: the taped steps of a reverse sweep."""
    n, _, paths = noise.shape
    state = jnp.zeros(paths), jnp.full(paths, p[1])

    def node(carry, z):
        p_bar, bar = carry
        _, pullback = jax.vjp(lambda p, s: heston_step(p, 1.0 / n, s, z), p, state)
        more, bar = pullback(bar)
        return (jax.tree.map(jnp.add, p_bar, more), bar), None

    return plain(node, (p, state), noise)


class Timed:
    """A compiled function, the bytes it needs, and the best of its times."""

    def __init__(self, function, *args):
        start = time.perf_counter()
        self.compiled = jax.jit(function).lower(*args).compile()
        self.compile_seconds = time.perf_counter() - start
        self.temp_bytes = self.compiled.memory_analysis().temp_size_in_bytes
        self.out = jax.block_until_ready(self.compiled(*args))
        self.seconds = math.inf

    def run(self, *args):
        start = time.perf_counter()
        jax.block_until_ready(self.compiled(*args))
        self.seconds = min(self.seconds, time.perf_counter() - start)


def report(rows: dict[str, Timed], state_bytes: int, title: str) -> Table:
    """Time, temporaries and error of every way, each beside the first."""
    table = Table(title=title)
    for column in ("gradient", "ms", "ratio", "states", "ratio", "compile s", "error"):
        table.add_column(column, justify="left" if column == "gradient" else "right")
    first = next(iter(rows.values()))
    for name, row in rows.items():
        errors = [abs(a - b) / abs(b) for a, b in zip(row.out, first.out, strict=True)]
        table.add_row(
            name,
            f"{1e3 * row.seconds:.1f}",
            f"{row.seconds / first.seconds:.2f}",
            f"{row.temp_bytes / state_bytes:.1f}",
            f"{row.temp_bytes / first.temp_bytes:.2f}",
            f"{row.compile_seconds:.2f}",
            f"{float(max(errors)):.0e}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    n, paths, slots, repeat = (vars(parser.parse_args())[name] for name in DEFAULTS)
    jax.config.update("jax_enable_x64", True)
    noise = jax.random.normal(jax.random.key(0), (n, 2, paths))
    p = tuple(map(jnp.float64, PARAMETERS))
    ways = {
        f"jt.scan, Revolve({slots})": functools.partial(by_tape, jt.Revolve(slots)),
        f"jt.scan, Revolve({2 * slots})": functools.partial(by_tape, jt.Revolve(2 * slots)),
        "jt.scan, StoreAll()": functools.partial(by_tape, jt.StoreAll()),
        "lax.scan + checkpoint": checkpointed,
        "nested scan + checkpoint": nested,
        f"equinox, {slots} checkpoints": functools.partial(by_equinox, slots),
    }
    rows = {
        name: Timed(jax.grad(functools.partial(payoff, scan)), p, noise)
        for name, scan in ways.items()
    }
    parts = Timed(advance_alone, p, noise), Timed(pull_alone, p, noise)
    for _ in range(repeat):  # in turn, so that a busy machine slows all of them
        for timed in (*rows.values(), *parts):
            timed.run(p, noise)
    title = f"{n} Heston steps, {paths} paths, float64, {jax.default_backend()}"
    Console(width=100).print(report(rows, 2 * paths * 8, title))
    advance, pull = (part.seconds for part in parts)
    floor = advance * jt.advances(n, slots) / n + pull
    print(f"value alone {1e3 * advance:.1f} ms; advances({n}, {slots}) = {jt.advances(n, slots)}")
    print(f"that many steps and {n} pullbacks, each in a scan of its own: {1e3 * floor:.1f} ms")


if __name__ == "__main__":
    main()
