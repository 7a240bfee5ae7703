"""A calibration as numbers: residuals of a vector on the real line, and the steps that make them small."""

from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from pricing.models import AbstractModel

from .objectives import AbstractObjective
from .parameters import Parameters
from .results import RESULTS

Vector = Float[Array, " parameters"]
Optimizer = optax.GradientTransformationExtraArgs


class Problem(eqx.Module):
    """Quotes, a model to fit to them, its free parameters, and the residuals to make small."""

    quotes: Any
    template: AbstractModel
    objective: AbstractObjective
    parameters: Parameters

    def __check_init__(self):
        _check_single(self.quotes, self.quoted, self.template, self.parameters)

    @property
    def quoted(self) -> Any:
        """The numbers that the market quotes, which the residuals are those of."""
        return self.objective.quoted(self.quotes)

    def model(self, free: Vector) -> AbstractModel:
        """Return the model at a point of the free space."""
        return self.parameters.model(self.template, free)

    def residual(self, free: Vector) -> Float[Array, " residuals"]:
        """Return model less market.

        Raises:
            ValueError: The objective does not give one residual for each quote.
        """
        errors = self.objective.residuals(self.model(free), self.quotes)
        if errors.shape != self.quoted.shape:
            raise ValueError(
                f"{type(self.objective).__name__} has residuals of shape {errors.shape} for quotes of shape "
                f"{self.quoted.shape}: give one for each quote. {_ONE}"
            )
        return errors.ravel()

    def loss(self, free: Vector) -> Float[Array, ""]:
        """Return half the sum of squared residuals."""
        return 0.5 * jnp.sum(self.residual(free) ** 2)

    def linearized(
        self, free: Vector
    ) -> tuple[Float[Array, " residuals"], Float[Array, "residuals parameters"]]:
        """Return residuals and their Jacobian, by forward mode: parameters are few, residuals many."""
        basis = jnp.eye(free.size, dtype=free.dtype)
        push = lambda direction: jax.jvp(self.residual, (free,), (direction,))  # noqa: E731
        return jax.vmap(push, out_axes=(None, 1))(basis)


_ONE = (
    "A calibration is of one model to one set of quotes; for a batch, map over it: jax.vmap(lambda quotes: "
    "calibrate(quotes, model, throw=False))(batch), or jax.vmap(fit(model))(markets)"
)


def _check_single(quotes: Any, quoted: Array, model: AbstractModel, parameters: Parameters) -> None:
    """Refuse a batch: broadcasting would fit one set of parameters to all of them, without a word.

    Raises:
        ValueError: The quotes, the model or a curve of it are a batch.
    """
    if quoted.ndim > 2:
        raise ValueError(f"{type(quotes).__name__} has vols of shape {quoted.shape}. {_ONE}")
    kind = type(model).__name__
    cores = {
        field.name: field.metadata["core"] for field in fields(model) if "core" in field.metadata
    }
    for name, core in {**cores, **{name: cores.get(name, 0) for name in parameters.names}}.items():
        number = getattr(model, name)
        if eqx.is_array(number) and number.ndim > core:
            raise ValueError(f"{kind} has a {name} of shape {number.shape}. {_ONE}")
    for part in (quotes, *vars(model).values()):  # a curve, which may be a batch by itself
        try:
            getattr(part, "__check_init__", lambda: None)()
        except ValueError as error:
            raise ValueError(f"{error}. {_ONE}") from None


