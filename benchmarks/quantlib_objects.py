"""QuantLib's side: contracts, engines, and Greeks by bumps if its engines give none."""

import itertools
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np
import QuantLib as ql

from pricing.market import Market
from pricing.models import Heston

OPTION = {"call": ql.Option.Call, "put": ql.Option.Put}
KIND = {
    "down-and-out": ql.Barrier.DownOut,
    "up-and-out": ql.Barrier.UpOut,
    "down-and-in": ql.Barrier.DownIn,
    "up-and-in": ql.Barrier.UpIn,
}
MEASURES = ("value", "delta", "gamma", "vega")
ORDER = ("long_run_variance", "mean_reversion", "vol_of_vol", "correlation", "initial_variance")
SPREAD = 0.05  # half the width, in strike, of the call spread that approximates a digital
DAY_COUNT, CALENDAR = ql.Actual365Fixed(), ql.NullCalendar()

Figures = dict[str, np.ndarray]
Portfolio = Sequence[Sequence[tuple[ql.Instrument, float]]]  # by trade: instruments and weights


class Flat:
    """A flat Black-Scholes market whose spot and vol are quotes."""

    def __init__(self, spot: float, rate: float, dividend_yield: float, vol: float):
        self.asof = ql.Date(5, 7, 2002)
        ql.Settings.instance().evaluationDate = self.asof
        self.spot, self.vol = ql.SimpleQuote(spot), ql.SimpleQuote(vol)
        self.base, self._nudges = spot, itertools.cycle((0.0, 1e-9))
        constant = ql.BlackConstantVol(self.asof, CALENDAR, ql.QuoteHandle(self.vol), DAY_COUNT)
        self.process = ql.BlackScholesMertonProcess(
            ql.QuoteHandle(self.spot),
            _flat_curve(self.asof, dividend_yield),
            _flat_curve(self.asof, rate),
            ql.BlackVolTermStructureHandle(constant),
        )

    def europeans(self, strikes, days, options) -> list[ql.EuropeanOption]:
        engine = ql.AnalyticEuropeanEngine(self.process)
        built = [
            ql.EuropeanOption(ql.PlainVanillaPayoff(OPTION[option], strike), self._on(day))
            for strike, day, option in zip(strikes, days, options, strict=True)
        ]
        return _with_engine(built, engine)

    def barriers(self, strikes, days, options, barriers, kinds, rebates) -> list[ql.BarrierOption]:
        engine = ql.AnalyticBarrierEngine(self.process)
        columns = zip(strikes, days, options, barriers, kinds, rebates, strict=True)
        built = [
            ql.BarrierOption(
                *(KIND[kind], barrier, rebate),
                ql.PlainVanillaPayoff(OPTION[option], strike),
                self._on(day),
            )
            for strike, day, option, barrier, kind, rebate in columns
        ]
        return _with_engine(built, engine)

    def analytic(self, options: Sequence[ql.EuropeanOption]) -> Figures:
        """Return the engine's own figures, after a negligible move of the spot."""
        self.spot.setValue(self.base + next(self._nudges))
        rows = [(o.NPV(), o.delta(), o.gamma(), o.vega()) for o in options]
        return dict(zip(MEASURES, np.array(rows).T, strict=True))

    def values(self, options: Sequence[ql.Instrument]) -> Figures:
        """Return one price per contract, after such a move."""
        self.spot.setValue(self.base + next(self._nudges))
        return {"value": _prices(options)}

    def bumped(self, options: Sequence[ql.Instrument]) -> Figures:
        """Compute five prices per contract: spot -/+ 0.01 %, vol -/+ 1e-4, base."""
        vol = self.vol.value()
        move_vol = lambda shift: self.vol.setValue(vol + shift)
        return _by_bumps(lambda: _prices(options), self.spot, move_vol)

    def _on(self, day: int) -> ql.EuropeanExercise:
        return ql.EuropeanExercise(self.asof + int(day))


