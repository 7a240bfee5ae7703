"""One kernel that runs a chain of independent paths and keeps some of its states for a reverse sweep."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .chain_leaves import ChainLayout, ChainTypes
from .leaf import Leaf, stacks, summed
from .node import NodeFunction
from .pallas import Tile, call, full, loop, numbers_of_paths, when
from .paths import NoKernelError
from .walk import Walk

_MOST_OPERATIONS = 4096  # of a function of a node, on tiles
_TPU_SCALARS = 2**19  # bytes of scalar memory (SMEM), of which a core has 1 MiB
_TPU_BYTES = 14 * 2**20  # of vector memory (VMEM) for a tile; a program may have 16 MiB


@dataclasses.dataclass(frozen=True, eq=False)
class KernelRun:
    """A run of one chain, on one kind of accelerator.

    Attributes:
        layout: The leaves of the chain.
        length: The number of nodes.
        block: The number of nodes in a block. The state before each block is kept; the last block may be
            shorter.
        reverse: Whether node k reads `xs[length-1-k]` and writes `ys` there.
        sum_ys: The number of consecutive nodes whose y's are summed into one entry of `ys`.
        needed: The mask of the leaves of the state that are kept.
        step: The function from consts, state and x to the next state and y.
    """

    layout: ChainLayout
    length: int
    block: int
    reverse: bool
    sum_ys: int
    needed: tuple[bool, ...]
    step: NodeFunction

    @classmethod
    def of_chain(
        cls,
        platform: str,
        step: Callable,
        types: ChainTypes,
        *,
        length: int,
        reverse: bool,
        sum_ys: int = 1,
    ) -> "KernelRun":
        """Return a run that keeps no state.

        Args:
            platform: "gpu" or "tpu".
            step: The function `step(consts, state, x) -> (state, y)`.
            types: The types of the chain's leaves.
            length: The number of nodes, at least 1.
            reverse: Whether the nodes read `xs` from its end.
            sum_ys: The number of consecutive nodes whose ys are added up; `length` is a multiple.

        `NoKernelError` is raised if the chain cannot run as a kernel.
        """
        none = (False,) * len(types.state)
        layout = ChainLayout.of(platform, types, length, 1, none, _nothing(types), sum_ys)
        node = step_of(layout, step, types)
        run = cls(layout, length, length, reverse, sum_ys, none, node)
        run.check()
        return run

    def __str__(self) -> str:
        return f"one kernel a run, of tiles of {self.layout.tile.size:,} paths"

    @property
    def functions(self) -> tuple[NodeFunction, ...]:
        """The functions of a node; the last one reads and writes the most."""
        return (self.step,)

    def check(self) -> None:
        """Trace the functions of a node, and check their sizes.

        Raises:
            NoKernelError: If an operation has no rule, or a limit is exceeded.
        """
        count = max(each.operations() for each in self.functions)
        if count > _MOST_OPERATIONS:
            raise NoKernelError(f"a node takes {count:,} operations for a path")
        check_memory(self.layout.tile, *self._in_memory())

    def tile_bytes(self) -> int:
        """Return the bytes of vector memory that a tile takes on a TPU."""
        return _vmem_bytes(self.layout.tile, *self._in_memory())

    def _in_memory(self) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
        """Return the leaves that the last function of a node reads and writes, and those that a tile holds."""
        function = self.functions[-1]
        return (*sum(function.read, ()), *function.sources, *function.results), ()

    def run(self, consts: tuple, init: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return the last state and ys."""
        return self.forward("run", consts, init, xs, interpret)[:2]

    def forward(self, name: str, consts: tuple, init: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return the last state, ys, and the states in slots; a slot that no block uses is undefined."""
        of = self.layout
        sources, read = self.read_forward(consts, xs, interpret)
        parts = *sources, of.state, of.state, of.ys, of.slots

        def kernel(*refs):
            *of_sources, of_init, of_last, of_ys, of_slots = cut(refs, parts)
            state = self.load(of.state, of_init, 0)
            last = self.advance(of_sources, of_ys, of_slots, state, interpret)
            self.store(of.state, of_last, 0, last)

        reads = *read, stacks(init)
        last, ys, slots = self.call(name, kernel, parts[:4], reads, parts[4:], (), interpret)
        return tuple(leaf[0] for leaf in last), ys, slots

    def read_forward(self, consts: tuple, xs: tuple, interpret: bool) -> tuple[tuple, tuple]:
        """Return the leaves that all nodes read beside the state, in parts, and their stacks."""
        reads_x = self.reads_x(self.step)
        leaves = *self.step.read, pick(reads_x, self.layout.xs)
        return leaves, (*self.step.values(consts, xs, interpret), pick(reads_x, xs))

    def advance(
        self, sources: list, of_ys: list, of_slots: list, state: list, interpret: bool
    ) -> list:
        """Return the tiles of the last state, within a kernel; write ys and the states of slots.

        Args:
            sources: The references to what `read_forward` returns.
            of_ys: Those to ys.
            of_slots: Those to slots.
            state: The tiles of the first state.
            interpret: Whether Pallas interprets the kernel.
        """
        of, n, size = self.layout, self.length, self.block
        *of_shared, of_xs = sources
        reads_x, step = self.reads_x(self.step), self.running(self.step, interpret, *of_shared)

        def node(k, carry: tuple) -> tuple:
            (state, total), at = carry, self.place(k)
            tiles = [*state, *self.load_x(reads_x, of_xs, at)]
            state, y = cut(step(at, tiles), (state, of.ys))
            if self.sum_ys == 1:
                self.store(of.ys, of_ys, at, y)
                return state, total
            total = self._added(k, total, y)
            is_last = lax.rem(k, np.int32(self.sum_ys)) == np.int32(self.sum_ys - 1)
            when(is_last, lambda: self.store(of.ys, of_ys, self.sum_at(at), total))
            return state, total

        def block(j, carry: tuple, nodes: int = size) -> tuple:
            self.store(of.slots, of_slots, j, list(pick(self.needed, carry[0])))
            return loop(nodes, lambda i, carry: node(j * np.int32(size) + i, carry), carry)

        zeros = [(full(of.tile, 0, x.held),) * x.rows for x in of.ys]
        carry = loop(n // size, block, (state, zeros if self.sum_ys > 1 else []))
        carry = block(n // size, carry, n % size) if n % size else carry
        return carry[0]

    def running(
        self, function: NodeFunction, interpret: bool, of_shared: list, of_nodes: list
    ) -> Callable:
        """Return the function `run(at, tiles)` of the node whose x is number `at`, within a kernel."""
        tile = self.layout.tile
        walk = Walk(tile, self.layout.paths, numbers_of_paths(tile), interpret)
        reads, at_node = function.read
        constants = function.constants(walk, self.load(reads, of_shared, 0))

        def run(at, tiles: list) -> list:
            return function.run(walk, constants, [*tiles, *self.load(at_node, of_nodes, at)])

        return run

    def reads_x(self, *functions: NodeFunction) -> tuple[bool, ...]:
        """Return the mask of the leaves of x that the functions read; a kernel gets no others."""
        first = len(self.layout.state)
        of_x = slice(first, first + len(self.layout.xs))
        masks = [function.reads_source[of_x] for function in functions]
        return tuple(map(any, zip(*masks, strict=True)))

    def load_x(self, reads: tuple[bool, ...], refs: Sequence, at) -> list[tuple | None]:
        """Return the tiles of the leaves of x that are read, and None for the others."""
        found = iter(self.load(pick(reads, self.layout.xs), refs, at))
        return [next(found) if read else None for read in reads]

    def _added(self, k, total: list, y: list) -> list:
        """Add node k's y to the running sums; a node that starts a new sum replaces them."""
        is_first = lax.rem(k, np.int32(self.sum_ys)) == np.int32(0)
        one = lambda total, y: jnp.where(is_first, y, total + y)
        return jax.tree.map(one, total, [tuple(tiles) for tiles in y])

    def sum_at(self, at):
        """Return the place in `ys` of the node whose x is number `at`."""
        return at if self.sum_ys == 1 else lax.div(at, np.int32(self.sum_ys))

    def place(self, k):
        return np.int32(self.length - 1) - k if self.reverse else k

    def load(self, leaves: Sequence[Leaf], refs: Sequence, k) -> list[tuple]:
        return [leaf.load(ref, k, self.layout.tile) for leaf, ref in zip(leaves, refs, strict=True)]

    def store(
        self, leaves: Sequence[Leaf], refs: Sequence, k, tiles: Sequence, number: Any = None
    ) -> None:
        for leaf, ref, each in zip(leaves, refs, tiles, strict=True):
            leaf.store(ref, k, each, self.layout.tile, number)

    def call(
        self, name: str, kernel: Callable, parts, reads, writes, scratch, interpret: bool
    ) -> list[tuple]:
        """Run a kernel on stacks of the leaves that it reads, and return those that it writes."""
        tile, paths = self.layout.tile, self.layout.paths
        pairs = [*zip(sum(parts, ()), (x for part in reads for x in part), strict=True)]
        found = run_kernel(name, kernel, tile, paths, pairs, sum(writes, ()), scratch, interpret)
        return [tuple(part) for part in cut(found, writes)]


def check_memory(tile: Tile, moved: Sequence[Leaf], held: Sequence[Leaf]) -> None:
    """Check that a tile on a TPU has memory for the leaves that it reads and writes, and those that it holds.

    Raises:
        NoKernelError: If it does not.
    """
    if tile.platform == "gpu":
        return
    if (size := _vmem_bytes(tile, moved, held)) > _TPU_BYTES:
        raise NoKernelError(f"a tile of {tile.size:,} paths takes {size:,} bytes of VMEM")
    scalars = 4 * sum(x.stack * x.rows for x in moved if x.axis is None)
    if scalars > _TPU_SCALARS:
        raise NoKernelError(f"what paths share takes {scalars:,} bytes of SMEM")


def fits(tile: Tile, moved: Sequence[Leaf], held: Sequence[Leaf]) -> bool:
    """Return True if a tile on a TPU has vector memory for the leaves."""
    return tile.platform == "gpu" or _vmem_bytes(tile, moved, held) <= _TPU_BYTES


def _vmem_bytes(tile: Tile, moved: Sequence[Leaf], held: Sequence[Leaf]) -> int:
    rows = sum(2 * x.stack * x.rows for x in moved if x.axis is not None)  # of two tiles at once
    return 4 * tile.size * (rows + sum(x.stack * x.rows for x in held))


def run_kernel(
    name: str,
    kernel: Callable,
    tile: Tile,
    paths: int,
    reads: Sequence[tuple[Leaf, Any]],
    writes: Sequence[Leaf],
    scratch: Sequence[Leaf],
    interpret: bool,
) -> list[jax.Array]:
    """Run a kernel on leaves and their stacks, and return the stacks of the leaves that it writes."""
    args = [leaf.laid(stack, tile) for leaf, stack in reads]
    types, held = ([leaf.written(tile, paths) for leaf in part] for part in (writes, scratch))
    found = call(name, kernel, tile, paths, args, types, held, interpret)
    pairs = zip(writes, summed(writes, found), strict=True)
    return [leaf.taken(each, tile) for leaf, each in pairs]


def step_of(layout: ChainLayout, step: Callable, types: ChainTypes) -> NodeFunction:
    """Return the step of a chain as a function of its leaves."""
    reads, writes = (*layout.state, *layout.xs), (*layout.state, *layout.ys)
    return NodeFunction.of(step, types[:3], reads, writes, layout.tile, layout.paths)


def _nothing(types: ChainTypes) -> tuple[tuple[bool, ...], ...]:
    """Return masks that select no leaf."""
    return tuple((False,) * len(part) for part in types)


def pick(mask: Sequence[bool], items: Sequence) -> tuple:
    """Return the items that a mask selects."""
    return tuple(compress(items, mask))


def cut(items: Sequence, parts: Sequence[Sequence]) -> list[list]:
    """Cut items into lists with the lengths of the parts."""
    rest = iter(items)
    return [[next(rest) for _ in part] for part in parts]
