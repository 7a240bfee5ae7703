"""A pass that makes a loop of the operations along a short axis, such as that of the sums of ys.

A kernel that held the entries of all dates would have as many operations as entries. In a loop over the axis,
a turn has one entry: sums and running sums are carried from turn to turn, and so is the entry before, which a
slice and a concatenation shift by one place. The loop is a chain, which runs in a kernel.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    dce_jaxpr,
    hi_primitive_of,
    outputs_of,
    stack_p,
)
from ..jax_private import primitives as p
from ..kernels.node import flat, variables
from ..kernels.paths import NoKernelError
from ..kernels.per_path_functions import function_on, has_dtype
from ..kernels.run import KernelRun
from ..schedules.schedule import Revolve
from . import kernel_executor
from .chain import Arrays, Chain
from .rule import Sweep
from .static_executor import StaticExecutor

_MOST_SHARED = 16  # entries of a value that all paths share and the chain computes again
_MOVES = {p.transpose_p, p.squeeze_p, p.concatenate_p, p.broadcast_in_dim_p, p.reshape_p}


def in_turns(closed: ClosedJaxpr, kind: str) -> ClosedJaxpr:
    """Return a program for a kind of accelerator whose operations along the axis of the sums of ys are a chain.

    Raises:
        NoKernelError: If there is no such axis, no sum over it, or no kernel for the chain.
    """
    closed = flat(closed)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
    sizes = {found for eqn in jaxpr.eqns if (found := _turns_and_paths(eqn, kind))}
    if len(sizes) != 1:
        raise NoKernelError("there are no sums of ys along one axis")
    axis = _Axis(jaxpr, kind, *sizes.pop())
    if not axis.sums:
        raise NoKernelError("there are no sums over the axis of ys")
    types = [v.aval for v in jaxpr.invars]
    return jax.make_jaxpr(lambda *args: axis.run(closed.consts, args))(*types)


def kernels_of_run(prim: Sweep, kind: str) -> KernelRun | None:
    """Return the kernels of a run on a kind of accelerator; None if it has none."""
    if not getattr(prim.chain.executor, "kernels", False):
        return None
    found = kernel_executor.kernels_or_reason(prim.chain, prim.in_avals, kind)
    return None if isinstance(found, str) else found


def _turns_and_paths(eqn: JaxprEqn, kind: str) -> tuple[int, int] | None:
    """Return the number of sums of ys of a run in a kernel, and of its paths; None for another equation."""
    prim = hi_primitive_of(eqn)
    kernels = kernels_of_run(prim, kind) if isinstance(prim, Sweep) else None
    if kernels is None or not kernels.layout.ys:
        return None
    turns, paths = prim.chain.length // prim.chain.sum_ys, kernels.layout.paths
    return (turns, paths) if turns not in (1, paths) else None


class _Axis:
    """The operations along an axis, which is known by its size.

    Attributes:
        jaxpr: The program, without calls.
        kind: The kind of accelerator.
        size: The size of the axis.
        paths: The number of paths.
        alike: The variables that are the same for all paths.
        delayed: The variables that hold all entries but the last of another.
        eqns: The equations of the chain, in order.
        outside: The numbers of the other equations, and of those that the chain computes again.
        behind: The numbers of the equations that read what the chain computes.
        sums: The variables that the chain computes without the axis: sums over it.
        ys: The variables with the axis that the chain computes and others read.
    """

    def __init__(self, jaxpr: Jaxpr, kind: str, size: int, paths: int):
        self.jaxpr, self.kind, self.size, self.paths = jaxpr, kind, size, paths
        self.alike, self.delayed, self.behind = set(), set(), set()
        own, later, chosen = set(), set(), set()
        for i, eqn in enumerate(jaxpr.eqns):
            read = {*variables(eqn.invars)}
            self.alike |= {v for v in eqn.outvars if self._is_alike(eqn, v)}
            is_own = not read.isdisjoint(own) or any(map(self._is_of_paths, read - self.alike))
            can_turn = self._can_turn(eqn)
            if can_turn and self._is_delay(eqn):
                self.delayed |= {*eqn.outvars}
            if can_turn and is_own and read.isdisjoint(later):
                chosen.add(i)
                made = later if self._is_sum(eqn) else own
                made |= {*eqn.outvars}
            elif not read.isdisjoint(later | own):
                self.behind.add(i)
                later |= {*eqn.outvars}
        self.outside = {*range(len(jaxpr.eqns))} - chosen
        asked = {v for i in self.outside for v in variables(jaxpr.eqns[i].invars)}
        asked |= {*variables(jaxpr.outvars)}
        delays = {i for i in chosen if not self.delayed.isdisjoint(jaxpr.eqns[i].outvars)}
        again = {i for i in delays if not asked.isdisjoint(jaxpr.eqns[i].outvars)}
        self.outside, self.behind = self.outside | again, self.behind | again
        asked |= {v for i in again for v in variables(jaxpr.eqns[i].invars)}
        ys = own & asked - self.delayed
        self.ys = [v for i in sorted(chosen) for v in jaxpr.eqns[i].outvars if v in ys]
        read = {v for i in chosen for v in variables(jaxpr.eqns[i].invars)}
        for i, eqn in reversed([*enumerate(jaxpr.eqns)]):
            if i not in chosen and not read.isdisjoint(eqn.outvars) and self._is_shared(eqn):
                chosen.add(i)
                read |= {*variables(eqn.invars)}
        self.eqns = [jaxpr.eqns[i] for i in sorted(chosen)]
        self.sums = [v for eqn in self.eqns if self._is_sum(eqn) for v in eqn.outvars]

    def run(self, consts: Sequence, args: Sequence) -> list:
        """Return the outputs of the program."""
        jaxpr = self.jaxpr
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        for is_behind in (False, True):
            if is_behind:
                known |= self._run_chain(known)
            for i, eqn in enumerate(jaxpr.eqns):
                if i in self.outside and (i in self.behind) == is_behind:
                    out = outputs_of(jaxpr, eqn, _values(eqn.invars, known))
                    known |= zip(eqn.outvars, out, strict=True)
        return _values(jaxpr.outvars, known)

    def _run_chain(self, known: dict) -> dict:
        """Return the arrays that the chain computes for others.

        Raises:
            NoKernelError: If the chain has no kernel.
        """
        made = {v for eqn in self.eqns for v in eqn.outvars}
        read = dict.fromkeys(v for eqn in self.eqns for v in variables(eqn.invars) if v not in made)
        along = [v for v in read if self._place(v) is not None]
        others = [v for v in read if self._place(v) is None]
        carrying = [eqn.outvars[0] for eqn in self.eqns if self._carries(eqn)]

        def turn(consts: Sequence, state: Sequence, x: Sequence) -> list:
            number, *carried = state
            inside, before, after = dict(zip(others, consts, strict=True)), iter(carried), []
            for v, entry in zip(along, x, strict=True):
                inside[v] = lax.expand_dims(entry, (self._axis(v),))
            for eqn in self.eqns:
                inputs, (v,) = _values(eqn.invars, inside), eqn.outvars
                if v in carrying:
                    inside[v], kept = self._carried(eqn, number, next(before), inputs)
                    after.append(kept)
                else:
                    inside[v] = self._turned(eqn, number, inputs)
            ys = (lax.squeeze(inside[v], (self._axis(v),)) for v in self.ys)
            return [number + np.int32(1), *after, *ys]

        zeros = (jnp.zeros(self._of_one(_shape(v)), _dtype(v)) for v in carrying)
        init = jnp.zeros((), jnp.int32), *zeros
        xs = tuple(jnp.moveaxis(known[v], self._axis(v), 0) for v in along)
        arrays = Arrays(tuple(known[v] for v in others), init, xs)
        closed = flat(jax.make_jaxpr(turn)(arrays.consts, init, tuple(x[0] for x in xs)))
        executor = StaticExecutor.of(Revolve(1), self.size)
        sweep = Sweep(Chain(closed, len(init), executor, reverse=False), arrays)
        if kernels_of_run(sweep, self.kind) is None:
            raise NoKernelError("the loop over the axis has no kernel")
        (_, *state), ys = sweep(*arrays)
        whole = [jnp.moveaxis(y, 0, self._axis(v)) for v, y in zip(self.ys, ys, strict=True)]
        return dict(zip((*carrying, *self.ys), (*state, *whole), strict=True))

    def _axis(self, v: Any) -> int:
        """Return the place of the axis in the shape of a variable that has it."""
        return _shape(v).index(self.size)

    def _place(self, v: Any) -> int | None:
        """Return the place of the axis in a variable's shape; None if it has none."""
        return self._axis(v) if self.size in _shape(v) else None

    def _of_one(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape with one entry on the axis."""
        return tuple(1 if n == self.size else n for n in shape)

    def _is_of_paths(self, v: Var) -> bool:
        """Return True for an array with the axis and with entries of all paths."""
        return self.paths in _shape(v) and self._place(v) is not None

    def _is_alike(self, eqn: JaxprEqn, out: Var) -> bool:
        """Return True for a result that is the same for all paths."""
        if self.paths not in _shape(out):
            return True
        of_paths = [v for v in variables(eqn.invars) if self.paths in _shape(v)]
        if not of_paths:
            return eqn.primitive is p.broadcast_in_dim_p
        moves = eqn.primitive in _MOVES or function_on(self.kind, eqn.primitive) is not None
        return moves and self.alike.issuperset(of_paths)

    def _is_shared(self, eqn: JaxprEqn) -> bool:
        """Return True for an equation on values that are alike, with few entries beside the axis."""
        avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
        if len(eqn.outvars) != 1 or not self.alike.issuperset(eqn.outvars):
            return False
        if any(self.paths in _shape(v) and v not in self.alike for v in variables(eqn.invars)):
            return False
        if not all(has_dtype(self.kind, aval.dtype) for aval in avals):
            return False
        if self._can_turn(eqn):
            return not self._carries(eqn)
        if not self.delayed.isdisjoint(variables(eqn.invars)):
            return False
        moves = eqn.primitive in {*_MOVES, p.slice_p, stack_p}
        sizes = [aval.size // (self.paths if self.paths in aval.shape else 1) for aval in avals]
        has_axis = any(self.size in aval.shape for aval in avals)
        has_rule = moves or function_on(self.kind, eqn.primitive) is not None
        return has_rule and not has_axis and max(sizes) <= _MOST_SHARED

    def _can_turn(self, eqn: JaxprEqn) -> bool:
        """Return True for an operation that has one result, which a turn can compute for its entry."""
        both = *eqn.invars, *eqn.outvars
        if len(eqn.outvars) != 1 or any(_shape(v).count(self.size) > 1 for v in both):
            return False
        (out,), params, primitive = eqn.outvars, eqn.params, eqn.primitive
        first, after = self._place(eqn.invars[0]) if eqn.invars else None, self._place(out)
        if primitive is p.concatenate_p and after is not None and params["dimension"] == after:
            before, *rest = eqn.invars
            return _shape(before)[after] == 1 and len(rest) == 1 and rest[0] in self.delayed
        if not self.delayed.isdisjoint(variables(eqn.invars)):
            return False
        if primitive is p.reduce_sum_p:
            keeps = (self.paths in _shape(eqn.invars[0])) == (self.paths in _shape(out))
            return first is not None and keeps
        if after is None:
            return self._is_delay(eqn)
        if function_on(self.kind, primitive) is not None or primitive is p.iota_p:
            return True
        if primitive is p.broadcast_in_dim_p:
            return first is None or int(params["broadcast_dimensions"][first]) == after
        if first is None:
            return False
        if primitive is p.cumsum_p:
            return int(params["axis"]) != first or not params["reverse"]
        if primitive is p.slice_p:
            part = params["start_indices"][first], params["limit_indices"][first]
            return part == (0, self.size) and not params["strides"]
        if primitive is p.reshape_p:
            shapes = _shape(eqn.invars[0])[:first], _shape(out)[:after]
            return math.prod(shapes[0]) == math.prod(shapes[1])
        return primitive in _MOVES

    def _is_delay(self, eqn: JaxprEqn) -> bool:
        """Return True for the slice of all entries but the last."""
        if eqn.primitive is not p.slice_p or (place := self._place(eqn.invars[0])) is None:
            return False
        limits = tuple(n - (i == place) for i, n in enumerate(_shape(eqn.invars[0])))
        whole = not any(eqn.params["start_indices"]) and not eqn.params["strides"]
        return whole and tuple(eqn.params["limit_indices"]) == limits

    def _is_sum(self, eqn: JaxprEqn) -> bool:
        return eqn.primitive is p.reduce_sum_p and self._place(eqn.invars[0]) in eqn.params["axes"]

    def _carries(self, eqn: JaxprEqn) -> bool:
        """Return True for an operation along the axis."""
        place = self._place(eqn.outvars[0])
        if eqn.primitive is p.cumsum_p:
            return int(eqn.params["axis"]) == place
        is_shift = eqn.primitive is p.concatenate_p and int(eqn.params["dimension"]) == place
        return is_shift or self._is_sum(eqn)

    def _carried(self, eqn: JaxprEqn, number, before, inputs: list) -> tuple:
        """Return the result of an operation along the axis in one turn, and what the next turn takes over."""
        if eqn.primitive is p.concatenate_p:
            first, entry = inputs
            return lax.select_n(lax.eq(number, np.int32(0)), before, first), entry
        if eqn.primitive is p.reduce_sum_p:
            inputs = [eqn.primitive.bind(*inputs, **eqn.params)]
        total = before + inputs[0]
        return total, total

    def _turned(self, eqn: JaxprEqn, number, inputs: list) -> Any:
        """Return the result of any other operation in one turn."""
        (out,), params, place = eqn.outvars, dict(eqn.params), self._place(eqn.outvars[0])
        if place is None:
            return inputs[0] if self._is_delay(eqn) else eqn.primitive.bind(*inputs, **params)
        shape = self._of_one(_shape(out))
        if eqn.primitive is p.iota_p and params["dimension"] == place:
            return lax.broadcast_in_dim(number.astype(_dtype(out)), shape, ())
        if eqn.primitive is p.slice_p:
            limits = enumerate(params["limit_indices"])
            params["limit_indices"] = tuple(1 if i == place else n for i, n in limits)
        params |= {name: shape for name in ("shape", "new_sizes") if name in params}
        return eqn.primitive.bind(*inputs, **params)


def _shape(v: Any) -> tuple[int, ...]:
    return v.aval.shape


def _dtype(v: Any) -> Any:
    return v.aval.dtype


def _values(of: Sequence, known: dict) -> list:
    """Return the arrays of variables and of literals."""
    array = lambda v: jnp.asarray(v.val, _dtype(v))
    return [array(v) if isinstance(v, Literal) else known[v] for v in of]
