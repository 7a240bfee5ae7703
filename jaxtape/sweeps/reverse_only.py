"""The sweeps behind `jax.custom_vjp`: where JAX has no `VJPHiPrimitive`. Refuses forward mode."""

import functools

import jax
import numpy as np

from .chain import Arrays, Chain
from .executor import Sweeps
from .footprint import everything_active, reversible
from .masks import merge, pick
from .needed import needed_state


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
    """The chain's last state and ys, differentiated in reverse mode as its schedule says."""
    return Sweeps.of(chain).run(*arrays)


def _forward(chain: Chain, arrays: Arrays):
    active = everything_active(chain, arrays)
    needed = needed_state(chain, active, arrays)
    chain = reversible(chain, active, needed, arrays)
    state, ys, kept = Sweeps.of(chain).first(chain, needed, arrays)
    return (state, ys), (arrays, kept)


def _backward(chain: Chain, saved: tuple, bars: tuple):
    (arrays, kept), (state_bar, ys_bar) = saved, bars
    active = everything_active(chain, arrays)
    needed = needed_state(chain, active, arrays)
    chain = reversible(chain, active, needed, arrays)
    bars = pick(active.state, state_bar), pick(active.ys, ys_bar)
    out = Sweeps.of(chain).reverse(chain, active, needed, arrays, kept, *bars)
    nothing = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), arrays)
    return (Arrays(*map(merge, active.inputs, out, nothing)),)


run.defvjp(_forward, _backward)
