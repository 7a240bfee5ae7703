"""Quotes that move: each within the bounds of a market's file, and all of them or none."""

import json

import pytest

from pricing import Market
from pricing.market.moves import moved
from tests.helpers import SAMPLES

SAMPLE = Market.read(SAMPLES / "dax_2002-07-05.json")
QUOTED = {
    "asof": "2024-01-05",
    "currency": "EUR",
    "curves": {
        "EUR": {
            "deposits": {"tenors": ["3M"], "rates": [0.0392]},
            "futures": {"starts": ["2024-06-19"], "prices": [96.7]},
            "swaps": {"tenors": ["2Y", "5Y"], "rates": [0.029, 0.026]},
        }
    },
    "equities": {},
}
VOL = "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400"
SWAPTION = "SWAPTION/RATE_LNVOL/EUR/1Y/1Y"


def test_named_quotes_move_and_the_others_stay():
    values = {"EQUITY/PRICE/DAX": 4500, VOL: 0.3, "ZERO/RATE/EUR/2003-03-18": -0.01, SWAPTION: 0.2}
    values |= {"CORRELATION/DAX/SX5E": 0.5, "EQUITY_DIVIDEND/RATE/DAX": 0.02}
    after, errors = moved(SAMPLE, values)
    assert errors == ()
    assert dict(after.flat_quotes()) == dict(SAMPLE.flat_quotes()) | {
        quote: pytest.approx(x, rel=1e-7) for quote, x in values.items()
    }
    same, errors = moved(SAMPLE, {})
    assert same is SAMPLE and errors == ()


@pytest.mark.parametrize(
    ("market", "quote", "share", "said"),
    [
        (SAMPLE, "EQUITY/PRICE/DAX", 0.1, "%"),
        (SAMPLE, VOL, 0.1, "%"),
        (SAMPLE, SWAPTION, 0.1, "%"),
        (SAMPLE, "ZERO/RATE/EUR/2003-03-18", 0.01, "100 basis points"),
        (SAMPLE, "EQUITY_DIVIDEND/RATE/DAX", 0.01, "100 basis points"),
        (SAMPLE, "CORRELATION/DAX/SX5E", -0.1, "0.1 of correlation"),
        (Market.from_text(json.dumps(QUOTED)), "MM_FUTURE/PRICE/EUR/2024-06-19", 1.0, "1 points"),
        (Market.from_text(json.dumps(QUOTED)), "IR_SWAP/RATE/EUR/5Y", 0.01, "100 basis points"),
    ],
)
def test_a_bounded_move_is_a_share_of_prices_and_vols_and_points_of_rates(
    market, quote, share, said
):
    """A bound of 0.1: a tenth of a price or a vol, 100 basis points of a rate, a point of a future's price."""
    before = dict(market.flat_quotes())[quote]
    is_share = said == "%"
    within, beyond = (before * (1.0 + x) if is_share else before + x for x in (share, 1.01 * share))
    after, errors = moved(market, {quote: within}, most=0.1)
    assert errors == () and dict(after.flat_quotes())[quote] == pytest.approx(within, rel=1e-6)
    after, (error,) = moved(market, {quote: beyond}, most=0.1)
    assert after is market and said in str(error) and "are taken at once" in str(error)
    assert moved(market, {quote: beyond})[1] == ()


@pytest.mark.parametrize(
    ("quote", "value", "said"),
    [
        ("EQUITY/PRICE/DAX", 0.0, "0.0 is not a positive number; give a spot > 0"),
        ("EQUITY/PRICE/DAX", None, "null is not a number"),
        (VOL, 25.0, "larger than 10"),
        (VOL, float("nan"), "is not a finite number"),
        (SWAPTION, -0.1, "give a vol > 0"),
        ("ZERO/RATE/EUR/2003-03-18", 3.5, "1 % is 0.01"),
        ("EQUITY_DIVIDEND/RATE/DAX", -2.0, "give a rate >= -1"),
        ("CORRELATION/DAX/SX5E", 1.5, "larger than 1"),
        ("CORRELATION/DAX/SX5E", 1.0, "has the eigenvalue 0, not above 0"),
        ("EQUITY/PRICE/DAXX", 1.0, "did you mean 'EQUITY/PRICE/DAX'"),
        ("", 1.0, "is not a quote of this market"),
    ],
)
def test_one_that_cannot_move_leaves_all_as_they_were(quote, value, said):
    after, errors = moved(SAMPLE, {"EQUITY/PRICE/SX5E": 3000.0, quote: value})
    assert after is SAMPLE
    assert len(errors) == 1 and said in str(errors[0]) and errors[0].file == "quotes.json"


