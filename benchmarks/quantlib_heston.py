"""The sample book, a calibration and sensitivities to quotes under Heston, compared with QuantLib."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import QuantLib as ql

from calibration import ImpliedVolError, calibrate, fit
from pricing import Book, FiniteDifference, Heston, Market, risk

from .quantlib_objects import MEASURES, ORDER, HestonMarket, Portfolio
from .timing import Row, Timing, differences, interleaved

NAME = "DAX"
START = (0.1, 1.0, 0.1, 0.5, -0.5)  # v0, kappa, theta, xi, rho
GRID = (100, 100, 50)  # QuantLib's default
FINE_GRIDS = (
    (400, 100, 200),
    (800, 150, 400),
)  # the second, and the limit of both, are the references for both libraries
OUR_FINE_GRID = (400, 120, 200)
SEED = 7


def start_of(market: Market) -> Heston:
    equity = market.equities[NAME]
    return Heston(equity.spot, market.curves[equity.curve], *START, equity.dividend_yield)


def calibration_row(market: Market, repeat: int) -> tuple[Row, dict[str, str], Heston]:
    """Compare fits to the same surface from the same start; both results are judged by our residuals."""
    start = start_of(market)
    quotes = market.equities[NAME].surface
    peer = HestonMarket(market, NAME, start)
    results, times = interleaved(
        {"ours": lambda: calibrate(quotes, start), "QuantLib": peer.calibration()},
        repeat,
    )
    dividend = start.dividend_yield
    theirs = Heston(start.spot, start.rate, **results["QuantLib"], dividend_yield=dividend)

    def squares(model):
        return float(1e4 * jnp.sum(ImpliedVolError().residuals(model, quotes) ** 2))

    ours = results["ours"]
    row = Row(
        f"one calibration, {quotes.vols.size} quotes",
        f"calibrate(), {int(ours.stats['steps'])} steps",
        "LevenbergMarquardt, AnalyticHestonEngine 64",
        *(times["ours"], times["QuantLib"], 25.0),
    )
    facts = {
        "sum of squared vol points, ours": f"{squares(ours.model):.6f}",
        "sum of squared vol points, QuantLib": f"{squares(theirs):.6f}",
    }
    return row, facts, ours.model


def values_of(book: Book, market: Market, models, **how) -> np.ndarray:
    """Return the value of each contract of a book, without Greeks."""
    found = risk(book, market, lambda _: models, greeks=False, **how)
    return np.array([trade.figures.value for trade in found.trades])


def figures_of(result) -> dict[str, np.ndarray]:
    """Return each measure of all trades, which are on one underlying."""
    rows = [vars(trade.figures) for trade in result.trades]
    return {name: np.array([jax.tree.leaves(row[name])[0] for row in rows]) for name in MEASURES}


def only(book: Book, *kinds: str, every: int = 1) -> Book:
    """Return every `every`-th trade of these kinds; of the barriers, only those monitored continuously."""
    rows = [row for row in book.rows if row.type in kinds]
    rows = [row for row in rows if row.type != "barrier" or row.trade.dates is None]
    return replace(book, rows=tuple(rows[::every]))


@dataclass(frozen=True)
class Sides:
    """The market, our models fitted to it and their derivative, and QuantLib's with the same parameters.

    `direction` is the move of the parameters under a parallel shift of all quoted vols.
    """

    market: Market
    refit: Callable[[Market], dict[str, Heston]]
    models: dict[str, Heston]
    peer: HestonMarket
    direction: np.ndarray

    @classmethod
    def of(cls, market: Market, model: Heston) -> "Sides":
        refit = fit(model)
        still = jax.tree.map(jnp.zeros_like, market)
        vols = lambda m: m.equities[NAME].surface.vols
        up = eqx.tree_at(vols, still, jnp.ones_like(vols(still)))
        models, tangents = jax.jvp(refit, (market,), (up,))
        direction = np.array([float(getattr(tangents[NAME], name)) for name in ORDER])
        return cls(market, refit, models, HestonMarket(market, NAME, models[NAME]), direction)

    def sweep(self, book: Book):
        return risk(book, self.market, self.refit)

    def values(self, book: Book) -> np.ndarray:
        return values_of(book, self.market, self.models)

    def bumps(self, portfolio: Portfolio) -> dict[str, np.ndarray]:
        return self.peer.by_bumps(portfolio, self.direction)


@dataclass(frozen=True)
class Part:
    """Some trades: figures and times of each way, and their rows."""

    rows: list[Row]
    results: dict
    times: dict[str, Timing]


def claims_part(sides: Sides, claims: Book, repeat: int) -> Part:
    """Compare Europeans and digitals: the whole risk, and values only."""
    peer = sides.peer
    engines = {
        "AnalyticHestonEngine": ql.AnalyticHestonEngine(peer.model),
        "ExponentialFittingHestonEngine": ql.ExponentialFittingHestonEngine(peer.model),
    }
    books = {name: peer.terminal(claims.trades, engine) for name, engine in engines.items()}
    gauss, fitting = books
    results, times = interleaved(
        {
            "risk": lambda: sides.sweep(claims),
            "theirs": lambda: sides.bumps(books[gauss]),
            "values": lambda: sides.values(claims),
            "their values": lambda: peer.values(books[gauss]),
            "fitting": lambda: sides.bumps(books[fitting]),
        },
        repeat,
    )
    name, figures = (
        f"Heston, {len(claims.rows):,} Europeans and digitals",
        figures_of(results["risk"]),
    )
    ours = ours_of(results)
    rows = [
        Row(
            *(name, ours, f"{engine}, 5 prices", times["risk"], times[key], None),
            differences(figures, results[key]),
        )
        for key, engine in (("theirs", gauss), ("fitting", fitting))
    ]
    rows.append(Row(name, "value", gauss, times["values"], times["their values"]))
    return Part(rows, results, times)


def knocks_part(sides: Sides, knocks: Book, repeat: int) -> Part:
    """Compare barriers: the whole risk, and values only."""
    peer, grids = sides.peer, sides.peer.barriers(knocks.trades, GRID)
    results, times = interleaved(
        {
            "risk": lambda: sides.sweep(knocks),
            "theirs": lambda: peer.by_grid(grids, sides.direction),
            "values": lambda: sides.values(knocks),
            "their values": lambda: peer.values(grids),
        },
        repeat,
    )
    name, engine = f"Heston, {len(knocks.rows):,} barriers", "FdHestonBarrierEngine 100x100x50"
    gaps, pairs = differences(figures_of(results["risk"]), results["theirs"]), times
    rows = [
        Row(
            *(name, ours_of(results), f"{engine}, 2 grids", pairs["risk"], pairs["theirs"]),
            differences=gaps,
        ),
        Row(name, "value", engine, pairs["values"], pairs["their values"]),
    ]
    return Part(rows, results, times)


def ours_of(results: dict) -> str:
    return f"risk(): theta, rho, {len(results['risk'].sensitivities)} quotes too"


def heston_rows(
    book: Book, sides: Sides, repeat: int, every: int, judged: int, coarser: int
) -> tuple[list[Row], dict[str, str]]:
    """Compare the book by kind and as a whole; QuantLib's time for the whole is the sum of the parts."""
    claims = only(book, "european", "digital", every=every)
    knocks = only(book, "barrier", every=every)
    parts = (
        claims_part(sides, claims, repeat),
        knocks_part(sides, knocks, max(1, repeat - 1)),
    )
    name = f"Heston, book of {len(claims.rows) + len(knocks.rows):,}"
    whole = {
        way: _sum(*(part.times[way] for part in parts))
        for way in ("risk", "theirs", "values", "their values")
    }
    ours = f"{ours_of(parts[0].results)}, two calls"
    rows = [
        *(row for part in parts for row in part.rows),
        Row(name, ours, "both of the above", whole["risk"], whole["theirs"], 10.0),
        Row(name, "value", "both of the above", whole["values"], whole["their values"]),
    ]
    return rows, barrier_facts(sides, knocks, parts[1].results, judged, coarser)


