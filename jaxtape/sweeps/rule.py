"""Differentiate a chain with JAX: the sweeps as rules of primitives.

`jax.custom_vjp` refuses forward mode, so a chain is a primitive, `Sweep`. The batched chain is the chain of the
batched step, the dual chain is the chain of the dual step, and both keep the table. `Tangent`, the derivative
as a linear map, has its own transpose, so the schedule also applies when JAX takes forward mode first and
transposes it (`jax.checkpoint`).

The two sweeps of a gradient, `FirstSweep` and `ReverseSweep`, are primitives too, so that reverse mode can be
applied again: a reverse sweep is linear in the cotangents that it pulls back, so its own pullback pushes
tangents forward, and reverse over reverse becomes reverse over forward, of the dual chain under the same
schedule.
"""

import dataclasses
import functools
from operator import and_
from typing import Any

import jax

from .chain import Active, Arrays, Chain
from .dependence import active_leaves, linear_leaves
from .differentiable import refuse_stuck
from .dual import (
    along_directions,
    as_arrays,
    cotangents_of_dual,
    dual_chain,
    moving_leaves,
    out_dims_of,
)
from .kernel_executor import has_kernel
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
    pick,
    zero_cotangents,
    zero_tangents,
)
from .prepare import prepare_for_reverse
from .primitive import (
    LoopPrimitive,
    Primitive,
    accumulate,
    forward_only,
    unknown_leaves,
)
from .vmap import batch_chain, batched_outputs, is_batched, with_axes


def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """Run a chain, differentiable by its schedule; return the last state and ys."""
    return Sweep(chain, arrays)(*arrays)


class Sweep(Primitive):
    """`(consts, init, xs) -> (state, ys)` of a chain."""

    chain: Chain

    def __init__(self, chain: Chain, arrays: Arrays):
        super().__init__(chain.jaxpr.effects, tuple(arrays), chain=chain)

    def expand(self, *arrays):
        return self.chain.run(Arrays(*arrays))

    def vjp_fwd(self, nonzeros, /, *arrays):
        arrays = as_arrays(arrays)
        active = active_leaves(self.chain, arrays, nonzeros)
        first = FirstSweep(self.chain, active, arrays)
        state, ys, kept = first(arrays)
        saved = arrays, kept, Static((first, active))
        return (state, ys), saved, (active.state, active.ys)

    def vjp_bwd_retval(self, saved, bars, /):
        arrays, kept, static = saved
        first, active = static.value
        bars = tuple(map(pick, (active.state, active.ys), bars))
        return _pulled_back(first, active, arrays, kept, bars)

    def transpose(self, bars, *parts):
        """Pull back the cotangents of a chain that is linear in some leaves, as a gradient does."""
        arrays = as_arrays(unknown_leaves(parts)[1])
        linear = tuple(unknown_leaves(part)[0] for part in parts)
        active = linear_leaves(self.chain, arrays, linear)
        first = FirstSweep(self.chain, active, arrays)
        bars = tuple(map(pick, (active.state, active.ys), bars))
        out = _pulled_back(first, active, arrays, first(arrays)[-1], bars)
        accumulate(parts, [bar for pair in zip(linear, out, strict=True) for bar in pick(*pair)])

    def jvp(self, arrays, tangents):
        return self(*arrays), self._tangent(arrays, tangents)

    def lin(self, nonzeros, *arrays):
        active = active_leaves(self.chain, as_arrays(arrays), nonzeros)
        return self(*arrays), arrays, (active.state, active.ys)

    def linearized(self, arrays, *tangents):
        return instantiated(self._tangent(arrays, tangents))

    def _tangent(self, arrays, tangents):
        return tangent_of(self.chain, self.out_aval, arrays, tangents)

    def batch(self, axis, arrays, dims):
        if not is_batched(self.chain, axis, dims):
            return self(*arrays), out_dims_of(self.out_aval, None, None)
        chain, arrays, batched = batch_chain(self.chain, axis, arrays, dims)
        return Sweep(chain, arrays)(*arrays), out_dims_of((batched.state, batched.ys), 0, 1)


