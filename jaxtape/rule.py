"""How JAX differentiates a chain: the sweeps as rules of a primitive.

`jax.custom_vjp` refuses forward mode, so a chain is a primitive of its own, `Sweep`. The batched
chain is the chain of the batched step, the dual chain is the chain of the dual step, and both keep
the table. `Tangent`, the derivative as a linear map, has a transpose of its own, so that the
schedule also holds where JAX takes forward mode first and transposes it (`jax.checkpoint`).
"""

import dataclasses
import functools
from collections.abc import Callable
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.hijax import VJPHiPrimitive, Zero, instantiate_zeros

from .chain import Arrays, Chain, Condition
from .footprint import reversible
from .masks import Active, Mask, inexact, merge, pick
from .needed import needed_state
from .rows import Rows
from .sweeps import Sweeps


def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """The chain's last state and ys, differentiated as its schedule says."""
    return Sweep(chain, arrays)(*arrays)


class Sweep(VJPHiPrimitive):
    """`(consts, init, xs) -> (state, ys)` of a chain."""

    chain: Chain

    def __init__(self, chain: Chain, arrays: Arrays):
        self.in_avals = _avals(tuple(arrays))
        self.out_aval = _out_avals(Sweeps.of(chain).run, *arrays)
        self.params = {"chain": chain}
        self.effects = chain.jaxpr.effects
        super().__init__()

    def expand(self, *arrays):
        return Sweeps.of(self.chain).run(*arrays)

    def vjp_fwd(self, nonzeros, /, *arrays):
        arrays = Arrays(*arrays)
        active = self._active(nonzeros)
        needed = needed_state(self.chain, active, arrays)
        chain = reversible(self.chain, active, needed, arrays)
        state, ys, kept = Sweeps.of(chain).first(chain, needed, arrays)
        return (state, ys), (arrays, kept, _Static((chain, active, needed)))

    def vjp_bwd_retval(self, saved, bars, /):
        arrays, kept, static = saved
        chain, active, needed = static.value
        state_bar, ys_bar = bars
        in_use = tuple(not _is_zero(bar) for bar in ys_bar)
        active = active._replace(ys=tuple(a and b for a, b in zip(active.ys, in_use, strict=True)))
        bars = _instantiate((pick(active.state, state_bar), pick(active.ys, ys_bar)))
        out = Sweeps.of(chain).reverse(chain, active, needed, arrays, kept, *bars)
        return tuple(map(merge, active.inputs, out, _zero_cotangents(self.in_avals)))

    def jvp(self, arrays, tangents):
        return self(*arrays), self._tangent(arrays, tangents)

    def lin(self, nonzeros, *arrays):
        del nonzeros
        return self(*arrays), arrays

    def linearized(self, arrays, *tangents):
        return _instantiate(self._tangent(arrays, tangents))

    def _tangent(self, arrays, tangents):
        active = self._active([[not _is_zero(t) for t in part] for part in tangents])
        dots = _instantiate(tuple(map(pick, active.inputs, tangents)))
        out = Tangent(self.chain, active, arrays, dots)(arrays, dots)
        zeros = jax.tree.map(lambda aval: Zero(aval.to_tangent_aval()), self.out_aval)
        return tuple(map(merge, (active.state, active.ys), out, zeros))

    def batch(self, axis, arrays, dims):
        if not _any_batched(dims):
            return self(*arrays), _out_dims(self, None, None)
        chain, arrays = _batch(self.chain, axis, arrays, dims)
        return Sweep(chain, arrays)(*arrays), _out_dims(self, 0, 1)

    def _active(self, nonzeros) -> Active:
        """Every inexact leaf of the state and of ys; of the inputs only those perturbed."""
        (state, ys), (consts, _, xs) = self.out_aval, nonzeros
        return Active(tuple(consts), inexact(state), tuple(xs), inexact(ys))


