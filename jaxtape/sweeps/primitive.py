"""Base classes of JAX primitives with custom rules, and helpers to write the rules."""

from typing import Any

import jax
import jax.numpy as jnp

from ..jax_private import (
    HiPrimitive,
    Zero,
    instantiate_zeros,
    linearize_hi_primitive,
    replace_linearization_rule,
    zeros_like_aval,
)
from .dependence import moving_jvp
from .leaves import (
    Mask,
    Static,
    avals,
    inexact,
    instantiated,
    is_zero,
    leaves_or_zeros,
    merge,
    merge_leaves,
    out_avals,
    pick,
    zero_cotangents,
    zero_tangents,
)
from .vmap import over_axis


class Primitive(HiPrimitive):
    """A primitive whose `vjp_fwd` and `lin` also return, last, the mask of the outputs that have a tangent."""

    skip_linearization_on_zero_tangents = True

    def __init__(self, effects, args: tuple, **params):
        """Make the primitive with these params, for arguments of these types."""
        self.__dict__.update(params)
        self.in_avals = avals(args)
        self.out_aval = out_avals(self.expand, *args)
        self.params, self.effects = params, effects
        super().__init__()

    def staging(self, trace, source_info, *args):
        checks = jax.config.jax_check_tracer_leaks  # pyright: ignore[reportAttributeAccessIssue]
        if checks and jax.__version_info__ < (0, 11):
            raise NotImplementedError(
                "JAX 0.10 takes its own tracers for leaked wherever a program holds a primitive "
                "such as a "
                "chain with a schedule: leave out jax.checking_leaks "
                "(jax_check_tracer_leaks), give the chain "
                "schedule=StoreAll() while you look "
                "for a leak, or take JAX 0.12."
            )
        return super().staging(trace, source_info, *args)

    def linearized(self, args, *tangents):
        return instantiated(self.jvp(args, tangents)[1])


class LoopPrimitive(Primitive):
    """A primitive whose reverse mode is its `pullback`; all other rules are JAX's own for `expand`.

    A function that JAX cannot reverse, such as a loop of unknown length, is reversed by the pullback that its
    author supplies; forward mode and batching work as if it were inlined.
    """

    @property
    def in_kernels(self) -> bool:
        """Whether it runs in kernels, where tangents come from a rule of its own and not from `smooth`."""
        return False

    @property
    def varied(self) -> Mask:
        """The mask of the leaves of the arguments that have a cotangent."""
        return inexact(self.in_avals_flat)

    def smooth(self, *args):
        """Return the result of `expand`, computed only by operations that have tangents."""
        return self.expand(*args)

    def pullback(self, varied: Mask, args: tuple, bars) -> tuple:
        """Return the cotangents of the varied leaves of `args` from the outputs' cotangents; `Zero` for 0."""
        raise NotImplementedError

    def out_dims(self, axis, dims: tuple):
        """Return the batch axis of each output, 0 or None, from the batch axes of the arguments."""
        raise NotImplementedError

    def moving(self, nonzeros: tuple, args: tuple):
        """Return the mask of the outputs that have a tangent, from the mask of the arguments that have one."""
        del args
        moves = any(jax.tree.leaves(nonzeros))
        return jax.tree.map(lambda aval: moves and inexact([aval])[0], self.out_aval)

    def vjp_fwd(self, nonzeros, /, *args):
        pairs = zip(self.varied, jax.tree.leaves(nonzeros), strict=True)
        varied = tuple(varied and nonzero for varied, nonzero in pairs)
        return self(*args), (args, Static(varied)), self.moving(nonzeros, args)

    def vjp_bwd_retval(self, saved, bars, /):
        args, varied = saved
        bars = self.pullback(varied.value, args, bars)
        return merge_leaves(varied.value, bars, zero_cotangents(self.in_avals))

    def jvp(self, primals, tangents):
        """Return the outputs and their tangents, with respect to the perturbed leaves only."""
        dots = leaves_or_zeros(tangents)
        moving = tuple(not is_zero(dot) for dot in dots)
        leaves = pick(moving, jax.tree.leaves(primals))
        outputs = lambda *moved: self.smooth(*merge_leaves(moving, moved, primals))
        out, out_dots, moves = moving_jvp(outputs, leaves, pick(moving, dots))
        dots = pick(moves, jax.tree.leaves(out_dots))
        zeros = zero_tangents(self.out_aval)
        return out, merge_leaves(moves, forward_only(dots), zeros)

    def lin(self, nonzeros, *args):
        return self(*args), args, self.moving(nonzeros, args)

    @property
    def linear(self) -> Mask:
        """The mask of the leaves of the arguments in which the outputs are linear."""
        return (False,) * len(self.in_avals_flat)

    def transpose(self, bars, *args):
        unknown, args_or_zeros = unknown_leaves(args)
        if any(out and not linear for out, linear in zip(unknown, self.linear, strict=True)):
            raise NotImplementedError(
                "The gradient of a chain with a schedule is linear in its cotangents alone, and "
                "jax.linear_transpose is asked for another argument: hold that one fixed, or give the chain "
                "schedule=StoreAll()."
            )
        accumulate(args, self.pullback(unknown, args_or_zeros, bars))

    def batch(self, axis, args, dims):
        out_dims = self.out_dims(axis, dims)
        return _BatchedLoop(self, axis, args, dims, out_dims)(*args), out_dims


