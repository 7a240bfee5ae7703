"""The two sweeps of a chain of independent paths, each as one kernel.

The first sweep runs all nodes of a tile, and keeps the state before every block of nodes in a slot. The second
takes the blocks in reverse order: it runs a block again from its slot, keeps the state before each of its nodes
and the noise that the node draws in scratch, and pulls back through them. The pullback is that of `jax.vjp`,
traced before the kernel is made.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import numpy as np

from ..jax_private import dce_jaxpr
from ..programs.device_limits import BYTES
from .chain_leaves import ChainLayout, ChainTypes
from .leaf import Leaf, stacks
from .node import NodeFunction
from .noise import Noise
from .pallas import barrier, full, loop, number_of_tile
from .run import KernelRun, cut, fits, pick, step_of

_MOST_NOISE = 2  # bytes of a block's noise in scratch, for each byte of its states


@dataclasses.dataclass(frozen=True, eq=False)
class KernelSweeps(KernelRun):
    """The sweeps of one chain, on one kind of accelerator.

    Attributes:
        kept: The leaves of a node's noise that the second sweep draws once and keeps with the node's state.
        draw: The function from consts, state and x to that noise.
        again: The step from consts, state, x and the kept noise, reduced to the next state's needed leaves.
        pull: The function from consts, state, x, the kept noise, and the cotangents of the next state and of y
            to the cotangents of the active leaves of consts, state and x.
    """

    kept: tuple[Leaf, ...]
    draw: NodeFunction
    again: NodeFunction
    pull: NodeFunction

    @classmethod
    def of(
        cls,
        platform: str,
        step: Callable,
        pull_of: Callable,
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
            pull_of: The function `pull_of(step, types, active)` that returns the pullback of a step: a function
                `pull(consts, state, x, state_bar, y_bar) -> (consts_bar, state_bar, x_bar)`, whose cotangents
                are those of the active leaves.
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
        block = -(-length // slots)
        own = length, block, reverse, sum_ys, needed, step_of(layout, step, types)
        functions = functools.partial(_of_second, layout, types, block, needed, active, pull_of)
        none = Noise.none(step)
        noise = Noise.of(step, types[:3], layout.paths) if block > 1 else none
        sweeps = cls(layout, *own, *functions(noise))
        if sweeps.kept and not sweeps._has_room_for_noise():
            sweeps = cls(layout, *own, *functions(none))
        sweeps.check()
        return sweeps

    def _has_room_for_noise(self) -> bool:
        """Return True if the noise of a block takes little memory beside its states."""
        kept, scratch = self._bytes(self.kept), self._bytes(self.scratch)
        is_little = kept <= _MOST_NOISE * (scratch - kept)
        return is_little and fits(self.layout.tile, *self._in_memory())

    def __str__(self) -> str:
        scratch = self.block if self.block > 1 and self.layout.slots else 0
        where = "memory" if self.layout.tile.platform == "gpu" else "VMEM"
        held = "states and their noise" if self.kept else "states"
        beside = f", with {scratch:,} {held} in {where} beside the slots" if scratch else ""
        return f"one kernel a sweep, of tiles of {self.layout.tile.size:,} paths{beside}"

    @property
    def functions(self) -> tuple[NodeFunction, ...]:
        return self.step, *self.of_second

    @property
    def of_second(self) -> tuple[NodeFunction, ...]:
        """The functions of a node in the second sweep."""
        return self.draw, self.again, self.pull

    def _in_memory(self) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
        moved, _ = super()._in_memory()
        slots = tuple(x for x in self.layout.slots if x.axis is not None)
        states = (x._replace(stack=self.block) for x in self.layout.slots)
        return (*moved, *slots), (*states, *self.kept)

    def work(self) -> Counter[str]:
        """Return the bytes and the operations of both sweeps, for all paths.

        Each array counts once per sweep, as if the states and xs of a block stayed in a cache.
        """
        of, n, blocks = self.layout, self.length, -(-self.length // self.block)
        xs = (pick(self.reads_x(*f), of.xs) for f in ((self.step,), self.of_second))
        reads = *of.state, *of.state, *of.slots, *of.bars[1], *of.y_bars, *sum(xs, ())
        writes = *of.state, *of.ys, *of.slots, *sum(of.bars, ())
        moved = (*reads, *writes)
        found = Counter({BYTES: self._bytes(moved)})
        for function, times in zip(self.functions, (n, n, n - blocks, n), strict=True):
            for kind, count in function.work().items():
                found[kind] += of.paths * times * count
        return found

    def repeated_bytes(self) -> int:
        """Return the bytes that a GPU reads and writes for all paths, within blocks, in addition to `work`.

        The second sweep reads a block's xs for its states and again for its pullback, and writes and reads
        those states, and the noise that it keeps. On a TPU all are in VMEM.
        """
        of, n = self.layout, self.length
        if of.tile.platform == "tpu":
            return 0
        again, pull, once = (
            self._bytes(pick(self.reads_x(*f), of.xs))
            for f in (self.of_second[:-1], (self.pull,), self.of_second)
        )
        blocks, scratch = -(-n // self.block), 2 * n * self._bytes(self.scratch) // self.block
        return again * (n - blocks) // n + pull - once + scratch

    def block_bytes(self) -> int:
        """Return the bytes of one block that the second sweep reads or writes repeatedly, for all paths."""
        xs = pick(self.reads_x(*self.of_second), self.layout.xs)
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
        """The leaves of the states of a block and of its noise, which the second sweep keeps."""
        if self.block == 1:
            return ()
        return *(x._replace(stack=self.block) for x in self.layout.slots), *self.kept

    def read_second(self, consts: tuple, xs: tuple, interpret: bool) -> tuple[tuple, tuple]:
        """Return the leaves that all nodes of the second sweep read, in parts, and their stacks."""
        functions, reads_x = self.of_second, self.reads_x(*self.of_second)
        leaves = (part for each in functions for part in each.read)
        shared = (x for each in functions for x in each.values(consts, xs, interpret))
        return (*leaves, pick(reads_x, self.layout.xs)), (*shared, pick(reads_x, xs))

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
        *of_functions, of_xs = sources
        reads_x, pairs = self.reads_x(*self.of_second), zip(*[iter(of_functions)] * 2, strict=True)
        noise_of, step, pull_node = (
            self.running(function, interpret, *pair)
            for function, pair in zip(self.of_second, pairs, strict=True)
        )
        number = number_of_tile()

        def inputs(k, leaves: list) -> list:
            """Return the tiles of x and of the state, whose needed leaves are given."""
            given = iter(leaves)
            state = [next(given) if x else old for x, old in zip(self.needed, first, strict=True)]
            return [*state, *self.load_x(reads_x, of_xs, self.place(k))]

        def draw(k, leaves: list) -> list:
            return noise_of(self.place(k), inputs(k, leaves))

        def again(k, leaves: list, noise: list) -> list:
            return step(self.place(k), [*inputs(k, leaves), *noise])

        def pull(k, leaves: list, noise: list, carry: tuple) -> tuple:
            (total, bar), at = carry, self.place(k)
            y_bars = self.load(of.y_bars, of_y_bars, self.sum_at(at))
            tiles = [*inputs(k, leaves), *noise, *bar, *y_bars]
            consts_bar, bar, x_bar = cut(pull_node(at, tiles), of.bars)
            self.store(of.bars[2], of_xs_bar, at, x_bar, number)
            return jax.tree.map(jax.numpy.add, total, consts_bar), bar

        zeros = [(full(of.tile, 0, x.held),) * x.rows for x in of.bars[0]]
        of_blocks = of_slots, of_scratch, draw, again, pull
        return self._pull_blocks(*of_blocks, (zeros, bar), interpret)

    def _pull_blocks(
        self,
        slots: list,
        scratch: list,
        draw: Callable,
        again: Callable,
        pull: Callable,
        carry: tuple,
        interpret: bool,
    ) -> tuple:
        """Return the carry after all blocks are pulled back, the last one first.

        Args:
            slots: References to the states before the blocks.
            scratch: References to room for the states and the noise of a block; empty if none is needed.
            draw: The function `draw(k, leaves)` that returns the noise to keep.
            again: The function `again(k, leaves, noise)` that returns the needed leaves of the next state.
            pull: The function `pull(k, leaves, noise, carry)` that returns the next carry.
            carry: The cotangents before the last node.
            interpret: Whether Pallas interprets the kernel.
        """
        size, of_states = self.block, self.layout.slots

        def block(j, carry: tuple, nodes: int = size) -> tuple:
            leaves = self.load(of_states, slots, j)
            start = j * np.int32(size)
            last = start + np.int32(nodes - 1)
            if not scratch:
                return loop(nodes, lambda t, carry: pull(last - t, leaves, [], carry), carry)

            def keep(i, leaves: list) -> list:
                noise = draw(start + i, leaves)
                self.store(self.scratch, scratch, i, [*leaves, *noise])
                return noise

            def forward(i, leaves: list) -> list:
                return again(start + i, leaves, keep(i, leaves))

            def back(t, carry: tuple) -> tuple:
                held = self.load(self.scratch, scratch, np.int32(nodes - 1) - t)
                leaves, noise = cut(held, (of_states, self.kept))
                return pull(last - t, leaves, noise, carry)

            leaves = loop(nodes - 1, forward, leaves)
            keep(nodes - 1, leaves)
            barrier(self.layout.tile, interpret)
            carry = loop(nodes, back, carry)
            barrier(self.layout.tile, interpret)
            return carry

        whole, rest = divmod(self.length, size)
        carry = block(whole, carry, rest) if rest else carry
        return loop(whole, lambda t, carry: block(np.int32(whole - 1) - t, carry), carry)


def _of_second(
    layout: ChainLayout,
    types: ChainTypes,
    block: int,
    needed: tuple[bool, ...],
    active: tuple[tuple[bool, ...], ...],
    pull_of: Callable,
    noise: Noise,
) -> tuple[tuple[Leaf, ...], NodeFunction, NodeFunction, NodeFunction]:
    """Return the leaves of the noise to keep, and the functions `draw`, `again` and `pull` of the sweeps."""
    consts, state, x, y = types
    bars = pick(active[1], state), pick(active[3], y)
    masks = *active[:2], (*active[2], *(False for _ in noise.types)), active[3]
    pull_rest = pull_of(noise.rest, types._replace(x=(*x, *noise.types)), masks)

    def again(consts, state, x, drawn) -> tuple:
        return pick(needed, noise.rest(consts, state, (*x, *drawn))[0])

    def pull(consts, state, x, drawn, *bars) -> tuple:
        return pull_rest(consts, state, (*x, *drawn), *bars)

    inputs = consts, state, x, noise.types
    read = _reads_noise(again, inputs), _reads_noise(pull, (*inputs, *bars))
    kept = tuple(map(all, zip(*read, strict=True)))

    def draw(consts, _, x) -> tuple:
        return pick(kept, noise.draw(consts, x))

    def with_draws(function: Callable) -> Callable:
        """Return a function of the noise that is kept, which draws the rest."""

        def of_kept(consts, state, x, held, *bars) -> tuple:
            held, drawn = iter(held), noise.draw(consts, x)
            whole = (next(held) if k else one for k, one in zip(kept, drawn, strict=True))
            return function(consts, state, x, tuple(whole), *bars)

        return of_kept

    inputs = consts, state, x, pick(kept, noise.types)
    leaf = functools.partial(Leaf.of, tile=layout.tile, paths=layout.paths, stack=block)
    of_kept = tuple(leaf(one)._replace(sublanes=1) for one in inputs[3])
    of_node, of_bars = (*layout.state, *layout.xs), (*layout.bars[1], *layout.y_bars)
    function = functools.partial(NodeFunction.of, tile=layout.tile, paths=layout.paths)
    return (
        of_kept,
        function(draw, inputs[:3], of_node, of_kept),
        function(with_draws(again), inputs, (*of_node, *of_kept), pick(needed, layout.state)),
        function(
            with_draws(pull),
            (*inputs, *bars),
            (*of_node, *of_kept, *of_bars),
            sum(layout.bars, ()),
        ),
    )


def _reads_noise(function: Callable, types: tuple) -> list[bool]:
    """Return the mask of the noise, its fourth argument, that a function reads."""
    jaxpr = jax.make_jaxpr(function)(*types).jaxpr
    _, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), False)
    return cut(used, types)[3]
