"""Functions of the state that a regression combines: a set of them is a basis."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..regression.polynomials import Indices, heat_polynomials, identity, multi_indices
from ..regression.solve import whitening
from .problem import Problem, Real

States = Float[Array, "dim paths"]
Functions = Float[Array, "functions paths"]


class AbstractBasis(eqx.Module):
    """Functions of the state of one date, as its frame sees it."""

    @abc.abstractmethod
    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        """What the functions of every date need to be of order one: arrays with an axis of dates in front."""

    @abc.abstractmethod
    def functions(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Functions:
        """All functions at all states of a date."""


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
    """Hermite polynomials up to a total degree; along the mean of the coordinates up to `mean_degree`.

    The mean is of the coordinates as multiples of their deviations. logs: the coordinates are the states'
    logarithms (lognormal assets). The first function is constant.
    """

    degree: int = eqx.field(static=True, default=2)
    mean_degree: int = eqx.field(static=True, default=0)
    logs: bool = eqx.field(static=True, default=False)

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        del problem
        states = jnp.log(states) if self.logs else states
        std = _deviation(states)
        return std, Whitened.of(_mean_first(states / std[..., None]))

    def functions(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Functions:
        del t
        std, whitened = frame
        x = jnp.log(x) if self.logs else x
        seen = whitened.seen(_mean_first((x / std[:, None])[None])[0])
        return heat_polynomials(seen, identity(problem.dim), self._indices(problem.dim))

    def _indices(self, dim: int) -> Indices:
        above = range(self.degree + 1, self.mean_degree + 1)
        return (*multi_indices(dim, self.degree), *((k, *(0,) * (dim - 1)) for k in above))


class Ordered(AbstractBasis):
    """Hermite polynomials, up to a total degree, of the `count` largest coordinates in their order."""

    count: int = eqx.field(static=True, default=2)
    degree: int = eqx.field(static=True, default=3)

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        return Whitened.of(jax.vmap(lambda x: self._largest(problem, x))(states))

    def functions(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Functions:
        del t
        seen = frame.seen(self._largest(problem, x))
        linear = [index for index in multi_indices(len(seen), self.degree) if sum(index) > 0]
        found = heat_polynomials(seen, identity(len(seen)), ((0,) * len(seen), *linear))
        return found[1:]  # a constant is in the other basis

    def _largest(self, problem: Problem, x: States) -> Float[Array, "count paths"]:
        count = min(self.count, problem.dim)
        return jnp.sort(x, axis=0)[::-1][:count]


class Payoffs(AbstractBasis):
    """What exercise pays, if that is positive, and what is paid at the end: in units of its deviation."""

    def frames(self, problem: Problem, states: Float[Array, "dates dim paths"]) -> PyTree[Array]:
        paid = jax.vmap(problem.terminal, -1, -1)(states[-1])
        unit = jnp.std(paid, axis=-1)
        unit = jnp.where(unit > 0.0, unit, 1.0)
        return jnp.broadcast_to(unit, (len(states), *unit.shape))

    def functions(self, problem: Problem, frame: PyTree[Array], t: Real, x: States) -> Functions:
        found = [jax.vmap(problem.terminal, -1, -1)(x)]
        if problem.exercise_value is not None:
            paid = jax.vmap(lambda x: problem.exercise_value(t, x), -1, -1)(x)
            found.append(jnp.where(paid > 0.0, paid, 0.0))
        return jnp.concatenate([(f / frame[..., None]).reshape(-1, x.shape[-1]) for f in found])


def _deviation(states: Float[Array, "dates dim paths"]) -> Float[Array, "dates dim"]:
    std = jnp.std(states, axis=-1)
    return jnp.where(std > 0.0, std, 1.0)


def _mean_first(x: Float[Array, "dates dim paths"]) -> Float[Array, "dates dim paths"]:
    """The mean of the coordinates, then all but the last of them."""
    return jnp.concatenate([jnp.mean(x, axis=1, keepdims=True), x[:, :-1]], axis=1)


def joined(bases: tuple[AbstractBasis, ...], problem, frames, t, x: States) -> Functions:
    """The functions of all bases."""
    found = [b.functions(problem, f, t, x) for b, f in zip(bases, frames, strict=True)]
    return jnp.concatenate(found)
