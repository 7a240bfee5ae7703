"""Objects in the wrong place are TypeErrors that name argument, value and remedy."""

import jax
import jax.numpy as jnp
import pytest

from calibration import calibrate
from pricing import (
    American,
    Asian,
    Basket,
    Bermudan,
    BlackScholes,
    Book,
    European,
    Fourier,
    Heston,
    LeastSquares,
    MonteCarlo,
    Quadrature,
    bounds,
    greeks,
    price,
    revalue,
    risk,
)
from pricing.market import MarketState
from pricing.products import SpotOption
from tests.helpers import double, sample_market, surface

pytestmark = double

CALL, MODEL, KEY = European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2), jax.random.key(0)
BOOK = Book.from_text("id,type,underlying,option,strike,expiry")
MARKET = sample_market()
FIT = lambda market: {}
WRONG = {
    "a method's name": (
        lambda: price(CALL, MODEL, "MonteCarlo"),
        r"method is 'MonteCarlo': give a method, such as MonteCarlo\(\), or None, as in price\(product, model",
    ),
    "the pair exchanged": (
        lambda: price(MODEL, CALL),
        r"product is a BlackScholes: give a product, such as European\(.*, as in price\(product, model, method",
    ),
    "a class for a product": (
        lambda: price(European, MODEL),
        r"product is the class European: give an object of it, European\(...\)",
    ),
    "a class for a model": (
        lambda: greeks(CALL, Heston),
        "model is the class Heston: give an object",
    ),
    "a model by its word": (
        lambda: greeks(CALL, model="heston"),
        "model is 'heston': give a model",
    ),
    "a method of no bounds": (
        lambda: bounds(American(100.0, 1.0), MODEL, MonteCarlo(), key=KEY),
        r"method is a MonteCarlo: give LeastSquares\(\), or None",
    ),
    "a budget with a fraction": (
        lambda: price(CALL, MODEL, budget=1e9),
        r"budget is 1000000000.0: give a whole number of bytes, such as 2\*\*30",
    ),
    "a strike for an option": (
        lambda: Bermudan(100.0, [0.5, 1.0]),
        r"payoff_product is 100.0: give an option on the spot, such as European\(100.0, 1.0\)",
    ),
    "a class for an option": (
        lambda: Bermudan(European, [0.5, 1.0]),
        "payoff_product is the class European: give an object of it",
    ),
    "a market for a book": (
        lambda: risk(MARKET, BOOK, FIT),
        "book is a Market: give a Book, such as Book.read",
    ),
    "a path for a market": (
        lambda: risk(BOOK, "market.json", FIT),
        "market is 'market.json': give a Market",
    ),
    "a model for a fit": (
        lambda: risk(BOOK, MARKET, MODEL),
        "fit is a BlackScholes: give a function",
    ),
    "a book for a fit": (lambda: revalue(BOOK, MARKET, BOOK, ()), "fit is a Book: give a function"),
    "quotes and model exchanged": (
        lambda: calibrate(Heston(100.0, 0.0, 0.04, 1.0, 0.04, 0.3, -0.5), surface()),
        r"model is a VolSurface: give the model to start from, such as Heston\(...\), as in calibrate",
    ),
    "the class of a model": (
        lambda: calibrate(surface(), Heston),
        "model is the class Heston: give",
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_an_object_in_the_wrong_place_is_a_type_error(wrong):
    call, message = wrong
    with pytest.raises(TypeError, match=message):
        call()


def test_one_reason_is_said_once():
    with pytest.raises(TypeError) as error:
        price(Basket(100.0, 1.0), MODEL)
    assert str(error.value).count("the model has one") == 1
    with pytest.raises(TypeError) as error:
        price(American(100.0, 1.0), BlackScholes(100.0, 0.05, surface()), MonteCarlo(), key=KEY)
    assert "would work" in str(error.value)


class Capped(European):
    """A call with at most 10."""

    def exercise_value(self, t, market):
        return jnp.minimum(super().exercise_value(t, market), 10.0)


class Floored(American):
    """A right to no less than 5."""

    def exercise_value(self, t, market):
        return jnp.maximum(super().exercise_value(t, market), 5.0)


@pytest.mark.parametrize("method", [None, Fourier(), MonteCarlo(64)])
def test_a_payoff_of_its_own_is_not_taken_for_a_call(method):
    with pytest.raises(TypeError, match="Capped overrides exercise_value, but methods use strike"):
        price(Capped(100.0, 1.0), MODEL, method, key=KEY)


@pytest.mark.parametrize("method", [None, LeastSquares(64), Quadrature()])
def test_nor_is_a_right_at_any_time(method):
    with pytest.raises(TypeError, match="Floored overrides exercise_value"):
        price(Floored(100.0, 1.0), MODEL, method, key=KEY)


@pytest.mark.parametrize("method", [None, LeastSquares(64), Quadrature()])
def test_nor_is_the_payoff_of_a_right_on_dates(method):
    capped = Bermudan(Capped(100.0, 1.0), [0.5, 1.0])
    state = MarketState(spot=jnp.asarray(150.0))
    assert float(capped.exercise_value(jnp.asarray(0.5), state)) == 10.0
    with pytest.raises(TypeError, match="Bermudan overrides exercise_value"):
        price(capped, MODEL, method, key=KEY)


def test_an_average_reads_the_weights_of_its_subclass():
    class LastCountsDouble(Asian):
        def weights_of(self, num_spots):
            weights = super().weights_of(num_spots)
            return weights.at[-1].multiply(2.0) / (1.0 + weights[-1])

    option = LastCountsDouble(100.0, [0.5, 1.0], average="geometric")
    assert option.canonical.weights.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert isinstance(CALL, SpotOption) and not CALL.has_own_payoff