def barrier_facts(
    sides: Sides, knocks: Book, results: dict, judged: int, coarser: int
) -> dict[str, str]:
    """Compare values on both default grids, and on our fine grid, with the limit of QuantLib's fine grids."""
    count, peer = min(judged, len(knocks.rows)), sides.peer
    chosen = sorted(np.random.default_rng(SEED).choice(len(knocks.rows), count, False).tolist())
    book = replace(knocks, rows=tuple(knocks.rows[i] for i in chosen))
    *grids, our_grid = (tuple(n // coarser for n in g) for g in (*FINE_GRIDS, OUR_FINE_GRID))
    coarse, fine = (
        np.asarray(peer.values(peer.barriers(book.trades, grid))["value"]) for grid in grids
    )
    limit = 2.0 * fine - coarse  # its error halves with the grid
    mine = values_of(book, sides.market, sides.models, methods=(FiniteDifference(*our_grid),))
    rivals = {
        "QuantLib's default grid": results["theirs"]["value"][chosen],
        f"QuantLib's {grids[1]} grid": fine,
        "our default grid": figures_of(results["risk"])["value"][chosen],
        f"our {' x '.join(map(str, our_grid))} grid": mine,
    }
    against = f"against the limit of QuantLib's grids, {count} random barriers"
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
    turns = zip(*(time.seconds for time in times), strict=False)
    return Timing(*sums, min(time.runs for time in times), tuple(map(sum, turns)))


def sweep_facts(book: Book, sides: Sides, repeat: int, every: int) -> dict[str, str]:
    """Return the cost of the risk to every quote, in plain valuations, compared with bumping every quote."""
    book = only(book, "european", "digital", "barrier", every=every)
    market, models = sides.market, sides.models
    surface = market.equities[NAME].surface
    quotes = replace(surface, vols=surface.vols.at[3, 5].add(1e-4))
    parts: list[dict[str, float]] = []

    def sweep():
        result = sides.sweep(book)
        parts.append(result.stats)
        return result

    def revalue():  # from the fitted parameters, at `calibrate`'s own tolerance; raises if not converged
        bumped = calibrate(quotes, models[NAME]).model
        return values_of(book, market, {NAME: bumped})

    results, times = interleaved(
        {"sweep": sweep, "value": lambda: sides.values(book), "bump": revalue},
        repeat,
    )
    value, whole = times["value"].best, times["sweep"].best
    best = min(parts[1:], key=lambda stats: sum(stats.values()))
    count = len(results["sweep"].sensitivities)
    pieces = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in best.items())
    one = times["bump"].best
    return {
        "one plain valuation of the book": f"{value:.3f} s",
        f"risk to {count} quotes in one sweep": f"{whole:.3f} s ({pieces})",
        "in plain valuations": f"{whole / value:.2f}; fit, sweep, pullback "
        + ", ".join(f"{best[name] / value:.2f}" for name in ("fit", "sweep", "pullback")),
        "one recalibration and revaluation": f"{one:.3f} s",
        f"bump and recalibrate, 2 x {count} times that": f"{2 * count * one:.1f} s (scaled), "
        f"{2 * count * one / whole:.0f} times the sweep",
    }
