"""A vol or a rate that a slip of the decimal point has moved is refused, wherever quotes are read."""

import json

import numpy as np
import pytest

from pricing import Market
from pricing.market.outliers import outlier
from tests.helpers import SAMPLES

STRIKES = [90.0, 95.0, 100.0, 105.0, 110.0]
VOLS = [[0.25, 0.24, 0.23, 0.225, 0.22], [0.24, 0.235, 0.23, 0.225, 0.22], 5 * [0.23]]
FX = {
    "days": [90, 365],
    "at_the_money": [0.08, 0.09],
    "risk_reversals_25": [-0.006, -0.01],
    "butterflies_25": [0.002, 0.003],
}
CAPS = {"frequency": "semiannual", "maturities": ["1Y", "2Y", "3Y"], "strikes": [0.02, 0.03]}
SWAPTIONS = {"expiries_years": [1, 2, 5], "tenors_years": [5]}


def _read(vols=(), fx=None, caps=None, swaptions=None, quotes=None) -> Market:
    """A market with the numbers that are given."""
    document: dict = {"asof": "2026-03-10", "currency": "EUR", "equities": {}}
    document["curves"] = {"EUR": {"zero_rate": 0.02}, "USD": {"zero_rate": 0.04}}
    if vols or quotes:
        surface = {"days": [100, 365, 730], "strikes": STRIKES, "vols_by_expiry": vols}
        of_options = {"option_quotes": quotes} if quotes else {"implied_vols": surface}
        document["equities"] = {"S": {"curve": "EUR", "spot": 100.0, **of_options}}
    if fx:
        document["fx"] = {"EURUSD": {"spot": 1.08, "vols": FX | fx}}
    if caps:
        document["cap_vols"] = {"EUR": CAPS | {"vols_by_maturity": caps}}
    if swaptions:
        document["swaption_vols"] = SWAPTIONS | {"vols_by_expiry": swaptions}
    return Market.from_text(json.dumps(document))


def _with(number: float, row: int, column: int) -> list:
    """The vols of the surface with one of them replaced."""
    return [
        [number if (i, j) == (row, column) else vol for j, vol in enumerate(own)]
        for i, own in enumerate(VOLS)
    ]


SURFACE = "equities.S.implied_vols.vols_by_expiry"


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"vols": _with(2.3, 0, 2)}, f"{SURFACE}.0.2", "2.3 is far from 0.232, the median"),
        ({"vols": _with(0.022, 1, 4)}, f"{SURFACE}.1.4", "0.022 is far from 0.22"),
        ({"vols": [*VOLS[:2], [10 * x for x in VOLS[1]]]}, f"{SURFACE}.2.0", "2.4 is far from 0.2"),
        ({"vols": [*VOLS[:2], [2.3, *5 * [None]][:5]]}, f"{SURFACE}.2.0", "2.3 is far from 0.23"),
        ({"fx": {"at_the_money": [0.08, 0.9]}}, "fx.EURUSD.vols.at_the_money.0", "0.08 is far from 0.9"),
        ({"fx": {"butterflies_25": [0.2, 0.3]}}, "fx.EURUSD.vols.butterflies_25.0", "0.2 is larger"),
        ({"fx": {"risk_reversals_25": [-1, -1]}}, "fx.EURUSD.vols.risk_reversals_25.0", "-1 is larg"),
        ({"caps": [[0.3, 0.3], [3.0, 0.3], [0.3, 0.3]]}, "cap_vols.EUR.vols_by_maturity.1.0", "3 is"),
        ({"swaptions": [[0.3], [0.028], [0.25]]}, "swaption_vols.vols_by_expiry.1.0", "0.028 is far"),
        ({"swaptions": [[0.3], [2.8], [0.25]]}, "swaption_vols.vols_by_expiry.1.0", "2.8 is far"),
    ],
)  # fmt: skip
def test_a_slip_of_the_decimal_point_is_refused(given, field, message):
    (error, *_) = _read(**given).errors
    assert error.field == field
    assert message in error.message


