"""A function of one node in a kernel, cut into what shared values alone decide and what each path computes."""

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import jax
import jax.core

from ..jax_private import ClosedJaxpr, Jaxpr, Literal, dce_jaxpr, outputs_of
from ..jax_private import primitives as p
from .leaf import Leaf
from .pallas import Tile
from .paths import Kind, NoKernelError, Value
from .walk import Walk

_MOST_OF_PRELUDE = 256  # operations on shared values, and entries of those that a kernel reads
_CALLS = {
    p.jit_p: "jaxpr",
    p.closed_call_p: "call_jaxpr",
    p.remat_p: "jaxpr",
    p.custom_jvp_call_p: "call_jaxpr",
    p.custom_vjp_call_p: "call_jaxpr",
}


class NodeFunction(NamedTuple):
    """A function `f(consts, others)` as `body(prelude(shared(consts)), others)`, on a tile of paths.

    What shared values alone decide is computed once, before the nodes. The kernel computes it, so that no other
    kernel is started for it; if it cannot, another one does, where every operation of JAX is at hand.

    Attributes:
        shared: The function from the consts to the values that a kernel reads.
        prelude: The function from those to the values that the body reads, without calls.
        body: The function from those and the other inputs to the outputs, without calls.
        sources: The leaves of the other inputs.
        results: The leaves of the outputs.
        tile: The tile.
        paths: The number of paths.
    """

    shared: ClosedJaxpr
    prelude: Jaxpr
    body: Jaxpr
    sources: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    tile: Tile
    paths: int

    @classmethod
    def of(
        cls,
        function: Callable,
        tile: Tile,
        paths: int,
        types: tuple[tuple, ...],
        sources: tuple[Leaf, ...],
        results: tuple[Leaf, ...],
    ) -> "NodeFunction":
        """Trace `function(*types)`, whose first argument is the consts.

        A value as large as the paths stays in the body.
        """
        flat, count = _flat(jax.make_jaxpr(function)(*types)), len(types[0])
        jaxpr, _ = dce_jaxpr(flat.jaxpr, [True] * len(flat.out_avals), True)
        inputs = [*jaxpr.constvars, *jaxpr.invars[:count]]
        known = set(inputs)
        before, after = [], []
        for eqn in jaxpr.eqns:
            outputs: list = eqn.outvars
            is_small = all(paths not in v.aval.shape for v in outputs)
            is_known = is_small and not eqn.effects and known.issuperset(_variables(eqn.invars))
            (before if is_known else after).append(eqn)
            known |= set(eqn.outvars) if is_known else set()
        reads = [v for eqn in after for v in _variables(eqn.invars)] + _variables(jaxpr.outvars)
        reads = [v for v in dict.fromkeys(reads) if v in known]
        names = jaxpr.debug_info.with_unknown_names()
        part = functools.partial(jaxpr.replace, constvars=[], debug_info=names)
        first = part(invars=inputs, eqns=before, outvars=reads)
        first, used = dce_jaxpr(first, [True] * len(reads), False)
        read = lambda *consts: tuple(compress((*flat.consts, *consts), used))
        shared, prelude = read, first
        if not _is_prelude(first, tile, paths):
            shared = lambda *consts: jax.core.eval_jaxpr(first, [], *read(*consts))
            prelude = part(invars=reads, eqns=[], outvars=reads)
        body = part(invars=[*reads, *jaxpr.invars[count:]], eqns=after)
        shared = jax.make_jaxpr(shared)(*types[0])
        return cls(shared, prelude, body, sources, results, tile, paths)

    @property
    def reads(self) -> tuple[Leaf, ...]:
        """The leaves of the values that a kernel reads before the nodes."""
        return tuple(Leaf.of(x, self.tile, self.paths) for x in self.shared.out_avals)

    def values(self, consts: tuple) -> tuple:
        """Return stacks of those values, from the consts."""
        found = jax.core.eval_jaxpr(self.shared.jaxpr, self.shared.consts, *consts)
        return tuple(value[None] for value in found)

    def constants(self, walk: Walk, tiles: Sequence) -> list[Value]:
        """Return the values that the body reads, from the tiles of those that the kernel reads."""
        values = [leaf.value(each) for leaf, each in zip(self.reads, tiles, strict=True)]
        return walk.evaluate(self.prelude, values)

    def run(self, walk: Walk, constants: Sequence[Value], tiles: Sequence) -> list[tuple]:
        """Return the tiles of the results, from those of the sources."""
        values = [leaf.value(each) for leaf, each in zip(self.sources, tiles, strict=True)]
        found = walk.evaluate(self.body, [*constants, *values])
        return [leaf.tiles(value) for leaf, value in zip(self.results, found, strict=True)]

    def operations(self) -> int:
        """Return the number of operations on tiles.

        `NoKernelError` is raised if an operation has no rule.
        """
        types = [_types(leaves, self.tile) for leaves in (self.reads, self.sources)]

        def run(shared, tiles, path):
            walk = Walk(self.tile, self.paths, path)
            return self.run(walk, self.constants(walk, shared), tiles)

        path = jax.ShapeDtypeStruct(self.tile.shape, "uint32")
        return len(jax.make_jaxpr(run)(*types, path).jaxpr.eqns)


def _is_prelude(jaxpr: Jaxpr, tile: Tile, paths: int) -> bool:
    """Return True if a kernel can compute a function of shared values, and it is small."""
    kinds = []

    def run(*tiles):
        values = [leaf.value(each) for leaf, each in zip(leaves, tiles, strict=True)]
        found = Walk(tile, paths).evaluate(jaxpr, values)
        kinds.extend(value.kind for value in found)
        return [[*value.entries.flat] for value in found]

    try:
        leaves = [Leaf.of(v.aval, tile, paths) for v in jaxpr.invars]
        if sum(leaf.rows for leaf in leaves) > _MOST_OF_PRELUDE:
            return False
        count = len(jax.make_jaxpr(run)(*_types(leaves, tile)).jaxpr.eqns)
    except NoKernelError:
        return False
    return count <= _MOST_OF_PRELUDE and Kind.SUM not in kinds


def _types(leaves: Sequence[Leaf], tile: Tile) -> list[tuple]:
    """Return the types of the tiles of leaves."""
    return [(jax.ShapeDtypeStruct(tile.shape, x.held),) * x.rows for x in leaves]


def _flat(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a jaxpr with the functions that it calls in their places."""
    types = [v.aval for v in closed.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _called(closed.jaxpr, closed.consts, args))(*types)


def _variables(inputs) -> list:
    return [v for v in inputs if not isinstance(v, Literal)]


def _called(jaxpr: Jaxpr, consts, args) -> list:
    """Evaluate a jaxpr, with the functions that it calls in their places."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        if name := _CALLS.get(eqn.primitive):
            called = eqn.params[name]
            held = () if isinstance(called, Jaxpr) else called.consts
            called = called if isinstance(called, Jaxpr) else called.jaxpr
            out = _called(called, held, inputs)
        else:
            out = outputs_of(jaxpr, eqn, inputs)
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]
