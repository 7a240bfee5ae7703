"""Quotes of caps in market files: the caplet vols that reprice them, rows on them, and the risk to each."""

import dataclasses
import itertools
import json
from datetime import date

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import QuantLib as ql

from benchmarks.quantlib_rates_tables import Peer, document, schedule
from pricing import (
    Book,
    Cap,
    CapletVols,
    CapQuotes,
    ForwardRates,
    HullWhite,
    Market,
    Scenario,
    ScenarioSet,
    ZeroCurve,
    explain,
    price,
    revalue,
    risk,
    strip_caps,
    write_report,
)
from pricing.market.moves import moved
from tests.helpers import double

CURVE = ZeroCurve([1.0, 10.0], [0.021, 0.028])
FORWARD = ZeroCurve([1.0, 10.0], [0.023, 0.031])
ENDS = [2, 4, 6]  # half years
STRIKES = [0.005, 0.02, 0.03, 0.05]
VOLS = {
    ("lognormal", 0.02): [
        [0.3, 0.24, 0.22, 0.25],
        [0.31, 0.26, 0.23, 0.26],
        [0.3, 0.25, 0.23, 0.26],
    ],
    ("normal", 0.0): 1e-4 * np.array([[90, 80, 82, 99], [95, 84, 85, 101], [93, 83, 84, 100.0]]),
}


def quotes(law: str, shift: float, values=None, unit: str = "vols") -> CapQuotes:
    """Return caps of 1, 2 and 3 years that begin today, their first rate left out."""
    rows = [[0.5] * (6 - count) + [0.5 * i for i in range(1, count)] for count in ENDS]
    starts = np.array(rows)[:, -5:]
    accrues = np.array([[0.0] * (6 - count) + [0.5] * (count - 1) for count in ENDS])
    ends = np.where(accrues > 0.0, starts + 0.5, 0.5)
    values = VOLS[law, shift] if values is None else values
    return CapQuotes(starts, ends, accrues, STRIKES, values, shift, law, unit)


def premiums(own: CapQuotes, option: str, vols=None) -> np.ndarray:
    """Return the prices of the caps by the library's own closed form, on a flat vol or on caplet vols."""
    found = np.empty(own.quotes.shape)
    for cap, strike in np.ndindex(*found.shape):
        terms = own.starts[cap], own.ends[cap], own.accruals[cap], option
        law = {"law": own.kind, "shift": own.shift} if vols is None else {}
        model = ForwardRates(
            CURVE, own.quotes[cap, strike] if vols is None else vols, FORWARD, **law
        )
        found[cap, strike] = price(Cap(own.strikes[strike], *terms), model).value
    return found


@pytest.mark.costly
@double
@pytest.mark.parametrize(("law", "shift"), VOLS)
def test_caplet_vols_reprice_every_quote(law, shift):
    own = quotes(law, shift)
    vols = strip_caps(own, CURVE, FORWARD)
    np.testing.assert_allclose(vols.vols[0], own.quotes[0], rtol=1e-13)
    for option in ("cap", "floor"):
        quoted = premiums(own, option)
        np.testing.assert_allclose(premiums(own, option, vols), quoted, rtol=1e-12, atol=1e-16)
        again = strip_caps(quotes(law, shift, quoted, f"{option} premiums"), CURVE, FORWARD)
        np.testing.assert_allclose(again.vols, vols.vols, rtol=1e-6)


@double
def test_a_vol_far_in_the_wing_keeps_its_digits():
    """The first cap at 20 % is worth 1e-140."""
    own = dataclasses.replace(quotes("normal", 0.0), strikes=jnp.array([-0.15, 0.02, 0.03, 0.2]))
    flat = dataclasses.replace(own, quotes=jnp.full((3, 4), 0.01))
    np.testing.assert_allclose(strip_caps(flat, CURVE, FORWARD).vols, 0.01, rtol=1e-12)