def tangent_of(chain: Chain, out_aval: tuple, arrays: tuple, tangents: tuple) -> tuple:
    """Return the tangents of the last state and of ys, with these types; `Zero` where there is none."""
    active, dots = moving_leaves(chain, arrays, tangents)
    out = Tangent(chain, active, arrays, dots)(arrays, dots)
    zeros = zero_tangents(out_aval)
    return tuple(map(merge, (active.state, active.ys), out, zeros))


class Tangent(Primitive):
    """`(arrays, dots) -> (state_dot, ys_dot)` of a chain, linear in `dots`; active leaves only."""

    chain: Chain
    active: Active

    def __init__(self, chain: Chain, active: Active, *args, **params):
        super().__init__(chain.jaxpr.effects, args, chain=chain, active=active, **params)

    def expand(self, arrays, dots):
        dual, arrays = dual_chain(self.chain, self.active, arrays, dots)
        return self._dots(dual.run(arrays))

    def transpose(self, bars, arrays, accumulators):
        arrays = as_arrays(arrays)
        first = FirstSweep(self.chain, self.active, arrays)
        *_, kept = first(arrays)
        out = _pulled_back(first, self.active, arrays, kept, bars)
        out = tuple(map(pick, self.active.inputs, out))
        asked, _ = unknown_leaves(accumulators)  # a known tangent is an array
        accumulate(accumulators, pick(asked, leaves_or_zeros(out)))

    def jvp(self, primals, tangents):
        tangents = leaves_or_zeros(tangents)
        moving = tuple(not is_zero(t) for t in tangents)
        swept, picked = self._moving(moving, primals)
        return jax.jvp(swept, picked, pick(moving, tangents))

    def lin(self, nonzeros, *primals):
        return self(*primals), primals, any(jax.tree.leaves(nonzeros))

    def vjp_fwd(self, nonzeros, /, *primals):
        moving = tuple(jax.tree.leaves(nonzeros))
        swept, picked = self._moving(moving, primals)
        out, pullback = jax.vjp(swept, *picked)
        return out, (pullback, Static(moving)), any(moving)

    def vjp_bwd_retval(self, saved, bars, /):
        pullback, moving = saved
        bars = pullback(instantiated(bars))
        return merge_leaves(moving.value, bars, zero_cotangents(self.in_avals))

    def batch(self, axis, args, dims):
        if not is_batched(self.chain, axis, dims):
            return self(*args), out_dims_of(self.out_aval, None, None)
        (arrays, dots), (dims, dots_dims) = args, dims
        is_one = all(dim is None for dim in jax.tree.leaves(dims, is_leaf=lambda x: x is None))
        chain, arrays, batched = batch_chain(self.chain, axis, arrays, dims, self.active)
        dots = with_axes(dots, dots_dims, axis.size)
        make = Tangent
        if is_one and type(self) is Tangent and self.chain.condition is None:
            make = functools.partial(TangentsOfOne, one=self.chain, axis=axis, spread=batched)
        out = make(chain, self.active, arrays, dots)(arrays, dots)
        return out, out_dims_of(self.out_aval, 0, 1)

    def _moving(self, moving: Mask, primals):
        """Return the dual chain, under its schedule, as a function of the moving leaves only."""

        def swept(*picked):
            arrays, dots = merge_leaves(moving, picked, primals)
            return self._dots(run(*dual_chain(self.chain, self.active, arrays, dots)))

        return swept, pick(moving, jax.tree.leaves(primals))

    def _dots(self, out: tuple) -> tuple[tuple, tuple]:
        state, ys = out
        return state[self.chain.num_state :], ys


class TangentsOfOne(Tangent):
    """The tangents of one chain along several directions, as those of a batch of equal chains.

    It computes the chain once with all of its tangents; its rules are those of the batch.
    """

    one: Chain
    axis: Any
    spread: Active

    def expand(self, arrays, dots):
        of_batch = self.axis, self.spread, arrays, dots
        return along_directions(self.one, self.active, *of_batch)[1]


