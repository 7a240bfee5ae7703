"""A calibration as a least-squares problem on the real line, and the search that solves it."""

import dataclasses
import math
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from pricing.models import AbstractModel
from pricing.numerics.elimination import eliminate
from pricing.numerics.singular_vectors import singular_vectors

from .history import History
from .objectives import AbstractObjective
from .parameters import FreeParameters
from .prior import Prior
from .results import REASONS, RESULTS
from .weak_prior import MORE_STEPS, WeakPrior

Vector = Float[Array, " parameters"]
Optimizer = optax.GradientTransformationExtraArgs


class LeastSquaresProblem(eqx.Module):
    """Quotes, a model to fit to them, its free parameters, and the residuals to minimize.

    The residuals of the quotes come first, then the prior's, then the weak prior's. `defect` is added to all of
    them, to correct for a finer integral.
    """

    quotes: Any
    template: AbstractModel
    objective: AbstractObjective
    parameters: FreeParameters
    prior: Prior | None = None
    defect: Float[Array, " residuals"] | None = None
    weak_prior: WeakPrior | None = None

    def __check_init__(self):
        _check_single(self.quotes, self.quoted, self.template, self.parameters)

    @property
    def quoted(self) -> Any:
        """The quoted numbers with which the residuals compare."""
        return self.objective.quoted(self.quotes)

    def model(self, free: Vector) -> AbstractModel:
        """Return the model at a point of the free space."""
        return self.parameters.model(self.template, free)

    def residual(self, free: Vector) -> Float[Array, " residuals"]:
        """Return model less market, 0 for a missing quote (a NaN vol), and the priors' residuals.

        Raises:
            ValueError: If the objective does not give one residual for each quote.
        """
        missing = jnp.isnan(self.quoted)
        known = jnp.where(missing, 1.0, self.quoted)
        quotes = eqx.tree_at(self.objective.quoted, self.quotes, known)
        errors = self.objective.residuals(self.model(free), quotes)
        if errors.shape != self.quoted.shape:
            raise ValueError(
                f"{type(self.objective).__name__} has residuals of shape {errors.shape} for quotes of shape "
                f"{self.quoted.shape}: give one for each quote. {_ONE}"
            )
        errors = jnp.where(missing, 0.0, errors).ravel()
        if self.prior is not None:
            of_prior = self.prior.residual(self.parameters.values(free))
            errors = jnp.concatenate([errors, of_prior])
        if self.weak_prior is not None:
            errors = jnp.concatenate([errors, self.weak_prior.residual(free)])
        return errors if self.defect is None else errors + self.defect

    def of_quotes(self, residual: Float[Array, " residuals"]) -> Float[Array, "..."]:
        """Return the residuals of the quotes only, in their shape."""
        return residual[: self.quoted.size].reshape(self.quoted.shape)

    @property
    def num_residuals(self) -> int:
        """The number of residuals, including those of missing quotes and of priors."""
        return self.num_quoted_rows + (0 if self.weak_prior is None else self.weak_prior.start.size)

    @property
    def num_quoted_rows(self) -> int:
        """The number of residuals without the weak prior's: quotes, missing ones included, and the prior's."""
        return self.quoted.size + (0 if self.prior is None else self.prior.mean.size)

    @property
    def is_held(self) -> Bool[Array, ""]:
        """Whether the weak prior is switched on."""
        return jnp.asarray(False) if self.weak_prior is None else self.weak_prior.noise > 0.0

    def most_steps(self, max_steps: Array) -> Array:
        """Return the maximum number of steps of a search: more if a weak prior holds parameters."""
        return max_steps * jnp.where(self.is_held, MORE_STEPS, 1)

    def held(self, noise: Float[Array, ""]) -> "LeastSquaresProblem":
        """Return the problem with its weak prior switched on, for quotes with this standard error."""
        assert self.weak_prior is not None
        return dataclasses.replace(self, weak_prior=self.weak_prior.switched_on(noise))

    @property
    def num_quotes(self) -> Int[Array, ""]:
        """The number of quotes, without NaNs and quotes with weight 0."""
        is_there = ~jnp.isnan(self.quoted)
        if (weights := getattr(self.quotes, "weights", None)) is not None:
            is_there = is_there & (weights != 0.0)
        return jnp.sum(is_there)

    @property
    def refusal(self) -> RESULTS:
        """The reason why these numbers cannot be fitted; `RESULTS.successful` if they can."""
        num_parameters = sum(map(math.prod, self.parameters.shapes))
        is_few = (self.num_quotes < num_parameters) & (self.prior is None)
        few = RESULTS.where(is_few, RESULTS.too_few_quotes, RESULTS.successful)  # pyright: ignore[reportArgumentType]
        of_objective = self.objective.result(self.quotes)
        return RESULTS.where(of_objective == RESULTS.successful, few, of_objective)

    @property
    def finer(self) -> "LeastSquaresProblem | None":
        """The same problem with residuals by a finer integral; None if there is none."""
        objective = self.objective.finer
        return objective and dataclasses.replace(self, objective=objective, defect=None)

    def deviation(
        self, free: Vector, residual: Float[Array, " residuals"]
    ) -> Float[Array, " residuals"]:
        """Return the residuals of a finer integral less `residual`; 0 if there is no finer integral."""
        finer = self.finer
        return jnp.zeros_like(residual) if finer is None else finer.residual(free) - residual

    def loss(self, free: Vector) -> Float[Array, ""]:
        """Return half the sum of squared residuals."""
        return 0.5 * jnp.sum(self.residual(free) ** 2)

    def linearized(
        self, free: Vector
    ) -> tuple[Float[Array, " residuals"], Float[Array, "residuals parameters"]]:
        """Return the residuals and their Jacobian, by forward mode: parameters are few, residuals many."""
        basis = jnp.eye(free.size, dtype=free.dtype)
        push = lambda direction: jax.jvp(self.residual, (free,), (direction,))
        return jax.vmap(push, out_axes=(None, 1))(basis)

    def curvature(self, free: Vector, direction: Vector) -> Vector:
        """Return J'r'', where r'' is the second derivative of the residuals along the direction."""
        along = lambda x: jax.jvp(self.residual, (x,), (direction,))[1]
        _, second = jax.jvp(along, (free,), (direction,))
        _, pull = jax.vjp(self.residual, free)
        return pull(second)[0]


