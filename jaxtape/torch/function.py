"""A JAX function inside a PyTorch program."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import torch  # pyright: ignore[reportMissingImports]

FLOATS = ("float32", "float64")
HELD = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def to_torch(fn: Callable) -> Callable:
    """Make a JAX function a function of PyTorch tensors that `torch.autograd` differentiates.

    `x_bar = J(x)' y_bar`, by the rule that JAX has for `fn`, schedules included. Tensors cross by DLPack,
    without a copy if they are contiguous and aligned. `fn` is compiled once for each signature: structure,
    shapes and dtypes of the arguments, and which of them require gradients. What it keeps for the reverse
    sweep is kept by `save_for_backward`, so that `retain_graph` and saved-tensor hooks work as usual.

    Args:
        fn: A function of pytrees of arrays to a pytree of arrays, which `jax.jit` accepts. What it closes over
            is constant.

    Returns:
        A function that takes positional pytrees of tensors (float32, float64, integer or boolean) and returns
        the pytree of `fn` as tensors. Integer and boolean outputs are not differentiable; inputs that do not
        require gradients get none. Differentiating a gradient raises `RuntimeError`: differentiate in JAX
        first, `to_torch(jax.grad(fn))`. It raises `TypeError` if a leaf is not a tensor, has another
        dtype, or is of 64 bits where JAX's are disabled.

    Examples:
        >>> import jax.numpy as jnp, torch
        >>> from jaxtape.torch import to_torch
        >>> to_torch(jnp.sin)(torch.zeros(3)).shape
        torch.Size([3])
    """
    tape = _taped(fn)

    @functools.wraps(fn)
    def function(*args):
        leaves, tree = jax.tree_util.tree_flatten_with_path(args)
        for path, leaf in leaves:
            name = f"args{jax.tree_util.keystr(path)}"
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(f"{name} is {leaf!r}: give a tensor, or close over the value.")
            _check_dtype(name, dtype_name(leaf))
        tensors = [leaf for _, leaf in leaves]
        active = tuple(t.requires_grad and torch.is_grad_enabled() for t in tensors)
        out_tree, *out = _Call.apply(tape, tree, active, *tensors)
        return jax.tree.unflatten(out_tree, out)

    return function


def _taped(fn: Callable) -> Callable:
    """Return the program of the value of a function, and of its pullback."""

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def tape(tree, active, leaves):
        varied, held = eqx.partition(leaves, list(active))

        def primal(varied):
            out = fn(*jax.tree.unflatten(tree, eqx.combine(varied, held)))
            out = jax.tree.map(jnp.asarray, out)
            for path, leaf in jax.tree_util.tree_leaves_with_path(out):
                _check_dtype(f"output{jax.tree_util.keystr(path)}", leaf.dtype.name)
            return eqx.partition(out, eqx.is_inexact_array)

        return jax.vjp(primal, varied, has_aux=True)

    return tape


@jax.jit
def _pulled(pullback, y_bar):
    return pullback(y_bar)[0]


class _Call(torch.autograd.Function):
    """One call, as a node of PyTorch's graph."""

    @staticmethod
    def forward(ctx, tape, tree, active, *tensors):
        floats, pullback, others = tape(tree, active, list(map(_to_jax, tensors)))
        residuals, ctx.keys = eqx.partition(pullback, lambda leaf: not _is_key(leaf))
        residuals, ctx.residual_tree = jax.tree.flatten(residuals)
        ctx.save_for_backward(*tensors, *map(torch.from_dlpack, residuals))
        ctx.num_inputs = len(tensors)
        ctx.float_tree = jax.tree.structure(floats)
        arrays, out_tree = jax.tree.flatten(eqx.combine(floats, others))
        out = [torch.from_dlpack(array) for array in arrays]
        ctx.mark_non_differentiable(*(y for y in out if not y.is_floating_point()))
        return out_tree, *out

    @staticmethod
    def backward(ctx, _, *bars):
        inputs, residuals = ctx.saved_tensors[: ctx.num_inputs], ctx.saved_tensors[ctx.num_inputs :]
        residuals = jax.tree.unflatten(ctx.residual_tree, map(_to_jax, residuals))
        y_bar = [_to_jax(y_bar) for y_bar in bars if y_bar.is_floating_point()]
        y_bar = jax.tree.unflatten(ctx.float_tree, y_bar)
        x_bar = _pulled(eqx.combine(residuals, ctx.keys), y_bar)
        x_bar = [None if x is None else torch.from_dlpack(x) for x in x_bar]
        if torch.is_grad_enabled():  # create_graph=True
            x_bar = [None if x is None else _Once.apply(x, *inputs, *bars) for x in x_bar]
        return None, None, None, *x_bar


class _Once(torch.autograd.Function):
    """The first tensor, as a function of the others that cannot be differentiated.

    `once_differentiable` detaches it from them instead, so that a sum with other terms would lose it silently.
    """

    @staticmethod
    def forward(ctx, gradient, *depends_on):
        del ctx, depends_on
        return gradient.clone()

    @staticmethod
    def backward(ctx, *bars):
        del ctx, bars
        raise RuntimeError(
            "A gradient of to_torch(fn) was differentiated, and only its first derivative is known: take "
            "the inner derivative in JAX, to_torch(jax.grad(fn)) or to_torch of a function that calls jt.hvp."
        )


def _to_jax(tensor):
    array = jnp.from_dlpack(tensor.detach().contiguous())
    if array.dtype.name != dtype_name(tensor):
        raise TypeError(
            f"A tensor is {dtype_name(tensor)} and JAX would round it to {array.dtype}: run "
            'jax.config.update("jax_enable_x64", True), or convert the tensor.'
        )
    return array


def dtype_name(tensor) -> str:
    """Return a tensor's dtype, by the name that NumPy and JAX have for it."""
    return str(tensor.dtype).removeprefix("torch.")


def _check_dtype(name: str, dtype: str) -> None:
    if dtype not in FLOATS + HELD:
        raise TypeError(f"{name} is {dtype}: convert it to float64, float32, integer or boolean.")


def _is_key(leaf) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