@pytest.mark.costly
@double
@pytest.mark.parametrize(("law", "shift"), VOLS)
def test_caplet_vols_are_differentiable_and_map_over_batches(law, shift):
    own = quotes(law, shift)

    def last(values, level):
        forward = ZeroCurve(FORWARD.times, FORWARD.zero_rates + level)
        given = eqx.tree_at(lambda q: q.quotes, own, values)
        return strip_caps(given, CURVE, forward).vols[2, 1]

    several = jax.jit(jax.vmap(last, (0, None)))
    h = 1e-5 * own.quotes[0, 1]
    bumps = jnp.stack([own.quotes.at[cap, 1].add(s) for cap in range(3) for s in (h, -h)])
    ups, downs = several(bumps, 0.0).reshape(3, 2).T
    slopes, by_level = jax.jit(jax.grad(last, (0, 1)))(own.quotes, 0.0)
    np.testing.assert_allclose(slopes[:, 1], (ups - downs) / (2 * h), rtol=1e-7, atol=1e-9)
    assert not np.any(slopes[:, [0, 2, 3]])
    up, down = (several(own.quotes[None], s)[0] for s in (1e-5, -1e-5))
    np.testing.assert_allclose(by_level, (up - down) / 2e-5, rtol=1e-6)
    slope = jax.jit(jax.grad(last))
    curvature = jax.jit(jax.jacfwd(jax.grad(last)))(own.quotes, 0.0)[:, 1, 1, 1]
    up, down = (slope(x, 0.0)[:, 1] for x in bumps[2:4])
    np.testing.assert_allclose(curvature, (up - down) / (2 * h), rtol=1e-6, atol=1e-6)


def test_single_precision_finds_the_same_vols():
    with jax.enable_x64(True):
        exact = np.asarray(strip_caps(quotes("normal", 0.0), CURVE, FORWARD).vols)
    found = strip_caps(quotes("normal", 0.0), CURVE, FORWARD).vols
    np.testing.assert_allclose(found, exact, rtol=2e-3)


@double
def test_quotes_without_caplet_vols_are_refused():
    own = quotes("normal", 0.0)
    falling = dataclasses.replace(own, quotes=own.quotes.at[1, 2].set(0.003))
    with pytest.raises(RuntimeError, match=r"gives cap 2 its quote 0.003 at the strike 0.03"):
        strip_caps(falling, CURVE, FORWARD)
    found = strip_caps(falling, CURVE, FORWARD, throw=False).vols
    assert jnp.isnan(found[1:, 2]).all() and jnp.isfinite(found[:, [0, 1, 3]]).all()
    below = ZeroCurve([1.0], [-0.05])
    with pytest.raises(RuntimeError, match="no caplet vol gives cap 1"):
        strip_caps(quotes("lognormal", 0.02), below)


def test_what_is_no_quote_is_refused():
    own = quotes("normal", 0.0)
    with pytest.raises(ValueError, match="a row of quotes for each cap"):
        dataclasses.replace(own, quotes=own.quotes[:2])
    with pytest.raises(ValueError, match="order the caps by their maturities"):
        dataclasses.replace(own, starts=own.starts[::-1])
    with pytest.raises(ValueError, match="strikes must increase"):
        dataclasses.replace(own, strikes=own.strikes[::-1])
    with pytest.raises(ValueError, match="normal vols with the shift"):
        dataclasses.replace(own, shift=0.02)
    vols = CapletVols([1.0], [0.02], [[0.01]], kind="normal")
    with pytest.raises(ValueError, match="a separate law or shift"):
        ForwardRates(0.03, vols, law="normal")


# --- market files and rows ----------------------------------------------------------------------------

