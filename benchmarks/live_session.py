"""A long-lived `RiskEngine`: the cost of a moved spot, a moved quote, a dropped trade and a new one.

Run `python -m benchmarks.live_session [--trades 10000] [--repeat 5] [--model black_scholes] [--kinds KIND
...] [--out FILE]`. Europeans and digitals on the DAX have closed forms under the Black-Scholes models that the
market's surface gives; continuous barriers (`--kinds barrier`) are solved on grids. With `--model heston`,
every move refits the model, and Europeans and digitals are Fourier integrals. Each trade has value, Delta,
Gamma, vega, theta and rho, and the book its derivative with respect to every quote. The first call traces and
compiles; the others report the best of `repeat`. The new trade is the dropped one, in another place of the
book. The last result is compared, to the bit, with that of a fresh engine on the last book and market.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax

from calibration import calibrate, fit
from pricing import BlackScholes, Book, Heston, Market, RiskEngine, RiskResult

from .command import Run, parser_of, table_of
from .large_book import SAMPLES, SHARES, book

KINDS = {"black_scholes": ["european", "digital"], "heston": ["european", "digital"]}


def black_scholes(market: Market) -> dict[str, BlackScholes]:
    """Return the models of the market, with its surfaces as vols."""
    return {
        name: BlackScholes(e.spot, market.curves[e.curve], e.surface, e.dividend_yield)
        for name, e in market.equities.items()
    }


def heston(market: Market) -> Callable:
    """Return the fit of a model that starts from the market's calibration."""
    start = Heston.starting_on(market, "DAX")
    return fit(calibrate(market.equities["DAX"].surface, start).model)


MODELS = {"black_scholes": lambda _: black_scholes, "heston": heston}


def moved(market: Market, step: int) -> Market:
    """Return the market with another spot."""
    spot = lambda m: m.equities["DAX"].spot
    return eqx.tree_at(spot, market, spot(market) * (1.0 + 0.001 * step))


def requoted(market: Market, step: int) -> Market:
    """Return the market with one vol changed."""
    vols = lambda m: m.equities["DAX"].surface.vols
    return eqx.tree_at(vols, market, vols(market).at[3, 5].add(1e-4 * step))


def best(call: Callable[[int], RiskResult], repeat: int) -> float:
    """Return the seconds of the fastest of `repeat` calls, each with another number."""
    seconds = []
    for step in range(1, repeat + 1):
        start = time.perf_counter()
        call(step)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measured(
    trades: int, repeat: int, model: str, kinds: Sequence[str]
) -> tuple[dict[str, float], bool]:
    """Return the seconds of each call, and whether a fresh engine gives the same bits."""
    found = Market.read(SAMPLES / "dax_2002-07-05.json")
    market = replace(
        found, equities={"DAX": found.equities["DAX"]}, correlations={}, swaption_vols=None
    )
    model_of = MODELS[model](market)
    whole, engine = book(trades, kinds), RiskEngine(model_of)
    seconds = {"the first call": best(lambda _: engine(whole, market), 1)}
    seconds["another spot"] = best(lambda step: engine(whole, moved(market, step)), repeat)
    seconds["another vol of one quote"] = best(
        lambda step: engine(whole, requoted(market, step)), repeat
    )
    without = [whole.without(row.id) for row in whole.rows[:repeat]]
    alone = [
        Book(whole.file, (row,), ()) + other
        for row, other in zip(whole.rows, without, strict=False)
    ]
    seconds["a trade dropped"] = best(lambda step: engine(without[step - 1], market), repeat)
    seconds["a trade added"] = best(lambda step: engine(alone[step - 1], market), repeat)
    last = alone[-1], requoted(moved(market, 1), 1)
    same = bits(engine(*last)) == bits(RiskEngine(model_of)(*last))
    return seconds, same


def bits(result: RiskResult) -> list:
    """Return every number of a result."""
    trades = [(trade.figures, trade.std_errors) for trade in result.trades]
    gradient = [leaf.tobytes() for leaf in map(jax.device_get, jax.tree.leaves(result.gradient))]
    return [result.value, result.sensitivities, trades, gradient]


def parser():
    found = parser_of(__doc__, trades=10_000, repeat=5)
    found.add_argument("--kinds", nargs="+", choices=list(SHARES), metavar="KIND")
    found.add_argument("--model", choices=list(MODELS), default="black_scholes")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("live_session", parser(), argv)
    options = run.options
    seconds, same = measured(
        options.trades, options.repeat, options.model, options.kinds or KINDS[options.model]
    )
    table = table_of(f"{options.trades:,} trades with all Greeks", "call", "ms", left=1)
    for name, length in seconds.items():
        table.add_row(name, f"{1e3 * length:,.1f}")
    run.console.print(table)
    run.console.print(f"a fresh engine finds the same bits: {same}")
    headline = f"another spot {1e3 * seconds['another spot']:.0f} ms"
    run.keep({"seconds": seconds, "same_bits": same}, headline)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
