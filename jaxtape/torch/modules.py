"""Compare Equinox modules with PyTorch modules, as functions of their weights and inputs."""

import copy
from collections.abc import Mapping
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
from .function import dtype_name
from .weights import (
    TRANSPARENT,
    State,
    child_name,
    floating,
    from_state_dict,
    to_numpy,
    torch_name,
    weight_differences,
)


def module_case(
    module: eqx.Module,
    torch_module: torch.nn.Module,
    inputs: tuple,
    *,
    names: Mapping[str, str] | None = None,
    batched: bool = True,
) -> Case:
    """Compare two modules: their weights, and both as functions of PyTorch's weights and of inputs.

    Dropout is off. The nodes are the outputs of submodules with the same name in both, in the order in which
    PyTorch calls them. The Equinox module's weights must equal PyTorch's to one unit in the last place.

    Args:
        module: The Equinox module, with PyTorch's weights (`from_state_dict`).
        torch_module: The PyTorch module.
        inputs: Arrays whose first axis is a batch.
        names: PyTorch's names of submodules, for `from_state_dict`.
        batched: Whether the Equinox module takes one example, and is mapped over the first axis of all inputs.

    Returns:
        The comparison. Its first input is the weights by PyTorch's names, with tied weights once. ValueError is
        raised if a weight or an input is complex or in half precision, or the module keeps an `eqx.nn.State`.

    Examples:
        >>> import equinox as eqx, jax, numpy as np, torch
        >>> from jaxtape.torch import from_state_dict, module_case
        >>> theirs, ours = torch.nn.Linear(3, 2), eqx.nn.Linear(3, 2, key=jax.random.key(0))
        >>> ours = from_state_dict(ours, theirs.state_dict())
        >>> case = module_case(ours, theirs, (np.ones((4, 3), np.float32),))
        >>> [row.name for row in case.table("single").outputs], case.weights["bias"].is_apart
        (['output 0'], False)
    """
    _require_full_precision(module, torch_module, inputs)
    weights = weight_differences(module, torch_module, names)
    torch_module = copy.deepcopy(torch_module).eval()  # leave the caller's unchanged
    module = eqx.nn.inference_mode(module)
    held = {
        name: b.detach() for name, b in torch_module.named_buffers() if not b.is_floating_point()
    }
    first_names: dict[int, str] = {}
    full_state = torch_module.state_dict(keep_vars=True)
    tied = {name: first_names.setdefault(id(x), name) for name, x in full_state.items()}
    state = {k: to_numpy(v) for k, v in floating(torch_module).items() if tied[k] == k}

    mapped = jax.vmap if batched else lambda module: module

    def own(state: State) -> Any:
        arrays = {name: jnp.asarray(x) for name, x in state.items()}
        untied = {name: arrays[first] for name, first in tied.items() if first in arrays}
        return from_state_dict(module, untied, names)

    def ours(state: State, *inputs):
        return mapped(own(state))(*inputs)

    def theirs(state: State, *inputs):
        # copies: a module may write to its buffers
        buffers = {name: buffer.clone() for name, buffer in held.items()}
        return torch.func.functional_call(torch_module, {**state, **buffers}, inputs)

    def our_nodes(state: State, *inputs):
        recorded, sink = _recording(own(state), names)
        jax.block_until_ready(mapped(recorded)(*inputs))
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

    draw = lambda rng: (state, *inputs)
    count = sum(
        eqx.is_inexact_array_like(x) for x in jax.tree.leaves(jax.eval_shape(ours, state, *inputs))
    )
    outputs = ("output",) if count == 1 else tuple(f"output {k}" for k in range(count))
    return Case(ours, theirs, draw, outputs, (our_nodes, their_nodes), weights)


def _require_full_precision(
    module: eqx.Module, torch_module: torch.nn.Module, inputs: tuple
) -> None:
    ours = [str(x.dtype) for x in jax.tree.leaves((module, inputs)) if eqx.is_array(x)]
    theirs = [dtype_name(x) for x in torch_module.state_dict().values()]
    for kind in ("float16", "bfloat16"):
        if kind in ours + theirs:
            raise ValueError(
                f"a weight or an input is {kind}, and modules are compared in float32 and "
                f"float64: convert "
                "both modules, with .float() and with jax.tree.map"
            )
    if kind := next((x for x in ours + theirs if x.startswith("complex")), None):
        raise ValueError(
            f"a weight or an input is {kind}, and modules are compared in real numbers: give its real and "
            "imaginary parts"
        )


def _keep(sink: dict[str, Any], name: str, _module: Any, _inputs: Any, output: Any) -> None:
    """Keep a copy of the first output of a submodule, or of the first entry of a tuple."""
    first = output[0] if isinstance(output, tuple) else output
    if isinstance(first, torch.Tensor):
        sink.setdefault(name, to_numpy(first))


# --- Outputs of submodules
# ---------------------------------------------------------------------------


class _Recorded(eqx.Module):
    """A submodule that keeps its first output under its name in PyTorch."""

    part: Any
    name: str = eqx.field(static=True)
    sink: Any = eqx.field(static=True)

    def __call__(self, *args, **kwargs):
        value = self.part(*args, **kwargs)
        return self._told(value) if eqx.is_array(value) else value

    def __getattr__(self, name: str):
        return getattr(self.part, name)

    def _told(self, value: Array) -> Array:
        """Keep a value with the axes of all enclosing `jax.vmap`s in front, the outermost first."""
        if not isinstance(value, Tracer):
            self.sink.setdefault(self.name, np.asarray(value))
            return value
        same = jax.custom_batching.custom_vmap(lambda value: value)
        same.def_vmap(lambda size, is_batched, value: (self._told(value), True))
        return same(value)


def _recording(
    module: eqx.Module, names: Mapping[str, str] | None
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the module with submodules that keep their first outputs, and the dictionary of the outputs."""
    sink: dict[str, Any] = {}

    def wrapped(node: Any, name: str) -> Any:
        if isinstance(node, list | tuple):
            return type(node)(wrapped(c, child_name(name, str(i))) for i, c in enumerate(node))
        if isinstance(node, dict):
            return {key: wrapped(child, child_name(name, str(key))) for key, child in node.items()}
        if not isinstance(node, eqx.Module):
            return node
        inner = object.__new__(type(node))
        for key, child in vars(node).items():
            below = name if key == TRANSPARENT.get(type(node)) else child_name(name, key)
            object.__setattr__(inner, key, wrapped(child, below))
        return _Recorded(inner, torch_name(name, names), sink) if name else inner

    return wrapped(module, ""), sink
