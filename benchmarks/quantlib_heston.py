"""The sample book, a calibration and the risk to quotes under Heston, beside QuantLib."""

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import QuantLib as ql
from jax.extend.core import jaxprs_in_params

from calibration import ImpliedVolError, calibrate, fit
from calibration.underlyings import market_model
from pricing import Book, FiniteDifference, Heston, Market, risk
from pricing.contracts import products_of
from pricing.groups import group_trades
from pricing.methods import METHODS
from pricing.risk import market_shift

from .quantlib_objects import MEASURES, ORDER, HestonMarket
from .timing import Row, Timing, differences, interleaved

NAME = "DAX"
START = (0.1, 1.0, 0.1, 0.5, -0.5)  # v0, kappa, theta, xi, rho
GRID = (100, 100, 50)  # QuantLib's default
FINE_GRIDS = (
    (400, 100, 200),
    (800, 150, 400),
)  # the second, and the limit of both, judge both libraries
SEED = 7


def calibration_row(market: Market, repeat: int) -> tuple[Row, dict[str, str], Heston]:
    """The same surface from the same start; both ends judged by our residuals."""
    start = market_model(Heston(1.0, 0.0, *START), market, NAME)
    quotes = market.equities[NAME].surface
    peer = HestonMarket(market, NAME, start)
    results, times = interleaved(
        {"ours": lambda: calibrate(quotes, start, progress=False), "QuantLib": peer.calibration()},
        repeat,
    )
    theirs = Heston(start.spot, start.rate, **results["QuantLib"])

    def squares(model):
        return float(1e4 * jnp.sum(ImpliedVolError().residuals(model, quotes) ** 2))

    ours = results["ours"]
    row = Row(
        "one calibration, 104 quotes",
        f"calibrate(), {int(ours.stats['steps'])} steps",
        "LevenbergMarquardt, AnalyticHestonEngine 64",
        *(times["ours"], times["QuantLib"], 10.0),
    )
    facts = {
        "sum of squared vol points, ours": f"{squares(ours.model):.6f}",
        "sum of squared vol points, QuantLib": f"{squares(theirs):.6f}",
    }
    return row, facts, ours.model


@functools.partial(jax.jit, static_argnames="method")
def _tile_values(products, model, method):
    return jax.vmap(lambda product: method.samples(product, model, None))(products)


def plain_value(book: Book, market: Market, models) -> list[jax.Array]:
    """The value of each contract of a book, by the tiles and threads of `pricing.risk`."""
    groups, _ = group_trades(
        book.checked(market).trades, market, models, jax.random.key(0), 2**30, None, METHODS
    )

    def of_tile(pair):
        group, tile = pair
        return jax.block_until_ready(
            _tile_values(tile.products, models[group.underlying], group.method)
        )

    with ThreadPoolExecutor() as pool:
        tiles = ((group, tile) for group in groups for tile in group.tiles())
        return list(pool.map(of_tile, tiles))


def figures_of(result) -> dict[str, np.ndarray]:
    return {name: np.array([t.figures[name] for t in result.trades]) for name in MEASURES}


def only(book: Book, *kinds: str) -> Book:
    return replace(book, rows=tuple(row for row in book.rows if row.type in kinds))


def heston_rows(
    book: Book, market: Market, model: Heston, repeat: int, quick: bool
) -> tuple[list[Row], dict[str, str]]:
    """The book by kinds, and as a whole: QuantLib's time for the whole is the sum of the parts."""
    refit = fit(model)
    models, push = jax.linearize(refit, market)
    tangent = push(market_shift(market, vol=1.0))[NAME]
    direction = np.array([float(getattr(tangent, name)) for name in ORDER])
    peer = HestonMarket(market, NAME, models[NAME])
    claims, knocks = only(book, "european", "digital"), only(book, "barrier")
    if quick:
        claims, knocks = (
            replace(claims, rows=claims.rows[::8]),
            replace(knocks, rows=knocks.rows[::8]),
        )
    sweep = lambda part: risk(part, market, refit)  # noqa: E731
    gauss, fitting = (
        ql.AnalyticHestonEngine(peer.model),
        ql.ExponentialFittingHestonEngine(peer.model),
    )
    terminal = {engine: peer.terminal(claims.trades, engine) for engine in (gauss, fitting)}
    grids = peer.barriers(knocks.trades, GRID)
    claim_results, claim_times = interleaved(
        {
            "risk": lambda: sweep(claims),
            "Gauss": lambda: peer.by_bumps(terminal[gauss], direction),
            "values": lambda: plain_value(claims, market, models),
            "Gauss, values": lambda: peer.values(terminal[gauss]),
            "fitting": lambda: peer.by_bumps(terminal[fitting], direction),
        },
        repeat,
    )
    knock_results, knock_times = interleaved(
        {
            "risk": lambda: sweep(knocks),
            "grid": lambda: peer.by_grid(grids, direction),
            "values": lambda: plain_value(knocks, market, models),
            "grid, values": lambda: peer.values(grids),
        },
        1 if quick else 2,
    )
    ours = "risk(): theta, rho, 115 quotes too"
    name = f"Heston, {len(claims.rows):,} Europeans and digitals"
    figures = figures_of(claim_results["risk"])
    rows = [
        Row(name, ours, f"{engine}, 5 prices", claim_times["risk"], claim_times[key], None,
            differences(figures, claim_results[key]))
        for key, engine in (("Gauss", "AnalyticHestonEngine"), ("fitting", "ExponentialFittingHestonEngine"))
    ]  # fmt: skip
    rows.append(
        Row(
            name,
            "value",
            "AnalyticHestonEngine",
            claim_times["values"],
            claim_times["Gauss, values"],
        )
    )
    name = f"Heston, {len(knocks.rows):,} barriers"
    engine = "FdHestonBarrierEngine 100x100x50"
    gaps = differences(figures_of(knock_results["risk"]), knock_results["grid"])
    rows += [
        Row(name, ours, f"{engine}, 2 grids", knock_times["risk"], knock_times["grid"], None, gaps),
        Row(name, "value", engine, knock_times["values"], knock_times["grid, values"]),
    ]
    both = _sum(claim_times["risk"], knock_times["risk"])
    theirs = _sum(claim_times["Gauss"], knock_times["grid"])
    name = f"Heston, book of {len(claims.rows) + len(knocks.rows):,}"
    rows.append(Row(name, f"{ours}, two calls", "both of the above", both, theirs, 5.0))
    both = _sum(claim_times["values"], knock_times["values"])
    theirs = _sum(claim_times["Gauss, values"], knock_times["grid, values"])
    rows.append(Row(name, "value", "both of the above", both, theirs))
    theirs, ours = knock_results["grid"]["value"], figures_of(knock_results["risk"])["value"]
    return rows, barrier_facts(knocks, market, models[NAME], peer, theirs, ours)


