"""The market: what is read from a file, quote ids, and derivatives by quote."""

import json
import re
from datetime import date
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import pricing.samples
from jaxtape.programs.pytree_json import PytreeSpec, from_json
from pricing.market import Fixings, Market

DAX = Path(next(iter(pricing.samples.__path__))) / "dax_2002-07-05.json"
DOUBLE = jax.numpy.zeros(()).dtype == np.float64
TOLERANCE = 1e-12 if DOUBLE else 1e-6


@pytest.fixture(scope="module")
def market():
    return Market.read(DAX)


def test_the_sample_market_is_read_whole(market):
    dax = market.equities["DAX"]
    assert market.errors == ()
    assert (market.asof, market.currency) == (date(2002, 7, 5), "EUR")
    assert (dax.curve, dax.currency) == ("EUR", "EUR")
    assert dax.surface.vols.shape == (8, 13)
    np.testing.assert_allclose(dax.spot, 4468.17, rtol=TOLERANCE)
    np.testing.assert_allclose(dax.surface.expiries[0], 13 / 365, rtol=TOLERANCE)
    np.testing.assert_allclose(market.curves["EUR"].zero_rate(345 / 365), 0.0368, rtol=1e-6)
    assert market.time(date(2003, 7, 5)) == 1.0


def test_every_number_of_the_sample_market_has_an_id_of_its_own(market):
    quotes = market.flat_quotes()
    ids = [quote for quote, _ in quotes]
    families = {"EQUITY_OPTION": 312, "ZERO": 27, "EQUITY": 3, "EQUITY_DIVIDEND": 3}
    families |= {"DIVIDEND": 8, "CORRELATION": 1, "SWAPTION": 25, "FX": 2, "FX_OPTION": 18}
    assert len(set(ids)) == len(ids) == sum(families.values()) == 399
    assert {name: sum(i.startswith(name + "/") for i in ids) for name in families} == families
    values = dict(quotes)
    one = pytest.approx
    assert values["EQUITY/PRICE/DAX"] == one(4468.17)
    assert values["EQUITY_DIVIDEND/RATE/DAX"] == 0.0
    assert values["ZERO/RATE/EUR/2002-07-18"] == one(0.0357)
    assert values["EQUITY_OPTION/RATE_LNVOL/DAX/2003-03-18/4400"] == one(0.2788)


def test_quote_ids_have_the_structure_of_the_market(market):
    ids = market.quote_ids()
    assert jax.tree.structure(ids) == jax.tree.structure(market)
    assert ids.curves["EUR"].zero_rates[1] == "ZERO/RATE/EUR/2002-07-18"
    assert ids.equities["DAX"].surface.vols[7, 12].endswith("/DAX/2004-06-07/5600")
    assert set(ids.equities["DAX"].surface.strikes) == {""}


def test_quotes_survive_a_round_trip(market):
    of_all = enumerate(market.flat_quotes())
    wanted = {quote: number * (1.0 + 1e-4 * i) for i, (quote, number) in of_all}
    moved = market.with_quotes(wanted)
    assert jax.tree.structure(moved) == jax.tree.structure(market)
    assert dict(moved.flat_quotes()) == pytest.approx(wanted, rel=TOLERANCE)
    assert dict(market.flat_quotes())["EQUITY/PRICE/DAX"] == pytest.approx(4468.17)


@pytest.mark.costly
@pytest.mark.skipif(not DOUBLE, reason="differences need float64")
def test_derivatives_by_quote_agree_with_bumped_quotes(market):
    @jax.jit
    def value(market):
        dax = market.equities["DAX"]
        t, strikes = np.linspace(0.02, 2.1, 24), dax.spot * np.linspace(0.7, 1.3, 24)
        forwards = dax.spot * np.exp(1.0) ** (-dax.dividend_yield * t)
        return (forwards * dax.surface.vol(t, strikes) * market.curves["EUR"].discount(t)).sum()

    derivatives = market.by_quote(jax.jit(jax.grad(value))(market))
    quotes = dict(market.flat_quotes())
    assert derivatives.keys() == quotes.keys()
    for quote, x in quotes.items():
        step = 1e-6 * max(1.0, abs(x))
        up, down = (value(market.with_quotes({quote: x + s})) for s in (step, -step))
        difference = float(up - down) / (2 * step)
        assert derivatives[quote] == pytest.approx(difference, rel=1e-6, abs=1e-4), quote


def test_a_tree_of_another_structure_is_refused(market):
    with pytest.raises(ValueError, match="give, for example, a gradient"):
        market.by_quote(jax.tree.map(lambda leaf: None, market))


def test_an_unknown_quote_is_refused_with_a_hint(market):
    with pytest.raises(KeyError, match="did you mean 'EQUITY/PRICE/DAX'"):
        market.with_quotes({"EQUITY/PRICE/DAXX": 1.0})


