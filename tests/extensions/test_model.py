"""A model from outside of the packages: this file, and nothing elsewhere, prices, solves and calibrates it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from calibration import calibrate
from calibration.commands.fitting import label_of
from pricing import (
    American,
    European,
    Fourier,
    IntegralEquation,
    LeastSquares,
    MonteCarlo,
    Quadrature,
    VolSurface,
    greeks,
    price,
)
from pricing.fbsde import GradientRegression, from_product, solve
from pricing.fields import positive, real
from pricing.models import (
    BlackVol,
    Calibratable,
    CharacteristicFunction,
    Exp,
    FreeParameter,
    Identity,
    LognormalSpots,
)
from pricing.models.model import flat_or_curve
from tests.helpers import double

pytestmark = double


class DecayingVol(BlackVol, LognormalSpots, CharacteristicFunction, Calibratable):
    """Lognormal spots whose vol falls or rises to zero: sigma(t) = vol exp(-decay t)."""

    label: ClassVar[str] = "Decaying vol"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "vol": FreeParameter(Exp(), start=0.2, low=0.05, high=1.0),
        "decay": FreeParameter(Identity(), start=0.0, low=-0.5, high=0.5),
    }

    spot: Float[Array, ""] = positive("spot")
    rate: Any = flat_or_curve("rate")
    vol: Float[Array, ""] = positive("vol")
    decay: Float[Array, ""] = real("decay")
    dividend_yield: Float[Array, ""] = real("dividend_yield", default=0.0)
    correlation: None = None

    is_constant: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleMethodOverride]

    def state_variance(self, t):
        return -(self.vol**2) * jnp.expm1(-2.0 * self.decay * t) / (2.0 * self.decay)

    def black_vol(self, t, strike):
        del strike
        return jnp.sqrt(self.state_variance(t) / t)

    def log_characteristic(self, u, t):
        iu = u * jnp.asarray(1j, u.dtype)
        return -0.5 * self.state_variance(t).astype(u.dtype) * (u * u + iu)

    def total_variance(self, t):
        return self.state_variance(t)

    def tail_rate(self, t):
        return jnp.sqrt(self.state_variance(t)), jnp.zeros_like(t)

    def with_vol_shift(self, vol):
        return eqx.tree_at(lambda model: model.vol, self, self.vol + vol)


MODEL = DecayingVol(100.0, 0.03, 0.3, 0.4, 0.01)
CALL = European(105.0, 1.0)
PUT = American(105.0, 1.0, "put")


def test_methods_agree_on_it():
    known = price(CALL, MODEL).value  # in closed form
    np.testing.assert_allclose(price(CALL, MODEL, Fourier()).value, known, rtol=1e-9)
    found = price(CALL, MODEL, MonteCarlo(16384, 4), key=jax.random.key(1))
    assert abs(found.value - known) < 4.0 * found.std_error
    assert greeks(CALL, MODEL).vega > 0.0


def test_early_exercise_under_it():
    known = price(PUT, MODEL, Quadrature(num_nodes=800)).value
    found = price(PUT, MODEL, LeastSquares(8192, 8192, 16), key=jax.random.key(2))
    assert abs(found.value - known) < 4.0 * found.std_error + 0.01 * known
    with pytest.raises(TypeError, match="DecayingVol has no constant rate and volatility"):
        price(PUT, MODEL, IntegralEquation())


def test_a_backward_equation_of_it_is_solved():
    problem = from_product(CALL, MODEL, 8)
    solution = solve(problem, GradientRegression(num_paths=16384), key=jax.random.key(3))
    known = price(CALL, MODEL).value
    np.testing.assert_allclose(solution.value(0.0, problem.x0), known, rtol=2e-3)


def test_it_is_calibrated():
    expiries, strikes = jnp.array([0.5, 1.0, 2.0]), jnp.array([90.0, 100.0, 110.0])
    vols = jnp.broadcast_to(jax.vmap(MODEL.black_vol, (0, None))(expiries, 0.0)[:, None], (3, 3))
    start = DecayingVol(100.0, 0.03, 0.2, 0.1, 0.01)
    found = calibrate(VolSurface(expiries, strikes, vols), start, num_starts=2)
    np.testing.assert_allclose(found.model.vol, MODEL.vol, rtol=1e-6)
    np.testing.assert_allclose(found.model.decay, MODEL.decay, rtol=1e-6)
    assert label_of(found) == "Decaying vol"
