"""Abilities of stochastic variance: its means, and a diffusion with a simulation scheme."""

import abc
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..market.state import MarketState
from ..numerics.differentiable_once import differentiable_once
from ..numerics.mixing import mixed
from ..numerics.safe_math import safe_sqrt
from .diffusion import Diffusion, State, time_derivative
from .model import ConditionallyGaussian, LogSpotSteps, Scalar, correlation_of
from .shapes import Correlation, Steps, Times

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

Variance = Float[Array, "..."]
Paths = Float[Array, "*assets paths"]

_WHY_ONCE = (
    "Paths of the variance have a kink where it reaches zero: their second derivative in the model's "
    "parameters is wrong. Differentiate once, or use Fourier() for volga."
)


class MeanVariance(ConditionallyGaussian):
    """Ability: the variance of a single asset is random, with a known mean at any time.

    For the steps of a walk, exp(mean + variance / 2) has mean exactly 1, and variances have exactly these
    means.

    Attributes:
        initial_variance: Today's variance, per year.

    Examples:
        >>> from pricing.models import Heston
        >>> f"{Heston(100.0, 0.03, 0.04, 1.5, 0.04, 0.6, -0.7).total_variance(2.0):.2f}"
        '0.08'
    """

    initial_variance: AbstractVar[Variance]

    @abc.abstractmethod
    def mean_variance(self, variance: Variance, t: Float[Array, "..."]) -> Variance:
        """Return the mean of the instantaneous variance after t years, starting from `variance`."""

    @abc.abstractmethod
    def mean_integral(self, variance: Variance, t: Float[Array, "..."]) -> Variance:
        """Return the mean of its integral over t years, starting from `variance`; affine in `variance`."""

    def total_variance(self, t: Scalar) -> Scalar:
        """Return the mean of the integrated variance from today to t (years)."""
        return self.mean_integral(self.initial_variance, t)


@runtime_checkable
class VarianceScheme(Protocol):
    """A step of the variance: a pytree of constants, for one step length or, stacked, for several."""

    def step(self, v: Paths, z: Paths) -> tuple[Paths, tuple[Paths, Paths, Paths]]:
        """Return the next variance, from one standard normal z per path, and the step of the log-spot.

        The step consists of the Gaussian mean and variance given both variances, and the integrated variance;
        exp(mean + variance / 2) has mean 1.
        """
        ...


