"""Every public program in small shapes: those that are compiled directly, and those that verbs run.

A new model, product, method, schedule or solver is compiled without an entry here: they come from the
registries of `tests.helpers` and `tests.helpers_tape`, and from the subclasses of `AbstractSolver`.
"""

import dataclasses
import functools
import inspect
import json
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxtape as jt
from benchmarks.ways import kernels
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
    Book,
    CapQuotes,
    European,
    fbsde,
    greeks,
    implied_normal_vol,
    implied_vol,
    price,
    risk,
    simulate,
    strip_caps,
)
from pricing.market import DeltaQuotes, Dividends, Market, SwaptionVols, VolSurface
from pricing.methods import MonteCarlo
from pricing.models import (
    AbstractModel,
    AbstractRateModel,
    BlackScholes,
    Calibratable,
    WithDividends,
)
from pricing.models.surface_models import of_surface
from tests import helpers, helpers_tape

KEY = jax.random.key(3)
SMALL = {
    "num_paths": 256,
    "num_iterations": 4,
    "first_stages": 1,
    "batch_size": 32,
    "block": 128,
    "num_pilot_paths": 64,
    "iterations_per_stage": 2,
}


class Program(NamedTuple):
    """A function with arguments for which it is compiled."""

    name: str
    function: Callable
    args: tuple
    kwargs: dict


def direct(only: tuple[str, ...]) -> Iterator[Program]:
    """Yield the programs of verbs that are traced as a whole, whose names begin with one of `only`."""
    return (program for program in _direct() if program.name.startswith(only))


def _direct() -> Iterator[Program]:
    for (method, product), model in _pairs().items():
        name = f"greeks of {product} by {method}"
        yield Program(name, _figures(method), _built(product, model), {})
    for (model, product, method), build in _OTHERS.items():
        name = f"greeks of {product} under {model}"
        args = helpers.all_products[product](), build()
        yield Program(name, _figures(method), args, {})
    arguments = jax.tree.map(jnp.asarray, helpers_tape.mixed_arguments())
    for schedule in helpers_tape.all_schedules:
        loss = helpers_tape.loss_of(schedule)
        yield Program(f"gradient under {schedule}", jax.grad(loss), arguments, {})
    for schedule in (jt.StoreAll(policy=_KEEPS_PRODUCTS), jt.Weighted(4, range(1, 24))):
        xs = (jnp.ones((8, 16)), 0.1 * jnp.ones((23, 16, 16)))
        yield Program(f"layers under {schedule}", jax.grad(_layers(schedule), (0, 1)), xs, {})
    yield Program("gradient of while_loop", jax.grad(_loop), (jnp.ones(16),), {})
    yield Program("gradient through roots", jax.grad(_roots), (jnp.ones(12), jnp.ones(8)), {})
    call = _built("call", "heston on curve")
    yield Program("call in kernels", _in_kernels(_figures_of_paths), call, {})
    rates = tuple(jnp.array(x) for x in (0.004, 0.02, 0.03, 2.0))
    yield Program("implied_normal_vol", jax.jacfwd(implied_normal_vol), rates, {"throw": False})
    yield Program("strip_caps", jax.jacrev(_stripped), (jnp.full((2, 2), 0.008),), {})
    for each in (
        Program("exported greeks", _figures("Fourier"), call, {}),
        Program("exported gradient", jax.grad(helpers_tape.loss_of(jt.Revolve(5))), arguments, {}),
    ):
        loaded = jt.load(jt.export(each.function, *each.args, platforms=("cuda", "tpu")))
        yield each._replace(function=loaded)


def _paying(dynamics: str, model: str = "black-scholes") -> WithDividends:
    dividends = Dividends([0.3, 0.6], [1.0, 0.0], [0.0, 0.01])
    return WithDividends(helpers.all_models[model](), dividends, dynamics)


def _currency_pair() -> BlackScholes:
    pillars = [0.5, 2.0]
    wings = [[-0.01, -0.02], [-0.012, -0.022]], [[0.003, 0.01], [0.004, 0.012]]
    quotes = DeltaQuotes(pillars, [0.1, 0.11], *wings)
    surface = quotes.surface([100.5, 102.0], [0.99, 0.96])
    return BlackScholes(100.0, helpers.curve(), surface, helpers.curve())


def _converted(kind: str) -> BlackScholes:
    """Return an equity of a market, paid in another currency."""
    expiries = {"days": [180, 720]}
    vols = expiries | {"strikes": [80, 120], "vols_by_expiry": [[0.25, 0.2], [0.24, 0.2]]}
    of_pair = expiries | {"at_the_money": [0.1, 0.11]}
    of_pair |= {"risk_reversals_25": [-0.01, -0.012], "butterflies_25": [0.003, 0.004]}
    equity = {"curve": "EUR", "currency": "EUR", "spot": 100.0, "implied_vols": vols}
    market = {
        "asof": "2026-01-05",
        "curves": {"EUR": {"zero_rate": 0.02}, "USD": {"zero_rate": 0.04}},
        "equities": {"S": equity},
        "fx": {"EURUSD": {"spot": 1.08, "vols": of_pair}},
        "correlations": {"S|EURUSD": -0.3},
    }
    return of_surface(Market.from_text(json.dumps(market)), f"S {kind} USD")


