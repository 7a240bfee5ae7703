"""Compare values and gradients of a JAX function with those of a PyTorch function."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from .function import dtype_name, to_torch
from .weights import WeightDifference

WAYS = "eager", "func", "compile"


@dataclasses.dataclass(frozen=True)
class ArrayDifference:
    """The difference between an array in JAX and the same array in PyTorch.

    Attributes:
        name: The name of the input, for a gradient, or of the output, which is a value or a node of its
            computation.
        shape: The shape of both.
        largest: The largest entry of PyTorch's array.
        max_difference: The largest difference between the two.
        ulp: The same difference in units of the last place of the largest entry.
        cosine: The cosine of the angle between the two, 1 if both are zero.

    Examples:
        >>> from jaxtape.torch import ArrayDifference
        >>> difference = ArrayDifference("x", (3,), 2.0, 1e-3, 4.5e12, 1.0)
        >>> difference.max_relative_difference, difference.is_apart(1e-4)
        (0.0005, True)
    """

    name: str
    shape: tuple[int, ...]
    largest: float
    max_difference: float
    ulp: float
    cosine: float

    @property
    def max_relative_difference(self) -> float:
        """The largest difference relative to the largest entry; absolute if that entry is zero."""
        return self.max_difference / self.largest if self.largest else self.max_difference

    def is_apart(self, tolerance: float) -> bool:
        """Return True if the two differ by more than `tolerance` times the largest entry, or are not finite."""
        return not self.max_difference <= tolerance * max(self.largest, np.finfo(float).tiny)


def array_difference(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> ArrayDifference:
    """Compare two tensors of the same shape, the first from JAX."""
    largest, apart = _max_abs(theirs), _max_abs(ours - theirs)
    unit = float(np.spacing(theirs.new_tensor(largest).numpy()))
    a, b = (x.detach().double().flatten() for x in (ours, theirs))
    lengths = float(a.norm() * b.norm())
    cosine = float(a @ b) / lengths if lengths else float(float((a - b).norm()) == 0.0)
    return ArrayDifference(name, tuple(theirs.shape), largest, apart, apart / unit, cosine)


@dataclasses.dataclass(frozen=True)
class GradientTable:
    """The comparison of a JAX function with a PyTorch function, in values and gradients. `print` it.

    Attributes:
        value_difference: The largest difference between the values.
        rows: One for each input.
        outputs: One for each output, in order.
        weights: The differences of two modules' weights, by name.

    Examples:
        >>> from jaxtape.torch import ArrayDifference, GradientTable
        >>> value = ArrayDifference("value", (), 1.0, 1e-3, 4.5e12, 1.0)
        >>> GradientTable(1e-3, (), (value,)).parts_at(1e-4)
        'value'
    """

    value_difference: float
    rows: tuple[ArrayDifference, ...]
    outputs: tuple[ArrayDifference, ...]
    weights: Mapping[str, WeightDifference] = dataclasses.field(default_factory=dict)

    def parts_at(self, tolerance: float) -> str | None:
        """Return the name of the first weight or output that differs between the two functions.

        Args:
            tolerance: The tolerance of outputs, relative to the largest entry. Weights must agree to rounding.

        Returns:
            The name of a weight of two modules, or of an output; None if all agree.
        """
        apart = (f"weight {name}" for name, found in self.weights.items() if found.is_apart)
        outputs = (row.name for row in self.outputs if row.is_apart(tolerance))
        return next(itertools.chain(apart, outputs), None)

    @property
    def max_relative_difference(self) -> float:
        """The largest relative difference over all inputs."""
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
        lines = [head, *rows, f"values differ by {self.value_difference:.1e}"]
        lines += [
            f"weight {name} differs by {found.difference:.3g} at {list(found.at)}"
            for name, found in self.weights.items()
            if found.is_apart
        ]
        return "\n".join(lines)


def compare_gradients(
    jax_fn: Callable,
    torch_fn: Callable,
    inputs: Any,
    *,
    seed: int = 0,
    way: str = "eager",
    names: Sequence[str] = (),
) -> GradientTable:
    """Compare the value and gradient of a JAX function with a PyTorch function's.

    It takes the gradient of `sum_i w_i y_i` over all float outputs; w is 1 for a scalar and standard normal for
    other outputs. Integer and boolean outputs must be equal.

    Args:
        jax_fn: A function of pytrees of arrays.
        torch_fn: The same function of pytrees of tensors; the float outputs of both correspond in the order of
            the leaves.
        inputs: A tuple with one pytree of NumPy or JAX arrays, or numbers, for each argument; integer and
            boolean leaves are held fixed. Give float64 to see agreement to rounding.
        seed: The seed of the weights w.
        way: PyTorch's gradient by "eager" autograd, by "func" (`torch.func.vjp`) or by "compile"
            (`torch.compile` with autograd).
        names: Names of the outputs, in order. If these are the nodes of a computation, the last of which is its
            value, `parts_at` returns the first one that differs.

    Returns:
        One row for each float leaf of `inputs`: `max |difference|`, absolute and in units of the leaf's
        `max |gradient|` (PyTorch's), one for each output, and the largest difference of values.

    Raises:
        TypeError: If `inputs` is not a tuple.
        ValueError: If no leaf of it is a float, if the outputs differ in number, shape, dtype or the keys of
            dictionaries, or are all empty, or if `way` is unknown.

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
    if way not in WAYS:
        raise ValueError(f"way={way!r}: give one of {', '.join(WAYS)}.")
    theirs_fn = torch.compile(torch_fn) if way == "compile" else torch_fn
    (ours, our_gradient, our_codes, our_keys), (theirs, their_gradient, their_codes, keys) = (
        _taken(f, tree, tensors, seed, kind)
        for f, kind in ((to_torch(jax_fn), "eager"), (theirs_fn, way))
    )
    if our_keys and keys and our_keys != keys:
        raise ValueError(
            f"The outputs have the keys {our_keys} in JAX and {keys} in PyTorch: give both the same."
        )
    types = [[f"{dtype_name(y)}{list(y.shape)}" for y in side] for side in (ours, theirs)]
    if types[0] != types[1] or not ours:
        raise ValueError(
            f"The float outputs are {types[0]} in JAX and {types[1]} in PyTorch: make them "
            f"correspond."
        )
    if not sum(y.numel() for y in (*ours, *our_codes)):
        raise ValueError(
            f"The outputs are {types[0]}, without entries to compare: give inputs with at least one example."
        )
    labels = list(names) or [f"output {index}" for index in range(len(ours))]
    if len(labels) != len(ours):
        raise ValueError(f"names: {len(labels)} for {len(ours)} float outputs; give one for each.")
    outputs = tuple(map(array_difference, labels, ours, theirs))
    outputs += _exact_differences(our_codes, their_codes)
    leaf_names = [
        f"inputs{jax.tree_util.keystr(p)}"
        for (p, _), t in zip(leaves, tensors, strict=True)
        if t.requires_grad
    ]
    pairs = zip(our_gradient(), their_gradient(), strict=True)
    rows = [array_difference(name, *pair) for name, pair in zip(leaf_names, pairs, strict=True)]
    difference = float(np.max([row.max_difference for row in outputs]))
    return GradientTable(difference, tuple(rows), outputs)


def _exact_differences(ours: list, theirs: list) -> tuple[ArrayDifference, ...]:
    """Compare integer and boolean outputs exactly: the scale of a row is 0, so differences are absolute.

    Raises:
        ValueError: If they differ in number or shape.
    """
    shapes = [[list(y.shape) for y in side] for side in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"The integer and boolean outputs have shapes {shapes[0]} in JAX and {shapes[1]} in PyTorch: "
            "make them correspond."
        )
    rows = (
        array_difference(f"integer output {k}", a.double(), b.double())
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True))
    )
    return tuple(dataclasses.replace(row, largest=0.0) for row in rows)