def is_small(deviation: Float[Array, " residuals"], *, times: float = 1.0) -> Bool[Array, ""]:
    """Return True if a deviation of residuals is at most `times` the relevant accuracy."""
    most = times * max(_ACCURACY, 1e3 * float(jnp.finfo(deviation.dtype).eps))
    return jnp.max(jnp.abs(deviation)) <= most


_ACCURACY = 1e-7  # of a residual; of a vol, 3e-6 of an option's price at three deviations
_ONE = (
    "A calibration is of one model to one set of quotes; for a batch, map over it: jax.vmap(lambda quotes: "
    "calibrate(quotes, model, throw=False))(batch), or jax.vmap(fit(model))(markets)"
)


def _check_single(
    quotes: Any, quoted: Array, model: AbstractModel, parameters: FreeParameters
) -> None:
    """Refuse a batch: broadcasting would silently fit one set of parameters to all of its members.

    Raises:
        ValueError: If the quotes, the model or one of its curves is a batch.
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
    for part in (quotes, *vars(model).values()):  # also a curve, which may be a batch alone
        try:
            getattr(part, "__check_init__", lambda: None)()
        except ValueError as error:
            raise ValueError(f"{error}. {_ONE}") from None


_HELD_RTOL = 1e-6  # with a weak prior: in its long valley, parameters are known no better
_CLOSE = 0.1  # of the loss
_ROUNDING = 64.0  # units in the last place within which two losses are equal


class Search(eqx.Module):
    """State of the search from one start: its best point, the residuals there, and the next proposal.

    `gain` is the amount by which a Gauss-Newton step from the last point would lower the loss. `finite` says
    whether the proposal is finite (an optimizer that keeps its best point survives a bad trial). `history` has
    all trials, if they are kept.
    """

    free: Vector
    residual: Float[Array, " residuals"]
    jacobian: Float[Array, "residuals parameters"]
    proposal: Vector
    optimizer_state: Any
    num_steps: Int[Array, ""]
    converged: Bool[Array, ""]
    finite: Bool[Array, ""]
    gain: Float[Array, ""]
    history: History | None

    @classmethod
    def init(
        cls, problem: LeastSquaresProblem, optimizer: Optimizer, free: Vector, num_trials: int = 0
    ) -> "Search":
        """Return the search at step 0, before the start is evaluated.

        `num_trials` is the capacity of the history; 0 means no history.
        """
        unknown = jnp.full(problem.num_residuals, jnp.inf, free.dtype)
        jacobian = jnp.zeros((unknown.size, free.size), free.dtype)
        none, no, yes = -jnp.ones((), int), jnp.asarray(False), jnp.asarray(True)
        history = History.empty(num_trials, free.dtype) if num_trials else None
        state, gain = optimizer.init(free), jnp.full((), jnp.inf, free.dtype)
        return cls(free, unknown, jacobian, free, state, none, no, yes, gain, history)

    @property
    def loss(self) -> Float[Array, ""]:
        """Half the sum of squared residuals."""
        return 0.5 * jnp.sum(self.residual**2)

    @property
    def is_close(self) -> Bool[Array, ""]:
        """Whether a step from the best point would gain less than the noise of the quotes."""
        gradient = self.residual @ self.jacobian
        gain = 0.5 * gradient @ _gauss_newton(self.jacobian, gradient)
        return gain <= _CLOSE * self.loss

    @property
    def result(self) -> RESULTS:
        """The reason why the search ended, or would end if it stopped here."""
        unfinished = RESULTS.where(
            self.finite, RESULTS.max_steps_reached, RESULTS.non_finite_residual
        )
        return RESULTS.where(self.converged & self.finite, RESULTS.converged, unfinished)

    def reason(self, problem: LeastSquaresProblem, result: RESULTS) -> REASONS:
        """Return the criterion that ended the search, given its result."""
        noise = least_gain(jnp.zeros_like(self.loss), self.residual.size, 0.0)
        eps = float(jnp.finfo(self.loss.dtype).eps)
        small = REASONS.where(
            self.gain <= _ROUNDING * eps * self.loss,
            REASONS.gradient_vanishes,
            REASONS.step_no_longer_matters,
        )
        sign = REASONS.where(self.loss <= noise, REASONS.residuals_vanish, small)
        moves = jnp.max(jnp.abs(jax.jacfwd(problem.parameters.values)(self.free)), axis=0)
        may_be_stuck = (result == RESULTS.max_steps_reached) | (result == RESULTS.not_identified)
        is_stuck = may_be_stuck & jnp.any(moves <= eps**0.5)
        found = REASONS.where(is_stuck, REASONS.parameter_at_bound, REASONS.promote(result))
        return REASONS.where(result == RESULTS.converged, sign, found)

    def is_running(self, max_steps: Int[Array, "..."] | int) -> Bool[Array, "*starts"]:
        """Return True for each search that can still take a step within `max_steps`."""
        return ~self.converged & self.finite & (self.num_steps < max_steps)

    def step(self, problem: LeastSquaresProblem, optimizer: Optimizer, rtol: Array) -> "Search":
        """Return the search after one evaluation; it converges once a step gains less than rtol * loss."""
        free = self.proposal
        residual, jacobian = problem.linearized(free)
        gradient, loss = residual @ jacobian, 0.5 * jnp.sum(residual**2)
        with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in integers
            updates, state = optimizer.update(
                gradient, self.optimizer_state, free,
                value=loss, grad=gradient, value_fn=_loss_of(problem), residual=residual, jacobian=jacobian,
                curvature=problem.curvature,
            )  # fmt: skip
        proposal = optax.apply_updates(free, updates)
        assert isinstance(proposal, Array)  # like `free`; optax only knows that both are trees
        gain = 0.5 * gradient @ _gauss_newton(jacobian, gradient)
        least = jnp.maximum(rtol, jnp.where(problem.is_held, _HELD_RTOL, 0.0))
        converged = gain <= least_gain(loss, residual.size, least)
        history = self.history
        if history is not None:
            length, trial = jnp.linalg.norm(free - self.free), self.num_steps + 1
            history = history.with_trial(trial, loss, length, self.optimizer_state)
        keep = converged | (loss < self.loss) | (self.num_steps < 0)
        found, known = (free, residual, jacobian), (self.free, self.residual, self.jacobian)
        best = lambda new, old: jnp.where(keep, new, old)
        free, residual, jacobian = map(best, found, known)
        finite = jnp.all(jnp.isfinite(proposal))
        count = self.num_steps + 1
        return Search(
            free, residual, jacobian, proposal, state, count, converged, finite, gain, history
        )

    def run(
        self,
        problem: LeastSquaresProblem,
        optimizer: Optimizer,
        rtol: Array,
        max_steps: Int[Array, ""] | int,
    ) -> "Search":
        """Return the search after it has converged, or after `max_steps` steps."""
        return jax.lax.while_loop(
            lambda search: search.is_running(max_steps),
            lambda search: search.step(problem, optimizer, rtol),
            self,
        )


def at_optimum(problem: LeastSquaresProblem, free: Vector) -> Search:
    """Return the end of a search near a point, where the gradient of the loss vanishes to rounding.

    Quasi-Newton steps (BFGS: Nocedal and Wright 2006, eq. 6.17) start from the Gauss-Newton matrix J'J. They
    end when one moves no coordinate by 1e-10, or gains nothing. The search has not converged if another step
    would gain more than 1e-10 of the loss.
    """

    def evaluated(count: Array, free: Vector, inverse: Array | None, before: Search) -> tuple:
        residual, jacobian = problem.linearized(free)
        gradient, loss = residual @ jacobian, 0.5 * jnp.sum(residual**2)
        if inverse is None:
            inverse = pseudo_inverse(jacobian)
        else:
            inverse = _quasi_newton(
                inverse, free - before.free, gradient - before.residual @ before.jacobian
            )
        step = inverse @ gradient
        gain = 0.5 * gradient @ step
        found = dataclasses.replace(
            before, free=free, residual=residual, jacobian=jacobian, proposal=free - step,
            num_steps=count, converged=gain <= least_gain(loss, residual.size, 1e-10),
            finite=jnp.all(jnp.isfinite(step)), gain=gain,
        )  # fmt: skip
        return found, inverse, jnp.max(jnp.abs(step)) > _LEAST_MOVE

    def step(at):
        search, inverse, _ = at
        found, new, is_moving = evaluated(search.num_steps + 1, search.proposal, inverse, search)
        lower = found.gain < search.gain
        kept = jax.tree.map(lambda x, old: jnp.where(lower, x, old), found, search)
        return kept, new, lower & is_moving

    def goes_on(at):
        search, _, is_moving = at
        return is_moving & (search.num_steps < _MOST_QUASI_NEWTON)

    start = Search.init(problem, optax.with_extra_args_support(optax.identity()), free)
    first = evaluated(jnp.asarray(0), free, None, start)
    return jax.lax.while_loop(goes_on, step, first)[0]


_LEAST_MOVE = 1e-10  # in a coordinate of the free space, such as the logarithm of a parameter
_MOST_QUASI_NEWTON = 30


def _quasi_newton(inverse: Array, move: Vector, change: Vector) -> Array:
    """Update the inverse Hessian by a move and the change of the gradient; keep it if there is no curvature."""
    curvature = move @ change
    is_convex = curvature > 0.0
    rho = jnp.where(is_convex, 1.0 / jnp.where(is_convex, curvature, 1.0), 0.0)
    unit = jnp.eye(move.size, dtype=move.dtype)
    left = unit - rho * jnp.outer(move, change)
    return left @ inverse @ left.T + rho * jnp.outer(move, move)


def least_gain(loss: Float[Array, ""], num_residuals: int, rtol: Array | float) -> Float[Array, ""]:
    """Return the smallest relevant gain of a step: rtol of the loss, or the noise of the residuals."""
    noise = jnp.finfo(loss.dtype).eps ** (2 / 3)  # in a residual: 4e-11 in double precision
    return rtol * loss + 0.5 * num_residuals * noise**2


def _loss_of(problem: LeastSquaresProblem):
    """Return the loss for optax's line searches, which require a signature with every extra argument."""

    def value_fn(free, residual, jacobian, curvature):
        del residual, jacobian, curvature
        return problem.loss(free)

    return value_fn