class Search(eqx.Module):
    """How far the optimizer has come from one start: its best point, what is known there, and where it goes.

    finite: whether the optimizer knows where to go; one that keeps its best point survives a bad trial.
    """

    free: Vector
    residual: Float[Array, " residuals"]
    jacobian: Float[Array, "residuals parameters"]
    proposal: Vector
    optimizer_state: Any
    num_steps: Int[Array, ""]
    converged: Bool[Array, ""]
    finite: Bool[Array, ""]

    @classmethod
    def init(cls, problem: Problem, optimizer: Optimizer, free: Vector) -> "Search":
        """Return the search before its start itself is evaluated, as step 0: nothing is known yet."""
        residual = jax.eval_shape(problem.residual, free)
        unknown = jnp.full(residual.shape, jnp.inf, free.dtype)
        jacobian = jnp.zeros((unknown.size, free.size), free.dtype)
        none, no, yes = -jnp.ones((), int), jnp.asarray(False), jnp.asarray(True)
        return cls(free, unknown, jacobian, free, optimizer.init(free), none, no, yes)

    @property
    def loss(self) -> Float[Array, ""]:
        """Half the sum of squared residuals."""
        return 0.5 * jnp.sum(self.residual**2)

    @property
    def result(self) -> RESULTS:
        """Why the search has ended, or would if it were not to go on."""
        unfinished = RESULTS.where(
            self.finite, RESULTS.max_steps_reached, RESULTS.non_finite_residual
        )
        return RESULTS.where(self.converged & self.finite, RESULTS.converged, unfinished)

    def is_running(self, max_steps: Int[Array, ""] | int) -> Bool[Array, "*starts"]:
        """Return whether there is anything left to do in `max_steps`, in one search or in each of a batch."""
        return ~self.converged & self.finite & (self.num_steps < max_steps)

    def step(self, problem: Problem, optimizer: Optimizer, rtol: Array) -> "Search":
        """Return the search after one evaluation; converged once a step would gain less than rtol * loss."""
        free = self.proposal
        residual, jacobian = problem.linearized(free)
        gradient, loss = residual @ jacobian, 0.5 * jnp.sum(residual**2)
        with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in integers
            updates, state = optimizer.update(
                gradient, self.optimizer_state, free,
                value=loss, grad=gradient, value_fn=_loss_of(problem), residual=residual, jacobian=jacobian,
            )  # fmt: skip
        proposal = optax.apply_updates(free, updates)
        assert isinstance(proposal, Array)  # as `free` is; optax knows only that both are trees
        gain = 0.5 * gradient @ (_pseudo_inverse(jacobian) @ gradient)
        converged = gain <= least_gain(loss, residual.size, rtol)
        keep = converged | (loss < self.loss) | (self.num_steps < 0)
        found, known = (free, residual, jacobian), (self.free, self.residual, self.jacobian)
        best = lambda new, old: jnp.where(keep, new, old)  # noqa: E731
        free, residual, jacobian = map(best, found, known)
        finite = jnp.all(jnp.isfinite(proposal))
        count = self.num_steps + 1
        return Search(free, residual, jacobian, proposal, state, count, converged, finite)

    def run(
        self, problem: Problem, optimizer: Optimizer, rtol: Array, max_steps: Int[Array, ""] | int
    ) -> "Search":
        """Return the search after as many steps as it takes to converge, `max_steps` at most."""
        return jax.lax.while_loop(
            lambda search: search.is_running(max_steps),
            lambda search: search.step(problem, optimizer, rtol),
            self,
        )


def least_gain(loss: Float[Array, ""], num_residuals: int, rtol: Array | float) -> Float[Array, ""]:
    """Return what a step must gain to matter: rtol of the loss, or the noise of the residuals."""
    noise = jnp.finfo(loss.dtype).eps ** (2 / 3)  # of a residual: 4e-11 in double precision
    return rtol * loss + 0.5 * num_residuals * noise**2


def _loss_of(problem: Problem):
    """Return the loss for optax's line searches, which ask for a signature with every extra argument."""

    def value_fn(free, residual, jacobian):
        del residual, jacobian
        return problem.loss(free)

    return value_fn


def identification(problem: Problem, search: Search) -> dict[str, Array]:
    """Return how well the quotes tell the parameters apart, where a search has ended.

    covariance: s^2 (J'J)^{-1} in the parameters themselves, s^2 the variance of the residuals that some
    parameter moves (a quote of weight 0 is none of them); condition_number: of J'J with its columns scaled to
    unit length (1: independent; above 1e6: hardly identified).
    """
    residual, jacobian = search.residual, search.jacobian
    to_parameters = jax.jacfwd(problem.parameters.values)(search.free)
    observations = jnp.sum(jnp.any(jacobian != 0.0, axis=1))
    freedom = jnp.maximum(observations - search.free.size, 1).astype(residual.dtype)
    variance = jnp.sum(residual**2) / freedom
    covariance = variance * to_parameters @ _pseudo_inverse(jacobian) @ to_parameters.T
    columns = jacobian / jnp.linalg.norm(jacobian, axis=0, keepdims=True)
    return {"covariance": covariance, "condition_number": jnp.linalg.cond(columns) ** 2}


def _pseudo_inverse(jacobian: Float[Array, "residuals parameters"]) -> Array:
    """Return (J'J)^+, by scaled symmetric inversion."""
    norms = jnp.maximum(jnp.linalg.norm(jacobian, axis=0), jnp.finfo(jacobian.dtype).tiny)
    scaled = jacobian / norms[None, :]
    return jnp.linalg.pinv(scaled.T @ scaled, hermitian=True) / jnp.outer(norms, norms)