class Tangent(VJPHiPrimitive):
    """`(arrays, dots) -> (state_dot, ys_dot)` of a chain, linear in `dots`; active leaves only."""

    chain: Chain
    active: Active

    def __init__(self, chain: Chain, active: Active, arrays: tuple, dots: tuple):
        self.chain, self.active = chain, active
        self.in_avals = _avals((arrays, dots))
        self.out_aval = _out_avals(self.expand, arrays, dots)
        self.params = {"chain": chain, "active": active}
        self.effects = chain.jaxpr.effects
        super().__init__()

    def expand(self, arrays, dots):
        dual, arrays = self._dual(arrays, dots)
        return self._dots(Sweeps.of(dual).run(*arrays))

    def transpose(self, bars, arrays, accumulators):
        arrays = Arrays(*arrays)
        needed = needed_state(self.chain, self.active, arrays)
        chain = reversible(self.chain, self.active, needed, arrays)
        sweeps = Sweeps.of(chain)
        *_, kept = sweeps.first(chain, needed, arrays)
        bars = _instantiate(bars)
        out = sweeps.reverse(chain, self.active, needed, arrays, kept, *bars)
        for accumulator, bar in zip(
            jax.tree.leaves(accumulators), jax.tree.leaves(tuple(out)), strict=True
        ):
            if hasattr(accumulator, "accum"):  # a tangent that is known is an array instead
                accumulator.accum(bar)

    def jvp(self, primals, tangents):
        tangents = jax.tree.leaves(tangents, is_leaf=_is_zero)
        moving = tuple(not _is_zero(t) for t in tangents)
        swept, picked = self._moving(moving, primals)
        return jax.jvp(swept, picked, pick(moving, tangents))

    def lin(self, nonzeros, *primals):
        del nonzeros
        return self(*primals), primals

    def linearized(self, primals, *tangents):
        return _instantiate(self.jvp(primals, tangents)[1])

    def vjp_fwd(self, nonzeros, /, *primals):
        moving = tuple(jax.tree.leaves(nonzeros))
        swept, picked = self._moving(moving, primals)
        out, pullback = jax.vjp(swept, *picked)
        return out, (pullback, _Static(moving))

    def vjp_bwd_retval(self, saved, bars, /):
        pullback, moving = saved
        leaves, tree = jax.tree.flatten(_zero_cotangents(self.in_avals), is_leaf=_is_zero)
        return jax.tree.unflatten(tree, merge(moving.value, pullback(_instantiate(bars)), leaves))

    def batch(self, axis, args, dims):
        if not _any_batched(dims):
            return self(*args), _out_dims(self, None, None)
        (arrays, dots), (dims, dots_dims) = args, dims
        chain, arrays = _batch(self.chain, axis, arrays, dims, self.active)
        everything = [(True,) * len(part) for part in dots]
        dots = _move(dots, dots_dims, everything, axis.size)
        return Tangent(chain, self.active, arrays, dots)(arrays, dots), _out_dims(self, 0, 1)

    def _moving(self, moving: Mask, primals):
        """The dual chain, under its schedule, as a function of the moving leaves alone."""
        leaves, tree = jax.tree.flatten(primals)

        def swept(*picked):
            arrays, dots = jax.tree.unflatten(tree, merge(moving, picked, leaves))
            return self._dots(run(*self._dual(arrays, dots)))

        return swept, pick(moving, leaves)

    def _dual(self, arrays: tuple, dots: tuple) -> tuple[Chain, Arrays]:
        """The chain whose state carries its own tangent, and whose ys are tangents alone."""
        counts, active = tuple(map(len, arrays)), self.active

        def step(*joined):
            parts = [part[:n] for part, n in zip(joined, counts, strict=True)]
            moving = [part[n:] for part, n in zip(joined, counts, strict=True)]

            def primal(*picked):
                state, y = self.chain.step(*map(merge, active.inputs, picked, parts))
                return (pick(active.state, state), pick(active.ys, y)), state

            picked = tuple(map(pick, active.inputs, parts))
            _, (state_dot, y_dot), state = jax.jvp(primal, picked, tuple(moving), has_aux=True)
            return state + state_dot, y_dot

        joined = Arrays(*(part + dot for part, dot in zip(arrays, dots, strict=True)))
        return self.chain.derive(step, joined), joined

    def _dots(self, out: tuple) -> tuple[tuple, tuple]:
        state, ys = out
        return state[self.chain.num_state :], ys


