"""The abstract Monte Carlo estimator: differentiable samples of a value."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from ..models import ConditionallyGaussian, LocalVolatility, LognormalSpots, LogSpotSteps
from ..products import AbstractProduct

SECOND_ORDER = frozenset({"gamma", "vanna", "volga"})


class Needs(NamedTuple):
    """The random numbers of one path, in addition to those of its variance.

    normals: the shape (steps, *motions) of a stream of normals, (0,) for none; uniforms: the number of
        uniforms.
    """

    normals: tuple[int, ...]
    uniforms: int = 0


class Draw(NamedTuple):
    """One block of paths.

    walk: the steps of log(S / forward) between the estimator's dates, given the variance path; normals,
        uniforms: those of `Needs`, with a trailing axis of paths; uniforms are in (0, 1).
    """

    walk: LogSpotSteps
    normals: Float[Array, "*shape paths"]
    uniforms: Float[Array, "dates paths"]


class AbstractEstimator(eqx.Module):
    """An estimator, which turns one block of paths into samples of the discounted payoff.

    Given the variance path, the log-spots are Gaussian. An estimator integrates over as much of this noise as
    it can, so that its samples are continuous in every number of product and model, and their derivatives are
    samples of the derivative. The same holds for the second derivatives named by `second_order`.
    """

    @property
    def dates_are_declared(self) -> bool:
        """Whether `dates` are those of the product and do not depend on num_steps."""
        return True

    def last_step_is_enough(self, product: AbstractProduct) -> bool:
        """Return True if integrating only the last step suffices (`LocalVolatility`)."""
        del product
        return False

    @abc.abstractmethod
    def applies(self, product: AbstractProduct) -> bool:
        """Return True if it estimates this product, given in canonical form."""

    @abc.abstractmethod
    def second_order(self, model: ConditionallyGaussian) -> frozenset[str]:
        """Return the subset of gamma, vanna, volga that second derivatives of its samples give without bias."""

    def controlled(
        self, product: AbstractProduct, model: ConditionallyGaussian, num_steps: int
    ) -> Any:
        """Return the estimator with its control variate, if any, built once for all blocks of paths."""
        del product, model, num_steps
        return self

    @abc.abstractmethod
    def dates(self, product: AbstractProduct, num_steps: int) -> Float[Array, " dates"]:
        """Return the times at which it reads the spot, in years.

        num_steps: The number of times for a continuously monitored product.
        """

    @abc.abstractmethod
    def needs(
        self, product: AbstractProduct, model: ConditionallyGaussian, num_dates: int
    ) -> Needs:
        """Return the random numbers of one path."""

    @abc.abstractmethod
    def values(
        self, product: AbstractProduct, model: ConditionallyGaussian, draw: Draw
    ) -> Float[Array, " paths"]:
        """Return the discounted payoffs (currency) of the paths, integrated as far as possible."""


def smooth(model: ConditionallyGaussian) -> frozenset[str]:
    """Return the second derivatives given by samples that are smooth in the spot.

    A path of random or local variances has kinks in its parameters, so its second derivative to the volatility
    level is wrong. There are none if the path depends on the spot.
    """
    if isinstance(model, LocalVolatility) and model.moves_with_spot:
        return frozenset()
    return SECOND_ORDER if isinstance(model, LognormalSpots) else SECOND_ORDER - {"volga"}
