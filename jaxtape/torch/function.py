"""Call JAX functions inside PyTorch programs."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import torch  # pyright: ignore[reportMissingImports]

FLOATS = ("bfloat16", "float16", "float32", "float64")
HELD = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
Axes = tuple[int | None, ...]


def to_torch(fn: Callable) -> Callable:
    """Turn a JAX function into a function of PyTorch tensors that `torch.autograd` differentiates.

    `x_bar = J(x)' y_bar`, by JAX's rule for `fn`, schedules included. Tensors are exchanged by DLPack, without
    a copy if they are contiguous and aligned. `fn` is compiled once for each signature: structure, shapes and
    dtypes of the arguments, and which of them require gradients. The residuals of the reverse sweep are saved
    by `save_for_backward`, so that `retain_graph`, saved-tensor hooks and `torch.utils.checkpoint` work as
    usual. The transforms `grad`, `vjp`, `jacrev` and `vmap` of `torch.func` apply. `torch.compile` breaks its
    graph at the call.

    Args:
        fn: A function from pytrees of arrays to a pytree of arrays, which `jax.jit` accepts. Values that it
            closes over are constants.

    Returns:
        A function that takes pytrees of tensors (floating-point, integer or boolean), by position or by name,
        and returns the pytree of `fn` as tensors. Integer and boolean outputs are not differentiable; inputs
        that do not require gradients get none. A gradient can be differentiated again (`create_graph=True`):
        the function is then evaluated once more. It raises `TypeError` if a leaf is not a tensor, has another
        dtype, or has 64 bits while JAX's 64-bit types are disabled, and `RuntimeError` in forward mode
        (`torch.func.jvp`).

    Examples:
        >>> import jax.numpy as jnp, torch
        >>> from jaxtape.torch import to_torch
        >>> to_torch(jnp.sin)(torch.zeros(3)).shape
        torch.Size([3])
    """
    program = _Program(fn)

    @torch.compiler.disable
    @functools.wraps(fn)
    def function(*args, **kwargs):
        leaves, tree = jax.tree_util.tree_flatten_with_path((args, kwargs))
        for path, leaf in leaves:
            name = f"{'kwargs' if path[0].idx else 'args'}{jax.tree_util.keystr(path[1:])}"
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(f"{name} is {leaf!r}: give a tensor, or close over the value.")
            _check_dtype(name, dtype_name(leaf))
        tensors = [leaf for _, leaf in leaves]
        call = _Signature(program, tree, _active(tensors))
        outputs = _Call.apply(call, *tensors)
        return jax.tree.unflatten(call.out_tree, outputs[: call.num_outputs])

    return function


class _Program:
    """A function with the programs of its value and its pullback, compiled once for each signature."""

    def __init__(self, fn: Callable):
        self.fn = fn
        self.tape = jax.jit(self._tape, static_argnums=(0, 1, 2))
        self._second_orders: dict[Any, Callable] = {}

    def _tape(self, tree, active: tuple[bool, ...], batch: tuple[Axes, ...], leaves: list):
        """Return the float outputs, the pullback to the active inputs, and the other outputs."""
        over_batch = functools.partial(self._of_one, tree, active)
        for axes in batch:
            over_batch = jax.vmap(over_batch, in_axes=(list(axes),))
        return over_batch(leaves)

    def _of_one(self, tree, active: tuple[bool, ...], leaves: list):
        varied, held = eqx.partition(leaves, list(active))

        def primal(varied):
            args, kwargs = jax.tree.unflatten(tree, eqx.combine(varied, held))
            out = jax.tree.map(jnp.asarray, self.fn(*args, **kwargs))
            for path, leaf in jax.tree_util.tree_leaves_with_path(out):
                _check_dtype(f"output{jax.tree_util.keystr(path)}", leaf.dtype.name)
            return eqx.partition(out, eqx.is_inexact_array)

        floats, pullback, others = jax.vjp(primal, varied, has_aux=True)
        return floats, jax.tree.map(_as_numbers, pullback), others

    def second_order(self, call: "_Signature") -> Callable:
        """Return the pullback of the pullback, a function of tensors; it evaluates the function once more."""
        key = call.tree, call.active, call.batch, call.pull_batch, call.float_tree
        if key not in self._second_orders:

            def gradient(leaves: list, bars: list) -> list:
                _, pullback, _ = self._tape(call.tree, call.active, call.batch, leaves)
                return _pulled(pullback, jax.tree.unflatten(call.float_tree, bars), call)

            for axes in call.pull_batch:
                of_leaves, of_bars, _ = map(list, call.parts(axes))
                gradient = jax.vmap(gradient, in_axes=(of_leaves, of_bars))

            def pulled_again(leaves: list, bars: list, x_bar_bars: list):
                varied, held = eqx.partition(leaves, list(call.active))
                of_both = lambda varied, bars: gradient(eqx.combine(varied, held), bars)
                found, bars_bar = jax.vjp(of_both, varied, bars)[1](x_bar_bars)
                return [x for x in found if x is not None], bars_bar

            self._second_orders[key] = to_torch(pulled_again)
        return self._second_orders[key]


@dataclasses.dataclass(unsafe_hash=True)  # it does not change after its first run
class _Signature:
    """The key of a call, and the structures of its results, which are known after it has run.

    Attributes:
        program: The `_Program` of the function; None in the key of a pullback, which does not depend on it.
        tree: The structure of its arguments; None in the key of a pullback.
        active: The mask of the leaves that require gradients.
        batch: The axes of the leaves over which `torch.func.vmap` maps the call, innermost first.
        pull_batch: The axes of leaves, cotangents and residuals over which it maps the pullback.
        out_tree: The structure of the outputs.
        float_tree: The structure of the outputs with floating-point numbers.
        residual_tree: The structure of the residuals of the pullback.
    """

    program: Any
    tree: Any
    active: tuple[bool, ...]
    batch: tuple[Axes, ...] = ()
    pull_batch: tuple[Axes, ...] = ()
    out_tree: Any = None
    float_tree: Any = None
    residual_tree: Any = None

    @property
    def num_outputs(self) -> int:
        return self.out_tree.num_leaves

    def parts(self, tensors: Sequence) -> tuple[Sequence, Sequence, Sequence]:
        """Split into the inputs, the cotangents of the float outputs, and the residuals."""
        n, m = len(self.active), self.float_tree.num_leaves
        return tensors[:n], tensors[n : n + m], tensors[n + m :]


class _Call(torch.autograd.Function):
    """One call, as a node of PyTorch's graph. Its last outputs are the residuals of the pullback."""

    @staticmethod
    def forward(call, *tensors):
        arrays = list(map(_to_jax, tensors))
        floats, pullback, others = call.program.tape(call.tree, call.active, call.batch, arrays)
        call.float_tree = jax.tree.structure(floats)
        outputs, call.out_tree = jax.tree.flatten(eqx.combine(floats, others))
        residuals, call.residual_tree = jax.tree.flatten(pullback)
        return tuple(map(torch.from_dlpack, [*outputs, *residuals]))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, *tensors = inputs
        outputs, residuals = output[: ctx.call.num_outputs], output[ctx.call.num_outputs :]
        ctx.mark_non_differentiable(*(y for y in outputs if not y.is_floating_point()), *residuals)
        ctx.set_materialize_grads(False)  # residuals have none
        ctx.shapes = [(y.shape, y.dtype) for y in outputs if y.is_floating_point()]
        ctx.is_float = [y.is_floating_point() for y in outputs]
        ctx.save_for_backward(*tensors, *residuals)

    @staticmethod
    def backward(ctx, *bars):
        saved = ctx.saved_tensors  # read it once: `torch.utils.checkpoint` recomputes it on reading
        count = len(ctx.call.active)
        float_bars = [bar for bar, is_float in zip(bars, ctx.is_float, strict=False) if is_float]
        pairs = zip(float_bars, ctx.shapes, strict=True)
        float_bars = [
            torch.zeros(shape, dtype=kind) if y is None else y for y, (shape, kind) in pairs
        ]
        x_bar = iter(_Pull.apply(ctx.call, *saved[:count], *float_bars, *saved[count:]))
        return None, *(next(x_bar) if is_active else None for is_active in ctx.call.active)

    @staticmethod
    def vmap(info, in_dims, call, *tensors):
        del info
        tensors, axes = _batch_first(tensors, in_dims[1:])
        # the gradient may be per member, or of the whole batch
        active = tuple(map(max, call.active, _active(tensors)))
        several = dataclasses.replace(call, active=active, batch=(*call.batch, axes))
        outputs = _Call.apply(several, *tensors)
        call.out_tree, call.float_tree = several.out_tree, several.float_tree
        call.residual_tree = several.residual_tree
        return outputs, (0,) * len(outputs)

    @staticmethod
    def jvp(ctx, *tangents):
        del ctx, tangents
        raise RuntimeError(
            "to_torch(fn) has no forward mode in PyTorch: take it in JAX, "
            "to_torch(lambda x, v: jax.jvp(fn, (x,), (v,))[1])."
        )


