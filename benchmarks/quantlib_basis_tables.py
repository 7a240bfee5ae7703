"""Print the tables of a curve built from basis swaps, and of trades on it, valued by QuantLib.

    python -m benchmarks.quantlib_basis_tables

The curve of three-month rates is built from a deposit and from swaps of three-month rates plus a spread against
six-month rates; payments are discounted on overnight swaps (`quantlib_rates_tables` has those curves).
"""

import itertools
import json
import sys
from typing import Any

import QuantLib as ql

from benchmarks.quantlib_rates_tables import LEVELS, TIMES, Peer, schedule, table
from benchmarks.quantlib_rates_tables import document as without_basis

TENORS = ("1Y", "2Y", "3Y", "5Y", "7Y", "10Y", "15Y", "30Y")
SPREADS = (7.1, 8.2, 8.6, 9.3, 9.1, 8.8, 7.9, 6.4)  # basis points
DEPOSIT = {"rising": 0.0203, "falling to below 0": 0.0162}
COLUMNS = (
    *("type", "side", "spread", "start", "maturity", "floating_frequency", "forward_curve"),
    *("other_frequency", "other_curve"),
)
ROWS = tuple(
    ("basis_swap", side, spread, start, end, *legs)
    for side, spread, (start, end), legs in itertools.product(
        ("payer", "receiver"),
        (0.0, 0.001),
        (("2026-06-10", "2028-06-12"), ("2027-09-10", "2041-09-10")),
        (("quarterly", "EUR3M", "semiannual", "EUR6M"), ("quarterly", "EUR3M", "annual", "-")),
    )
)


def document(level: str) -> dict[str, Any]:
    """Return the market file of the quotes of a level."""
    found = without_basis(level)
    basis = {"tenors": list(TENORS), "spreads": [round(x / 1e4, 6) for x in SPREADS]}
    basis |= {"floating_frequency": "quarterly", "other_frequency": "semiannual"}
    found["curves"]["EUR3M"] = {
        "discount_curve": "EUR",
        "deposits": {"tenors": ["3M"], "rates": [DEPOSIT[level]]},
        "basis_swaps": basis | {"other_curve": "EUR6M"},
    }
    return found


class BasisPeer(Peer):
    """The three curves of a level in QuantLib's objects."""

    def __init__(self, level: str):
        super().__init__(level)
        quote = lambda number: ql.QuoteHandle(ql.SimpleQuote(number))
        rules = ql.TARGET(), ql.ModifiedFollowing, False
        deposit = quote(DEPOSIT[level]), ql.Period("3M"), 2, *rules, ql.Actual360()
        legs = ql.Euribor3M(), ql.Euribor6M(self.forward), self.discount, True
        spreads = document(level)["curves"]["EUR3M"]["basis_swaps"]["spreads"]
        swaps = [
            ql.IborIborBasisSwapRateHelper(quote(spread), ql.Period(tenor), 2, *rules, *legs)
            for tenor, spread in zip(TENORS, spreads, strict=True)
        ]
        self.basis = self._curve([ql.DepositRateHelper(*deposit), *swaps])

    def value(self, row: tuple) -> float:
        """Return the value of a basis swap on 100."""
        _, side, spread, start, end, *legs = row
        days = [ql.DateParser.parseISO(day) for day in (start, end)]
        indices = {
            "EUR3M": (ql.Euribor3M(self.basis), 3),
            "EUR6M": (ql.Euribor6M(self.forward), 6),
            "-": (ql.Estr(self.discount), 12),
        }
        found = []
        for curve, added in ((legs[1], spread), (legs[3], 0.0)):
            index, months = indices[curve]
            make = ql.OvernightLeg if curve == "-" else ql.IborLeg
            terms = [100.0], schedule(*days, months), index, ql.Actual360()
            found.append(make(*terms, spreads=[added]))
        own, other = found
        swap = ql.Swap(own, other) if side == "payer" else ql.Swap(other, own)
        swap.setPricingEngine(ql.DiscountingSwapEngine(self.discount))
        return swap.NPV()


def tables() -> str:
    """Return all tables."""
    found = []
    for level in LEVELS:
        peer, market = BasisPeer(level), json.dumps(document(level))
        lines = ["curve  time  discount"]
        lines += [f"EUR3M  {t:g}  {peer.basis.discount(t):.12f}" for t in TIMES]
        own = {"script": "quantlib_basis_tables"}
        source = "PiecewiseLinearZero of a deposit and IborIborBasisSwapRateHelper"
        found.append(
            table(f"A curve of basis swaps, {level}", source, "1e-11", market, lines, **own)
        )
        lines = ["  ".join((*COLUMNS, "value"))]
        lines += ["  ".join((*map(str, row), f"{peer.value(row):.10f}")) for row in ROWS]
        source = "DiscountingSwapEngine, on a notional of 100"
        found.append(table(f"Basis swaps, {level}", source, "1e-9", market, lines, **own))
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(tables())
