"""Print the tables of curves of overnight swaps, of forward curves, and of trades on them, by QuantLib.

    python -m benchmarks.quantlib_rates_tables

Curves are QuantLib's PiecewiseLinearZero of OISRateHelper, DepositRateHelper, FraRateHelper and SwapRateHelper;
trades are by DiscountingSwapEngine and ForwardRateAgreement. All are on TARGET's calendar, from 10 March 2026.
"""

import itertools
import json
import sys
from datetime import date
from typing import Any

import QuantLib as ql

ASOF = date(2026, 3, 10)
TENORS = ["1W", "1M", "3M", "6M", "1Y", "18M", "2Y", "3Y", "5Y", "7Y", "10Y", "20Y", "30Y"]
FRAS, SWAPS = ["1x7", "3x9", "6x12", "12x18"], ["2Y", "3Y", "5Y", "7Y", "10Y", "20Y", "30Y"]
LEVELS = {
    "rising": (
        [1.93, 1.94, 1.96, 1.99, 2.03, 2.08, 2.13, 2.22, 2.37, 2.49, 2.63, 2.81, 2.79],
        [2.11, 2.14, 2.17, 2.21, 2.28],
        [2.26, 2.35, 2.51, 2.64, 2.78, 2.94, 2.9],
    ),
    "falling to below 0": (
        [2.2, 2.1, 1.7, 1.2, 0.6, 0.3, 0.1, -0.1, -0.3, -0.35, -0.2, 0.1, 0.2],
        [1.5, 1.3, 1.0, 0.7, 0.35],
        [0.25, 0.02, -0.15, -0.2, -0.05, 0.25, 0.35],
    ),
}
"""Name -> percentages: overnight swaps, the 6M deposit and the FRAs, swaps of forward rates."""

TIMES = (0.01, 0.1, 0.3, 0.7, 1.2, 1.7, 2.5, 4.0, 6.0, 8.5, 14.0, 25.0)
PAYMENT_LAG = 1
COLUMNS = "type", "side", "fixed_rate", "start", "maturity", "floating_frequency", "forward_curve"
ROWS = (
    *itertools.product(
        ("swap",),
        ("payer", "receiver"),
        (0.01, 0.025),
        ("2026-06-10",),
        ("2028-06-12", "2036-06-10"),
        ("semiannual",),
        ("EUR6M",),
    ),
    *itertools.product(
        ("overnight_swap",),
        ("payer", "receiver"),
        (0.02,),
        ("2026-03-12", "2027-09-10"),
        ("2028-09-11", "2041-09-10"),
        ("-",),
        ("-",),
    ),
    *itertools.product(
        ("fra",),
        ("payer", "receiver"),
        (0.01, 0.03),
        ("2026-06-10",),
        ("2026-12-10",),
        ("-",),
        ("EUR6M",),
    ),
)


def document(level: str) -> dict[str, Any]:
    """Return the market file of the quotes of a level."""
    overnight, fras, swaps = ([round(x / 100.0, 6) for x in xs] for xs in LEVELS[level])
    forward = {
        "discount_curve": "EUR",
        "deposits": {"tenors": ["6M"], "rates": fras[:1]},
        "fras": {"tenors": FRAS, "rates": fras[1:]},
        "swaps": {"tenors": SWAPS, "rates": swaps, "floating_frequency": "semiannual"},
    }
    own = {"overnight_swaps": {"tenors": TENORS, "rates": overnight, "payment_lag": PAYMENT_LAG}}
    curves = {"EUR": own, "EUR6M": forward}
    return {"asof": str(ASOF), "currency": "EUR", "curves": curves, "equities": {}}