class _Pull(torch.autograd.Function):
    """The pullback of a call, as a function of its inputs, its float outputs' cotangents and its residuals."""

    @staticmethod
    def forward(call, *tensors):
        _, bars, residuals = call.parts(tensors)
        key = dataclasses.replace(call, program=None, tree=None, out_tree=None)
        x_bar = _pullback(key, list(map(_to_jax, bars)), list(map(_to_jax, residuals)))
        return tuple(map(torch.from_dlpack, x_bar))

    @staticmethod
    def setup_context(ctx, inputs, output):
        del output
        ctx.call, *tensors = inputs
        leaves, bars, _ = ctx.call.parts(tensors)
        ctx.save_for_backward(*leaves, *bars)

    @staticmethod
    def backward(ctx, *x_bar_bars):
        call, saved = ctx.call, ctx.saved_tensors
        leaves, bars, _ = call.parts(saved)
        pulled_again = call.program.second_order(call)
        found, bars_bar = pulled_again(list(leaves), list(bars), list(x_bar_bars))
        found = iter(found)
        of_leaves = [next(found) if is_active else None for is_active in call.active]
        num_residuals = call.residual_tree.num_leaves
        return None, *of_leaves, *bars_bar, *[None] * num_residuals

    @staticmethod
    def vmap(info, in_dims, call, *tensors):
        del info
        tensors, axes = _batch_first(tensors, in_dims[1:])
        several = dataclasses.replace(call, pull_batch=(*call.pull_batch, axes))
        x_bar = _Pull.apply(several, *tensors)
        return x_bar, (0,) * len(x_bar)


