"""A simulated price whose time loop is in kernels has the derivatives that it has without them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.kernels.run import KernelRun
from jaxtape.programs.rewritten import rewritten_for
from pricing import European, greeks, price
from pricing.methods import MonteCarlo
from pricing.models import Heston

from ..helpers import all_models
from ..helpers_kernels import run_kernels

PRODUCT, KEY = European(100.0, 0.7), jax.random.key(1)


def _value_and_gradient(schedule, model, product=PRODUCT, paths=256, steps=5):
    method = MonteCarlo(num_paths=paths, num_steps=steps, block=paths, schedule=schedule)
    return eqx.filter_value_and_grad(lambda model: price(product, model, method, key=KEY).value)(
        model
    )


def _greeks(schedule, model, product=PRODUCT, paths=256, steps=5):
    method = MonteCarlo(num_paths=paths, num_steps=steps, block=paths, schedule=schedule)
    return eqx.filter(greeks(product, model, method, key=KEY), eqx.is_array)


@pytest.fixture
def forget():
    """Return the function by which no trace of before is taken again; called once more after the test."""
    yield jax.clear_caches
    jax.clear_caches()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("function", "schedule"),
    [
        (_value_and_gradient, jt.Revolve(2)),
        pytest.param(_value_and_gradient, jt.StoreAll(), marks=pytest.mark.slow),
        (_greeks, jt.StoreAll()),
    ],
    ids=["gradient by a schedule", "gradient", "greeks"],
)
def test_derivatives_of_a_price(function, schedule, forget, monkeypatch):
    """Under Heston, whose scheme has other constants at each step, which have cotangents."""
    model = all_models["heston on curve"]()
    run = functools.partial(function, schedule)
    expected = jax.tree.leaves(eqx.filter_jit(run)(model))
    forget()
    found = run_kernels(monkeypatch, "gpu")
    in_kernels = jax.tree.leaves(eqx.filter_jit(run)(model))
    assert found and all(isinstance(each, KernelRun) for each in found), found
    for a, b in zip(in_kernels, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.costly
@pytest.mark.parametrize("function", [_value_and_gradient, _greeks], ids=["gradient", "greeks"])
def test_programs_of_a_tpu(function, forget, monkeypatch):
    """The program with joined kernels and kernels of scalars, in single precision."""
    with jax.enable_x64(False):
        product, model = European(100.0, 0.7), Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        leaves, structure = jax.tree.flatten(model)
        run = lambda *leaves: jax.tree.leaves(
            function(jt.Revolve(2), jax.tree.unflatten(structure, leaves), product, 2048, 20)
        )
        expected = jax.jit(run)(*leaves)
        forget()
        found = run_kernels(monkeypatch, "tpu")
        rewritten = rewritten_for("tpu", run)
        in_kernels = jax.jit(rewritten)(*leaves)
        assert found and all(isinstance(each, KernelRun) for each in found), found
        text = str(jax.make_jaxpr(rewritten)(*leaves))
        assert "name=scalars" in text and ("name=fused" in text) == (function is _greeks)
        for a, b in zip(in_kernels, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "dtype", "kernels", "copies"),
    [
        ("gpu:h100", jnp.float32, (9, 58, 12), 0),
        ("gpu:h100", jnp.float64, (7, 70, 12), 0),
        ("tpu:v5e:2x2", jnp.float32, (10, 74, 12), 8 + 5),
    ],
    ids=["gpu", "gpu in double precision", "tpu"],
)
def test_compiled_for_an_accelerator(target, dtype, kernels, copies):
    """Few kernels and no loop; memory holds the noise once, beside sums of steps between dates.

    A TPU also copies the eight parameters, and constants that it reads from fast memory.
    """
    method = MonteCarlo(num_paths=65536, num_steps=256, block=65536)

    def value(model, key):
        return price(European(100.0, 0.7), model, method, key=key).value

    def all_greeks(model, key):
        found = greeks(European(100.0, 0.7), model, method, key=key)
        return eqx.filter(found, eqx.is_array)

    gradient = eqx.filter_value_and_grad(value)
    of_noise = 65536 * 256 * jnp.dtype(dtype).itemsize
    jt.set_kernels(True)
    try:
        with jax.enable_x64(dtype == jnp.float64):
            model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
            functions = (value, 1.2), (gradient, 2.6), (all_greeks, 1.7)
            for (function, noises), most in zip(functions, kernels, strict=True):
                report = jt.compile_for(function, model, jax.random.key(0), target=target)
                assert report.compiles and not report.loops, report.reason
                assert report.copies <= copies
                assert report.kernels - report.copies <= most
                assert report.temporary_bytes <= noises * of_noise
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]' or 'jaxtape[tpu]'")
    finally:
        jt.set_kernels(False)
