"""A pass over a whole program that puts sweeps and the elementwise operations around them into one kernel.

Without it, the kernel of a sweep writes the last state of each path, another kernel reads it for the payoff,
and so on. But paths are independent until their sum, so one kernel can take a path from its first state to its
terms of all sums. `jt.stored_jit`, `jt.export` and `jt.compile_for` apply the pass when they compile for a GPU
or a TPU, to the traced function, after differentiation.
"""

import contextlib
import dataclasses
import functools
from collections import Counter
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
from ..kernels.pallas import TILES, Tile, full
from ..kernels.paths import Kind, NoKernelError, Value
from ..kernels.run import KernelRun
from ..kernels.walk import Walk
from . import kernel_executor
from .chain import Arrays
from .constants import folded
from .joined import joined
from .rule import FirstSweep, ReverseSweep, Sweep
from .scalars import in_scalars
from .slices import with_early_slices
from .turns import in_turns, kernels_of_run

_SWEEPS = Sweep, FirstSweep, ReverseSweep
_MOST = 640  # entries of all results beside the sweeps: a compiler takes long for more
_MOST_SHARED = 16  # entries of a value that all paths share and each tile computes again
_MOST_OF_ONE = 64  # entries of the results of one operation; a larger one has a kernel of its own


def fused(function: Callable, kind: str) -> Callable:
    """Return a function of arrays whose sweeps share kernels with elementwise operations around them.

    Args:
        function: The function.
        kind: The kind of accelerator that the program is for, "gpu" or "tpu".

    The program is unchanged if a kernel cannot hold those operations.
    """

    @functools.wraps(function)
    def run(*arrays: jax.Array) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        if _has_sweeps(closed.jaxpr):
            closed = _rewritten(closed, kind)
        found = jaxpr_as_fun(closed)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return run


def _rewritten(closed: ClosedJaxpr, kind: str) -> ClosedJaxpr:
    """Return a program, with a loop over the axis of ys if that shares a kernel.

    A TPU also gets constants and kernels of scalars; XLA fuses such values for a GPU by itself.
    """
    closed = joined(closed)
    is_free = kind == "tpu" and not closed.effects
    lengths = _lengths(closed.jaxpr, kind) if is_free else set()
    closed = folded(closed) if lengths else closed
    types = [v.aval for v in closed.jaxpr.invars]
    for loops in (functools.partial(in_turns, kind=kind), lambda closed: closed):
        with contextlib.suppress(NoKernelError):
            program = _Program.of(loops(closed), kind)
            closed = jax.make_jaxpr(lambda *args: program.run(args))(*types)  # noqa: B023
            break
    return with_early_slices(in_scalars(closed, lengths)) if lengths else closed


def _lengths(jaxpr: Jaxpr, kind: str) -> set[int]:
    """Return the lengths of the chains that run in kernels, in a jaxpr and in those that it calls."""
    found = set()
    for eqn in jaxpr.eqns:
        prim = hi_primitive_of(eqn)
        is_run = isinstance(prim, Sweep) and kernels_of_run(prim, kind) is not None
        if is_run or (isinstance(prim, FirstSweep) and prim.in_kernels):
            found.add(prim.chain.length)
        if prim is None:
            found |= {x for each in jaxprs_in_params(eqn.params) for x in _lengths(each, kind)}
    return found


