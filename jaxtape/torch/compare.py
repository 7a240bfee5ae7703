"""Values and gradients of a JAX function beside those of a PyTorch function."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from .function import dtype_name, to_torch


@dataclasses.dataclass(frozen=True)
class GradientRow:
    """The gradients with respect to one input.

    Attributes:
        name: Which leaf of the inputs it is.
        shape: The shape of the leaf.
        largest: The largest entry of PyTorch's gradient.
        max_difference: How far the two gradients are apart.
    """

    name: str
    shape: tuple[int, ...]
    largest: float
    max_difference: float

    @property
    def max_relative_difference(self) -> float:
        """The largest difference in units of the largest entry, or in itself if that is zero."""
        return self.max_difference / self.largest if self.largest else self.max_difference


@dataclasses.dataclass(frozen=True)
class GradientTable:
    """Values and gradients of a JAX function beside those of a PyTorch function. `print` it.

    Attributes:
        value_difference: How far the values are apart.
        rows: One for each input.
    """

    value_difference: float
    rows: tuple[GradientRow, ...]

    @property
    def max_relative_difference(self) -> float:
        """The largest relative difference of all inputs."""
        return float(np.max([row.max_relative_difference for row in self.rows]))

    def __str__(self) -> str:
        width = max(len("input"), *(len(row.name) for row in self.rows))
        heads = "shape", "max |gradient|", "max |difference|", "relative"
        head = "{:{}}  {:>14}  {:>14}  {:>16}  {:>8}".format("input", width, *heads)
        rows = [
            f"{row.name:{width}}  {row.shape!s:>14}  {row.largest:14.6g}  {row.max_difference:16.1e}  "
            f"{row.max_relative_difference:8.1e}"
            for row in self.rows
        ]
        return "\n".join([head, *rows, f"values differ by {self.value_difference:.1e}"])


def compare_gradients(
    jax_fn: Callable, torch_fn: Callable, inputs: Any, *, seed: int = 0
) -> GradientTable:
    """Compare value and gradient of a JAX function with those of a PyTorch function.

    The gradient is that of `sum_i w_i y_i` over all float outputs; w is 1 for a scalar and standard normal
    for other outputs.

    Args:
        jax_fn: A function of pytrees of arrays.
        torch_fn: The same function of pytrees of tensors; the float outputs of both correspond in the order of
            the leaves.
        inputs: A tuple with one pytree of NumPy or JAX arrays, or numbers, for each argument; integer and
            boolean leaves are held. Give float64 to see agreement to rounding.
        seed: The seed of the weights w.

    Returns:
        One row for each float leaf of `inputs`: `max |difference|`, absolute and in units of the leaf's
        `max |gradient|` (PyTorch's), and the largest difference of values.

    Raises:
        TypeError: If `inputs` is no tuple.
        ValueError: If no leaf of it is a float, or if the outputs differ in number, shape or dtype.

    Examples:
        >>> import jax.numpy as jnp, torch
        >>> from jaxtape.torch import compare_gradients
        >>> compare_gradients(jnp.sin, torch.sin, (jnp.array(0.3),)).rows[0].name
        'inputs[0]'
    """
    if not isinstance(inputs, tuple):
        raise TypeError(f"inputs is {inputs!r}: give a tuple with one pytree for each argument.")
    leaves, tree = jax.tree_util.tree_flatten_with_path(inputs)
    tensors = [torch.tensor(np.asarray(leaf)) for _, leaf in leaves]
    floats = [tensor.requires_grad_() for tensor in tensors if tensor.is_floating_point()]
    if not floats:
        raise ValueError("inputs has no float leaf, so there is no gradient: give a float64 array.")
    ours, theirs = (_float_outputs(f, tree, tensors) for f in (to_torch(jax_fn), torch_fn))
    said = [[f"{dtype_name(y)}{list(y.shape)}" for y in side] for side in (ours, theirs)]
    if said[0] != said[1] or not ours:
        raise ValueError(
            f"The float outputs are {said[0]} in JAX and {said[1]} in PyTorch: make them correspond."
        )
    differences = [_max_abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    names = [
        f"inputs{jax.tree_util.keystr(p)}"
        for (p, _), t in zip(leaves, tensors, strict=True)
        if t.requires_grad
    ]
    pairs = zip(_gradient(ours, floats, seed), _gradient(theirs, floats, seed), strict=True)
    rows = [
        GradientRow(name, tuple(b.shape), _max_abs(b), _max_abs(a - b))
        for name, (a, b) in zip(names, pairs, strict=True)
    ]
    return GradientTable(float(np.max(differences)), tuple(rows))


def _float_outputs(f: Callable, tree, tensors: list) -> list:
    out = jax.tree.leaves(f(*jax.tree.unflatten(tree, tensors)))
    return [y for y in out if y.is_floating_point()]


def _gradient(outputs: list, inputs: list, seed: int) -> list:
    """Return gradients of the weighted sum of the outputs; zeros for an input that it does not read."""
    rng = np.random.default_rng(seed)
    weights = [
        torch.tensor(rng.standard_normal(y.shape) if y.ndim else 1.0, dtype=y.dtype)
        for y in outputs
    ]
    found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def _max_abs(tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
