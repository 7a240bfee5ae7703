"""A function of one node in a kernel, split into a part on shared values and a part that each path computes."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax import lax
from jax.core import Tracer

from ..jax_private import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    counts_of_scan,
    dce_jaxpr,
    outputs_of,
    platform_branches,
)
from ..jax_private import primitives as p
from .leaf import Leaf, stacks
from .operations import count_operations
from .pallas import SCALAR, Tile, call, loop
from .paths import Kind, NoKernelError, Value
from .walk import Walk

_MOST_OF_PRELUDE = 256  # operations on shared values before the nodes
_MOST_OF_A_NODE = 32  # operations per path on values that paths share at a node
_MOST_OF_NODES = 8192  # such operations at all nodes of a short chain, where a node has more
_MOST_OF_SCALARS = 2**16  # operations on scalars at all nodes
_MOST_READ = 256  # entries of the shared values that those operations read
_CALLS = {
    p.jit_p: "jaxpr",
    p.closed_call_p: "call_jaxpr",
    p.remat_p: "jaxpr",
    p.custom_jvp_call_p: "call_jaxpr",
    p.custom_vjp_call_p: "call_jaxpr",
}


class NodeFunction(NamedTuple):
    """A function `f(consts, others)` as `body(prelude(shared(consts)), others, at_node)`, on a tile of paths.

    Whatever depends only on shared values is computed once, before the nodes: by the kernel itself, which saves
    the launch of another one, or, if it needs an operation without a rule, by an ordinary program of JAX before
    the kernel. Values that the paths share at one node (`at_node`), such as the key of its noise, also come
    from such a program if the kernel cannot compute them, or would need many operations per path. On a TPU one
    small kernel computes them from scalars if it can: a program of JAX would have many.

    Attributes:
        shared: The function from the consts to the values that a kernel reads.
        prelude: The function from those to the values that the body reads; a jaxpr without calls.
        of_node: The function from the consts and a node's x to the values at a node that the body reads; a
            jaxpr without calls.
        in_scalars: Whether a kernel computes them from scalars.
        body: The function from those and the other inputs to the outputs; a jaxpr without calls.
        sources: The leaves of the other inputs.
        at_node: The leaves of the values at a node.
        results: The leaves of the outputs.
        tile: The tile.
        paths: The number of paths.
    """

    shared: ClosedJaxpr
    prelude: Jaxpr
    of_node: ClosedJaxpr
    in_scalars: bool
    body: Jaxpr
    sources: tuple[Leaf, ...]
    at_node: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    tile: Tile
    paths: int

    @classmethod
    def of(
        cls,
        function: Callable,
        types: tuple[tuple, ...],
        sources: tuple[Leaf, ...],
        results: tuple[Leaf, ...],
        tile: Tile,
        paths: int,
    ) -> "NodeFunction":
        """Trace `function(*types)`, whose first arguments are the consts, the state and x.

        A value with an axis as long as that of the paths stays in the body.
        """
        closed, (consts, state, x, *_) = flat(jax.make_jaxpr(function)(*types)), types
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
        jaxpr = jaxpr.replace(debug_info=jaxpr.debug_info.with_unknown_names())
        own = jaxpr.invars[len(consts) :]
        inputs = [*jaxpr.constvars, *jaxpr.invars[: len(consts)]]
        before, after = _cut(jaxpr.eqns, set(inputs), paths)
        known = {*inputs, *_made(before)}

        of_x = slice(len(state), len(state) + len(x))
        pairs = [*zip(own, sources, strict=True)][of_x]
        shared_x = {v for v, leaf in pairs if leaf.axis is None}
        first, rest = _cut(after, known | shared_x, paths)
        found = [v for v in read_by(rest, jaxpr.outvars) if v in _made(first)]
        node = part(jaxpr, read_by(first, ()), first, found)
        length = max((leaf.stack for _, leaf in pairs), default=1)
        count, most = _operations(node, tile, paths), max(_MOST_OF_A_NODE, _MOST_OF_NODES // length)
        if count is not None and count <= most:
            first, rest, found = [], after, []
        node = part(jaxpr, [*inputs, *own[of_x]], [*before, *first], found)
        of_node = lambda consts, x: jax.core.eval_jaxpr(node, [], *closed.consts, *consts, *x)
        of_node = jax.make_jaxpr(of_node)(consts, x)

        reads = [v for v in read_by(rest, jaxpr.outvars) if v in known]
        prelude, used = dce_jaxpr(part(jaxpr, inputs, before, reads), [True] * len(reads), False)
        read = lambda *consts: tuple(compress((*closed.consts, *consts), used))
        shared, computed = read, prelude
        count = _operations(prelude, tile, paths)
        if count is None or count > _MOST_OF_PRELUDE:
            shared = lambda *consts: jax.core.eval_jaxpr(computed, [], *read(*consts))
            prelude = part(jaxpr, reads, [], reads)
        return cls(
            jax.make_jaxpr(shared)(*consts),
            prelude,
            of_node,
            tile.platform == "tpu" and _are_few(of_node, length, paths),
            part(jaxpr, [*reads, *own, *found], rest, jaxpr.outvars),
            sources,
            tuple(Leaf.of(v.aval, tile, paths, length) for v in found),
            results,
            tile,
            paths,
        )

    @property
    def read(self) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
        """The leaves of the shared values that a kernel reads: before the nodes, and at each node."""
        before = tuple(Leaf.of(x, self.tile, self.paths) for x in self.shared.out_avals)
        return before, self.at_node

    @property
    def reads_source(self) -> tuple[bool, ...]:
        """The mask of the other inputs that the body reads; the rest may be given as None."""
        own = self.body.invars[len(self.body.invars) - len(self.sources) - len(self.at_node) :]
        reads = set(read_by(self.body.eqns, self.body.outvars))
        return tuple(v in reads for v in own[: len(self.sources)])

    def values(self, consts: tuple, xs: tuple, interpret: bool) -> tuple[tuple, tuple]:
        """Return stacks of the shared values that a kernel reads, from the consts and stacks of xs."""
        before = jax.core.eval_jaxpr(self.shared.jaxpr, self.shared.consts, *consts)
        closed, at_node = self.of_node, ()
        if self.in_scalars:
            at_node = self._values_in_scalars(consts, xs, interpret)
        elif self.at_node:
            of_node = lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *consts, *x)
            at_node = tuple(jax.vmap(of_node)(xs))
        return stacks(before), at_node

    def _values_in_scalars(self, consts: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return stacks of the values at all nodes, which one kernel of a TPU computes."""
        jaxpr, used = _reduced(self.of_node)
        length = self.at_node[0].stack
        given = [*self.of_node.consts, *stacks(consts), *xs]
        read = [*zip(jaxpr.invars, compress(given, used), strict=True)]
        counters = {v: line for v, stack in read if (line := _line(stack))}
        read = [(v, stack) for v, stack in read if v not in counters]
        leaves = [Leaf.of(v.aval, SCALAR, self.paths, len(stack)) for v, stack in read]

        def kernel(*refs):
            walk = Walk(SCALAR, self.paths, interpret=interpret)
            reads, writes = refs[: len(leaves)], refs[len(leaves) :]

            def node(k, carry):
                known = {}
                for (v, _), leaf, ref in zip(read, leaves, reads, strict=True):
                    known[v] = leaf.value(leaf.load(ref, k if leaf.stack > 1 else 0, SCALAR))
                for v, (start, step, dtype) in counters.items():
                    number = (start + k * step).astype(dtype)
                    known[v] = Value.of([number], (), None, Kind.SHARED)
                found = walk.evaluate(jaxpr, [known[v] for v in jaxpr.invars])
                for leaf, ref, value in zip(self.at_node, writes, found, strict=True):
                    leaf.store(ref, k, leaf.tiles(value), SCALAR)
                return carry

            loop(length, node, ())

        args = [leaf.laid(stack, SCALAR) for leaf, (_, stack) in zip(leaves, read, strict=True)]
        types = [jax.ShapeDtypeStruct((length * x.rows,), x.held) for x in self.at_node]
        found = call("nodes", kernel, SCALAR, 1, args, types, (), interpret)
        return tuple(leaf.unlaid(each) for leaf, each in zip(self.at_node, found, strict=True))

    def constants(self, walk: Walk, tiles: Sequence) -> list[Value]:
        """Return the shared values that the body reads, from the tiles that the kernel reads."""
        values = [leaf.value(each) for leaf, each in zip(self.read[0], tiles, strict=True)]
        return walk.evaluate(self.prelude, values)

    def run(self, walk: Walk, constants: Sequence[Value], tiles: Sequence) -> list[tuple]:
        """Return the tiles of the results from the tiles of the sources and of the values at the node."""
        pairs = zip((*self.sources, *self.at_node), tiles, strict=True)
        values = [None if each is None else leaf.value(each) for leaf, each in pairs]
        found = walk.evaluate(self.body, [*constants, *values])
        pairs = zip(self.results, found, strict=True)
        return [leaf.tiles(walk.summed(v) if leaf.is_sum else v) for leaf, v in pairs]

    def operations(self) -> int:
        """Return the number of operations on tiles.

        `NoKernelError` is raised if an operation has no rule.
        """
        return len(self._traced().jaxpr.eqns)

    def work(self) -> Counter[str]:
        """Return the operations of a node on one path, less those done once for all nodes."""
        jaxpr = flat(self._traced()).jaxpr
        jaxpr, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), True)
        read = sum(leaf.rows for leaf in self.read[0])
        once = {*jaxpr.invars[:read], jaxpr.invars[-1]}
        return count_operations(jaxpr, once, self.tile.platform)

    def _traced(self) -> ClosedJaxpr:
        """Return the jaxpr of the function of tiles and of the indices of their paths."""
        types = [
            _types(leaves, self.tile) for leaves in (self.read[0], (*self.sources, *self.at_node))
        ]

        def run(shared, tiles, path):
            walk = Walk(self.tile, self.paths, path)
            return self.run(walk, self.constants(walk, shared), tiles)

        path = jax.ShapeDtypeStruct(self.tile.shape, "uint32")
        return jax.make_jaxpr(run)(*types, path)