def identification(problem: LeastSquaresProblem, search: Search) -> dict[str, Array]:
    """Return the covariance, noise, condition number and unidentified parameters at the end of a search.

    `covariance` is s^2 (J'J)^{-1} in the parameters themselves, with s^2 the variance of the residuals that
    depend on some parameter (including a prior's, but not those of weight 0), and `noise` is s.
    `condition_number` is that of J'J with the columns of J scaled to unit length (1: independent; above 1e6:
    poorly identified). `not_identified` is the mask of the parameters that the quotes and the prior do not
    identify (`WeakPrior`).
    """
    residual, jacobian = search.residual, search.jacobian
    to_parameters = jax.jacfwd(problem.parameters.values)(search.free)
    observations = jnp.sum(jnp.any(jacobian != 0.0, axis=1))
    freedom = jnp.maximum(observations - search.free.size, 1).astype(residual.dtype)
    variance = jnp.sum(residual**2) / freedom
    inverse, singular = _scaled_inverse(jacobian)
    noise, weak = (
        jnp.sqrt(variance),
        problem.weak_prior or WeakPrior.about(problem.parameters, problem.template),
    )
    quoted_rows = jacobian[: problem.num_quoted_rows]
    return {
        "covariance": variance * to_parameters @ inverse @ to_parameters.T,
        "noise": noise,
        "condition_number": (singular[0] / singular[-1]) ** 2,
        "not_identified": weak.not_identified(search.free, quoted_rows, noise),
    }


