"""Named comparisons: a function in JAX, the same function in PyTorch, and inputs of both."""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import ml_dtypes
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from .gradients import ArrayDifference, GradientTable, array_difference, compare_gradients
from .weights import WeightDifference

TOLERANCES = {"double": 1e-10, "single": 1e-4}  # relative to the largest entry
_TYPES = {"double": np.float64, "single": np.float32}


@dataclasses.dataclass(frozen=True)
class Case:
    """A function in JAX and in PyTorch, and a function that draws their inputs.

    Attributes:
        jax_fn: A function of pytrees of arrays. If it returns a tuple, the last entry is the value, and the
            others are nodes on the way to it, in order.
        torch_fn: The same function of pytrees of tensors.
        inputs: A function that draws a tuple of pytrees of float64 arrays from a NumPy generator.
        names: The names of the nodes and of the value.
        nodes: For modules, two functions of the same inputs that return more nodes, by name.
        weights: For modules, the differences of their weights, by name.

    Examples:
        >>> import jax.numpy as jnp, torch
        >>> from jaxtape.torch import Case
        >>> Case(jnp.sin, torch.sin, lambda rng: (rng.normal(size=3),)).table("single").parts_at(1e-4)
    """

    jax_fn: Callable
    torch_fn: Callable
    inputs: Callable[[np.random.Generator], tuple]
    names: tuple[str, ...] = ()
    nodes: tuple[Callable, Callable] | None = None
    weights: Mapping[str, WeightDifference] = dataclasses.field(default_factory=dict)

    def table(self, precision: str, *, way: str = "eager", seed: int = 0) -> GradientTable:
        """Compare values and gradients.

        Args:
            precision: "double" or "single": the precision of float inputs.
            way: The method of PyTorch's gradient, as in `compare_gradients`.
            seed: Seed of the random inputs.

        Returns:
            The table. An input in half precision raises ValueError.
        """
        kind = _TYPES[precision]

        def cast(leaf):
            leaf = np.asarray(leaf)
            if leaf.dtype in (np.float16, ml_dtypes.bfloat16):
                raise ValueError(
                    f"an input is {leaf.dtype}, and half precision is not compared: give float64"
                )
            return leaf.astype(kind) if np.issubdtype(leaf.dtype, np.floating) else leaf

        inputs = jax.tree.map(cast, self.inputs(np.random.default_rng(seed)))
        settings = {"seed": seed, "way": way, "names": self.names}
        table = compare_gradients(self.jax_fn, self.torch_fn, inputs, **settings)
        table = dataclasses.replace(table, weights=self.weights)
        if self.nodes is None:
            return table
        return dataclasses.replace(table, outputs=(*self._nodes(inputs), *table.outputs))

    def _nodes(self, inputs: tuple) -> list[ArrayDifference]:
        """Return the nodes that both have, with equal shapes, in PyTorch's order."""
        assert self.nodes is not None
        ours, theirs = self.nodes
        tensors = jax.tree.map(torch.tensor, inputs)  # copies: a module may write to its inputs
        found, others = ours(*inputs), theirs(*tensors)
        return [
            array_difference(name, torch.tensor(found[name]), torch.tensor(b))
            for name, b in others.items()
            if name in found and found[name].shape == b.shape
        ]
