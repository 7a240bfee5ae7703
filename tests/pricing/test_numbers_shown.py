"""The `repr` of models, contracts and results: what a notebook shows."""

import jax
import jax.numpy as jnp

from pricing import Barrier, BlackScholes, European, Heston, greeks, price
from pricing.market import VolSurface
from tests.helpers import all_models, all_products, double


@double
def test_numbers_and_words_are_shown():
    option = European([90.0, 100.0], 1.0, ["call", "put"])
    assert repr(option) == "European(strike=[90, 100], expiry=1, option=['call', 'put'])"
    assert "kind='down-and-out'" in repr(Barrier(100.0, 90.0, 1.0))
    model = BlackScholes(100.0, 0.05, 0.2)
    assert repr(model) == "BlackScholes(spot=100, rate=0.05, vol=0.2, dividend_yield=0)"
    assert "value=10.450584,\n  std_error=0,\n" in repr(price(European(100.0, 1.0), model))
    found = repr(greeks(European(100.0, 1.0), model))
    assert "  delta=0.63683065,\n" in found and "std_errors=Sensitivities(" in found


def test_a_number_has_the_digits_of_its_type():
    thirds = BlackScholes(jnp.float32(100.0), jnp.float32(0.3), jnp.float32(1.0) / 3.0)
    assert "rate=0.3, vol=0.3333333" in repr(thirds)


def test_what_has_no_short_numbers_is_shown_by_its_shape():
    surface = VolSurface(jnp.arange(1.0, 6.0), jnp.arange(1.0, 6.0), jnp.full((5, 5), 0.2))
    assert f"vols={'f64' if jnp.zeros(()).dtype == float else 'f32'}[5,5]" in repr(surface)
    shown = []
    jax.jit(lambda x: shown.append(repr(BlackScholes(x, 0.05, 0.2))) or x)(1.0)
    assert shown[0].startswith("BlackScholes(spot=f")
    abstract = jax.eval_shape(lambda: Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7))
    assert "ShapeDtypeStruct(shape=()" in repr(abstract)


def test_every_member_can_be_shown():
    for make in (all_models | all_products).values():
        member = make()
        assert repr(member).startswith(f"{type(member).__name__}(")
