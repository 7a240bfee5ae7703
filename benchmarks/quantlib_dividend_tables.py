"""Print the tables of options on a share that pays cash dividends, valued by QuantLib.

    python -m benchmarks.quantlib_dividend_tables

The market is `MARKET`; times are whole days over 365. European options are valued by
AnalyticDividendEuropeanEngine, others by FdBlackScholesVanillaEngine and FdBlackScholesBarrierEngine on the
grids named in each table, with the Crank-Nicolson scheme.
"""

import itertools
import sys

import QuantLib as ql

from .quantlib_objects import KIND, OPTION, Flat

MARKET = {"spot": 100.0, "rate": 0.05, "vol": 0.25, "dividend_yield": 0.01}
EX_DAYS, CASH = (73, 219), (2.0, 3.0)
EXPIRY = 365
STRIKES = (80.0, 100.0, 120.0)
_CONSTANTS = (
    "spot = 100, rate = 0.05, vol = 0.25, dividend_yield = 0.01, expiry = 1, "
    'ex_dates = "0.2,0.6", cash = "2,3"'
)
_BARRIERS = "down-and-out", "down-and-in", "up-and-out", "up-and-in"
_SCRIPT = "The script is benchmarks/quantlib_dividend_tables.py"


class Peer(Flat):
    """The market in QuantLib's objects."""

    def __init__(self):
        super().__init__(**MARKET)
        days = [self.asof + day for day in EX_DAYS]
        self.dividends = ql.DividendVector(days, list(CASH))

    def grid(self, dynamics: str, steps: int, nodes: int):
        """Return the engine of a grid under one of the two dynamics."""
        kinds = ql.FdBlackScholesVanillaEngine
        model = kinds.Escrowed if dynamics == "escrowed" else kinds.Spot
        scheme = ql.FdmSchemeDesc.CrankNicolson()
        return kinds(self.process, self.dividends, steps, nodes, 0, scheme, False, -1.0, model)

    def vanilla(self, option: str, strike: float, engine, *, american: bool = False):
        """Return a call or put with an engine."""
        last = self.asof + EXPIRY
        exercise = ql.AmericanExercise(self.asof, last) if american else ql.EuropeanExercise(last)
        found = ql.VanillaOption(ql.PlainVanillaPayoff(OPTION[option], strike), exercise)
        found.setPricingEngine(engine)
        return found

    def barrier(self, kind: str, level: float, steps: int, nodes: int) -> float:
        """Return the value of a call of strike 100 with a barrier, under spot dynamics."""
        payoff = ql.PlainVanillaPayoff(ql.Option.Call, 100.0)
        exercise = ql.EuropeanExercise(self.asof + EXPIRY)
        found = ql.BarrierOption(KIND[kind], level, 0.0, payoff, exercise)
        scheme = ql.FdmSchemeDesc.CrankNicolson()
        grid = steps, nodes, 0, scheme
        found.setPricingEngine(ql.FdBlackScholesBarrierEngine(self.process, self.dividends, *grid))
        return found.NPV()


def _table(name: str, source: str, settings: str, columns: str, rows: list[str]) -> str:
    return (
        f'[[table]]\nname = "{name}"\nsource = """{source}. {_SCRIPT}"""\nkind = "computed"\n'
        f'{settings}\nrows = """\n{columns}\n' + "\n".join(rows) + '\n"""\n'
    )


def european(peer: Peer) -> str:
    """Return European options under escrowed dynamics, with Delta and Gamma in the raw spot."""
    engine, rows = ql.AnalyticDividendEuropeanEngine(peer.process, peer.dividends), []
    for option, strike in itertools.product(OPTION, STRIKES):
        found = peer.vanilla(option, strike, engine)
        figures = f"{found.NPV():.8f}  {found.delta():.8f}  {found.gamma():.8f}"
        rows.append(f"{option}  {strike:g}  {figures}")
    return _table(
        "European options above cash dividends",
        "QuantLib 1.44's AnalyticDividendEuropeanEngine",
        f'product = "European"\nmodel = "BlackScholes with dividends"\nconstants = {{ {_CONSTANTS} }}',
        "option  strike  value  delta  gamma",
        rows,
    )


def on_grids(peer: Peer, product: str, dynamics: str, steps: int, nodes: int) -> str:
    """Return European or American options by QuantLib's grid."""
    american, engine = product == "American", peer.grid(dynamics, steps, nodes)
    rows = [
        f"{option}  {strike:g}  {peer.vanilla(option, strike, engine, american=american).NPV():.5f}"
        for option, strike in itertools.product(OPTION, STRIKES)
    ]
    because = (
        f"From half its grid to {steps} x {nodes} QuantLib's value moves by up to 3e-4, ours, from half of "
        "its own, by less than 1e-3."
    )
    return _table(
        f"{product} options, {dynamics} dividends",
        f"QuantLib 1.44's FdBlackScholesVanillaEngine on {steps} x {nodes} (steps, nodes)",
        f'tolerance = 1e-3\nbecause = "{because}"\nproduct = "{product}"\n'
        f'model = "BlackScholes with dividends"\nconstants = {{ {_CONSTANTS}, dynamics = "{dynamics}" }}',
        "option  strike  value",
        rows,
    )


def barriers(peer: Peer, steps: int, nodes: int) -> str:
    """Return calls with barriers under spot dynamics."""
    levels = {"down": (70.0, 85.0), "up": (130.0, 150.0)}
    rows = [
        f"{kind}  {level:g}  {peer.barrier(kind, level, steps, nodes):.5f}"
        for kind in _BARRIERS
        for level in levels[kind.split("-")[0]]
    ]
    because = (
        f"From half its steps to {steps} x {nodes} QuantLib's value moves by up to 5e-4, where the payoff "
        "jumps at the barrier"
    )
    return _table(
        "Barriers at all times, spot dividends",
        f"QuantLib 1.44's FdBlackScholesBarrierEngine on {steps} x {nodes} (steps, nodes)",
        f'tolerance = 1e-3\nbecause = "{because}."\nproduct = "Barrier"\n'
        'model = "BlackScholes with dividends"\n'
        f'constants = {{ {_CONSTANTS}, dynamics = "spot", option = "call", strike = 100 }}',
        "kind  barrier  value",
        rows,
    )


def tables() -> str:
    """Return all tables."""
    peer = Peer()
    found = [european(peer), on_grids(peer, "European", "spot", 3200, 1600)]
    found += [on_grids(peer, "American", dynamics, 3200, 1600) for dynamics in ("escrowed", "spot")]
    return "\n".join([*found, barriers(peer, 6400, 1600)])


if __name__ == "__main__":
    sys.stdout.write(tables())
