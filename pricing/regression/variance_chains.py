"""Chains of options under stochastic variance: the state is the variance and the log-spot."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..models import StochasticVariance
from ..models.stochastic_variance import VarianceScheme
from ..numerics import normal_law
from ..numerics.black import black
from ..numerics.safe_math import divisor, larger, safe_sqrt
from ..products import SpotOption
from .equities import exercise_of
from .exercise_problem import (
    DISPERSION,
    AbstractStep,
    Basis,
    ClaimValues,
    ExerciseProblem,
    Functions,
    State,
    StepEnd,
)
from .polynomials import hermite_polynomials

# degree in the noise -> reduction of the basis's degree in the state
_BEHIND = (1, 2, 3)

Times = Float[Array, " dates"]
Paths = Float[Array, " paths"]

_TINY = 1e-12


class _Option(eqx.Module):
    """The European option by Black's formula with expected variance, nearly a martingale."""

    side: Float[Array, "*dates"]
    strike: Float[Array, "*dates"]
    log_growth: Float[Array, "*dates"]  # log growth of the forward to expiry
    discount: Float[Array, "*dates"]
    slope: Float[Array, "*dates"]  # the expected variance to expiry is slope v + level
    level: Float[Array, "*dates"]

    def value(self, v: Paths, log_spot: Paths, more: Paths | float = 0.0) -> Paths:
        """Return the option's value; more: additional variance of the log-spot that has been averaged over."""
        variance = self.slope * v + self.level + more
        moves = variance > 0.0
        std = jnp.sqrt(divisor(variance))
        forward = jnp.exp(log_spot + self.log_growth + 0.5 * more)
        still = larger(self.side * (forward - self.strike), 0.0)
        return self.discount * jnp.where(moves, black(forward, self.strike, std, self.side), still)

    def greeks(self, v: Paths, log_spot: Paths) -> Float[Array, "greeks paths"]:
        """Return derivatives to the log-spot and v, and a second derivative: weights of the noise of v."""
        std = jnp.sqrt(self.slope * v + self.level + _TINY)
        forward = self.discount * jnp.exp(log_spot + self.log_growth)
        d1 = (log_spot + self.log_growth - jnp.log(self.strike)) / std + 0.5 * std
        delta = self.side * forward * normal_law.cdf(self.side * d1)
        bend = forward * normal_law.density(d1) / std
        return jnp.stack([delta, 0.5 * self.slope * bend, bend])


