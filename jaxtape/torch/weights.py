"""Map and compare the weights of Equinox and PyTorch modules: names, layouts and differences."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jaxtyping import Array

State = Mapping[str, Any]  # arrays by the names of a `state_dict`

# Attributes of Equinox' wrappers that are not in PyTorch's names.
TRANSPARENT = {
    eqx.nn.Sequential: "layers",
    eqx.nn.Shared: "pytree",
    eqx.nn.WeightNorm: "layer",
}


def from_state_dict(
    module: eqx.Module, state: State, names: Mapping[str, str] | None = None
) -> Any:
    """Return an Equinox module with the weights of a PyTorch module.

    The leaf `.layers[0].weight` has the name "layers.0.weight"; in `eqx.nn.Sequential` it is "0.weight". Each
    layer's weights are converted to its own layout: `GRUCell` and `LSTMCell` have one bias for PyTorch's two
    (and read those of `nn.GRU` and `nn.LSTM`), `MultiheadAttention` has separate projections, `ConvTranspose`
    has its kernel reversed, `WeightNorm` has direction and length. A user-defined matrix with the reversed
    shape is transposed. Tied weights may be read under either name.

    Args:
        module: The module whose arrays are replaced.
        state: `torch_module.state_dict()`, or arrays by its names.
        names: PyTorch's names of the submodules that it names differently: {"mlp.layers.1": "net.2"}. A star is
            replaced by the weight's own name: {"cells.1": "gru.*_l1_reverse"}.

    Returns:
        The module. Its arrays have the dtypes of the state.

    Raises:
        ValueError: If the state has weights that the module does not read, a weight has another shape, or a
            layer keeps an `eqx.nn.State`. A KeyError names a weight missing from the state.

    Examples:
        >>> import equinox as eqx, jax, torch
        >>> from jaxtape.torch import from_state_dict
        >>> theirs, ours = torch.nn.Linear(3, 2), eqx.nn.Linear(3, 2, key=jax.random.key(0))
        >>> from_state_dict(ours, theirs.state_dict()).weight.shape
        (2, 3)
    """
    read: set[str] = set()
    arrays = {name: _array(value) for name, value in state.items()}
    leaves, tree = jax.tree_util.tree_flatten_with_path(module)
    parts: dict[str, list[Any]] = {}
    for name, part in _parts(module, ""):
        parts.setdefault(name, []).append(part)
    _require_no_state(parts)
    replaced = []
    for path, leaf in leaves:
        if not eqx.is_array(leaf):
            replaced.append(leaf)
            continue
        own = _own_name(module, path)
        found = _weight(parts, own, names, arrays, read)
        replaced.append(_shaped(own, found, leaf.shape))
    tied = {_identity(state[name]) for name in read}
    unread = sorted(name for name in set(arrays) - read if _identity(state[name]) not in tied)
    if unread:
        raise ValueError(
            f"the state has {', '.join(unread)}, which {type(module).__name__} does not read: give `names`, or "
            "leave them out."
        )
    return jax.tree.unflatten(tree, replaced)


class WeightDifference(NamedTuple):
    """The difference between one weight and PyTorch's.

    Attributes:
        ulp: The largest difference, in units of the last place of PyTorch's entry.
        difference: The difference at that entry.
        at: The index of that entry.
    """

    ulp: float
    difference: float
    at: tuple[int, ...]

    @property
    def is_apart(self) -> bool:
        """Whether the weights differ by more than rounding to the coarser of the two dtypes."""
        return not self.ulp <= 1.0


def weight_differences(
    module: eqx.Module,
    torch_module: torch.nn.Module,
    names: Mapping[str, str] | None = None,
) -> dict[str, WeightDifference]:
    """Compare each weight of two modules, entry by entry.

    Args:
        module: The Equinox module, with its own weights.
        torch_module: The PyTorch module.
        names: PyTorch's names of submodules, for `from_state_dict`.

    Returns:
        The largest difference by the name of each weight.

    Examples:
        >>> import equinox as eqx, jax, torch
        >>> from jaxtape.torch import from_state_dict, weight_differences
        >>> theirs, ours = torch.nn.Linear(1, 1), eqx.nn.Linear(1, 1, key=jax.random.key(0))
        >>> weight_differences(from_state_dict(ours, theirs.state_dict()), theirs)["weight"].ulp
        0.0
    """
    state = floating(torch_module)
    theirs = from_state_dict(module, state, names)
    leaves = jax.tree_util.tree_leaves_with_path(module)
    return {
        _own_name(module, path): _difference(np.asarray(a), np.asarray(b))
        for (path, a), b in zip(leaves, jax.tree.leaves(theirs), strict=True)
        if eqx.is_array(a) and a.size
    }


def floating(torch_module: torch.nn.Module) -> dict[str, Any]:
    """Return the state of a module without its integer buffers, such as counters of batches."""
    held = {name for name, b in torch_module.named_buffers() if not b.is_floating_point()}
    return {name: x for name, x in torch_module.state_dict().items() if name not in held}


def _difference(ours: np.ndarray, theirs: np.ndarray) -> WeightDifference:
    """Return the largest difference in units of the last place of the coarser dtype."""
    coarse = min(ours.dtype, theirs.dtype, key=lambda dtype: dtype.itemsize)
    unit = np.spacing(np.abs(theirs).astype(coarse)).astype(np.float64)
    apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    ulp = np.nan_to_num(apart / unit, nan=np.inf, posinf=np.inf)
    at = np.unravel_index(np.argmax(ulp), ulp.shape)
    return WeightDifference(float(ulp[at]), float(apart[at]), tuple(int(i) for i in at))


# --- Names -------------------------------------------------------------------------------------------


def _parts(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, eqx.Module):
        yield name, node
        children = dict(vars(node))
        if type(node) in TRANSPARENT:
            yield from _parts(children.pop(TRANSPARENT[type(node)]), name)
        for key, child in children.items():
            yield from _parts(child, child_name(name, key))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _parts(child, child_name(name, str(index)))
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _parts(child, child_name(name, str(key)))


def child_name(name: str, key: str) -> str:
    """Return the full name of a member of a named object."""
    return f"{name}.{key}" if name else key


def _own_name(module: Any, path: tuple) -> str:
    """Return the name of a leaf: attributes, indices and keys, joined by dots."""
    node: Any = module
    words = []
    for step in path:
        key: Any = getattr(step, "name", getattr(step, "idx", getattr(step, "key", None)))
        if key != TRANSPARENT.get(type(node)):
            words.append(str(key))
        is_attribute = isinstance(key, str) and hasattr(node, key)
        node = getattr(node, key) if is_attribute else node[key]  # pyright: ignore[reportArgumentType]
    return ".".join(words)


def torch_name(own: str, names: Mapping[str, str] | None) -> str:
    """Return PyTorch's name: replace the longest prefix that PyTorch names differently."""
    names = names or {}
    for part in sorted(names, key=len, reverse=True):
        if own == part or own.startswith(f"{part}.") or not part:
            rest = own[len(part) :].removeprefix(".")
            name = names[part]
            return (
                name.replace("*", rest) if "*" in name else child_name(name, rest) if rest else name
            )
    return own


