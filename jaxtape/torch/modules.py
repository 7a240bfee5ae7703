"""Modules of Equinox beside those of PyTorch: weights by name, and functions of them."""

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jax.core import Tracer
from jaxtyping import Array

from .case import Case

State = Mapping[str, Any]  # arrays by the names of a `state_dict`


def from_state_dict(
    module: eqx.Module, state: State, names: Mapping[str, str] | None = None
) -> Any:
    """Return an Equinox module with the weights of a PyTorch module.

    The leaf `.layers[0].weight` has the name "layers.0.weight"; in `eqx.nn.Sequential` it is "0.weight". A
    weight whose shape is reversed is transposed, one with axes of length 1 reshaped. Gates of `GRUCell` and
    `LSTMCell` have one bias for PyTorch's two, `MultiheadAttention` has its projections apart.

    Args:
        module: The module whose arrays are replaced.
        state: `torch_module.state_dict()`, or arrays by its names.
        names: PyTorch's name of a part, where it is another: {"mlp.layers.1": "net.2"}.

    Returns:
        The module. Its arrays have the types of the state.

    Raises:
        ValueError: The state has weights that are not read; or a weight has another shape. A KeyError says
            which weight the state lacks.

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
    parts = dict(_parts(module, ""))
    replaced = []
    for path, leaf in leaves:
        if not eqx.is_array(leaf):
            replaced.append(leaf)
            continue
        own = _own_name(module, path)
        found = _weight(parts, own, names, arrays, read)
        replaced.append(_shaped(own, found, leaf.shape))
    unread = sorted(set(arrays) - read)
    if unread:
        raise ValueError(
            f"the state has {', '.join(unread)}, which {type(module).__name__} does not read: give `names`, or "
            "leave them out."
        )
    return jax.tree.unflatten(tree, replaced)


def module_case(
    module: eqx.Module,
    torch_module: torch.nn.Module,
    inputs: tuple,
    *,
    names: Mapping[str, str] | None = None,
    batched: bool = True,
) -> Case:
    """Return a comparison of two modules as functions of PyTorch's weights and of inputs, dropout off.

    Its nodes are the outputs of parts that have one name in both modules, in the order in which PyTorch calls
    them.

    Args:
        module: The Equinox module.
        torch_module: The PyTorch module.
        inputs: Arrays, of a batch in the first axis.
        names: As of `from_state_dict`.
        batched: Whether the Equinox module is of one example, and mapped over the first axis of all inputs.

    Returns:
        The comparison, whose first input has the weights by PyTorch's names.

    Examples:
        >>> import equinox as eqx, jax, numpy as np, torch
        >>> from jaxtape.torch import module_case
        >>> theirs, ours = torch.nn.Linear(3, 2), eqx.nn.Linear(3, 2, key=jax.random.key(0))
        >>> case = module_case(ours, theirs, (np.ones((4, 3), np.float32),))
        >>> [row.name for row in case.table("single").outputs]
        ['output']
    """
    torch_module = copy.deepcopy(torch_module).eval()  # the caller's stays as it is
    module = eqx.nn.inference_mode(module)
    held = {
        name: b.detach() for name, b in torch_module.named_buffers() if not b.is_floating_point()
    }
    state = {k: _numpy(v) for k, v in torch_module.state_dict().items() if k not in held}

    def ours(state: State, *inputs):
        found = from_state_dict(module, state, names)
        return (jax.vmap(found) if batched else found)(*inputs)

    def theirs(state: State, *inputs):
        return torch.func.functional_call(torch_module, {**state, **held}, inputs)

    def our_nodes(state: State, *inputs):
        found, sink = _recording(from_state_dict(module, state, names), names)
        jax.block_until_ready((jax.vmap(found) if batched else found)(*inputs))
        return sink

    def their_nodes(state: State, *inputs):
        sink: dict[str, Any] = {}
        hooks = [
            part.register_forward_hook(partial(_keep, sink, name))
            for name, part in torch_module.named_modules()
            if name
        ]
        try:
            theirs(state, *inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return sink

    draw = lambda rng: (state, *inputs)  # noqa: E731
    return Case(ours, theirs, draw, ("output",), (our_nodes, their_nodes))


def _keep(sink: dict[str, Any], name: str, _module: Any, _inputs: Any, output: Any) -> None:
    """Keep what a part returned at its first call, or the first entry of a tuple."""
    first = output[0] if isinstance(output, tuple) else output
    if isinstance(first, torch.Tensor):
        sink.setdefault(name, _numpy(first))


def weight_differences(
    module: eqx.Module,
    torch_module: torch.nn.Module,
    names: Mapping[str, str] | None = None,
) -> dict[str, tuple[float, tuple[int, ...]]]:
    """Return the largest difference of each weight of two modules, and where it is.

    Args:
        module: The Equinox module, with weights of its own.
        torch_module: The PyTorch module.
        names: As of `from_state_dict`.

    Returns:
        By the name of each weight, its difference and index.

    Examples:
        >>> import equinox as eqx, jax, torch
        >>> from jaxtape.torch import from_state_dict, weight_differences
        >>> theirs, ours = torch.nn.Linear(1, 1), eqx.nn.Linear(1, 1, key=jax.random.key(0))
        >>> weight_differences(from_state_dict(ours, theirs.state_dict()), theirs)["weight"]
        (0.0, (0, 0))
    """
    theirs = from_state_dict(module, torch_module.state_dict(), names)
    found = {}
    leaves = jax.tree_util.tree_leaves_with_path(module)
    for (path, a), b in zip(leaves, jax.tree.leaves(theirs), strict=True):
        if eqx.is_array(a):
            apart = jnp.abs(a - b.astype(a.dtype))
            at = jnp.unravel_index(jnp.argmax(apart), apart.shape)
            found[_own_name(module, path)] = float(jnp.max(apart)), tuple(int(i) for i in at)
    return found


# --- Names -------------------------------------------------------------------------------------------


def _parts(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every module with its name."""
    if isinstance(node, eqx.Module):
        yield name, node
        children = dict(vars(node))
        if isinstance(node, eqx.nn.Sequential):
            yield from _parts(children.pop("layers"), name)
        for key, child in children.items():
            yield from _parts(child, _joined(name, key))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _parts(child, _joined(name, str(index)))
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _parts(child, _joined(name, str(key)))


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _own_name(module: Any, path: tuple) -> str:
    """Return the name of a leaf: attributes, indices and keys, joined by dots."""
    node: Any = module
    words = []
    for step in path:
        key: Any = getattr(step, "name", getattr(step, "idx", getattr(step, "key", None)))
        if not (isinstance(node, eqx.nn.Sequential) and key == "layers"):
            words.append(str(key))
        is_attribute = isinstance(key, str) and hasattr(node, key)
        node = getattr(node, key) if is_attribute else node[key]  # pyright: ignore[reportArgumentType]
    return ".".join(words)