@pytest.mark.parametrize(
    ("quote", "value", "said"),
    [
        ("EQUITY/PRICE/DAX", -1.0, "-1.0 is not a positive number"),
        (VOL, -0.2, "give a vol > 0"),
        (VOL, 25.0, "larger than 10"),
        ("CORRELATION/DAX/SX5E", 1.5, "larger than 1"),
    ],
)
def test_a_market_with_a_number_that_no_market_has_is_refused(quote, value, said):
    """A book was valued under a vol below 0."""
    with pytest.raises(ValueError, match=f"{quote}: .*{said}"):
        SAMPLE.with_quotes({quote: value})


def test_quotes_of_a_curve_are_repriced_or_refused():
    market = Market.from_text(json.dumps(QUOTED))
    assert not market.errors
    future, swap = "MM_FUTURE/PRICE/EUR/2024-06-19", "IR_SWAP/RATE/EUR/5Y"
    after, errors = moved(market, {"MM/RATE/EUR/3M": 0.04, future: 96.5, swap: 0.027})
    assert errors == () and dict(after.flat_quotes())[future] == pytest.approx(96.5)
    same, errors = moved(market, {swap: 0.9}, confirmed=True)
    assert same is market
    assert [error.field for error in errors] == [swap]
    assert "no zero rate reprices it" in str(errors[0])
    _, errors = moved(market, {future: 201.0})
    assert "larger than 200" in str(errors[0])


def test_of_many_unknown_ids_the_first_have_hints():
    _, errors = moved(SAMPLE, {f"EQUITY/PRICE/DAX{n}": 1.0 for n in range(50)})
    has_hint = ["did you mean" in error.remedy for error in errors]
    assert has_hint == [True] * 20 + [False] * 30


def test_a_quote_far_from_its_neighbours_moves_only_if_confirmed():
    """A vol of ten times its neighbours was taken."""
    before, far = dict(SAMPLE.flat_quotes())[VOL], dict(SAMPLE.flat_quotes())[VOL] * 10.0
    with pytest.raises(ValueError, match=f"{VOL}: the vol .* is far from .*, or give confirmed"):
        SAMPLE.with_quotes({VOL: far})
    same, (error,) = moved(SAMPLE, {VOL: far})
    assert same is SAMPLE and error.field == VOL
    assert error.remedy == 'correct it, or confirm it: "confirmed": true'
    taken = SAMPLE.with_quotes({VOL: far}, confirmed=True)
    after, errors = moved(SAMPLE, {VOL: far}, confirmed=True)
    assert errors == () and dict(after.flat_quotes()) == dict(taken.flat_quotes())
    assert dict(taken.flat_quotes())[VOL] == pytest.approx(far)
    with pytest.raises(ValueError, match="larger than 10"):
        SAMPLE.with_quotes({VOL: 25.0}, confirmed=True)
    spot = {"EQUITY/PRICE/DAX": 4500.0}  # the confirmed vol stays, and others move
    assert dict(taken.with_quotes(spot).flat_quotes())[VOL] == pytest.approx(far)
    assert dict(taken.with_quotes({VOL: before}).flat_quotes()) == dict(SAMPLE.flat_quotes())
    with pytest.raises(ValueError, match="is far from"):
        taken.with_quotes({VOL: 0.9 * far})
    other = "EQUITY_OPTION/RATE_LNVOL/DAX/2003-03-18/4400"  # hidden by no confirmed one
    with pytest.raises(ValueError, match=f"{other}: the vol 2 is far from"):
        taken.with_quotes({other: 2.0})


