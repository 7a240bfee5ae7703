"""Run and differentiate a chain with diffrax, by a solver whose steps are the nodes."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp


class _Nodes(diffrax.AbstractSolver):
    """A solver whose step from time k to k + 1 is node k, whatever the term is."""

    f: Callable
    xs: Any
    term_structure = diffrax.AbstractTerm
    interpolation_cls = diffrax.LocalLinearInterpolation

    def order(self, terms):
        return 1

    def init(self, terms, t0, t1, y0, args):
        return None

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        k = jnp.round(t0).astype(jnp.int32)  # diffrax's times have rounding errors
        y1, _ = self.f(y0, jax.tree.map(lambda a: a[k], self.xs))
        return y1, None, {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


def by_diffrax(checkpoints, f, init, xs):
    """Run `diffeqsolve` in steps of 1 from time 0 to n, with its `RecursiveCheckpointAdjoint`."""
    length = len(jax.tree.leaves(xs)[0])
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: y),
        _Nodes(f, xs),
        t0=0.0,
        t1=float(length),
        dt0=1.0,
        y0=init,
        max_steps=length,
        adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=checkpoints),
        throw=False,
    )
    return jax.tree.map(lambda a: a[0], solution.ys)
