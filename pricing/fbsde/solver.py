"""Base classes of solvers (chains of stages over a state) and of their approximations of u."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .. import results
from .problem import Problem, State

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

Date = int | Int[Array, ""]

SINGLE_START = (
    "paths that do not start at x0 (features of contracts): GradientRegression supports them"
)
_JUMPS = "jumps: GridQuadrature and GradientRegression support them"
_SWITCH = "a switch of one value for another: GridQuadrature and GradientRegression support it"
_READS_GAMMA = "a driver that reads Gamma: GridQuadrature and GradientRegression support it"


def beyond_networks(problem: Problem) -> str | None:
    """Return the feature of the problem that no network solver can handle, in words, or None."""
    if problem.start is not None:
        return SINGLE_START
    if problem.jumps is not None:
        return _JUMPS
    if problem.switch is not None:
        return _SWITCH
    return _READS_GAMMA if problem.reads_gamma else None


class RESULTS(results.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Result codes of a training, an enumeration with messages."""

    non_finite_loss = (
        "Look for values of the problem's functions that are not finite: states may be far out, or "
        "negative under a root or a logarithm. Otherwise lower the learning rate; for a regression, "
        "use functions of lower degree, order=1, a wider initial_dispersion or more paths."
    )
    value_at_start_only = (
        "DeepBSDE learns the value only at t = 0, x = x0: BackwardDP, OneStepMalliavin and "
        "GradientRegression learn it elsewhere."
    )


class AbstractApproximation(eqx.Module):
    """The approximation of u on the dates of the grid, before exercise or a stop.

    A subclass defines `value` and `portfolio`; by default, gradient and Hessian are derivatives of the value.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import AbstractApproximation
        >>> class Square(AbstractApproximation):
        ...     quantity: float = 1.0
        ...     def value(self, date, x):
        ...         return self.quantity * jnp.sum(x**2)
        ...     def portfolio(self, quantities):
        ...         return Square(self.quantity * quantities[0])
        >>> Square().gradient(0, jnp.ones(2)).tolist()
        [2.0, 2.0]
    """

    @abc.abstractmethod
    def value(self, date: Date, x: State) -> Float[Array, "*contracts"]:
        """Return u at a date (its index, below num_steps) and a state."""

    def gradient(self, date: Date, x: State) -> Float[Array, "*contracts dim"]:
        """Return the gradient of u."""
        return jax.jacrev(self.value, argnums=1)(date, x)

    def hessian(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Return the Hessian of u."""
        return jax.jacfwd(self.gradient, argnums=1)(date, x)

    def hessian_rounding(self, date: Date, x: State) -> Float[Array, "*contracts dim dim"]:
        """Return a bound of the rounding errors of the Hessian, beyond those of its paths; by default 0."""
        contracts = jax.eval_shape(self.value, date, x).shape
        return jnp.zeros((*contracts, x.size, x.size), x.dtype)

    def result(self, order: int, date: Date, x: State) -> RESULTS:
        """Return the result code of a derivative at a date and state, which is NaN unless successful."""
        del order, date, x
        return RESULTS.successful  # pyright: ignore[reportReturnType]

    @abc.abstractmethod
    def portfolio(self, quantities: Float[Array, " contracts"]) -> "AbstractApproximation":
        """Return the approximation of a single contract, the sum of quantity times contract (flat order).

        The quantities are multiplied into parameters in which the outputs are linear, so that the cost no
        longer depends on the number of contracts.
        """


def weighted_sum(
    function: Callable[[Array], Array],
    dates: Int[Array, " dates"],
    weights: Float[Array, " dates"],
    like: jax.ShapeDtypeStruct,
) -> Array:
    """Return the sum of weight times function, an array like `like`, skipping dates of weight 0."""

    def add(total, of_date):
        date, weight = of_date
        more = lambda: total + weight.astype(like.dtype) * function(date)
        return jax.lax.cond(weight == 0.0, lambda: total, more), None

    total, _ = jax.lax.scan(add, jnp.zeros(like.shape, like.dtype), (dates, weights))
    return total


class AbstractSolver(eqx.Module):
    """A solver for `solve`: a program of `num_stages` successive stages.

    Checkpoints are kept between stages. The outputs of the stages, in addition to their states, are stacked (a
    backward scheme outputs the parameters of a date).

    Attributes:
        mesh: The devices that share the paths (axis "paths"), or None.
    """

    mesh: AbstractVar[Mesh | None]

    @abc.abstractmethod
    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return the feature that this solver cannot handle, and solvers that can; None if it can."""

    @abc.abstractmethod
    def num_stages(self, problem: Problem) -> int:
        """Return the number of stages of a training."""

    @abc.abstractmethod
    def init(self, problem: Problem, *, key: PRNGKeyArray) -> PyTree[Array]:
        """Return the state before the first stage, a pytree of arrays."""

    @abc.abstractmethod
    def stage(
        self, problem: Problem, state: PyTree[Array], index: Array, *, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], PyTree[Array], Float[Array, " iterations"]]:
        """Return the state after stage `index`, the stage's output, and the loss of each iteration.

        A loss is infinite if a finite result is known to be useless.
        """

    @abc.abstractmethod
    def postprocess(
        self, problem: Problem, state: PyTree[Array], outputs: PyTree[Array]
    ) -> AbstractApproximation:
        """Return the approximation of u from the last state and the stacked outputs."""

    def describe_stage(self, problem: Problem, stage: int) -> str:
        """Return a description of a stage's work."""
        del problem
        return f"stage {stage}"

    def metrics(self, state: PyTree[Array]) -> dict[str, Any]:
        """Return numbers to monitor after a stage, in addition to its loss."""
        del state
        return {}