class HestonMarket:
    """QuantLib's Heston model, with settable parameters, on a market of one curve and one underlying."""

    def __init__(self, market: Market, name: str, model: Heston):
        self.asof = _date(market.asof)
        ql.Settings.instance().evaluationDate = self.asof
        equity = market.equities[name]
        curve = market.curves[equity.curve]
        dates = [self.asof + round(365 * float(t)) for t in curve.times]
        rates = list(map(float, curve.zero_rates))
        zero = ql.ZeroCurve(dates, rates, DAY_COUNT, CALENDAR, ql.Linear(), ql.Continuous)
        self.rate = ql.YieldTermStructureHandle(zero)
        self.dividend = _flat_curve(self.asof, float(equity.dividend_yield))
        self.spot, self.surface = ql.SimpleQuote(float(equity.spot)), equity.surface
        self.parameters = np.array([float(getattr(model, name)) for name in ORDER])
        theta, kappa, xi, rho, v0 = map(float, self.parameters)
        process = ql.HestonProcess(
            self.rate, self.dividend, ql.QuoteHandle(self.spot), v0, kappa, theta, xi, rho
        )
        self.model = ql.HestonModel(process)

    def set(self, parameters: np.ndarray) -> None:
        self.model.setParams(ql.Array(list(map(float, parameters))))

    def terminal(self, trades: Sequence[Any], engine: ql.PricingEngine) -> Portfolio:
        """Return Europeans, and digitals as call (put) spreads: cash = -side dV/dK, asset = side V + K cash."""

        def vanilla(trade, strike):
            payoff = ql.PlainVanillaPayoff(OPTION[trade.option], strike)
            option = ql.VanillaOption(payoff, ql.EuropeanExercise(_date(trade.expiry)))
            return _with_engine([option], engine)[0]

        def parts(trade):
            if trade.type != "digital":
                return [(vanilla(trade, trade.strike), 1.0)]
            side = 1.0 if trade.option == "call" else -1.0
            units = trade.amount * (trade.strike if trade.payout == "asset" else 1.0)
            weight = side * units / (2.0 * SPREAD)
            spread = [
                (vanilla(trade, trade.strike - SPREAD), weight),
                (vanilla(trade, trade.strike + SPREAD), -weight),
            ]
            if trade.payout == "cash":
                return spread
            return [(vanilla(trade, trade.strike), side * trade.amount), *spread]

        return [parts(trade) for trade in trades]

    def barriers(self, trades: Sequence[Any], grid: tuple[int, int, int]) -> Portfolio:
        """Return barriers on a grid of (steps, spots, variances)."""
        engine = ql.FdHestonBarrierEngine(self.model, *grid)
        built = [
            ql.BarrierOption(
                *(KIND[trade.barrier_type], trade.barrier, trade.rebate),
                ql.PlainVanillaPayoff(OPTION[trade.option], trade.strike),
                ql.EuropeanExercise(_date(trade.expiry)),
            )
            for trade in trades
        ]
        return [[(option, 1.0)] for option in _with_engine(built, engine)]

    def values(self, portfolio: Portfolio) -> Figures:
        """Return prices only."""
        self._forget()
        return {"value": _values(portfolio)}

    def by_bumps(self, portfolio: Portfolio, direction: np.ndarray) -> Figures:
        """Compute five prices per contract; vega is along a direction of the parameters, per 1.00."""

        def move(shift: float) -> None:
            self.set(self.parameters + shift * direction)

        return _by_bumps(lambda: _values(portfolio), self.spot, move)

    def by_grid(self, portfolio: Portfolio, direction: np.ndarray, bump: float = 1e-4) -> Figures:
        """Compute two prices per contract: Delta and Gamma from the grid, vega by a one-sided bump."""
        self._forget()
        value = _values(portfolio)
        delta = np.array([option.delta() for ((option, _),) in portfolio])
        gamma = np.array([option.gamma() for ((option, _),) in portfolio])
        self.set(self.parameters + bump * direction)
        vega = (_values(portfolio) - value) / bump
        self.set(self.parameters)
        return {"value": value, "delta": delta, "gamma": gamma, "vega": vega}

    def calibration(self) -> Callable[[], dict[str, float]]:
        """Return a calibration from the given parameters, for repeated calls; its objects are built here."""
        engine = ql.AnalyticHestonEngine(self.model, 64)
        helpers = []
        for i, expiry in enumerate(self.surface.expiries):
            for j, strike in enumerate(self.surface.strikes):
                if np.isnan(self.surface.vols[i, j]):
                    continue
                helper = ql.HestonModelHelper(
                    ql.Period(round(365 * float(expiry)), ql.Days),
                    *(CALENDAR, self.spot.value(), float(strike)),
                    ql.QuoteHandle(ql.SimpleQuote(float(self.surface.vols[i, j]))),
                    *(self.rate, self.dividend, ql.BlackCalibrationHelper.ImpliedVolError),
                )
                helper.setPricingEngine(engine)
                helpers.append(helper)

        def calibrate() -> dict[str, float]:
            self.set(self.parameters)
            method = ql.LevenbergMarquardt(1e-8, 1e-8, 1e-8)
            self.model.calibrate(helpers, method, ql.EndCriteria(400, 40, 1e-8, 1e-8, 1e-8))
            return dict(zip(ORDER, self.model.params(), strict=True))

        return calibrate

    def _forget(self) -> None:
        """Make every instrument recompute its price."""
        self.set(self.parameters)


def _by_bumps(
    values: Callable[[], np.ndarray], spot: ql.SimpleQuote, move_vol: Callable[[float], None]
) -> Figures:
    base, vol_bump = spot.value(), 1e-4
    bump = 1e-4 * base

    def at(level: float) -> np.ndarray:
        spot.setValue(level)
        return values()

    down, up, value = at(base - bump), at(base + bump), at(base)
    move_vol(-vol_bump)
    lower = values()
    move_vol(vol_bump)
    vega = (values() - lower) / (2.0 * vol_bump)
    move_vol(0.0)
    delta, gamma = (up - down) / (2.0 * bump), (up - 2.0 * value + down) / bump**2
    return {"value": value, "delta": delta, "gamma": gamma, "vega": vega}


def _prices(options: Sequence[ql.Instrument]) -> np.ndarray:
    return np.array([option.NPV() for option in options])


def _values(portfolio: Portfolio) -> np.ndarray:
    return np.array([sum(weight * part.NPV() for part, weight in parts) for parts in portfolio])


def _with_engine(instruments: list, engine: ql.PricingEngine) -> list:
    for instrument in instruments:
        instrument.setPricingEngine(engine)
    return instruments


def _flat_curve(asof: ql.Date, rate: float) -> ql.YieldTermStructureHandle:
    return ql.YieldTermStructureHandle(ql.FlatForward(asof, rate, DAY_COUNT))


def _date(day: date) -> ql.Date:
    return ql.Date(day.day, day.month, day.year)
