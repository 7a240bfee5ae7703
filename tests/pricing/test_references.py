"""Published values, each to what its source is known to."""

from pathlib import Path

import jax
import numpy as np
import pytest
import QuantLib as ql

from benchmarks import (
    quantlib_basis_tables,
    quantlib_cap_tables,
    quantlib_caplet_tables,
    quantlib_cms_tables,
    quantlib_exercise_tables,
    quantlib_rates_tables,
)
from benchmarks import quantlib_dividend_tables as script
from jaxtape.cli.check import Group
from pricing import Asian, BlackScholes, MonteCarlo, price
from pricing.sampling import Sobol
from tests import references
from tests.helpers import double

pytestmark = double
TABLES = Path(__file__).parents[2] / "pricing/validation/tables"
# tables whose programs take the longest, which the whole command has (tests/jaxtape/test_validate_command.py)
LATER = (
    "local volatility",
    "under Heston",
    "Bermudan",
    "Firth",
    "Levy",
    "fitted to",
)


@pytest.mark.costly
@pytest.mark.parametrize("name", references.GROUPS)
def test_published_values(name):
    group = references.GROUPS[name]
    quick = [
        known for known in group.checks() if not any(word in known.source.name for word in LATER)
    ]
    asked = Group(group.title, lambda: quick, group.find)
    faults = [(check, check.fault) for check in asked.results() if not check.holds]
    assert quick and not faults


@pytest.mark.parametrize(("fixings", "value"), references.levy)
def test_arithmetic_asian_puts(fixings, value):
    """Published by simulation, to 2e-3; QuantLib's simulation, with a standard error of 4e-4, is another."""
    dates = references.LEVY_LENGTH * np.arange(fixings) / (fixings - 1)
    put, model = Asian(dates=dates, **references.LEVY_PUT), BlackScholes(**references.LEVY_MODEL)
    found = price(put, model, MonteCarlo(2**14, sampler=Sobol()), key=jax.random.key(1))
    assert found.std_error <= 1e-5 * model.spot
    assert abs(found.value - value) <= 2e-3
    peer, error = quantlib_asian(dates)
    assert error <= 5e-4
    assert abs(found.value - peer) <= 3.0 * np.hypot(found.std_error, error)


def quantlib_asian(dates: np.ndarray) -> tuple[float, float]:
    """Value and standard error by QuantLib's Monte Carlo, on days of a year of 360."""
    today, count = ql.Date(1, 1, 2020), ql.Actual360()
    ql.Settings.instance().evaluationDate = today
    model = references.LEVY_MODEL
    spot = ql.QuoteHandle(ql.SimpleQuote(model["spot"]))
    curves = (
        ql.YieldTermStructureHandle(ql.FlatForward(today, model[name], count))
        for name in ("dividend_yield", "rate")
    )
    flat = ql.BlackConstantVol(today, ql.NullCalendar(), model["vol"], count)
    process = ql.BlackScholesMertonProcess(spot, *curves, ql.BlackVolTermStructureHandle(flat))
    days = [today + round(360.0 * date) for date in dates]
    payoff = ql.PlainVanillaPayoff(ql.Option.Put, references.LEVY_PUT["strike"])
    option = ql.DiscreteAveragingAsianOption(
        ql.Average.Arithmetic, 0.0, 0, days, payoff, ql.EuropeanExercise(days[-1])
    )
    option.setPricingEngine(
        ql.MCDiscreteArithmeticAPEngine(
            process, "pseudorandom", controlVariate=True, requiredSamples=60_000, seed=7
        )
    )
    return option.NPV(), option.errorEstimate()


def test_no_row_is_lost():
    counts = {
        ("averages", "Clewlow"): 2,  # by two methods
        ("averages", "Levy"): 2,
        ("averages", "best and the worst"): 39,
        ("exotics", "Lookbacks"): 49,
        ("exotics", "touches"): 104,
        ("exotics", "Forward starts"): 26,
        ("exotics", "average strikes"): 4,
        ("exotics", "Margrabe"): 39,
        ("barriers", "Haug"): 72,
        ("barriers", "BENCHOP"): 8,
        ("barriers", "fifty dates"): 6,
        ("barriers", "twelve dates"): 1,
        ("american", "American puts, the set"): 18,
        ("american", "Ju"): 60,
        ("american", "Offengenden"): 2,
        ("american", "BENCHOP"): 6,
        ("american", "Bermudan puts"): 6,
        ("rates", "payer"): 7,
        ("rates", "exercise lag"): 24,
        ("heston", "Heston"): 23,
        ("heston", "Bates"): 18,
        ("sabr", "Antonov"): 40,
        ("european", "European options"): 75,
        ("european", "BENCHOP"): 6,
        ("calibration", ""): 14,
    }
    found = {(g, w): len(references.of_table(references.GROUPS[g], w)) for g, w in counts}
    assert found == counts


def test_the_closed_form_with_dividends_is_what_its_script_prints():
    table = (TABLES / "european.toml").read_text(encoding="utf-8")
    assert script.european(script.Peer()).strip() in table


def test_curves_and_trades_on_them_are_what_their_script_prints():
    written = (TABLES / "curves.toml").read_text(encoding="utf-8")
    scripts = quantlib_rates_tables, quantlib_caplet_tables, quantlib_basis_tables
    assert "\n".join(script.tables() for script in scripts) == written


def test_tables_of_rates_are_what_their_scripts_print():
    written = (TABLES / "rates.toml").read_text(encoding="utf-8")
    assert quantlib_cap_tables.tables().strip() in written
    assert quantlib_cms_tables.tables().strip() in written
    assert quantlib_exercise_tables.tables().strip() in written