def pseudo_inverse(jacobian: Float[Array, "residuals parameters"]) -> Array:
    """Return (J'J)^+, by the singular values of J with columns of unit length."""
    return _scaled_inverse(jacobian)[0]


def _scaled_inverse(jacobian: Float[Array, "residuals parameters"]) -> tuple[Array, Vector]:
    """Return (J'J)^+, and J's singular values with columns of unit length."""
    norms = column_norms(jacobian)
    singular, vectors = singular_vectors(jacobian / norms[None, :])
    is_told = singular > singular[0] * max(jacobian.shape) * jnp.finfo(jacobian.dtype).eps
    rows = vectors * jnp.where(is_told, 1.0 / jnp.where(is_told, singular, 1.0), 0.0)[None, :]
    rows = rows / norms[:, None]
    return rows @ rows.T, singular


def _gauss_newton(jacobian: Float[Array, "residuals parameters"], gradient: Vector) -> Vector:
    """Return (J'J)^+ J'r up to rounding: a direction that moves nothing has no gradient either."""
    norms = column_norms(jacobian)
    scaled = jacobian / norms[None, :]
    shift = 10.0 * max(jacobian.shape) * jnp.finfo(jacobian.dtype).eps
    normal = scaled.T @ scaled + shift * jnp.eye(norms.size, dtype=norms.dtype)
    return eliminate(normal, (gradient / norms)[:, None])[:, 0] / norms


def column_norms(jacobian: Float[Array, "residuals parameters"]) -> Vector:
    """Return the lengths of the columns; 1 for a parameter that moves nothing."""
    norms = jnp.linalg.norm(jacobian, axis=0)
    return jnp.where(norms > 0.0, norms, 1.0)
