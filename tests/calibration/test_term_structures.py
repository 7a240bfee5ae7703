"""Black-Scholes by its vol or its vols by expiry; models that read a surface leave nothing to fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import RESULTS, Exp, ForwardVols, calibrate, fit
from calibration.parameters import FreeParameters, random_starts
from pricing import BlackScholes, LocalVol, VolCurve, VolSurface
from tests.helpers import curve, dax, double, smile

pytestmark = double

EXPIRIES, STRIKES = np.array([0.25, 0.75, 2.0]), np.array([80.0, 100.0, 120.0])
VOLS = np.array([[0.3, 0.26, 0.25], [0.28, 0.25, 0.24], [0.26, 0.24, 0.23]])


def surface(vols=VOLS) -> VolSurface:
    return VolSurface(EXPIRIES, STRIKES, vols)


def terms(vols=(0.2, 0.2, 0.2), times=EXPIRIES) -> BlackScholes:
    return BlackScholes(100.0, curve(), VolCurve(times, vols), 0.02)


def test_one_vol_is_the_mean_of_all():
    found = calibrate(surface(), BlackScholes(100.0, curve(), 0.4, 0.02))
    np.testing.assert_allclose(found.model.vol, np.mean(VOLS), rtol=1e-8)


def test_vols_by_expiry_are_the_means_of_their_rows():
    found = calibrate(surface(), terms(), num_starts=4)
    assert found.result == RESULTS.converged
    np.testing.assert_allclose(found.model.vol.vols, np.mean(VOLS, axis=1), rtol=1e-7)
    np.testing.assert_allclose(found.model.vol.times, EXPIRIES)
    assert found.stats["starts_at_optimum"] == 4
    spread = VOLS - np.mean(VOLS, axis=1, keepdims=True)
    np.testing.assert_allclose(-found.residuals, spread, atol=1e-8)
    errors = np.sqrt(
        np.diag(found.stats["covariance"])
    )  # of a mean of three, from 9 - 3 free residuals
    np.testing.assert_allclose(errors, np.sqrt(np.sum(spread**2) / 6.0 / 3.0), rtol=1e-6)


def test_pillars_need_not_be_the_expiries():
    """Two pillars for three expiries: the least squares of numpy, which knows no transform."""
    found = calibrate(surface(), terms((0.3, 0.2), [0.5, 2.0]))
    best = np.asarray(found.model.vol.vols)

    def loss(vols):
        variances = np.interp(EXPIRIES, [0.0, 0.5, 2.0], [0.0, *(vols**2 * [0.5, 2.0])])
        return np.sum((np.sqrt(variances / EXPIRIES)[:, None] - VOLS) ** 2)

    least = loss(best)
    for step in np.random.default_rng(3).normal(0.0, 1e-4, (50, 2)):
        assert loss(best + step) > least


def test_total_variance_never_falls():
    """Whatever the quotes: their second expiry has an arbitrage, and the fit goes to a forward vol of 0."""
    low = VOLS.copy()
    low[1] = 0.1
    found = calibrate(
        surface(low), terms(), throw=False, max_steps=16
    )  # later it is 0 but for rounding
    totals = np.asarray(found.model.vol.total_variance(EXPIRIES))
    assert np.all(np.diff(totals, prepend=0.0) > 0.0)
    forward = (totals[1] - totals[0]) / 0.5
    assert forward < 1e-4
    with pytest.raises(ValueError, match="such quotes have an arbitrage"):
        VolCurve(EXPIRIES, np.mean(low, axis=1))


def test_every_point_of_the_free_space_is_a_term_structure():
    parameters = FreeParameters.of(terms())
    model = terms((0.3, 0.25, 0.24))
    free = parameters.free(model)
    np.testing.assert_allclose(parameters.values(free), [0.3, 0.25, 0.24], rtol=1e-13)
    expected = 0.5 * np.log(
        np.diff([0.0, *(model.vol.vols**2 * EXPIRIES)]) / np.diff([0, *EXPIRIES])
    )
    np.testing.assert_allclose(free, expected, rtol=1e-12)
    for point in 3.0 * np.random.default_rng(1).normal(size=(20, 3)):
        vols = np.asarray(parameters.model(model, jnp.asarray(point)).vol.vols)
        VolCurve(EXPIRIES, vols)  # refuses a total variance that falls
    points = random_starts(parameters, model, 5, key=jax.random.key(1))
    assert points.shape == (5, 3)
    drawn = parameters.values(points[2])
    assert np.all((drawn > 0.05 - 1e-9) & (drawn < 0.6 + 1e-9))


def test_a_transform_of_ones_own_is_of_the_vols():
    found = calibrate(surface(), terms(), transform={"vol": Exp()})
    np.testing.assert_allclose(found.model.vol.vols, np.mean(VOLS, axis=1), rtol=1e-5)
    assert FreeParameters.of(terms()).transforms[0].times.shape == (3,)
    assert ForwardVols().of_field(jnp.asarray(0.2)).times is None


@pytest.mark.costly
def test_the_fit_to_a_market_is_differentiable():
    """The vol of an expiry is the mean of its quotes, and so is its derivative."""
    market, quotes = dax(), dax().equities["DAX"].surface
    start = BlackScholes(1.0, 0.0, VolCurve(quotes.expiries, np.full(8, 0.3)))
    fitted = fit(start)

    def third(market):
        return fitted(market)["DAX"].vol.vols[2]

    np.testing.assert_allclose(third(market), np.mean(quotes.vols[2]), rtol=1e-9)
    slopes = jax.grad(third)(market).equities["DAX"].surface.vols
    expected = np.zeros((8, 13))
    expected[2] = 1.0 / 13.0
    np.testing.assert_allclose(slopes, expected, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [LocalVol(100.0, 0.03, smile()), BlackScholes(100.0, 0.03, surface())],
    ids=["local vol", "surface"],
)
def test_a_model_that_reads_a_surface_leaves_nothing_to_calibrate(model):
    with pytest.raises(TypeError, match="a VolSurface, and so reproduces every quote"):
        calibrate(surface(), model)
    with pytest.raises(TypeError, match="there is nothing to calibrate; price with"):
        fit(model)
