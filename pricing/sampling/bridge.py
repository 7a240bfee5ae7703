"""The Brownian bridge as a rotation of the noise: end point first, then the midpoint, and so on.

A node of the tree holds the sum of its steps' increments divided by the square root of their number. A new
normal z splits it: of n = a + b steps, the first a hold sqrt(a / n) sum + sqrt(b / n) z and the others sqrt(b /
n) sum - sqrt(a / n) z, a rotation of (sum, z). Levels are split one after another, from left to right
(Glasserman 2003, section 3.1.1). The normal distribution is invariant under rotations, so the noise of any
scheme may be drawn this way; what the end point explains then depends only on the first coordinate.
"""

import functools
import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class _Level(NamedTuple):
    """The nodes of a level: those to split, those with a single step; sqrt(a / n), sqrt(b / n) of the former.

    order: the indices of the next level's nodes among left parts, right parts and single-step nodes.
    """

    split: np.ndarray
    single: np.ndarray
    left: np.ndarray
    right: np.ndarray
    order: np.ndarray


def bridged(normals: Float[Array, "steps ..."]) -> Float[Array, "steps ..."]:
    """Return the increments (one standard normal per step) whose Brownian bridge has these coordinates.

    It is a rotation of the first axis, with 2 `steps` operations per path instead of `steps`**2.
    """
    steps = normals.shape[0]
    nodes, used = normals[:1], 1
    for level in _levels(steps):
        fresh = normals[used : used + len(level.split)]
        used += len(level.split)
        whole = len(level.single) == 0
        sums = nodes if whole else nodes[level.split]
        left, right = (_column(numbers, normals) for numbers in (level.left, level.right))
        parts = (left * sums + right * fresh, right * sums - left * fresh)
        if whole:
            nodes = jnp.stack(parts, axis=1).reshape(-1, *normals.shape[1:])
        else:
            nodes = jnp.concatenate([*parts, nodes[level.single]])[level.order]
    return nodes


@functools.lru_cache(maxsize=64)
def _levels(num_steps: int) -> tuple[_Level, ...]:
    tree, levels = [(0, num_steps)], []
    while any(stop - start > 1 for start, stop in tree):
        length = np.array([stop - start for start, stop in tree])
        split, single = np.flatnonzero(length > 1), np.flatnonzero(length == 1)
        share = (length[split] // 2) / length[split]
        starts = [tree[i][0] for i in split] + [sum(tree[i]) // 2 for i in split]
        order = np.argsort(starts + [tree[i][0] for i in single])
        # in 32 bits: JAX caches constants by array, and would reuse 64-bit ones in single-precision
        # programs
        split, single, order = (x.astype(np.int32) for x in (split, single, order))
        levels.append(_Level(split, single, share**0.5, (1.0 - share) ** 0.5, order))
        tree = _children(tree)
    return tuple(levels)


def _children(tree: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the nodes of the next level, in the order of their steps."""
    cuts = sorted({cut for start, stop in tree for cut in (start, (start + stop) // 2, stop)})
    return list(itertools.pairwise(cuts))


def _column(numbers: np.ndarray, like: Array) -> Array:
    return jnp.asarray(numbers, like.dtype).reshape(-1, *(1,) * (like.ndim - 1))
