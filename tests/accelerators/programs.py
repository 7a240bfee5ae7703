"""The programs of verbs that are traced as a whole, in small shapes.

A new model, product, method or schedule is compiled without an entry here: they come from the registries of
`tests.helpers` and `tests.helpers_tape`.
"""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxtape as jt
from benchmarks.ways import kernels
from pricing import (
    BermudanSwaption,
    CapletVols,
    CapQuotes,
    FloatingPayments,
    ForwardRates,
    RateCurves,
    greeks,
    implied_normal_vol,
    price,
    strip_caps,
)
from pricing.market import DeltaQuotes, Dividends, Market
from pricing.methods import MonteCarlo
from pricing.models import (
    AbstractModel,
    BlackScholes,
    WithDividends,
)
from pricing.models.surface_models import of_surface
from tests import helpers, helpers_tape

KEY = jax.random.key(3)


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
        args = _CONTRACTS[product](), build()
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
    yield Program("market strangles", jax.grad(_strangled), (jnp.asarray([0.003, 0.01]),), {})
    for each in (
        Program("exported greeks", _figures("Fourier"), call, {}),
        Program("exported gradient", jax.grad(helpers_tape.loss_of(jt.Revolve(5))), arguments, {}),
    ):
        loaded = jt.load(jt.export(each.function, *each.args, platforms=("cuda", "tpu")))
        yield each._replace(function=loaded)


def _paying(dynamics: str, model: str = "black-scholes") -> WithDividends:
    dividends = Dividends([0.3, 0.6], [1.0, 0.0], [0.0, 0.01])
    return WithDividends(helpers.all_models[model](), dividends, dynamics)


def _strangled(strangles):
    """Return a vol of the smile of two market strangles."""
    quotes = DeltaQuotes([1.0], [0.1], [[-0.01, -0.02]], strangles[None], strangles="market")
    return quotes.surface([100.5], [0.99]).vol(1.0, 104.0)


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


# Contracts with terms that those of the tests leave out, beside these.
_CONTRACTS = helpers.all_products | {
    "bermudan swaption between coupons": lambda: BermudanSwaption(
        0.05,
        [0.5, 1.3],
        [1.1, 1.6, 2.1],
        [0.55, 0.5, 0.5],
        starts=[0.55, 1.35],
        accrued=[0.0, 0.25],
    ),
    "basis swap": lambda: FloatingPayments(
        *([1.0, 1.0], [0.0, 0.02], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0], [100.0, -100.0], [1.0, 2.0])
    ),
}
# Programs that the contracts and methods do not name: (model, product, method) -> model.
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
    ("vols by delta", "call", "closed form"): _currency_pair,
    ("vols by delta", "down-and-out call", "finite differences"): _currency_pair,
    ("quanto", "call", "closed form"): lambda: _converted("quanto"),
    ("compo", "call", "closed form"): lambda: _converted("compo"),
    ("rates with a smile", "cms coupon", "closed form"): lambda: ForwardRates(
        0.03, CapletVols([2.0], [0.01, 0.03, 0.05], [[0.3, 0.2, 0.18]]), helpers.curve()
    ),
    ("Hull-White", "bermudan swaption between coupons", "quadrature"): helpers.all_models[
        "hull-white on curve"
    ],
    ("two factors of rates", "bermudan swaption between coupons", "least squares"): (
        helpers.all_models["two factors of rates"]
    ),
    ("three curves", "basis swap", "closed form"): lambda: RateCurves(
        helpers.curve(), 0.045, 0.042
    ),
}
_KEEPS_PRODUCTS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable


def _pairs() -> dict[tuple[str, str], str]:
    """Return the first model of every method with one product of each class and each set of terms."""
    pairs: dict[tuple[str, str], str] = {}
    kinds = set()
    for product, model, method in helpers.triples:
        kind = method, jax.tree.structure(helpers.all_products[product]())
        if kind not in kinds:
            kinds.add(kind)
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
