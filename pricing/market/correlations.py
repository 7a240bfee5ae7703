"""Correlations of equities: quoted pairs, and their matrix."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Pair = tuple[str, str]


def quoted(one: str, other: str, pairs: Collection[Pair]) -> Pair | None:
    """Return the pair of two equities in the order in which it is quoted, or None if it is not quoted."""
    return next((pair for pair in ((one, other), (other, one)) if pair in pairs), None)


def missing_pairs(names: Sequence[str], pairs: Collection[Pair]) -> list[Pair]:
    """Return the pairs of equities without a quote."""
    return [pair for pair in itertools.combinations(names, 2) if quoted(*pair, pairs) is None]


def shown(pairs: Collection[Pair]) -> list[str]:
    """Return the pairs as a market file writes them, such as DAX|SX5E."""
    return ["|".join(pair) for pair in pairs]


def matrix(names: Sequence[str], pairs: Mapping[Pair, Array]) -> Float[Array, "names names"]:
    """Return the correlation matrix of some equities; KeyError names the pairs without a quote."""
    floats = jnp.result_type(float, *pairs.values())
    rows = ([jnp.asarray(x, floats) for x in row] for row in _rows(names, pairs))
    return jnp.stack([jnp.stack(row) for row in rows])


def least_eigenvalue(names: Sequence[str], pairs: Mapping[Pair, Array]) -> float:
    """Return the smallest eigenvalue of the matrix of some equities, which must be positive."""
    # on the host: JAX would compile programs for a few numbers
    return float(np.linalg.eigvalsh(np.array(_rows(names, pairs), float))[0])


def _rows(names: Sequence[str], pairs: Mapping[Pair, Array]) -> list[list[Any]]:
    """Return the entries of the correlation matrix by row, 1.0 on the diagonal.

    Raises:
        KeyError: A pair has no quote.
    """
    if lacking := missing_pairs(names, pairs):
        known = ", ".join(shown(pairs)) or "none"
        missing = ", ".join(shown(lacking))
        raise KeyError(f"there is no correlation of {missing}; the market has {known}")

    def entry(one: str, other: str) -> Any:
        pair = quoted(one, other, pairs)
        return 1.0 if pair is None else pairs[pair]

    return [[entry(one, other) for other in names] for one in names]
