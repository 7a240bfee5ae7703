"""A pass over a whole program for a TPU that computes small values in few kernels, from scalars.

The TPU's compiler fuses no operations on numbers: each is a step of its own, as is nearly each operation on a
vector of a few entries. One kernel computes them all, entry by entry, in scalar memory. A loop in it runs over
one axis of vectors, such as that of the nodes of a chain.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    dce_jaxpr,
    hi_primitive_of,
    outputs_of,
)
from ..kernels.fused import read
from ..kernels.leaf import Leaf
from ..kernels.node import flat, variables
from ..kernels.pallas import SCALAR, call, full, loop
from ..kernels.paths import Kind, NoKernelError, Value
from ..kernels.walk import Walk
from .constants import have_bits_of
from .kernel_executor import kernels_are_interpreted

_MOST = 64  # entries of a value, beside the axis
_FEWEST, _LONGEST = 17, 2**13  # entries of the axis
_OF_KEYS = {"random_wrap", "random_unwrap"}
_FREE = {"reshape", "squeeze", "broadcast_in_dim", "copy"}
_REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min"}


def in_scalars(closed: ClosedJaxpr, lengths: Collection[int]) -> ClosedJaxpr:
    """Return a program whose small values are computed in few kernels.

    Args:
        closed: The program.
        lengths: The lengths of its chains; a kernel loops over an axis of one of these sizes.
    """
    closed = flat(closed)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
    program = _Program(jaxpr, _size_of_axis(jaxpr, lengths))
    run = lambda *args: program.run(closed.consts, args)
    return jax.make_jaxpr(run)(*[v.aval for v in jaxpr.invars])


def _size_of_axis(jaxpr: Jaxpr, lengths: Collection[int]) -> int:
    """Return the length that most small arrays have as the size of an axis; 0 if none has one."""
    avals: list[Any] = [v.aval for eqn in jaxpr.eqns for v in eqn.outvars]
    found = Counter(
        size
        for aval in avals
        for size in {*aval.shape}
        if size in lengths and _FEWEST <= size <= _LONGEST and aval.size <= _MOST * size
    )
    return max(found, key=lambda size: (found[size], size), default=0)


@dataclasses.dataclass
class _Program:
    """The equations of a program in turns: each has some outside of kernels, and then one kernel.

    Attributes:
        jaxpr: The program.
        size: The size of the axis over which kernels loop.
        places: The turn of each equation, and whether the kernel of that turn has it.
    """

    jaxpr: Jaxpr
    size: int
    places: list[tuple[int, bool]] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        jax.make_jaxpr(self._decide)()

    def _decide(self) -> None:
        """Find the turn of each equation."""
        walk, within, ready = Walk(SCALAR, self.size, full(SCALAR, 0, "uint32")), {}, {}
        small, made, asked = set(), set(), set()
        for i, eqn in enumerate(self.jaxpr.eqns):
            own = not made.isdisjoint(variables(eqn.invars))
            if (own or eqn.primitive.name not in _REDUCTIONS) and self._is_small(walk, eqn):
                small.add(i)
                made |= {*eqn.outvars}
        for i, eqn in reversed([*enumerate(self.jaxpr.eqns)]):
            if i in small and (not _is_free(eqn) or not asked.isdisjoint(eqn.outvars)):
                asked |= {*variables(eqn.invars)}
            else:
                small.discard(i)
        for i, eqn in enumerate(self.jaxpr.eqns):
            inputs = variables(eqn.invars)
            is_within = i in small
            turns = (
                within[v] + (not is_within) if v in within else ready.get(v, 0) for v in inputs
            )
            turn = max(turns, default=0)
            (within if is_within else ready).update(dict.fromkeys(eqn.outvars, turn))
            self.places.append((turn, is_within))
        self._delay()

    def _delay(self) -> None:
        """Move each equation to the last kernel that can have it.

        A first kernel then has what the rest of the program waits for, and XLA fuses more of the rest: the sum
        of squares about a center no longer waits for the kernel that reads the sum of the same numbers.
        """
        last = max((turn for turn, is_within in self.places if is_within), default=0)
        latest: dict[Var, int] = {}
        for i, eqn in reversed([*enumerate(self.jaxpr.eqns)]):
            turn, is_within = self.places[i]
            if is_within:
                turn = min(latest.get(v, last) for v in eqn.outvars)
                self.places[i] = turn, True
            for v in variables(eqn.invars):
                latest[v] = min(latest.get(v, last), turn - (not is_within))

    def _is_small(self, walk: Walk, eqn: JaxprEqn) -> bool:
        """Return True for an equation that a kernel of scalars computes."""
        both: list[Any] = [*eqn.invars, *eqn.outvars]
        if eqn.effects or hi_primitive_of(eqn) or not all(self._has_room(v) for v in both):
            return False
        try:
            values = [
                walk.literal(v) if isinstance(v, Literal) else self._zeros(v) for v in eqn.invars
            ]
            found = walk.applied(eqn, values)
        except NoKernelError:
            return False
        return all(value.kind is not Kind.SUM for value in found)

    def _has_room(self, v: Any) -> bool:
        """Return True if scalar memory holds a variable."""
        try:
            return 0 < self._leaf(v).rows <= _MOST
        except NoKernelError:
            return False

    def _leaf(self, v: Any) -> Leaf:
        return Leaf.of(v.aval, SCALAR, self.size)

    def _zeros(self, v: Any) -> Value:
        leaf = self._leaf(v)
        return leaf.value([full(SCALAR, 0, leaf.held)] * leaf.rows)

    def run(self, consts: Sequence, args: Sequence) -> list:
        """Return the outputs."""
        jaxpr = self.jaxpr
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        pairs = [*zip(jaxpr.eqns, self.places, strict=True)]
        for turn in range(max((turn for turn, _ in self.places), default=-1) + 1):
            for eqn, place in pairs:
                if place == (turn, False):
                    inputs = [v.val if isinstance(v, Literal) else known[v] for v in eqn.invars]
                    known |= zip(eqn.outvars, outputs_of(jaxpr, eqn, inputs), strict=True)
            inside = [eqn for eqn, place in pairs if place == (turn, True)]
            others = [eqn for eqn, place in pairs if place != (turn, True)]
            if inside:
                known |= self._run_kernel(inside, others, known)
        return [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]

    def _run_kernel(self, inside: list[JaxprEqn], others: list[JaxprEqn], known: dict) -> dict:
        """Return the values that a kernel of some equations computes for others."""
        made = [v for eqn in inside for v in eqn.outvars]
        asked = {v for eqn in others for v in variables(eqn.invars)}
        asked |= {*variables(self.jaxpr.outvars)}
        outputs = [v for v in made if v in asked]
        read_here = dict.fromkeys(v for eqn in inside for v in variables(eqn.invars))
        given = {v: known[v] for v in read_here if v not in {*made}}
        literals = {v: value for v, x in given.items() if (value := self._literal(v, x))}
        inputs = [v for v in given if v not in literals]
        interpret, size = kernels_are_interpreted(), self.size
        along = {v for v in (*inputs, *made) if self._leaf(v).axis is not None}

        def kernel(*refs):
            of_inputs, of_outputs = refs[: len(inputs)], refs[len(inputs) :]

            def run(k: Any, before: dict) -> dict:
                path = full(SCALAR, 0, "uint32") if k is None else k.astype("uint32")
                walk, found = Walk(SCALAR, size, path, interpret), dict(before)
                for v, ref in zip(inputs, of_inputs, strict=True):
                    if (v in along) == (k is not None):
                        found[v] = self._load(v, ref, k)
                for eqn in inside:
                    if (eqn.outvars[0] in along) == (k is not None):
                        values = walk.applied(eqn, [read(walk, found, v) for v in eqn.invars])
                        found |= zip(eqn.outvars, values, strict=True)
                for v, ref in zip(outputs, of_outputs, strict=True):
                    if (v in along) == (k is not None):
                        self._store(v, ref, k, found[v])
                return found

            shared = run(None, literals)
            if along:
                loop(size, lambda k, carry: (run(k, shared), carry)[1], ())

        args = [_vector(self._leaf(v), known[v]) for v in inputs]
        types = [self._type(v) for v in outputs]
        found = call("scalars", kernel, SCALAR, 1, args, types, (), interpret)
        return {v: self._unlaid(v, x) for v, x in zip(outputs, found, strict=True)}

    def _literal(self, v: Var, x: Any) -> Value | None:
        """Return a constant as a value of literals; None for another array, or one with many entries."""
        leaf = self._leaf(v)
        if isinstance(x, Tracer) or leaf.words:
            return None
        entries = np.asarray(x).astype(leaf.held)
        if leaf.axis is not None:
            first = np.take(entries, [0], leaf.axis)
            if not have_bits_of(entries, first):
                return None
            entries = first
        return leaf.value([*entries.ravel()])

    def _type(self, v: Var) -> jax.ShapeDtypeStruct:
        leaf = self._leaf(v)
        count = leaf.rows * (1 if leaf.axis is None else self.size)
        return jax.ShapeDtypeStruct((count,), leaf.held)

    def _places(self, leaf: Leaf, k: Any) -> list:
        """Return the places in a vector of the entries of an array, at place k of the axis."""
        if leaf.axis is None:
            return [np.int32(i) for i in range(leaf.rows)]
        places = np.arange(math.prod(leaf.shape)).reshape(leaf.shape)
        step = math.prod(leaf.shape[leaf.axis + 1 :])
        first = np.take(places, 0, leaf.axis).ravel()
        return [k * np.int32(step) + np.int32(i) for i in first]

    def _load(self, v: Var, ref: Any, k: Any) -> Value:
        leaf = self._leaf(v)
        return leaf.value([ref[place] for place in self._places(leaf, k)])

    def _store(self, v: Var, ref: Any, k: Any, value: Value) -> None:
        leaf = self._leaf(v)
        for place, entry in zip(self._places(leaf, k), leaf.tiles(value), strict=True):
            ref[place] = entry

    def _unlaid(self, v: Var, vector: jax.Array) -> jax.Array:
        leaf = self._leaf(v)
        if leaf.words:
            return leaf.unlaid(vector)[0]
        return vector.reshape(leaf.shape).astype(leaf.dtype)


def _is_free(eqn: JaxprEqn) -> bool:
    """Return True for an operation that moves no entry."""
    avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    sizes = {aval.size for aval in avals}
    name = eqn.primitive.name
    return name in _OF_KEYS or (name in _FREE and len(sizes) == 1)


def _vector(leaf: Leaf, x: Any) -> Any:
    """Return an array as a kernel reads it."""
    x = jnp.asarray(x) if not leaf.words else jax.random.key_data(x)
    return x.astype(leaf.held).reshape(-1)
