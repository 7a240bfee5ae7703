"""The programs that verbs run in loops of Python, in small shapes.

A new calibrated model or solver is compiled without an entry here: they come from the registry of
`tests.helpers` and from the subclasses of `AbstractSolver`.
"""

import dataclasses
import functools
import inspect
import json
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calibration import (
    Job,
    calibrate,
    calibrate_many,
    calibrate_market,
    identifiability,
    quote_sensitivities,
    train,
)
from jaxtape.programs.recorded import RecordedProgram, recorded_programs
from pricing import (
    Bermudan,
    Book,
    European,
    explain,
    fbsde,
    implied_vol,
    price,
    risk,
    simulate,
)
from pricing.market import Market, SwaptionVols, VolSurface
from pricing.methods import AbstractMethod
from pricing.models import (
    AbstractModel,
    AbstractRateModel,
    Calibratable,
)
from pricing.models.surface_models import black_scholes
from tests import helpers

from .programs import KEY, Program

SMALL = {
    "num_paths": 256,
    "num_iterations": 4,
    "first_stages": 1,
    "batch_size": 32,
    "block": 128,
    "num_pilot_paths": 64,
    "iterations_per_stage": 2,
}


def recorded(only: tuple[str, ...]) -> Iterator[Program]:
    """Run verbs that are loops of Python over programs; yield those programs that begin with one of `only`."""
    found: dict[object, tuple[str, RecordedProgram]] = {}
    for name, run in _runs():
        if not any(start.startswith(f"{name}:") or name.startswith(start) for start in only):
            continue
        start = time.perf_counter()
        with recorded_programs() as programs:
            try:
                run()
            except Exception as error:  # the other verbs run nevertheless
                yield Program(name, functools.partial(_raise, error), (), {})
        print(f"{name}: {len(programs)} programs, {time.perf_counter() - start:.0f} s", flush=True)
        for key, program in programs.items():
            found.setdefault(key, (name, program))
    for name, program in found.values():
        full = f"{name}: {program.function.__name__}"
        if full.startswith(only):
            yield Program(full, program.function, program.args, program.kwargs)


def _raise(error: Exception) -> None:
    raise error


