"""What is asked wrongly is refused in words: the value, what is wrong with it, and what would do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    RESULTS,
    Autocallable,
    Barrier,
    BlackScholes,
    ClosedForm,
    Digital,
    European,
    Fourier,
    Heston,
    MonteCarlo,
    greeks,
    price,
)
from pricing.valuation import select_method

CALL = European(100.0, 1.0)
BARRIER = Barrier(100.0, 1.0, 90.0)
LOGNORMAL = BlackScholes(100.0, 0.05, 0.2)
STOCHASTIC = Heston(100.0, 0.05, 0.04, 1.0, 0.04, 0.5, -0.5)


@pytest.mark.parametrize(
    ("product", "model", "method", "message"),
    [
        (
            CALL,
            STOCHASTIC,
            ClosedForm(),
            r"ClosedForm cannot price this: Heston has no Black vol.*would work: Fourier",
        ),
        (
            CALL,
            LOGNORMAL,
            Fourier(),
            r"BlackScholes has no characteristic function; would work: ClosedForm",
        ),
        (BARRIER, STOCHASTIC, Fourier(), r"Barrier has no terminal claim.*; would work: \w+"),
    ],
)
@pytest.mark.parametrize("verb", [price, greeks])
def test_a_pair_that_a_method_cannot_price(verb, product, model, method, message):
    with pytest.raises(TypeError, match=message):
        verb(product, model, method)


def test_a_pair_that_no_method_prices_names_what_each_lacks():
    message = r"no method prices Barrier under Heston \(Fourier: Barrier has no terminal claim.*\)"
    with pytest.raises(TypeError, match=message):
        select_method(BARRIER, STOCHASTIC, methods=(Fourier(),))


@pytest.mark.parametrize("verb", [price, greeks])
def test_a_random_method_asks_for_a_key(verb):
    with pytest.raises(
        ValueError, match=r"MonteCarlo draws random numbers: give key=jax.random.key\(seed\)"
    ):
        verb(CALL, STOCHASTIC, MonteCarlo())


NUMBERS = {"strike": 100.0, "expiry": 1.0, "barrier": 90.0}
PARAMETERS = dict(
    zip(
        (
            "spot",
            "rate",
            "initial_variance",
            "mean_reversion",
            "long_run_variance",
            "vol_of_vol",
            "correlation",
        ),
        (100.0, 0.05, 0.04, 1.0, 0.04, 0.5, -0.5),
        strict=True,
    )
)
FLAT = {"spot": 100.0, "rate": 0.05, "vol": 0.2}
BAD = [
    *((European, NUMBERS, "strike", x) for x in (0.0, -1.0, np.nan, np.inf, [100.0, -1.0])),
    *((European, NUMBERS, "expiry", x) for x in (0.0, -0.5, np.nan)),
    (European, NUMBERS, "option", "Call"),
    (European, NUMBERS, "option", ["call", "straddle"]),
    (Digital, NUMBERS, "payout", "gold"),
    (Digital, NUMBERS, "amount", np.inf),
    (Barrier, NUMBERS, "barrier", 0.0),
    (Barrier, NUMBERS, "rebate", -1.0),
    (Barrier, NUMBERS, "kind", "up-and-down"),
    (BlackScholes, FLAT, "spot", -100.0),
    (BlackScholes, FLAT, "rate", np.nan),
    (BlackScholes, FLAT, "dividend_yield", np.inf),
    (Heston, PARAMETERS, "spot", 0.0),
    (Heston, PARAMETERS, "initial_variance", -1e-9),
    (Heston, PARAMETERS, "mean_reversion", 0.0),
    (Heston, PARAMETERS, "long_run_variance", np.inf),
    (Heston, PARAMETERS, "vol_of_vol", 0.0),
    (Heston, PARAMETERS, "correlation", 1.01),
    (Heston, PARAMETERS, "correlation", np.nan),
]


@pytest.mark.parametrize(("kind", "good", "field", "bad"), BAD, ids=str)
def test_a_bad_number_or_word_is_named(kind, good, field, bad):
    """The message starts with the field, says what would do, and shows the value."""
    good = {name: x for name, x in good.items() if name in kind.__dataclass_fields__}
    kind(**good)
    with pytest.raises(ValueError, match=rf"^{field} must be .+, got ") as caught:
        kind(**(good | {field: bad}))
    shown = next(x for x in bad if x in ("straddle", -1.0)) if isinstance(bad, list) else bad
    assert str(shown).strip("'") in str(caught.value)


def test_text_for_a_number_is_named():
    with pytest.raises(TypeError, match="strike must be a finite number above 0, got 'cheap'"):
        European("cheap", 1.0)


def test_traced_numbers_are_not_looked_at():
    assert jnp.isnan(jax.jit(lambda strike: European(strike, 1.0).strike)(jnp.nan))


HOPELESS = eqx.tree_at(lambda m: m.vol, LOGNORMAL, jnp.asarray(jnp.nan))


@pytest.mark.parametrize("verb", [price, greeks])
def test_a_value_that_is_not_finite_raises_or_is_said(verb):
    found = verb(CALL, HOPELESS, throw=False)
    assert found.result == RESULTS.non_finite
    assert jnp.isnan(found.value)
    with pytest.raises(RuntimeError, match="The value is not finite"):
        verb(CALL, HOPELESS)


def test_a_derivative_raises_too_and_a_program_cannot():
    """Within a program nothing raises: what is not finite stays so, and the result says why."""

    def value(spot):
        return price(CALL, eqx.tree_at(lambda model: model.spot, HOPELESS, 100.0 + spot)).value

    for derivative in (jax.grad(value), jax.jacfwd(value), jax.hessian(value)):
        with pytest.raises(RuntimeError, match="The value is not finite"):
            derivative(0.0)
    found = eqx.filter_jit(price)(CALL, HOPELESS)
    assert found.result == RESULTS.non_finite
    assert jnp.isnan(found.value)


def test_the_tests_notice_a_host_callback():
    with pytest.raises(AssertionError, match="host callback"):
        jax.make_jaxpr(lambda x: eqx.error_if(x, x > 0.0, "positive"))(1.0)


def test_one_bad_contract_of_a_batch_leaves_the_others_their_values():
    batch = eqx.tree_at(
        lambda p: p.strike, European([90.0, 100.0], 1.0), jnp.asarray([jnp.nan, 100.0])
    )
    found = price(batch, LOGNORMAL, throw=False)
    assert found.result == RESULTS.non_finite
    np.testing.assert_allclose(found.value[1], price(CALL, LOGNORMAL).value, rtol=1e-6)


def test_the_method_that_was_taken_is_said():
    assert price(CALL, LOGNORMAL).stats["method"] == ClosedForm()
    assert price(CALL, STOCHASTIC).stats["method"] == Fourier()


def test_a_note_has_a_coupon_for_each_date():
    with pytest.raises(
        ValueError, match=r"coupons of shape \[1\] and dates of shape \[2\]: give one"
    ):
        Autocallable([0.5, 1.0], [0.02], 103.0, 80.0, 100.0)