@dataclasses.dataclass
class _Program:
    """The equations of a program in turns: each has some outside of kernels, and then one kernel.

    Attributes:
        jaxpr: The program, without calls.
        consts: The values of its constants.
        tile: The tile of its kernels.
        paths: The number of paths.
        sweeps: The kernels of the sweeps, by the numbers of their equations.
        places: The turn of each equation, and whether the kernel of that turn has it.
        within: The turn of each variable that a kernel computes.
        shared: The variables that paths share, which every kernel that reads them computes again.
        ready: The turn from which a variable is at hand outside; 0 for those that are not here.
    """

    jaxpr: Jaxpr
    consts: Sequence
    tile: Tile
    paths: int
    sweeps: dict[int, KernelRun]
    places: list[tuple[int, bool]] = dataclasses.field(default_factory=list)
    within: dict[Var, int] = dataclasses.field(default_factory=dict)
    shared: dict[Var, None] = dataclasses.field(default_factory=dict)
    ready: dict[Var, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, closed: ClosedJaxpr, kind: str) -> "_Program":
        """Return the program of a jaxpr for a kind of accelerator.

        Raises:
            NoKernelError: If the sweeps of its gradients share no kernel.
        """
        if closed.effects or not _has_sweeps(closed.jaxpr):
            raise NoKernelError("there are side effects, or no sweeps")
        closed = flat(closed)
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
        prims = enumerate(map(hi_primitive_of, jaxpr.eqns))
        kernels = {i: _sweeps_of(prim, kind) for i, prim in prims if isinstance(prim, _SWEEPS)}
        sweeps = {i: each for i, each in kernels.items() if each is not None}
        paths = {each.layout.paths for each in sweeps.values()}
        if len(paths) != 1:
            raise NoKernelError("there are no sweeps of one number of paths")
        found = cls(jaxpr, closed.consts, TILES[kind], paths.pop(), sweeps)
        jax.make_jaxpr(found._decide)()
        return found

    def _decide(self) -> None:
        """Find the turn of each equation, by tiles of zeros.

        Raises:
            NoKernelError: If the sweeps of a chain would be in two kernels, or too much lies around them.
        """
        walk, known = Walk(self.tile, self.paths, full(self.tile, 0, "uint32")), {}
        in_memory, counts = self._read_in_memory(), Counter()
        turns, last = set(), max(self.sweeps)
        for i, eqn in enumerate(self.jaxpr.eqns):
            inputs = variables(eqn.invars)
            turn = max((self.within.get(v, self.ready.get(v, 0)) for v in inputs), default=0)
            own = {v for v in inputs if self.within.get(v) == turn}
            here = {v: known[v] for v in inputs if v in own or v in self.shared}
            if i in self.sweeps:
                found, turns = self._of_sweep(walk, eqn, self.sweeps[i], own, here), {*turns, turn}
            elif turn in turns or i < last:
                found = self._elementwise(walk, eqn, own, here)
            else:  # no kernel will have a sweep for it
                found = None
            is_sweep = i in self.sweeps
            is_free = is_sweep or in_memory.isdisjoint(eqn.outvars)
            is_shared = found is not None and not own and not is_sweep and _are_shared(found)
            is_within = found is not None and is_free and not is_shared
            if not is_within:
                turn = max((self.ready.get(v, 0) for v in inputs), default=0)
            of_values = [*zip(eqn.outvars, found or (), strict=False)]  # ys have none
            known |= of_values
            self.shared |= dict.fromkeys(eqn.outvars if is_shared else ())
            self.within |= {v: turn for v, _ in of_values if is_within}
            self.ready |= dict.fromkeys(eqn.outvars, turn + is_within)
            self.places.append((turn, is_within))
            if is_within and not is_sweep:
                counts[turn] += sum(value.entries.size for _, value in of_values)
        self.places = [(turn, within and turn in turns) for turn, within in self.places]
        self.within = {v: turn for v, turn in self.within.items() if turn in turns}
        if self.tile.platform == "gpu":
            self._move_sums({v for v, value in known.items() if value.kind is Kind.SUM})
        if (count := sum(counts[turn] for turn in turns)) > _MOST:
            raise NoKernelError(f"a path computes {count:,} entries beside the sweeps")

    def _move_sums(self, sums: set[Var]) -> None:
        """Take sums of values that others read out of a GPU's kernel, which writes these values anyway.

        It would write the sum over each tile. XLA adds up the values with those, such as their squares, for
        which the others read them.
        """
        pairs = [*zip(self.jaxpr.eqns, self.places, strict=True)]
        read = {v for eqn, (_, within) in pairs if not within for v in variables(eqn.invars)}
        read |= {*variables(self.jaxpr.outvars)}
        moved: set[Var] = set()
        for i, (eqn, (turn, within)) in enumerate(pairs):
            own = {v for v in variables(eqn.invars) if self.within.get(v) == turn}
            if not within or not own or i in self.sweeps:
                continue
            is_sum = sums.issuperset(eqn.outvars) and sums.isdisjoint(own)
            if not own.isdisjoint(moved) or (is_sum and own <= read):
                self.places[i] = turn + 1, False
                moved |= {*eqn.outvars}
        self.within = {v: turn for v, turn in self.within.items() if v not in moved}

    def _read_outside(self) -> set[Var]:
        """Return the variables that are computed outside of kernels, or before the program, and read."""
        asked, again = {*variables(self.jaxpr.outvars)}, set()
        for eqn, (_, is_within) in zip(self.jaxpr.eqns[::-1], self.places[::-1], strict=True):
            read, tiles = ({*variables(part)} for part in (eqn.invars, _read_as_tiles(eqn)))
            computed = tiles & self.shared.keys()
            if not is_within and not asked.isdisjoint(eqn.outvars):
                asked |= read
            if is_within or not again.isdisjoint(eqn.outvars):
                again, asked = again | computed, asked | (read - computed)
        return asked

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
            return self._zeros(Leaf.of(v.aval, self.tile, self.paths))
        return kernels.read(walk, here, v)

    def _elementwise(self, walk: Walk, eqn: JaxprEqn, own: set[Var], here: dict) -> list | None:
        """Return the values of an equation that concerns paths, or of few values that they share.

        It is None if no kernel has a place for it.
        """
        avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
        of_paths = own or any(self.paths in aval.shape for aval in avals)
        entries = [aval.size // (self.paths if self.paths in aval.shape else 1) for aval in avals]
        if max(entries) > (_MOST if of_paths else _MOST_SHARED):
            return None
        try:
            found = walk.applied(eqn, [self._value(walk, v, here) for v in eqn.invars])
        except NoKernelError:
            return None
        return found if sum(value.entries.size for value in found) <= _MOST_OF_ONE else None

    def _of_sweep(
        self, walk: Walk, eqn: JaxprEqn, sweeps: KernelRun, own: set[Var], here: dict
    ) -> list:
        """Return the values of the outputs of a sweep, without ys.

        Raises:
            NoKernelError: If it reads in memory what its kernel computes, or slots of another kernel.
        """
        of, (arrays, kept, bars) = sweeps.layout, _arguments(eqn)
        if not own.isdisjoint(variables((*arrays.consts, *arrays.xs))):
            raise NoKernelError("a chain has consts or xs that paths have computed")
        if not own.issuperset(kept):
            raise NoKernelError("the sweeps of a chain are in two kernels")
        leaves = *of.state, *(of.bars[1] if bars else ())
        for leaf, v in zip(leaves, (*arrays.init, *bars), strict=True):
            leaf.tiles(self._value(walk, v, here))
        found = of.bars[0] + of.bars[1] if _is_reverse(eqn) else of.state + of.slots
        return [*map(self._zeros, found)]

    def _zeros(self, leaf: Leaf) -> Value:
        return leaf.value([full(self.tile, 0, leaf.held)] * leaf.rows)

    def run(self, arrays: Sequence) -> list:
        """Return the outputs.

        `NoKernelError` is raised if a tile takes too much memory.
        """
        jaxpr, eqns, asked = self.jaxpr, self.jaxpr.eqns, self._read_outside()
        given = *self.consts, *arrays
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))
        for turn in range(max(turn for turn, _ in self.places) + 1):
            for eqn, place in zip(eqns, self.places, strict=True):
                if place == (turn, False) and not asked.isdisjoint(eqn.outvars):
                    out = outputs_of(jaxpr, eqn, _values(eqn.invars, known))
                    known |= zip(eqn.outvars, out, strict=True)
            chosen = [i for i, place in enumerate(self.places) if place == (turn, True)]
            if chosen:
                known |= self._run_kernel(turn, chosen, known)
        return _values(jaxpr.outvars, known)

    def _run_kernel(self, turn: int, chosen: Sequence[int], known: dict) -> dict:
        """Run the kernel of a turn, and return those of its variables that others read."""
        eqns = self.jaxpr.eqns
        interpret = kernel_executor.kernels_are_interpreted()
        operations, inputs, asked = [], {}, {}
        for i, eqn in reversed([*enumerate(eqns)]):
            if i not in chosen:
                asked |= dict.fromkeys(variables(eqn.invars))
            if i in chosen or not inputs.keys().isdisjoint(self.shared.keys() & {*eqn.outvars}):
                inputs = {v: x for v, x in inputs.items() if v not in eqn.outvars}
                operations.insert(0, _operation(eqn, self.sweeps.get(i), known, interpret))
                inputs |= {v: known.get(v) for v in variables(_read_as_tiles(eqn))}
        asked |= dict.fromkeys(variables(self.jaxpr.outvars))
        outputs = [v for v in asked if self.within.get(v) == turn]
        return kernels.run_fused(self.tile, self.paths, operations, inputs, outputs, interpret)


