"""Correlations of equities: pairs of names, and the matrix they make."""

from collections.abc import Collection, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SEPARATOR = "|"


def quoted(one: str, other: str, pairs: Collection[str]) -> str | None:
    """The name of the pair that two equities make, in either order, if it is among `pairs`."""
    either = (SEPARATOR.join((one, other)), SEPARATOR.join((other, one)))
    return next((pair for pair in either if pair in pairs), None)


def missing_pairs(names: Sequence[str], pairs: Collection[str]) -> list[str]:
    """The pairs of some equities that have no quote."""
    return [
        SEPARATOR.join((one, other))
        for index, one in enumerate(names)
        for other in names[index + 1 :]
        if quoted(one, other, pairs) is None
    ]


def matrix(names: Sequence[str], pairs: Mapping[str, Array]) -> Float[Array, "names names"]:
    """The correlation matrix of some equities. Raises `KeyError` if a pair of them has no quote."""
    if lacking := missing_pairs(names, pairs):
        known = ", ".join(pairs) or "none"
        raise KeyError(f"there is no correlation of {', '.join(lacking)}; the market has {known}")
    floats = jnp.result_type(float, *pairs.values())

    def entry(one: str, other: str) -> Array:
        return jnp.asarray(1.0 if one == other else pairs[quoted(one, other, pairs) or ""], floats)

    return jnp.stack([jnp.stack([entry(one, other) for other in names]) for one in names])


def least_eigenvalue(names: Sequence[str], pairs: Mapping[str, Array]) -> float:
    """Of the correlation matrix of some equities: above 0 if it is one."""
    return float(np.linalg.eigvalsh(np.asarray(matrix(names, pairs)))[0])