# Programs that the classes of product and method do not name: (model, product, method) -> model.
_OTHERS: dict[tuple[str, str, str], Callable[[], AbstractModel]] = {
    ("escrowed dividends", "call", "closed form"): lambda: _paying("escrowed"),
    ("escrowed dividends", "asian", "Monte Carlo"): lambda: _paying("escrowed"),
    ("escrowed dividends", "american put", "finite differences"): lambda: _paying("escrowed"),
    ("Heston with escrowed dividends", "american put", "finite differences"): lambda: _paying(
        "escrowed", "heston on curve"
    ),
    ("dividends of the spot", "american put", "finite differences"): lambda: _paying("spot"),
    ("dividends of the spot", "down-and-out call", "finite differences"): lambda: _paying("spot"),
    ("Heston", "phoenix", "Monte Carlo"): helpers.all_models["heston on curve"],
    ("three assets", "phoenix on the worst of three", "Monte Carlo"): helpers.all_models[
        "three lognormal assets"
    ],
    ("vols by delta", "call", "closed form"): _currency_pair,
    ("vols by delta", "down-and-out call", "finite differences"): _currency_pair,
    ("quanto", "call", "closed form"): lambda: _converted("quanto"),
    ("compo", "call", "closed form"): lambda: _converted("compo"),
}
_KEEPS_PRODUCTS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable


def recorded(only: tuple[str, ...]) -> Iterator[Program]:
    """Run the verbs that are loops of Python over programs, and yield the programs of those in `only`."""
    found: dict[object, tuple[str, RecordedProgram]] = {}
    for name, run in _runs():
        if not name.startswith(only):
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
        yield Program(full, program.function, program.args, program.kwargs)


def _raise(error: Exception) -> None:
    raise error


def _pairs() -> dict[tuple[str, str], str]:
    """Return the first model of every method with one product of each class."""
    pairs: dict[tuple[str, str], str] = {}
    classes = set()
    for product, model, method in helpers.triples:
        kind = method, type(helpers.all_products[product]())
        if kind not in classes:
            classes.add(kind)
            pairs[method, product] = model
    return pairs


def _built(product: str, model: str) -> tuple:
    return helpers.all_products[product](), helpers.all_models[model]()


def _figures(method: str) -> Callable:
    chosen = helpers.all_methods[method]()
    key = {"key": KEY} if chosen.is_random else {}
    return lambda product, model: greeks(product, model, chosen, throw=False, **key)


def _figures_of_paths(product, model):
    """Return a value, its gradient and its Greeks by 1,024 paths, a tile of a TPU."""
    method = MonteCarlo(num_paths=1024, num_steps=4, block=1024)
    value = lambda model: price(product, model, method, key=KEY).value
    return jax.value_and_grad(value)(model), greeks(product, model, method, key=KEY, throw=False)


def _in_kernels(function: Callable) -> Callable:
    """Return a function whose chains are traced under `jt.set_kernels(True)`."""

    def run(*args):
        with kernels(True):
            return function(*args)

    return run


def _stripped(vols):
    """Return the caplet vols of caps of one and one and a half years."""
    periods = [[0.5, 0.5], [0.5, 1.0]], [[0.5, 1.0], [1.0, 1.5]], [[0.0, 0.5], [0.5, 0.5]]
    quotes = CapQuotes(*periods, [0.02, 0.03], vols, kind="normal")
    return strip_caps(quotes, helpers.curve(), throw=False).vols


def _layers(schedule) -> Callable:
    def loss(x, weights):
        step = lambda h, w: (h + jnp.tanh(h @ w), None)
        return jnp.sum(jt.scan(step, x, weights, schedule=schedule)[0] ** 2)

    return loss


def _loop(x):
    grow = lambda s: 1.01 * s + 0.1
    return jnp.sum(jt.while_loop(lambda s: jnp.max(s) < 50.0, grow, x, max_steps=1000, slots=8))


def _roots(speeds, x):
    """Return a sum of states after steps of implicit Euler."""
    implicit = lambda speed, x: jt.root(lambda y: y + 0.1 * speed * y**3 - x, x)
    tape = jt.Tape().with_schedule(jt.Revolve(3))
    return jnp.sum(tape.append(jax.vmap(implicit, (None, 0)), speeds)(x))


def _runs() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the verbs that run programs in loops, by name."""
    yield "risk", _risk
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
    methods = tuple(
        dataclasses.replace(method(), num_paths=256) if hasattr(method(), "num_paths") else method()
        for method in helpers.all_methods.values()
    )
    found = risk(few, models.market, models.fit, key=KEY, methods=methods)
    assert not found.failed, found.failed
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
    rates = ("swap", "swaption", "bermudan swaption")
    trades = [*(helpers.all_products[name]() for name in rates), European(100.0, 0.7)]
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
