"""What a look at a driver tells of its form, wherever on the paths it has another, and whatever it reads."""

import math

import jax.numpy as jnp
import pytest

from pricing.fbsde import Jumps, Problem
from pricing.fbsde.dynamics.driver_form import (
    driver_forms,
    error_of_dates,
    reads_diagonal,
)

from .backward_problems import single

STRIKES, RATES = (jnp.array(row, jnp.float32) for row in ([90.0, 100.0, 110.0], [0.01, 0.02, 0.03]))


def posed(driver, terminal, dim=1, **options) -> Problem:
    """Lognormal assets of which the first is paid by."""
    x0 = jnp.full(dim, 100.0, jnp.float32)
    moves = {"drift": lambda t, x: 0.05 * x, "diffusion": lambda t, x: 0.2 * x}
    problem = Problem(
        dim, 1.0, x0, driver=driver, terminal=terminal, num_steps=4, **moves, **options
    )
    return single(problem)


def of_one(driver, **options):
    return posed(driver, lambda x: jnp.maximum(x[0] - 100.0, 0.0), **options)


def of_three(driver):
    return posed(driver, lambda x: jnp.maximum(x[0] - STRIKES, 0.0))


def later(t):
    return jnp.where(t > 0.3, 1.0, 0.0)


AFFINE = {
    "discounting": (lambda t, x, y, z: -0.05 * y, True),
    "with a cost of delta": (lambda t, x, y, z: -0.05 * y + 0.1 * jnp.sum(z) + x[0], True),
    "cubic": (lambda t, x, y, z: -0.05 * y + y - y**3, False),
    "quadratic later": (lambda t, x, y, z: -0.05 * y - later(t) * 1e-2 * y**2, False),
    "absolute far up": (
        lambda t, x, y, z: -0.05 * y - jnp.where(x[0] > 101.0, jnp.abs(y), 0.0),
        False,
    ),
    "of two rates": (lambda t, x, y, z: -0.05 * y + 0.02 * jnp.maximum(jnp.sum(z) - y, 0.0), False),
}


@pytest.mark.parametrize(("driver", "expected"), AFFINE.values(), ids=AFFINE)
def test_affine(driver, expected):
    assert driver_forms(of_one(driver)).is_affine is expected


DISCOUNTS = {
    "one rate": (lambda t, x, y, z: -0.05 * y, True),
    "a rate of time and state": (lambda t, x, y, z: -(0.05 * t + 1e-4 * x[0]) * y, True),
    "a rate for each": (lambda t, x, y, z: -RATES * y, False),
    "z later": (lambda t, x, y, z: -0.05 * y + later(t) * 0.1 * jnp.sum(z, -1), False),
    "what is paid": (lambda t, x, y, z: -0.05 * y + 1.0, False),
}


@pytest.mark.parametrize(("driver", "expected"), DISCOUNTS.values(), ids=DISCOUNTS)
def test_discounting(driver, expected):
    assert driver_forms(of_three(driver)).discounts is expected


@pytest.mark.parametrize("level", [-30.0, -5.0, 0.5, 5.0, 15.0, 40.0])
@pytest.mark.parametrize("strike", [85.0, 120.0])
def test_a_rate_beyond_a_level_is_found_in_and_out_of_the_money(level, strike):
    """Funding costs more, or earns less, beyond a value that the claim can reach."""
    beyond = lambda y: jnp.maximum(math.copysign(1.0, level) * (y - level), 0.0)
    funded = posed(
        lambda t, x, y, z: -0.04 * y - 0.02 * beyond(y), lambda x: jnp.maximum(x[0] - strike, 0.0)
    )
    forms = driver_forms(funded)
    assert not forms.discounts
    assert not forms.is_affine


def at_end(x):
    return jnp.maximum(x[0] - 100.0, 0.0)


def exact(t, dt, x, dw):
    return x * jnp.exp(0.03 * dt + 0.2 * dw)


def better_than_euler(t, dt, x, dw):
    return x * (1.0 + 0.05 * dt + 0.2 * dw + 0.02 * (dw**2 - dt))


