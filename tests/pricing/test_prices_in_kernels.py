"""A simulated price whose time loop is two kernels has the derivatives that it has without them."""

import equinox as eqx
import jax
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.kernels.sweeps import KernelSweeps
from jaxtape.sweeps import by_platform, kernel_executor
from pricing import European, price
from pricing.methods import MonteCarlo

from ..helpers import all_models


def _value_and_gradient(model):
    method = MonteCarlo(num_paths=256, num_steps=5, block=256, schedule=jt.Revolve(2))
    product, key = European(100.0, 0.7), jax.random.key(1)
    return eqx.filter_value_and_grad(lambda model: price(product, model, method, key=key).value)(
        model
    )


@pytest.fixture
def forget():
    """Return the function by which no trace of before is taken again; called once more after the test."""
    yield jax.clear_caches
    jax.clear_caches()


@pytest.mark.repeat
def test_gradient_of_a_price(forget, monkeypatch):
    """Under Heston, whose scheme has other constants at each step, which have cotangents."""
    model = all_models["heston on curve"]()
    expected = jax.tree.leaves(eqx.filter_jit(_value_and_gradient)(model))
    forget()
    found, decide = [], kernel_executor.kernels_or_reason

    def seen(*args):
        found.append(decide(*args))
        return found[-1]

    monkeypatch.setattr(by_platform, "CPUS_ARE_OTHERS", True)
    monkeypatch.setattr(kernel_executor, "INTERPRETED_FOR", "gpu")
    monkeypatch.setattr(kernel_executor, "_KINDS", {})
    monkeypatch.setattr(kernel_executor, "kernels_or_reason", seen)
    monkeypatch.setattr("jaxtape.jax_settings.kernels._on", True)
    in_kernels = jax.tree.leaves(eqx.filter_jit(_value_and_gradient)(model))
    assert found and all(isinstance(each, KernelSweeps) for each in found), found
    for a, b in zip(in_kernels, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