class _BatchedLoop(LoopPrimitive):
    """A batch of such a primitive."""

    one: LoopPrimitive
    axis: Any
    dims: tuple
    dims_out: Any

    def __init__(self, one: LoopPrimitive, axis, args: tuple, dims: tuple, dims_out):
        super().__init__(one.effects, args, one=one, axis=axis, dims=dims, dims_out=dims_out)

    @property
    def varied(self) -> Mask:
        return self.one.varied

    def expand(self, *args):
        return over_axis(self.axis)(self.one.expand, self.dims, self.dims_out)(*args)

    def smooth(self, *args):
        return over_axis(self.axis)(self.one.smooth, self.dims, self.dims_out)(*args)

    @property
    def in_kernels(self) -> bool:
        return self.one.in_kernels

    def jvp(self, primals, tangents):
        """Return the outputs and their tangents, in kernels by the rule of each member."""
        if not self.in_kernels:
            return super().jvp(primals, tangents)
        given = leaves_or_zeros(tangents)
        nonzero = tuple(not is_zero(dot) for dot in given)
        found = []

        def one(primals, *dots):
            dots = merge_leaves(nonzero, dots, zero_tangents(self.one.in_avals))
            out, out_dots = self.one.jvp(primals, dots)
            found.append(tuple(not is_zero(dot) for dot in leaves_or_zeros(out_dots)))
            return out, pick(found[-1], leaves_or_zeros(out_dots))

        over_batch, args = over_axis(self.axis), (primals, *pick(nonzero, given))
        own = pick(nonzero, jax.tree.leaves(self.dims, is_leaf=_is_none))
        jax.eval_shape(over_batch(one, (self.dims, *own)), *args)
        moves = found[-1]
        dims = pick(moves, jax.tree.leaves(self.dims_out, is_leaf=_is_none))
        out, dots = over_batch(one, (self.dims, *own), (self.dims_out, dims))(*args)
        zeros = zero_tangents(self.out_aval)
        return out, merge_leaves(moves, dots, zeros)

    @property
    def linear(self) -> Mask:
        return self.one.linear

    def moving(self, nonzeros, args):
        found = []

        def one(*args):
            found.append(self.one.moving(nonzeros, args))
            return jnp.zeros(())

        jax.eval_shape(over_axis(self.axis)(one, self.dims), *args)
        return found[-1]

    def pullback(self, varied, args, bars):
        """Pull back each member; the cotangents of values that members share are added up.

        Only the first member pulls back an output that all share.
        """

        def by_the_first(dim, bar):
            if dim is not None or bar.dtype == jax.dtypes.float0:
                return bar
            return jnp.zeros((size, *bar.shape), bar.dtype).at[0].set(bar)

        def one(args, bars):
            bars = merge_leaves(arrived, bars, zero_cotangents(self.one.out_aval))
            return instantiated(self.one.pullback(varied, args, bars))

        size, bars = self.axis.size, leaves_or_zeros(bars)
        arrived = tuple(not is_zero(bar) for bar in bars)
        dims_out = jax.tree.leaves(self.dims_out, is_leaf=_is_none)
        bars = [*map(by_the_first, pick(arrived, dims_out), pick(arrived, bars))]
        own = [None if bar.dtype == jax.dtypes.float0 else 0 for bar in bars]
        found = over_axis(self.axis)(one, (self.dims, own))(args, bars)
        dims = pick(varied, jax.tree.leaves(self.dims, is_leaf=_is_none))
        pairs = zip(found, dims, strict=True)
        return tuple(bar.sum(0) if dim is None else jnp.moveaxis(bar, 0, dim) for bar, dim in pairs)

    def out_dims(self, axis, dims: tuple):
        """Return the output axes of one member, shifted by its own batch axis."""
        of_one = jax.tree.map(_without, dims, self.dims, is_leaf=_is_none)
        return jax.tree.map(
            _behind, self.one.out_dims(axis, of_one), self.dims_out, is_leaf=_is_none
        )