class FirstSweep(LoopPrimitive):
    """`arrays -> (state, ys, kept)`: run a chain, and keep the states that its reverse sweep needs.

    Its cotangents are those of the chain: the kept states are for a `ReverseSweep`, whose own rule covers the
    dependence of its outputs on the arrays. In kernels, its tangents are those of the chain for the same
    reason.
    """

    chain: Chain
    to_reverse: Chain
    pulled: Active

    def __init__(self, chain: Chain, active: Active, arrays: Arrays):
        to_reverse, pulled = prepare_for_reverse(chain, active, arrays)
        params = {"chain": chain, "to_reverse": to_reverse, "pulled": pulled}
        super().__init__(chain.jaxpr.effects, (arrays,), **params)

    def expand(self, arrays):
        return self.to_reverse.first_sweep(arrays)

    def smooth(self, arrays):
        return dataclasses.replace(self.to_reverse, in_bits=False).first_sweep(arrays)

    @functools.cached_property
    def in_kernels(self) -> bool:
        """Whether both sweeps run in kernels on all platforms of the program."""
        (types,) = self.in_avals
        has_kernels = getattr(self.to_reverse.executor, "kernels", False)
        return has_kernels and has_kernel(self.to_reverse, tuple(types))

    def jvp(self, primals, tangents):
        if not self.in_kernels:
            return super().jvp(primals, tangents)
        (arrays,), (dots,) = primals, tangents
        kept = zero_tangents(self.out_aval[2])
        out = self.out_aval[:2]
        return self(arrays), (*tangent_of(self.chain, out, arrays, dots), kept)

    def moving(self, nonzeros, args):
        (arrays,) = args
        active = active_leaves(self.chain, as_arrays(arrays), nonzeros[0])
        of_leaves = pick(self.to_reverse.needed, active.state)
        kept = self.to_reverse.executor.kept_dims(self.out_aval[2], of_leaves, False, True)
        moves = lambda moving, aval: moving and inexact([aval])[0]
        return active.state, active.ys, jax.tree.map(moves, kept, self.out_aval[2])

    def pullback(self, varied, args, bars):
        (arrays,), (*bars, _) = args, bars
        arrived = tuple(
            tuple(
                real and not is_zero(bar) for real, bar in zip(inexact(part), of_part, strict=True)
            )
            for part, of_part in zip(self.out_aval, bars, strict=False)
        )

        def outputs(*picked):
            out = run(self.chain, merge_leaves(varied, picked, arrays))
            return tuple(map(pick, arrived, out))

        _, pullback = jax.vjp(outputs, *pick(varied, jax.tree.leaves(arrays)))
        return pullback(tuple(map(pick, arrived, bars)))

    def out_dims(self, axis, dims):
        state, ys, apart = batched_outputs(self.chain, axis, dims[0])
        state_dims, ys_dims = out_dims_of((state, ys), 0, 0)
        *_, kept = self.out_aval
        of_leaves = pick(self.to_reverse.needed, state_dims)
        steps = 0 if apart else None
        dims = self.to_reverse.executor.kept_dims(kept, of_leaves, steps, 0)
        return state_dims, ys_dims, dims