class Peer:
    """The curves of a level in QuantLib's objects."""

    def __init__(self, level: str):
        self.today = ql.Date.from_date(ASOF)
        ql.Settings.instance().evaluationDate = self.today
        quotes = document(level)["curves"]
        overnight, forward = quotes["EUR"]["overnight_swaps"], quotes["EUR6M"]
        none = ql.YieldTermStructureHandle()
        helpers = [
            ql.OISRateHelper(2, ql.Period(tenor), quote, ql.Estr(), none, False, PAYMENT_LAG)
            for tenor, quote in _quotes(overnight)
        ]
        self.discount = self._curve(helpers)
        rules = 2, ql.TARGET(), ql.ModifiedFollowing, False, ql.Actual360()
        pillar = ql.Pillar.LastRelevantDate, ql.Date(), False
        fixed = ql.TARGET(), ql.Annual, ql.ModifiedFollowing, ql.Thirty360(ql.Thirty360.European)
        later = ql.QuoteHandle(), ql.Period(0, ql.Days), self.discount
        helpers = [
            *(
                ql.DepositRateHelper(quote, ql.Period(tenor), *rules)
                for tenor, quote in _quotes(forward["deposits"])
            ),
            *(
                ql.FraRateHelper(quote, *map(int, tenor.split("x")), *rules, *pillar)
                for tenor, quote in _quotes(forward["fras"])
            ),
            *(
                ql.SwapRateHelper(quote, ql.Period(tenor), *fixed, ql.Euribor6M(), *later)
                for tenor, quote in _quotes(forward["swaps"])
            ),
        ]
        self.forward = self._curve(helpers)

    def _curve(self, helpers: list) -> Any:
        curve = ql.PiecewiseLinearZero(self.today, helpers, ql.Actual365Fixed())
        return ql.YieldTermStructureHandle(curve)

    def value(self, row: tuple) -> float:
        """Return the value of a trade on a notional of 100."""
        kind, side, rate, start, maturity, *_ = row
        begin, end = map(ql.DateParser.parseISO, (start, maturity))
        way = ql.Swap.Payer if side == "payer" else ql.Swap.Receiver
        if kind == "fra":
            position = ql.Position.Long if side == "payer" else ql.Position.Short
            terms = begin, end, position, rate, 100.0, self.discount
            return ql.ForwardRateAgreement(ql.Euribor6M(self.forward), *terms).NPV()
        if kind == "swap":
            fixed = schedule(begin, end, 12), rate, ql.Thirty360(ql.Thirty360.European)
            floating = ql.Euribor6M(self.forward), 0.0, ql.Actual360()
            found = ql.VanillaSwap(way, 100.0, *fixed, schedule(begin, end, 6), *floating)
        else:
            terms = rate, ql.Actual360(), ql.Estr(self.discount), 0.0, PAYMENT_LAG
            found = ql.OvernightIndexedSwap(way, 100.0, schedule(begin, end, 12), *terms)
        found.setPricingEngine(ql.DiscountingSwapEngine(self.discount))
        return found.NPV()


def _quotes(section: dict[str, Any]) -> list[tuple[str, Any]]:
    pairs = zip(section["tenors"], section["rates"], strict=True)
    return [(tenor, ql.QuoteHandle(ql.SimpleQuote(rate))) for tenor, rate in pairs]


def schedule(start: Any, end: Any, months: int) -> Any:
    """Return TARGET's days from start to end, counted back from the end."""
    rules = ql.TARGET(), ql.ModifiedFollowing, ql.ModifiedFollowing, ql.DateGeneration.Backward
    return ql.Schedule(start, end, ql.Period(months, ql.Months), *rules, False)


def table(
    name: str,
    source: str,
    tolerance: str,
    market: str,
    lines: list[str],
    script: str = "quantlib_rates_tables",
    because: str = "QuantLib's bootstrap stops at an accuracy of 1e-12 of a quote",
) -> str:
    """Return a table of the group `curves` as TOML."""
    rows = "\n".join(lines)
    return (
        f'[[table]]\nname = "{name}"\nsource = """QuantLib 1.44\'s {source}. The script is '
        f'benchmarks/{script}.py"""\nkind = "computed"\ntolerance = {tolerance}\n'
        f'because = "{because}."\nmarket = """\n{market}\n"""\nrows = """\n{rows}\n"""\n'
    )


def tables() -> str:
    """Return all tables."""
    found = [
        "# Curves of quotes and trades on them (jaxtape.cli.reference_tables says how a table is read).\n"
    ]
    for level in LEVELS:
        peer, market = Peer(level), json.dumps(document(level))
        curves = {"EUR": peer.discount, "EUR6M": peer.forward}
        lines = [
            f"{name}  {t:g}  {curve.discount(t):.12f}"
            for name, curve in curves.items()
            for t in TIMES
        ]
        source = "PiecewiseLinearZero of overnight swaps, and of a deposit, FRAs and swaps"
        head = ["curve  time  discount"]
        found.append(table(f"Curves, {level}", source, "1e-11", market, head + lines))
        lines = ["  ".join((*map(str, row), f"{peer.value(row):.10f}")) for row in ROWS]
        source = "DiscountingSwapEngine and ForwardRateAgreement, on a notional of 100"
        head = ["  ".join((*COLUMNS, "value"))]
        found.append(table(f"Swaps and FRAs, {level}", source, "1e-9", market, head + lines))
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(tables())
