"""Threads that compile and run the tiles of a book, with as many in parallel as the memory allows."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax

from jaxtape.jax_settings.matmul_precision import chosen_precision

from .groups import Tile, TradeGroup
from .memory_gate import MemoryGate

NUM_WORKERS = os.cpu_count() or 1

Result = TypeVar("Result")


def run_tiles(
    groups: Sequence[TradeGroup],
    function: Callable[[TradeGroup, Tile], Result],
    budget: int,
    gate: MemoryGate | None = None,
) -> Iterator[tuple[TradeGroup, list[Future[Result]]]]:
    """Return each group with the results of its tiles, in an order independent of the number of workers.

    The first tile of each group starts first, largest program first, so that programs compile in parallel.
    Matrix products have the precision set in the caller's thread. `gate`: shared by callers in several threads,
    so that one budget covers them all.
    """
    gate, precision = gate or MemoryGate(budget), chosen_precision()
    results: list[list[Future[Result]]] = [[] for _ in groups]

    def size(pair: tuple[TradeGroup, Any]) -> tuple[int, int]:
        return pair[0].method.program_size, pair[0].tile_bytes

    pairs = sorted(zip(groups, results, strict=True), key=size, reverse=True)

    def run(group: TradeGroup, tile: Tile) -> Result:
        with gate.holding(group.tile_bytes), jax.default_matmul_precision(precision):
            return jax.block_until_ready(function(group, tile))

    pool = ThreadPoolExecutor(max_workers=NUM_WORKERS)
    for tiles in itertools.zip_longest(*(group.tiles() for group, _ in pairs)):
        for (group, futures), tile in zip(pairs, tiles, strict=True):
            if tile is not None:
                futures.append(pool.submit(run, group, tile))
    pool.shutdown(wait=False)
    return zip(groups, results, strict=True)
