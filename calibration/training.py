"""Train a model of many parameters, such as a neural network, by stochastic gradients on the tape."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from pricing.market import VolSurface
from pricing.models import AbstractModel
from pricing.progress import Progress

from .objectives import SimulatedVolError
from .results import RESULTS

if TYPE_CHECKING:
    from pricing.fbsde.solvers.networks import OptimizerState

_REPORT = 100


class Training(eqx.Module):
    """A trained model.

    Attributes:
        model: The model after the last step.
        losses: The loss estimates at the steps, of shape (steps,), in vol points squared.
        result: Successful, or non-finite if a loss was not finite.
    """

    model: AbstractModel
    losses: Float[Array, " steps"]
    result: RESULTS


@full_matmul_precision
def train(
    quotes: VolSurface,
    model: AbstractModel,
    optimizer: optax.GradientTransformation,
    *,
    where: Callable[[AbstractModel], PyTree],
    objective: SimulatedVolError | None = None,
    num_steps: int = 2000,
    key: PRNGKeyArray,
    progress: Progress | None = None,
    throw: bool = True,
) -> Training:
    """Train a part of `model` on a surface of implied vols, with fresh paths at every step.

    With many parameters a Jacobian is too expensive: each step takes one reverse sweep over the simulation.

    Args:
        quotes: One surface of implied vols.
        model: The model to start from.
        optimizer: Any optax transformation that only needs a gradient.
        where: Model -> the part to train, such as `lambda model: model.network`.
        objective: The loss by simulation; `SimulatedVolError()` if none is given.
        num_steps: The number of steps, all of which are taken.
        key: Key of the paths of all steps.
        progress: Called with the steps done, `num_steps` and the loss, every hundred steps at most.
        throw: Whether a loss that is not finite raises.

    Returns:
        The trained model and the losses along the way.

    Raises:
        RuntimeError: If a loss is not finite and `throw`.
        ValueError: If num_steps is below 1.

    Examples:
        >>> import jax
        >>> import optax
        >>> from calibration import SimulatedVolError, train
        >>> from pricing import NeuralLocalVol, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> start = NeuralLocalVol.flat(100.0, 0.03, 0.2, key=jax.random.key(0))
        >>> by = {"objective": SimulatedVolError(64, 2), "num_steps": 2, "key": jax.random.key(1)}
        >>> train(surface, start, optax.adam(1e-2), where=lambda model: model.network, **by).losses.shape
        (2,)
    """
    from pricing.fbsde.solvers.networks import OptimizerState  # slow to import

    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}")
    objective = SimulatedVolError() if objective is None else objective
    moves = jax.tree.map(lambda _: False, model)
    moves = eqx.tree_at(where, moves, jax.tree.map(eqx.is_inexact_array, where(model)))
    parameters, still = eqx.partition(model, moves)
    state, losses = OptimizerState.init(optimizer, parameters), []
    count = math.gcd(num_steps, _REPORT)
    for done in range(0, num_steps, count):
        of_these = jax.random.fold_in(key, done)
        state, found = _steps(quotes, objective, optimizer, still, state, count, key=of_these)
        losses.append(found)
        if progress is not None:
            progress(done + count, num_steps, f"loss {float(jnp.mean(found)):.3f}")
    all_losses = jnp.concatenate(losses)
    finite = jnp.all(jnp.isfinite(all_losses))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite_residual)  # pyright: ignore[reportArgumentType]
    if throw and result != RESULTS.successful:
        raise RuntimeError(f"training {type(model).__name__}: {RESULTS[result]}")
    return Training(eqx.combine(state.parameters, still), all_losses, result)


@stored_jit
def _steps(
    quotes, objective, optimizer, still, state: "OptimizerState", count: int, *, key: PRNGKeyArray
) -> tuple["OptimizerState", Array]:
    from pricing.fbsde.path_shares import ALL_PATHS
    from pricing.fbsde.solvers.networks import minimize

    def loss(parameters, index, _share):
        model = eqx.combine(parameters, still)
        value = objective.loss(model, quotes, key=jax.random.fold_in(key, index))
        return value, jnp.ones_like(value)

    return minimize(loss, optimizer, state, count, ALL_PATHS)
