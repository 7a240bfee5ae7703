"""The loop over a solver's stages, and what is kept of it."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from .problem import Problem
from .solver import AbstractSolver
from .watch import told


class Training(NamedTuple):
    """A solver's state after `stage` stages; outputs and losses have rows for all, those to come empty."""

    state: PyTree[Array]
    outputs: PyTree[Array]
    losses: Array
    stage: Array


@eqx.filter_jit
def begun(problem: Problem, solver: AbstractSolver, key: PRNGKeyArray) -> Training:
    """Before the first stage."""
    start, stages = jax.random.split(key)
    state = solver.start(problem, start)
    stage = partial(solver.stage, problem)
    zero = jnp.zeros((), jnp.int32)
    _, output, losses = eqx.filter_eval_shape(stage, state, zero, stages)
    count = solver.num_stages(problem)
    rows = lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype)  # noqa: E731
    return Training(state, jax.tree.map(rows, output), rows(losses), zero)


@eqx.filter_jit
def continued(
    problem: Problem,
    solver: AbstractSolver,
    training: Training,
    key: PRNGKeyArray,
    num_stages: int,
    watch: Array | None,
) -> Training:
    """So many stages further, in one program."""
    _, stages = jax.random.split(key)

    def onward(training: Training, _: Any):
        state, outputs, losses, stage = training
        state, output, loss = solver.stage(problem, state, stage, jax.random.fold_in(stages, stage))
        outputs = jax.tree.map(lambda rows, row: rows.at[stage].set(row), outputs, output)
        told(watch, stage, {"loss": loss[-1], **solver.metrics(state)})
        return Training(state, outputs, losses.at[stage].set(loss), stage + 1), None

    training, _ = jax.lax.scan(onward, training, None, num_stages)
    return training