NORMAL = {
    "type": "normal",
    "frequency": "semiannual",
    "maturities": ["1Y", "2Y", "5Y", "10Y"],
    "strikes": [0.0, 0.02, 0.03],
    "vols_by_maturity": [
        [0.0060, 0.0055, 0.0057],
        [0.0068, 0.0064, 0.0066],
        [0.0076, 0.0073, 0.0074],
        [0.008, 0.0078, 0.0079],
    ],
}
LOGNORMAL = {
    "frequency": "quarterly",
    "maturities": ["1Y", "3Y"],
    "strikes": [0.01, 0.03],
    "vols_by_maturity": [[0.3, 0.25], [0.31, 0.26]],
}
DOCUMENT = document("rising") | {"cap_vols": {"EUR6M": NORMAL, "EUR": LOGNORMAL}}
HEADER = "id,type,underlying,quantity,strike,notional,start,maturity,frequency,forward_curve"
ROWS = (
    "C,cap,EUR,1,0.025,10000,2026-06-12,2033-03-14,semiannual,EUR6M",
    "F,floor,EUR,-2,0.015,10000,2026-03-12,2029-03-12,semiannual,EUR6M",
    "Q,floor,EUR,3,0.02,10000,2026-06-12,2028-03-13,quarterly,",
)


def market(**changes) -> Market:
    return Market.from_text(json.dumps(DOCUMENT | changes))


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *rows]))


def hull_white(m: Market) -> dict:
    return {"EUR": HullWhite(m.curve("EUR"), 0.05, 0.01)}


@pytest.mark.costly
@double
def test_rows_are_valued_on_the_vols_and_risk_to_each_quote_is_that_of_bumping(tmp_path):
    own = market()
    assert not own.errors
    found = risk(book(*ROWS), own, hull_white)
    assert [trade.status for trade in found.trades] == ["ok"] * 3
    assert list(found.trades[0].figures.delta) == ["EUR", "EUR6M"]
    assert list(found.trades[2].figures.delta) == ["EUR"]
    cap = book(ROWS[0]).trades[0]
    starts, ends = ([own.time(day) for day in days] for days in (cap.days[:-1], cap.days[1:]))
    accruals = [(b - a).days / 360 for a, b in itertools.pairwise(cap.days)]
    model = ForwardRates(own.curve("EUR"), own.caplet_vols("EUR6M"), own.curve("EUR6M"))
    value = price(Cap(0.025, starts, ends, accruals, "cap", 10000.0), model).value
    assert found.trades[0].figures.value == pytest.approx(float(value), rel=1e-12)
    write_report(tmp_path / "page.html", found, book(*ROWS).checked(own), own)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "caps on EUR6M, by their last fixing" in page and "2.5 % on 10,000" in page
    known = dict(own.flat_quotes())
    large = {quote: x for quote, x in found.sensitivities.items() if abs(x) > 1.0}
    of_caps = [quote for quote in large if quote.startswith("CAPFLOOR")]
    assert len(of_caps) > 12 and "CAPFLOOR/RATE_NVOL/EUR6M/5Y/0.02" in of_caps
    for quote in [*of_caps[::5], *sorted(set(large) - set(of_caps))[::12]]:
        up, down = (
            risk(book(*ROWS), own.with_quotes({quote: known[quote] + h}), hull_white, greeks=False)
            for h in (1e-5, -1e-5)
        )
        bumped = (up.value - down.value) / 2e-5
        np.testing.assert_allclose(large[quote], bumped, rtol=1e-5, atol=1e-4)


@double
def test_a_quoted_cap_has_its_quoted_price():
    """A row from spot, whose first rate is left out, on the flat vol of the quote."""
    own = market()
    row = "C,cap,EUR,1,0.02,100,2026-09-14,2031-03-12,semiannual,EUR6M"
    found = risk(book(row), own, hull_white, greeks=False)
    (trade,) = book(row).checked(own).trades
    days = trade.starts, trade.period_ends
    times = ([own.time(day) for day in some] for some in days)
    flat = ForwardRates(own.curve("EUR"), 0.0073, own.curve("EUR6M"), law="normal")
    value = price(Cap(0.02, *times, trade.accruals, "cap", 100.0), flat).value
    assert found.value == pytest.approx(float(value), rel=1e-12)


