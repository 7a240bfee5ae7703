"""Roots and fixed points: values, implicit derivatives of two orders, on a tape, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt


def circle(p):
    """The root of two coupled equations, which has the closed form x = y = sqrt(p / 2)."""

    def f(x):
        return {"on": x["a"] ** 2 + x["b"] ** 2 - p, "off": x["a"] - x["b"]}

    renamed = lambda x: dict(zip(("a", "b"), f(x).values(), strict=True))
    return jt.root(renamed, {"a": jnp.ones_like(p), "b": 0.5 * jnp.ones_like(p)})["a"]


@pytest.mark.costly
def test_a_root_has_the_derivatives_of_its_closed_form():
    p = jnp.float64(5.0)
    exact = lambda p: jnp.sqrt(0.5 * p)
    for derivative in (lambda f: f, jax.grad, lambda f: jax.grad(jax.grad(f)), jax.hessian):
        np.testing.assert_allclose(derivative(circle)(p), derivative(exact)(p), rtol=1e-12)
    batch = jnp.array([2.0, 8.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(circle))(batch), exact(batch), rtol=1e-13)
    jt.check_gradient(circle, p)
    jt.check_duality(circle, (p,))


def kepler(e, mean):
    """The eccentric anomaly: x = mean + e sin x."""
    return jt.fixed_point(lambda x: mean + e * jnp.sin(x), mean)


def test_a_fixed_point_is_the_root_and_has_its_derivative():
    e, mean = jnp.float64(0.6), jnp.float64(0.8)
    x = kepler(e, mean)
    assert abs(x - e * jnp.sin(x) - mean) < 1e-15
    np.testing.assert_allclose(
        jax.grad(kepler)(e, mean), jnp.sin(x) / (1.0 - e * jnp.cos(x)), rtol=1e-13
    )
    by_newton = jt.root(lambda x: x - e * jnp.sin(x) - mean, mean)
    np.testing.assert_allclose(x, by_newton, rtol=1e-15)
    jt.check_gradient(kepler, e, mean)


def test_single_precision_is_right_to_rounding():
    found = circle(jnp.float32(5.0))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.sqrt(2.5), rtol=3e-7)
    np.testing.assert_allclose(jax.grad(circle)(jnp.float32(5.0)), 0.25 / np.sqrt(2.5), rtol=1e-6)


def test_an_implicit_step_of_a_tape_keeps_its_state_alone():
    """Implicit Euler of x' = -p x^3: the gradient is that of the unrolled search."""

    def step(p, x):
        return jt.root(lambda y: y + 0.1 * p * y**3 - x, x)

    def unrolled(p, x):
        y = x
        for _ in range(8):
            y = y - (y + 0.1 * p * y**3 - x) / (1.0 + 0.3 * p * y**2)
        return y

    params, start = jnp.linspace(0.5, 1.5, 9), jnp.array([1.0, 2.0])
    total = lambda step, schedule: (
        lambda params: jnp.sum(
            jt.Tape().with_schedule(schedule).append(jax.vmap(step, (None, 0)), params)(start)
        )
    )
    expected = jax.grad(total(unrolled, jt.StoreAll()))(params)
    for schedule in (jt.StoreAll(), jt.Revolve(2)):
        found = jax.grad(total(step, schedule))(params)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "search",
    [
        lambda p: jt.root(lambda x: x**2 + p, jnp.float64(1.0)),  # no root
        lambda p: jt.root(lambda x: 0.0 * x + p, jnp.float64(1.0)),  # a singular Jacobian
        lambda p: jt.fixed_point(lambda x: 2.0 * x + p, jnp.float64(1.0), max_steps=20),  # expands
        lambda p: jt.root(lambda x: x**3 - p, jnp.float64(100.0), max_steps=2),
    ],
    ids=["no root", "singular", "expands", "too few steps"],
)
def test_a_search_that_does_not_end_is_nan_with_its_derivative(search):
    value, derivative = jax.value_and_grad(search)(jnp.float64(1.0))
    assert np.isnan(value) and np.isnan(derivative)


def test_a_root_at_zero_needs_an_absolute_tolerance_at_most():
    shifted = lambda x: jnp.exp(x) - 1.0
    assert abs(jt.root(shifted, jnp.float64(0.5), atol=1e-12)) < 1e-15


def test_what_is_no_equation_is_refused():
    with pytest.raises(TypeError, match="one number for each unknown"):
        jt.root(lambda x: jnp.stack([x, x]), 1.0)
    with pytest.raises(TypeError, match="floats of one dtype"):
        jt.root(lambda x: x - 1, 1)


@pytest.mark.parametrize("solve", ["root", "fixed_point"])
def test_an_entry_far_below_the_largest_is_as_right_as_alone(solve):
    """The search ended by the largest entry: .0034 for .001 beside 1e8."""
    if solve == "root":
        f = lambda x: {"big": x["big"] - 1e8, "small": x["small"] ** 3 - 1e-9}
    else:
        slow = lambda b: 0.9 * b + 1e-4 * jnp.sqrt(1e-3 / b)
        f = lambda x: {"big": 0.0 * x["big"] + 1e8, "small": slow(x["small"])}
    one = jnp.ones(())
    found = getattr(jt, solve)(f, {"big": one, "small": one}, atol=0.0)
    rtol = 1e-9 if one.dtype == jnp.float64 else 1e-3
    np.testing.assert_allclose([found["big"], found["small"]], [1e8, 1e-3], rtol=rtol)


def test_an_entry_that_is_zero_keeps_the_rounding_of_the_others():
    matrix = jnp.array([[2.0, 0.3, -0.4], [0.1, 1.0, 0.7], [-0.5, 0.2, 1.5]])
    right = jnp.array([0.0, 2.0, 0.0])
    f = lambda x: matrix @ (x + x**3) - matrix @ (right + right**3)
    found = jt.root(f, jnp.ones(3))
    np.testing.assert_allclose(found, right, atol=16 * float(jnp.finfo(found.dtype).eps))
