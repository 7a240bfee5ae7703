"""A method from outside of the packages: Cox, Ross and Rubinstein's tree."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    American,
    Bermudan,
    BlackScholes,
    Book,
    ClosedForm,
    European,
    Quadrature,
    price,
)
from pricing import risk as value_and_risk
from pricing.market import MarketState
from pricing.methods import AbstractMethod
from pricing.models import BlackVol
from pricing.products import SpotOption
from tests.helpers import dax


class Tree(AbstractMethod):
    """Rights to exercise at any time, on a binomial tree (Cox, Ross and Rubinstein 1979)."""

    is_random: ClassVar[bool] = False

    num_steps: int = eqx.field(static=True, default=400)

    def lacks(self, product, model):
        if not (isinstance(product, SpotOption) and product.any_time):
            return f"{type(product).__name__} has no right to exercise at any time"
        if not isinstance(model, BlackVol) or not model.is_constant:
            return f"{type(model).__name__} has no constant volatility"
        return None

    def samples(self, product, model, *, key=None):
        del key
        expiry = product.exercise_times()[-1]
        vol = model.black_vol(expiry, product.strike)
        dt = expiry / self.num_steps
        up = jnp.exp(vol * jnp.sqrt(dt))
        growth = model.forward(dt) / model.spot
        chance = (growth - 1.0 / up) / (up - 1.0 / up)
        ups = jnp.arange(self.num_steps + 1, dtype=up.dtype)

        def exercised(step):
            spots = model.spot * up ** (2.0 * ups - step)
            pays = lambda spot: product.exercise_value(step * dt, MarketState(spot))  # noqa: E731
            return jax.vmap(pays)(spots)

        def back(values, step):
            later = jnp.concatenate([values[1:], values[-1:]])
            held = model.discount(dt) * (chance * later + (1.0 - chance) * values)
            return jnp.maximum(held, exercised(step)), None

        last = jnp.maximum(exercised(jnp.asarray(self.num_steps, up.dtype)), 0.0)
        values, _ = jax.lax.scan(back, last, jnp.arange(self.num_steps - 1, -1, -1.0, up.dtype))
        return values[0]


MODEL = BlackScholes(100.0, 0.05, 0.25, 0.02)


@pytest.mark.parametrize("product", [American(95.0, 1.0, "call"), American(105.0, 1.0)])
def test_it_agrees_with_the_methods_of_the_house(product):
    np.testing.assert_allclose(
        price(product, MODEL, Tree()).value, price(product, MODEL).value, rtol=1e-3
    )


def test_what_it_cannot_price_is_refused_in_its_words():
    product = Bermudan(European(105.0, 1.0), [0.5, 1.0])
    words = "Bermudan has no right to exercise at any time; would work: Quadrature"
    with pytest.raises(TypeError, match=words):
        price(product, MODEL, Tree())


def test_a_book_is_valued_by_it():
    book = Book.from_text(
        "id,type,underlying,quantity,option,strike,expiry\n"
        "E1,european,DAX,2,call,4400,2003-03-18\nA1,american,DAX,1,put,4400,2003-03-18\n"
    )
    flat = lambda market: {"DAX": BlackScholes(market.equities["DAX"].spot, 0.04, 0.3)}  # noqa: E731
    found = value_and_risk(book, dax(), flat, methods=(Tree(200), ClosedForm()))
    assert [trade.method for trade in found.trades] == ["ClosedForm", "Tree"]
    known = value_and_risk(book, dax(), flat, methods=(Quadrature(),)).trades[1].figures.value
    np.testing.assert_allclose(found.trades[1].figures.value, known, rtol=2e-3)