def _batch(chain: Chain, axis, arrays: tuple, dims: tuple, force: Active | None = None):
    """The chain of the batched step: consts and state batched along axis 0, `xs` along axis 1.

    A shared or per-node leaf that is not batched stays so, unless `force` selects it.
    """
    batched = [tuple(d is not None for d in part) for part in dims]
    if force is not None:
        batched = [tuple(map(or_, *pair)) for pair in zip(batched, force.inputs, strict=True)]
    batched[1] = (True,) * len(batched[1])
    moved = map(merge, batched, _move(arrays, dims, batched, axis.size), arrays)
    arrays = Arrays(*moved)
    if chain.is_edited and any(batched[0][: len(Rows._fields)]):
        raise ValueError(
            "A batch of edited tapes must share their edits: batch their params alone, with "
            "jax.vmap(..., in_axes=...) None for `rows`."
        )
    axes = tuple(tuple(0 if b else None for b in part) for part in batched)
    over_batch = functools.partial(
        jax.vmap,
        axis_size=axis.size,
        axis_name=axis.name,
        spmd_axis_name=axis.spmd_name or axis.explicit_mesh_axis,
    )
    if chain.condition is None:
        return chain.derive(over_batch(chain.step, in_axes=axes), arrays), arrays
    goes_on = over_batch(chain.goes_on, in_axes=axes[:2])
    any_goes_on = lambda consts, state: jnp.any(goes_on(consts, state))  # noqa: E731
    step = over_batch(chain.step, in_axes=axes)

    def guarded(consts, state, x):
        """Members that have stopped stand still, and step from where one that goes on is: their own
        state may be where the step has no derivative."""
        live = goes_on(consts, state)
        of_live = lambda leaf: jnp.where(_along(live, leaf), leaf, leaf[jnp.argmax(live)])  # noqa: E731
        lent = tuple(of_live(c) if b else c for c, b in zip(consts, batched[0], strict=True))
        moved, y = step(lent, tuple(map(of_live, state)), x)
        still = zip(moved, state, strict=True)
        return tuple(jnp.where(_along(live, new), new, old) for new, old in still), y

    chain = dataclasses.replace(
        chain.derive(guarded, arrays),
        condition=Condition.of(any_goes_on, arrays.consts, arrays.init),
    )
    return chain, arrays


def _along(live, leaf):
    """A flag for each of a batch, for `jnp.where` with a leaf whose first axis is the batch."""
    return live.reshape(live.shape + (1,) * (leaf.ndim - 1))


def _move(parts: tuple, dims: tuple, masks: list, size: int) -> tuple:
    """The selected leaves of consts, init and xs, each with its batch axis where a chain wants it.

    A leaf without a batch axis is given one.
    """

    def move(leaf, dim, to):
        if dim is not None:
            return jnp.moveaxis(leaf, dim, to)
        leaf = jnp.expand_dims(leaf, to)
        return jnp.broadcast_to(leaf, (*leaf.shape[:to], size, *leaf.shape[to + 1 :]))

    return tuple(
        tuple(move(leaf, dim, to) for leaf, dim in zip(pick(m, part), pick(m, d), strict=True))
        for part, d, m, to in zip(parts, dims, masks, (0, 0, 1), strict=True)
    )


def _any_batched(dims) -> bool:
    return any(dim is not None for dim in jax.tree.leaves(dims, is_leaf=lambda dim: dim is None))


def _out_dims(primitive: VJPHiPrimitive, state_dim: int | None, ys_dim: int | None) -> tuple:
    """Where the batch axis of the outputs is."""
    state, ys = primitive.out_aval
    return (state_dim,) * len(state), (ys_dim,) * len(ys)


def _avals(tree):
    return jax.tree.map(jax.typeof, tree)


def _out_avals(f: Callable, *args):
    """The types that `f(*args)` returns, as primitives want them."""
    jaxpr, out = jax.make_jaxpr(f, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(out), jaxpr.out_avals)


def _is_zero(leaf) -> bool:
    return isinstance(leaf, Zero)


def _instantiate(tree):
    """Symbolic zeros made arrays."""
    return jax.tree.map(instantiate_zeros, tree, is_leaf=_is_zero)


def _zero_cotangents(avals):
    return jax.tree.map(lambda aval: Zero(aval.to_ct_aval()), avals)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Static:
    """A hashable value among the saved arrays."""

    value: Any