@pytest.mark.costly
@double
def test_scenarios_move_the_caplet_vols_and_vega_is_their_slope():
    own = market()
    found = risk(book(*ROWS), own, hull_white)
    moves = [Scenario("one", cap_vols={"EUR6M": 1e-5}), Scenario("all", cap_vols={"all": 1e-5})]
    one, both = revalue(book(*ROWS), own, hull_white, moves).pnl
    assert one[2] == 0.0 and both[2] > 0.0
    np.testing.assert_allclose(one[:2], both[:2])
    vegas = [trade.position.vega for trade in found.trades]
    np.testing.assert_allclose(both, 1e-5 * np.array(vegas), rtol=2e-3)
    texts = '{"scenarios": {"a": {"cap_vols": {"EUR": -0.5}}, "b": {"cap_vols": {"USD": 0.1}}}}'
    low, unknown = ScenarioSet.from_text(texts).checked(own).errors
    assert "takes the smallest vol of caplets on EUR" in str(low)
    assert "'USD' is not a curve with caps of the market" in str(unknown)


@pytest.mark.costly
@double
def test_a_day_of_moving_vols_is_explained():
    vols = [[vol + 1e-4 for vol in row] for row in NORMAL["vols_by_maturity"]]
    later = {"EUR6M": NORMAL | {"vols_by_maturity": vols}, "EUR": LOGNORMAL}
    found = explain(book(*ROWS), market(), market(asof="2026-03-11", cap_vols=later), hull_white)
    vega = found.parts["vega"]
    assert found.parts["theta"] < 0.0 and vega == pytest.approx(
        sum(x for quote, x in found.by_quote.items() if quote.startswith("CAPFLOOR")), rel=1e-9
    )
    assert abs(found.residual) < 0.01 * abs(found.change)


@pytest.mark.costly
@double
def test_a_first_rate_is_fixed_by_the_name_of_its_curve():
    row = "C,cap,EUR,1,0.02,10000,2025-12-10,2027-12-10,semiannual,EUR6M"
    (error,) = book(row).checked(market()).errors
    assert "there is no fixing of EUR6M 6M on 2025-12-10" in str(error)
    fixings = {"EUR6M 6M": {"2025-12-10": 0.025}}
    (left,) = book(row).checked(market(fixings=fixings)).trades
    paid = 10000 * 0.005 * (date(2026, 6, 10) - date(2025, 12, 10)).days / 360
    assert left.amounts == (pytest.approx(paid), 0.0, 0.0, 0.0)
    (trade,) = risk(book(row), market(fixings=fixings), hull_white).trades
    assert trade.status == "ok"


def test_a_quote_that_moves_is_checked_with_the_others():
    quote = "CAPFLOOR/RATE_NVOL/EUR6M/2Y/0.02"
    after, errors = moved(market(), {quote: 0.0066})
    assert not errors and dict(after.flat_quotes())[quote] == pytest.approx(0.0066)
    (error,) = moved(market(), {quote: 0.001}, confirmed=True)[1]
    assert quote in str(error) and "no caplet vol gives it" in str(error)
    (error,) = moved(market(), {quote: 0.66})[1]
    assert "0.66 is larger than 0.1" in str(error)


BAD = (
    ({"shift": 0.01}, "EUR6M.shift", "the shift of normal vols"),
    ({"maturities": ["6M", "2Y", "5Y", "10Y"]}, "EUR6M.maturities.0", "6M is one period"),
    ({"maturities": ["1Y", "1Y", "5Y", "10Y"]}, "EUR6M.maturities.1", "adds no rate"),
    ({"strikes": [0.0, 0.02]}, "EUR6M.vols_by_maturity.0", "3 vols for 2 strikes"),
    (
        {"type": "lognormal", "vols_by_maturity": [[0.3] * 3] * 4},
        "EUR6M.strikes.0",
        "not above -shift, 0",
    ),
    ({"type": "lognormal"}, "EUR6M.vols_by_maturity", "which would be a normal vol"),
    ({"option": "cap"}, "EUR6M.option", "caps and floors have the same vols"),
    ({"premiums_by_maturity": [[0.1]]}, "EUR6M", "either flat vols or premiums"),
    (
        {"vols_by_maturity": [[0.7] * 3] * 4},
        "EUR6M.vols_by_maturity",
        "is a normal vol of 7,000 bp",
    ),
    (
        {"vols_by_maturity": [[0.006] * 3, [0.0015] * 3, [0.007] * 3, [0.008] * 3]},
        "EUR6M.vols_by_maturity.1.0",
        "no caplet vol gives 0.0015",
    ),
)