def _torch_name(own: str, names: Mapping[str, str] | None) -> str:
    """Return PyTorch's name: the longest part that has another name there is replaced."""
    names = names or {}
    for part in sorted(names, key=len, reverse=True):
        if own == part or own.startswith(f"{part}."):
            return f"{names[part]}{own[len(part) :]}".removeprefix(".")
    return own


def _weight(
    parts: Mapping[str, Any],
    own: str,
    names: Mapping[str, str] | None,
    state: State,
    read: set[str],
) -> Array:
    """Return the weight of a leaf, from those of the state; a KeyError if there is none of that name."""

    def take(name: str) -> Array:
        if name not in state:
            raise KeyError(
                f"the state has no {name!r}, which the module's {own!r} is to be: give `names`; it has "
                f"{', '.join(state)}"
            )
        read.add(name)
        return state[name]

    prefix, _, leaf = own.rpartition(".")
    owner = parts.get(prefix)
    at = lambda part, leaf: _joined(_torch_name(part, names), leaf)  # noqa: E731
    if isinstance(owner, eqx.nn.GRUCell) and leaf in ("bias", "bias_n"):
        first, second = take(at(prefix, "bias_ih")), take(at(prefix, "bias_hh"))
        size = len(second) // 3
        return second[2 * size :] if leaf == "bias_n" else first + second.at[2 * size :].set(0.0)
    if isinstance(owner, eqx.nn.LSTMCell) and leaf == "bias":
        return take(at(prefix, "bias_ih")) + take(at(prefix, "bias_hh"))
    above, _, part = prefix.rpartition(".")
    if isinstance(parts.get(above), eqx.nn.MultiheadAttention):
        if part == "output_proj":
            return take(at(above, f"out_proj.{leaf}"))
        row = ("query_proj", "key_proj", "value_proj").index(part)
        return jnp.split(take(at(above, f"in_proj_{leaf}")), 3)[row]
    return take(_torch_name(own, names))


def _shaped(name: str, found: Array, shape: tuple[int, ...]) -> Array:
    """Return a weight in the module's layout.

    Raises:
        ValueError: Its shape is neither the module's, nor reversed, nor that but for axes of length 1.
    """
    if found.shape == shape:
        return found
    if found.shape == shape[::-1]:
        return found.T
    if [n for n in found.shape if n > 1] == [n for n in shape if n > 1]:
        return found.reshape(shape)
    raise ValueError(f"{name} is of shape {shape} in JAX and of {found.shape} in PyTorch.")


def _array(value: Any) -> Array:
    return jnp.asarray(_numpy(value)) if isinstance(value, torch.Tensor) else jnp.asarray(value)


def _numpy(tensor: torch.Tensor):
    return tensor.detach().cpu().numpy()


# --- What parts return -------------------------------------------------------------------------------


class _Recorded(eqx.Module):
    """A part that keeps what it returns at its first call, by its name in PyTorch."""

    part: Any
    name: str = eqx.field(static=True)
    sink: Any = eqx.field(static=True)

    def __call__(self, *args, **kwargs):
        value = self.part(*args, **kwargs)
        return self._told(value) if eqx.is_array(value) else value

    def __getattr__(self, name: str):
        return getattr(self.part, name)

    def _told(self, value: Array) -> Array:
        """Keep a value with the axes of all `jax.vmap` around it in front, the outermost first."""
        if not isinstance(value, Tracer):
            self.sink.setdefault(self.name, np.asarray(value))
            return value
        same = jax.custom_batching.custom_vmap(lambda value: value)
        same.def_vmap(lambda size, is_batched, value: (self._told(value), True))
        return same(value)


def _recording(
    module: eqx.Module, names: Mapping[str, str] | None
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the module with parts that keep what they return, and where they keep it."""
    sink: dict[str, Any] = {}

    def wrapped(node: Any, name: str) -> Any:
        if isinstance(node, list | tuple):
            return type(node)(wrapped(c, _joined(name, str(i))) for i, c in enumerate(node))
        if isinstance(node, dict):
            return {key: wrapped(child, _joined(name, str(key))) for key, child in node.items()}
        if not isinstance(node, eqx.Module):
            return node
        inner = object.__new__(type(node))
        for key, child in vars(node).items():
            is_list = isinstance(node, eqx.nn.Sequential) and key == "layers"
            below = name if is_list else _joined(name, key)
            object.__setattr__(inner, key, wrapped(child, below))
        return _Recorded(inner, _torch_name(name, names), sink) if name else inner

    return wrapped(module, ""), sink
