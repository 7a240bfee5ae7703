"""Which leaves of a chain are meant: to keep, to carry, to differentiate."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

Mask = tuple[bool, ...]


class Active(NamedTuple):
    """Which leaves carry a cotangent: shared ones, the state's, each node's x, each node's y."""

    consts: Mask
    state: Mask
    xs: Mask
    ys: Mask

    @property
    def inputs(self) -> tuple[Mask, Mask, Mask]:
        """The masks of consts, state and x: what a step reads."""
        return self.consts, self.state, self.xs


def inexact(leaves: Sequence) -> Mask:
    """Which leaves are numbers that can vary; integers, booleans and keys are not."""
    return tuple(bool(jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves)


def merge(mask: Mask, picked: Sequence, leaves: Sequence) -> tuple:
    """`leaves` with the selected ones replaced by `picked`."""
    replacements = iter(picked)
    return tuple(next(replacements) if chosen else leaf
                 for chosen, leaf in zip(mask, leaves, strict=True))  # fmt: skip


def leaf_bytes(leaves: Sequence) -> int:
    """Bytes of arrays, or of their types."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def pick(mask: Mask, leaves: Sequence) -> tuple:
    """The leaves that the mask selects."""
    return tuple(leaf for chosen, leaf in zip(mask, leaves, strict=True) if chosen)