def forward_only(dots) -> tuple:
    """Return tangents of a `LoopPrimitive` whose transposition raises an error with a remedy."""
    return _ForwardOnly(tuple(dots))(*dots)


class _ForwardOnly(Primitive):
    """The identity on tangents of a `LoopPrimitive`, which cannot be transposed."""

    def __init__(self, dots: tuple):
        super().__init__(frozenset(), dots)

    def expand(self, *dots):
        return dots

    def jvp(self, dots, dots_of_dots):
        return self(*dots), self(*instantiated(dots_of_dots))

    def lin(self, nonzeros, *dots):
        del nonzeros
        return self(*dots), ()

    def linearized(self, _, *dots):
        return self(*instantiated(dots))

    def vjp_fwd(self, nonzeros, /, *dots):
        raise NotImplementedError(_ORDERS)

    def transpose(self, bars, *accumulators):
        raise NotImplementedError(_ORDERS)

    def batch(self, axis, dots, dims):
        del axis
        pairs = zip(dots, dims, strict=True)
        front = tuple(jnp.moveaxis(dot, dim, 0) if dim else dot for dot, dim in pairs)
        return _ForwardOnly(front)(*front), tuple(None if dim is None else 0 for dim in dims)


_ORDERS = (
    "Cannot reverse-differentiate a JVP (or a jax.checkpoint) of the gradient of a scheduled scan. Take "
    "forward mode last (jax.jvp of jax.grad of jax.grad), remove the jax.checkpoint, which a schedule makes "
    "needless, or give the chain schedule=StoreAll()."
)


def _without(dim: int | None, removed: int | None) -> int | None:
    """Return the index of an axis after another is removed."""
    return dim if dim is None or removed is None else dim - (removed < dim)


def _behind(dim: int | None, first: int | None) -> int | None:
    """Return the index of a leading axis after another is put before it."""
    return dim if dim is None or first is None else dim + 1


def _is_none(leaf) -> bool:
    return leaf is None


def unknown_leaves(args):
    """Return the mask of the leaves to transpose, and the arguments with zeros in place of those."""
    leaves, structure = jax.tree.flatten(args)
    unknown = tuple(hasattr(leaf, "accum") for leaf in leaves)
    zeros = (zeros_like_aval(leaf.aval) for leaf in pick(unknown, leaves))
    return unknown, jax.tree.unflatten(structure, merge(unknown, tuple(zeros), leaves))


def accumulate(args, bars) -> None:
    """Add cotangents to the leaves that a transposition asks for, in order."""
    asked = [leaf for leaf in jax.tree.leaves(args) if hasattr(leaf, "accum")]
    for accumulator, bar in zip(asked, bars, strict=True):
        if not is_zero(bar):
            accumulator.accum(bar)


def _linearize_with_zeros(is_vjp, nonzeros, *args, _prim):
    """Return the result of JAX's rule, with `Zero` for outputs without a tangent; JAX 0.10 returns arrays."""
    out, moving, *residuals, linearized = linearize_hi_primitive(
        is_vjp, nonzeros, *args, _prim=_prim
    )
    if not isinstance(_prim, Primitive):
        return out, moving, *residuals, linearized

    def dots(*args):
        zeros = (Zero(aval.to_tangent_aval()) for aval in _prim.out_avals_flat)
        found = zip(moving, linearized(*args), zeros, strict=True)
        return [instantiate_zeros(dot) if moves else zero for moves, dot, zero in found]

    return out, moving, *residuals, dots


replace_linearization_rule(_linearize_with_zeros)