SWAPTIONS = {
    "asof": "2002-02-15",
    "settle": "2002-02-19",
    "source": "the layout of a swaption file",
    "currency": "EUR",
    "curves": {
        "EUR": {
            "day_count": "ACT/365",
            "compounding": "continuous",
            "flat_from": "2002-02-19",
            "zero_rate": 0.0487,
        }
    },
    "swap": {"start": "2003-02-19", "years": 5},
    "swaption_vols": {
        "type": "lognormal",
        "expiries_years": [0.5, 5],
        "tenors_years": [1, 2],
        "vols_by_expiry": [[0.15, 0.13], [0.1, 0.09]],
    },
}


def test_swaption_vols_and_a_flat_curve_are_read():
    market = Market.from_text(json.dumps(SWAPTIONS))
    assert market.errors == ()
    assert market.equities == {}
    np.testing.assert_allclose(market.curves["EUR"].zero_rate(3.0), 0.0487, rtol=1e-6)
    quotes = dict(market.flat_quotes())
    assert quotes["ZERO/RATE/EUR/2002-02-19"] == pytest.approx(0.0487)
    assert quotes["SWAPTION/RATE_LNVOL/EUR/5Y/1Y"] == pytest.approx(0.1)
    assert quotes["SWAPTION/RATE_LNVOL/EUR/6M/2Y"] == pytest.approx(0.13)


def test_normal_swaption_vols_have_their_own_ids():
    normal = {"type": "normal", "vols_by_expiry": [[0.0085, 0.008], [0.007, 0.0065]]}
    vols = SWAPTIONS["swaption_vols"] | normal
    market = Market.from_text(json.dumps(SWAPTIONS | {"swaption_vols": vols}))
    assert market.swaption_vols is not None
    assert market.swaption_vols.kind == "normal"
    assert "SWAPTION/RATE_NVOL/EUR/5Y/1Y" in dict(market.flat_quotes())


def test_days_and_dates_say_the_same():
    text = DAX.read_text(encoding="utf-8")
    by_days = Market.from_text(re.sub(r'"expiries": \[[^\]]*\],', "", text))
    by_dates = Market.from_text(
        re.sub(r'("expiries": \[[^\]]*\],)\s*"days": \[[^\]]*\],', r"\1", text)
    )
    assert by_days.flat_quotes() == by_dates.flat_quotes() == Market.read(DAX).flat_quotes()


def test_tabs_and_a_byte_order_mark_do_no_harm(tmp_path):
    path = tmp_path / "market.json"
    text = DAX.read_text(encoding="utf-8").replace("\n ", "\n\t").replace("0.3726", "-0.3726")
    path.write_text("\ufeff" + text, encoding="utf-8")
    error, *others = Market.read(path).errors
    assert error.line == next(n for n, t in enumerate(text.splitlines(), 1) if "-0.3726" in t)
    assert [other.field for other in others] == ["correlations.DAX|SX5E", "fixings.DAX"]
    assert "left out" in others[0].message


def test_the_examples_of_the_documentation_work(monkeypatch):
    root = DAX.parents[2]
    page = (root / "docs" / "data.md").read_text(encoding="utf-8")
    market = Market.from_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert market.errors == ()
    assert "SWAPTION/RATE_LNVOL/EUR/2Y/5Y" in dict(market.flat_quotes())
    monkeypatch.chdir(root)
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(next(block for block in blocks if "by_quote" in block), names)
    assert names["by_quote"]["ZERO/RATE/EUR/2002-12-17"] == pytest.approx(-0.1104, abs=1e-4)
    assert dict(names["bumped"].flat_quotes())["EQUITY/PRICE/DAX"] == 4500.0


def test_a_market_that_is_described_is_built_again_with_all_that_it_holds():
    """As a stored program identifies it, and as an exported one returns a gradient."""
    eur, usd = ({"zero_rate": rate} for rate in (0.02, 0.04))
    vols = {"at_the_money": [0.08], "risk_reversals_25": [-0.01], "butterflies_25": [0.002]}
    equity = {
        "curve": "EUR",
        "spot": 100.0,
        "dividends": {"dates": ["2026-04-15"], "cash": [2.0]},
        "implied_vols": {"days": [365], "strikes": [100], "vols_by_expiry": [[0.2]]},
    }
    document = {
        "asof": "2026-01-05",
        "curves": {"EUR": eur, "USD": usd},
        "equities": {"S": equity},
        "fx": {"EURUSD": {"spot": 1.08, "vols": {"expiries": ["2027-01-05"], **vols}}},
    }
    market = Market.from_text(json.dumps(document)).with_fixings(
        Fixings.from_text("name,date,value\nS,2026-01-02,99\nEUR 6M,2025-07-07,0.021\n")
    )
    assert market.errors == () and len(market.fixings) == 2
    words = json.loads(json.dumps(PytreeSpec(market).json))
    again = from_json(words, iter(jax.tree.leaves(market)))
    assert eqx.tree_equal(again, market) and again.fixings == market.fixings
