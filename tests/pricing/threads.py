"""Rows of public threads: their ids, models, a market and a book of one row, and QuantLib beside ours."""

import json
import re
from datetime import date

import jax
import numpy as np
import pytest
import QuantLib as ql
from scipy.stats import norm

from pricing import (
    BlackScholes,
    Book,
    Dividends,
    HullWhite,
    Market,
    VolSurface,
    ZeroCurve,
    price,
    risk,
)
from pricing.market import leg
from pricing.models.surface_models import black_scholes

_HOMES = {
    "QuantLib": "lballabio/QuantLib",
    "SWIG": "lballabio/QuantLib-SWIG",
    "quantlib-old": "lballabio/quantlib-old",
    "tff": "google/tf-quant-finance",
    "FinancePy": "domokane/FinancePy",
    "Strata": "OpenGamma/Strata",
    "Engine": "OpenSourceRisk/Engine",
    "Lean": "QuantConnect/Lean",
    "QLNet": "amaggiulli/QLNet",
    "rquantlib": "eddelbuettel/rquantlib",
    "MibianLib": "yassinemaaroufi/MibianLib",
    "pfhedge": "pfnet-research/pfhedge",
    "rateslib": "attack68/rateslib",
    "OptionStratLib": "joaquinbejar/OptionStratLib",
    "volsurf": "volsurf-rs/volsurf",
    "finmath": "finmath/finmath-lib",
    "PyFENG": "quants-net/PyFENG",
    "Vibe": "HKUDS/Vibe-Trading",
    "quantraserver": "joseprupi/quantraserver",
    "stochastic-rs": "rust-dd/stochastic-rs",
}
FLAT, KEY = BlackScholes(100.0, 0.05, 0.2), jax.random.key(0)
HESTON = (0.04, 2.0, 0.04, 0.5, -0.7)
EARLY = [("put", 0.0, 0.0), ("put", 0.0, 0.05), ("call", 0.05, -0.02), ("put", -0.03, -0.01)]
EARLY += [("call", 0.0, 0.05), ("put", 0.0, -0.05)]
HESTONS = [(100.0, 365 * years, 0.0, 0.04, 0.1, 0.04, 2.0, 0.95) for years in (1, 5, 20)] + [
    (100.0, 1, 0.03, 0.04, 2.0, 0.04, 3.0, -0.9),
    (130.0, 1, 0.03, *HESTON),
]
SMILE = VolSurface([0.5, 1.0], [80.0, 100.0, 120.0], [[0.25, 0.2, 0.18], [0.24, 0.2, 0.19]])
FALLING = VolSurface([0.5, 1.0], [80.0, 100.0, 120.0], [[0.4] * 3, [0.2] * 3])
FORWARD_VOL = 0.2 - 0.01 * 5.0 * np.expm1(0.03)  # of the file's equity at its forward for a year
PAID = Dividends([90 / 365, 270 / 365], [3.0, 3.0])
CURVE = ZeroCurve([1.0, 5.0, 30.0], [0.03, 0.032, 0.036])
RATES = HullWhite(CURVE, 0.03, 0.01)
_ENDS = np.arange(0.5, 3.1, 0.5)
PERIODS = _ENDS[:-1], _ENDS[1:], [0.5] * 5
BONDS = np.exp(-_ENDS * np.interp(_ENDS, [1.0, 5.0], [0.03, 0.032]))
LEG = leg(date(2025, 1, 2), date(2026, 1, 2), date(2031, 1, 2), 12)


def named(rows):
    """Parameters whose ids name each thread by owner, repository and number."""
    whole = lambda threads: re.sub(
        r"(?<!/)\b[\w-]+(?=#)", lambda found: _HOMES.get(found[0], found[0]), threads
    )
    return [pytest.param(*rest, id=f"{whole(row)}: {asked}") for row, asked, *rest in rows]


def value(product, model=FLAT, **settings):
    return price(product, model, **settings).value


def black(spot, strike, t, rate, vol, dividend_yield=0.0, side=1):
    forward, std = spot * np.exp((rate - dividend_yield) * t), vol * np.sqrt(t)
    d = np.log(forward / strike) / std + 0.5 * std
    paid = forward * norm.cdf(side * d) - strike * norm.cdf(side * (d - std))
    return side * np.exp(-rate * t) * paid


_TODAY = ql.Date(2, 1, 2025)


def _curve(rate):
    return ql.YieldTermStructureHandle(ql.FlatForward(_TODAY, rate, ql.Actual365Fixed()))


def _peer(option, engine):
    ql.Settings.instance().evaluationDate = _TODAY
    option.setPricingEngine(engine)
    return option.NPV()