def _operation(eqn: JaxprEqn, sweeps: Any, known: dict, interpret: bool) -> kernels.Operation:
    """Return an equation as an operation in a kernel."""
    if sweeps is None:
        return kernels.of_equation(eqn)
    arrays, kept, bars = _arguments(eqn)
    shared = _values(arrays.consts, known), _values(arrays.xs, known)
    if _is_reverse(eqn):
        given = arrays.init, kept, bars
        return kernels.reverse_sweep(sweeps, shared, given, eqn.outvars, interpret)
    return kernels.first_sweep(sweeps, shared, arrays.init, eqn.outvars, interpret)


def _values(of: Sequence, known: dict) -> list:
    """Return the arrays of variables and of literals."""
    array = lambda v: jnp.asarray(v.val, v.aval.dtype)
    return [array(v) if isinstance(v, Literal) else known[v] for v in of]


def _are_shared(values: Sequence[Value]) -> bool:
    """Return True if all values are the same for all paths."""
    return all(value.kind is Kind.SHARED for value in values)


def _is_reverse(eqn: JaxprEqn) -> bool:
    return isinstance(hi_primitive_of(eqn), ReverseSweep)


def _has_sweeps(jaxpr: Jaxpr) -> bool:
    """Return True if a jaxpr, or one that it calls, has a sweep."""
    return any(
        isinstance(hi_primitive_of(eqn), _SWEEPS)
        or any(map(_has_sweeps, jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _arguments(eqn: JaxprEqn) -> tuple:
    """Return the variables of a sweep's arrays, of its slots, and of the last state's cotangents."""
    prim = hi_primitive_of(eqn)
    arrays, *rest = jax.tree.unflatten(jax.tree.structure(prim.in_avals), eqn.invars)
    if isinstance(prim, Sweep):
        return Arrays(arrays, *rest), (), ()
    kept, bars = rest or ((), ((), ()))
    return arrays, jax.tree.leaves(kept), [*bars[0]]


def _read_as_tiles(eqn: JaxprEqn) -> list:
    """Return the variables that an equation reads as tiles of its kernel."""
    if not isinstance(hi_primitive_of(eqn), _SWEEPS):
        return eqn.invars
    arrays, _, bars = _arguments(eqn)
    return [*arrays.init, *bars]


def _sweeps_of(prim: Sweep | FirstSweep | ReverseSweep, kind: str) -> KernelRun | None:
    """Return the kernels of a sweep; None for a run that has none.

    Raises:
        NoKernelError: If a sweep of a gradient has none, or has ys or cotangents of xs.
    """
    if isinstance(prim, Sweep):
        return kernels_of_run(prim, kind)
    first = prim if isinstance(prim, FirstSweep) else prim.first
    if not first.in_kernels:
        raise NoKernelError("a chain has no kernel")
    found = kernel_executor.kernels_or_reason(first.to_reverse, tuple(first.in_avals[0]), kind)
    if found.layout.ys or found.layout.bars[2]:
        raise NoKernelError("a chain has ys, or its xs have cotangents")
    return found
