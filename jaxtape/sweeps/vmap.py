"""A batch of chains (`jax.vmap`): the chain of the batched step."""

import dataclasses
import functools
from operator import or_

import jax
import jax.numpy as jnp

from .chain import Active, Arrays, Chain, LoopCondition
from .dependence import ends_by
from .leaves import Mask, inputs_of_outputs, merge, pick


def batch_chain(
    chain: Chain, axis, arrays: tuple, dims: tuple, force: Active | None = None
) -> tuple[Chain, Arrays, Active]:
    """Return the chain of the batched step, its arrays, and the mask of its leaves with a batch axis.

    That axis is the first of shared values and of the state, and the second of `xs` and ys. Leaves that do not
    depend on the batch have none, unless `force` selects them.

    Raises:
        ValueError: If the members of the batch have different edits.
    """
    batched = _batched_leaves(chain, axis, dims, force)
    masks = batched.inputs
    leaves, of_leaves = (tuple(map(pick, masks, parts)) for parts in (arrays, dims))
    arrays = Arrays(*map(merge, masks, with_axes(leaves, of_leaves, axis.size), arrays))
    if any(masks[0][: chain.executor.num_consts]):
        raise ValueError(
            "A batch of edited tapes must share their edits: batch only their params, with "
            "jax.vmap(..., in_axes=...) None for `rows`."
        )
    axes = tuple(map(_axes, masks))
    over_batch = functools.partial(over_axis(axis), in_axes=axes)
    step = over_batch(chain.step, out_axes=(axes[1], _axes(batched.ys)))
    if chain.condition is None:
        return chain.derive(step, arrays), arrays, batched
    ends_apart = ends_by(chain, batched)
    over_batch = functools.partial(over_axis(axis), in_axes=axes[:2])
    continues = over_batch(chain.continues, out_axes=0 if ends_apart else None)
    step = _guarded(step, continues, masks[0]) if ends_apart else step
    any_goes_on = lambda consts, state: jnp.any(continues(consts, state))
    condition = LoopCondition.of(any_goes_on, arrays.consts, arrays.init)
    return dataclasses.replace(chain.derive(step, arrays), condition=condition), arrays, batched


def over_axis(axis):
    """`jax.vmap` over a batch axis as JAX gives it to the rule of a primitive."""
    return functools.partial(
        jax.vmap,
        axis_size=axis.size,
        axis_name=axis.name,
        spmd_axis_name=axis.spmd_name or axis.explicit_mesh_axis,
    )


def is_batched(chain: Chain, axis, dims) -> bool:
    """Return True if some leaf has a batch axis, or the step names the axis."""
    dims = jax.tree.leaves(dims, is_leaf=lambda dim: dim is None)
    return any(dim is not None for dim in dims) or _names(chain, axis)


def _names(chain: Chain, axis) -> bool:
    """Return True if the step names the batch's axis, as collectives do."""
    names = {getattr(effect, "name", None) for effect in chain.jaxpr.effects}
    return isinstance(axis.name, str) and axis.name in names


def batched_outputs(chain: Chain, axis, dims: tuple) -> tuple[Mask, Mask, bool]:
    """Return masks of the leaves of state and y that depend on the batch; and whether the step count does."""
    batched = _batched_leaves(chain, axis, dims)
    return batched.state, batched.ys, ends_by(chain, batched)


def _batched_leaves(chain: Chain, axis, dims: tuple, force: Active | None = None) -> Active:
    """Return the leaves with a batch axis or dependent on one, by a fixpoint on the jaxpr of the step.

    A step that names the batch's axis (`jax.lax.axis_index`) may depend on it even if no argument does, and
    chains that end at different steps have separate leaves: then all of the state and of y is batched.
    """
    consts, state, xs = (tuple(d is not None for d in part) for part in dims)
    ys = (False,) * len(chain.y_avals)
    if force is not None:
        consts, state, xs, ys = (
            tuple(map(or_, *pair)) for pair in zip((consts, state, xs, ys), force, strict=True)
        )
    reads = inputs_of_outputs(chain.jaxpr)
    while True:
        batched = Active(consts, state, xs, ys)
        together = not _names(chain, axis) and not ends_by(chain, batched)
        inputs = consts + state + xs
        found = [not together or any(pick(mask, inputs)) for mask in reads]
        found = tuple(map(or_, found, state + ys))
        if found == state + ys:
            return batched
        state, ys = found[: len(state)], found[len(state) :]


def _guarded(step, continues, batched_consts: Mask):
    """Return a step that does not change the state of members that have stopped.

    A stopped member computes at the state of a live one, because the step may have no derivative at its own.
    """

    def guarded(consts, state, x):
        live = continues(consts, state)
        of_live = lambda leaf: jnp.where(_along(live, leaf), leaf, leaf[jnp.argmax(live)])
        lent = tuple(of_live(c) if b else c for c, b in zip(consts, batched_consts, strict=True))
        moved, y = step(lent, tuple(map(of_live, state)), x)
        still = zip(moved, state, strict=True)
        return tuple(jnp.where(_along(live, new), new, old) for new, old in still), y

    return guarded


def _along(live, leaf):
    """Reshape the flags of a batch for `jnp.where` with a leaf whose first axis is the batch."""
    return live.reshape(live.shape + (1,) * (leaf.ndim - 1))


def _axes(mask: Mask) -> tuple:
    return tuple(0 if batched else None for batched in mask)


def with_axes(parts: tuple, dims: tuple, size: int) -> tuple:
    """Return leaves of consts, init and xs, each with its batch axis where a chain needs it."""
    return tuple(
        tuple(_with_axis(leaf, dim, to, size) for leaf, dim in zip(part, of_part, strict=True))
        for part, of_part, to in zip(parts, dims, (0, 0, 1), strict=True)
    )


def _with_axis(leaf, dim: int | None, to: int, size: int):
    """Return a leaf with its batch axis at `to`; broadcast a leaf without one."""
    if dim is not None:
        return jnp.moveaxis(leaf, dim, to)
    leaf = jnp.expand_dims(leaf, to)
    return jnp.broadcast_to(leaf, (*leaf.shape[:to], size, *leaf.shape[to + 1 :]))
