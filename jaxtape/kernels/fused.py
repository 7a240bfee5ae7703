"""One kernel for sweeps of chains and for the elementwise operations before, between and behind them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..jax_private import JaxprEqn, Literal, Var
from .leaf import Leaf, stacks
from .pallas import Tile, barrier, number_of_tile, numbers_of_paths
from .paths import Kind, Value
from .run import KernelRun, check_memory, cut, run_kernel
from .sweeps import KernelSweeps
from .walk import Walk

Values = dict[Var, Any]
_MOST_LITERALS = 16  # of a constant array
_NO_PATH = np.uint32(2**32 - 1)


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
    sweeps: KernelRun,
    arrays: tuple[list, list],
    init: Sequence,
    found: Sequence[Var],
    interpret: bool,
) -> Operation:
    """Return the first sweep of a chain, or its run without a sweep back.

    Args:
        sweeps: The sweeps of the chain.
        arrays: Its consts and xs.
        init: The variables of the first state.
        found: The variables of the last state, of ys, and of the slots: references, which `reverse_sweep`
            reads.
        interpret: Whether Pallas interprets the kernel.
    """
    of = sweeps.layout
    leaves, stacks = sweeps.read_forward(*_tuples(arrays), interpret)
    of_state, of_ys, of_slots = cut(found, (of.state, of.ys, of.slots))

    def apply(walk: Walk, known: Values, refs: list, ys: list, scratch: list) -> None:
        first = _tiles(walk, known, of.state, init)
        last = sweeps.advance(cut(refs, leaves), ys, scratch, first, walk.interpret)
        barrier(walk.tile, walk.interpret)
        known |= zip([*of_state, *of_slots], [*_valued(of.state, last), *scratch], strict=True)

    ys = tuple(zip(of_ys, of.ys, strict=True))
    return Operation(apply, _paired(leaves, stacks), ys, of.slots)


def reverse_sweep(
    sweeps: KernelSweeps,
    arrays: tuple[list, list],
    given: tuple,
    found: Sequence[Var],
    interpret: bool,
) -> Operation:
    """Return the reverse sweep of a chain without ys and without cotangents of xs.

    Args:
        sweeps: The sweeps of the chain.
        arrays: Its consts and xs.
        given: The variables of the first state, of the slots, and of the last state's cotangents.
        found: The variables of the cotangents of consts and of the first state.
        interpret: Whether Pallas interprets the kernel.
    """
    of, (init, kept, bars) = sweeps.layout, given
    leaves, stacks = sweeps.read_second(*_tuples(arrays), interpret)

    def apply(walk: Walk, known: Values, refs: list, _: list, scratch: list) -> None:
        first = _tiles(walk, known, of.state, init)
        bar = _tiles(walk, known, of.bars[1], bars)
        memory = [known[v] for v in kept], [], [], scratch
        total, bar = sweeps.pull_back(cut(refs, leaves), memory, first, bar, walk.interpret)
        values = _valued(of.bars[0] + of.bars[1], [*total, *bar])
        known |= zip(found, values, strict=True)

    return Operation(apply, _paired(leaves, stacks), (), sweeps.scratch)


def _tuples(arrays: tuple[list, list]) -> tuple[tuple, tuple]:
    consts, xs = arrays
    return tuple(consts), tuple(xs)


def run_fused(
    tile: Tile,
    paths: int,
    operations: Sequence[Operation],
    inputs: dict[Var, Any],
    outputs: Sequence[Var],
    interpret: bool,
) -> dict[Var, jax.Array]:
    """Run operations in one kernel, from arrays to those of some variables and to what operations write.

    `NoKernelError` is raised if a tile takes too much memory.
    """
    taken = [Leaf.of(v.aval, tile, paths) for v in inputs]
    results = [_result(v, tile, paths) for v in outputs]
    reads, writes, scratch = zip(*(each[1:] for each in operations), strict=True)

    pairs = [*zip(taken, stacks(inputs.values()), strict=True)]
    pairs += [pair for part in reads for pair in part]
    literals = [_literals(leaf, stack) for leaf, stack in pairs]
    places = _places(tile, pairs)
    given = dict.fromkeys(p for p, held in zip(places, literals, strict=True) if held is None)

    def kernel(*refs):
        of_given = dict(zip(given, refs[: len(given)], strict=True))
        of_pairs = zip(places, literals, strict=True)
        read = (of_given[place] if held is None else held for place, held in of_pairs)
        refs = *read, *refs[len(given) :]
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

    written = dict(sum(writes, ()))
    leaves, held = [*results, *written.values()], sum(scratch, ())
    distinct = [pairs[place] for place in given]
    check_memory(tile, [*(leaf for leaf, _ in distinct), *leaves], held)
    found = run_kernel("fused", kernel, tile, paths, distinct, leaves, held, interpret)
    one, whole = cut(found, (outputs, [*written]))
    return dict(zip((*outputs, *written), (*(x[0] for x in one), *whole), strict=True))


def _literals(leaf: Leaf, stack: Any) -> np.ndarray | None:
    """Return the numbers of a constant array as a kernel holds them, like a reference to a vector.

    It is None for a stack of arrays, for many numbers, and for an array that is computed.
    """
    is_small = (
        leaf.axis is None and not leaf.words and leaf.stack == 1 and leaf.rows <= _MOST_LITERALS
    )
    return stack.ravel().astype(leaf.held) if is_small and isinstance(stack, np.ndarray) else None


def _places(tile: Tile, pairs: Sequence[tuple[Leaf, Any]]) -> list[int]:
    """Return, for each leaf and its stack, the place of the first that is the same.

    On a TPU a kernel has each stack of a tile in fast memory once; on a GPU each sweep reads it again.
    """
    if tile.platform == "gpu":
        return [*range(len(pairs))]
    keys = [(leaf, id(stack)) for leaf, stack in pairs]
    return [keys.index(key) for key in keys]


def _result(v: Var, tile: Tile, paths: int) -> Leaf:
    """Return the leaf by which a kernel writes a variable: one without an axis of paths is a sum over tiles."""
    leaf = Leaf.of(v.aval, tile, paths)
    return leaf._replace(is_sum=leaf.axis is None)


def read(walk: Walk, known: Values, v: Any) -> Value:
    """Return the value of a variable or of a literal."""
    return walk.literal(v) if isinstance(v, Literal) else known[v]


def _tiles(walk: Walk, known: Values, leaves: Sequence[Leaf], of: Sequence) -> list[tuple]:
    """Return the tiles of variables, with which a loop starts."""
    values = [read(walk, known, v) for v in of]
    return [
        tuple(
            _unlike(walk, tile) if value.kind is Kind.SHARED else tile for tile in leaf.tiles(value)
        )
        for leaf, value in zip(leaves, values, strict=True)
    ]


def _unlike(walk: Walk, tile: jax.Array) -> jax.Array:
    """Return a tile of equal entries as if they could differ: Mosaic refuses some loops from constants."""
    if walk.tile.platform == "gpu":
        return tile
    other = lax.bitcast_convert_type(walk.path, tile.dtype)
    return jnp.where(walk.path == _NO_PATH, other, tile)


def _valued(leaves: Sequence[Leaf], tiles: Sequence) -> list[Value]:
    """Return the values of tiles."""
    return [leaf.value(each) for leaf, each in zip(leaves, tiles, strict=True)]


def _paired(leaves: tuple, stacks: tuple) -> tuple[tuple[Leaf, Any], ...]:
    return tuple(zip(sum(leaves, ()), sum(map(tuple, stacks), ()), strict=True))
