"""The two sweeps of a chain of independent paths, each as one kernel.

The first sweep runs all nodes of a tile, and keeps the state before every block of nodes in a slot. The second
takes the blocks in reverse order: it runs a block again from its slot, keeps the state before each of its nodes
in scratch, and pulls back through them. The pullback is that of `jax.vjp`, traced before the kernel is made.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import numpy as np

from ..programs.device_limits import BYTES
from .chain_leaves import ChainLayout, ChainTypes
from .leaf import Leaf, stacks
from .node import NodeFunction
from .pallas import barrier, full, loop, number_of_tile
from .run import KernelRun, cut, pick, step_of


@dataclasses.dataclass(frozen=True, eq=False)
class KernelSweeps(KernelRun):
    """The sweeps of one chain, on one kind of accelerator.

    Attributes:
        again: The step, reduced to the needed leaves of the next state.
        pull: The function from consts, state, x and the cotangents of the next state and of y to the cotangents
            of the active leaves of consts, state and x.
    """

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
        sum_ys: int = 1,
    ) -> "KernelSweeps":
        """Return the sweeps.

        Args:
            platform: "gpu" or "tpu".
            step: The function `step(consts, state, x) -> (state, y)`.
            pull: The function `pull(consts, state, x, state_bar, y_bar) -> (consts_bar, state_bar, x_bar)`,
                whose cotangents are those of the active leaves.
            types: The types of the chain's leaves.
            length: The number of nodes, at least 1.
            slots: The number of states that may be kept.
            reverse: Whether the nodes read `xs` from its end.
            needed: The mask of the leaves of the state to keep.
            active: The masks of the leaves of consts, the state, x and y that have a cotangent.
            sum_ys: The number of consecutive nodes whose ys are added up; `length` is a multiple.

        `NoKernelError` is raised if the sweeps cannot run as kernels.
        """
        layout = ChainLayout.of(platform, types, length, slots, needed, active, sum_ys)
        consts, state, x, y = types
        of_node, kept = (*layout.state, *layout.xs), pick(needed, layout.state)
        bars = pick(active[1], state), pick(active[3], y)
        again = lambda *args: pick(needed, step(*args)[0])
        function = functools.partial(NodeFunction.of, tile=layout.tile, paths=layout.paths)
        of_bars = *layout.bars[1], *layout.y_bars
        sweeps = cls(
            layout,
            length,
            -(-length // slots),
            reverse,
            sum_ys,
            needed,
            step_of(layout, step, types),
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

    @property
    def functions(self) -> tuple[NodeFunction, ...]:
        return self.step, self.again, self.pull

    def _in_memory(self) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
        moved, _ = super()._in_memory()
        kept = tuple(x for x in self.layout.slots if x.axis is not None)
        return (*moved, *kept), tuple(x._replace(stack=self.block) for x in self.layout.slots)

    def work(self) -> Counter[str]:
        """Return the bytes and the operations of both sweeps, for all paths.

        Each array counts once per sweep, as if the states and xs of a block stayed in a cache.
        """
        of, n, blocks = self.layout, self.length, -(-self.length // self.block)
        xs = (pick(self.reads_x(*f), of.xs) for f in ((self.step,), (self.again, self.pull)))
        reads = *of.state, *of.state, *of.slots, *of.bars[1], *of.y_bars, *sum(xs, ())
        writes = *of.state, *of.ys, *of.slots, *sum(of.bars, ())
        moved = (*reads, *writes)
        found = Counter({BYTES: self._bytes(moved)})
        turns = (self.step, n), (self.again, n - blocks), (self.pull, n)
        for function, times in turns:
            for kind, count in function.work().items():
                found[kind] += of.paths * times * count
        return found

    def repeated_bytes(self) -> int:
        """Return the bytes that a GPU reads and writes for all paths, within blocks, in addition to `work`.

        The second sweep reads a block's xs for its states and again for its pullback, and writes and reads
        those states. On a TPU both are in VMEM.
        """
        of, n = self.layout, self.length
        if of.tile.platform == "tpu":
            return 0
        again, pull, once = (
            self._bytes(pick(self.reads_x(*f), of.xs))
            for f in ((self.again,), (self.pull,), (self.again, self.pull))
        )
        blocks, states = -(-n // self.block), 2 * n * self._bytes(self.scratch) // self.block
        return again * (n - blocks) // n + pull - once + states

    def block_bytes(self) -> int:
        """Return the bytes of one block that the second sweep reads or writes repeatedly, for all paths."""
        xs = pick(self.reads_x(self.again, self.pull), self.layout.xs)
        return self._bytes(xs) * self.block // self.length + self._bytes(self.scratch)

    def _bytes(self, leaves: Sequence[Leaf]) -> int:
        return sum(leaf.bytes(self.layout.tile, self.layout.paths) for leaf in leaves)

    def first(self, consts: tuple, init: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return the last state, ys, and the states in slots; a slot that no block needs has any value."""
        return self.forward("first_sweep", consts, init, xs, interpret)

    def second(
        self, consts: tuple, init: tuple, xs: tuple, slots: tuple, bars: tuple, interpret: bool
    ) -> tuple:
        """Return the cotangents of consts, the first state and xs from those of the last state and ys."""
        of, scratch = self.layout, self.scratch
        sources, read = self.read_second(consts, xs, interpret)
        parts = *sources, of.state, of.slots, of.bars[1], of.y_bars

        def kernel(*refs):
            found = cut(refs, (*parts, *of.bars, scratch))
            of_init, of_slots, of_bar, of_y_bars, of_consts_bar, of_init_bar = found[-8:-2]
            of_xs_bar, of_scratch = found[-2:]
            first, number = self.load(of.state, of_init, 0), number_of_tile()
            memory = of_slots, of_y_bars, of_xs_bar, of_scratch
            bar = self.load(of.bars[1], of_bar, 0)
            total, bar = self.pull_back(found[: len(sources)], memory, first, bar, interpret)
            self.store(of.bars[0], of_consts_bar, 0, total, number)
            self.store(of.bars[1], of_init_bar, 0, bar)

        own = stacks(init), slots, stacks(bars[0]), bars[1]
        found = self.call(
            "reverse_sweep", kernel, parts, (*read, *own), of.bars, scratch, interpret
        )
        consts_bar, init_bar, xs_bar = found
        return tuple(x[0] for x in consts_bar), tuple(x[0] for x in init_bar), xs_bar

    @property
    def scratch(self) -> tuple[Leaf, ...]:
        """The leaves of the states of a block, which the second sweep keeps."""
        block = self.block
        return tuple(x._replace(stack=block) for x in self.layout.slots) if block > 1 else ()

    def read_second(self, consts: tuple, xs: tuple, interpret: bool) -> tuple[tuple, tuple]:
        """Return the leaves that all nodes of the second sweep read, in parts, and their stacks."""
        reads_x = self.reads_x(self.again, self.pull)
        leaves = *self.again.read, *self.pull.read, pick(reads_x, self.layout.xs)
        functions = self.again, self.pull
        shared = (x for each in functions for x in each.values(consts, xs, interpret))
        return leaves, (*shared, pick(reads_x, xs))

    def pull_back(
        self, sources: list, memory: tuple, first: list, bar: list, interpret: bool
    ) -> tuple[list, list]:
        """Return the tiles of the cotangents of consts and of the first state, within a kernel.

        Args:
            sources: The references to what `read_second` returns.
            memory: The references to slots, the cotangents of ys, those of xs, and scratch.
            first: The tiles of the first state.
            bar: The tiles of the cotangents of the last state.
            interpret: Whether Pallas interprets the kernel.
        """
        of, (of_slots, of_y_bars, of_xs_bar, of_scratch) = self.layout, memory
        reads_x, of_xs = self.reads_x(self.again, self.pull), sources[4]
        step = self.running(self.again, interpret, *sources[:2])
        pull_node = self.running(self.pull, interpret, *sources[2:4])
        number = number_of_tile()

        def inputs(k, leaves: list) -> list:
            """Return the tiles of x and of the state, whose needed leaves are given."""
            given = iter(leaves)
            state = [next(given) if x else old for x, old in zip(self.needed, first, strict=True)]
            return [*state, *self.load_x(reads_x, of_xs, self.place(k))]

        def again(k, leaves: list) -> list:
            return step(self.place(k), inputs(k, leaves))

        def pull(k, leaves: list, carry: tuple) -> tuple:
            (total, bar), at = carry, self.place(k)
            y_bars = self.load(of.y_bars, of_y_bars, self.sum_at(at))
            tiles = [*inputs(k, leaves), *bar, *y_bars]
            consts_bar, bar, x_bar = cut(pull_node(at, tiles), of.bars)
            self.store(of.bars[2], of_xs_bar, at, x_bar, number)
            return jax.tree.map(jax.numpy.add, total, consts_bar), bar

        zeros = [(full(of.tile, 0, x.held),) * x.rows for x in of.bars[0]]
        return self._pull_blocks(of_slots, of_scratch, again, pull, (zeros, bar), interpret)

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
            slots: References to the states before the blocks.
            scratch: References to room for the states of a block; empty if none is needed.
            again: The function `again(k, leaves)` that returns the needed leaves of the next state.
            pull: The function `pull(k, leaves, carry)` that returns the next carry.
            carry: The cotangents before the last node.
            interpret: Whether Pallas interprets the kernel.
        """
        size = self.block

        def block(j, carry: tuple, nodes: int = size) -> tuple:
            leaves = self.load(self.layout.slots, slots, j)
            start = j * np.int32(size)
            last = start + np.int32(nodes - 1)
            if not scratch:
                return loop(nodes, lambda t, carry: pull(last - t, leaves, carry), carry)

            def keep(i, leaves: list) -> list:
                self.store(self.layout.slots, scratch, i, leaves)
                return again(start + i, leaves)

            def back(t, carry: tuple) -> tuple:
                leaves = self.load(self.layout.slots, scratch, np.int32(nodes - 1) - t)
                return pull(last - t, leaves, carry)

            leaves = loop(nodes - 1, keep, leaves)
            self.store(self.layout.slots, scratch, nodes - 1, leaves)
            barrier(self.layout.tile, interpret)
            carry = loop(nodes, back, carry)
            barrier(self.layout.tile, interpret)
            return carry

        whole, rest = divmod(self.length, size)
        carry = block(whole, carry, rest) if rest else carry
        return loop(whole, lambda t, carry: block(np.int32(whole - 1) - t, carry), carry)
