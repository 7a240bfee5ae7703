"""Correlations of equities: quoted pairs, and their matrix."""

import itertools
from collections.abc import Collection, Mapping, Sequence

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
    """Return the correlation matrix of some equities.

    Raises:
        KeyError: A pair has no quote.
    """
    if lacking := missing_pairs(names, pairs):
        known = ", ".join(shown(pairs)) or "none"
        missing = ", ".join(shown(lacking))
        raise KeyError(f"there is no correlation of {missing}; the market has {known}")
    floats = jnp.result_type(float, *pairs.values())

    def entry(one: str, other: str) -> Array:
        pair = quoted(one, other, pairs)
        return jnp.asarray(1.0 if pair is None else pairs[pair], floats)

    return jnp.stack([jnp.stack([entry(one, other) for other in names]) for one in names])


def least_eigenvalue(names: Sequence[str], pairs: Mapping[Pair, Array]) -> float:
    """Return the smallest eigenvalue of the matrix of some equities, which must be positive."""
    entries = {frozenset(pair): float(value) for pair, value in pairs.items()}
    found = np.eye(len(names))  # on the host: JAX would compile programs for a few numbers
    for (i, one), (j, other) in itertools.combinations(enumerate(names), 2):
        found[i, j] = found[j, i] = entries[frozenset((one, other))]
    return float(np.linalg.eigvalsh(found)[0])