def _line(stack: Any) -> tuple[np.int32, np.int32, Any] | None:
    """Return the first number, the step and the dtype of constant integers in an arithmetic progression."""
    if isinstance(stack, Tracer) or str(stack.dtype) not in ("int32", "uint32") or stack.ndim != 1:
        return None
    numbers = np.asarray(stack).astype(np.int64)
    steps = {*np.diff(numbers).tolist()}
    is_line = len(steps) == 1 and max(abs(numbers)) < 2**31
    return (np.int32(numbers[0]), np.int32(steps.pop()), stack.dtype) if is_line else None


def _reduced(closed: ClosedJaxpr) -> tuple[Jaxpr, list[bool]]:
    """Return a jaxpr from those of its constants and inputs that it reads, and their mask."""
    jaxpr, consts = closed.jaxpr, closed.jaxpr.constvars
    whole = part(jaxpr, [*consts, *jaxpr.invars], jaxpr.eqns, jaxpr.outvars)
    return dce_jaxpr(whole, [True] * len(whole.outvars), False)


def _are_few(of_node: ClosedJaxpr, length: int, paths: int) -> bool:
    """Return True if a kernel can compute values at all nodes from scalars, by few operations."""
    jaxpr, _ = _reduced(of_node)
    count = _operations(jaxpr, SCALAR, paths) if jaxpr.outvars else None
    return count is not None and length * count <= _MOST_OF_SCALARS


