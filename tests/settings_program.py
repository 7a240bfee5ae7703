"""The main verbs, each under the settings of JAX that this process was started with; told as one line of JSON.

`python -m tests.settings_program [float32]`: with `float32` the arguments are arrays of that type, whatever
`jax_enable_x64` says.
"""

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxtape as jt
from calibration import calibrate
from pricing import (
    Barrier,
    BlackScholes,
    Book,
    European,
    Heston,
    Market,
    MonteCarlo,
    greeks,
    price,
    risk,
)
from pricing.fbsde import GridQuadrature, from_product, solve
from pricing.models.surface_models import black_scholes

REAL = np.float32 if "float32" in sys.argv else float
KEY = jax.random.key(0)


def model() -> Heston:
    return Heston(*map(REAL, (100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8)))


def call() -> European:
    return European(REAL(100.0), REAL(1.0))


def of_price() -> list:
    by_paths = price(call(), BlackScholes(*map(REAL, (100.0, 0.05, 0.2))), MonteCarlo(), key=KEY)
    return [price(call(), model()).value, by_paths.value]


def of_greeks() -> list:
    found = greeks(call(), model())
    barrier = Barrier(*map(REAL, (100.0, 1.0, 135.0)), kind="up-and-out")
    closed = greeks(barrier, BlackScholes(*map(REAL, (100.0, 0.05, 0.2))))
    return [found.value, found.delta, found.gamma, closed.value, closed.delta, closed.gamma]


def of_risk() -> list:
    """Of a book in which each of four kinds has three trades: value, Deltas, and the largest sensitivity."""
    book = Book.read("pricing/samples/dax_book.csv")
    kinds = "european", "digital", "barrier", "autocallable"
    rows = [row for kind in kinds for row in [r for r in book.rows if r.type == kind][:3]]
    market = Market.read("pricing/samples/dax_2002-07-05.json")
    found = risk(dataclasses.replace(book, rows=tuple(rows)), market, black_scholes)
    assert not found.failed, found.failed
    deltas = [sum(jax.tree.leaves(trade.figures.delta)) for trade in found.trades]
    return [found.value, *deltas, max(map(abs, found.sensitivities.values()))]


def of_calibrate() -> list:
    """Of Heston to the DAX surface: the optimum, in squared vol points, and two of its parameters."""
    market = Market.read("pricing/samples/dax_2002-07-05.json")
    numbers = map(REAL, (0.1, 1.0, 0.1, 0.5, -0.5))
    start = Heston(REAL(4468.17), market.curves["EUR"], *numbers)
    found = calibrate(market.equities["DAX"].surface, start)
    return [
        found.stats["sum_squared_vol_points"],
        found.model.initial_variance,
        found.model.correlation,
    ]


def of_tape() -> list:
    def step(state, param):
        return jnp.sin(state * param) + state

    params = np.linspace(0.01, 0.1, 40).astype(REAL)
    tape = jt.Tape().with_schedule(jt.Revolve(4)).append(step, jnp.asarray(params))
    gradient = jax.grad(lambda x: jnp.sum(tape(x) ** 2))(jnp.asarray(REAL(0.3)))
    by_scan = jax.grad(
        lambda x: jt.scan(lambda s, p: (step(s, p), None), x, params, schedule=jt.Revolve(4))[0]
    )
    return [gradient, by_scan(jnp.asarray(REAL(0.3)))]


def of_grid_quadrature() -> list:
    problem = from_product(call(), BlackScholes(*map(REAL, (100.0, 0.05, 0.2))), 4)
    found = solve(problem, GridQuadrature(), key=KEY)
    x0 = problem.x0
    return [found.value(0.0, x0), found.delta(0.0, x0)[0], found.gamma(0.0, x0)[0, 0]]


VERBS: dict[str, Callable[[], list]] = {
    "price": of_price,
    "greeks": of_greeks,
    "risk": of_risk,
    "calibrate": of_calibrate,
    "tape": of_tape,
    "grid quadrature": of_grid_quadrature,
}


def told(verb: Callable[[], list]) -> dict:
    try:
        found = verb()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    return {"figures": [float(x) for x in found]}


if __name__ == "__main__":
    print(json.dumps({name: told(verb) for name, verb in VERBS.items()}))