FX_VOLS = {
    "days": [90, 365],
    "at_the_money": [0.08, 0.09],
    "risk_reversals_25": [-0.006, -0.01],
    "butterflies_25": [0.002, 0.003],
}
CAPS = {"maturities": ["1Y", "2Y"], "strikes": [0.02, 0.03], "frequency": "semiannual"}
OTHERS = {
    "asof": "2026-03-10",
    "currency": "EUR",
    "curves": {
        "EUR": {"overnight_swaps": {"tenors": ["1Y", "2Y", "5Y"], "rates": [0.02, 0.021, 0.024]}},
        "USD": {"days": [180, 730, 1000], "zero_rates": [0.03, 0.035, 0.036]},
    },
    "equities": {},
    "fx": {"EURUSD": {"spot": 1.08, "vols": FX_VOLS}},
    "swaption_vols": {
        "expiries_years": [1, 2],
        "tenors_years": [5],
        "vols_by_expiry": [[0.3], [0.25]],
    },
    "cap_vols": {"EUR": CAPS | {"vols_by_maturity": [[0.3, 0.3], [0.28, 0.27]]}},
}


@pytest.mark.parametrize(
    ("values", "quote", "said"),
    [
        ({"OIS/RATE/EUR/2Y": 0.21}, "OIS/RATE/EUR/2Y", "the rate 0.21 is far from 0.022"),
        ({"ZERO/RATE/USD/2028-03-09": 0.35}, "ZERO/RATE/USD/2028-03-09", "0.35 is far from 0.033"),
        ({"FX_OPTION/RATE_LNVOL/EUR/USD/2027-03-10/ATM": 0.9},
         "FX_OPTION/RATE_LNVOL/EUR/USD/2026-06-08/ATM", "0.08 is far from 0.9"),
        ({"FX_OPTION/BUTTERFLY/EUR/USD/2026-06-08/25": 0.2}, "FX_OPTION/BUTTERFLY/EUR/USD/2026-06-08/25",
         "0.2 is larger than the at-the-money vol 0.08"),
        ({"SWAPTION/RATE_LNVOL/EUR/1Y/5Y": 0.007, "SWAPTION/RATE_LNVOL/EUR/2Y/5Y": 0.006},
         "SWAPTION/RATE_LNVOL/EUR/1Y/5Y", "0.007, which would be a normal vol"),
        ({"CAPFLOOR/RATE_LNVOL/EUR/2Y/0.03": 2.7}, "CAPFLOOR/RATE_LNVOL/EUR/2Y/0.03", "2.7 is far from"),
    ],
)  # fmt: skip
def test_each_kind_of_quote_is_compared_with_its_neighbours(values, quote, said):
    market = Market.from_text(json.dumps(OTHERS))
    assert not market.errors and values.keys() <= dict(market.flat_quotes()).keys()
    same, (error,) = moved(market, values)
    assert same is market and error.field == quote and said in str(error)


def test_a_spot_in_another_unit_is_refused():
    with pytest.raises(ValueError, match=r"the strikes are from .* and the spot is 446817"):
        SAMPLE.with_quotes({"EQUITY/PRICE/DAX": 446817.0})
    crash = SAMPLE.with_quotes({"EQUITY/PRICE/DAX": 2000.0})
    assert dict(crash.flat_quotes())["EQUITY/PRICE/DAX"] == 2000.0


def test_quotes_of_a_pair_without_a_smile_are_refused():
    """A butterfly that made a vol negative moved a call's value from 31 to 80."""
    market = Market.from_text(json.dumps(OTHERS))
    quote = "FX_OPTION/BUTTERFLY/EUR/USD/2026-06-08/25"
    for confirmed in (False, True):
        with pytest.raises(
            ValueError, match="2026-06-08/ATM: the quotes of this expiry have no smile"
        ):
            market.with_quotes({quote: -0.079}, confirmed=confirmed)
        _, (error,) = moved(market, {quote: -0.079}, confirmed=confirmed)
        assert error.field == "FX_OPTION/RATE_LNVOL/EUR/USD/2026-06-08/ATM"
    assert dict(market.with_quotes({quote: 0.003}).flat_quotes())[quote] == pytest.approx(0.003)
