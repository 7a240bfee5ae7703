"""A pass over a whole program that puts sweeps and the elementwise operations around them into one kernel.

Without it, the kernel of a sweep writes the last state of each path, another kernel reads it for the payoff,
and so on. But paths are independent until their sum, so one kernel can take a path from its first state to its
terms of all sums. `jt.stored_jit`, `jt.export` and `jt.compile_for` apply the pass when they compile for a GPU,
to the traced function, after differentiation.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    dce_jaxpr,
    hi_primitive_of,
    jaxpr_as_fun,
    jaxprs_in_params,
    outputs_of,
)
from ..kernels import fused as kernels
from ..kernels.leaf import Leaf
from ..kernels.node import flat, variables
from ..kernels.pallas import TILES, full
from ..kernels.paths import NoKernelError, Value
from ..kernels.sweeps import KernelSweeps
from ..kernels.walk import Walk
from .joined import joined
from .kernel_executor import kernels_are_interpreted, kernels_or_reason
from .rule import FirstSweep, ReverseSweep

_TILE = TILES["gpu"]
_SWEEPS = FirstSweep, ReverseSweep
_MOST = 512  # entries of all results beside the sweeps: a compiler takes long for more
_MOST_SHARED = 16  # entries of a value that all paths share and each tile computes again
_MOST_OF_ONE = 64  # entries of the results of one operation; a larger one has a kernel of its own


def fused(function: Callable) -> Callable:
    """Return a function of arrays whose sweeps on a GPU share kernels with elementwise operations around them.

    The program is unchanged if a kernel cannot hold those operations.
    """

    @functools.wraps(function)
    def run(*arrays: jax.Array) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        closed = joined(closed)
        try:
            program = _Program.of(closed)
        except NoKernelError:
            found = jaxpr_as_fun(closed)(*arrays)
        else:
            found = program.run(arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return run


@dataclasses.dataclass
class _Program:
    """The equations of a program in turns: each has some outside of kernels, and then one kernel.

    Attributes:
        jaxpr: The program, without calls.
        consts: The values of its constants.
        paths: The number of paths.
        sweeps: The kernels of the sweeps, by the numbers of their equations.
        places: The turn of each equation, and whether the kernel of that turn has it.
        within: The turn of each variable that a kernel computes.
        ready: The turn from which a variable is at hand outside; 0 for those that are not here.
    """

    jaxpr: Jaxpr
    consts: Sequence
    paths: int
    sweeps: dict[int, KernelSweeps]
    places: list[tuple[int, bool]] = dataclasses.field(default_factory=list)
    within: dict[Var, int] = dataclasses.field(default_factory=dict)
    ready: dict[Var, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, closed: ClosedJaxpr) -> "_Program":
        """Return the program of a jaxpr.

        Raises:
            NoKernelError: If the sweeps of its gradients share no kernel.
        """
        if closed.effects or not _has_sweeps(closed.jaxpr):
            raise NoKernelError("there are side effects, or no sweeps")
        closed = flat(closed)
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
        prims = enumerate(map(hi_primitive_of, jaxpr.eqns))
        sweeps = {i: _sweeps_of(prim) for i, prim in prims if isinstance(prim, _SWEEPS)}
        paths = {each.layout.paths for each in sweeps.values()}
        if len(paths) != 1:
            raise NoKernelError("there are no sweeps of one number of paths")
        found = cls(jaxpr, closed.consts, paths.pop(), sweeps)
        jax.make_jaxpr(found._decide)()
        return found

    def _decide(self) -> None:
        """Find the turn of each equation, by tiles of zeros.

        Raises:
            NoKernelError: If the sweeps of a chain would be in two kernels, or too much lies around them.
        """
        walk, known, count = Walk(_TILE, self.paths, full(_TILE, 0, "uint32")), {}, 0
        in_memory = self._read_in_memory()
        for i, eqn in enumerate(self.jaxpr.eqns):
            inputs = variables(eqn.invars)
            turn = max((self.within.get(v, self.ready.get(v, 0)) for v in inputs), default=0)
            here = {v: known[v] for v in inputs if self.within.get(v) == turn}
            if i in self.sweeps:
                found = self._of_sweep(walk, eqn, self.sweeps[i], here)
            else:
                is_free = in_memory.isdisjoint(eqn.outvars)
                found = self._elementwise(walk, eqn, here) if is_free else None
                count += sum(value.entries.size for value in found or ())
            if found is None:
                turn = max((self.ready.get(v, 0) for v in inputs), default=0)
                self.ready |= dict.fromkeys(eqn.outvars, turn)
            else:
                known |= zip(eqn.outvars, found, strict=True)
                self.within |= dict.fromkeys(eqn.outvars, turn)
                self.ready |= dict.fromkeys(eqn.outvars, turn + 1)
            self.places.append((turn, found is not None))
        if count > _MOST:
            raise NoKernelError(f"a path computes {count:,} entries beside the sweeps")
        self._take_in_shared(walk, in_memory)

    def _take_in_shared(self, walk: Walk, in_memory: set[Var]) -> None:
        """Have a kernel compute the small shared values that it alone reads, rather than a kernel before it."""
        readers: dict[Var, set[int | None]] = {v: {None} for v in variables(self.jaxpr.outvars)}
        for i, eqn in reversed([*enumerate(self.jaxpr.eqns)]):
            turn, is_within = self.places[i]
            found = [*set().union(*(readers.get(v, ()) for v in eqn.outvars))]
            kernel = found[0] if len(found) == 1 and not is_within else None
            is_free = in_memory.isdisjoint(eqn.outvars)
            if kernel is not None and is_free and self._is_small(walk, eqn):
                turn, is_within = self.places[i] = kernel, True
                self.within |= dict.fromkeys(eqn.outvars, turn)
            for v in variables(eqn.invars):
                readers.setdefault(v, set()).add(turn if is_within else None)

    def _is_small(self, walk: Walk, eqn: JaxprEqn) -> bool:
        """Return True for an operation on few values that all paths share, of which a kernel has the rule."""
        avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
        if any(self.paths in x.shape or x.size > _MOST_SHARED for x in avals):
            return False
        try:
            walk.applied(eqn, [self._value(walk, v, {}) for v in eqn.invars])
        except NoKernelError:
            return False
        return True

    def _read_in_memory(self) -> set[Var]:
        """Return the variables that chains read from memory, as consts and xs, and the ancestors of these."""
        found = set()
        for i, eqn in reversed([*enumerate(self.jaxpr.eqns)]):
            if i in self.sweeps:
                arrays, *_ = _arguments(eqn)
                found |= {*variables(arrays.consts), *variables(arrays.xs)}
            elif hi_primitive_of(eqn) or not found.isdisjoint(eqn.outvars):
                found |= {*variables(eqn.invars)}
        return found

    def _value(self, walk: Walk, v: Any, here: dict) -> Value:
        """Return the value of a variable: one of the kernel's own, or as it is read from memory."""
        if isinstance(v, Var) and v not in here:
            return _zeros(Leaf.of(v.aval, _TILE, self.paths))
        return kernels.read(walk, here, v)

    def _elementwise(self, walk: Walk, eqn: JaxprEqn, here: dict) -> list | None:
        """Return the values of an equation that concerns paths; None if no kernel has a place for it."""
        avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
        if not here and not any(self.paths in aval.shape for aval in avals):
            return None
        try:
            found = walk.applied(eqn, [self._value(walk, v, here) for v in eqn.invars])
        except NoKernelError:
            return None
        return found if sum(value.entries.size for value in found) <= _MOST_OF_ONE else None

    def _of_sweep(self, walk: Walk, eqn: JaxprEqn, sweeps: KernelSweeps, here: dict) -> list:
        """Return the values of the outputs of a sweep.

        Raises:
            NoKernelError: If it reads in memory what its kernel computes, or slots of another kernel.
        """
        of, (arrays, kept, bars) = sweeps.layout, _arguments(eqn)
        if any(v in here for v in variables((*arrays.consts, *arrays.xs))):
            raise NoKernelError("a chain has consts or xs that paths have computed")
        if any(v not in here for v in kept):
            raise NoKernelError("the sweeps of a chain are in two kernels")
        leaves = *of.state, *(of.bars[1] if bars else ())
        for leaf, v in zip(leaves, (*arrays.init, *bars), strict=True):
            leaf.tiles(self._value(walk, v, here))
        found = of.bars[0] + of.bars[1] if _is_reverse(eqn) else of.state + of.slots
        return [*map(_zeros, found)]

    def run(self, arrays: Sequence) -> list:
        """Return the outputs."""
        jaxpr, eqns = self.jaxpr, self.jaxpr.eqns
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*self.consts, *arrays), strict=True))
        for turn in range(max(turn for turn, _ in self.places) + 1):
            for eqn, place in zip(eqns, self.places, strict=True):
                if place == (turn, False):
                    out = outputs_of(jaxpr, eqn, _values(eqn.invars, known))
                    known |= zip(eqn.outvars, out, strict=True)
            chosen = [i for i, place in enumerate(self.places) if place == (turn, True)]
            if chosen:
                known |= self._run_kernel(turn, chosen, known)
        return _values(jaxpr.outvars, known)

    def _run_kernel(self, turn: int, chosen: Sequence[int], known: dict) -> dict:
        """Run the kernel of a turn, and return those of its variables that others read."""
        eqns = self.jaxpr.eqns
        operations, inputs, asked = [], {}, {}
        for i, eqn in enumerate(eqns):
            if i not in chosen:
                asked |= dict.fromkeys(variables(eqn.invars))
                continue
            operations.append(_operation(eqn, self.sweeps.get(i), known))
            read = _read_as_tiles(eqn) if i in self.sweeps else eqn.invars
            inputs |= {v: known[v] for v in variables(read) if v in known}
        asked |= dict.fromkeys(variables(self.jaxpr.outvars))
        outputs = [v for v in asked if self.within.get(v) == turn]
        interpret = kernels_are_interpreted()
        found = kernels.run_fused(_TILE, self.paths, operations, inputs, outputs, interpret)
        return dict(zip(outputs, found, strict=True))


