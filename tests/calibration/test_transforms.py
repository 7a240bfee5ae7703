"""Transforms: one-to-one onto their interval; parameters to the real line and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from calibration import Exp, ForwardVols, Identity, Tanh, calibrate
from calibration.parameters import FreeParameters, random_starts
from pricing.models import LognormalSpots
from tests.helpers import dax, double
from tests.references import dax_heston

pytestmark = double

INSIDE = {
    Exp: st.floats(1e-8, 1e8),
    Tanh: st.floats(-1.0 + 1e-9, 1.0 - 1e-9),
    Identity: st.floats(-1e8, 1e8),
    ForwardVols: st.floats(1e-8, 1e8),  # of a number
}
every_transform = pytest.mark.parametrize("transform", INSIDE)


@every_transform
@settings(deadline=None, max_examples=50, derandomize=True)
@given(data=st.data())
def test_there_and_back(transform, data):
    parameter = data.draw(INSIDE[transform])
    back = transform().to_parameter(transform().to_free(jnp.asarray(parameter)))
    np.testing.assert_allclose(back, parameter, rtol=1e-9, atol=1e-300)


@every_transform
@settings(deadline=None, max_examples=50, derandomize=True)
@given(free=st.floats(-18.0, 18.0))
def test_every_real_is_inside_and_maps_with_a_slope(transform, free):
    parameter, slope = jax.value_and_grad(transform().to_parameter)(jnp.asarray(free))
    low, high = {Tanh: (-1.0, 1.0), Identity: (-np.inf, np.inf)}.get(transform, (0.0, np.inf))
    assert low < parameter < high
    assert slope > 0.0


class Unknown(LognormalSpots):
    """A model that says nothing of a calibration."""

    spot: Array
    rate: Array
    vol: Array
    dividend_yield: float = 0.0
    asset_correlation: None = None

    def state_variance(self, t):
        return self.vol**2 * t

    def with_vol_shift(self, vol):
        return self


def test_a_model_survives_the_free_space_and_keeps_its_other_fields():
    model = dax_heston()
    parameters = FreeParameters.of(model)
    back = parameters.model(dax_heston(), parameters.free(model))
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_transforms_choose_what_is_free():
    model = dax_heston()
    parameters = FreeParameters.of(model, {"correlation": Tanh()})
    moved = parameters.model(model, parameters.free(model) + 1.0)
    np.testing.assert_allclose(moved.correlation, np.tanh(np.arctanh(model.correlation) + 1.0))
    assert eqx.tree_equal(eqx.tree_at(lambda m: m.correlation, moved, model.correlation), model)


def test_an_unknown_field_and_a_model_without_defaults_are_named():
    surface = dax().equities["DAX"].surface
    with pytest.raises(ValueError, match="Heston has no parameter 'kappa' to calibrate"):
        calibrate(surface, dax_heston(), transform={"kappa": Exp()})
    with pytest.raises(
        TypeError, match=r"Unknown does not say which of its fields are free .*transform="
    ):
        calibrate(surface, Unknown(*map(jnp.asarray, (100.0, 0.0, 0.2))))


def test_random_starts_begin_with_the_model_and_are_reproducible():
    model = dax_heston()
    parameters = FreeParameters.of(model)
    points = random_starts(parameters, model, 5, key=jax.random.key(3))
    assert points.shape == (5, 5)
    np.testing.assert_array_equal(points[0], parameters.free(model))
    np.testing.assert_array_equal(
        points, random_starts(parameters, model, 5, key=jax.random.key(3))
    )
    assert len({float(x) for x in points[:, 0]}) == 5
    with pytest.raises(ValueError, match="num_starts must be at least 1, got 0"):
        random_starts(parameters, model, 0, key=jax.random.key(3))


def test_a_parameter_without_a_range_cannot_start_at_random():
    parameters = FreeParameters.of(dax_heston(), {"spot": Exp()})
    with pytest.raises(TypeError, match="has no range for random starts of spot"):
        random_starts(parameters, dax_heston(), 2, key=jax.random.key(0))
