"""What the tests of `jt.scan` beside `lax.scan` share: the schedules, a step, a comparison."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtape as jt

from .helpers_tape import all_schedules, assert_close

# None is StoreAll(), and for chains this short Revolve(100) is Revolve(23)
_twins = jt.StoreAll(), jt.Revolve(100)
_one_program = jt.Revolve(23), jt.Periodic(5), jt.Marked()  # that of slots on the host
_its_kinds = jt.Revolve(5), jt.Recursive(3), jt.MultiStage(device=2, host=3)


def _each_schedule(slow, later=()):
    marks = dict.fromkeys(later, pytest.mark.costly) | dict.fromkeys(slow, pytest.mark.slow)
    cases = [pytest.param(s, id=str(s), marks=marks.get(s, [])) for s in (None, *all_schedules)]
    return pytest.mark.parametrize("schedule", cases)


each_schedule = _each_schedule(_twins)
each_program = _each_schedule(_twins + _one_program, _its_kinds)
few_schedules = pytest.mark.parametrize("schedule", [jt.Revolve(1), jt.Revolve(3)], ids=str)


def with_schedule(schedule):
    return functools.partial(jt.scan, schedule=schedule)


def check(case: Callable, schedule, *arguments, rtol=1e-12, parameter=None):
    """`case(scan, *arguments)` is the same, leaf for leaf and type for type.

    What `lax.scan` gives is found once for all schedules; a test with another parameter names it.
    """
    key = case.__qualname__, parameter
    if key not in _desired:
        _desired[key] = _found(case, lax.scan, arguments)
    found, types = _found(case, with_schedule(schedule), arguments)
    assert types == _desired[key][1]
    assert_close(found, _desired[key][0], rtol=rtol)


_desired: dict = {}


def _found(case, scan, arguments):
    found = jax.tree.map(_as_data, jax.jit(functools.partial(case, scan))(*arguments))
    types = [(leaf.dtype, leaf.weak_type) for leaf in map(jax.typeof, jax.tree.leaves(found))]
    return found, types


def _as_data(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def summed(tree):
    """A loss of every inexact leaf."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    parts = (jnp.sum(jnp.abs(x) ** 2 + jnp.real(x)).astype(float) for x in leaves)
    return sum(parts, jnp.float64(0.0))


A, XS = jnp.float64(0.7), jnp.sin(jnp.arange(12.0)).reshape(6, 2)


def turn(a, carry, x):
    """The step of most cases: everything is read, and nothing is linear."""
    carry = jnp.sin(a * carry) + x
    return carry, carry * a


ONE, THREE = jnp.float64(1.0), jnp.arange(3.0)
