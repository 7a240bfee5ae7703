"""The noise of a step: all that it computes from random bits alone, apart from the rest of the step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from ..jax_private import ClosedJaxpr, Jaxpr, Var, split_p, unstack_p
from ..jax_private import primitives as p
from .node import flat, part, read_by, variables
from .paths import paths_axis

_REARRANGING = {p.slice_p, p.squeeze_p, p.reshape_p, p.transpose_p, p.rev_p, split_p, unstack_p}


class Noise(NamedTuple):
    """A step as `step(consts, state, x) = rest(consts, state, (*x, *draw(consts, x)))`.

    Noise is what a step computes from the random bits of its paths and no other floating-point number, such as
    standard normals. So it has no derivatives.

    Attributes:
        draw: The function from the consts and a node's x to the noise.
        rest: The step without its draws.
        types: The types of the noise, each with an axis of paths.
    """

    draw: Callable
    rest: Callable
    types: tuple[jax.ShapeDtypeStruct, ...]

    @classmethod
    def none(cls, step: Callable) -> "Noise":
        """Return no noise, and the whole step as the rest."""
        return cls(lambda consts, x: (), step, ())

    @classmethod
    def of(cls, step: Callable, types: tuple[tuple, tuple, tuple], paths: int) -> "Noise":
        """Return the noise of a step, from the types of consts, state and x."""
        closed, (consts, state, x) = flat(jax.make_jaxpr(step)(*types)), types
        found = _drawn(closed, len(consts), len(state), paths)
        if not found:
            return cls.none(step)
        jaxpr, held = closed.jaxpr, closed.consts
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        of_rest = part(
            jaxpr, [*inputs, *found], _needed(jaxpr, jaxpr.outvars, found), jaxpr.outvars
        )
        own = {*jaxpr.invars[len(consts) : len(consts) + len(state)]}
        of_draw = part(jaxpr, [v for v in inputs if v not in own], _needed(jaxpr, found, ()), found)

        def draw(consts: tuple, x: tuple) -> tuple:
            return tuple(jax.core.eval_jaxpr(of_draw, [], *held, *consts, *x))

        def rest(consts: tuple, state: tuple, x: tuple) -> tuple[tuple, tuple]:
            out = jax.core.eval_jaxpr(of_rest, [], *held, *consts, *state, *x)
            return tuple(out[: len(state)]), tuple(out[len(state) :])

        return cls(draw, rest, jax.eval_shape(draw, consts, x))


def _drawn(closed: ClosedJaxpr, consts: int, state: int, paths: int) -> list[Var]:
    """Return the variables of the noise: those that the rest of a step reads, or the bits if they are fewer."""
    jaxpr = closed.jaxpr
    inputs = *jaxpr.invars[:consts], *jaxpr.invars[consts + state :]
    is_exact = lambda v: not jnp.issubdtype(v.aval.dtype, jnp.inexact)
    known = {*jaxpr.constvars, *filter(is_exact, inputs)}
    random: set[Var] = set()
    bits: list[Var] = []
    for eqn in jaxpr.eqns:
        if eqn.effects or not known.issuperset(variables(eqn.invars)):
            continue
        known |= set(eqn.outvars)
        of_paths = all(paths_axis(v.aval.shape, paths) is not None for v in eqn.outvars)
        if eqn.primitive is p.random_bits_p and of_paths:
            bits += eqn.outvars
            random |= set(eqn.outvars)
        elif of_paths and not random.isdisjoint(variables(eqn.invars)):
            random |= set(eqn.outvars)
    read: set[Var] = set()  # by the noise itself
    for eqn in reversed(jaxpr.eqns):
        if random.isdisjoint(eqn.outvars):
            continue
        if eqn.primitive in _REARRANGING and read.isdisjoint(eqn.outvars):
            random -= set(eqn.outvars)  # the rest rearranges an array of the noise
        else:
            read |= set(variables(eqn.invars))
    rest = [eqn for eqn in jaxpr.eqns if random.isdisjoint(eqn.outvars)]
    found = [v for v in read_by(rest, jaxpr.outvars) if v in random]
    size = lambda drawn: sum(v.aval.size for v in drawn)
    return found if size(found) <= size(bits) else bits


def _needed(jaxpr: Jaxpr, outputs: list, given: list | tuple) -> list:
    """Return the equations that outputs need, from the inputs and the variables `given`."""
    wanted, found = set(variables(outputs)) - set(given), []
    for eqn in reversed(jaxpr.eqns):
        if not wanted.isdisjoint(eqn.outvars):
            found.append(eqn)
            wanted |= set(variables(eqn.invars)) - set(given)
    return found[::-1]
