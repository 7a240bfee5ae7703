"""Compile the sweep of a tile on one device and on eight, and print their work in JSON.

Run `python -m tests.pricing.tiles_on_devices METHOD AXIS=DEVICES ...`.
"""

import dataclasses
import json
import sys
from collections import Counter

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh

import tests.conftest  # noqa: F401, the settings of the tests
from pricing import Book, Heston, Market
from pricing.methods import ClosedForm, FiniteDifference, Fourier, MonteCarlo
from pricing.models import AbstractModel, BlackScholes
from pricing.portfolio.sweep.groups import batches_of, group_trades
from pricing.portfolio.sweep.tile_sweep import tile_sweep, tile_values
from tests.compiled_work import CompiledWork
from tests.helpers import dax, dax_book

KEY = jax.random.key(0)
HESTON = Heston(4468.0, 0.03, 0.04, 2.0, 0.04, 0.5, -0.7)
PATHS = MonteCarlo(num_paths=4096, num_steps=4, block=256)
UNFUSED = {"xla_disable_hlo_passes": "fusion"}  # fusion repeats cheap operations, at its discretion
CASES = {
    "closed form": ("european", BlackScholes(4468.0, 0.03, 0.2), ClosedForm()),
    "finite differences": ("barrier", BlackScholes(4468.0, 0.03, 0.2), FiniteDifference()),
    "Fourier": ("european", HESTON, Fourier()),
    "Monte Carlo": ("barrier", HESTON, PATHS),
}


def works(
    name: str, book: Book, market: Market, mesh: Mesh | None
) -> dict[str, tuple[float, Counter]]:
    """Return the operations a trade, and the collectives, of one device's programs."""
    _, model, method = CASES[name]
    batches = batches_of([row.trade for row in book.rows], market)
    models: dict[tuple[str, ...], AbstractModel] = {("DAX",): model}
    settings = {"key": KEY, "budget": 2**30, "mesh": mesh}
    (group, *_), _ = group_trades(batches, market, models, (method,), **settings)
    tile = next(iter(group.tiles()))

    def greeks(tile, model):
        return tile_sweep.__wrapped__(tile, model, group.method, model, model, key=KEY)

    def values(tile, model):
        return tile_values.__wrapped__(tile, model, group.method, key=KEY)

    found = {}
    for each in (greeks, values):
        lowered = eqx.filter_jit(each).lower(tile, model).lowered
        work = CompiledWork(lowered.compile(compiler_options=UNFUSED).as_text())
        found[each.__name__] = work.operations / tile.weights.size, work.collectives
    return found


def main() -> None:
    name, *axes = sys.argv[1:]
    pairs = [axis.split("=") for axis in axes]
    shape, names = [int(size) for _, size in pairs], [axis for axis, _ in pairs]
    mesh = Mesh(np.array(jax.devices()).reshape(shape), names)
    market, book = dax(), dax_book()
    kind = CASES[name][0]
    book = dataclasses.replace(book, rows=tuple(row for row in book.rows if row.type == kind))
    alone, shared = works(name, book, market, None), works(name, book, market, mesh)
    found = {}
    for program, (operations, collectives) in shared.items():
        sent = [[*loop, count] for loop, count in collectives.items()]
        found[program] = {"share": operations / alone[program][0], "collectives": sent}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
