"""Thousands of Europeans and barriers in a flat Black-Scholes market, compared with QuantLib."""

import jax
import jax.numpy as jnp
import numpy as np

from pricing import Barrier, BlackScholes, ClosedForm, European, greeks, price

from .quantlib_objects import Flat
from .timing import Row, differences, interleaved

SPOT, RATE, DIVIDEND, VOL = 100.0, 0.05, 0.02, 0.25
SEED = 7


def closed_form(product, model):
    """Return only value, Delta, Gamma and vega of every contract in a batch."""
    method, zero, one = ClosedForm(), jnp.zeros(()), jnp.ones(())

    def of_one(product):
        def at(spot, vol):
            return method.samples(product, model.shifted(underlying=spot, vol=vol))

        in_spot = lambda spot: jax.jvp(lambda s: at(s, zero), (spot,), (one,))
        (value, delta), (_, gamma) = jax.jvp(in_spot, (zero,), (one,))
        _, vega = jax.jvp(lambda vol: at(zero, vol), (zero,), (one,))
        return {"value": value, "delta": delta, "gamma": gamma, "vega": vega}

    return jax.vmap(of_one)(product)


def black_scholes_rows(count: int, repeat: int) -> list[Row]:
    """Compare Europeans by the engine's own Greeks, and barriers, whose engine has none, by bumps."""
    rng, model = np.random.default_rng(SEED), BlackScholes(SPOT, RATE, VOL, DIVIDEND)
    strikes, days = rng.uniform(70.0, 130.0, count), rng.integers(7, 1826, count)
    options = rng.choice(["call", "put"], count).tolist()
    kinds = rng.choice(["down-and-out", "up-and-out", "down-and-in", "up-and-in"], count).tolist()
    down = np.array([kind.startswith("down") for kind in kinds])
    levels = np.where(down, rng.uniform(70.0, 97.0, count), rng.uniform(103.0, 140.0, count))
    rebates = rng.choice([0.0, 1.0, 3.0], count)
    vanilla = strikes.tolist(), days.tolist(), options
    exotic = *vanilla, levels.tolist(), kinds, rebates.tolist()
    years = days / 365.0
    four = jax.jit(closed_form)
    rows = []

    market = Flat(SPOT, RATE, DIVIDEND, VOL)

    def compare(title, build_ours, build_theirs, run_theirs, how, aims):
        ours, theirs = build_ours(), build_theirs()
        results, times = interleaved(
            {
                "four": lambda: four(ours, model),
                "greeks": lambda: greeks(ours, model),
                "QuantLib": lambda: run_theirs(theirs),
                "price": lambda: price(ours, model),
                "QuantLib, values": lambda: market.values(theirs),
                "four, built": lambda: four(build_ours(), model),
                "QuantLib, built": lambda: run_theirs(build_theirs()),
            },
            repeat,
        )

        def row(task, ours, mine, peer, how=how, aim=None):
            found = {"four": lambda: results["four"], "greeks": lambda: vars(results["greeks"])}
            gaps = differences(found[mine](), results[peer]) if mine in found else None
            rows.append(Row(task, ours, how, times[mine], times[peer], aim, gaps))

        engine, four_aim, all_aim = how.partition(",")[0], *aims
        row(title, "price(): values", "price", "QuantLib, values", f"{engine}, one price")
        row(title, "value, delta, gamma, vega", "four", "QuantLib", aim=four_aim)
        row(title, "greeks(): theta, rho, vanna, volga too", "greeks", "QuantLib", aim=all_aim)
        row(f"{title}, with construction", "the same four", "four, built", "QuantLib, built")

    compare(
        f"{count:,} Europeans",
        lambda: European(strikes, years, options),
        lambda: market.europeans(*vanilla),
        market.analytic,
        "AnalyticEuropeanEngine, its Greeks",
        (25.0, None),
    )
    compare(
        f"{count:,} barriers",
        lambda: Barrier(strikes, years, levels, kinds, options, rebates),
        lambda: market.barriers(*exotic),
        market.bumped,
        "AnalyticBarrierEngine, 5 prices",
        (None, 15.0),
    )
    return rows
