"""Fields of products and models hold arrays of their own, whatever they were given."""

import jax
import numpy as np
import pytest

from pricing import European
from pricing.fields import as_real


@pytest.mark.parametrize("count", [3, 100_000])
def test_an_array_of_the_user_may_change_afterwards(count):
    """JAX shares the memory of large NumPy arrays, unless they are copied."""
    strikes, option = np.full(count, 100.0), np.ones(count, np.int8)
    contract = European(strikes, 1.0, option)
    before = np.array(contract.strike), np.array(contract.option)
    strikes[:], option[:] = 1.0, -1
    np.testing.assert_array_equal(contract.strike, before[0])
    np.testing.assert_array_equal(contract.option, before[1])


def test_a_list_may_hold_what_jax_traces():
    assert jax.jit(lambda x: as_real([x, 2.0]))(1.0).tolist() == [1.0, 2.0]