def _process(spot, rate, vol, dividend_yield=0.0):
    vols = ql.BlackConstantVol(_TODAY, ql.NullCalendar(), vol, ql.Actual365Fixed())
    quote = ql.QuoteHandle(ql.SimpleQuote(spot))
    handle = ql.BlackVolTermStructureHandle(vols)
    return ql.BlackScholesMertonProcess(quote, _curve(dividend_yield), _curve(rate), handle)


def _payoff(strike, option):
    return ql.PlainVanillaPayoff(
        ql.Option.Call if option == "call" else ql.Option.Put, float(strike)
    )


def peers_barrier(strike, barrier, kind, option, rebate, rate, vol, dividend_yield=0.0):
    """QuantLib's value for a spot of 100 and a year."""
    words = {"down-and-out": "DownOut", "down-and-in": "DownIn"}
    words |= {"up-and-out": "UpOut", "up-and-in": "UpIn"}
    exercise = ql.EuropeanExercise(_TODAY + 365)
    kind = getattr(ql.Barrier, words[kind])
    made = ql.BarrierOption(kind, barrier, rebate, _payoff(strike, option), exercise)
    return _peer(made, ql.AnalyticBarrierEngine(_process(100.0, rate, vol, dividend_yield)))


def peers_american(strike, option, rate, dividend_yield, vol=0.2):
    made = ql.VanillaOption(_payoff(strike, option), ql.AmericanExercise(_TODAY, _TODAY + 365))
    engine = ql.QdFpAmericanEngine(
        _process(100.0, rate, vol, dividend_yield),
        ql.QdFpAmericanEngine.highPrecisionScheme(),
    )
    return _peer(made, engine)


def peers_heston(strike, days, rate, v0, kappa, theta, xi, rho):
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    process = ql.HestonProcess(_curve(rate), _curve(0.0), spot, v0, kappa, theta, xi, rho)
    made = ql.VanillaOption(_payoff(strike, "call"), ql.EuropeanExercise(_TODAY + days))
    return _peer(made, ql.AnalyticHestonEngine(ql.HestonModel(process), 1e-10, 100_000))


def peers_escrowed(option):
    made = ql.VanillaOption(_payoff(100.0, option), ql.EuropeanExercise(_TODAY + 365))
    paid = ql.DividendVector([_TODAY + 90, _TODAY + 270], [3.0, 3.0])
    return _peer(made, ql.AnalyticDividendEuropeanEngine(_process(100.0, 0.05, 0.3), paid))


_ROW = {"id": "A", "type": "european", "underlying": "X", "option": "call", "strike": 100.0}
_ROW |= {"expiry": "2026-01-02"}
_FILE = {
    "asof": "2025-01-02",
    "currency": "EUR",
    "curves": {"EUR": {"zero_rate": 0.03}, "USD": {"zero_rate": 0.045}},
    "equities": {
        "X": {
            "curve": "EUR",
            "spot": 100.0,
            "implied_vols": {
                "days": [182, 365],
                "strikes": [80, 100, 120],
                "vols_by_expiry": [[0.25, 0.2, 0.18], [0.24, 0.2, 0.19]],
            },
        }
    },
    "fx": {
        "EURUSD": {
            "spot": 1.08,
            "vols": {
                "days": [91, 365],
                "at_the_money": [0.08, 0.09],
                "risk_reversals_25": [-0.006, -0.01],
                "butterflies_25": [0.002, 0.003],
            },
        }
    },
}


def errors_of_row(**cells):
    """Read a book of one row, and a market that serves it; raise its errors."""
    market = Market.from_text(json.dumps(_FILE))
    book = Book.from_text(json.dumps([_ROW | cells]), "book.json")
    found = *book.errors, *book.check(market)[1]
    raise ValueError("; ".join(map(str, found)))


def checked_row(**cells):
    """Return the one row of a book, as the market of `_FILE` has it."""
    market = Market.from_text(json.dumps(_FILE))
    (row,) = Book.from_text(json.dumps([_ROW | cells]), "book.json").checked(market).rows
    return row


def value_of_row(**cells):
    """Value a book of one row in the market of `_FILE`, whose pair has no smile."""
    vols = {"days": [91, 365], "at_the_money": [0.09] * 2}
    vols |= {"risk_reversals_25": [0.0] * 2, "butterflies_25": [0.0] * 2}
    parts = {"fx": {"EURUSD": {"spot": 1.08, "vols": vols}}, "correlations": {"X|EURUSD": -0.3}}
    market = Market.from_text(json.dumps(_FILE | parts))
    book = Book.from_text(json.dumps([_ROW | cells]), "book.json")
    (found,) = risk(book, market, black_scholes, greeks=False).trades
    return found.figures.value


def errors_of_market(**parts):
    raise ValueError("; ".join(map(str, Market.from_text(json.dumps(_FILE | parts)).errors)))
