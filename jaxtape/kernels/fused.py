"""One kernel for sweeps of chains and for the elementwise operations before, between and behind them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ..jax_private import JaxprEqn, Literal, Var
from .leaf import Leaf
from .pallas import Tile, barrier, number_of_tile, numbers_of_paths
from .paths import Value
from .run import KernelRun, cut, run_kernel
from .sweeps import KernelSweeps
from .walk import Walk

Values = dict[Var, Any]


class Operation(NamedTuple):
    """An operation in a kernel.

    Attributes:
        apply: The function of a walk, the values so far, and references to what it reads, to what it writes and
            to its scratch, which adds its results to the values.
        reads: The leaves that it reads from memory, with their stacks.
        writes: The leaves whose stacks it writes to memory, by their variables.
        scratch: The leaves that it writes for itself.
    """

    apply: Callable[[Walk, Values, list, list, list], None]
    reads: tuple[tuple[Leaf, Any], ...] = ()
    writes: tuple[tuple[Var, Leaf], ...] = ()
    scratch: tuple[Leaf, ...] = ()


def of_equation(eqn: JaxprEqn) -> Operation:
    """Return an elementwise operation, or another of which `Walk` has the rule."""

    def apply(walk: Walk, known: Values, *_) -> None:
        known |= zip(
            eqn.outvars, walk.applied(eqn, [read(walk, known, v) for v in eqn.invars]), strict=True
        )

    return Operation(apply)


def first_sweep(
    sweeps: KernelRun, arrays: tuple[list, list], init: Sequence, found: Sequence[Var]
) -> Operation:
    """Return the first sweep of a chain, or its run without a sweep back.

    Args:
        sweeps: The sweeps of the chain.
        arrays: Its consts and xs.
        init: The variables of the first state.
        found: The variables of the last state, of ys, and of the slots: references, which `reverse_sweep`
            reads.
    """
    of = sweeps.layout
    leaves, stacks = sweeps.read_forward(*map(tuple, arrays))
    of_state, of_ys, of_slots = cut(found, (of.state, of.ys, of.slots))

    def apply(walk: Walk, known: Values, refs: list, ys: list, scratch: list) -> None:
        first = _tiles(walk, known, of.state, init)
        last = sweeps.advance(cut(refs, leaves), ys, scratch, first, walk.interpret)
        barrier(walk.tile, walk.interpret)
        known |= zip([*of_state, *of_slots], [*_valued(of.state, last), *scratch], strict=True)

    ys = tuple(zip(of_ys, of.ys, strict=True))
    return Operation(apply, _paired(leaves, stacks), ys, of.slots)


def reverse_sweep(
    sweeps: KernelSweeps, arrays: tuple[list, list], given: tuple, found: Sequence[Var]
) -> Operation:
    """Return the reverse sweep of a chain without ys and without cotangents of xs.

    Args:
        sweeps: The sweeps of the chain.
        arrays: Its consts and xs.
        given: The variables of the first state, of the slots, and of the last state's cotangents.
        found: The variables of the cotangents of consts and of the first state.
    """
    of, (init, kept, bars) = sweeps.layout, given
    leaves, stacks = sweeps.read_second(*map(tuple, arrays))

    def apply(walk: Walk, known: Values, refs: list, _: list, scratch: list) -> None:
        first = _tiles(walk, known, of.state, init)
        bar = _tiles(walk, known, of.bars[1], bars)
        memory = [known[v] for v in kept], [], [], scratch
        total, bar = sweeps.pull_back(cut(refs, leaves), memory, first, bar, walk.interpret)
        values = _valued(of.bars[0] + of.bars[1], [*total, *bar])
        known |= zip(found, values, strict=True)

    return Operation(apply, _paired(leaves, stacks), (), sweeps.scratch)


def run_fused(
    tile: Tile,
    paths: int,
    operations: Sequence[Operation],
    inputs: dict[Var, jax.Array],
    outputs: Sequence[Var],
    interpret: bool,
) -> dict[Var, jax.Array]:
    """Run operations in one kernel, from arrays to those of some variables and to what operations write."""
    taken = [Leaf.of(v.aval, tile, paths) for v in inputs]
    results = [_result(v, tile, paths) for v in outputs]
    reads, writes, scratch = zip(*(each[1:] for each in operations), strict=True)

    def kernel(*refs):
        found = cut(refs, (taken, *reads, results, *writes, *scratch))
        count = len(operations)
        of_taken, of_results = found[0], found[1 + count]
        parts = found[1 : 1 + count], found[2 + count : 2 + 2 * count], found[2 + 2 * count :]
        walk = Walk(tile, paths, numbers_of_paths(tile), interpret)
        tiles = [leaf.load(ref, 0, tile) for leaf, ref in zip(taken, of_taken, strict=True)]
        known: Values = dict(zip(inputs, _valued(taken, tiles), strict=True))
        for operation, *own in zip(operations, *parts, strict=True):
            operation.apply(walk, known, *own)
        for v, leaf, ref in zip(outputs, results, of_results, strict=True):
            value = walk.summed(known[v]) if leaf.is_sum else known[v]
            leaf.store(ref, 0, leaf.tiles(value), tile, number_of_tile())

    pairs = [(leaf, x[None]) for leaf, x in zip(taken, inputs.values(), strict=True)]
    pairs += [pair for part in reads for pair in part]
    stacks = dict(sum(writes, ()))
    leaves = [*results, *stacks.values()]
    found = run_kernel("fused", kernel, tile, paths, pairs, leaves, sum(scratch, ()), interpret)
    one, whole = cut(found, (outputs, [*stacks]))
    return dict(zip((*outputs, *stacks), (*(x[0] for x in one), *whole), strict=True))


def _result(v: Var, tile: Tile, paths: int) -> Leaf:
    """Return the leaf by which a kernel writes a variable: one without an axis of paths is a sum over tiles."""
    leaf = Leaf.of(v.aval, tile, paths)
    return leaf._replace(is_sum=leaf.axis is None)


def read(walk: Walk, known: Values, v: Any) -> Value:
    """Return the value of a variable or of a literal."""
    return walk.literal(v) if isinstance(v, Literal) else known[v]


def _tiles(walk: Walk, known: Values, leaves: Sequence[Leaf], of: Sequence) -> list[tuple]:
    """Return the tiles of variables."""
    return [leaf.tiles(read(walk, known, v)) for leaf, v in zip(leaves, of, strict=True)]


def _valued(leaves: Sequence[Leaf], tiles: Sequence) -> list[Value]:
    """Return the values of tiles."""
    return [leaf.value(each) for leaf, each in zip(leaves, tiles, strict=True)]


def _paired(leaves: tuple, stacks: tuple) -> tuple[tuple[Leaf, Any], ...]:
    return tuple(zip(sum(leaves, ()), sum(map(tuple, stacks), ()), strict=True))
