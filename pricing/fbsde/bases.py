"""Functions of the state that a regression combines: a set of them is a basis."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..numerics.standardizer import whitening
from ..regression.polynomials import heat_polynomials, identity, multi_indices
from .descent import Descent, adam
from .expansion import Features, Functions, States
from .problem import Problem, Real


class AbstractBasis(eqx.Module):
    """Functions of a few features of the state, at one date, as its frame sees them."""

    @abc.abstractmethod
    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        """What the functions of every date need to be of order one: arrays with an axis of dates in front."""

    @abc.abstractmethod
    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        """What the functions see of the states of a date."""

    @abc.abstractmethod
    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        """All functions of the features: smooth."""

    @property
    @abc.abstractmethod
    def is_linear(self) -> bool:
        """Whether they are affine in the features."""

    @property
    def learns(self) -> bool:
        """Whether the functions of a date come of `learned`."""
        return False

    def following(self, frame: PyTree[Array], later: PyTree[Array]) -> PyTree[Array]:
        """The frame of a date before descent; later: what was learned at the date after."""
        del later
        return frame

    def learned(self, frame: PyTree[Array], lesson: "Lesson", key: PRNGKeyArray) -> PyTree[Array]:
        """The frame of a date after descent."""
        del lesson, key
        return frame


class Lesson(NamedTuple):
    """What functions of a date are to learn: `rest` is of their combination by `coefficients`, with its moves.

    In units of the rest's deviation.
    """

    x: States
    noise: States  # s dW
    weights: Float[Array, " paths"]
    coefficients: Float[Array, "contracts functions"]
    rest: Float[Array, "contracts paths"]


class Whitened(NamedTuple):
    """u = whitening (x - center) has mean 0 and covariance 1."""

    center: Float[Array, "*dates coordinates"]
    whitening: Float[Array, "*dates coordinates coordinates"]

    @classmethod
    def of(cls, x: Float[Array, "dates coordinates paths"]) -> "Whitened":
        center = jnp.mean(x, axis=-1)
        apart = x - center[..., None]
        covariance = apart @ jnp.swapaxes(apart, -1, -2) / x.shape[-1]
        return cls(center, jax.vmap(whitening)(covariance))

    def seen(self, x: Float[Array, "coordinates paths"]) -> Float[Array, "coordinates paths"]:
        return self.whitening @ (x - self.center[:, None])


class Hermite(AbstractBasis):
    """Hermite polynomials of the coordinates, up to a total degree.

    logs: the coordinates are the states' logarithms (lognormal assets). The first function is constant.
    """

    degree: int = eqx.field(static=True, default=2)
    logs: bool = eqx.field(static=True, default=False)

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        seen = _coordinates(states, self.logs)
        std = _deviation(seen)
        return std, Whitened.of(seen / std[..., None])

    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        del problem, frame, t
        return _coordinates(x, self.logs)

    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        std, whitened = frame
        return _polynomials(whitened.seen(features / std[:, None]), self.degree)

    @property
    def is_linear(self) -> bool:
        return self.degree < 2


class Mean(AbstractBasis):
    """Hermite polynomials of the mean of the coordinates, of the degrees above `above` up to `degree`.

    The mean is of the coordinates as multiples of their deviations. above: what `Hermite` beside it has.
    logs: the coordinates are the states' logarithms.
    """

    degree: int = eqx.field(static=True, default=8)
    above: int = eqx.field(static=True, default=1)
    logs: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not 0 <= self.above < self.degree:
            raise ValueError(
                f"degree={self.degree}, above={self.above}: give 0 or more for above, and a degree above it."
            )

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        seen = _coordinates(states, self.logs)
        std = _deviation(seen)
        return std, Whitened.of(jnp.mean(seen / std[..., None], axis=1, keepdims=True))

    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        std, _ = frame
        return jnp.mean(_coordinates(x, self.logs) / std[:, None], axis=0, keepdims=True)

    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        _, whitened = frame
        return _polynomials(whitened.seen(features), self.degree)[self.above + 1 :]

    @property
    def is_linear(self) -> bool:
        return self.degree < 2


class SmoothMaximum(AbstractBasis):
    """Hermite polynomials, up to a total degree, of smooth maxima of the coordinates z = ln x, standardized:

        L_b = ln(sum_i exp(b z_i)) / b, for each b of `sharpness`; b < 0 is a smooth minimum.

    They are symmetric, as many in two dimensions as in a hundred, and smooth, unlike the maximum itself: what
    a step leaves of them is small. For positive states.
    """

    sharpness: tuple[float, ...] = eqx.field(static=True, default=(0.5, 1.0, 2.0))
    degree: int = eqx.field(static=True, default=3)

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        logs = jnp.log(states)
        center, std = jnp.mean(logs, axis=-1), _deviation(logs)
        maxima = jax.vmap(self._maxima)(logs, center, std)
        return center, std, Whitened.of(maxima)

    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        center, std, _ = frame
        return self._maxima(jnp.log(x), center, std)

    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        *_, whitened = frame
        return _polynomials(whitened.seen(features), self.degree)[1:]  # a constant is in `Hermite`

    @property
    def is_linear(self) -> bool:
        return self.degree < 2

    def _maxima(self, logs: States, center, std) -> Float[Array, "sharpness paths"]:
        z = (logs - center[:, None]) / std[:, None]
        return jnp.stack([jax.nn.logsumexp(b * z, axis=0) / b for b in self.sharpness])


class Hidden(AbstractBasis):
    """The hidden layer of a network, tanh(W u + b), u the whitened state: it learns what other functions leave.

    W and b descend at every date, from those of the date after, by Adam on batches of paths, for all contracts
    at once. The weights of its outputs are the regression's, which has the layer among its functions.
    num_iterations 0: W and b stay as they were drawn. logs: u is of the states' logarithms.
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

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        dates, dim, dtype = len(states), problem.dim, states.dtype
        whitened = Whitened.of(_coordinates(states, self.logs))
        weights, biases = jax.random.split(jax.random.key(self.seed))
        layer = Layer(
            jax.random.normal(weights, (self.width, dim), dtype) / dim**0.5,
            jax.random.normal(biases, (self.width,), dtype),
        )
        return whitened, jax.tree.map(lambda a: jnp.broadcast_to(a, (dates, *a.shape)), layer)

    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        del problem, t
        whitened, layer = frame
        return layer.weight @ whitened.seen(_coordinates(x, self.logs)) + layer.bias[:, None]

    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        del frame
        return jnp.tanh(features)

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def learns(self) -> bool:
        return self.num_iterations > 0

    def following(self, frame: PyTree[Array], later: PyTree[Array]) -> PyTree[Array]:
        whitened, _ = frame
        _, layer = later
        return whitened, layer

    def learned(self, frame: PyTree[Array], lesson: Lesson, key: PRNGKeyArray) -> PyTree[Array]:
        whitened, layer = frame
        seen = lambda x: whitened.seen(_coordinates(x, self.logs))  # noqa: E731
        u, du = jax.jvp(seen, (lesson.x,), (lesson.noise,))

        def loss(parameters: tuple[Layer, Array], key: PRNGKeyArray) -> Float[Array, ""]:
            layer, outputs = parameters
            paths = jax.random.randint(key, (self.batch_size,), 0, u.shape[1])
            inner = layer.weight @ u[:, paths] + layer.bias[:, None]
            now, moves = jax.jvp(jnp.tanh, (inner,), (layer.weight @ du[:, paths],))
            missed = lesson.rest[:, paths] - outputs @ (now + moves)
            return jnp.mean(lesson.weights[paths][None] * missed**2)

        optimizer = adam(self.learning_rate, self.num_iterations)
        descent = Descent.start(optimizer, (layer, lesson.coefficients))
        descent, _ = descent.advanced(optimizer, loss, key, self.num_iterations)
        layer, _ = descent.parameters
        return whitened, layer


