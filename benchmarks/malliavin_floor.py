"""The floor under the one step Malliavin scheme: the matrix products of a training, and nothing else.

Run `python -m benchmarks.malliavin_floor [--dim 100] [--iterations 100]`. The products that
`one_step_malliavin` needs, as many and as large, each kind in a loop of its own: no activations, sums, gathers,
factorizations, no optimizer. No program that leaves these products to the same library is faster.
"""

import argparse
import os
from collections import Counter
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or PyTorch's threads spin when idle

import jax
import jax.numpy as jnp
import torch
from rich.console import Console

from .malliavin_torch import BATCH, FIRST_STAGES, PATHS, ROUNDS, STEPS
from .timing import interleaved

Product = tuple[int, int, int]  # [m, k] times [k, n]
OPERATIONS, REPEAT = 2e9, 8  # of a run, and runs


def networks(rows: int, dim: int) -> Counter[Product]:
    """Y, Z and the diagonal of Gamma."""
    width = dim + 10
    hidden = {(rows, dim, width): 3, (rows, width, width): 3}
    return Counter(hidden | {(rows, width, 1): 1}) + Counter({(rows, width, dim): 2})


def linear(rows: int, dim: int) -> Counter[Product]:
    """Y and Z on (1, x, x^2)."""
    terms = 1 + 2 * dim
    return Counter([(rows, terms, 1), (rows, terms, dim)])


def turned(rows: int, dim: int) -> Counter[Product]:
    """Gamma's matrix times a vector."""
    return Counter([(rows, dim, dim)])


def times(counted: Counter[Product], number: int) -> Counter[Product]:
    return Counter({product: number * count for product, count in counted.items()})


def backward(products: Counter[Product], dim: int) -> Counter[Product]:
    """Of the slopes of every weight, and of the hidden layers."""
    found: Counter[Product] = Counter()
    for (m, k, n), count in products.items():
        found[k, m, n] += count
        if k != dim:  # x needs no slope
            found[m, n, k] += count
    return found


def of_a_date(dim: int, iterations: int) -> Counter[Product]:
    """The lesson; least squares before and after the descent, their Gram matrices once; the descent."""
    terms = 1 + 2 * dim
    both_ends = networks(PATHS, dim) + linear(PATHS, dim) + turned(PATHS, dim)
    grams = Counter([(terms, PATHS, terms), (dim, PATHS, dim)])
    projected = Counter([(terms, PATHS, 1), (terms, PATHS, dim)])
    a_round = linear(PATHS, dim) + turned(PATHS, dim) + projected
    squares = networks(PATHS, dim) + times(turned(PATHS, dim), 2) + times(a_round, ROUNDS)
    squares[dim, PATHS, dim] += 1
    forward = networks(BATCH, dim)
    a_step = forward + backward(forward, dim) + turned(BATCH, dim)
    return times(both_ends, 2) + grams + times(squares, 2) + times(a_step, iterations)


def by_jax(product: Product, count: int) -> Callable[[], jax.Array]:
    m, k, n = product
    one, other = jnp.zeros((m, k), jnp.float32), jnp.ones((k, n), jnp.float32)

    @jax.jit
    def many(one, other):
        onward = lambda a, _: (a.at[0, 0].set((a @ other)[0, 0]), None)  # noqa: E731, the next needs this one
        return jax.lax.scan(onward, one, None, length=count)[0]

    return lambda: many(one, other)


def by_torch(product: Product, count: int) -> Callable[[], None]:
    m, k, n = product
    one, other, out = torch.zeros(m, k), torch.ones(k, n), torch.empty(m, n)

    def many():
        for _ in range(count):
            torch.mm(one, other, out=out)

    return many


def seconds_of(product: Product) -> dict[str, float]:
    """Of one, by each library; they take turns."""
    m, k, n = product
    count = max(1, int(OPERATIONS / (2 * m * k * n)))
    ways = {"JAX": by_jax(product, count), "PyTorch": by_torch(product, count)}
    _, times = interleaved(ways, REPEAT)
    return {name: time.best / count for name, time in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    counted = of_a_date(options.dim, options.iterations)
    dates = STEPS - 1 + FIRST_STAGES
    work = sum(2 * m * k * n * count for (m, k, n), count in counted.items())
    console = Console()
    console.print(f"{1e-9 * work:.1f} GFlop a date, {dates} dates")
    measured = {product: seconds_of(product) for product in counted}
    for name in ("JAX", "PyTorch"):
        seconds = sum(measured[product][name] * count for product, count in counted.items())
        a_step = 1e3 * seconds / options.iterations
        rate = f"{1e-9 * work / seconds:.0f} GFlop/s"
        console.print(
            f"{name}: {dates * seconds:.1f} s a training, {a_step:.2f} ms an iteration, {rate}"
        )


if __name__ == "__main__":
    main()
