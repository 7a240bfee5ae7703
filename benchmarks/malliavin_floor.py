"""The floor of the one-step Malliavin scheme: the matrix products of a training, and nothing else.

Run `python -m benchmarks.malliavin_floor [--dim 100] [--iterations 100] [--paths 16384] [--batch 256]
[--operations 2000000000] [--repeat 8] [--out FILE]`. It runs the products that `one_step_malliavin` needs, with
their number and sizes, each kind in a separate loop: no activations, sums, gathers, factorizations, or
optimizer. No program that uses the same library for these products is faster.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from .beside import Turns
from .command import Run, parser_of
from .malliavin_sizes import BATCH, FIRST_STAGES, PATHS, ROUNDS, STEPS
from .timing import Timing, interleaved

Product = tuple[int, int, int]  # [m, k] times [k, n]


def networks(rows: int, dim: int) -> Counter[Product]:
    """Return the products of the networks of Y, Z and the diagonal of Gamma."""
    width = dim + 10
    hidden = {(rows, dim, width): 3, (rows, width, width): 3}
    return Counter(hidden | {(rows, width, 1): 1}) + Counter({(rows, width, dim): 2})


def linear(rows: int, dim: int) -> Counter[Product]:
    """Return the products of Y and Z on (1, x, x^2)."""
    terms = 1 + 2 * dim
    return Counter([(rows, terms, 1), (rows, terms, dim)])


def turned(rows: int, dim: int) -> Counter[Product]:
    """Return the product of Gamma's matrix and a vector."""
    return Counter([(rows, dim, dim)])


def times(counted: Counter[Product], number: int) -> Counter[Product]:
    return Counter({product: number * count for product, count in counted.items()})


def backward(products: Counter[Product], dim: int) -> Counter[Product]:
    """Return the products of the gradients of every weight and of the hidden layers."""
    found: Counter[Product] = Counter()
    for (m, k, n), count in products.items():
        found[k, m, n] += count
        if k != dim:  # x needs no slope
            found[m, n, k] += count
    return found


def of_a_date(dim: int, iterations: int, paths: int, batch: int) -> Counter[Product]:
    """Return the products of a date: targets, least squares before and after the descent, and the descent."""
    terms = 1 + 2 * dim
    both_ends = networks(paths, dim) + linear(paths, dim) + turned(paths, dim)
    grams = Counter([(terms, paths, terms), (dim, paths, dim)])
    projected = Counter([(terms, paths, 1), (terms, paths, dim)])
    a_round = linear(paths, dim) + turned(paths, dim) + projected
    squares = networks(paths, dim) + times(turned(paths, dim), 2) + times(a_round, ROUNDS)
    squares[dim, paths, dim] += 1
    forward = networks(batch, dim)
    a_step = forward + backward(forward, dim) + turned(batch, dim)
    return times(both_ends, 2) + grams + times(squares, 2) + times(a_step, iterations)


def by_jax(product: Product, count: int) -> Callable[[], jax.Array]:
    m, k, n = product
    one, other = jnp.zeros((m, k), jnp.float32), jnp.ones((k, n), jnp.float32)

    @jax.jit
    def many(one, other):
        onward = lambda a, _: (a.at[0, 0].set((a @ other)[0, 0]), None)  # the next needs this one
        return jax.lax.scan(onward, one, None, length=count)[0]

    return lambda: many(one, other)


def by_torch(product: Product, count: int) -> Callable[[], None]:
    import torch

    m, k, n = product
    one, other, out = torch.zeros(m, k), torch.ones(k, n), torch.empty(m, n)

    def many():
        for _ in range(count):
            torch.mm(one, other, out=out)

    return many


LIBRARIES = {"JAX": by_jax, "PyTorch": by_torch}


def seconds_of(product: Product, libraries: Sequence[str], options) -> dict[str, Timing]:
    """Return the seconds of a product in each library; they take turns, in runs of `--operations`."""
    m, k, n = product
    count = max(1, options.operations // (2 * m * k * n))
    ways = {name: LIBRARIES[name](product, count) for name in libraries}
    _, times = interleaved(ways, options.repeat)
    each = {name: (time.first, *time.seconds) for name, time in times.items()}
    return {name: Timing.of(*(x / count for x in seconds)) for name, seconds in each.items()}


def parser() -> argparse.ArgumentParser:
    sizes = {"dim": 100, "iterations": 100, "paths": PATHS, "batch": BATCH}
    return parser_of(__doc__, **sizes, operations=2_000_000_000, repeat=8)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("malliavin_floor", parser(), argv, precision="float32")
    options, libraries = run.options, ["JAX"] + ["PyTorch"] * run.has("torch")
    counted = of_a_date(options.dim, options.iterations, options.paths, options.batch)
    dates = STEPS - 1 + FIRST_STAGES
    work = sum(2 * m * k * n * count for (m, k, n), count in counted.items())
    run.console.print(f"{1e-9 * work:.1f} GFlop a date, {dates} dates")
    measured = {product: seconds_of(product, libraries, options) for product in counted}
    rows, lines = [], []
    for name in libraries:
        seconds = sum(measured[product][name].best * count for product, count in counted.items())
        a_step = 1e3 * seconds / options.iterations
        rows.append({"library": name, "seconds": dates * seconds, "flops": work / seconds})
        rate = f"{1e-9 * work / seconds:.0f} GFlop/s"
        training = f"{dates * seconds:.1f} s a training, {a_step:.2f} ms an iteration"
        lines.append(f"{name}: {training}, {rate}")
    turns = range(options.repeat)
    totals = {
        name: Turns(
            {
                turn: sum(
                    measured[product][name].by_turn[turn] * n for product, n in counted.items()
                )
                for turn in turns
            }
        )
        for name in libraries
    }
    run.beside("the products of a training", totals)
    run.console.print("\n".join(lines))
    run.keep({"flop_a_date": work, "dates": dates, "rows": rows}, lines[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