class Layer(NamedTuple):
    weight: Float[Array, "*dates width dim"]
    bias: Float[Array, "*dates width"]


class Payoffs(AbstractBasis):
    """What exercise pays, if that is positive, and what is paid at the end: in units of its deviation."""

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        paid = jax.vmap(problem.terminal, -1, -1)(states[-1])
        unit = jnp.std(paid, axis=-1)
        unit = jnp.where(unit > 0.0, unit, 1.0)
        return jnp.broadcast_to(unit, (len(states), *unit.shape))

    def features(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Features:
        found = [jax.vmap(problem.terminal, -1, -1)(x)]
        if problem.exercise_value is not None:
            paid = jax.vmap(problem.exercise_value, (None, -1), -1)(t, x)
            found.append(jnp.where(paid > 0.0, paid, 0.0))
        return jnp.concatenate([(f / frame[..., None]).reshape(-1, x.shape[-1]) for f in found])

    def outer(self, frame: PyTree[Array], features: Features) -> Functions:
        del frame
        return features

    @property
    def is_linear(self) -> bool:
        return True


def _deviation(states: Float[Array, "dates dim paths"]) -> Float[Array, "dates dim"]:
    std = jnp.std(states, axis=-1)
    return jnp.where(std > 0.0, std, 1.0)


def _coordinates(
    x: Float[Array, "*dates dim paths"], logs: bool
) -> Float[Array, "*dates dim paths"]:
    return jnp.log(x) if logs else x


def _polynomials(seen: Float[Array, "coordinates paths"], degree: int) -> Functions:
    """All Hermite polynomials up to a total degree, the constant first."""
    coordinates = len(seen)
    return heat_polynomials(seen, identity(coordinates), multi_indices(coordinates, degree))


def joined(bases: tuple[AbstractBasis, ...], problem, frames, t, x: States) -> Functions:
    """The functions of all bases."""
    return jnp.concatenate(
        [
            basis.outer(frame, basis.features(problem, frame, t, x))
            for basis, frame in zip(bases, frames, strict=True)
        ]
    )
