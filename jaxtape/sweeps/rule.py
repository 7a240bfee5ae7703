"""Differentiate a chain with JAX: the sweeps as rules of primitives.

`jax.custom_vjp` refuses forward mode, so a chain is a primitive of its own, `Sweep`. The batched
chain is the chain of the batched step, the dual chain is the chain of the dual step, and both keep
the table. `Tangent`, the derivative as a linear map, has a transpose of its own, so that the
schedule also holds where JAX takes forward mode first and transposes it (`jax.checkpoint`).

The two sweeps of a gradient, `FirstSweep` and `ReverseSweep`, are primitives too, so that reverse mode can be
taken once more: a reverse sweep is linear in the cotangents that it pulls back, so its own pullback pushes
tangents forward, and reverse over reverse is reverse over forward, of the dual chain under the same schedule.
"""

import dataclasses
from operator import and_

import jax

from ..jax_private import (
    Zero,
    instantiate_zeros,
    linearize_hi_primitive,
    replace_linearization_rule,
)
from .chain import Active, Arrays, Chain
from .dependence import active_leaves, linear_leaves
from .differentiable import refuse_stuck
from .footprint import stored_pullback, stored_within
from .leaves import (
    Mask,
    Static,
    as_array,
    avals,
    inexact,
    instantiated,
    is_zero,
    leaves_or_zeros,
    merge,
    merge_leaves,
    pick,
    zero_cotangents,
)
from .prepare import prepare_for_reverse
from .primitive import (
    LoopPrimitive,
    Primitive,
    accumulate,
    unknown_leaves,
)
from .vmap import batch_chain, batched_outputs, is_batched, with_axes


def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """Run a chain: return the last state and ys, differentiated by its schedule."""
    return Sweep(chain, arrays)(*arrays)


class Sweep(Primitive):
    """`(consts, init, xs) -> (state, ys)` of a chain."""

    chain: Chain

    def __init__(self, chain: Chain, arrays: Arrays):
        super().__init__(chain.jaxpr.effects, tuple(arrays), chain=chain)

    def expand(self, *arrays):
        return self.chain.run(Arrays(*arrays))

    def vjp_fwd(self, nonzeros, /, *arrays):
        arrays = _as_arrays(arrays)
        active = active_leaves(self.chain, arrays, nonzeros)
        if stored := self.chain.executor.residuals and stored_within(self.chain, active, arrays):
            out, pullback = stored_pullback(self.chain, active, arrays, stored[0])
            return out, (pullback, None, Static((None, active))), (active.state, active.ys)
        first = FirstSweep(self.chain, active, arrays)
        state, ys, kept = first(arrays)
        saved = arrays, kept, Static((first, active))
        return (state, ys), saved, (active.state, active.ys)

    def vjp_bwd_retval(self, saved, bars, /):
        arrays, kept, static = saved
        first, active = static.value
        bars = tuple(map(pick, (active.state, active.ys), bars))
        if first is None:  # `arrays` is the pullback of what `lax.scan` keeps
            out = arrays(instantiated(bars))
            return tuple(map(merge, active.inputs, out, zero_cotangents(self.in_avals)))
        return _pulled_back(first, active, arrays, kept, bars)

    def transpose(self, bars, *parts):
        """Pull the cotangents of a chain that is linear in some leaves back, as a gradient does."""
        arrays = _as_arrays(unknown_leaves(parts)[1])
        linear = tuple(unknown_leaves(part)[0] for part in parts)
        active = linear_leaves(self.chain, arrays, linear)
        first = FirstSweep(self.chain, active, arrays)
        bars = tuple(map(pick, (active.state, active.ys), bars))
        out = _pulled_back(first, active, arrays, first(arrays)[-1], bars)
        accumulate(parts, [bar for pair in zip(linear, out, strict=True) for bar in pick(*pair)])

    def jvp(self, arrays, tangents):
        return self(*arrays), self._tangent(arrays, tangents)

    def lin(self, nonzeros, *arrays):
        active = active_leaves(self.chain, _as_arrays(arrays), nonzeros)
        return self(*arrays), arrays, (active.state, active.ys)

    def linearized(self, arrays, *tangents):
        return instantiated(self._tangent(arrays, tangents))

    def _tangent(self, arrays, tangents):
        nonzeros = tuple(tuple(not is_zero(t) for t in part) for part in tangents)
        active = active_leaves(self.chain, _as_arrays(arrays), nonzeros)
        dots = instantiated(tuple(map(pick, active.inputs, tangents)))
        out = Tangent(self.chain, active, arrays, dots)(arrays, dots)
        zeros = jax.tree.map(lambda aval: Zero(aval.to_tangent_aval()), self.out_aval)
        return tuple(map(merge, (active.state, active.ys), out, zeros))

    def batch(self, axis, arrays, dims):
        if not is_batched(self.chain, axis, dims):
            return self(*arrays), _out_dims(self.out_aval, None, None)
        chain, arrays, batched = batch_chain(self.chain, axis, arrays, dims)
        return Sweep(chain, arrays)(*arrays), _out_dims((batched.state, batched.ys), 0, 1)


