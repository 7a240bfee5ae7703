"""Levenberg and Marquardt's method as an optax transformation."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree


class LevenbergMarquardtState(NamedTuple):
    """damping: the current lambda."""

    damping: Float[Array, ""]


class _Trial(NamedTuple):
    """One attempt: its damping, its step, whether that lowers the sum of squares, and attempts so far."""

    damping: Float[Array, ""]
    step: Float[Array, " parameters"]
    accepted: Array
    attempts: Array


@functools.cache  # one object for equal settings, so that a jitted fit is compiled once
def levenberg_marquardt(
    initial_damping: float = 1e-2,
    increase: float = 4.0,
    decrease: float = 0.15,
    max_step: float = 1.0,
    max_attempts: int = 20,
) -> optax.GradientTransformationExtraArgs:
    """Damped Gauss-Newton steps for f(x) = |r(x)|^2 / 2.

    (J'J + lambda diag(J'J)) step = -J'r, lambda raised until the step lowers f; a zero step if none does
    (Marquardt 1963, eq. 14; Nocedal and Wright 2006, sec. 10.3). No coordinate moves by more than
    `max_step`: one bold early step can saturate a bounded parameter's transform, and none leads back.
    `update` needs the extra arguments `residual` ([residuals]), `jacobian` ([residuals, parameters],
    columns in the order of the raveled parameters) and `residual_fn` (parameters -> residual).
    """

    def init(params: PyTree) -> LevenbergMarquardtState:
        flat, _ = ravel_pytree(params)
        return LevenbergMarquardtState(jnp.asarray(initial_damping, flat.dtype))

    def update(updates, state, params=None, *, residual, jacobian, residual_fn, **extra):
        del extra
        gradient, unravel = ravel_pytree(updates)
        flat, unravel_params = ravel_pytree(params)
        normal = jacobian.T @ jacobian
        floor = jnp.finfo(flat.dtype).eps * jnp.max(jnp.diag(normal))
        scale = jnp.maximum(jnp.diag(normal), floor)
        before = jnp.sum(residual**2)

        def attempt(trial: _Trial) -> _Trial:
            damping = jnp.where(trial.attempts == 0, trial.damping, trial.damping * increase)
            step = -jnp.linalg.solve(normal + damping * jnp.diag(scale), gradient)
            step = step * jnp.minimum(1.0, max_step / jnp.max(jnp.abs(step)))
            after = jnp.sum(residual_fn(unravel_params(flat + step)) ** 2)
            return _Trial(damping, step, after < before, trial.attempts + 1)

        trial = jax.lax.while_loop(
            lambda trial: ~trial.accepted & (trial.attempts < max_attempts),
            attempt,
            _Trial(state.damping, jnp.zeros_like(flat), jnp.asarray(False), jnp.asarray(0)),
        )
        step = jnp.where(trial.accepted, trial.step, 0.0)
        eased = jnp.where(trial.attempts == 1, trial.damping * decrease, trial.damping)
        return unravel(step), LevenbergMarquardtState(jnp.clip(eased, 1e-12, 1e12))

    return optax.GradientTransformationExtraArgs(init, update)
