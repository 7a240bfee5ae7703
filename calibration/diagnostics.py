"""Diagnostics of a calibration: identifiability, leverage, Cook's distance and profile likelihood."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Bool, Float

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from pricing.numerics.singular_vectors import singular_vectors

from .calibration import Calibration
from .least_squares_problem import LeastSquaresProblem, Search, column_norms, pseudo_inverse
from .optimizers import levenberg_marquardt

Vector = Float[Array, " parameters"]
Matrix = Float[Array, "directions parameters"]
Quoted = Float[Array, "rows columns"]

SEVERE = 30.0  # a condition index above which parameters are nearly collinear (Belsley et al. 1980, p. 105)
_TELLING = 0.5  # a share of a parameter's variance that counts (ibid.)


class Identifiability(NamedTuple):
    """Combinations of the parameters that the quotes identify, the worst identified first.

    The directions are the eigenvectors of J'J with the columns of J scaled to unit length, J the Jacobian of
    the residuals (Belsley, Kuh and Welsch, *Regression Diagnostics*, 1980, sec. 3.2).

    Attributes:
        names: The parameters.
        condition_indices: The square root of the largest eigenvalue over each direction's, of shape
            (directions,).
        moves: Joint moves of the parameters, in their own units, by one standard error along each direction, of
            shape (directions, parameters).
        shares: Fraction of the variance of each parameter that comes from each direction; they sum to 1 over
            the directions.

    Examples:
        >>> import numpy as np
        >>> from calibration import Identifiability
        >>> moves = np.array([[0.5, -0.01], [0.001, 0.001]])
        >>> shares = np.array([[0.99, 0.98], [0.01, 0.02]])
        >>> print(Identifiability(("a", "b"), np.array([70.0, 1.0]), moves, shares).summary)
        The quotes hardly distinguish a, b (condition index 70): they may move together by a +0.5, b -0.01.
    """

    names: tuple[str, ...]
    condition_indices: Vector
    moves: Matrix
    shares: Matrix

    @property
    def summary(self) -> str:
        """The parameters that the quotes poorly identify, one line for each such direction."""
        lines = []
        rows = zip(self.condition_indices, self.moves, self.shares, strict=True)
        for index, move, share in rows:
            part_of = [i for i, part in enumerate(share) if part > _TELLING]
            if not index > SEVERE or not part_of:
                continue
            which = ", ".join(self.names[i] for i in part_of)
            together = ", ".join(f"{self.names[i]} {move[i]:+.2g}" for i in part_of)
            what = f"distinguish {which}" if len(part_of) > 1 else f"identify {which}"
            how = "they may move together by" if len(part_of) > 1 else "it may move by"
            lines.append(
                f"The quotes hardly {what} (condition index {index:.0f}): {how} {together}."
            )
        worst = float(np.max(self.condition_indices))
        identified = (
            f"The quotes identify all parameters: the largest condition index is {worst:.1f}."
        )
        return "\n".join(lines) or identified


@full_matmul_precision
def identifiability(calibration: Calibration) -> Identifiability:
    """Return the combinations of the parameters, and the degree to which the quotes identify each.

    Args:
        calibration: A result of `calibrate`. ValueError is raised for one that does not hold its problem.

    Returns:
        The directions of the parameters, with their condition indices and shares of the variance.

    Examples:
        >>> from calibration import calibrate, identifiability
        >>> from pricing import HullWhite
        >>> from pricing.market import SwaptionVols
        >>> quotes = SwaptionVols([1.0, 2.0], [1.0, 5.0], [[0.2, 0.19], [0.18, 0.17]])
        >>> found = identifiability(calibrate(quotes, HullWhite(0.03, 0.05, 0.01)))
        >>> found.names, found.moves.shape
        (('mean_reversion', 'vol'), (2, 2))
    """
    problem = calibration.solved_problem
    noise = calibration.stats["noise"]
    return Identifiability(
        problem.parameters.labels, *_directions(problem, calibration.model, noise)
    )


@stored_jit
def _directions(problem: LeastSquaresProblem, model, noise: Array) -> tuple[Vector, Matrix, Matrix]:
    free = problem.parameters.free(model)
    _, jacobian = problem.linearized(free)
    norms, tiny = column_norms(jacobian), jnp.finfo(free.dtype).tiny
    singular, vectors = singular_vectors(jacobian / norms[None, :])
    singular, rows = jnp.maximum(singular[::-1], tiny), vectors.T[::-1]
    scores = (rows / singular[:, None]) ** 2
    moves = noise * rows / (singular[:, None] * norms[None, :])
    in_units = moves @ jax.jacfwd(problem.parameters.values)(free).T
    return singular[-1] / singular, in_units, scores / jnp.sum(scores, axis=0, keepdims=True)


@full_matmul_precision
def leverage(calibration: Calibration) -> Quoted:
    """Return the leverage of each quote: the derivative of the fitted vol with respect to its own quote.

    In the Gauss-Newton approximation it is the diagonal of J (J'J)^{-1} J', between 0 and 1. Leverages sum to
    the number of parameters, less the part that a prior determines; a quote with leverage 1 is always fitted
    exactly.

    Args:
        calibration: A result of `calibrate`. ValueError is raised for one that does not hold its problem.

    Returns:
        The leverages, in the shape of the quotes.

    Examples:
        >>> from calibration import calibrate, leverage
        >>> from pricing import HullWhite
        >>> from pricing.market import SwaptionVols
        >>> quotes = SwaptionVols([1.0, 2.0], [1.0, 5.0], [[0.2, 0.19], [0.18, 0.17]])
        >>> f"{leverage(calibrate(quotes, HullWhite(0.03, 0.05, 0.01))).sum():.4f}"
        '2.0000'
    """
    problem = calibration.solved_problem
    return problem.of_quotes(_hat(problem, calibration.model))


@full_matmul_precision
def cooks_distance(calibration: Calibration) -> Quoted:
    """Return Cook's distance of each quote: the squared move of the parameters without it, in standard errors.

    D = r^2 h / (p s^2 (1 - h)^2) with the residual r, the leverage h, p parameters and the standard error s of
    a quote (Cook 1977). Above 1, a quote decides the fit by itself.

    Args:
        calibration: A result of `calibrate`. ValueError is raised for one that does not hold its problem.

    Returns:
        The distances, in the shape of the quotes.

    Examples:
        >>> from calibration import calibrate, cooks_distance
        >>> from pricing import HullWhite
        >>> from pricing.market import SwaptionVols
        >>> quotes = SwaptionVols([1.0, 2.0], [1.0, 5.0], [[0.2, 0.19], [0.18, 0.17]])
        >>> cooks_distance(calibrate(quotes, HullWhite(0.03, 0.05, 0.01))).shape
        (2, 2)
    """
    h, stats = leverage(calibration), calibration.stats
    count = len(calibration.solved_problem.parameters.labels)
    return calibration.residuals**2 * h / (count * stats["noise"] ** 2 * (1.0 - h) ** 2)


@stored_jit
def _hat(problem: LeastSquaresProblem, model) -> Float[Array, " residuals"]:
    _, jacobian = problem.linearized(problem.parameters.free(model))
    return jnp.sum((jacobian @ pseudo_inverse(jacobian)) * jacobian, axis=1)


class Profile(NamedTuple):
    """Quality of the fit with one parameter held fixed, and the fitted values of the others.

    Attributes:
        values: Values of the held parameter, of shape (points,).
        deviances: (|r|^2 - least |r|^2) / s^2 at each, with the standard error s of a quote at the optimum.
            The values with a deviance below 3.84 are about the 95 % confidence interval (Wilks 1938).
        parameters: Field -> the parameter at each point, of shape (points, ...).
        converged: Whether the search at each point has converged, of shape (points,).
    """

    values: Float[Array, " points"]
    deviances: Float[Array, " points"]
    parameters: dict[str, Array]
    converged: Bool[Array, " points"]

    @property
    def allowed(self) -> tuple[float, float]:
        """The smallest and the largest value whose deviance is below 3.84; NaN if there is none."""
        inside = np.asarray(self.values)[np.asarray(self.deviances) < 3.84]
        return (float(inside.min()), float(inside.max())) if inside.size else (np.nan, np.nan)


@full_matmul_precision
def profile(
    calibration: Calibration,
    name: str,
    values: Sequence[float] | ArrayLike,
    *,
    optimizer: optax.GradientTransformation | None = None,
    max_steps: int = 100,
    rtol: float = 1e-10,
) -> Profile:
    """Compute a profile likelihood: refit all other parameters with one held at each of some values.

    A flat profile shows that the quotes do not identify the parameter; one that is far from a parabola shows
    that its standard error is misleading. The searches are one program; each starts at the end of its neighbor,
    the first ones at the optimum.

    Args:
        calibration: A result of `calibrate`.
        name: The parameter; for an array one number, such as "rho[2]".
        values: Values at which it is held, of shape (points,).
        optimizer: Any optax transformation; the default is Levenberg-Marquardt.
        max_steps: Maximum number of steps of each search.
        rtol: A search stops once a step would lower the loss by less than this fraction of it.

    Returns:
        The deviance at each value, in the order given.

    Raises:
        ValueError: If there is no such parameter, or a value is outside its bounds.

    Examples:
        >>> from calibration import calibrate, profile
        >>> from pricing import HullWhite
        >>> from pricing.market import SwaptionVols
        >>> quotes = SwaptionVols([1.0, 2.0], [1.0, 5.0], [[0.2, 0.19], [0.18, 0.17]])
        >>> found = calibrate(quotes, HullWhite(0.03, 0.05, 0.01))
        >>> bool(profile(found, "mean_reversion", [0.0, 0.1, 0.2]).converged.all())
        True
    """
    problem, values = calibration.solved_problem, np.asarray(values, dtype=float)
    labels = problem.parameters.labels
    if name not in labels:
        raise ValueError(f"no parameter {name!r} to hold: give one of {', '.join(labels)}")
    held = np.arange(len(labels)) == labels.index(name)
    optimum = problem.parameters.values(problem.parameters.free(calibration.model))
    rows = np.where(held[None, :], values[:, None], optimum[None, :])
    points = jax.vmap(problem.parameters.to_free)(jnp.asarray(rows))
    if not np.all(np.isfinite(points)):
        raise ValueError(f"{name} is held at {values}: give numbers within its bounds")
    problem = eqx.tree_at(
        lambda p: p.parameters.held, problem, jnp.asarray(held), is_leaf=lambda x: x is None
    )
    order = np.argsort(np.abs(values - float(optimum[labels.index(name)])), kind="stable")
    settings = optimizer or levenberg_marquardt(), jnp.asarray(rtol), jnp.asarray(max_steps)
    free, losses, converged, least = _profiled(
        problem, calibration.model, points[order], jnp.asarray(held), *settings
    )
    back = np.argsort(order)
    models = jax.vmap(lambda x: problem.model(x))(free[back])
    return Profile(
        jnp.asarray(values),
        2.0 * (losses[back] - least) / calibration.stats["noise"] ** 2,
        {field: getattr(models, field) for field in problem.parameters.names},
        converged[back],
    )


@stored_jit
def _profiled(problem: LeastSquaresProblem, model, points, held, optimizer, rtol, max_steps):
    """Return the ends of the searches in the order of `points`, their losses, and the loss of the model."""
    optimizer = optax.with_extra_args_support(optimizer)
    optimum = problem.parameters.free(model)
    coordinate = lambda free: free @ held.astype(free.dtype)

    def onward(ends, at):
        point, place = at
        is_done = jnp.arange(len(ends)) <= place
        distances = jnp.where(is_done, jnp.abs(coordinate(ends) - coordinate(point)), jnp.inf)
        start = jnp.where(held, point, ends[jnp.argmin(distances)])
        search = Search.init(problem, optimizer, start).run(problem, optimizer, rtol, max_steps)
        found = search.free, search.loss, search.converged & search.finite
        return ends.at[place + 1].set(search.free), found

    ends = jnp.concatenate([optimum[None], points])
    _, found = jax.lax.scan(onward, ends, (points, jnp.arange(len(points))))
    return *found, problem.loss(optimum)