def _operation(eqn: JaxprEqn, sweeps: KernelSweeps | None, known: dict) -> kernels.Operation:
    """Return an equation as an operation in a kernel."""
    if sweeps is None:
        return kernels.of_equation(eqn)
    arrays, kept, bars = _arguments(eqn)
    shared = _values(arrays.consts, known), _values(arrays.xs, known)
    if _is_reverse(eqn):
        return kernels.reverse_sweep(sweeps, shared, (arrays.init, kept, bars), eqn.outvars)
    return kernels.first_sweep(sweeps, shared, arrays.init, eqn.outvars)


def _values(of: Sequence, known: dict) -> list:
    """Return the arrays of variables and of literals."""
    array = lambda v: jnp.asarray(v.val, v.aval.dtype)
    return [array(v) if isinstance(v, Literal) else known[v] for v in of]


def _zeros(leaf: Leaf) -> Value:
    return leaf.value([full(_TILE, 0, leaf.held)] * leaf.rows)


def _is_reverse(eqn: JaxprEqn) -> bool:
    return isinstance(hi_primitive_of(eqn), ReverseSweep)


def _has_sweeps(jaxpr: Jaxpr) -> bool:
    """Return True if a jaxpr, or one that it calls, has a sweep of a gradient."""
    return any(
        isinstance(hi_primitive_of(eqn), FirstSweep)
        or any(map(_has_sweeps, jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _arguments(eqn: JaxprEqn) -> tuple:
    """Return the variables of a sweep's arrays, of its slots, and of the last state's cotangents."""
    types = hi_primitive_of(eqn).in_avals
    arrays, *rest = jax.tree.unflatten(jax.tree.structure(types), eqn.invars)
    kept, bars = rest or ((), ((), ()))
    return arrays, jax.tree.leaves(kept), [*bars[0]]


def _read_as_tiles(eqn: JaxprEqn) -> list:
    """Return the variables that a sweep reads as tiles of its kernel."""
    arrays, _, bars = _arguments(eqn)
    return [*arrays.init, *bars]


def _sweeps_of(prim: FirstSweep | ReverseSweep) -> KernelSweeps:
    """Return the kernels of a sweep.

    Raises:
        NoKernelError: If it has none, or has ys or cotangents of xs.
    """
    first = prim if isinstance(prim, FirstSweep) else prim.first
    if not first.in_kernels:
        raise NoKernelError("a chain has no kernel")
    found = kernels_or_reason(first.to_reverse, tuple(first.in_avals[0]), "gpu")
    if found.layout.ys or found.layout.bars[2]:
        raise NoKernelError("a chain has ys, or its xs have cotangents")
    return found