class ReverseSweep(LoopPrimitive):
    """`(arrays, kept, bars) -> (consts_bar, init_bar, xs_bar)` of a chain; active leaves only."""

    first: FirstSweep
    active: Active

    def __init__(self, first: FirstSweep, active: Active, *args):
        super().__init__(first.effects, args, first=first, active=active)

    @property
    def in_kernels(self) -> bool:
        return self.first.in_kernels

    @property
    def varied(self) -> Mask:
        arrays, kept, bars = (jax.tree.leaves(part) for part in self.in_avals)
        return inexact(arrays) + (False,) * len(kept) + (True,) * len(bars)

    @property
    def linear(self) -> Mask:
        *others, bars = (len(jax.tree.leaves(part)) for part in self.in_avals)
        return (False,) * sum(others) + (True,) * bars

    def expand(self, arrays, kept, bars):
        return self.first.to_reverse.reverse_sweep(self.active, arrays, kept, bars)

    def smooth(self, arrays, kept, bars):
        chain = dataclasses.replace(self.first.to_reverse, in_bits=False)
        return chain.reverse_sweep(self.active, arrays, kept, bars)

    def jvp(self, primals, tangents):
        """Return the cotangents `J' w` and their tangents, in kernels by a reverse sweep of the dual chain.

        The dual chain maps (x, dx) to (y, J dx). It pulls cotangents (dw, w) of these back to the tangent of
        `J' w`: `J' dw` plus the derivative of `J' w` along dx at fixed w.
        """
        if not self.in_kernels:
            return super().jvp(primals, tangents)
        (arrays, kept, bars), (dots, _, bars_dot) = primals, tangents
        if all(map(is_zero, leaves_or_zeros(dots))):
            return self(*primals), self(arrays, kept, instantiated(bars_dot))
        chain, wanted = self.first.chain, self.active
        moving, dots = moving_leaves(chain, arrays, dots)
        dual, joined = dual_chain(chain, moving, arrays, dots, with_ys=True)
        cotangents = cotangents_of_dual(wanted, moving, bars, bars_dot)
        arrived = [tuple(not (bar is None or is_zero(bar)) for bar in part) for part in cotangents]

        def outputs(*picked):
            values = map(merge, wanted.inputs, picked, arrays)
            both = (value + part[len(value) :] for value, part in zip(values, joined, strict=True))
            return tuple(map(pick, arrived, run(dual, Arrays(*both))))

        _, pullback = jax.vjp(outputs, *map(pick, wanted.inputs, arrays))
        found = Arrays(*pullback(tuple(map(pick, arrived, cotangents))))
        leaves, structure = jax.tree.flatten(found)
        return self(*primals), jax.tree.unflatten(structure, forward_only(leaves))

    def pullback(self, varied, args, bars):
        """`<w, J' v>` is `<v, J w>`: the cotangent of v is J w; the arrays receive that of the map w -> J w."""
        arrays, _, pulled = args
        active, dots = self._tangents(bars)
        leaves = jax.tree.leaves(arrays)
        of_arrays, of_pulled = varied[: len(leaves)], varied[-len(jax.tree.leaves(pulled)) :]

        def pushed(*picked):
            moved = merge_leaves(of_arrays, picked, arrays)
            return Tangent(self.first.chain, active, moved, dots)(moved, dots)

        pulled_bar, pullback = jax.vjp(pushed, *pick(of_arrays, leaves))
        return *pullback(pulled), *pick(of_pulled, jax.tree.leaves(pulled_bar))

    def _tangents(self, bars) -> tuple[Active, tuple]:
        """Return the cotangents of the outputs as tangents of the arrays, without zeros."""
        in_use = [tuple(not is_zero(bar) for bar in part) for part in bars]
        in_use[1] = (True,) * len(in_use[1])
        consts, _, xs = map(merge, self.active.inputs, in_use, self.active.inputs)
        dots = instantiated(tuple(map(pick, in_use, bars)))
        return self.active._replace(consts=consts, xs=xs), dots

    def out_dims(self, axis, dims):
        batched = is_batched(self.first.chain, axis, dims)
        return jax.tree.map(lambda _: 0 if batched else None, self.out_aval)


def _pulled_back(first: FirstSweep, active: Active, arrays: Arrays, kept, bars: tuple) -> tuple:
    """Pull back the nonzero cotangents of the active outputs of a chain.

    Returns the cotangents of all arrays, `Zero` where there is none.
    """
    outputs = active.state, active.ys
    arrived = tuple(
        merge(mask, [not is_zero(bar) for bar in part], (False,) * len(mask))
        for mask, part in zip(outputs, bars, strict=True)
    )
    if first.pulled != active:
        refuse_stuck(first.chain, active, first.pulled, arrays, arrived)
    active = first.pulled._replace(ys=tuple(map(and_, first.pulled.ys, arrived[1])))
    pulled = zip((active.state, active.ys), outputs, bars, strict=True)
    bars = instantiated(tuple(pick(pick(mask, to), part) for to, mask, part in pulled))
    out = ReverseSweep(first, active, arrays, kept, bars)(arrays, kept, bars)
    return tuple(map(merge, active.inputs, out, zero_cotangents(avals(tuple(arrays)))))
