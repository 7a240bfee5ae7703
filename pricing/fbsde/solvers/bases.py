"""Basis functions of regressions."""

import abc
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...fields import Number
from ...numerics.safe_math import maximum
from ...numerics.standardizer import Standardizer, deviation
from ...regression.polynomials import hermite_polynomials
from ..dynamics.coordinates import Dependence, dependence
from ..dynamics.ito_taylor import (
    Composition,
    Features,
    Functions,
    States,
)
from ..path_shares import PathShare
from ..problem import Problem, Real
from .networks import OptimizerState, adam, minimize

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

_EXPONENT = 0.45  # of the largest number's: squares and their inverses are finite


class BasisTargets(NamedTuple):
    """The training data of a basis: `coefficients` times functions and increments should explain `rest`.

    `rest` is in units of its standard deviation. Paths are those of a share.
    """

    x: States
    noise: States  # s dW
    weights: Float[Array, " paths"]
    coefficients: Float[Array, "contracts functions"]
    rest: Float[Array, "contracts paths"]
    num_paths: int  # over all shares
    share: PathShare


class AbstractBasis(eqx.Module):
    """Functions of a few features of the state at one date, for a regression.

    A basis has parameters for each date: scales that make its functions of order one, and trained numbers.
    """

    @abc.abstractmethod
    def init(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        """Return the parameters of every date: arrays with a leading axis of dates."""

    @abc.abstractmethod
    def features(self, problem: Problem, parameters: PyTree[Array], t: Real, x: States) -> Features:
        """Return the features of the states of a date, the inputs of the functions."""

    @abc.abstractmethod
    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        """Return all functions of the features, which must be smooth."""

    @property
    def is_linear(self) -> bool:
        """Whether the functions are affine in the features."""
        return False

    @property
    def is_additive(self) -> bool:
        """Whether each feature is a sum of functions of one coordinate; derivatives are then cheaper."""
        return False

    def is_additive_for(self, problem: Problem) -> bool:
        """Return True if the features of a problem are sums of functions of one coordinate."""
        del problem
        return self.is_additive

    @property
    def is_trainable(self) -> bool:
        """Whether the parameters of a date come from `train`."""
        return False

    def warm_start(self, parameters: PyTree[Array], later: PyTree[Array]) -> PyTree[Array]:
        """Return the parameters of a date before its training, given those of the next date."""
        del later
        return parameters

    def train(
        self, parameters: PyTree[Array], targets: BasisTargets, *, key: PRNGKeyArray
    ) -> PyTree[Array]:
        """Return the parameters of a date after its training."""
        del targets, key
        return parameters


class _AbstractPolynomials(AbstractBasis):
    """Hermite polynomials, up to a total degree, of features standardized at each date."""

    degree: AbstractVar[int]

    @abc.abstractmethod
    def _units(self, x: States) -> PyTree[Array]:
        """Return the scales that make the features of a date of order one."""

    @abc.abstractmethod
    def _in_units(self, units: PyTree[Array], x: States) -> Features:
        """Return the features."""

    def _variables(self, features: Features) -> Features:
        """Return the variables of the polynomials, before they are standardized."""
        return features

    def init(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        units = jax.vmap(self._units)(states)
        variables = lambda units, x: self._variables(self._in_units(units, x))
        return units, Standardizer.of(jax.vmap(variables)(units, states))

    def features(self, problem: Problem, parameters: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        units, _ = parameters
        return self._in_units(units, x)

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        _, standardizer = parameters
        return hermite_polynomials(standardizer(self._variables(features)), self.degree)

    @property
    def is_linear(self) -> bool:
        return self.degree < 2


class Hermite(_AbstractPolynomials):
    """Hermite polynomials of the coordinates, up to a total degree; the first is constant.

    Attributes:
        degree: The largest total degree.
        logs: Whether to use the logarithms of the states (lognormal assets).
    """

    degree: int = eqx.field(static=True, default=2)
    logs: bool = eqx.field(static=True, default=False)

    @property
    def is_additive(self) -> bool:
        return True

    def _units(self, x: States) -> Float[Array, " dim"]:
        return deviation(_coordinates(x, self.logs))

    def _in_units(self, units: Float[Array, " dim"], x: States) -> Features:
        return _coordinates(x, self.logs) / units[:, None]


class MeanPolynomials(_AbstractPolynomials):
    """Hermite polynomials of the mean of the coordinates, of degrees above `above` up to `degree`.

    The mean is over coordinates in units of their standard deviations.

    Attributes:
        degree: The largest degree.
        above: The degree of the accompanying `Hermite`, whose functions are omitted.
        logs: Whether to use the logarithms of the states.

    Raises:
        ValueError: `above` is negative, or not below `degree`.
    """

    degree: int = eqx.field(static=True, default=8)
    above: int = eqx.field(static=True, default=1)
    logs: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not 0 <= self.above < self.degree:
            raise ValueError(
                f"degree={self.degree}, above={self.above}: give 0 or more for above, and a degree above it."
            )

    @property
    def is_additive(self) -> bool:
        return True

    def _units(self, x: States) -> Float[Array, " dim"]:
        return deviation(_coordinates(x, self.logs))

    def _in_units(self, units: Float[Array, " dim"], x: States) -> Features:
        return jnp.mean(_coordinates(x, self.logs) / units[:, None], axis=0, keepdims=True)

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        return super().outer(parameters, features)[self.above + 1 :]


class SeparableBasis(AbstractBasis):
    """Hermite polynomials of each single coordinate, of degrees 1 to `degree`, and a constant.

    These are few even in a hundred dimensions; combine with `MeanPolynomials`, which has products of
    coordinates.

    Attributes:
        degree: The largest degree.
        logs: Whether to use the logarithms of the states.
    """

    degree: int = eqx.field(static=True, default=2)
    logs: bool = eqx.field(static=True, default=False)

    def init(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        return Standardizer.by_coordinate(_coordinates(states, self.logs))

    def features(self, problem: Problem, parameters: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        of_coordinate = jax.vmap(lambda x: hermite_polynomials(x[None], self.degree)[1:])
        functions = of_coordinate(parameters(_coordinates(x, self.logs)))
        return jnp.concatenate([jnp.ones_like(x[:1]), functions.reshape(-1, *x.shape[1:])])

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        del parameters
        return features

    @property
    def is_linear(self) -> bool:
        return True

    @property
    def is_additive(self) -> bool:
        return True


@jax.custom_jvp
def _kept_finite(z: Array, most: Number) -> Array:
    """Return z, at most `most` in absolute value, with the derivatives of z.

    The derivatives of `jnp.clip` compare z, and would compute its logarithm again.
    """
    return jnp.clip(z, -most, most)


_kept_finite.defjvps(lambda dz, _, *given: dz, None)


class SmoothMaximum(_AbstractPolynomials):
    """Hermite polynomials, up to a total degree, of smooth maxima of the coordinates.

    With z = ln x, standardized, the smooth maxima are

        L_b = ln(sum_i exp(b z_i)) / b, for each b of `sharpness`; b < 0 is a smooth minimum.

    They are symmetric, equally many in two dimensions and a hundred, and smooth, unlike the maximum itself: the
    remainder of their expansion over a step is small. States must be positive.

    Attributes:
        sharpness: The numbers b.
        degree: The largest total degree.
    """

    sharpness: tuple[float, ...] = eqx.field(static=True, default=(0.5, 1.0, 2.0))
    degree: int = eqx.field(static=True, default=3)

    def _units(self, x: States) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        return jnp.mean(jnp.log(x), axis=-1), deviation(jnp.log(x))

    def _in_units(self, units: tuple[Array, Array], x: States) -> Float[Array, "sharpness paths"]:
        center, std = units
        z = (jnp.log(x) - center[:, None]) / std[:, None]
        most = _EXPONENT * math.log(jnp.finfo(z.dtype).max)  # 20 standard deviations in float32
        z = _kept_finite(z, most / max(map(abs, self.sharpness)))
        return jnp.stack([jnp.sum(jnp.exp(b * z), axis=0) for b in self.sharpness])

    def _variables(self, features: Features) -> Features:
        return jnp.log(features) / jnp.asarray(self.sharpness, features.dtype)[:, None]

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def is_additive(self) -> bool:
        return True

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        return super().outer(parameters, features)[1:]  # the constant is in `Hermite`


class HiddenLayer(AbstractBasis):
    """The hidden layer of a network, tanh(W u + b), u the standardized state, trained on residuals.

    W and b are trained at every date by Adam on batches of paths, for all contracts at once, starting from the
    next date. The regression, which includes the layer's functions, finds their weights.

    Attributes:
        width: The number of units of the layer.
        num_iterations: Adam's iterations at each date; with 0, W and b stay random.
        batch_size: The paths of an iteration.
        learning_rate: Adam's learning rate, with cosine decay.
        logs: Whether u is the standardized logarithm of the state.
        seed: The seed of the initial W and b.

    Raises:
        ValueError: A number is out of range.
    """

    width: int = eqx.field(static=True, default=32)
    num_iterations: int = eqx.field(static=True, default=100)
    batch_size: int = eqx.field(static=True, default=1024)
    learning_rate: float = eqx.field(static=True, default=1e-2)
    logs: bool = eqx.field(static=True, default=False)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        for name, least in {"width": 1, "num_iterations": 0, "batch_size": 1}.items():
            if (number := getattr(self, name)) < least:
                raise ValueError(f"{name}={number}: give {least} or more.")

    def init(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        dates, dim, dtype = len(states), problem.dim, states.dtype
        standardizer = Standardizer.of(_coordinates(states, self.logs))
        weights, biases = jax.random.split(jax.random.key(self.seed))
        layer = (
            jax.random.normal(weights, (self.width, dim), dtype) / dim**0.5,
            jax.random.normal(biases, (self.width,), dtype),
        )
        return standardizer, jax.tree.map(lambda a: jnp.broadcast_to(a, (dates, *a.shape)), layer)

    def features(self, problem: Problem, parameters: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        standardizer, (weight, bias) = parameters
        return weight @ standardizer(_coordinates(x, self.logs)) + bias[:, None]

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        del parameters
        return jnp.tanh(features)

    @property
    def is_additive(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return self.num_iterations > 0

    def warm_start(self, parameters: PyTree[Array], later: PyTree[Array]) -> PyTree[Array]:
        standardizer, _ = parameters
        _, layer = later
        return standardizer, layer

    def train(
        self, parameters: PyTree[Array], targets: BasisTargets, *, key: PRNGKeyArray
    ) -> PyTree[Array]:
        standardizer, layer = parameters
        standardized = lambda x: standardizer(_coordinates(x, self.logs))
        u, du = jax.jvp(standardized, (targets.x,), (targets.noise,))

        columns = u.T, du.T, targets.rest.T, targets.weights
        sizes = targets.num_paths, self.batch_size, self.num_iterations
        batch = targets.share.batches(columns, *sizes, key=key)

        def loss(
            parameters: tuple[tuple[Array, Array], Array], iteration: Array, share: PathShare
        ) -> tuple[Float[Array, ""], Float[Array, ""]]:
            (weight, bias), outputs = parameters
            u, du, rest, weights = batch(iteration, share)
            inner = weight @ u.T + bias[:, None]
            now, increments = jax.jvp(jnp.tanh, (inner,), (weight @ du.T,))
            residuals = rest.T - outputs @ (now + increments)
            squares = weights[None] * residuals**2
            return jnp.sum(squares), jnp.asarray(squares.size, squares.dtype)

        optimizer = adam(self.learning_rate, self.num_iterations)
        first = OptimizerState.init(optimizer, (layer, targets.coefficients))
        last, _ = minimize(loss, optimizer, first, self.num_iterations, targets.share)
        layer, _ = last.parameters
        return standardizer, layer


class PayoffBasis(AbstractBasis):
    """The exercise and terminal values, in units of the terminal value's standard deviation.

    The exercise value is floored at 0, or at the smallest terminal value if that is negative.
    """

    def init(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        paid = jax.vmap(problem.terminal, -1, -1)(states[-1])
        both = deviation(paid), jnp.minimum(jnp.min(paid, axis=-1), 0.0)
        return jax.tree.map(lambda row: jnp.broadcast_to(row, (len(states), *row.shape)), both)

    def features(self, problem: Problem, parameters: PyTree[Array], t: Real, x: States) -> Features:
        scale, least = (row[..., None] for row in parameters)
        values = [jax.vmap(problem.terminal, -1, -1)(x)]
        if problem.exercise_value is not None:
            paid = jax.vmap(problem.exercise_value, (None, -1), -1)(t, x)
            values.append(maximum(paid, least))
        return jnp.concatenate([(f / scale).reshape(-1, x.shape[-1]) for f in values])

    def outer(self, parameters: PyTree[Array], features: Features) -> Functions:
        del parameters
        return features

    @property
    def is_linear(self) -> bool:
        return True

    def is_additive_for(self, problem: Problem) -> bool:
        """Return True if the payments are sums of functions of one coordinate."""
        if problem.exercise_value is not None:
            return False
        return dependence(problem.terminal, problem.x0) is not Dependence.ANY


def _coordinates(
    x: Float[Array, "*dates dim paths"], logs: bool
) -> Float[Array, "*dates dim paths"]:
    return jnp.log(x) if logs else x


def compositions(
    bases: tuple[AbstractBasis, ...],
    problem: Problem,
    parameters: tuple[PyTree[Array], ...],
    t: Real,
) -> list[Composition]:
    """Return the functions of all bases at a date."""
    return [
        Composition(
            partial(basis.features, problem, own, t),
            partial(basis.outer, own),
            basis.is_linear,
            basis.is_additive_for(problem),
        )
        for basis, own in zip(bases, parameters, strict=True)
    ]
