"""A batch of quotes or of models: refused with the remedy, which gives each its own fit."""

import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import AbstractObjective, SwaptionVolError, calibrate, fit
from calibration.objectives import objective_of
from pricing import Heston, HullWhite, VolSurface, ZeroCurve
from pricing.market import SwaptionVols
from tests.helpers import double, sample_market

pytestmark = double

HESTON = Heston(100.0, 0.03, 0.06, 1.0, 0.06, 0.5, -0.5)
SURFACE = VolSurface([0.5, 1.0, 2.0], [90.0, 100.0, 110.0], np.full((3, 3), 0.2))
RATES = HullWhite(ZeroCurve([1.0, 5.0], [0.03, 0.04]), 0.02, 0.02)
TRUTHS = ((0.08, 0.009), (0.03, 0.012))


def moved(tree, name, value):
    return eqx.tree_at(lambda t: getattr(t, name), tree, jnp.asarray(value))


def stacked(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@functools.cache
def swaptions():
    """The vols of two models."""
    blank = SwaptionVols([1.0, 2.0, 5.0], [1.0, 3.0], np.full((3, 2), 0.1), curve="EUR")
    truths = [HullWhite(RATES.curve, *truth) for truth in TRUTHS]
    vols = eqx.filter_jit(SwaptionVolError().vols)
    return [moved(blank, "vols", vols(truth, blank)) for truth in truths]


def alone(quotes, model, **settings):
    return calibrate(quotes, model, throw=False, **settings)


@pytest.mark.costly
def test_a_fit_within_jit_is_the_fit():
    quotes = swaptions()[0]
    inside = jax.jit(lambda quotes: alone(quotes, RATES).model)(quotes)
    for name, wanted in zip(("mean_reversion", "vol"), TRUTHS[0], strict=True):
        np.testing.assert_allclose(getattr(inside, name), wanted, rtol=1e-7)
        np.testing.assert_allclose(
            getattr(inside, name), getattr(alone(quotes, RATES).model, name), rtol=1e-10
        )


@pytest.mark.parametrize(
    "batch",
    [stacked(SURFACE, SURFACE), moved(SURFACE, "vols", np.full((2, 3, 3), 0.2))],
    ids=["surfaces", "vols"],
)
def test_a_batch_of_surfaces_is_refused_with_the_remedy(batch):
    said = re.escape("VolSurface has vols of shape (2, 3, 3). A calibration is of one model to one")
    with pytest.raises(ValueError, match=rf"{said}.*jax\.vmap\(lambda quotes: calibrate\("):
        alone(batch, HESTON)


def test_a_batch_of_swaption_vols_is_refused():
    with pytest.raises(ValueError, match=r"SwaptionVols has vols of shape \(2, 3, 2\).*jax\.vmap"):
        alone(stacked(*swaptions()), RATES)
    axes = moved(swaptions()[0], "tenors", [[1.0, 3.0], [2.0, 4.0]])
    with pytest.raises(
        ValueError, match=r"tenors of shape \(2, 2\) has vols of shape \(3, 2\).*jax\.vmap"
    ):
        alone(axes, RATES)


@pytest.mark.parametrize(
    ("model", "name", "shape"),
    [
        (stacked(HESTON, HESTON), "spot", (2,)),
        (moved(HESTON, "spot", [100.0, 90.0, 80.0]), "spot", (3,)),
        (moved(HESTON, "rate", [0.03, 0.02, 0.01]), "rate", (3,)),
        (moved(HESTON, "dividend_yield", [0.0]), "dividend_yield", (1,)),
        (moved(HESTON, "vol_of_vol", [0.5, 0.6, 0.7]), "vol_of_vol", (3,)),
    ],
)
def test_a_batch_of_models_is_refused_by_the_name_of_what_is_batched(model, name, shape):
    said = re.escape(f"Heston has a {name} of shape {shape}.")
    with pytest.raises(ValueError, match=rf"{said} .*jax\.vmap"):
        alone(SURFACE, model)


def test_a_batch_of_curves_is_refused():
    curve = moved(RATES.curve, "zero_rates", [[0.03, 0.03], [0.04, 0.04]])
    with pytest.raises(ValueError, match=r"zero rates of shape \(2, 2\).*jax\.vmap"):
        alone(swaptions()[0], eqx.tree_at(lambda model: model.curve, RATES, curve))


class TwoScenarios(AbstractObjective):
    """What a user may write, who would fit one model to both."""

    def residuals(self, model, quotes):
        return jnp.stack([quotes.vols, 1.1 * quotes.vols]) - model.vol


def test_residuals_of_a_batch_are_refused():
    said = re.escape("TwoScenarios has residuals of shape (2, 3, 2) for quotes of shape (3, 2)")
    with pytest.raises(ValueError, match=rf"{said}.*jax\.vmap"):
        alone(swaptions()[0], RATES, objective=TwoScenarios())


def test_a_list_of_surfaces_has_no_objective():
    with pytest.raises(TypeError, match="quotes are a list: give one of VolSurface, SmileQuotes"):
        objective_of([SURFACE, SURFACE])


@pytest.mark.costly
def test_the_remedy_fits_each_to_its_own():
    batch, models = stacked(*swaptions()), stacked(RATES, moved(RATES, "mean_reversion", 0.05))
    found = jax.vmap(alone)(batch, models)
    assert found.residuals.shape == (2, 3, 2)
    for index, quotes in enumerate(swaptions()):
        start = jax.tree.map(lambda leaf, i=index: leaf[i], models)
        single = alone(quotes, start)
        for name, truth in zip(("mean_reversion", "vol"), TRUTHS[index], strict=True):
            np.testing.assert_allclose(getattr(found.model, name)[index], truth, rtol=1e-6)
            np.testing.assert_allclose(getattr(single.model, name), truth, rtol=1e-6)


def test_what_cannot_be_done_for_a_batch_is_said():
    batch = stacked(SURFACE, SURFACE)
    for settings in ({}, {"progress": print}, {"progress": print, "throw": False}):
        with pytest.raises(ValueError, match="give progress=None and throw=False"):
            jax.vmap(lambda quotes, s=settings: calibrate(quotes, HESTON, **s))(batch)


@pytest.mark.costly
def test_a_fit_refuses_a_batch_of_markets_and_maps_over_it():
    empty = dataclasses.replace(
        sample_market(), curves={"EUR": RATES.curve}, equities={}, correlations={}
    )
    markets = [dataclasses.replace(empty, swaption_vols=quotes) for quotes in swaptions()]
    batch, model_of = stacked(*markets), fit(RATES)
    with pytest.raises(ValueError, match=r"of shape \(2, 3, 2\).*jax\.vmap\(fit\(model\)\)"):
        model_of(batch)
    models = jax.jit(jax.vmap(model_of))(batch)["EUR"]
    for index, (mean_reversion, vol) in enumerate(TRUTHS):
        np.testing.assert_allclose(models.mean_reversion[index], mean_reversion, rtol=1e-6)
        np.testing.assert_allclose(models.vol[index], vol, rtol=1e-6)
