"""Print the tables of swaptions with an exercise lag, and exercised between coupons, valued by QuantLib.

    python -m benchmarks.quantlib_exercise_tables

The engines are JamshidianSwaptionEngine and FdHullWhiteSwaptionEngine, on a flat curve; times are whole days
over 365. A swap entered within a period starts with the next whole one.
"""

import itertools
import sys

import QuantLib as ql

_TODAY = ql.Date(10, 3, 2026)
_YEAR = 365  # days
_NOTIONAL = 100.0
_RATE, _REVERSION, _VOL = 0.03, 0.05, 0.01
_STARTS = [_YEAR * year for year in range(1, 5)]
_LAGS = (5, 150)
_STRIKES = (0.01, 0.03, 0.05)
_SIDES = {"payer": ql.Swap.Payer, "receiver": ql.Swap.Receiver}
_CONSTANTS = (
    f'curve = {_RATE}, mean_reversion = {_REVERSION}, vol = {_VOL}, payment_dates = "2:5:4", '
    f'accruals = "1,1,1,1", notional = {_NOTIONAL:g}'
)


def value(side: str, strike: float, lag: int, *, is_bermudan: bool) -> float:
    """Return the value of the right to enter an annual four-year swap, or the rest of it.

    Args:
        side: The word "payer" or "receiver".
        strike: The fixed rate.
        lag: The days from each exercise to the start of its swap.
        is_bermudan: Whether there is an exercise date for each period, or only for the first.
    """
    ql.Settings.instance().evaluationDate = _TODAY
    count, calendar = ql.Actual365Fixed(), ql.NullCalendar()
    curve = ql.YieldTermStructureHandle(ql.FlatForward(_TODAY, _RATE, count))
    rules = calendar, ql.Unadjusted, False, count, curve
    index = ql.IborIndex("rate", ql.Period(_YEAR, ql.Days), 0, ql.EURCurrency(), *rules)
    legs = ql.Schedule([_TODAY + days for days in [*_STARTS, 5 * _YEAR]])
    terms = legs, strike, count, legs, index, 0.0, count
    swap = ql.VanillaSwap(_SIDES[side], _NOTIONAL, *terms)
    model = ql.HullWhite(curve, _REVERSION, _VOL)
    days = [_TODAY + start - lag for start in _STARTS]
    if is_bermudan:
        right = ql.Swaption(swap, ql.BermudanExercise(days))
        right.setPricingEngine(ql.FdHullWhiteSwaptionEngine(model, 800, 1600))
    else:
        right = ql.Swaption(swap, ql.EuropeanExercise(days[0]))
        right.setPricingEngine(ql.JamshidianSwaptionEngine(model))
    return right.NPV()


def tables() -> str:
    """Return both tables."""
    cases = list(itertools.product(_SIDES, _STRIKES, _LAGS))
    one, many = (
        [
            f"{side}  {strike:g}  {_dates(lag, is_bermudan)}  "
            f"{value(side, strike, lag, is_bermudan=is_bermudan):.{digits}f}"
            for side, strike, lag in cases
        ]
        for is_bermudan, digits in ((False, 10), (True, 6))
    )
    whose = 'The script is benchmarks/quantlib_exercise_tables.py"""'
    european = (
        '[[table]]\nname = "Swaptions with an exercise lag"\n'
        f'source = """QuantLib 1.44\'s JamshidianSwaptionEngine. {whose}\n'
        'kind = "computed"\ntolerance = 5e-9\nbecause = "The engine finds its critical rate to 1e-8, which '
        'moves values in the money by 2e-9; ours are those of a numerical integral to 1e-13."\n'
        'product = "Swaption"\nmodel = "HullWhite"\n'
        f"constants = {{ {_CONSTANTS}, start = 1 }}\n"
        'rows = """\nside  strike  exercise_date  value\n' + "\n".join(one) + '\n"""\n'
    )
    bermudan = (
        '[[table]]\nname = "Bermudan swaptions with an exercise lag, or exercised between coupons"\n'
        f'source = """QuantLib 1.44\'s FdHullWhiteSwaptionEngine. {whose}\n'
        'kind = "computed"\nbecause = "The engine is one of finite differences: '
        'from 400 to 800 steps its values move by up to 1e-6."\n'
        'tolerance = 2e-6\nproduct = "BermudanSwaption"\nmodel = "HullWhite"\n'
        f'constants = {{ {_CONSTANTS}, starts = "1,2,3,4" }}\n'
        'rows = """\nside  strike  exercise_dates  value\n' + "\n".join(many) + '\n"""\n'
    )
    return f"{european}\n{bermudan}"


def _dates(lag: int, is_bermudan: bool) -> str:
    days = _STARTS if is_bermudan else _STARTS[:1]
    return ",".join(f"{(day - lag) / _YEAR:.15g}" for day in days)


if __name__ == "__main__":
    sys.stdout.write(tables())
