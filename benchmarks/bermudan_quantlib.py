"""QuantLib's side of `bermudan`."""

from collections.abc import Callable

import numpy as np
import QuantLib as ql

from .bermudan_contract import (
    BUMP,
    EXERCISES,
    MEAN_REVERSION,
    NOTIONAL,
    PAYMENTS,
    RATE,
    STRIKE,
    VOL,
)


class Peer:
    """QuantLib's Bermudan swaption under Hull-White, on a curve that is relinked for each bump."""

    def __init__(self, engine: Callable[[ql.HullWhite], ql.PricingEngine], days: np.ndarray):
        self.today, self.days = ql.Date(15, 2, 2002), days
        ql.Settings.instance().evaluationDate = self.today
        self.curve = ql.RelinkableYieldTermStructureHandle()
        self.link(np.full(self.days.size, RATE))
        self.swaption = self._contract()
        self.swaption.setPricingEngine(engine(ql.HullWhite(self.curve, MEAN_REVERSION, VOL)))

    def _day(self, year: int) -> ql.Date:
        return self.today + 365 * int(year)

    def _contract(self) -> ql.Swaption:
        none, count = ql.NullCalendar(), ql.Actual365Fixed()
        year = ql.Period(365, ql.Days)
        index = ql.IborIndex(
            "year", year, 0, ql.EURCurrency(), none, ql.Unadjusted, False, count, self.curve
        )
        schedule = ql.Schedule([self._day(t) for t in (EXERCISES[0], *PAYMENTS)])
        swap = ql.VanillaSwap(
            ql.Swap.Payer, NOTIONAL, schedule, STRIKE, count, schedule, index, 0.0, count
        )
        return ql.Swaption(swap, ql.BermudanExercise([self._day(t) for t in EXERCISES]))

    def link(self, zero_rates: np.ndarray) -> None:
        """Link a curve like ours: flat before the first pillar, linear in the zero rate in between."""
        dates = [self.today, *(self.today + int(days) for days in self.days)]
        rates = [zero_rates[0], *zero_rates.tolist()]
        self.curve.linkTo(ql.ZeroCurve(dates, rates, ql.Actual365Fixed(), ql.NullCalendar()))

    def price(self, bumped: int | None = None) -> float:
        """Return the value, with one pillar bumped."""
        bump = np.zeros(self.days.size)
        if bumped is not None:
            bump[bumped] = BUMP
        self.link(RATE + bump)
        return self.swaption.NPV()

    def prices(self, bumps: int) -> np.ndarray:
        """Return the base value, and the values with each of the first pillars bumped."""
        return np.array([self.price(), *(self.price(k) for k in range(bumps))])


def peers(days: np.ndarray) -> dict[str, Peer]:
    def tree(steps):
        return Peer(lambda model: ql.TreeSwaptionEngine(model, steps), days)

    def grid(times, rates):
        return Peer(lambda model: ql.FdHullWhiteSwaptionEngine(model, times, rates), days)

    return {
        "TreeSwaptionEngine(50)": tree(50),
        "TreeSwaptionEngine(200)": tree(200),
        "FdHullWhiteSwaptionEngine(100, 100)": grid(100, 100),
        "FdHullWhiteSwaptionEngine(400, 400)": grid(400, 400),
    }