def barrier_facts(
    knocks: Book, market: Market, model: Heston, peer, theirs, ours
) -> dict[str, str]:
    """Both default grids' values against the limit of QuantLib's fine grids, and our fine grid."""
    chosen = sorted(np.random.default_rng(SEED).choice(len(knocks.rows), 8, replace=False).tolist())
    trades = [knocks.trades[i] for i in chosen]
    coarse, fine = (
        np.asarray(peer.values(peer.barriers(trades, grid))["value"]) for grid in FINE_GRIDS
    )
    limit = 2.0 * fine - coarse  # its error halves with the grid
    mine = _tile_values(products_of(trades, market), model, FiniteDifference(400, 120, 200))
    rivals = {
        "QuantLib's default grid": theirs[chosen],
        f"QuantLib's {FINE_GRIDS[1]} grid": fine,
        "our default grid": ours[chosen],
        "our 400 x 120 x 200 grid": np.asarray(mine),
    }
    against = "against the limit of QuantLib's grids, 8 random barriers"
    return {
        f"{name} {against}": _gap({"value": values}, {"value": limit})
        for name, values in rivals.items()
    }


def _gap(ours, theirs) -> str:
    absolute, relative = differences(ours, theirs)["value"]
    return f"at most {absolute:.2g}, {relative:.1e} relative"


def _sum(*times: Timing) -> Timing:
    fields = ("first", "best", "median")
    sums = (sum(getattr(time, name) for time in times) for name in fields)
    return Timing(*sums, min(time.runs for time in times))


def sweep_facts(book: Book, market: Market, model: Heston, repeat: int) -> dict[str, str]:
    """What the risk to every quote costs, in plain valuations, beside bumping every quote."""
    refit = fit(model)
    models = refit(market)
    surface = market.equities[NAME].surface
    quotes = replace(surface, vols=surface.vols.at[3, 5].add(1e-4))
    parts: list[dict[str, float]] = []

    def sweep():
        result = risk(book, market, refit)
        parts.append(result.stats)
        return result

    def revalue():  # from the fitted parameters, at `calibrate`'s own tolerance; raises if not converged
        bumped = calibrate(quotes, models[NAME], progress=False).model
        return plain_value(book, market, {NAME: bumped})

    results, times = interleaved(
        {"sweep": sweep, "value": lambda: plain_value(book, market, models), "bump": revalue},
        repeat,
    )
    value, whole = times["value"].best, times["sweep"].best
    best = min(parts[1:], key=lambda stats: sum(stats.values()))
    count = len(results["sweep"].sensitivities)
    solves = _solves(lambda m: jax.jvp(refit, (m,), (m,)), market) - _solves(refit, market)
    pieces = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in best.items())
    one = times["bump"].best
    return {
        "one plain valuation of the book": f"{value:.3f} s",
        f"risk to {count} quotes in one sweep": f"{whole:.3f} s ({pieces})",
        "in plain valuations": f"{whole / value:.2f}; fit, sweep, pullback "
        + ", ".join(f"{best[name] / value:.2f}" for name in ("fit", "sweep", "pullback")),
        "linear solves that the derivative adds to the fit": str(solves),
        "one recalibration and revaluation": f"{one:.3f} s",
        f"bump and recalibrate, 2 x {count} times that": f"{2 * count * one:.1f} s (scaled), "
        f"{2 * count * one / whole:.0f} times the sweep",
    }


def _solves(function, market: Market) -> int:
    return _count(jax.make_jaxpr(function)(market).jaxpr, "custom_linear_solve")


def _count(jaxpr, name: str) -> int:
    """Equations of a primitive, those of inner programs included."""
    inner = (sub for eqn in jaxpr.eqns for sub in jaxprs_in_params(eqn.params))
    here = sum(eqn.primitive.name == name for eqn in jaxpr.eqns)
    return here + sum(_count(sub, name) for sub in inner)
