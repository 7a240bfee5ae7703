"""A book's risk: figures of each trade, the total's derivative to the quotes, bad trades set aside, devices."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest

from pricing import (
    BlackScholes,
    Book,
    ClosedForm,
    European,
    FiniteDifference,
    Fourier,
    Measures,
    MonteCarlo,
    Quadrature,
    RiskEngine,
    RiskResult,
    greeks,
    price,
    risk,
)
from pricing.portfolio.batching import products_of
from pricing.portfolio.sweep import fitted_models, tile_workers
from pricing.portfolio.sweep.groups import BudgetTooSmall, TradeGroup
from tests.eight_devices import run_on_eight_devices
from tests.helpers import dax, dax_book, double
from tests.references import dax_heston

pytestmark = double

PER_KIND = 8
SMALL = 2**20  # a budget of bytes for which the book is more than six tiles


def black_scholes(market):
    """A differentiable fit that needs no search: each trade at the quoted vol of its strike and expiry."""
    return {
        name: BlackScholes(x.spot, market.curves[x.curve], x.surface, x.dividend_yield)
        for name, x in market.equities.items()
    }


def heston(market):
    return {"DAX": dax_heston()}


def numbers(figures: Measures) -> list[float]:
    return jax.tree.leaves(vars(figures))


def all_numbers(found: RiskResult) -> list[float]:
    figures = [x for trade in found.trades if trade.figures for x in numbers(trade.figures)]
    return [found.value, *found.sensitivities.values(), *figures]


def small_book() -> Book:
    rows = [
        row
        for kind in ("european", "digital", "barrier")
        for row in [r for r in dax_book().rows if r.type == kind][:PER_KIND]
    ]
    return dataclasses.replace(dax_book(), rows=tuple(rows))


@pytest.mark.costly
def test_contracts_that_share_an_expiry_have_the_figures_of_each_alone():
    """Forty strikes on both sides of the forward in two expiries, one of which overflows, and one by itself."""
    strikes = [*np.linspace(2500.0, 6500.0, 40), 1e-310]
    rows = [f"S{i},european,DAX,call,{k},2003-03-18" for i, k in enumerate(strikes)]
    rows += [f"T{i},european,DAX,put,{k},2002-12-17" for i, k in enumerate(strikes[:-1])]
    rows += ["A,european,DAX,call,4500,2003-06-20"]
    book = Book.from_text("\n".join(["id,type,underlying,option,strike,expiry", *rows]))
    fit = lambda market: {"DAX": dax_heston()}
    found = risk(book, dax(), fit)
    assert [trade.id for trade in found.failed] == ["S40"]
    valued = [trade for trade in found.trades if trade.figures]
    contracts = products_of([row.trade for row in book.rows if row.id != "S40"], dax())
    alone = greeks(contracts, dax_heston(), Fourier())
    for name in ("value", "delta", "gamma", "theta"):
        figures = [jax.tree.leaves(getattr(trade.figures, name))[0] for trade in valued]
        np.testing.assert_allclose(figures, getattr(alone, name), rtol=1e-9, atol=1e-9)
    values = risk(book, dax(), fit, greeks=False)
    shared = [trade.figures.value for trade in values.trades if trade.figures]
    np.testing.assert_allclose(shared, alone.value, rtol=1e-12, atol=1e-9)


@pytest.fixture(scope="module")
def found():
    return risk(small_book(), dax(), black_scholes)


@pytest.mark.costly
def test_figures_are_the_greeks_of_each_contract(found):
    """Spot Greeks hold the vols; vega and rho move all of them in parallel."""
    assert len(found.trades) == 3 * PER_KIND
    assert not found.failed
    model = black_scholes(dax())["DAX"]
    for kind in ("european", "digital", "barrier"):
        trades = [row.trade for row in small_book().rows if row.type == kind]
        wanted = greeks(products_of(trades, dax()).canonical, model)
        figures = [trade.figures for trade in found.trades if trade.type == kind]
        for name in ("value", "delta", "gamma", "vega", "theta", "rho"):
            column = [getattr(figure, name) for figure in figures]
            if name in ("delta", "gamma"):
                column = [
                    by_name["DAX" if name == "delta" else ("DAX", "DAX")] for by_name in column
                ]
            np.testing.assert_allclose(column, getattr(wanted, name), rtol=1e-8, atol=1e-9)


@pytest.mark.costly
def test_trades_that_read_one_vol_of_a_surface_are_named(found):
    """Barriers alone: digitals and European options share the law that all strikes imply."""
    (note,) = found.notes
    assert f": {PER_KIND} barrier; Heston" in note
    assert not risk(small_book(), dax(), heston, greeks=False, methods=[Fourier()]).notes


@pytest.mark.costly
def test_positions_are_quantity_times_contract(found):
    for trade, row in zip(found.trades, small_book().rows, strict=True):
        assert (trade.id, trade.quantity) == (row.id, row.trade.quantity)
        assert trade.position.delta["DAX"] == trade.quantity * trade.figures.delta["DAX"]
        assert trade.std_errors.value == 0.0
    total = sum(trade.position.value for trade in found.trades)
    np.testing.assert_allclose(found.value, total, rtol=1e-12)


@pytest.mark.costly
def test_vega_rho_and_delta_add_up_to_the_quotes(found):
    families = {"vega": "EQUITY_OPTION/", "rho": "ZERO/", "delta": "EQUITY/PRICE/"}
    for measure, family in families.items():
        positions = [trade.position for trade in found.trades]
        trades = sum(
            p.delta["DAX"] if measure == "delta" else getattr(p, measure) for p in positions
        )
        quotes = sum(x for quote, x in found.sensitivities.items() if quote.startswith(family))
        np.testing.assert_allclose(trades, quotes, rtol=1e-10)


@pytest.mark.costly
def test_the_total_moves_with_a_quote_as_its_sensitivity_says(found):
    quotes = dict(dax().flat_quotes())
    for quote in ("EQUITY_OPTION/RATE_LNVOL/DAX/2003-03-18/4400", "ZERO/RATE/EUR/2003-12-11"):
        up, down = (
            risk(small_book(), moved, black_scholes, greeks=False).value
            for step in (1e-4, -1e-4)
            for moved in (dax().with_quotes({quote: quotes[quote] + step}),)
        )
        np.testing.assert_allclose(found.sensitivities[quote], (up - down) / 2e-4, rtol=1e-5)


@pytest.mark.costly
def test_the_size_of_a_tile_changes_nothing(found):
    seen = []
    small = risk(
        small_book(), dax(), black_scholes, budget=SMALL, progress=lambda *at: seen.append(at)
    )
    for one, other in zip(found.trades, small.trades, strict=True):
        # Gamma of a grid divides rounding by the square of a gap: at most 3.3e-11 was measured
        digits = 1e-10 if one.method == "FiniteDifference" else 1e-12
        np.testing.assert_allclose(
            numbers(one.figures), numbers(other.figures), rtol=digits, atol=digits
        )
    assert seen[-1] == (3 * PER_KIND, 3 * PER_KIND, "")
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    with pytest.raises(BudgetTooSmall, match="a budget of 10 bytes is below one trade"):
        risk(small_book(), dax(), black_scholes, budget=10)


@pytest.mark.costly
def test_the_number_of_workers_changes_no_tile_and_no_bit(monkeypatch):
    """Tiles, and so programs and the order of sums, depend on the budget and the methods alone."""
    answers, tiles = [], []

    def recorded(name):
        swept = getattr(fitted_models, name)

        def sweep(tile, model, method, *tangents, key):
            tiles[-1].append((name, type(method).__name__, *map(np.shape, jax.tree.leaves(tile))))
            return swept(tile, model, method, *tangents, key=key)

        return sweep

    for name in ("tile_sweep", "brief_tile_sweep"):
        monkeypatch.setattr(fitted_models, name, recorded(name))
    for count in (1, 2, 7):
        monkeypatch.setattr(tile_workers, "NUM_WORKERS", count)
        tiles.append([])
        found = risk(small_book(), dax(), black_scholes, budget=SMALL)
        tiles[-1].sort(key=str)
        answers.append((found.gradient, [vars(trade.figures) for trade in found.trades]))
    assert len(tiles[0]) > 6
    assert tiles[0] == tiles[1] == tiles[2]
    chex.assert_trees_all_equal(*answers)


@pytest.mark.parametrize(
    ("method", "tiles", "expected"),
    [
        (ClosedForm(), 1, True),
        (ClosedForm(), 2, False),
        (Quadrature(num_nodes=64), 1, True),
        (Quadrature(num_nodes=512), 1, False),
        (MonteCarlo(), 1, False),
    ],
    ids=["closed form", "tiles", "few nodes", "many nodes", "paths"],
)
def test_a_kind_in_one_short_tile_is_brief(method, tiles, expected):
    places = np.zeros((tiles, 1, 4), int)
    group = TradeGroup(("DAX",), (), European(100.0, 1.0), method, places, None)
    assert group.is_brief == expected


@pytest.mark.costly
def test_values_alone_are_those_beside_the_greeks(found):
    alone = risk(small_book(), dax(), black_scholes, greeks=False)
    for one, other in zip(alone.trades, found.trades, strict=True):
        assert one.figures == Measures(one.figures.value)
        assert (one.id, one.method, one.status) == (other.id, other.method, other.status)
        assert one.std_errors.value == other.std_errors.value
        np.testing.assert_allclose(one.figures.value, other.figures.value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(alone.value, found.value, rtol=1e-12)
    assert alone.sensitivities == {}
    assert alone.gradient is None


@pytest.mark.costly
def test_errors_of_grids_are_those_of_prices_one_by_one():
    rows = [row for row in small_book().rows if row.type in ("digital", "barrier")][::2]
    book = dataclasses.replace(dax_book(), rows=tuple(rows))
    found = risk(book, dax(), black_scholes, greeks=False, grid_errors=True)
    model, methods = black_scholes(dax())["DAX"], set()
    for row, trade in zip(rows, found.trades, strict=True):
        methods.add(trade.method)
        grid = FiniteDifference() if trade.method == "FiniteDifference" else None
        (wanted,) = price(products_of([row.trade], dax()).canonical, model, grid).std_error
        np.testing.assert_allclose(trade.std_errors.value, wanted, rtol=1e-6, atol=1e-12)
        assert (trade.std_errors.value > 0.0) == (grid is not None)
    assert len(methods) == 2


def test_a_trade_that_no_method_prices_is_set_aside():
    """Without a method for barriers, and with a model for which there is none at all."""
    fit = lambda market: {"DAX": dax_heston()}
    found = risk(small_book(), dax(), fit, methods=(Fourier(),), greeks=False)
    assert [trade.type for trade in found.failed] == ["barrier"] * PER_KIND
    assert all("no terminal claim" in trade.status for trade in found.failed)
    assert all(trade.position is None for trade in found.failed)
    assert np.isfinite(found.value)
    nothing = risk(small_book(), dax(), fit, methods=(ClosedForm(),))
    assert len(nothing.failed) == 3 * PER_KIND
    assert nothing.value == 0.0
    assert set(nothing.sensitivities.values()) == {0.0}


@pytest.mark.costly
def test_a_figure_that_is_not_finite_fails_its_trade_alone():
    """A strike so far away that its contract overflows is out of the total and of its derivative."""
    rows = list(small_book().rows[:PER_KIND])
    trade = rows[0].trade.model_copy(update={"strike": 1e-310})
    rows[0] = dataclasses.replace(rows[0], trade=trade)
    book = dataclasses.replace(small_book(), rows=tuple(rows))
    found, rest = (
        risk(dataclasses.replace(book, rows=rows), dax(), black_scholes)
        for rows in (book.rows, book.rows[1:])
    )
    assert [trade.id for trade in found.failed] == [rows[0].id]
    assert "not finite" in found.trades[0].status
    np.testing.assert_allclose(found.value, rest.value, rtol=1e-12)
    np.testing.assert_allclose(
        list(found.sensitivities.values()), list(rest.sensitivities.values()), rtol=1e-9, atol=1e-6
    )


def test_work_is_shared_by_contracts_of_an_expiry(monkeypatch):
    """Two expiries with strikes on either side of the forward: four bunches, three of them full."""
    rows = [
        f"{day}{strike},european,DAX,call,{strike},{expiry}"
        for day, expiry in (("A", "2003-03-18"), ("B", "2002-12-17"))
        for strike in (*range(3000, 3800, 100), *range(5500, 6300, 100))
    ]
    book = Book.from_text("\n".join(["id,type,underlying,option,strike,expiry", *rows[:-1]]))
    seen, make = [], TradeGroup.tiles

    def tiles(self):
        seen.append(self)
        return make(self)

    monkeypatch.setattr(TradeGroup, "tiles", tiles)
    risk(book, dax(), lambda market: {"DAX": dax_heston()}, greeks=False)
    (group,) = seen
    places = group.places.reshape(-1, Fourier.group_size)
    bunches = [set(bunch[bunch >= 0].tolist()) for bunch in places]
    names = [{group.trades[place].id for place in bunch} for bunch in bunches if bunch]
    lower, upper = range(3000, 3800, 100), range(5500, 6300, 100)
    expected = [
        {f"{day}{strike}" for strike in side} - {"B6200"} for day in "AB" for side in (lower, upper)
    ]
    assert sorted(map(sorted, names)) == sorted(map(sorted, expected))


@pytest.mark.costly
def test_contracts_of_two_parts_of_a_book_share_no_bunch_and_keep_their_figures():
    strikes = range(3600, 5400, 100)
    rows = (f"{strike},european,DAX,call,{strike},2003-03-18" for strike in strikes)
    book = Book.from_text("\n".join(["id,type,underlying,option,strike,expiry", *rows]))
    at = lambda market: dataclasses.replace(dax_heston(), spot=market.spot("DAX"))
    engine = RiskEngine(lambda market: {"DAX": at(market)})
    found = engine(book, dax(), parts={str(strike): "odd" for strike in strikes[1::2]})
    whole = engine(book, dax())
    np.testing.assert_allclose(all_numbers(found), all_numbers(whole), rtol=1e-10, atol=1e-13)
    (total,) = found.by_currency.values()
    assert list(total.parts) == ["", "odd"]
    chex.assert_trees_all_close(total.gradient, whole.gradient, rtol=1e-12, atol=1e-12)


def test_a_trade_that_its_method_does_not_reach_is_set_aside_with_the_reason():
    """The log-spot of the later contract deviates too far; the other one of the same tile is valued."""
    text = """id,type,underlying,option,strike,exercise_dates
