"""What a fitted model says, differentiated to the quotes, against bumping a quote and calibrating again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import Calibration, calibrate, fit, quote_sensitivities
from pricing import BermudanSwaption, European, HullWhite, price
from pricing.market import SwaptionVols
from tests.helpers import dax, dax_heston, double, sample_market

pytestmark = double


@pytest.fixture(scope="module")
def found():
    return calibrate(dax().equities["DAX"].surface, dax_heston())


def worth(model):
    """A call between the quotes, and one beyond them."""
    values = [price(European(*of_one), model).value for of_one in ((4400.0, 0.7), (5800.0, 2.2))]
    return values[0] + 2.0 * values[1]


def bumped(place, step):
    """The value under the model that is fitted to the surface with one vol moved."""
    market = dax()
    vols = market.equities["DAX"].surface.vols.at[place].add(step)
    moved = eqx.tree_at(lambda m: m.equities["DAX"].surface.vols, market, vols)
    return float(worth(model_of(moved)["DAX"]))


model_of = fit(dax_heston())


@pytest.mark.parametrize("place", [(0, 4), (2, 7), (5, 0), (7, 12)])
def test_they_are_those_of_a_bump_and_a_new_calibration(found, place):
    """The fits to bumped quotes end at the rounding of the gradient; differences of fourth order."""
    sensitivities = quote_sensitivities(found, worth)
    step = 1e-4
    ups, downs = ([bumped(place, sign * n * step) for n in (1, 2)] for sign in (1.0, -1.0))
    differences = [up - down for up, down in zip(ups, downs, strict=True)]
    quotient = (8.0 * differences[0] - differences[1]) / (12.0 * step)
    scale = float(np.max(np.abs(sensitivities)))
    assert abs(quotient - float(sensitivities[place])) < 1e-5 * scale


def test_they_are_those_of_the_differentiated_fit(found):
    """All 104 of them, by reverse mode through `fit`, which expands the loss by other means."""
    sensitivities = quote_sensitivities(found, worth)
    surface = lambda m: m.equities["DAX"].surface.vols  # noqa: E731

    def value(vols):
        return worth(model_of(eqx.tree_at(surface, dax(), vols))["DAX"])

    wanted = eqx.filter_jit(jax.grad(value))(surface(dax()))
    assert sensitivities.shape == wanted.shape == (8, 13)
    np.testing.assert_allclose(
        sensitivities, wanted, rtol=0.0, atol=1e-5 * float(jnp.max(jnp.abs(wanted)))
    )


def test_gauss_newton_is_another_number_where_residuals_are_large(found):
    """The DAX leaves residuals of 1.3 vol points; a model's own vols leave none, and the two agree."""
    exact, approximate = (
        quote_sensitivities(found, worth, hessian=h) for h in ("exact", "gauss-newton")
    )
    scale = float(jnp.max(jnp.abs(exact)))
    assert float(jnp.max(jnp.abs(exact - approximate))) > 1e-3 * scale
    surface = dax().equities["DAX"].surface
    own = eqx.tree_at(lambda s: s.vols, surface, surface.vols + found.residuals)
    again = calibrate(own, dax_heston())
    exact, approximate = (
        quote_sensitivities(again, worth, hessian=h) for h in ("exact", "gauss-newton")
    )
    np.testing.assert_allclose(approximate, exact, atol=1e-6 * float(jnp.max(jnp.abs(exact))))


def test_of_a_bermudan_swaption_to_the_matrix_of_swaptions():
    """Against differences of the parameters at the zero of the gradient, by Newton's method."""
    market = sample_market()
    curve = market.curves["EUR"]
    vols = np.array([[0.12, 0.118], [0.117, 0.115], [0.114, 0.112], [0.11, 0.108]])
    quotes = SwaptionVols([1.0, 2.0, 3.0, 4.0], [1.0, 2.0], vols, curve="EUR")
    swaption = BermudanSwaption(0.05, [1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [1.0, 1.0, 1.0], "payer")
    worth = lambda model: price(swaption, model).value  # noqa: E731
    found = calibrate(quotes, HullWhite(curve, 0.05, 0.01))
    sensitivities = quote_sensitivities(found, worth)
    problem = found.problem
    assert problem is not None
    start = problem.parameters.free(found.model)

    @jax.jit
    def value(vols):
        moved = eqx.tree_at(lambda p: p.quotes.vols, problem, vols)
        slope = jax.grad(moved.loss)
        newton = lambda _, x: x - jnp.linalg.solve(jax.jacfwd(slope)(x), slope(x))  # noqa: E731
        return worth(moved.model(jax.lax.fori_loop(0, 5, newton, start)))

    step = 1e-4
    for place in ((0, 0), (1, 1), (3, 1)):
        up, down = (value(quotes.vols.at[place].add(sign * step)) for sign in (1.0, -1.0))
        quotient = float(up - down) / (2.0 * step)
        scale = float(jnp.max(jnp.abs(sensitivities)))
        assert abs(quotient - float(sensitivities[place])) < 1e-5 * scale


def test_what_cannot_be_differentiated_says_so(found):
    bare = Calibration(found.model, found.residuals, found.result, found.stats)
    with pytest.raises(ValueError, match="does not hold its problem: give what calibrate returned"):
        quote_sensitivities(bare, worth)
    with pytest.raises(ValueError, match="hessian must be 'exact' or 'gauss-newton', got 'bfgs'"):
        quote_sensitivities(found, worth, hessian="bfgs")