class VarianceStep(AbstractStep):
    """A step of the model's scheme: v' from the first normal; given v', log S' is Gaussian.

    Martingale moves: functions of the later state less their means given v' (a Gaussian step), and Hermite
    polynomials of the noise of v' times polynomials of the earlier state.
    """

    moves_on: Bool[Array, "*dates"]
    drift: Float[Array, "*dates"]
    scheme: VarianceScheme
    option: _Option
    before: _Option
    floor: Float[Array, "*dates"]

    def advance(self, before: State, noise: State) -> State:
        v, mean, variance = self._given_variance(before, noise)
        return jnp.stack([v, mean + safe_sqrt(variance) * noise[1]])

    def claim_values(self, x: State) -> ClaimValues:
        return self.option.value(x[0], x[1])[None]

    def martingale_increments(
        self, basis: Basis, before: StepEnd, after: StepEnd, noise: State
    ) -> Functions:
        v, mean, variance = self._given_variance(before.state, noise)
        seen = basis.standardized(self.coordinates(after.state))
        middle = basis.standardized(self.coordinates(jnp.stack([v, mean])))
        loading = basis.standardized.whitening[1, 1] * safe_sqrt(variance)
        moving = tuple(a for a in basis.indices if a[1] > 0)
        spread = [[1.0, 0.0], [0.0, 1.0 - loading**2]]
        std = jnp.abs(basis.half_spaces.normals[:, 1:]) * loading[None]
        smooth = basis.smooth_increments(seen, middle, spread, std, moving)
        option = (after.claim_values - self.option.value(v, mean, variance)[None]) / basis.unit
        of_variance = self._of_variance(basis, before.state, noise[0])
        return jnp.concatenate([*(self.scale * moves for moves in smooth), option, of_variance])

    def _of_variance(self, basis: Basis, before: State, z: Paths) -> Functions:
        """Return zero-mean Hermite polynomials of the noise times functions of the earlier state."""
        x = self.coordinates(before)
        hermite = hermite_polynomials(z[None], len(_BEHIND))
        columns = []
        for order, behind in enumerate(_BEHIND, start=1):
            degree = max(basis.degree - behind, 0)
            state = hermite_polynomials(basis.standardized(x), degree)
            columns.append(self.scale * state * hermite[order][None])
        delta, vega, bend = self.before.greeks(*before) / basis.unit
        of_option = [delta * x[0] * z, vega * x[0] * z, bend * x[0] ** 2 * hermite[2]]
        return jnp.concatenate([*columns, jnp.stack(of_option)])

    @property
    def usual_degree(self) -> int:
        return 3

    def coordinates(self, x: State) -> State:
        """Return the square root of the variance, smoothed at zero, and the log-spot."""
        return jnp.stack([jnp.sqrt(x[0] + self.floor), x[1]])

    def _given_variance(self, before: State, noise: State):
        """Return v', and the mean and variance of log S' given v'."""
        v, (mean, variance, _) = self.scheme.step(before[0], noise[0])
        v, mean = jnp.where(self.moves_on, v, before[0]), jnp.where(self.moves_on, mean, 0.0)
        return v, before[1] + self.drift + mean, jnp.where(self.moves_on, variance, 0.0)


def variance_chain(
    product: SpotOption, times: Times, is_open: Bool[Array, " dates"], model: StochasticVariance
) -> ExerciseProblem:
    """Return the chain of an option; times: starting with 0 (today); is_open: where exercise is possible."""
    log_forward = jnp.log(jax.vmap(model.forward)(times))
    discount = jax.vmap(model.discount)(times)
    dts = jnp.diff(times, prepend=times[:1])
    moves = dts > 0.0
    scheme = jax.vmap(model.variance_scheme)(jnp.where(moves, dts, 1.0))
    drift = jnp.diff(log_forward, prepend=log_forward[:1])
    option = _option(product, model, times, log_forward)
    earlier = jax.tree.map(lambda x: jnp.concatenate([x[:1], x[:-1]]), option)
    total_variance, v0 = model.total_variance(times[-1]), model.initial_variance
    mean_variance = total_variance / times[-1]
    floor = jnp.broadcast_to(jax.lax.stop_gradient(0.05 * mean_variance), times.shape)
    exercise = exercise_of(product, discount, jnp.array([[0.0, 1.0], [0.0, 0.0]], dts.dtype))
    steps = VarianceStep(exercise, is_open, discount, moves, drift, scheme, option, earlier, floor)
    # the variance is dispersed by the same ratio, and kept positive
    initial_dispersion = jnp.diag(jnp.stack([0.2 * v0, jnp.sqrt(DISPERSION * total_variance)]))
    return ExerciseProblem(jnp.stack([v0, log_forward[0]]), initial_dispersion, steps)


def _option(
    product: SpotOption, model: StochasticVariance, times: Times, log_forward: Times
) -> _Option:
    left = times[-1] - times
    mean = lambda v: model.mean_integral(v, left)
    level, slope = jax.jvp(mean, (jnp.zeros_like(left),), (jnp.ones_like(left),))
    repeated = lambda x: jnp.broadcast_to(x, times.shape)
    return _Option(
        repeated(product.side),
        repeated(product.strike),
        log_forward[-1] - log_forward,
        repeated(model.discount(times[-1])),
        slope,
        level,
    )