@pytest.mark.parametrize(("change", "field", "message"), BAD)
def test_a_mistake_in_quotes_of_caps_is_reported_at_its_place(change, field, message):
    (error, *_) = market(cap_vols={"EUR6M": NORMAL | change}).errors
    assert error.field == f"cap_vols.{field}" and message in f"{error}"


def test_a_cap_whose_vols_are_missing_has_no_other_model_in_silence():
    (error,) = book(ROWS[0]).checked(market(cap_vols={"EUR": LOGNORMAL})).errors
    assert "the market has no vols of caps on EUR6M; give them, under cap_vols.EUR6M" in str(error)
    wrong = market(cap_vols={"EUR": LOGNORMAL | {"shift": -1}})
    (error,) = book(ROWS[2]).checked(wrong).errors
    assert "the vols of caps on EUR are left out; correct market.json" in str(error)


def test_quotes_of_caps_on_an_unknown_curve_are_left_out():
    own = market(cap_vols={"EUR3M": NORMAL})
    (error,) = own.errors
    assert "there is no curve 'EUR3M' in this file" in str(error) and not own.cap_vols


@double
def test_premiums_give_the_vols_that_they_were_made_of():
    own = market()
    vols = own.caplet_vols("EUR6M")
    quotes = own.cap_vols["EUR6M"]
    rows = [
        [
            float(
                price(
                    Cap(strike, quotes.starts[i], quotes.ends[i], quotes.accruals[i], "floor"),
                    ForwardRates(own.curve("EUR"), vols, own.curve("EUR6M")),
                ).value
            )
            for strike in NORMAL["strikes"]
        ]
        for i in range(4)
    ]
    quoted = {k: v for k, v in NORMAL.items() if k != "vols_by_maturity"}
    quoted |= {"premiums_by_maturity": rows, "option": "floor"}
    again = market(cap_vols={"EUR6M": quoted})
    assert not again.errors
    np.testing.assert_allclose(again.caplet_vols("EUR6M").vols, vols.vols, rtol=1e-9)
    assert "CAPFLOOR/PRICE/EUR6M/5Y/0.02/floor" in dict(again.flat_quotes())


# --- caps at the money --------------------------------------------------------------------------------

AT_THE_MONEY = {
    key: value for key, value in NORMAL.items() if key not in ("strikes", "vols_by_maturity")
}
AT_THE_MONEY |= {"at_the_money": [0.0055, 0.0064, 0.0073, 0.0078]}


@pytest.mark.costly
@double
@pytest.mark.parametrize(("law", "shift"), VOLS)
def test_caplet_vols_reprice_caps_at_the_money(law, shift):
    """A cap at the money is worth as much as the floor, on its quote and on the caplet vols."""
    values = VOLS[law, shift]
    own = dataclasses.replace(quotes(law, shift), strikes=None, quotes=np.array(values)[:, 1:2])
    vols = strip_caps(own, CURVE, FORWARD)
    assert vols.vols.shape == (3, 1) and vols.vol(2.0, 0.01) == vols.vol(2.0, 0.09)
    paid = []
    for cap, strike in enumerate(own.strikes_of_caps(CURVE, FORWARD)[:, 0]):
        terms = strike, own.starts[cap], own.ends[cap], own.accruals[cap]
        flat = ForwardRates(CURVE, own.quotes[cap, 0], FORWARD, law=law, shift=shift)
        models = flat, ForwardRates(CURVE, vols, FORWARD)
        found = [float(price(Cap(*terms, o), m).value) for o in ("cap", "floor") for m in models]
        np.testing.assert_allclose(found, found[0], rtol=1e-12)
        paid.append([found[0]])
    again = dataclasses.replace(own, quotes=paid, unit="floor premiums")
    np.testing.assert_allclose(strip_caps(again, CURVE, FORWARD).vols, vols.vols, rtol=1e-10)