FEW = Jumps(1e-3, lambda x, z: x * jnp.exp(0.1 * z), most=6)
OF_DATES = {
    "no driver": ({"driver": lambda t, x, y, z: 0.0 * y}, 0.0),
    "one rate": ({}, 3e-7),
    "long steps": ({"maturity": 10.0}, 3e-4),
    "Euler steps": ({"step": None}, math.inf),
    "a step that is not exact": ({"step": better_than_euler, "step_is_exact": False}, math.inf),
    "a rate of time": ({"driver": lambda t, x, y, z: -0.05 * t * y}, 0.05),
    "a rate of the state": ({"driver": lambda t, x, y, z: -1e-4 * x[0] * y}, 0.01),
    "a payment": ({"driver": lambda t, x, y, z: -0.05 * y + 1.0}, math.inf),
    "a driver of z": ({"driver": lambda t, x, y, z: -0.05 * y + 0.1 * z[0]}, math.inf),
    "a nonlinear driver": ({"driver": lambda t, x, y, z: -0.05 * y - y**2}, math.inf),
    "proportional jumps": ({"jumps": FEW}, 3e-7),
    "jumps of an amount": ({"jumps": Jumps(1e-3, lambda x, z: x + z, most=6)}, math.inf),
}


@pytest.mark.parametrize(("given", "expected"), OF_DATES.values(), ids=OF_DATES)
def test_errors_of_dates(given, expected):
    """Eight steps at 5 % a year, where nothing else is given."""
    options = {"maturity": 1.0, "driver": lambda t, x, y, z: -0.05 * y, "step": exact} | given
    moves = {"drift": lambda t, x: 0.05 * x, "diffusion": lambda t, x: 0.2 * x}
    problem = single(Problem(1, x0=100.0, terminal=at_end, num_steps=8, **moves, **options))
    found = error_of_dates(problem, driver_forms(problem))
    assert found == expected or expected / 3.0 < found < 3.0 * expected < math.inf


OF_EACH = {
    "a rate for each": (lambda t, x, y, z: -RATES * y, True),
    "squares": (lambda t, x, y, z: -RATES * y**2 + jnp.sum(z**2, -1), True),
    "the others' mean": (lambda t, x, y, z: -RATES * jnp.mean(y), False),
    "the others' mean beside a square": (lambda t, x, y, z: -0.05 * jnp.mean(y) - y**2, False),
    "the others' mean beside a square of z": (
        lambda t, x, y, z: -0.05 * jnp.mean(y) - 0.5 * jnp.sum(z**2, -1),
        False,
    ),
    "beyond floats": (lambda t, x, y, z: -0.05 * y + 0.01 * jnp.exp(-10.0 * y), True),
    "not a number": (lambda t, x, y, z: -0.05 * y + jnp.sqrt(x[0] - 95.0), True),
    "the others' z": (lambda t, x, y, z: -RATES * y + 0.1 * jnp.sum(z), False),
    "the others' value later": (lambda t, x, y, z: -RATES * y - later(t) * 0.1 * y[::-1], False),
}


@pytest.mark.parametrize(("driver", "expected"), OF_EACH.values(), ids=OF_EACH)
def test_of_each(driver, expected):
    assert driver_forms(of_three(driver)).is_of_each is expected


GAMMA = {
    "the diagonal": (lambda t, x, y, z, g: 0.1 * jnp.trace(g), True),
    "a bend of the diagonal": (lambda t, x, y, z, g: jnp.maximum(g[0, 0], 0.0), True),
    "across": (lambda t, x, y, z, g: 0.1 * jnp.sum(g), False),
    "across later": (lambda t, x, y, z, g: jnp.trace(g) + later(t) * 0.1 * g[0, 1], False),
}


@pytest.mark.parametrize(("driver", "expected"), GAMMA.values(), ids=GAMMA)
def test_gamma(driver, expected):
    problem = of_one(driver, dim=2, reads_gamma=True)
    assert reads_diagonal(problem) is expected
    assert not driver_forms(problem).is_affine and not driver_forms(problem).discounts
