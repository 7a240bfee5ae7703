"""The dual chain, whose state carries its tangent, and the tangents of a chain along several directions."""

from collections.abc import Callable

import jax
from jax import lax

from .chain import Active, Arrays, Chain
from .dependence import active_leaves
from .leaves import as_array, instantiated, is_zero, merge, pick
from .vmap import batch_chain, with_axes

PLACES = (0, 0, 1)
"""The axis of a batch in consts, a state and xs."""


def dual_chain(
    chain: Chain, active: Active, arrays: tuple, dots: tuple, with_ys: bool = False
) -> tuple[Chain, Arrays]:
    """Return the chain whose state carries its own tangent.

    Its ys are the tangents only or, with `with_ys`, the chain's ys followed by their tangents.
    """
    counts = tuple(map(len, arrays))

    def step(*joined):
        parts = [part[:n] for part, n in zip(joined, counts, strict=True)]
        moving = [part[n:] for part, n in zip(joined, counts, strict=True)]

        def primal(*picked):
            state, y = chain.step(*map(merge, active.inputs, picked, parts))
            return (pick(active.state, state), pick(active.ys, y)), (state, y)

        picked = tuple(map(pick, active.inputs, parts))
        _, (state_dot, y_dot), (state, y) = jax.jvp(primal, picked, tuple(moving), has_aux=True)
        return state + state_dot, y + y_dot if with_ys else y_dot

    joined = Arrays(*(part + dot for part, dot in zip(arrays, dots, strict=True)))
    return chain.derive(step, joined), joined


def moving_leaves(chain: Chain, arrays: tuple, tangents: tuple) -> tuple[Active, tuple]:
    """Return the leaves that move and their tangents, from all tangents, with `Zero` where there is none."""
    nonzeros = tuple(tuple(not is_zero(t) for t in part) for part in tangents)
    active = active_leaves(chain, as_arrays(arrays), nonzeros)
    return active, instantiated(tuple(map(pick, active.inputs, tangents)))


def cotangents_of_dual(wanted: Active, moving: Active, bars: tuple, bars_dot: tuple) -> list[tuple]:
    """Return the cotangents of the last state and of ys of a dual chain with ys, None where there is none.

    Outputs have the tangents `bars_dot` of the cotangents `bars`, for the wanted ones; the tangents of outputs
    have the cotangents `bars`.
    """
    masks = (wanted.state, wanted.ys), (moving.state, moving.ys)
    found = []
    for own, moves, of_values, of_dots in zip(*masks, bars, bars_dot, strict=True):
        none = (None,) * len(own)
        found.append((*merge(own, of_dots, none), *pick(moves, merge(own, of_values, none))))
    return found


def along_directions(
    chain: Chain,
    active: Active,
    axis,
    spread: Active,
    arrays: tuple,
    dots: tuple,
    with_values: bool = False,
    run: Callable = Chain.run,
) -> tuple[tuple, tuple]:
    """Return the outputs of a chain, and their tangents along all directions of a batch, from one dual chain.

    Args:
        chain: The chain of one direction.
        active: Its active leaves.
        axis: The axis of the batch.
        spread: The leaves of `arrays` that have that axis, along which their entries are equal.
        arrays: The arrays of the batch.
        dots: The tangents of the active leaves, all with that axis.
        with_values: Whether the ys of the chain are wanted; otherwise the outputs have none.
        run: The function that runs a chain on arrays.
    """
    parts = zip(arrays, spread.inputs, PLACES, strict=True)
    arrays = tuple(
        tuple(_first(x, place) if has else x for x, has in zip(part, mask, strict=True))
        for part, mask, place in parts
    )
    of_one = tuple(
        tuple(_first(x, place) for x in part) for part, place in zip(dots, PLACES, strict=True)
    )
    dual, _ = dual_chain(chain, active, arrays, of_one, with_values)
    joined = tuple(map(tuple.__add__, map(tuple, arrays), map(tuple, dots)))
    parts = zip(arrays, dots, PLACES, strict=True)
    dims = tuple((None,) * len(part) + (place,) * len(dot) for part, dot, place in parts)
    dual, joined, batched = batch_chain(dual, axis, joined, dims)
    state, ys = run(dual, joined)
    count, of_ys = chain.num_state, len(chain.y_avals) if with_values else 0
    tangents = (), state[count:], ys[of_ys:]
    masks = (), batched.state[count:], batched.ys[of_ys:]
    pairs = zip(masks, PLACES, strict=True)
    dims = tuple(tuple(place if has else None for has in mask) for mask, place in pairs)
    _, *tangents = with_axes(tangents, dims, axis.size)
    return (state[:count], ys[:of_ys]), tuple(tangents)


def _first(x, place: int):
    """Return the first entry along a batch axis."""
    return lax.index_in_dim(x, 0, place, keepdims=False)


def as_arrays(parts: tuple) -> Arrays:
    """Return the arrays of a chain; JAX passes Python's scalars to rules unconverted."""
    return Arrays(*jax.tree.map(as_array, parts))


def out_dims_of(parts, state_dim: int | None, ys_dim: int | None) -> tuple:
    """Return the batch axes of the leaves of the state and of ys: None for a leaf that is the flag False."""
    pairs = zip(parts, (state_dim, ys_dim), strict=True)
    return tuple(tuple(None if leaf is False else dim for leaf in part) for part, dim in pairs)