@double
def test_caps_at_the_money_in_a_file_have_the_rates_of_quantlib():
    own = market(cap_vols={"EUR6M": AT_THE_MONEY})
    assert not own.errors
    curves = own.curve("EUR"), own.curve("EUR6M")
    peer = Peer("rising")
    rules = ql.TARGET(), ql.ModifiedFollowing, False, ql.Actual360()
    index = ql.IborIndex("rate", ql.Period(6, ql.Months), 0, ql.EURCurrency(), *rules, peer.forward)
    start = ql.TARGET().advance(peer.today, 2, ql.Days)
    for years, (rate,) in zip(
        (1, 2, 5, 10), own.cap_vols["EUR6M"].strikes_of_caps(*curves), strict=True
    ):
        days = schedule(start, start + ql.Period(years, ql.Years), 6)
        leg = ql.IborLeg([100.0], days, index, ql.Actual360(), fixingDays=[0])
        wanted = ql.Cap(leg[1:], [0.0]).atmRate(peer.discount.currentLink())
        assert float(rate) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.costly
@double
def test_risk_to_caps_at_the_money_is_that_of_bumping():
    """Also to the quotes of both curves, with which the strikes move."""
    own = market(cap_vols={"EUR6M": AT_THE_MONEY})
    product = Cap(0.02, np.arange(0.5, 8.0, 0.5), np.arange(1.0, 8.5, 0.5), [0.5] * 15, "floor")

    @eqx.filter_jit
    def value(m):
        model = ForwardRates(m.curve("EUR"), m.caplet_vols("EUR6M", throw=False), m.curve("EUR6M"))
        return price(product, model).value

    slopes = dict(eqx.filter_grad(value)(own).flat_quotes())
    known = dict(own.flat_quotes())
    large = [quote for quote, slope in slopes.items() if abs(slope) > 1e-3]
    assert sum(quote.endswith("/ATM") for quote in large) == 4 and len(large) > 10
    for quote in large:
        up, down = (value(own.with_quotes({quote: known[quote] + h})) for h in (2e-6, -2e-6))
        np.testing.assert_allclose(slopes[quote], (up - down) / 4e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"strikes": [0.02]}, "strikes", "together with at_the_money"),
        ({"at_the_money": [0.006] * 3}, "at_the_money", "3 vols for 4 maturities"),
        ({"at_the_money": [0.006, 0.007, 0.007, 60.0]}, "at_the_money", "is a normal vol of"),
        ({"at_the_money": [0.006, 0.0015, 0.007, 0.008]}, "at_the_money.1", "no caplet vol"),
        ({"vols_by_maturity": [[0.01]] * 4}, "", "either flat vols or premiums"),
        ({"at_the_money": None}, "", "either flat vols or premiums"),
    ],
)
def test_a_mistake_in_caps_at_the_money_is_reported_at_its_place(change, field, message):
    (error, *_) = market(cap_vols={"EUR6M": AT_THE_MONEY | change}).errors
    assert error.field == ".".join(["cap_vols.EUR6M", field]).rstrip(".") and message in f"{error}"


def test_caps_without_strikes_are_reported():
    caps = {key: value for key, value in NORMAL.items() if key != "strikes"}
    (error,) = market(cap_vols={"EUR6M": caps}).errors
    assert error.field == "cap_vols.EUR6M.strikes" and "is missing" in str(error)
