"""The loop over a solver's stages, and what is kept of it."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from .events import emit
from .problem import Problem
from .solution import RESULTS, Solution
from .solver import AbstractSolver


class Training(NamedTuple):
    """A solver's state after `stage` stages; outputs and losses have rows for all, those to come empty."""

    state: PyTree[Array]
    outputs: PyTree[Array]
    losses: Array
    stage: Array


@eqx.filter_jit
def init(problem: Problem, solver: AbstractSolver, *, key: PRNGKeyArray) -> Training:
    """Return the training before the first stage."""
    first, stages = jax.random.split(key)
    state = solver.init(problem, key=first)
    stage = partial(solver.stage, problem, key=stages)
    zero = jnp.zeros((), jnp.int32)
    _, output, losses = eqx.filter_eval_shape(stage, state, zero)
    count = solver.num_stages(problem)
    rows = lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype)  # noqa: E731
    return Training(state, jax.tree.map(rows, output), rows(losses), zero)


@eqx.filter_jit
def step(
    problem: Problem,
    solver: AbstractSolver,
    training: Training,
    num_stages: int,
    subscription: Array | None,
    *,
    key: PRNGKeyArray,
) -> Training:
    """Return the training so many stages further, which are one program."""
    _, stages = jax.random.split(key)

    def one_stage(training: Training, _: Any):
        state, outputs, losses, stage = training
        stage_key = jax.random.fold_in(stages, stage)
        state, output, loss = solver.stage(problem, state, stage, key=stage_key)
        outputs = jax.tree.map(lambda rows, row: rows.at[stage].set(row), outputs, output)
        emit(subscription, stage, {"loss": loss[-1], **solver.metrics(state)})
        return Training(state, outputs, losses.at[stage].set(loss), stage + 1), None

    training, _ = jax.lax.scan(one_stage, training, None, num_stages)
    return training


def postprocess(problem: Problem, solver: AbstractSolver, training: Training) -> Solution:
    """Return the solution that a training found."""
    approximation = solver.postprocess(problem, training.state, training.outputs)
    finite = jnp.all(jnp.isfinite(training.losses))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite_loss)
    return Solution(problem, approximation, result, {"losses": training.losses})
