"""The two sweeps of a chain of independent paths, each as one kernel.

The first runs all nodes of a tile, and keeps the state before every block of nodes in a slot. The second takes
the blocks from the last: it runs a block again from its slot, keeps the state before each of its nodes in
scratch, and pulls back through them. The pullback is that of `jax.vjp`, traced before the kernel is made.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import numpy as np
from jax import lax

from ..programs.device_limits import BYTES
from .layout import ChainLayout, ChainTypes
from .leaf import Leaf, summed
from .node import NodeFunction
from .pallas import barrier, call, full, number_of_tile, numbers_of_paths
from .paths import NoKernelError
from .walk import Walk

_MOST_OPERATIONS = 4096  # of the pullback of a node, on tiles
_TPU_SCALARS = 2**19  # bytes of the memory of scalars, of which a core has 1 MiB
_TPU_BYTES = 14 * 2**20  # of fast memory for a tile, of the 16 MiB that a program may have


@dataclasses.dataclass(frozen=True, eq=False)
class KernelSweeps:
    """The sweeps of one chain, on one kind of accelerator.

    Attributes:
        layout: The leaves of the chain.
        length: The number of nodes.
        block: The number of nodes of a block; the last one may have fewer.
        reverse: Whether node k reads `xs[length-1-k]` and writes `ys` there.
        needed: The mask of the leaves of the state that are kept.
        step: The function from consts, state and x to the next state and y.
        again: The same to the needed leaves of the next state.
        pull: The function from consts, state, x and the cotangents of the next state and of y to those of the
            active consts, the active leaves of the state and of x.
    """

    layout: ChainLayout
    length: int
    block: int
    reverse: bool
    needed: tuple[bool, ...]
    step: NodeFunction
    again: NodeFunction
    pull: NodeFunction

    @classmethod
    def of(
        cls,
        platform: str,
        step: Callable,
        pull: Callable,
        types: ChainTypes,
        *,
        length: int,
        slots: int,
        reverse: bool,
        needed: tuple[bool, ...],
        active: tuple[tuple[bool, ...], ...],
    ) -> "KernelSweeps":
        """Return the sweeps.

        Args:
            platform: "gpu" or "tpu".
            step: The function `step(consts, state, x) -> (state, y)`.
            pull: The function `pull(consts, state, x, state_bar, y_bar) -> (consts_bar, state_bar, x_bar)`, of
                the active leaves alone.
            types: The types of the chain's leaves.
            length: The number of nodes, at least 1.
            slots: The number of states that may be kept.
            reverse: Whether the nodes read `xs` from its end.
            needed: The mask of the leaves of the state to keep.
            active: The masks of the leaves of consts, the state, x and y that have a cotangent.

        `NoKernelError` is raised if they are no kernels.
        """
        layout = ChainLayout.of(platform, types, length, slots, needed, active)
        consts, state, x, y = types
        of_node, kept = (*layout.state, *layout.xs), _pick(needed, layout.state)
        bars = _pick(active[1], state), _pick(active[3], y)
        again = lambda *args: _pick(needed, step(*args)[0])
        function = functools.partial(NodeFunction.of, tile=layout.tile, paths=layout.paths)
        of_bars = *layout.bars[1], *layout.y_bars
        sweeps = cls(
            layout,
            length,
            -(-length // slots),
            reverse,
            needed,
            function(step, (consts, state, x), of_node, (*layout.state, *layout.ys)),
            function(again, (consts, state, x), of_node, kept),
            function(pull, (consts, state, x, *bars), (*of_node, *of_bars), sum(layout.bars, ())),
        )
        sweeps.check()
        return sweeps

    def __str__(self) -> str:
        scratch = self.block if self.block > 1 and self.layout.slots else 0
        where = "memory" if self.layout.tile.platform == "gpu" else "VMEM"
        beside = f", with {scratch:,} states in {where} beside the slots" if scratch else ""
        return f"one kernel a sweep, of tiles of {self.layout.tile.size:,} paths{beside}"

    def check(self) -> None:
        """Trace what a node does, and count it.

        Raises:
            NoKernelError: If an operation has no rule, or there is too much of something.
        """
        count = max(each.operations() for each in (self.step, self.again, self.pull))
        if count > _MOST_OPERATIONS:
            raise NoKernelError(f"a node takes {count:,} operations for a path")
        tile = self.layout.tile
        if tile.platform == "tpu" and (held := self.tile_bytes()) > _TPU_BYTES:
            raise NoKernelError(f"a tile of {tile.size:,} paths takes {held:,} bytes of VMEM")
        scalars = 4 * sum(x.stack * x.rows for x in self._pulled if x.axis is None)
        if tile.platform == "tpu" and scalars > _TPU_SCALARS:
            raise NoKernelError(f"what paths share takes {scalars:,} bytes of SMEM")

    def tile_bytes(self) -> int:
        """Return the bytes of fast memory that a tile of the second sweep takes on a TPU."""
        slots = self.layout.slots
        piped = sum(2 * x.stack * x.rows for x in (*self._pulled, *slots) if x.axis is not None)
        block = sum(self.block * x.rows for x in slots)
        return (piped + block) * self.layout.tile.size * 4

    @property
    def _pulled(self) -> tuple[Leaf, ...]:
        """The leaves that the pullback of a node reads and writes."""
        return *sum(self.pull.read, ()), *self.pull.sources, *self.pull.results

    def work(self) -> Counter[str]:
        """Return the bytes and the operations of both sweeps, for all paths.

        Each array counts once a sweep, as if the states and xs of a block stayed in a cache.
        """
        of, n, blocks = self.layout, self.length, -(-self.length // self.block)
        xs = (_pick(self._reads_x(*f), of.xs) for f in ((self.step,), (self.again, self.pull)))
        reads = *of.state, *of.state, *of.slots, *of.bars[1], *of.y_bars, *sum(xs, ())
        writes = *of.state, *of.ys, *of.slots, *sum(of.bars, ())
        moved = (*reads, *writes)
        found = Counter({BYTES: sum(leaf.bytes(of.tile, of.paths) for leaf in moved)})
        turns = (self.step, n), (self.again, n - blocks), (self.pull, n)
        for function, times in turns:
            for kind, count in function.work().items():
                found[kind] += of.paths * times * count
        return found

    def first(self, consts: tuple, init: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return the last state, ys, and the states in slots; a slot that no block needs has any value."""
        of, n, size = self.layout, self.length, self.block
        reads_x = self._reads_x(self.step)
        parts = *self.step.read, of.state, _pick(reads_x, of.xs), of.state, of.ys, of.slots

        def kernel(*refs):
            *of_shared, of_init, of_xs, of_last, of_ys, of_slots = _cut(refs, parts)
            step = self._running(self.step, interpret, *of_shared)

            def node(k, state: list) -> list:
                at = self._place(k)
                tiles = [*state, *self._load_x(reads_x, of_xs, at)]
                state, y = _cut(step(at, tiles), (state, of.ys))
                self._store(of.ys, of_ys, at, y)
                return state

            def block(j, state: list, nodes: int = size) -> list:
                self._store(of.slots, of_slots, j, list(_pick(self.needed, state)))
                return _loop(nodes, lambda i, state: node(j * np.int32(size) + i, state), state)

            state = _loop(n // size, block, self._load(of.state, of_init, 0))
            state = block(n // size, state, n % size) if n % size else state
            self._store(of.state, of_last, 0, state)

        reads = *self.step.values(consts, xs), _stacks(init), _pick(reads_x, xs)
        last, ys, slots = self._call(
            "first_sweep", kernel, parts[:4], reads, parts[4:], (), interpret
        )
        return tuple(leaf[0] for leaf in last), ys, slots

    def second(
        self, consts: tuple, init: tuple, xs: tuple, slots: tuple, bars: tuple, interpret: bool
    ) -> tuple:
        """Return the cotangents of consts, the first state and xs, from those of the last state and of ys."""
        of, size = self.layout, self.block
        scratch = tuple(x._replace(stack=size) for x in of.slots) if size > 1 else ()
        reads_x = self._reads_x(self.again, self.pull)
        own = of.state, _pick(reads_x, of.xs), of.slots, of.bars[1], of.y_bars
        parts = *self.again.read, *self.pull.read, *own

        def kernel(*refs):
            found = _cut(refs, (*parts, *of.bars, scratch))
            of_init, of_xs, of_slots, of_bar, of_y_bars = found[4:9]
            of_consts_bar, of_init_bar, of_xs_bar, of_scratch = found[9:]
            step = self._running(self.again, interpret, *found[:2])
            pull_back = self._running(self.pull, interpret, *found[2:4])
            first, number = self._load(of.state, of_init, 0), number_of_tile()

            def inputs(k, leaves: list) -> list:
                """Return the tiles of the state, of which the needed leaves are given, and of x."""
                given = iter(leaves)
                state = [
                    next(given) if x else old for x, old in zip(self.needed, first, strict=True)
                ]
                return [*state, *self._load_x(reads_x, of_xs, self._place(k))]

            def again(k, leaves: list) -> list:
                return step(self._place(k), inputs(k, leaves))

            def pull(k, leaves: list, carry: tuple) -> tuple:
                (total, bar), at = carry, self._place(k)
                tiles = [*inputs(k, leaves), *bar, *self._load(of.y_bars, of_y_bars, at)]
                consts_bar, bar, x_bar = _cut(pull_back(at, tiles), of.bars)
                self._store(of.bars[2], of_xs_bar, at, x_bar, number)
                return jax.tree.map(jax.numpy.add, total, consts_bar), bar

            zeros = [(full(of.tile, 0, x.held),) * x.rows for x in of.bars[0]]
            carry = zeros, self._load(of.bars[1], of_bar, 0)
            carry = self._pull_blocks(of_slots, of_scratch, again, pull, carry, interpret)
            self._store(of.bars[0], of_consts_bar, 0, carry[0], number)
            self._store(of.bars[1], of_init_bar, 0, carry[1])

        shared = *self.again.values(consts, xs), *self.pull.values(consts, xs)
        own = _stacks(init), _pick(reads_x, xs), slots, _stacks(bars[0]), bars[1]
        found = self._call(
            "reverse_sweep", kernel, parts, (*shared, *own), of.bars, scratch, interpret
        )
        consts_bar, init_bar, xs_bar = found
        return tuple(x[0] for x in consts_bar), tuple(x[0] for x in init_bar), xs_bar

    def _pull_blocks(
        self,
        slots: list,
        scratch: list,
        again: Callable,
        pull: Callable,
        carry: tuple,
        interpret: bool,
    ) -> tuple:
        """Return the carry after all blocks are pulled back, the last one first.

        Args:
            slots: The references to the states before the blocks.
            scratch: Those to room for the states of a block; empty where none is needed.
            again: The function `again(k, leaves)` to the needed leaves of the next state.
            pull: The function `pull(k, leaves, carry)` to the next carry.
            carry: The cotangents before the last node.
            interpret: Whether Pallas interprets the kernel.
        """
        size = self.block

        def block(j, carry: tuple, nodes: int = size) -> tuple:
            leaves = self._load(self.layout.slots, slots, j)
            start = j * np.int32(size)
            last = start + np.int32(nodes - 1)
            if not scratch:
                return _loop(nodes, lambda t, carry: pull(last - t, leaves, carry), carry)

            def keep(i, leaves: list) -> list:
                self._store(self.layout.slots, scratch, i, leaves)
                return again(start + i, leaves)

            def back(t, carry: tuple) -> tuple:
                leaves = self._load(self.layout.slots, scratch, np.int32(nodes - 1) - t)
                return pull(last - t, leaves, carry)

            leaves = _loop(nodes - 1, keep, leaves)
            self._store(self.layout.slots, scratch, nodes - 1, leaves)
            barrier(self.layout.tile, interpret)
            carry = _loop(nodes, back, carry)
            barrier(self.layout.tile, interpret)
            return carry

        whole, rest = divmod(self.length, size)
        carry = block(whole, carry, rest) if rest else carry
        return _loop(whole, lambda t, carry: block(np.int32(whole - 1) - t, carry), carry)

    def _running(
        self, function: NodeFunction, interpret: bool, of_shared: list, of_nodes: list
    ) -> Callable:
        """Return the function `run(at, tiles)` of the node whose x is number `at`, within a kernel."""
        tile = self.layout.tile
        walk = Walk(tile, self.layout.paths, numbers_of_paths(tile), interpret)
        reads, at_node = function.read
        constants = function.constants(walk, self._load(reads, of_shared, 0))

        def run(at, tiles: list) -> list:
            return function.run(walk, constants, [*tiles, *self._load(at_node, of_nodes, at)])

        return run

    def _reads_x(self, *functions: NodeFunction) -> tuple[bool, ...]:
        """Return the mask of the leaves of x that some functions read; others are no arguments of a kernel."""
        first = len(self.layout.state)
        of_x = slice(first, first + len(self.layout.xs))
        masks = [function.reads_source[of_x] for function in functions]
        return tuple(map(any, zip(*masks, strict=True)))

    def _load_x(self, reads: tuple[bool, ...], refs: Sequence, at) -> list[tuple | None]:
        """Return the tiles of the leaves of x that are read, and None for the others."""
        found = iter(self._load(_pick(reads, self.layout.xs), refs, at))
        return [next(found) if read else None for read in reads]

    def _place(self, k):
        return np.int32(self.length - 1) - k if self.reverse else k

    def _load(self, leaves: Sequence[Leaf], refs: Sequence, k) -> list[tuple]:
        return [leaf.load(ref, k, self.layout.tile) for leaf, ref in zip(leaves, refs, strict=True)]

    def _store(
        self, leaves: Sequence[Leaf], refs: Sequence, k, tiles: Sequence, number: Any = None
    ) -> None:
        for leaf, ref, each in zip(leaves, refs, tiles, strict=True):
            leaf.store(ref, k, each, self.layout.tile, number)

    def _call(
        self, name: str, kernel: Callable, parts, reads, writes, scratch, interpret: bool
    ) -> list[tuple]:
        """Run a kernel on stacks of the leaves that it reads, and return those that it writes."""
        tile, paths, results = self.layout.tile, self.layout.paths, sum(writes, ())
        pairs = zip(sum(parts, ()), (x for part in reads for x in part), strict=True)
        args = [leaf.laid(stack, tile) for leaf, stack in pairs]
        types = [leaf.written(tile, paths) for leaf in results]
        held = [leaf.written(tile, paths) for leaf in scratch]
        found = call(name, kernel, tile, paths, args, types, held, interpret)
        pairs = zip(results, summed(results, found), strict=True)
        taken = [leaf.taken(each, tile) for leaf, each in pairs]
        return [tuple(part) for part in _cut(taken, writes)]


def _pick(mask: Sequence[bool], items: Sequence) -> tuple:
    """Return the items that a mask selects."""
    return tuple(compress(items, mask))


def _cut(items: Sequence, parts: Sequence[Sequence]) -> list[list]:
    """Return items in lists as long as the parts."""
    rest = iter(items)
    return [[next(rest) for _ in part] for part in parts]


def _stacks(leaves: Sequence) -> tuple:
    """Return stacks of one array each."""
    return tuple(leaf[None] for leaf in leaves)


def _loop(turns: int, body: Callable, carry):
    """Return the carry after some turns of `body(i, carry)`; i has 32 bits, unlike that of `lax.fori_loop`."""
    if turns < 2:
        return body(np.int32(0), carry) if turns else carry

    def turn(numbered: tuple, _) -> tuple:
        i, carry = numbered
        return (i + np.int32(1), body(i, carry)), None

    return lax.scan(turn, (np.int32(0), carry), length=turns)[0][1]
