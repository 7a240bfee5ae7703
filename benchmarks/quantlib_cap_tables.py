"""Print the tables of caps and floors, valued by QuantLib on flat curves.

    python -m benchmarks.quantlib_cap_tables

The engines are BlackCapFloorEngine, also with a shift, BachelierCapFloorEngine and AnalyticCapFloorEngine of
Hull-White; times are whole days over 365, and the rate of each period is fixed on its first day.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import QuantLib as ql

_TODAY = ql.Date(10, 3, 2026)
_FIRST, _STEP, _PERIODS = 146, 73, 10  # days
_PERIOD_WORDS = 'starts = "0.4:2.2:10", ends = "0.6:2.4:10", accruals = "0.2:0.2:10"'
_NOTIONAL = 10000.0


class Peer:
    """Flat curves in QuantLib's objects."""

    def __init__(self, discount: float, forward: float):
        ql.Settings.instance().evaluationDate = _TODAY
        flat = lambda rate: ql.YieldTermStructureHandle(
            ql.FlatForward(_TODAY, rate, ql.Actual365Fixed())
        )
        self.discount, self.forward = flat(discount), flat(forward)

    def value(self, option: str, strike: float, engine: Any) -> float:
        """Return the value of a cap or a floor with an engine."""
        days = [_TODAY + _FIRST + _STEP * count for count in range(_PERIODS + 1)]
        rules = ql.EURCurrency(), ql.NullCalendar(), ql.Unadjusted, False, ql.Actual365Fixed()
        index = ql.IborIndex("rate", ql.Period(_STEP, ql.Days), 0, *rules, self.forward)
        schedule = ql.Schedule(days)
        leg = ql.IborLeg([_NOTIONAL], schedule, index, ql.Actual365Fixed(), fixingDays=[0])
        found = (ql.Cap if option == "cap" else ql.Floor)(leg, [strike])
        found.setPricingEngine(engine)
        return found.NPV()


def _table(
    name: str,
    engine: str,
    model: str,
    constants: str,
    strikes: tuple[float, ...],
    value: Callable[[str, float], float],
) -> str:
    pairs = itertools.product(("cap", "floor"), strikes)
    rows = "\n".join(
        f"{option}  {strike:g}  {value(option, strike):.8f}" for option, strike in pairs
    )
    return (
        f'[[table]]\nname = "{name}"\nsource = """QuantLib 1.44\'s {engine}. The script is '
        f'benchmarks/quantlib_cap_tables.py"""\nkind = "computed"\nproduct = "Cap"\nmodel = "{model}"\n'
        f"constants = {{ {constants}, notional = {_NOTIONAL:g}, {_PERIOD_WORDS} }}\n"
        f'rows = """\noption  strike  value\n{rows}\n"""\n'
    )


def tables() -> str:
    """Return all tables."""
    count, found = ql.Actual365Fixed(), []
    quote = lambda vol: ql.QuoteHandle(ql.SimpleQuote(vol))
    peer, below = Peer(0.025, 0.03), Peer(-0.006, -0.004)
    strikes = (0.01, 0.02, 0.03, 0.04, 0.06)

    def valued(of: Peer, engine: Any) -> Callable[[str, float], float]:
        return lambda option, strike: of.value(option, strike, engine)

    curves = "curve = 0.025, forward_curve = 0.03"
    engine = ql.BlackCapFloorEngine(peer.discount, quote(0.25), count)
    terms = "BlackCapFloorEngine", "ForwardRates", f"{curves}, vol = 0.25", strikes
    found.append(_table("Caps and floors, lognormal", *terms, valued(peer, engine)))
    engine = ql.BlackCapFloorEngine(below.discount, quote(0.2), count, 0.03)
    numbers = "curve = -0.006, forward_curve = -0.004, vol = 0.2, shift = 0.03"
    terms = "BlackCapFloorEngine with a shift", "ForwardRates", numbers, (-0.02, -0.004, 0.0, 0.01)
    found.append(_table("Caps and floors, shifted lognormal", *terms, valued(below, engine)))
    engine = ql.BachelierCapFloorEngine(below.discount, quote(0.0085))
    numbers = 'curve = -0.006, forward_curve = -0.004, vol = 0.0085, law = "normal"'
    terms = "BachelierCapFloorEngine", "ForwardRates", numbers, (-0.02, -0.004, 0.0, 0.01, 0.03)
    found.append(_table("Caps and floors, normal", *terms, valued(below, engine)))
    one = Peer(0.03, 0.03)
    engine = ql.AnalyticCapFloorEngine(ql.HullWhite(one.discount, 0.05, 0.01), one.discount)
    numbers = "curve = 0.03, mean_reversion = 0.05, vol = 0.01"
    terms = "AnalyticCapFloorEngine of HullWhite", "HullWhite", numbers, strikes
    found.append(_table("Caps and floors under Hull and White", *terms, valued(one, engine)))
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(tables())
