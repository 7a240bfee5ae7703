"""A segment: a run of nodes that share their step and the structure of their params."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .chain import check_state
from .loops import scan
from .schedule import AbstractSchedule


class Segment(eqx.Module):
    """`state[k+1] = step(params[k], state[k])` for consecutive nodes k.

    The arrays of the step are leaves beside `params`; the rest of it is static, so that a segment
    whose arrays are floats is something `jax.grad` accepts, and the gradient is a segment too.
    """

    params: Any
    shared: list
    static: tuple = eqx.field(static=True)

    def __init__(self, step: Callable, params):
        if not callable(step):
            raise TypeError(f"step is {step!r}: give a callable (params, state) -> state.")
        leaves, tree = jax.tree.flatten(step)
        self.params = jax.tree.map(jnp.asarray, params)
        self.shared = [leaf for leaf in leaves if eqx.is_array(leaf)]
        self.static = tree, tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        _check_stacked(self.params)

    @property
    def step(self) -> Callable:
        """The step; in a gradient, its cotangents in the same place."""
        tree, leaves = self.static
        shared = iter(self.shared)
        return jax.tree.unflatten(tree, [next(shared) if x is None else x for x in leaves])

    def __len__(self) -> int:
        return jax.tree.leaves(self.params)[0].shape[0]

    def __call__(self, state, schedule: AbstractSchedule):
        """The state after the last node."""
        step = self.step

        def node(state, params):
            new_state = step(params, state)
            check_state(f"Step {step}", state, new_state)
            return new_state, None

        return scan(node, state, self.params, schedule=schedule)[0]

    def agrees(self, other: "Segment") -> bool:
        """Whether the nodes of both run the same step on params of the same structure."""

        def one_node(segment):
            leaves, tree = jax.tree.flatten(segment.params)
            return tree, [(leaf.shape[1:], leaf.dtype) for leaf in leaves]

        same = self.static == other.static and one_node(self) == one_node(other)
        return same and all(a is b for a, b in zip(self.shared, other.shared, strict=True))

    def grow(self, other: "Segment") -> "Segment":
        """This segment followed by the nodes of another that agrees with it."""
        params = jax.tree.map(lambda *nodes: jnp.concatenate(nodes), self.params, other.params)
        return eqx.tree_at(lambda segment: segment.params, self, params)


def _check_stacked(params) -> None:
    """Raise `ValueError` unless every leaf has the same leading axis."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(
            f"params is {params!r}, which has no leaves, so the number of nodes is unknown: give "
            "one value a node, jnp.arange(n) if need be."
        )
    shapes = {f"params{jax.tree_util.keystr(path)}": leaf.shape for path, leaf in leaves}
    if any(not shape for shape in shapes.values()) or len({s[0] for s in shapes.values()}) > 1:
        said = ", ".join(f"{name}: {list(shape)}" for name, shape in shapes.items())
        raise ValueError(
            f"The leaves of params do not share a leading axis ({said}): stack every leaf along "
            "axis 0, one entry a node."
        )
