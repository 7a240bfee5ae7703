"""The ability of lognormal spots, whose variance is known at all times."""

from typing import TYPE_CHECKING, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxtape import AbstractSchedule

from ..market.state import MarketState
from .diffusion import Diffusion, State, time_derivative
from .model import ConditionallyGaussian, GaussianState, LogSpotSteps, Scalar, correlation_of
from .shapes import Correlation, Numbers, Steps, Times

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


class LognormalSpots(ConditionallyGaussian, GaussianState, Diffusion):
    """Ability: log(S_t / forward(t)) = x_t - state_variance(t) / 2 at all times, for one or several assets.

    For several assets, `state_variance` has them on the last axis. The state of the diffusion is the spots, and
    its step is exact.

    Attributes:
        asset_correlation: The correlation of the log-spots of several assets, of shape (assets, assets); None
            if independent.

    Examples:
        >>> from pricing.models import BlackScholes
        >>> BlackScholes([100.0, 95.0], 0.05, [0.2, 0.3]).residual_correlation.shape
        (2, 2)
    """

    asset_correlation: AbstractVar[Correlation | None]
    step_is_exact: ClassVar[bool] = True

    def deflator(self, t: Scalar, x: Numbers) -> Numbers:
        """Return the discount factor; rates do not depend on the state."""
        return jnp.broadcast_to(self.discount(t), x.shape)

    def market_state(self, t: Scalar, x: Scalar) -> MarketState:
        return MarketState(spot=self.forward(t) * jnp.exp(x - 0.5 * self.state_variance(t)))

    @property
    def residual_correlation(self) -> Correlation:
        return correlation_of(self.asset_correlation, self.spot)

    def walk(self, noise: Steps, times: Times, schedule: AbstractSchedule) -> LogSpotSteps:
        del schedule
        total = self.state_variance(times)
        variance = jnp.diff(total, axis=0, prepend=jnp.zeros_like(total[:1]))
        length = jnp.diff(times, prepend=jnp.zeros_like(times[:1]))
        moves = (length > 0.0).reshape(-1, *(1,) * (total.ndim - 1))  # a date may be repeated
        variance = jnp.where(moves, variance, 0.0)
        variance = jnp.where(variance < 0.0, jnp.nan, variance)  # there is no such distribution
        variances = jnp.broadcast_to(variance[..., None], noise.shape)
        return LogSpotSteps(
            -0.5 * variances, variances, variances, jnp.zeros_like(variances), length
        )

    @property
    def state0(self) -> State:
        return self.spot.reshape(-1)

    def drift(self, t: Scalar, x: State) -> State:
        return time_derivative(lambda t: jnp.log(self.forward(t)).reshape(-1), t) * x

    def diffusion(self, t: Scalar, x: State) -> Array:
        scale = jnp.sqrt(time_derivative(self.state_variance, t)).reshape(-1) * x
        if self.asset_correlation is None:
            return scale
        return scale[:, None] * jnp.linalg.cholesky(self.asset_correlation)

    def step(self, t: Scalar, dt: Scalar, x: State, dw: State) -> State:
        growth = (self.forward(t + dt) / self.forward(t)).reshape(-1)
        variance = (self.state_variance(t + dt) - self.state_variance(t)).reshape(-1)
        if self.asset_correlation is not None:
            dw = jnp.linalg.cholesky(self.asset_correlation) @ dw
        return x * growth * jnp.exp(jnp.sqrt(variance / dt) * dw - 0.5 * variance)

    def observed(self, t: Scalar, x: State) -> MarketState:
        del t
        return MarketState(spot=x.reshape(self.spot.shape))