def test_one_quote_of_a_list_is_left_out():
    quotes = [
        {"days": days, "strike": strike, "vol": vol}
        for days, own in zip((100, 365), _with(2.3, 0, 2)[:2], strict=True)
        for strike, vol in zip(STRIKES, own, strict=True)
    ]
    market = _read(quotes=quotes)
    assert [error.field for error in market.errors] == ["equities.S.option_quotes.2.vol"]
    found = np.asarray(market.equities["S"].surface.vols)
    np.testing.assert_allclose(found[0, :4], [0.25, 0.24, 0.225, 0.22])
    np.testing.assert_allclose(found[1, :5], VOLS[1])


@pytest.mark.parametrize("factor", [0.01, 0.1, 10.0, 100.0])
def test_each_vol_of_a_surface_is_found(factor):
    vols = 0.23 * np.exp(0.1 * np.random.default_rng(0).normal(size=(4, 6)))
    rows, columns = np.indices(vols.shape)
    assert outlier(rows, columns, vols) is None
    for place in range(vols.size):
        moved = vols.copy()
        moved.flat[place] *= factor
        found = outlier(rows, columns, moved)
        assert found is not None
        assert found.place == place


def test_the_order_of_quotes_and_gaps_do_not_matter():
    rows, columns = (x.ravel() for x in np.indices((3, 5)))
    vols = np.array(_with(2.3, 1, 0)).ravel()
    vols[[3, 7]] = np.nan
    order = np.random.default_rng(1).permutation(15)
    found = outlier(rows[order], columns[order], vols[order])
    assert found is not None
    assert order[found.place] == 5


def test_wings_and_short_expiries_are_taken():
    """A week on an index, and a share before its earnings."""
    strikes = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2]
    vols = [3.1, 2.5, 2.05, 1.65, 1.3, 0.98, 0.66, 0.33, 0.2, 0.11, 0.1, 0.14, 0.25]
    assert outlier(np.zeros(13), strikes, vols) is None
    assert outlier([0.003, 0.02, 0.04, 0.25, 1.0], np.zeros(5), [2.8, 1.6, 1.2, 0.8, 0.65]) is None
    assert outlier([1.0], [100.0], [0.2]) is None
    assert not Market.read(SAMPLES / "dax_2002-07-05.json").errors


CURVE = {
    "overnight_swaps": {
        "tenors": ["1W", "6M", "1Y", "5Y"],
        "rates": [0.0193, 0.0199, 0.0203, 0.0237],
    },
    "swaps": {"tenors": ["10Y", "20Y"], "rates": [0.026, 0.027]},
}
PILLARS = {"days": [180, 730, 3650]}


def _curve_errors(curve: dict) -> list[tuple[str, str]]:
    document = {"asof": "2026-03-10", "currency": "EUR", "equities": {}, "curves": {"EUR": curve}}
    errors = Market.from_text(json.dumps(document)).errors
    return [(error.field, error.message) for error in errors]


@pytest.mark.parametrize(
    ("curve", "field", "message"),
    [
        (PILLARS | {"zero_rates": [0.002, 0.12, 0.012]}, "zero_rates.1", "the rate 0.12 is far from 0.007,"),
        (CURVE | {"overnight_swaps": {"tenors": ["1Y"], "rates": [0.193]}}, "overnight_swaps.rates.0", "0.193"),
        (CURVE | {"swaps": {"tenors": ["10Y"], "rates": [0.26]}}, "swaps.rates.0", "0.26 is far from 0.022"),
        ({"futures": {"starts": ["2026-06-17", "2026-09-16", "2026-12-16"], "prices": [98.0, 0.98, 97.9]}},
         "futures.prices.1", "the rate 0.9902 is far from 0.0205"),
        ({"zero_rate": -0.4}, "zero_rate", "-0.4 is not a number >= -0.2"),
        (PILLARS | {"zero_rates": [-0.5, -0.4, -0.2]}, "zero_rates.0", "-0.5 is not a number >= -0.2"),
    ],
)  # fmt: skip
def test_rates_of_another_unit_are_refused(curve, field, message):
    ((where, said), *_) = _curve_errors(curve)
    assert where == f"curves.EUR.{field}"
    assert message in said


@pytest.mark.parametrize("rates", [[0.5, 0.4, 0.25], [0.09, 0.02, 0.02], [-0.01, -0.004, 0.01]])
def test_steep_curves_are_taken(rates):
    assert not _curve_errors(PILLARS | {"zero_rates": rates})