near,bermudan,DAX,put,4500,2002-09-05|2002-10-05
far,bermudan,DAX,put,4500,2003-07-05|2004-07-05
"""
    fit = lambda market: {"DAX": BlackScholes(4500.0, 0.03, 1.8)}
    near, far = risk(Book.from_text(text), dax(), fit, greeks=False).trades
    assert (near.method, near.status) == ("Quadrature", "ok")
    assert far.figures is None
    assert far.status.startswith(
        "failed: the standard deviation of the log-spot to the last date is above 2"
    )


ON_DEVICES = """
import json
import tests.conftest
import chex
import jax
import numpy as np
from jax.sharding import Mesh
from pricing import risk
from tests.helpers import dax
from pricing import ClosedForm, Fourier
from tests.pricing.test_risk import all_numbers, black_scholes, heston, small_book
assert jax.device_count() == 8
answers = []
meshes = Mesh(np.array(jax.devices()), ("trades",)), jax.make_mesh((8,), ("trades",))
for fit, mesh in (*((black_scholes, mesh) for mesh in meshes), (heston, meshes[0])):
    found = risk(small_book(), dax(), fit, mesh=mesh, methods=(ClosedForm(), Fourier()))
    answers.append(all_numbers(found))
print(json.dumps(answers))
"""


@pytest.mark.costly
def test_eight_devices_give_what_one_gives():
    printed = run_on_eight_devices("-c", ON_DEVICES)
    *several, of_heston = json.loads(printed)
    methods = ClosedForm(), Fourier()
    alone = all_numbers(risk(small_book(), dax(), black_scholes, methods=methods))
    for shared in several:
        np.testing.assert_allclose(shared, alone, rtol=1e-12, atol=1e-13)
    alone = risk(small_book(), dax(), heston, methods=methods)
    np.testing.assert_allclose(of_heston, all_numbers(alone), rtol=1e-9, atol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("method", "axes"),
    [
        ("closed form", ["trades=8"]),
        ("Fourier", ["trades=8"]),
        ("Monte Carlo", ["paths=4", "trades=2"]),
    ],
)
def test_eight_devices_share_the_work_of_a_tile(method, axes):
    """Each has an eighth of the operations, of Greeks and of values."""
    printed = run_on_eight_devices(
        "-m", "tests.pricing.tiles_on_devices", method, *axes, JAXTAPE_TEST_COMPILER="optimizing"
    )
    found = json.loads(printed.splitlines()[-1])
    for program in ("greeks", "values"):
        assert 0.1 < found[program]["share"] < 1.15 / 8, found
    if method != "Monte Carlo":  # the gradient to the model is summed once
        sums = [sent for sent in found["greeks"]["collectives"] if sent[0] == "all-reduce"]
        assert sums == [["all-reduce", 0, 1]]
