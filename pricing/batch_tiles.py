"""A function of one contract mapped over a batch: all at once, or in tiles that fit a memory budget."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxtape.jax_private import jaxpr_as_fun
from jaxtape.sweeps.footprint import live_bytes

from .products import AbstractProduct

USUAL_BUDGET = 2**30  # bytes
BUDGET = int, "a whole number of bytes, such as 2**30"


def over_batch(
    function: Callable[..., PyTree],
    product: AbstractProduct,
    *of_each: Array,
    budget: int = USUAL_BUDGET,
) -> PyTree:
    """Return the results of a function of one contract for every contract of a batch.

    A batch that fits the budget is a single `jax.vmap`. A larger one is divided into the fewest tiles that fit,
    which run one after another. The memory of a contract is the peak of its program's live values
    (`live_bytes`); a tile has at least one contract.

    Args:
        function: The function of a contract.
        product: The batch.
        of_each: Further arguments, one number per contract, of the shape of the batch.
        budget: The bytes of memory for the contracts of a tile.

    Returns:
        The values of the function, with leading axes for the batch.
    """
    shape, arguments = product.batch_shape, (product.broadcast(), *of_each)
    count, axes = math.prod(shape), len(shape)
    if count < 2:
        for _ in shape:
            function = jax.vmap(function)
        return function(*arguments)
    types = jax.tree.map(lambda x: _without_axes(x, axes), arguments)
    program, like = jax.make_jaxpr(function, return_shape=True)(*types)
    at_once = max(1, budget // max(1, live_bytes(program.jaxpr)))
    leaves, structure = jax.tree.leaves(arguments), jax.tree.structure(like)
    of_one = jaxpr_as_fun(program)  # traced only once
    if count <= at_once:
        for _ in shape:
            of_one = jax.vmap(of_one)
        return jax.tree.unflatten(structure, of_one(*leaves))
    tiles = -(-count // at_once)
    size = -(-count // tiles)
    places = jnp.minimum(jnp.arange(tiles * size), count - 1).reshape(tiles, size)
    tiled = [x.reshape(count, *x.shape[axes:])[places] for x in leaves]
    found = jax.lax.map(lambda tile: jax.vmap(of_one)(*tile), tiled)
    in_line = [x.reshape(tiles * size, *x.shape[2:])[:count] for x in found]
    return jax.tree.unflatten(structure, [x.reshape(*shape, *x.shape[1:]) for x in in_line])


def _without_axes(x: Any, axes: int) -> jax.ShapeDtypeStruct:
    """Return the type of an array without its leading axes."""
    kind = jax.typeof(x)
    return jax.ShapeDtypeStruct(kind.shape[axes:], kind.dtype, weak_type=kind.weak_type)