def _taken(
    f: Callable, tree, tensors: list, seed: int, way: str
) -> tuple[list, Callable, list, list[str]]:
    """Evaluate a function and its gradient.

    Returns:
        The float outputs, a function for the gradient of their weighted sum, the other outputs, and the keys of
        dictionaries of outputs.
    """
    keys: list[str] = []
    is_float = [tensor.is_floating_point() for tensor in tensors]
    floats = [tensor for tensor, own in zip(tensors, is_float, strict=True) if own]

    def of_floats(*values):
        rest = iter(values)
        # copies: a function may write to its inputs
        leaves = [
            next(rest).clone() if own else x.clone()
            for x, own in zip(tensors, is_float, strict=True)
        ]
        paths, _ = jax.tree_util.tree_flatten_with_path(f(*jax.tree.unflatten(tree, leaves)))
        keys[:] = [str(key.key) for path, _ in paths for key in path if hasattr(key, "key")]
        out = [leaf for _, leaf in paths]
        is_real = [y.is_floating_point() for y in out]
        real = tuple(y for y, own in zip(out, is_real, strict=True) if own)
        return real, [y for y, own in zip(out, is_real, strict=True) if not own]

    if way == "func":
        primals = (x.detach() for x in floats)
        found: Any = torch.func.vjp(of_floats, *primals, has_aux=True)
        outputs, pull, codes = found
        return list(outputs), lambda: list(pull(_weights(outputs, seed))), codes, keys
    outputs, codes = of_floats(*floats)
    outputs = list(outputs)

    def gradient() -> list:
        weights = list(_weights(outputs, seed))
        found = torch.autograd.grad(outputs, floats, weights, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(floats, found, strict=True)]

    return outputs, gradient, codes, keys


def _weights(outputs, seed: int) -> tuple:
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(y.shape) if y.ndim else 1.0 for y in outputs)
    return tuple(torch.tensor(w, dtype=y.dtype) for w, y in zip(drawn, outputs, strict=True))


def _max_abs(tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
