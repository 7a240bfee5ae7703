"""Functions that are compiled apart: the same numbers and derivatives, and calls that the compiler keeps."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt


def _parts(x, y):
    return jnp.where(x > 0.5, jnp.exp(x) * y, y * y), jnp.tanh(x + y)


_apart = jt.no_inline(_parts)
_POINT = (jnp.linspace(0.1, 0.9, 5), jnp.linspace(1.0, 2.0, 5))


def _twice(parts, x, y):
    return jnp.sum(functools.reduce(jnp.multiply, parts(*parts(x, y))))


_FUNCTIONS = {
    "value": lambda f: f,
    "gradient": lambda f: jax.grad(f, (0, 1)),
    "second derivatives": lambda f: jax.hessian(f, (0, 1)),
    "batch": lambda f: jax.vmap(f),
    "batch of gradients": lambda f: jax.vmap(jax.grad(f)),
}


def _calls(function, *args):
    text = jax.jit(function).lower(*args).compile().as_text()
    return len(re.findall(r" call\(", text))


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_numbers_and_derivatives_are_those_of_the_function(name):
    of_outlined, of_function = (
        _FUNCTIONS[name](functools.partial(_twice, parts)) for parts in (_apart, _parts)
    )
    found, expected = jax.jit(of_outlined)(*_POINT), jax.jit(of_function)(*_POINT)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6 if ours.dtype == np.float32 else 1e-13)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere a function is inlined")
@pytest.mark.parametrize(
    ("name", "calls"), {"value": 2, "gradient": 4, "batch": 2, "batch of gradients": 4}.items()
)
def test_the_compiler_keeps_the_calls_and_no_others(name, calls):
    """Forward and backward, one a place: not those of `jnp.where` inside."""
    assert _calls(_FUNCTIONS[name](functools.partial(_twice, _apart)), *_POINT) == calls
    assert _calls(_FUNCTIONS[name](functools.partial(_twice, _parts)), *_POINT) == 0


def test_arguments_that_are_no_arrays():
    @jt.no_inline(static_argnames="power")
    def raised(x, power):
        return x**power

    assert raised(2.0, 3) == raised(2.0, power=3) == 8.0
    assert jax.grad(raised)(2.0, 3) == 12.0


def test_a_program_for_other_platforms_has_no_such_calls():
    function = functools.partial(_twice, _apart)
    here = jt.load(jt.export(function, *_POINT))
    there = jt.load(jt.export(function, *_POINT, platforms=("cpu", "cuda")))
    assert ("inlineable" in here._exported.mlir_module()) == (jax.default_backend() == "cpu")
    assert "inlineable" not in there._exported.mlir_module()
    np.testing.assert_allclose(here(*_POINT), there(*_POINT), rtol=1e-6)