def _runs() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the verbs that run programs in loops, by name."""
    yield "risk", _risk
    yield "explain", _explain
    for name, build in helpers.all_models.items():
        model = build()
        reads_quotes = any(isinstance(field, VolSurface) for field in vars(model).values())
        is_one_asset = np.ndim(getattr(model, "spot", 0.0)) == 0
        if isinstance(model, Calibratable) and is_one_asset and not reads_quotes:
            yield f"calibrate {name}", functools.partial(_calibrate, build)
    yield "calibrate_many", _calibrate_many
    yield "xva", _xva
    model = helpers.all_models["heston on curve"]()
    yield "simulate", lambda: simulate(model, [0.5, 1.0], key=KEY, num_paths=256, num_steps=4)
    flat = helpers.all_models["black-scholes"]()
    for name in ("call", "american put", "down-and-out call"):
        product = helpers.all_products[name]()
        yield f"implied_vol of {name}", functools.partial(implied_vol, 9.0, product, flat)
    yield "train", _train
    for solver in sorted(_solvers(fbsde.AbstractSolver), key=lambda kind: kind.__name__):
        yield f"solve by {solver.__name__}", functools.partial(_solve, solver)
    yield "solve in one direction", _solve_in_one_direction
    yield "solve in two dimensions", _solve_in_two_dimensions


def _risk() -> object:
    market = helpers.desk_market()
    book = helpers.desk_book().checked(market)
    first = {
        (type(row.trade), getattr(row.trade, "underlying", "")): row
        for row in book.rows
        if row.trade
    }
    few = dataclasses.replace(book, rows=tuple(first.values()))
    assert isinstance(few, Book)
    models = calibrate_market(market, few)
    assert not models.failed, models.failed
    found = risk(few, models.market, models.fit, key=KEY, methods=_methods())
    assert not found.failed, found.failed
    return found


def _methods() -> tuple[AbstractMethod, ...]:
    built = (method() for method in helpers.all_methods.values())
    few = {"num_paths": 256}
    return tuple(
        dataclasses.replace(method, **few) if hasattr(method, "num_paths") else method
        for method in built
    )


def _explain() -> object:
    """Explain four days step by step."""
    pillars = {"expiries": ["2026-06-01", "2028-01-01"], "strikes": [80, 120]}
    vols = pillars | {"vols_by_expiry": [[0.25, 0.2], [0.24, 0.21]]}
    curve = {"dates": ["2026-06-01", "2028-01-01"], "zero_rates": [0.02, 0.03]}
    markets = (
        {
            "asof": day,
            "curves": {"EUR": curve},
            "equities": {"S": {"curve": "EUR", "spot": spot, "implied_vols": vols}},
        }
        for day, spot in (("2026-01-05", 100.0), ("2026-01-09", 90.0))
    )
    before, after = (Market.from_text(json.dumps(market)) for market in markets)
    text = (
        "id,type,underlying,option,strike,expiry,averaging_dates\n"
        "C,european,S,call,100,2026-09-21,\n"
        "A,asian,S,put,100,,2026-08-21|2026-09-21\n"
    )
    found = explain(
        Book.from_text(text),
        before,
        after,
        black_scholes,
        full_revaluation=True,
        methods=_methods(),
    )
    assert not found.skipped and found.steps, found
    return found


def _quotes(model: AbstractModel):
    """Return quotes that a model is fitted to."""
    if isinstance(model, AbstractRateModel):
        return SwaptionVols([1.0, 2.0], [1.0, 5.0], np.full((2, 2), 0.2))
    return helpers.smile()


def _calibrate(build: Callable[[], AbstractModel]) -> None:
    model = build()
    found = calibrate(_quotes(model), model, max_steps=3, throw=False)
    identifiability(found)
    if hasattr(found.model, "spot"):
        quote_sensitivities(found, lambda model: price(European(100.0, 0.7), model).value)


def _calibrate_many() -> object:
    start = helpers.all_models["heston on curve"]()
    jobs = [Job(str(i), helpers.smile(), start) for i in range(3)]
    return calibrate_many(jobs, num_slots=2, block_size=2)


def _xva() -> object:
    swap, swaption, bermudan = (
        helpers.all_products[name]() for name in ("swap", "swaption", "bermudan swaption")
    )
    swaption = dataclasses.replace(swaption, start=None)  # a swap from the exercise date
    trades = [swap, swaption, bermudan, European(100.0, 0.7)]
    equities = helpers.all_models["black-scholes"]()
    model = fbsde.JointModel(helpers.all_models["hull-white on curve"](), equities, [0.2])
    client = fbsde.CreditCurve.from_spreads([1.0, 5.0], [0.02, 0.03], helpers.curve())
    few = {"num_dates": 6, "num_paths": 256, "num_fit_paths": 256, "block": 128}
    return fbsde.xva(fbsde.NettingSet(trades), model, client, key=KEY, close_out="risky", **few)


def _train() -> object:
    model = helpers.neural()
    where = lambda model: model.network
    return train(
        helpers.smile(), model, optax.adam(1e-3), where=where, num_steps=2, key=KEY, throw=False
    )


def _solvers(kind: type) -> Iterator[type]:
    """Yield the solvers of this library."""
    for each in kind.__subclasses__():
        yield from _solvers(each)
        if not inspect.isabstract(each) and each.__module__.startswith("pricing."):
            yield each


def _solve(kind: type) -> object:
    names = {field.name for field in dataclasses.fields(kind)} & SMALL.keys()
    solver = kind(**{name: SMALL[name] for name in names})
    call = European(100.0, 1.0)
    problem = fbsde.from_product(call, helpers.all_models["black-scholes"](), 4)
    solution = fbsde.solve(problem, solver, key=KEY, throw=False)
    return fbsde.certify(solution, key=jax.random.key(4), num_paths=256)


def _solve_in_one_direction() -> object:
    """Find the direction of a call on the geometric mean of three assets, and solve it on a grid."""
    noise = 0.2 * jnp.linalg.cholesky(0.5 + 0.5 * jnp.eye(3))
    problem = fbsde.Problem(
        3,
        1.0,
        100.0,
        diffusion=lambda t, x: noise * x[:, None],
        terminal=lambda x: jnp.maximum(jnp.exp(jnp.mean(jnp.log(x))) - 100.0, 0.0),
        num_steps=4,
        step=lambda t, dt, x, dw: x * jnp.exp(-0.02 * dt + noise @ dw),
    )
    solution = fbsde.solve(problem, key=KEY, max_paths=8192, throw=False)
    assert solution.stats["subspace"] is not None
    return solution


def _solve_in_two_dimensions() -> object:
    """Solve a right to exercise on a grid of spot and variance, bound it and certify it."""
    put = Bermudan(European(100.0, 1.0, "put"), [0.5, 1.0])
    problem = fbsde.from_product(put, helpers.all_models["heston on curve"](), 4)
    solver = fbsde.GridQuadrature(num_nodes=17, num_points=13)
    solution = fbsde.solve(problem, solver, key=KEY, throw=False)
    both = fbsde.bounds(solution, key=jax.random.key(5), num_paths=256)
    return fbsde.certify(solution, key=jax.random.key(4), num_paths=256), both
