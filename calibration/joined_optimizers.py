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
    """The number of steps taken, and the state of every optimizer."""

    num_steps: Int[Array, ""]
    states: tuple[Any, ...]


def join_optimizers(
    optimizers: Sequence[optax.GradientTransformation], boundaries: Sequence[int]
) -> optax.GradientTransformationExtraArgs:
    """Use the first optimizer up to the first boundary, then the next, like `optax.join_schedules`.

    Each optimizer is initialized at its boundary, at the point reached. Adam is robust but slow far from the
    optimum, Levenberg-Marquardt fast near it: `join_optimizers([optax.adam(0.05), levenberg_marquardt()],
    [30])`.

    Args:
        optimizers: Optax transformations; each receives the extra arguments that it accepts.
        boundaries: The numbers of steps after which each but the last one ends, increasing.

    Returns:
        The optax transformation; the same object for the same optimizers and boundaries, so that a jitted fit
        is compiled once.

    Raises:
        ValueError: If there is not one boundary between each two optimizers, or they do not increase from 1.

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
            f"{len(optimizers)} optimizers have boundaries {list(boundaries)}: give one fewer "
            f"than optimizers, "
            "numbers of steps that increase from 1"
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

    # optax's type of `update` lacks the extra keyword arguments that its documentation asks for
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]
