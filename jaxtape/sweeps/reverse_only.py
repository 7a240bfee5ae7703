"""The sweeps behind `jax.custom_vjp`: where JAX has no `VJPHiPrimitive`. Refuses forward mode."""

import functools

import jax
import numpy as np

from .chain import Arrays, Chain, Static, merge, pick
from .executor import prepared
from .footprint import everything_active


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """Run a chain: the last state and ys, differentiated in reverse mode as its schedule says."""
    return chain.run(arrays)


def _forward(chain: Chain, arrays: Arrays):
    to_reverse = prepared(chain, everything_active(chain, arrays), arrays)
    state, ys, kept = to_reverse.first_sweep(arrays)
    return (state, ys), (arrays, kept, Static(to_reverse))


def _backward(chain: Chain, saved: tuple, bars: tuple):
    (arrays, kept, to_reverse), (state_bar, ys_bar) = saved, bars
    active = everything_active(chain, arrays)
    bars = pick(active.state, state_bar), pick(active.ys, ys_bar)
    out = to_reverse.value.reverse_sweep(active, arrays, kept, bars)
    nothing = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), arrays)
    return (Arrays(*map(merge, active.inputs, out, nothing)),)


run.defvjp(_forward, _backward)
