"""How the states of models of `pricing` move, as a `Problem` asks for it."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, BlackScholes, Heston, HullWhite
from ..models.quadratic_exponential import QuadraticExponential
from ..numerics.safe_math import safe_sqrt
from .problem import Real, State


class AbstractLaw(eqx.Module):
    """dX = b dt + s dW, its step, f = -r y. The model's numbers are leaves: new ones compile nothing."""

    model: eqx.AbstractVar[AbstractModel]

    @property
    @abc.abstractmethod
    def x0(self) -> State: ...

    @abc.abstractmethod
    def drift(self, t: Real, x: State) -> State: ...

    @abc.abstractmethod
    def diffusion(self, t: Real, x: State) -> Array: ...

    @abc.abstractmethod
    def step(self, t: Real, dt: Real, x: State, dw: State) -> State: ...

    def driver(self, t: Real, x: State, y: Array, z: Array) -> Array:
        """-r y."""
        del z
        return -self.short_rate(t, x) * y

    def short_rate(self, t: Real, x: State) -> Real:
        """That of today's curve at t, where rates are not random."""
        del x
        return -_slope(lambda t: jnp.log(self.model.discount(t)), t)


class Lognormal(AbstractLaw):
    """Of spots, one or several; the step is exact."""

    model: BlackScholes

    @property
    def x0(self) -> State:
        return self.model.spot.reshape(-1)

    def drift(self, t: Real, x: State) -> State:
        return _slope(lambda t: jnp.log(self.model.forward(t)).reshape(-1), t) * x

    def diffusion(self, t: Real, x: State) -> Array:
        scale = jnp.sqrt(_slope(self.model.state_variance, t)).reshape(-1) * x
        if self.model.correlation is None:
            return scale
        return scale[:, None] * jnp.linalg.cholesky(self.model.correlation)

    def step(self, t: Real, dt: Real, x: State, dw: State) -> State:
        growth = (self.model.forward(t + dt) / self.model.forward(t)).reshape(-1)
        variance = (self.model.state_variance(t + dt) - self.model.state_variance(t)).reshape(-1)
        if self.model.correlation is not None:
            dw = jnp.linalg.cholesky(self.model.correlation) @ dw
        return x * growth * jnp.exp(jnp.sqrt(variance / dt) * dw - 0.5 * variance)


class SpotAndVariance(AbstractLaw):
    """Of Heston's spot and variance; dW = (dB, dZ), B the variance's, Z of the rest. Andersen's QE-M step."""

    model: Heston

    @property
    def x0(self) -> State:
        return jnp.stack([self.model.spot, self.model.initial_variance])

    def drift(self, t: Real, x: State) -> State:
        growth = _slope(lambda t: jnp.log(self.model.forward(t)), t)
        pull = self.model.mean_reversion * (self.model.long_run_variance - x[1])
        return jnp.stack([growth * x[0], pull])

    def diffusion(self, t: Real, x: State) -> Array:
        del t
        rho, vol = self.model.correlation, safe_sqrt(x[1])
        of_spot = vol * x[0] * jnp.stack([rho, jnp.sqrt(1.0 - rho**2)])
        of_variance = vol * jnp.stack([self.model.vol_of_vol, jnp.zeros_like(rho)])
        return jnp.stack([of_spot, of_variance])

    def step(self, t: Real, dt: Real, x: State, dw: State) -> State:
        model, noise = self.model, dw / jnp.sqrt(dt)
        scheme = QuadraticExponential.of(
            model.mean_reversion, model.long_run_variance, model.vol_of_vol, model.correlation, dt
        )
        variance, (mean, spread, _) = scheme.step(x[1:], noise[:1])
        move = jnp.exp(mean + safe_sqrt(spread) * noise[1:])
        growth = model.forward(t + dt) / model.forward(t)
        return jnp.concatenate([x[:1] * growth * move, variance])


class ShortRate(AbstractLaw):
    """Of Hull and White's short rate less today's forward rate, under the money market's measure:

    dX = (y(t) - a X) dt + sigma dW,  y(t) = sigma^2 (1 - exp(-2 a t)) / 2a;  the step is exact.
    """

    model: HullWhite

    @property
    def x0(self) -> State:
        return jnp.zeros((1,), self.model.vol.dtype)

    def short_rate(self, t: Real, x: State) -> Real:
        return super().short_rate(t, x) + x[0]

    def drift(self, t: Real, x: State) -> State:
        return self._variance(t) - self.model.mean_reversion * x

    def diffusion(self, t: Real, x: State) -> Array:
        del t, x
        return self.model.vol

    def step(self, t: Real, dt: Real, x: State, dw: State) -> State:
        decay = self._decay(dt)
        mean = lambda t: 0.5 * (self.model.vol * self.model.slope(t)) ** 2  # noqa: E731, of X_t
        return decay * (x - mean(t)) + mean(t + dt) + jnp.sqrt(self._variance(dt) / dt) * dw

    def bonds(self, t: Real, maturities: Float[Array, " bonds"], x: State) -> Array:
        """P(t, maturity) in state x."""
        model = self.model
        markov = x / self._decay(t) - model.slope(t) * model.state_variance(t)
        return model.deflated_bond(t, maturities, markov) / model.deflator(t, markov)

    def _decay(self, t: Real) -> Real:
        return jnp.exp(-self.model.mean_reversion * t)

    def _variance(self, t: Real) -> Real:
        """y(t), of X_t."""
        return self.model.state_variance(t) * self._decay(t) ** 2


def _slope(function, t: Real) -> Array:
    return jax.jvp(function, (t,), (jnp.ones_like(t),))[1]