@functools.partial(jax.jit, static_argnums=0)
def _pullback(call: _Signature, bars: list, residuals: list) -> list:
    def of_one(bars: list, residuals: list) -> list:
        pullback = jax.tree.unflatten(call.residual_tree, residuals)
        return _pulled(pullback, jax.tree.unflatten(call.float_tree, bars), call)

    for axes in call.pull_batch:
        _, of_bars, of_residuals = map(list, call.parts(axes))
        of_one = jax.vmap(of_one, in_axes=(of_bars, of_residuals))
    return of_one(bars, residuals)


def _pulled(pullback, y_bar, call: _Signature) -> list:
    """Return the cotangents of the active inputs, summed over the batch for an input that the batch shares."""

    def of_one(pullback, y_bar) -> list:
        pullback = jax.tree.map(_as_key, pullback, is_leaf=lambda x: isinstance(x, _KeyData))
        return [x for x in pullback(y_bar)[0] if x is not None]

    def over(of_one: Callable, shared: list[bool]) -> Callable:
        def summed(pullback, y_bar) -> list:
            found = jax.vmap(of_one)(pullback, y_bar)
            return [
                jnp.sum(x, axis=0, dtype=x.dtype) if is_shared else x
                for x, is_shared in zip(found, shared, strict=True)
            ]

        return summed

    for axes in call.batch:
        pairs = zip(axes, call.active, strict=True)
        of_one = over(of_one, [axis is None for axis, is_active in pairs if is_active])
    return of_one(pullback, y_bar)


class _KeyData(eqx.Module):
    """A random key as an array that PyTorch can save."""

    data: jax.Array
    implementation: str = eqx.field(static=True)


def _as_numbers(leaf: Any) -> Any:
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return _KeyData(jax.random.key_data(leaf), str(jax.random.key_impl(leaf)))


def _as_key(leaf: Any) -> Any:
    if not isinstance(leaf, _KeyData):
        return leaf
    return jax.random.wrap_key_data(leaf.data, impl=leaf.implementation)


def _active(tensors: Sequence) -> tuple[bool, ...]:
    """Return the mask of the tensors that are differentiated."""
    return tuple(tensor.requires_grad and torch.is_grad_enabled() for tensor in tensors)


def _batch_first(tensors, dims) -> tuple[list, Axes]:
    """Move the axis of a batch to the front of each tensor that has one."""
    moved = [
        tensor if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    return moved, tuple(None if dim is None else 0 for dim in dims)


def _to_jax(tensor):
    array = jnp.from_dlpack(tensor.detach().contiguous())
    if array.dtype.name != dtype_name(tensor):
        raise TypeError(
            f"A tensor is {dtype_name(tensor)} and JAX would round it to {array.dtype}: run "
            'jax.config.update("jax_enable_x64", True), or convert the tensor.'
        )
    return array


def dtype_name(tensor) -> str:
    """Return the name of a tensor's dtype in NumPy and JAX."""
    return str(tensor.dtype).removeprefix("torch.")


def _check_dtype(name: str, dtype: str) -> None:
    if dtype not in FLOATS + HELD:
        raise TypeError(f"{name} is {dtype}: convert it to a real, integer or boolean tensor.")
