"""Vol errors of equity options under a simulated model, all strikes and expiries on one set of paths."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import jaxtape as jt
from pricing.market import VolSurface
from pricing.methods.method import missing_ability
from pricing.models import AbstractModel, ConditionallyGaussian
from pricing.numerics.black import black
from pricing.numerics.implied_vol import implied_std
from pricing.sampling import normals
from pricing.sampling.time_grid import refined

Vols = Float[Array, "expiries strikes"]


class SimulatedVolError(eqx.Module):
    """Vol errors of a surface on fresh antithetic paths at every call, for training a model.

    An option's error is its simulated price less the quoted one, divided by Black's vega at the quote: the vol
    error to first order. Conditional on the start of the last step to an expiry, the spot is lognormal, so each
    path contributes Black's formula. Options are out of the money, and forwards exact.

    Attributes:
        num_paths: Number of paths, even, in each of the two sets of `loss`.
        steps_per_expiry: Number of steps between two expiries.
        schedule: Checkpoint schedule of the reverse sweep over the steps (`jaxtape.scan`).

    Examples:
        >>> import jax
        >>> from calibration import SimulatedVolError
        >>> from pricing import NeuralLocalVol, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> model = NeuralLocalVol.flat(100.0, 0.03, 0.2, key=jax.random.key(0))
        >>> SimulatedVolError(512, 4).residuals(model, surface, key=jax.random.key(1)).shape
        (2, 2)
    """

    num_paths: int = eqx.field(static=True, default=8192)
    steps_per_expiry: int = eqx.field(static=True, default=8)
    schedule: jt.AbstractSchedule = eqx.field(static=True, default=jt.StoreAll())

    def __check_init__(self):
        if self.num_paths < 2 or self.num_paths % 2 or self.steps_per_expiry < 1:
            raise ValueError(
                f"num_paths must be even and above 0, and steps_per_expiry above 0, got {self.num_paths} and "
                f"{self.steps_per_expiry}"
            )

    def noise(self, quotes: VolSurface, dtype, *, key: PRNGKeyArray) -> Float[Array, "steps paths"]:
        """Return normals, the second half of the paths mirroring the first."""
        steps = quotes.expiries.size * self.steps_per_expiry
        half = normals(key, (steps, self.num_paths // 2), dtype)
        return jnp.concatenate([half, -half], axis=-1)

    def loss(
        self, model: AbstractModel, quotes: VolSurface, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Return an unbiased estimate of the mean squared vol error over the quotes, in vol points squared.

        It is the product of the errors on two independent sets of paths: the square on one set would add its
        variance, and so favor models with little noise.
        """
        first, second = jax.random.split(key)
        errors = [self.residuals(model, quotes, key=each) for each in (first, second)]
        counts = (Options.of(model, quotes).weights != 0.0).astype(errors[0].dtype)
        return 1e4 * jnp.sum(errors[0] * errors[1]) / jnp.sum(counts)

    def residuals(self, model: AbstractModel, quotes: VolSurface, *, key: PRNGKeyArray) -> Vols:
        """Return the errors, per 1.00 of vol."""
        z = self.noise(quotes, model.underlying.dtype, key=key)
        return self.residuals_on(model, quotes, z)

    def residuals_on(
        self, model: AbstractModel, quotes: VolSurface, z: Float[Array, "steps paths"]
    ) -> Vols:
        """Return the errors on the paths of these normals."""
        options = Options.of(model, quotes)
        errors = (self._values(model, quotes, options, z) - options.values) / options.vegas
        return errors * options.weights

    def vols(
        self, model: AbstractModel, quotes: VolSurface, *, key: PRNGKeyArray, num_sets: int = 2
    ) -> tuple[Vols, Vols]:
        """Return the implied vols from `num_sets` >= 2 sets of paths, and their standard errors."""
        options = Options.of(model, quotes)

        def of_set(key):
            z = self.noise(quotes, options.values.dtype, key=key)
            return self._values(model, quotes, options, z)

        values = jax.lax.map(of_set, jax.random.split(key, num_sets))
        errors = jnp.std(values, axis=0, ddof=1) / num_sets**0.5 / options.vegas
        std = implied_std(jnp.mean(values, axis=0), options.log_moneyness, options.side)
        return std / jnp.sqrt(options.expiries)[:, None], errors

    def _values(self, model, quotes: VolSurface, options: "Options", z: Array) -> Vols:
        """Return values over sqrt(forward strike)."""
        times = refined(options.expiries, self.steps_per_expiry)
        walk = model.walk(z, times, self.schedule)
        last = slice(self.steps_per_expiry - 1, None, self.steps_per_expiry)
        mean, variance = (x[last] for x in model.marginals(walk))

        def of_expiry(mean, variance, k, side):
            def of_strike(k, side):
                forward = jnp.exp(mean + 0.5 * variance + 0.5 * k)
                return jnp.mean(black(forward, jnp.exp(-0.5 * k), jnp.sqrt(variance), side))

            return jax.vmap(of_strike)(k, side)

        return jax.vmap(of_expiry)(mean, variance, options.log_moneyness, options.side)

    @staticmethod
    def options(model: AbstractModel, quotes: VolSurface) -> "Options":
        """Return the quoted options on the model's forwards, in its precision."""
        return Options.of(model, quotes)


class Options(NamedTuple):
    """The out-of-the-money options of a surface: log(F / K), side, values over sqrt(F K) and their vegas.

    `weights` are factors of the errors, 0 for a missing quote.
    """

    expiries: Float[Array, " expiries"]
    log_moneyness: Vols
    side: Vols
    values: Vols
    vegas: Vols
    weights: Vols

    @classmethod
    def of(cls, model: AbstractModel, quotes: VolSurface) -> "Options":
        """Return the quoted options on the model's forwards, in its precision.

        Raises:
            TypeError: If the model is not a single-asset model that `SimulatedVolError` can simulate.
        """
        if not isinstance(model, ConditionallyGaussian) or model.underlying.ndim:
            raise TypeError(
                missing_ability("Gaussian log-spot of one asset given its variance path", model)
            )
        dtype = model.underlying.dtype
        expiries, strikes, vols = (
            x.astype(dtype) for x in (quotes.expiries, quotes.strikes, quotes.vols)
        )
        is_there = ~jnp.isnan(vols)
        vols = jnp.where(is_there, vols, 1.0)
        given = jnp.ones_like(vols) if quotes.weights is None else quotes.weights.astype(dtype)
        weights = jnp.where(is_there, given, 0.0)
        forwards = jax.vmap(model.forward)(expiries)[:, None]
        k = jnp.where(is_there, jnp.log(forwards / jnp.broadcast_to(strikes, vols.shape)), 0.0)
        std = vols * jnp.sqrt(expiries)[:, None]
        side = jnp.where(k > 0.0, -jnp.ones_like(k), 1.0)

        def value(std):
            return black(jnp.exp(0.5 * k), jnp.exp(-0.5 * k), std, side)

        values, slopes = jax.jvp(value, (std,), (jnp.ones_like(std),))
        vegas = slopes * jnp.sqrt(expiries)[:, None]
        return cls(expiries, k, side, values, vegas, weights)