class StochasticVariance(MeanVariance, Diffusion):
    """Ability: dS = (r - q) S dt + sqrt(v) S dW, dv = a(v) dt + b(v) dB, d<W, B> = rho dt.

    Several assets have arrays in place of numbers, and an `asset_correlation` R. The drivers B of the variances
    have correlation R, and W_i = rho_i B_i + sqrt(1 - rho_i^2) Z_i, where Z also has correlation R and is
    independent of B.

    The state of the diffusion of a single asset is (spot, variance); its driver is (B, Z).

    Attributes:
        correlation: rho, in [-1, 1], for each asset.
        asset_correlation: R, of shape (assets, assets); None if assets are independent.

    Examples:
        >>> from pricing.models import Heston
        >>> model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> f"{model.variance_of_variance(0.04):.4f}"
        '0.0144'
    """

    correlation: AbstractVar[Float[Array, "*assets"]]
    asset_correlation: AbstractVar[Correlation | None]

    @abc.abstractmethod
    def variance_drift(self, v: Variance) -> Variance:
        """Return a(v), per year."""

    @abc.abstractmethod
    def variance_of_variance(self, v: Variance) -> Variance:
        """Return b(v)^2, per year."""

    @abc.abstractmethod
    def spot_covariance(self, v: Variance) -> Variance:
        """Return rho b(v) sqrt(v), the covariance of variance and log-spot, per year."""

    @abc.abstractmethod
    def highest_variance(self, t: Scalar) -> Scalar:
        """Return an upper bound of the variance up to t (years), exceeded with negligible probability."""

    @abc.abstractmethod
    def variance_scheme(self, dt: Scalar) -> VarianceScheme:
        """Return the step of length dt (years)."""

    @property
    def residual_correlation(self) -> Correlation:
        return correlation_of(self.asset_correlation, self.spot)

    def walk(self, noise: Steps, times: Times, schedule: AbstractSchedule) -> LogSpotSteps:
        """Return the steps of `variance_scheme`. Samples may be differentiated once.

        Variances of several assets are driven by normals with the assets' correlation.
        """
        return self.walk_by_substeps(noise, times, schedule, 1)

    def walk_by_substeps(
        self, noise: Steps, times: Times, schedule: AbstractSchedule, substeps: int
    ) -> LogSpotSteps:
        if self.asset_correlation is not None:
            noise = mixed(jnp.linalg.cholesky(self.asset_correlation), noise)
        lengths = _lengths(times)
        moves = lengths > 0.0
        schemes = jax.vmap(self.variance_scheme)(jnp.where(moves, lengths, 1.0))

        def variance_walk(start, schemes, moves, noise):
            def step(v, of_step):
                scheme, z, moves = of_step
                new, steps = jax.tree.map(_beside_paths, scheme).step(v, z)
                return jnp.where(moves, new, v), tuple(
                    jnp.where(moves, x, 0.0) for x in (*steps, new - v)
                )

            paths = jnp.broadcast_to(_beside_paths(start), noise.shape[1:])
            xs = schemes, noise, moves
            return jaxtape.scan(step, paths, xs, schedule=schedule, sum_ys=substeps)[1]

        walk = differentiable_once(variance_walk, _WHY_ONCE)
        steps = walk(self.initial_variance, schemes, moves, noise)
        return LogSpotSteps(*steps, length=_lengths(times[substeps - 1 :: substeps]))

    @property
    def state0(self) -> State:
        if self.spot.ndim:
            raise TypeError(
                f"{type(self).__name__} of {self.spot.size} assets has no diffusion yet: give a "
                f"model of one asset"
            )
        return jnp.stack([self.spot, self.initial_variance])

    def drift(self, t: Scalar, x: State) -> State:
        growth = time_derivative(lambda t: jnp.log(self.forward(t)), t)
        return jnp.stack([growth * x[0], self.variance_drift(x[1])])

    def diffusion(self, t: Scalar, x: State) -> Array:
        del t
        rho = self.correlation
        of_spot = safe_sqrt(x[1]) * x[0] * jnp.stack([rho, jnp.sqrt(1.0 - rho**2)])
        vol_of_variance = safe_sqrt(self.variance_of_variance(x[1]))
        return jnp.stack([of_spot, jnp.stack([vol_of_variance, jnp.zeros_like(rho)])])

    def step(self, t: Scalar, dt: Scalar, x: State, dw: State) -> State:
        noise = dw / jnp.sqrt(dt)
        v, (mean, variance, _) = self.variance_scheme(dt).step(x[1:], noise[:1])
        move = jnp.exp(mean + safe_sqrt(variance) * noise[1:])
        growth = self.forward(t + dt) / self.forward(t)
        return jnp.concatenate([x[:1] * growth * move, v])

    def observed(self, t: Scalar, x: State) -> MarketState:
        del t
        return MarketState(spot=x[0])


def _lengths(times: Times) -> Times:
    """Return the length of the step to each time; a repeated time is a step of length 0."""
    lengths = jnp.diff(times, prepend=jnp.zeros_like(times[:1]))
    rounding = 8.0 * float(jnp.finfo(times.dtype).eps) * times[-1]
    return jnp.where(lengths > rounding, lengths, 0.0)


def _beside_paths(parameter: Array) -> Array:
    """Return numbers for several assets with an added axis for paths; a single number unchanged."""
    return parameter[..., None] if parameter.ndim else parameter