def _operations(jaxpr: Jaxpr, tile: Tile, paths: int) -> int | None:
    """Return the number of tile operations of a function of shared values; None if there is no rule."""
    kinds = []

    def run(*tiles):
        values = [leaf.value(each) for leaf, each in zip(leaves, tiles, strict=True)]
        found = Walk(tile, paths).evaluate(jaxpr, values)
        kinds.extend(value.kind for value in found)
        return [[*value.entries.flat] for value in found]

    try:
        leaves = [Leaf.of(v.aval, tile, paths) for v in jaxpr.invars]
        if sum(leaf.rows for leaf in leaves) > _MOST_READ:
            return None
        count = len(jax.make_jaxpr(run)(*_types(leaves, tile)).jaxpr.eqns)
    except NoKernelError:
        return None
    return None if Kind.SUM in kinds else count


def _cut(eqns: Sequence, known: set, paths: int) -> tuple[list, list]:
    """Split equations into those of known values, except values as large as the paths, and all others."""
    first, rest, known = [], [], set(known)
    for eqn in eqns:
        is_small = all(paths not in v.aval.shape for v in eqn.outvars)
        if is_small and not eqn.effects and known.issuperset(variables(eqn.invars)):
            first.append(eqn)
            known |= set(eqn.outvars)
        else:
            rest.append(eqn)
    return first, rest


