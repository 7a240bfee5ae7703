"""States in the order of what they pay: which asset is the best matters less than how far it leads."""

import jax.numpy as jnp
from jaxtyping import Array, Float

State = Float[Array, "dim paths"]
Row = tuple[Array, Array]  # a key and what it belongs to


def order_statistics(keys: State, x: State, count: int) -> Float[Array, "count paths"]:
    """Return the `count` rows of x whose keys are the largest on each path, the largest first.

    By exchanges of neighbours: a sort is slow on few rows. Where keys change places the result is continuous in
    x if rows of equal keys are equal.
    """
    pairs, first = list(zip(keys, x, strict=True)), []
    for _ in range(count):
        for i in range(len(pairs) - 1, 0, -1):
            pairs[i - 1], pairs[i] = _exchanged(pairs[i - 1], pairs[i])
        first.append(pairs.pop(0)[1])
    return jnp.stack(first)


def _exchanged(before: Row, after: Row) -> tuple[Row, Row]:
    """Return the row of the larger key first."""
    swapped = after[0] > before[0]

    def choose(yes: Row, no: Row) -> Row:
        return jnp.where(swapped, yes[0], no[0]), jnp.where(swapped, yes[1], no[1])

    return choose(after, before), choose(before, after)