def _weight(
    parts: Mapping[str, list[Any]],
    own: str,
    names: Mapping[str, str] | None,
    state: State,
    read: set[str],
) -> Array:
    """Return the weight of a leaf from the state's weights; KeyError if there is none of that name."""

    def take(name: str) -> Array:
        if name not in state:
            raise KeyError(
                f"the state has no {name!r} for the module's {own!r}: give `names`; it has "
                f"{', '.join(state)}"
            )
        read.add(name)
        return state[name]

    def of_cell(leaf: str) -> Array:
        """Return a cell's weight, or the weight of the first layer of `nn.GRU` and `nn.LSTM`."""
        name = torch_name(child_name(prefix, leaf), names)
        return take(name if name in state or f"{name}_l0" not in state else f"{name}_l0")

    prefix, _, leaf = own.rpartition(".")
    owners = parts.get(prefix, [])
    kinds = {type(owner) for owner in owners}
    if kinds & {eqx.nn.GRUCell, eqx.nn.LSTMCell}:
        if leaf.startswith("weight"):
            return of_cell(leaf)
        first, second = of_cell("bias_ih"), of_cell("bias_hh")
        if eqx.nn.LSTMCell in kinds:
            return first + second
        size = len(second) // 3
        return second[2 * size :] if leaf == "bias_n" else first + second.at[2 * size :].set(0.0)
    above, _, part = prefix.rpartition(".")
    if any(isinstance(owner, eqx.nn.MultiheadAttention) for owner in parts.get(above, [])):
        if part == "output_proj":
            return take(torch_name(child_name(above, f"out_proj.{leaf}"), names))
        row = ("query_proj", "key_proj", "value_proj").index(part)
        return jnp.split(take(torch_name(child_name(above, f"in_proj_{leaf}"), names)), 3)[row]
    for owner in owners:
        if isinstance(owner, eqx.nn.WeightNorm) and leaf in ("g", owner.weight_name):
            number = 0 if leaf == "g" else 1
            name = f"parametrizations.{owner.weight_name}.original{number}"
            return take(torch_name(child_name(prefix, name), names))
        if isinstance(owner, eqx.nn.ConvTranspose) and leaf == "weight":
            return _transposed_kernel(take(torch_name(own, names)), owner.groups)
    return take(torch_name(own, names))


