"""The two sweeps of a chain of independent paths, each as one kernel.

The first runs all nodes of a tile, and keeps the state before every block of nodes in a slot. The second takes
the blocks from the last: it runs a block again from its slot, keeps the state before each of its nodes in
scratch, and pulls back through them. The pullback is that of `jax.vjp`, traced before the kernel is made.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

import jax
import numpy as np
from jax import lax

from .leaf import Leaf, summed
from .node import NodeFunction
from .pallas import TILES, Tile, barrier, call, full, numbers_of_paths
from .paths import NoKernelError
from .walk import Walk

_MOST_OPERATIONS = 4096  # of the pullback of a node, on tiles
_TPU_SCALARS = 2**19  # bytes of the memory of scalars, of which a core has 1 MiB
_TPU_BYTES = 14 * 2**20  # of fast memory for a tile, of the 16 MiB that a program may have


@dataclasses.dataclass(frozen=True, eq=False)
class KernelSweeps:
    """The sweeps of one chain, on one kind of accelerator.

    Attributes:
        tile: The paths of an instance of a kernel.
        paths: The number of paths.
        length: The number of nodes.
        block: The number of nodes of a block; the last one may have fewer.
        reverse: Whether node k reads `xs[length-1-k]` and writes `ys` there.
        needed: The mask of the leaves of the state that are kept.
        active_ys: The mask of the leaves of y that have a cotangent.
        state: The leaves of the state.
        xs: The leaves of xs.
        ys: The leaves of ys.
        slots: The leaves that are kept.
        bars: The leaves of the cotangents that the second sweep writes: of consts, the state and xs.
        step: The function from consts, state and x to the next state and y.
        again: The same to the needed leaves of the next state.
        pull: The function from consts, state, x and the cotangents of the next state and of y to those of the
            active consts, the active leaves of the state and of x.
    """

    tile: Tile
    paths: int
    length: int
    block: int
    reverse: bool
    needed: tuple[bool, ...]
    active_ys: tuple[bool, ...]
    state: tuple[Leaf, ...]
    xs: tuple[Leaf, ...]
    ys: tuple[Leaf, ...]
    slots: tuple[Leaf, ...]
    bars: tuple[tuple[Leaf, ...], ...]
    step: NodeFunction
    again: NodeFunction
    pull: NodeFunction

    @classmethod
    def of(
        cls,
        platform: str,
        step: Callable,
        pull: Callable,
        consts: tuple,
        state: tuple,
        x: tuple,
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
            consts: The types of the shared values.
            state: The types of the leaves of a state.
            x: The types of the leaves of one node's own values.
            length: The number of nodes, at least 1.
            slots: The number of states that may be kept.
            reverse: Whether the nodes read `xs` from its end.
            needed: The mask of the leaves of the state to keep.
            active: The masks of the leaves of consts, the state, x and y that have a cotangent.

        Raises:
            NoKernelError: If they are no kernels.
        """
        tile = TILES[platform]
        paths = max((size for leaf in state for size in leaf.shape), default=1)
        if paths % tile.size:
            raise NoKernelError(f"{paths:,} paths are no multiple of the {tile.size:,} of a tile")
        _, y = jax.eval_shape(step, consts, state, x)
        leaf = functools.partial(Leaf.of, tile=tile, paths=paths)
        of_state, of_xs, of_ys = (
            tuple(leaf(aval, stack=stack) for aval in part)
            for part, stack in ((state, 1), (x, length), (y, length))
        )
        of_consts = map(leaf, compress(consts, active[0]))
        bars = _cotangents(of_consts, of_state, of_xs, of_ys, active)
        in_slots = tuple(compress(of_state, needed))
        kept = tuple(x.in_words._replace(stack=slots, sublanes=1) for x in in_slots)

        pulled = tuple(compress(state, active[1])), tuple(compress(y, active[3]))
        everything = sum(bars, ())
        node, then = (*of_state, *of_xs), (*bars[1], *compress(of_ys, active[3]))
        functions = (
            NodeFunction.of(function, tile, paths, (consts, state, x, *more), sources, results)
            for function, more, sources, results in (
                (step, (), node, (*of_state, *of_ys)),
                (lambda *args: tuple(compress(step(*args)[0], needed)), (), node, in_slots),
                (pull, pulled, (*node, *then), everything),
            )
        )
        block, found = -(-length // slots), (of_state, of_xs, of_ys, kept, bars)
        sweeps = cls(tile, paths, length, block, reverse, needed, active[3], *found, *functions)
        sweeps.check()
        return sweeps

    def __str__(self) -> str:
        scratch = self.block if self.block > 1 and self.slots else 0
        where = "memory" if self.tile.platform == "gpu" else "VMEM"
        beside = f", with {scratch:,} states in {where} beside the slots" if scratch else ""
        return f"one kernel a sweep, of tiles of {self.tile.size:,} paths{beside}"

    def check(self) -> None:
        """Trace what a node does, and count it.

        Raises:
            NoKernelError: If an operation has no rule, or there is too much of something.
        """
        count = max(each.operations() for each in (self.step, self.again, self.pull))
        if count > _MOST_OPERATIONS:
            raise NoKernelError(f"a node takes {count:,} operations for a path")
        leaves = *self.pull.reads, *self.pull.sources, *self.pull.results
        piped = [x for x in (*leaves, *self.slots) if x.axis is not None]
        size = sum(2 * x.stack * x.rows for x in piped) + sum(
            self.block * x.rows for x in self.slots
        )
        held = size * self.tile.size * 4
        if self.tile.platform == "tpu" and held > _TPU_BYTES:
            raise NoKernelError(f"a tile of {self.tile.size:,} paths takes {held:,} bytes of VMEM")
        scalars = 4 * sum(x.stack * x.rows for x in leaves if x.axis is None)
        if self.tile.platform == "tpu" and scalars > _TPU_SCALARS:
            raise NoKernelError(f"what paths share takes {scalars:,} bytes of SMEM")

    def first(self, consts: tuple, init: tuple, xs: tuple, interpret: bool) -> tuple:
        """Return the last state, ys, and the states in slots; a slot that no block needs has any value."""
        shared, n, size = self.step.reads, self.length, self.block
        parts = shared, self.state, self.xs, self.state, self.ys, self.slots

        def kernel(*refs):
            of_shared, of_init, of_xs, of_last, of_ys, of_slots = _cut(refs, parts)
            walk = self._walk(interpret)
            constants = self.step.constants(walk, self._load(shared, of_shared, 0))

            def node(k, state: list) -> list:
                at = self._place(k)
                tiles = [*state, *self._load(self.xs, of_xs, at)]
                state, y = _cut(self.step.run(walk, constants, tiles), (state, self.ys))
                self._store(self.ys, of_ys, at, y)
                return state

            def block(j, state: list, nodes: int = size) -> list:
                self._store(self.slots, of_slots, j, list(compress(state, self.needed)))
                return _loop(nodes, lambda i, state: node(j * np.int32(size) + i, state), state)

            state = _loop(n // size, block, self._load(self.state, of_init, 0))
            state = block(n // size, state, n % size) if n % size else state
            self._store(self.state, of_last, 0, state)

        reads = self.step.values(consts), _stacks(init), xs
        last, ys, slots = self._call(kernel, parts[:3], reads, parts[3:], (), interpret)
        return tuple(leaf[0] for leaf in last), ys, slots

    def second(
        self, consts: tuple, init: tuple, xs: tuple, slots: tuple, bars: tuple, interpret: bool
    ) -> tuple:
        """Return the cotangents of consts, the first state and xs, from those of the last state and of ys."""
        before, shared, size = self.again.reads, self.pull.reads, self.block
        y_bars = tuple(compress(self.ys, self.active_ys))
        scratch = tuple(x._replace(stack=size) for x in self.slots) if size > 1 else ()
        parts = before, shared, self.state, self.xs, self.slots, self.bars[1], y_bars

        def kernel(*refs):
            found = _cut(refs, (*parts, *self.bars, scratch))
            of_before, of_shared, of_init, of_xs, of_slots, of_bar, of_y_bars = found[:7]
            of_consts_bar, of_init_bar, of_xs_bar, of_scratch = found[7:]
            walk = self._walk(interpret)
            steps_with = self.again.constants(walk, self._load(before, of_before, 0))
            pulls_with = self.pull.constants(walk, self._load(shared, of_shared, 0))
            first = self._load(self.state, of_init, 0)

            def inputs(k, leaves: list) -> list:
                """Return the tiles of the state, of which the needed leaves are given, and of x."""
                given = iter(leaves)
                state = [
                    next(given) if x else old for x, old in zip(self.needed, first, strict=True)
                ]
                return [*state, *self._load(self.xs, of_xs, self._place(k))]

            def again(k, leaves: list) -> list:
                return self.again.run(walk, steps_with, inputs(k, leaves))

            def pull(k, leaves: list, carry: tuple) -> tuple:
                (total, bar), at = carry, self._place(k)
                tiles = [*inputs(k, leaves), *bar, *self._load(y_bars, of_y_bars, at)]
                consts_bar, bar, x_bar = _cut(self.pull.run(walk, pulls_with, tiles), self.bars)
                self._store(self.bars[2], of_xs_bar, at, x_bar)
                return jax.tree.map(jax.numpy.add, total, consts_bar), bar

            zeros = [(full(self.tile, 0, x.held),) * x.rows for x in self.bars[0]]
            carry = zeros, self._load(self.bars[1], of_bar, 0)
            carry = self._pull_blocks(of_slots, of_scratch, again, pull, carry, interpret)
            self._store(self.bars[0], of_consts_bar, 0, carry[0])
            self._store(self.bars[1], of_init_bar, 0, carry[1])

        state_bar, ys_bar = bars
        reads = (
            self.again.values(consts),
            self.pull.values(consts),
            _stacks(init),
            xs,
            slots,
            _stacks(state_bar),
            ys_bar,
        )
        found = self._call(kernel, parts, reads, self.bars, scratch, interpret)
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
            leaves = self._load(self.slots, slots, j)
            start = j * np.int32(size)
            last = start + np.int32(nodes - 1)
            if not scratch:
                return _loop(nodes, lambda t, carry: pull(last - t, leaves, carry), carry)

            def keep(i, leaves: list) -> list:
                self._store(self.slots, scratch, i, leaves)
                return again(start + i, leaves)

            def back(t, carry: tuple) -> tuple:
                leaves = self._load(self.slots, scratch, np.int32(nodes - 1) - t)
                return pull(last - t, leaves, carry)

            leaves = _loop(nodes - 1, keep, leaves)
            self._store(self.slots, scratch, nodes - 1, leaves)
            barrier(self.tile, interpret)
            carry = _loop(nodes, back, carry)
            barrier(self.tile, interpret)
            return carry

        whole, rest = divmod(self.length, size)
        carry = block(whole, carry, rest) if rest else carry
        return _loop(whole, lambda t, carry: block(np.int32(whole - 1) - t, carry), carry)

    def _walk(self, interpret: bool) -> Walk:
        return Walk(self.tile, self.paths, numbers_of_paths(self.tile), interpret)

    def _place(self, k):
        return np.int32(self.length - 1) - k if self.reverse else k

    def _load(self, leaves: Sequence[Leaf], refs: Sequence, k) -> list[tuple]:
        return [leaf.load(ref, k, self.tile) for leaf, ref in zip(leaves, refs, strict=True)]

    def _store(self, leaves: Sequence[Leaf], refs: Sequence, k, tiles: Sequence) -> None:
        for leaf, ref, each in zip(leaves, refs, tiles, strict=True):
            leaf.store(ref, k, each, self.tile)

    def _call(
        self, kernel: Callable, parts, reads, writes, scratch, interpret: bool
    ) -> list[tuple]:
        """Run a kernel on stacks of the leaves that it reads, and return those that it writes."""
        pairs = zip(sum(parts, ()), (x for part in reads for x in part), strict=True)
        args = [leaf.laid(stack, self.tile) for leaf, stack in pairs]
        types = [leaf.written(self.tile, self.paths) for leaf in sum(writes, ())]
        held = [leaf.written(self.tile, self.paths) for leaf in scratch]
        found = call(kernel, self.tile, self.paths, args, types, held, interpret)
        pairs = zip(sum(writes, ()), summed(sum(writes, ()), found), strict=True)
        taken = [leaf.taken(each, self.tile) for leaf, each in pairs]
        return [tuple(part) for part in _cut(taken, writes)]


def _cotangents(consts: Iterable[Leaf], state, xs, ys, active) -> tuple[tuple[Leaf, ...], ...]:
    """Return the leaves of the cotangents of consts, of the state and of xs.

    Raises:
        NoKernelError: If a value that all paths share at a node has a cotangent.
    """
    of_state, of_xs = tuple(compress(state, active[1])), tuple(compress(xs, active[2]))
    if any(each.axis is None for each in (*of_state, *of_xs, *compress(ys, active[3]))):
        raise NoKernelError("a value that all paths share at a node has a cotangent")
    of_consts = tuple(each._replace(is_sum=each.axis is None) for each in consts)
    return of_consts, of_state, of_xs


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
