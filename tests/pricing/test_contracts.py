"""From trades to products: dates become times, lists of dates are padded, and padding changes no value."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Asian,
    Autocallable,
    Barrier,
    BlackScholes,
    Book,
    ClosedForm,
    DoubleBarrier,
    Heston,
    MonteCarlo,
    price,
)
from pricing.portfolio.batching import products_of, shape_key
from pricing.products import AverageClaim, DiscreteBarrier
from pricing.sensitivities import means_and_errors, sensitivities
from tests.helpers import dax, dax_black_scholes, desk_book, desk_market, double

DATES = [0.3, 0.55, 0.8]
MEASURES = ("value", "delta", "gamma", "vega", "theta", "rho")
models = {
    "black-scholes": lambda: BlackScholes(100.0, 0.05, 0.25, 0.02),
    "heston": lambda: Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7, 0.01),
}
contracts = {
    "asian": lambda: Asian(102.0, DATES),
    "geometric asian": lambda: Asian(98.0, DATES, "put", "geometric"),
    "knock-out": lambda: Barrier(105.0, 0.8, 95.0, rebate=1.0, dates=DATES),
    "knock-in": lambda: Barrier(95.0, 0.8, 110.0, "up-and-in", "put", 1.0, dates=DATES),
    "double knock-out": lambda: DoubleBarrier(100.0, 80.0, 125.0, DATES, rebate=1.0),
    "autocallable": lambda: Autocallable(DATES, [0.02, 0.04, 0.06], 103.0, 80.0, 100.0, 50.0),
}


def figures(product, model, method, key=None):
    found, errors = _means_and_errors(product, model, method, key)
    names = [name for name in MEASURES if getattr(found, name) is not None]
    rows = ([float(getattr(x, name)) for name in names] for x in (found, errors))
    return names, *map(np.array, rows)


@eqx.filter_jit
def _means_and_errors(product, model, method, key):
    """As a book has them: without volga."""
    along = lambda shifted: jax.jvp(shifted, (jnp.zeros(()),), (jnp.ones(()),))[1]
    vol, rate = (along(lambda by, k=k: model.shifted(**{k: by})) for k in ("vol", "rate"))
    return means_and_errors(sensitivities(product, model, method, key, vol, rate), method)


def _padded():
    """At every run averages under one model and what is watched under the other, whose programs are smaller."""
    for contract, model in itertools.product(contracts, models):
        is_fast = ("asian" in contract) == (model == "black-scholes")
        yield pytest.param(contract, model, marks=[] if is_fast else pytest.mark.slow)


@pytest.mark.costly
@double
@pytest.mark.parametrize(("contract", "model"), list(_padded()))
def test_padding_changes_no_figure_of_monte_carlo(contract, model):
    """To four standard errors: the paths are others."""
    product = contracts[contract]().canonical
    method, key = MonteCarlo(16384, 12, block=8192), jax.random.key(3)
    names, plain, error = figures(product, models[model](), method, key)
    padded_names, padded, padded_error = figures(product.padded(4), models[model](), method, key)
    assert names == padded_names
    assert np.all(np.isfinite(plain) & np.isfinite(padded))
    assert np.all(np.abs(plain - padded) <= 4.0 * np.hypot(error, padded_error) + 1e-9)


@double
def test_padding_changes_no_digit_of_a_closed_form():
    """Of a geometric average, whose repeated fixings are perfectly correlated."""
    product, model = Asian(98.0, DATES, "put", "geometric").canonical, models["black-scholes"]()
    _, plain, _ = figures(product, model, ClosedForm())
    for num_dates in (4, 8, 52):
        _, padded, _ = figures(product.padded(num_dates), model, ClosedForm())
        np.testing.assert_allclose(padded, plain, rtol=1e-11)


def test_padding_repeats_the_first_date_and_opens_the_corridor_after_it():
    product = Barrier(105.0, 0.8, 95.0, rebate=1.0, dates=DATES).canonical.padded(5)
    one = pytest.approx
    assert product.dates.tolist() == one([0.3, 0.3, 0.3, 0.55, 0.8])
    assert product.lower.tolist() == one([95.0, 0.0, 0.0, 95.0, 95.0])
    assert product.upper.tolist() == [np.inf] * 5
    assert product.paid_below.tolist() == one([1.0, 0.0, 0.0, 1.0, 1.0])
    average = Asian(102.0, DATES).canonical.padded(5)
    assert average.weights.tolist() == one([1 / 9, 1 / 9, 1 / 9, 1 / 3, 1 / 3])


def test_what_cannot_be_padded_says_so():
    product = Barrier(105.0, 0.8, 95.0, dates=DATES).canonical
    with pytest.raises(ValueError, match="3 dates cannot be padded to 2"):
        product.padded(2)


def test_a_contract_of_one_date_is_padded_on_the_way_to_it():
    product = Barrier(105.0, 0.8, 95.0, rebate=1.0, dates=[0.8]).canonical.padded(3)
    assert product.dates.tolist() == pytest.approx([0.4, 0.4, 0.8])
    assert product.lower.tolist() == pytest.approx([0.0, 0.0, 95.0])
    note = Autocallable([0.8], [0.02], 103.0, 80.0, 100.0, knock_in=70.0).canonical.padded(2)
    assert note.knock_in.tolist() == pytest.approx([0.0, 70.0])  # watched on the date alone


HEADER = (
    "id,type,underlying,option,strike,expiry,averaging_dates,average,barrier,barrier_type,"
    "monitoring_dates,exercise_dates,weights"
)
MONTHS = ("2002-08-05", "2002-09-05", "2002-10-07", "2002-11-05", "2002-12-05", "2003-01-06")


def book(*rows):
    found = Book.from_text("\n".join([HEADER, *rows]))
    assert found.errors == ()
    return found.trades


def asian(name, count, average="geometric"):
    return f"{name},asian,DAX,call,4400,,{'|'.join(MONTHS[:count])},{average},,,,,"


def test_lists_of_various_lengths_are_one_batch_in_the_order_of_the_trades():
    trades = book(asian("A", 5), asian("B", 6), asian("C", 5))
    assert len({shape_key(trade) for trade in trades}) == 1
    batch = products_of(trades, dax())
    assert isinstance(batch, AverageClaim) and batch.dates.shape == (3, 6)
    for index, trade in enumerate(trades):
        times = [dax().time(day) for day in trade.averaging_dates]
        np.testing.assert_allclose(batch.dates[index, -len(times) :], times, rtol=1e-6)
        alone = Asian(4400.0, times, average="geometric")
        wanted = price(alone, dax_black_scholes(), ClosedForm()).value
        found = price(batch, dax_black_scholes(), ClosedForm()).value[index]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_keys_tell_programs_apart():
    barrier = "X{},barrier,DAX,call,4400,{},,,4000,down-and-out,{},,"
    basket = "K{},basket,DAX|SX5E{},call,4400,2003-01-06,,{},,,,,"
    trades = book(
        asian("A", 3),
        asian("B", 3, "arithmetic"),
        asian("C", 6),
        barrier.format(1, "2003-01-06", ""),
        barrier.format(2, "2003-01-06", "|".join(MONTHS)),
        basket.format(1, "", "max"),
        basket.format(2, "", "min"),
        basket.format(3, "|SMI", "max"),
    )
    assert len({(trade.type, shape_key(trade)) for trade in trades}) == len(trades)


def test_a_barrier_without_dates_is_watched_all_the_time():
    row = "X{},barrier,DAX,call,4400,2003-01-06,,,4000,down-and-out,{},,"
    (watched,), (looked_at,) = book(row.format(1, "")), book(row.format(2, "2003-01-06"))
    assert isinstance(products_of([watched], dax()), Barrier)
    assert isinstance(products_of([looked_at], dax()), DiscreteBarrier)


def test_the_weights_of_a_basket_are_equal_unless_given():
    row = "K{},basket,DAX|SX5E,call,4400,2003-01-06,,arithmetic,,,,,{}"
    batch = products_of(book(row.format(1, ""), row.format(2, "0.7|0.4")), dax())
    np.testing.assert_allclose(batch.weights, [[0.5, 0.5], [0.7, 0.4]], rtol=1e-6)


@pytest.mark.costly
def test_every_trade_of_the_sample_book_becomes_a_contract():
    trades = desk_book().checked(desk_market()).trades
    groups: dict = {}
    for trade in trades:
        groups.setdefault((type(trade), trade.underlyings, shape_key(trade)), []).append(trade)
    sizes = [products_of(members, desk_market()).batch_shape for members in groups.values()]
    assert sum(size for (size,) in sizes) == len(trades)
