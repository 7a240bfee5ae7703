"""Products in single precision, as on an accelerator: every entry point asks for all bits, if none chose."""

import jax
import jax.numpy as jnp
import pytest

import calibration
import pricing
from calibration.many import workers
from pricing import fbsde
from pricing.numerics.full_products import with_full_products

ENTRIES = [
    *(pricing.price, pricing.greeks, pricing.bounds, pricing.RiskEngine.__call__),
    *(fbsde.solve, fbsde.certify, fbsde.bounds, fbsde.hedging, fbsde.Solution._derivative),
    *(calibration.calibrate, calibration.fit, calibration.train, workers._ends_on),
    *(calibration.quote_sensitivities, calibration.market_sensitivities),
]


@with_full_products
def precision_of_a_product() -> str:
    (product,) = jax.make_jaxpr(lambda a: a @ a)(jnp.ones((2, 2))).eqns
    return str(product.params["precision"])


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_all_bits_are_kept(on_gpu):
    assert "HIGHEST" in precision_of_a_product()
    assert jax.config.jax_default_matmul_precision is None


def test_what_was_chosen_is_kept(on_gpu):
    with jax.default_matmul_precision("tensorfloat32"):
        assert "HIGHEST" not in precision_of_a_product()


def test_on_a_cpu_programs_are_as_they_were():
    assert precision_of_a_product() == "None"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__qualname__)
def test_every_entry_point_asks_for_it(entry):
    codes = {entry.__code__}
    while entry := getattr(entry, "__wrapped__", None):
        codes.add(entry.__code__)
    assert precision_of_a_product.__code__ in codes
