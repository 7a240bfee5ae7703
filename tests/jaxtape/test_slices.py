"""A slice of an array that was moved is one of the array before, moved as the array was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtape.jax_private import dce_jaxpr, jaxpr_as_fun
from jaxtape.sweeps.slices import with_early_slices

X = jnp.arange(2.0 * 8 * 4 * 6).reshape(2, 8, 4, 6)
EARLY = {
    "of merged axes": lambda x: x.reshape(2, 192)[:, 24:72],
    "of a later axis": lambda x: x.reshape(2, 8, 24)[:, 2:6],
    "of an axis cut in two": lambda x: x.reshape(2, 2, 4, 4, 6)[:, :1],
    "of transposed axes": lambda x: jnp.transpose(x, (0, 2, 1, 3))[:, 1:3, 2:4],
    "without an axis": lambda x: lax.squeeze(x.reshape(2, 1, 8, 24), (1,))[:, 1:3],
    "behind several moves": lambda x: jnp.transpose(x, (1, 0, 2, 3)).reshape(8, 48)[2:4],
    "as a TPU's kernels write paths": lambda x: (
        jnp.swapaxes(x.reshape(2, 8, 4, 6), 1, 2).swapaxes(1, 2).reshape(1, 2, 192)[0][:, :48]
    ),
}
LATE = {
    "of parts of entries": lambda x: x.reshape(2, 192)[:, 20:70],
    "along two axes": lambda x: x.reshape(2, 192)[:1, :48],
    "with strides": lambda x: x.reshape(16, 24)[::2],
    "of a product": lambda x: (2.0 * x)[:, :3],
}


def slices(function):
    """The program of a function of X with early slices, and the equations that slice X itself or others."""
    program = with_early_slices(jax.make_jaxpr(function)(X))
    jaxpr, _ = dce_jaxpr(program.jaxpr, [True])
    found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "slice"]
    of_x = [eqn for eqn in found if eqn.invars == jaxpr.invars]
    return program, of_x, [eqn for eqn in found if eqn not in of_x]


@pytest.mark.parametrize("function", EARLY.values(), ids=EARLY.keys())
def test_slices_before_moves(function):
    program, (early,), late = slices(function)
    assert not late
    assert early.outvars[0].aval.size == function(X).size
    np.testing.assert_array_equal(*jaxpr_as_fun(program)(X), function(X))


@pytest.mark.parametrize("function", LATE.values(), ids=LATE.keys())
def test_slices_that_stay(function):
    program, early, (late,) = slices(function)
    assert not early and late.outvars[0].aval.shape == function(X).shape
    np.testing.assert_array_equal(*jaxpr_as_fun(program)(X), function(X))
