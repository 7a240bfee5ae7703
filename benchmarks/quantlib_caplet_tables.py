"""Print the tables of caplet vols stripped from quotes of caps, and of caps on them, by QuantLib.

    python -m benchmarks.quantlib_caplet_tables

The vols are OptionletStripper1's, with a quote at every period, so that quotes need no interpolation; caps are
valued by BlackCapFloorEngine and BachelierCapFloorEngine on them. Rates are fixed on the first day of their
periods. The curves are those of `benchmarks.quantlib_rates_tables`.
"""

import itertools
import json
import sys
from typing import Any

import QuantLib as ql

from .quantlib_rates_tables import Peer, document, schedule, table

MATURITIES = ["1Y", "18M", "2Y", "30M", "3Y", "42M", "4Y", "54M", "5Y"]
STARTS, ENDS = ("2026-09-10", "2027-03-10"), ("2028-03-10", "2031-03-10")
MARKETS = {
    "lognormal": ("rising", "lognormal", 0.0, (0.01, 0.02, 0.03, 0.045), (0.32, -4.0, 60.0)),
    "shifted lognormal": (
        *("falling to below 0", "lognormal", 0.03),
        *((-0.01, 0.0, 0.01, 0.02), (0.21, -1.5, 40.0)),
    ),
    "normal": (
        *("falling to below 0", "normal", 0.0),
        *((-0.01, 0.0, 0.01, 0.02), (0.0068, 0.02, 3.0)),
    ),
}
"""Name -> the level of the curves, the kind of vols, the shift, strikes; level, slope and bend of the vols."""

COLUMNS = "type", "strike", "start", "maturity", "frequency", "forward_curve"


def flat_vols(strikes: tuple[float, ...], smile: tuple[float, float, float]) -> list[list[float]]:
    """Return the quoted vols, which rise up to the third maturity and then fall."""
    level, slope, bend = smile
    terms = [1.0 + 0.05 * min(place, 2) - 0.02 * max(place - 2, 0) for place in range(9)]
    of_strike = [level + slope * x + bend * x * x for x in (k - 0.015 for k in strikes)]
    return [[round(term * vol, 6) for vol in of_strike] for term in terms]


def market(name: str) -> dict[str, Any]:
    """Return the market file of one kind of vols."""
    level, kind, shift, strikes, smile = MARKETS[name]
    own = {
        "type": kind,
        "frequency": "semiannual",
        "lag": 0,
        "maturities": MATURITIES,
        "strikes": strikes,
        "vols_by_maturity": flat_vols(strikes, smile),
    }
    return document(level) | {"cap_vols": {"EUR6M": own | ({"shift": shift} if shift else {})}}


class CapPeer:
    """The stripped vols of one kind in QuantLib's objects."""

    def __init__(self, name: str):
        level, kind, shift, strikes, smile = MARKETS[name]
        self.peer, self.strikes, self.shift = Peer(level), strikes, shift
        self.is_normal, self.count = kind == "normal", ql.Actual365Fixed()
        rules = ql.TARGET(), ql.ModifiedFollowing, False, ql.Actual360()
        days = ql.Period(6, ql.Months), 0, ql.EURCurrency()
        self.index = ql.IborIndex("rate", *days, *rules, self.peer.forward)
        vols = flat_vols(strikes, smile)
        matrix = ql.Matrix(len(vols), len(strikes))
        for row, column in itertools.product(range(len(vols)), range(len(strikes))):
            matrix[row][column] = vols[row][column]
        tenors = ql.PeriodVector([ql.Period(tenor) for tenor in MATURITIES])
        place = 0, ql.TARGET(), ql.ModifiedFollowing
        surface = ql.CapFloorTermVolSurface(*place, tenors, list(strikes), matrix, self.count)
        law = ql.Normal if self.is_normal else ql.ShiftedLognormal
        search = ql.nullDouble(), 1e-15, 1000
        discount = self.peer.discount
        self.stripper = ql.OptionletStripper1(surface, self.index, *search, discount, law, shift)
        self.vols = ql.StrippedOptionletAdapter(self.stripper)
        self.vols.enableExtrapolation()

    def caplets(self) -> list[tuple[float, float, float]]:
        """Return the fixing, the strike and the vol of each caplet."""
        times = self.stripper.optionletFixingTimes()
        return [
            (time, strike, vol)
            for place, time in enumerate(times)
            for strike, vol in zip(
                self.strikes, self.stripper.optionletVolatilities(place), strict=True
            )
        ]

    def value(self, row: tuple) -> float:
        """Return the value of a cap or a floor on a notional of 100."""
        option, strike, start, end, *_ = row
        days = schedule(*map(ql.DateParser.parseISO, (start, end)), 6)
        leg = ql.IborLeg([100.0], days, self.index, ql.Actual360(), fixingDays=[0])
        found = (ql.Cap if option == "cap" else ql.Floor)(leg, [strike])
        handle = ql.OptionletVolatilityStructureHandle(self.vols)
        if self.is_normal:
            engine = ql.BachelierCapFloorEngine(self.peer.discount, handle)
        else:
            engine = ql.BlackCapFloorEngine(self.peer.discount, handle, self.shift)
        found.setPricingEngine(engine)
        return found.NPV()


def tables() -> str:
    """Return all tables."""
    found = []
    for name, (_, kind, _, strikes, _) in MARKETS.items():
        peer, text = CapPeer(name), json.dumps(market(name))
        lines = [f"EUR6M  {t:.10f}  {k:g}  {vol:.12f}" for t, k, vol in peer.caplets()]
        head = ["curve  time  strike  vol"]
        script = "quantlib_caplet_tables"
        because = "QuantLib's roots and its curves stop at an accuracy of 1e-12"
        source = "OptionletStripper1 of a quote at every period"
        words = f"Caplet vols, {name}", source, "1e-10", text, head + lines
        found.append(table(*words, script=script, because=because))
        between = 0.5 * (strikes[1] + strikes[2])
        some = ("cap", "floor"), (strikes[0], strikes[2], between), STARTS, ENDS
        rows = ((*row, "semiannual", "EUR6M") for row in itertools.product(*some))
        lines = ["  ".join((*map(str, row), f"{peer.value(row):.10f}")) for row in rows]
        engine = "BachelierCapFloorEngine" if kind == "normal" else "BlackCapFloorEngine"
        source = f"{engine} on the vols of OptionletStripper1, on a notional of 100"
        head = ["  ".join((*COLUMNS, "value"))]
        words = f"Caps and floors on quotes, {name}", source, "1e-9", text, head + lines
        found.append(table(*words, script=script, because=because))
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(tables())