def _transposed_kernel(kernel: Array, groups: int) -> Array:
    """Return a kernel [in, out / groups, ...] of PyTorch as [out, in / groups, ...], each axis reversed."""
    channels, out, *size = kernel.shape
    apart = kernel.reshape(groups, channels // groups, out, *size).swapaxes(1, 2)
    merged = apart.reshape(groups * out, channels // groups, *size)
    return jnp.flip(merged, axis=tuple(range(2, merged.ndim)))


def _shaped(name: str, found: Array, shape: tuple[int, ...]) -> Array:
    """Return a weight in the module's layout.

    Raises:
        ValueError: If its shape is not the module's, nor that transposed, nor equal up to axes of length 1.
    """
    if found.shape == shape:
        return found
    if found.ndim == 2 and found.shape == shape[::-1]:
        return found.T
    if [n for n in found.shape if n > 1] == [n for n in shape if n > 1]:
        return found.reshape(shape)
    raise ValueError(f"{name} has shape {shape} in JAX and {found.shape} in PyTorch.")


def _require_no_state(parts: Mapping[str, list[Any]]) -> None:
    for name, several in parts.items():
        if any(isinstance(part, eqx.nn.StateIndex) for part in several):
            owner = name.rpartition(".")[0]
            raise ValueError(
                f"{owner or 'the module'} is a {type(parts[owner][-1]).__name__}, whose statistics are in an "
                "eqx.nn.State and not among its weights: compare two functions that close over the state, "
                "by jaxtape.torch.Case"
            )


def _identity(value: Any) -> Any:
    """Return a key that is equal for two names of one tied weight."""
    if isinstance(value, torch.Tensor) and value.numel():
        return value.data_ptr(), tuple(value.shape), value.stride()
    return id(value)


def _array(value: Any) -> Array:
    return jnp.asarray(to_numpy(value)) if isinstance(value, torch.Tensor) else jnp.asarray(value)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor's numbers: its module may overwrite them later.

    Raises:
        ValueError: If NumPy lacks its dtype.
    """
    if tensor.dtype == torch.bfloat16:
        raise ValueError("a tensor is bfloat16, which NumPy does not have: convert it by .float()")
    return np.array(tensor.detach().cpu().numpy())
