"""Registries: one line here puts a new model, product or method under every test of test_members.py.

Also difference quotients with known floors, and batches of the sample book.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pricing.samples
from benchmarks import sample_book
from pricing import (
    G2,
    American,
    Asian,
    Autocallable,
    AverageForward,
    AverageStrike,
    Barrier,
    Basket,
    Bates,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    Book,
    Cap,
    Cliquet,
    ClosedForm,
    CmsCoupon,
    Digital,
    DoubleBarrier,
    DoubleTouch,
    European,
    FiniteDifference,
    FirstPassage,
    FixedPayments,
    FloatingPayments,
    ForwardRates,
    ForwardStart,
    Fourier,
    Heston,
    HullWhite,
    IntegralEquation,
    LeastSquares,
    LocalVol,
    Lookback,
    Market,
    MonteCarlo,
    NeuralLocalVol,
    PathPayoff,
    Quadrature,
    RateCurves,
    Sabr,
    Spread,
    Ssvi,
    Swap,
    Swaption,
    Touch,
    VarianceSwap,
    VolCurve,
    VolSurface,
    ZeroCurve,
    price,
)
from pricing.portfolio.batching import products_of
from pricing.portfolio.sweep import fitted_models
from pricing.valuation import unsupported_reason

NUM_PLAIN = (
    2000  # the first trades of the sample book: European, digital and barrier options on the DAX
)
SAMPLES = Path(next(iter(pricing.samples.__path__)))
EPS = np.finfo(float).eps

double = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="asks for more digits than float32 has"
)


def curve() -> ZeroCurve:
    return ZeroCurve([0.0, 0.5, 2.0], [0.02, 0.03, 0.05])


def surface() -> VolSurface:
    return VolSurface([0.25, 1.0, 2.0], [80.0, 125.0], [[0.3, 0.2], [0.28, 0.22], [0.26, 0.23]])


def smile() -> VolSurface:
    """Free of arbitrage."""
    vols = [[0.28, 0.22, 0.2], [0.26, 0.225, 0.205]]
    return VolSurface([0.25, 1.5], [80.0, 100.0, 125.0], vols)


def neural() -> NeuralLocalVol:
    """Of random weights, the same in both precisions."""
    network = eqx.nn.MLP(3, "scalar", 4, 1, jnp.tanh, key=jax.random.key(5))
    dice = np.random.default_rng(5)
    drawn = lambda x: jnp.asarray(0.3 * dice.normal(size=x.shape), x.dtype)
    weights, rest = eqx.partition(network, eqx.is_inexact_array)
    network = eqx.combine(jax.tree.map(drawn, weights), rest)
    return NeuralLocalVol(100.0, curve(), network, 0.02, 0.25)


_HESTON = (0.04, 1.5, 0.06, 0.6, -0.7, 0.01)

_CORRELATION = [[1.0, 0.5, 0.3], [0.5, 1.0, -0.2], [0.3, -0.2, 1.0]]

# Built anew by every test, so that each can choose its precision.
all_models: dict[str, Callable] = {
    "black-scholes on curve and surface": lambda: BlackScholes(100.0, curve(), surface(), 0.02),
    "black-scholes": lambda: BlackScholes(100.0, 0.05, 0.25, 0.02),
    "black-scholes on terms": lambda: BlackScholes(100.0, 0.05, VolCurve([0.5, 2.0], [0.2, 0.25])),
    "local vol": lambda: LocalVol(100.0, curve(), smile(), 0.02),
    "neural local vol": neural,
    "sabr on curve": lambda: Sabr(
        100.0, curve(), [0.25, 1.5], [1.1, 0.9], [-0.6, -0.4], [1.2, 0.6], 0.7, 0.02
    ),
    "ssvi on curve": lambda: Ssvi(
        100.0, curve(), VolCurve([0.5, 2.0], [0.22, 0.2]), -0.6, 0.5, 0.4, 0.02
    ),
    "heston on curve": lambda: Heston(100.0, curve(), *_HESTON),
    "bates on curve": lambda: Bates(100.0, curve(), *_HESTON[:5], 0.4, -0.1, 0.15, 0.01),
    "three lognormal assets": lambda: BlackScholes(
        [100.0, 95.0, 105.0], 0.05, [0.2, 0.3, 0.25], asset_correlation=_CORRELATION
    ),
    "two heston assets": lambda: Heston(
        [100.0, 95.0],
        0.03,
        *([x, 1.1 * x] for x in _HESTON),
        asset_correlation=[[1, 0.5], [0.5, 1]],
    ),
    "forward rates": lambda: ForwardRates(0.03, 0.2, curve()),
    "rate curves": lambda: RateCurves(curve(), 0.045),
    "hull-white on curve": lambda: HullWhite(curve(), 0.05, 0.01),
    "two factors of rates": lambda: G2(curve(), 0.4, 0.012, 0.05, 0.01, -0.6),
}


def path_call(spots, numbers):
    """A payoff of a path: the mean of the spots and their maximum, less a strike."""
    return jnp.maximum(0.5 * (jnp.mean(spots) + jnp.max(spots)) - numbers[0], 0.0)


# the fixed leg of swaps: payment dates and accruals
_LEG = ([1.1, 1.6, 2.1], [0.55, 0.5, 0.5])


def _phoenix(coupons=(0.02, 0.03, 0.04, 0.03), **terms) -> Autocallable:
    """A note on four dates that is called at 103 and protected at 95, of 50."""
    return Autocallable([0.2, 0.3, 0.55, 0.8], [*coupons], 103.0, 95.0, 100.0, 50.0, **terms)


all_products: dict[str, Callable] = {
    "call": lambda: European(105.0, 0.8),
    "put": lambda: European(95.0, 0.8, "put"),
    "cash digital": lambda: Digital(105.0, 0.8, "put", amount=2.0),
    "asset digital": lambda: Digital(95.0, 0.8, payout="asset"),
    "down-and-out call": lambda: Barrier(105.0, 0.8, 85.0),
    "up-and-out call": lambda: Barrier(95.0, 0.8, 130.0, "up-and-out", rebate=2.0),
    "down-and-in put": lambda: Barrier(105.0, 0.8, 85.0, "down-and-in", "put", 1.0),
    "up-and-in put": lambda: Barrier(95.0, 0.8, 120.0, "up-and-in", "put"),
    "knock-out on dates": lambda: Barrier(105.0, 0.8, 85.0, rebate=1.0, dates=[0.3, 0.55, 0.8]),
    "knock-in on dates": lambda: Barrier(
        95.0, 0.8, 120.0, "up-and-in", "put", 1.0, dates=[0.3, 0.55, 0.8]
    ),
    "double knock-out": lambda: DoubleBarrier(100.0, 80.0, 125.0, [0.3, 0.55, 0.8]),
    "autocallable": lambda: Autocallable(
        [0.3, 0.55, 0.8], [0.02, 0.04, 0.06], 103.0, 85.0, 100.0, 50.0
    ),
    "phoenix": lambda: _phoenix(
        [0.02, 0.01, 0.04, 0.03],
        call_steps=[1.2, 1.0, 0.98, 1.0],
        coupon_barrier=90.0,
        memory="yes",
        missed=0.01,
        knock_in=85.0,
    ),
    "phoenix, knock-in watched always": lambda: _phoenix(
        coupon_barrier=90.0, knock_in=85.0, watched="always"
    ),
    "phoenix on the worst of three": lambda: _phoenix(
        coupon_barrier=80.0, memory="yes", knock_in=75.0, other_initial_spots=[95.0, 100.0]
    ),
    "one touch": lambda: Touch(120.0, 0.8, "one-touch-at-expiry", amount=20.0),
    "double touch": lambda: DoubleTouch(85.0, 140.0, 0.8, "one-touch-at-expiry", amount=20.0),
    "no touch": lambda: Touch(85.0, 0.8, "no-touch", "above", amount=20.0),
    "lookback": lambda: Lookback(0.8, 105.0, extreme=103.0),
    "lookback on dates": lambda: Lookback(0.8, 102.0, "put", [0.3, 0.55, 0.8]),
    "forward start": lambda: ForwardStart(1.05, 0.3, 0.8, "put"),
    "cliquet": lambda: Cliquet(
        [0.3, 0.55, 0.8], -0.03, 0.05, notional=50.0, initial_spot=98.0, accrued=0.1
    ),
    "average strike": lambda: AverageStrike([0.3, 0.55, 0.8], "put", "geometric"),
    "variance swap": lambda: VarianceSwap(
        0.1, 0.8, [0.3, 0.55, 0.8], 99.0, annualization=4.0, initial_spot=97.0
    ),
    "spread": lambda: Spread(5.0, 0.8, weights=[1.0, -0.5, -0.5]),
    "exchange": lambda: Spread(2.0, 0.8),
    "american put": lambda: American(105.0, 0.8, "put"),
    "american call": lambda: American(95.0, 0.8, "call"),
    "asian": lambda: Asian(102.0, [0.3, 0.55, 0.8]),
    "geometric asian": lambda: Asian(98.0, [0.3, 0.55, 0.8], "put", "geometric"),
    "average forward": lambda: AverageForward(-5.0, [0.3, 0.55, 0.8], [0.2, 0.2, 0.3]),
    "path payoff": lambda: PathPayoff(path_call, [0.3, 0.55, 0.8], [102.0], has_jumps=False),
    "basket": lambda: Basket(98.0, 0.8),
    "geometric basket": lambda: Basket(98.0, 0.8, "put", "geometric"),
    "best of": lambda: Basket(110.0, 0.8, average="max"),
    "worst of": lambda: Basket(90.0, 0.8, "put", "min"),
    "bermudan put": lambda: Bermudan(European(105.0, 0.8, "put"), [0.3, 0.55, 0.8]),
    "bermudan best of": lambda: Bermudan(Basket(110.0, 0.8, average="max"), [0.4, 0.8]),
    "floating payments": lambda: FloatingPayments(
        *([0.3, 0.8], [2.0, 3.0], [0.1, 1.2], [0.6, 0.7], [0.65, 0.8], [100.0, -90.0])
    ),
    "fixed payments": lambda: FixedPayments([0.3, 0.8], [-2.0, 103.0]),
    "swap": lambda: Swap(0.04, 0.55, *_LEG, notional=100.0),
    # fixed before the last pillar of the curve, where a move of the date meets a kink
    "cms coupon": lambda: CmsCoupon(
        1.9, 2.4, [2.9, 3.9, 4.9], [1.0] * 3, 0.5, 0.04, "cap", 1000.0, [1.9, 2.4]
    ),
    "cap": lambda: Cap(0.04, [0.3, 0.8], [0.8, 1.3], [0.5, 0.5], "cap", 1000.0),
    "swaption": lambda: Swaption(0.05, 0.45, *_LEG, notional=100.0, start=0.55),
    "bermudan swaption": lambda: BermudanSwaption(
        0.05, [0.55, 1.05, 1.55], *_LEG, "receiver", 100.0
    ),
}

# the exact ones first, and those of the largest programs last
all_methods: dict[str, Callable] = {
    "closed form": ClosedForm,
    "Fourier": Fourier,
    # twelve steps: of eight to .8 one would end on the curve's pillar, where moving the expiry meets a kink;
    # 42 nodes: on 40 an American put would have a kink within 1e-7, where a node is just worth exercising
    "finite differences": lambda: FiniteDifference(42, 16, 12),
    "integral equation": IntegralEquation,
    "first passage": lambda: FirstPassage(6, 6),
    "quadrature": Quadrature,
    "Monte Carlo": lambda: MonteCarlo(256, 4, block=128),
    "least squares": lambda: LeastSquares(256, 1024, 4, block=128),
}


def _triples() -> list[tuple[str, str, str]]:
    registries = (all_products, all_models, all_methods)
    products, models, methods = ({name: r[name]() for name in r} for r in registries)
    names = itertools.product(*registries)
    return [
        (p, m, by)
        for p, m, by in names
        if not unsupported_reason(products[p], models[m], methods[by])
    ]


triples = _triples()  # the names of every product, model and method that go together


def build(product: str, model: str, method: str):
    """A triple of names as objects, and the key that the method asks for; what it fits is held."""
    product, model, method = all_products[product](), all_models[model](), all_methods[method]()
    if not method.is_random:
        return product, model, method, None
    key = jax.random.key(11)
    return product, model, method.fitted(product, model, key=key), key


def restruck(product, scales):
    """The contract with its strike (or what comes nearest to one) times a number, or a batch of them."""
    inner = getattr(product, "payoff_product", None)
    if inner is not None:
        return dataclasses.replace(product, payoff_product=restruck(inner, scales))
    names = "strike", "protection", "fixed_rate", "numbers", "amounts"
    names += "moneyness", "local_cap", "barrier", "lower"
    own = {field.name for field in dataclasses.fields(product)}
    name = next(name for name in names if name in own)
    if name in ("numbers", "amounts"):
        scaled = jnp.multiply.outer(jnp.array(scales), getattr(product, name))
        return dataclasses.replace(product, **{name: scaled})
    level = float(getattr(product, name))
    new = [level * scale for scale in scales] if isinstance(scales, list) else level * scales
    return dataclasses.replace(product, **{name: new})


def rescaled(model, scale):
    """The model with its first number (or numbers) times a scale, given as a user would type it."""
    own = {field.name for field in dataclasses.fields(model)}
    name = next(name for name in ("spot", "vol", "forward_curve") if name in own)
    numbers = np.asarray(getattr(model, name)).tolist()
    new = [number * scale for number in numbers] if isinstance(numbers, list) else numbers * scale
    return dataclasses.replace(model, **{name: new})


def value(product, model, method=None, key=None):
    """The value alone, as a function to differentiate."""
    return price(product, model, method, key=key).value


# --- the sample market and book ---------------------------------------------------------------------


@functools.cache
def desk_market() -> Market:
    """The sample market, of three currencies, with dividends and fixings: 399 quotes."""
    return Market.read(SAMPLES / "dax_2002-07-05.json")


@functools.cache
def sample_market() -> Market:
    """The sample market as far as euros go, without the payer of dividends: 247 quotes."""
    market = desk_market()
    equities = {name: equity for name, equity in market.equities.items() if not equity.dividends}
    return dataclasses.replace(
        market,
        curves={"EUR": market.curves["EUR"]},
        equities=equities,
        curve_currencies=(),
        fixings=(),
        fx={},
    )


@functools.cache
def dax() -> Market:
    """The sample market as far as the DAX needs it: 115 quotes."""
    equities = {"DAX": sample_market().equities["DAX"]}
    return dataclasses.replace(
        sample_market(), equities=equities, correlations={}, swaption_vols=None
    )


@functools.cache
def desk_book() -> Book:
    return Book.read(SAMPLES / "dax_book.csv")


@functools.cache
def dax_book() -> Book:
    """The sample book without the last trades, which are in other currencies or have a past."""
    count = sum(sample_book.OPTIONS.values()) + sum(sample_book.OTHERS.values())
    return dataclasses.replace(desk_book(), rows=desk_book().rows[:count])


def dax_batches(size: int | None = None) -> dict:
    """The plain options of the sample book (the first `size` of each kind) as one batch of products a kind."""
    by_kind: dict[str, list] = {}
    for row in dax_book().rows[:NUM_PLAIN]:
        by_kind.setdefault(row.type, []).append(row.trade)
    return {kind: products_of(trades[:size], dax()) for kind, trades in by_kind.items()}


# --- difference quotients -----------------------------------------------------------------------------


def first_difference(f: Callable, step: float):
    """f'(0) by central differences at step, step / 2 and step / 4, extrapolated: error O(step^6).

    Floor: about 4 ulp(f) / step.
    """
    return _extrapolated(lambda h: (f(h) - f(-h)) / (2.0 * h), step)


def second_difference(f: Callable, step: float):
    """f''(0) likewise. Floor: about 100 ulp(f) / step^2."""
    middle = f(0.0)
    return _extrapolated(lambda h: (f(h) - 2.0 * middle + f(-h)) / h**2, step)


def _extrapolated(quotient: Callable, step: float):
    """Richardson's table for a quotient whose error has even powers of the step only."""
    rough, fine, finest = (np.asarray(quotient(step / 2**i)) for i in range(3))
    once, again = fine + (fine - rough) / 3.0, finest + (finest - fine) / 3.0
    return again + (again - once) / 15.0


def kinds_of_sweeps(monkeypatch) -> list:
    """Return a list that gets the structure and shapes of each later sweep's arguments."""
    kinds, sweep = [], fitted_models.tile_sweep

    def noted(*args, **kwargs):
        leaves, structure = jax.tree.flatten((args, kwargs))
        kinds.append((structure, tuple(map(jnp.shape, leaves))))
        return sweep(*args, **kwargs)

    for name in ("tile_sweep", "brief_tile_sweep"):
        monkeypatch.setattr(fitted_models, name, noted)
    return kinds


def float_leaves(tree) -> list:
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]


def moved(tree, direction, step: float):
    """`tree + step * direction` over its float leaves."""
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(
        jax.tree.map(lambda x, d: x + jnp.asarray(step, x.dtype) * d, floats, direction), rest
    )


def dax_black_scholes() -> BlackScholes:
    """The DAX, each contract at the quoted vol of its strike and expiry."""
    equity = dax().equities["DAX"]
    return BlackScholes(equity.spot, dax().curves["EUR"], equity.surface, equity.dividend_yield)