def part(jaxpr: Jaxpr, inputs: list, eqns: list, outputs: list) -> Jaxpr:
    """Return a part of a jaxpr."""
    return jaxpr.replace(constvars=[], invars=inputs, eqns=eqns, outvars=outputs)


def _made(eqns: Sequence) -> set:
    """Return the variables that equations make."""
    return {v for eqn in eqns for v in eqn.outvars}


def read_by(eqns: Sequence, outputs: Sequence) -> list:
    """Return the variables that equations and outputs read and the equations do not make, in order."""
    reads = [v for eqn in eqns for v in variables(eqn.invars)] + variables(outputs)
    made = _made(eqns)
    return [v for v in dict.fromkeys(reads) if v not in made]


def _types(leaves: Sequence[Leaf], tile: Tile) -> list[tuple]:
    """Return the types of the tiles of leaves."""
    return [(jax.ShapeDtypeStruct(tile.shape, x.held),) * x.rows for x in leaves]


def flat(closed: ClosedJaxpr, platform: str | None = None) -> ClosedJaxpr:
    """Return a jaxpr with the functions that it calls, and loops of one turn, inlined.

    Args:
        closed: The jaxpr.
        platform: The platform whose branch of `lax.platform_dependent` is inlined; None for none.
    """
    types = [v.aval for v in closed.jaxpr.invars]
    run = lambda *args: _called(closed.jaxpr, closed.consts, args, platform)
    return jax.make_jaxpr(run)(*types)


def variables(inputs: Sequence) -> list[Var]:
    """Return the variables among the inputs of an equation."""
    return [v for v in inputs if not isinstance(v, Literal)]


def _called(jaxpr: Jaxpr, consts, args, platform: str | None = None) -> list:
    """Evaluate a jaxpr with the functions that it calls inlined."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        if name := _CALLS.get(eqn.primitive):
            called = eqn.params[name]
            held = () if isinstance(called, Jaxpr) else called.consts
            called = called if isinstance(called, Jaxpr) else called.jaxpr
            out = _called(called, held, inputs, platform)
        elif eqn.primitive is p.scan_p and eqn.params["length"] == 1:
            closed, (before, count) = eqn.params["jaxpr"], counts_of_scan(eqn.params)
            first = [lax.squeeze(x, (0,)) for x in inputs[before + count :]]
            args = [*inputs[: before + count], *first]
            out = _called(closed.jaxpr, closed.consts, args, platform)
            out[count:] = [lax.expand_dims(y, (0,)) for y in out[count:]]
        elif platform and (branches := platform_branches(eqn.params)):
            branch = branches[platform if platform in branches else "default"]
            out = _called(branch.jaxpr, branch.consts, inputs[1:], platform)
        elif eqn.primitive is p.pad_p and not np.any(eqn.params["padding_config"]):
            out = inputs[:1]
        else:
            out = outputs_of(jaxpr, eqn, inputs)
        known |= zip(eqn.outvars, out, strict=True)
    return [read(v) for v in jaxpr.outvars]