class Tangent(Primitive):
    """`(arrays, dots) -> (state_dot, ys_dot)` of a chain, linear in `dots`; active leaves only."""

    chain: Chain
    active: Active

    def __init__(self, chain: Chain, active: Active, *args):
        super().__init__(chain.jaxpr.effects, args, chain=chain, active=active)

    def expand(self, arrays, dots):
        dual, arrays = self._dual(arrays, dots)
        return self._dots(dual.run(arrays))

    def transpose(self, bars, arrays, accumulators):
        arrays = _as_arrays(arrays)
        first = FirstSweep(self.chain, self.active, arrays)
        *_, kept = first(arrays)
        out = _pulled_back(first, self.active, arrays, kept, bars)
        out = tuple(map(pick, self.active.inputs, out))
        asked, _ = unknown_leaves(accumulators)  # a tangent that is known is an array
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
            return self(*args), _out_dims(self.out_aval, None, None)
        (arrays, dots), (dims, dots_dims) = args, dims
        chain, arrays, _ = batch_chain(self.chain, axis, arrays, dims, self.active)
        dots = with_axes(dots, dots_dims, axis.size)
        out = Tangent(chain, self.active, arrays, dots)(arrays, dots)
        return out, _out_dims(self.out_aval, 0, 1)

    def _moving(self, moving: Mask, primals):
        """Return the dual chain, under its schedule, as a function of the moving leaves alone."""

        def swept(*picked):
            arrays, dots = merge_leaves(moving, picked, primals)
            return self._dots(run(*self._dual(arrays, dots)))

        return swept, pick(moving, jax.tree.leaves(primals))

    def _dual(self, arrays: tuple, dots: tuple) -> tuple[Chain, Arrays]:
        """Return the chain whose state carries its own tangent, and whose ys are tangents alone."""
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


class FirstSweep(LoopPrimitive):
    """`arrays -> (state, ys, kept)`: run a chain, and keep the states that its reverse sweep needs.

    Its cotangents are the chain's own: the kept states are for a `ReverseSweep`, which has its own rule for the
    dependence of its outputs on the arrays.
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

    def moving(self, nonzeros, args):
        (arrays,) = args
        active = active_leaves(self.chain, _as_arrays(arrays), nonzeros[0])
        of_leaves = pick(self.to_reverse.needed, active.state)
        kept = self.chain.executor.kept_dims(self.out_aval[2], of_leaves, False)
        return active.state, active.ys, kept

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
        state_dims, ys_dims = _out_dims((state, ys), 0, 0)
        *_, kept = self.out_aval
        of_leaves = pick(self.to_reverse.needed, state_dims)
        dims = self.chain.executor.kept_dims(kept, of_leaves, 0 if apart else None)
        return state_dims, ys_dims, dims


class ReverseSweep(LoopPrimitive):
    """`(arrays, kept, bars) -> (consts_bar, init_bar, xs_bar)` of a chain; active leaves only."""

    first: FirstSweep
    active: Active

    def __init__(self, first: FirstSweep, active: Active, *args):
        super().__init__(first.effects, args, first=first, active=active)

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
        """Return the cotangents of the outputs as tangents of the arrays, without any that are 0."""
        in_use = [tuple(not is_zero(bar) for bar in part) for part in bars]
        in_use[1] = (True,) * len(in_use[1])
        consts, _, xs = map(merge, self.active.inputs, in_use, self.active.inputs)
        dots = instantiated(tuple(map(pick, in_use, bars)))
        return self.active._replace(consts=consts, xs=xs), dots

    def out_dims(self, axis, dims):
        batched = is_batched(self.first.chain, axis, dims)
        return jax.tree.map(lambda _: 0 if batched else None, self.out_aval)


def _pulled_back(first: FirstSweep, active: Active, arrays: Arrays, kept, bars: tuple) -> tuple:
    """Pull back the cotangents of the active outputs of a chain, without those that are 0.

    Returns those of all the arrays, `Zero` where there is none.
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


def _as_arrays(parts: tuple) -> Arrays:
    """Return the arrays of a chain; JAX passes Python's scalars to rules unconverted."""
    return Arrays(*jax.tree.map(as_array, parts))


def _out_dims(parts, state_dim: int | None, ys_dim: int | None) -> tuple:
    """Return the batch axis of the leaves of the state and of ys: None at a leaf that is the flag False."""
    pairs = zip(parts, (state_dim, ys_dim), strict=True)
    return tuple(tuple(None if leaf is False else dim for leaf in part) for part, dim in pairs)


def _linearize_with_zeros(is_vjp, nonzeros, *args, _prim):
    """Return the result of JAX's rule, with `Zero` for each output without a tangent; JAX 0.10 makes arrays."""
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
