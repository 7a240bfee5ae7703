"""One optimizer for the first steps, and another for the rest."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree


class JoinedState(NamedTuple):
    """num_steps: the number of steps taken; states: the state of every optimizer."""

    num_steps: Int[Array, ""]
    states: tuple[Any, ...]


def join_optimizers(
    optimizers: Sequence[optax.GradientTransformation], boundaries: Sequence[int]
) -> optax.GradientTransformationExtraArgs:
    """Return the first optimizer up to the first boundary, then the next, as `optax.join_schedules` does.

    An optimizer begins, from the point that it is handed, at its boundary. Adam goes far and slowly,
    Levenberg-Marquardt is fast when near: `join_optimizers([optax.adam(0.05), levenberg_marquardt()], [30])`.

    Args:
        optimizers: Optax transformations; each is given the extra arguments that it takes.
        boundaries: The number of steps after which each but the last one ends, increasing.

    Returns:
        The optax transformation; one object for the same optimizers and boundaries, so that a jitted fit is
        compiled once.

    Raises:
        ValueError: There is not one boundary between two optimizers, or they do not increase from 1 on.

    Examples:
        >>> import optax
        >>> from calibration import join_optimizers, levenberg_marquardt
        >>> optimizer = join_optimizers([optax.adam(0.05), levenberg_marquardt()], [30])
        >>> len(optimizer.init({"x": 0.0}).states)
        2
    """
    grows = all(low < high for low, high in itertools.pairwise((0, *boundaries)))
    if len(boundaries) != len(optimizers) - 1 or not grows:
        raise ValueError(
            f"{len(optimizers)} optimizers have boundaries {list(boundaries)}: give one less than optimizers, "
            "numbers of steps that increase from 1 on"
        )
    return _joined(tuple(optimizers), tuple(boundaries))


@functools.cache
def _joined(
    optimizers: tuple[optax.GradientTransformation, ...], boundaries: tuple[int, ...]
) -> optax.GradientTransformationExtraArgs:
    each = [optax.with_extra_args_support(optimizer) for optimizer in optimizers]

    def init(params: PyTree) -> JoinedState:
        return JoinedState(jnp.zeros((), int), tuple(one.init(params) for one in each))

    def update(updates, state, params=None, **extra):
        def by(place: int):
            def run(_):
                states = list(state.states)
                new, states[place] = each[place].update(updates, states[place], params, **extra)
                return new, tuple(states)

            return run

        stage = jnp.searchsorted(jnp.asarray(boundaries, int), state.num_steps, side="right")
        new, states = jax.lax.switch(stage, [by(place) for place in range(len(each))], None)
        return new, JoinedState(state.num_steps + 1, states)

    # optax's type of `update` has no place for extra arguments by name, which its documentation asks for
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]
