"""Fourier inversion of a characteristic function along the line Im u = -1/2, with a lognormal control."""

import functools
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray, PyTree

import jaxtape

from ..models import AbstractModel, CharacteristicFunction
from ..numerics.black import exercise_probabilities
from ..numerics.complex_functions import exp
from ..numerics.gauss_legendre import gauss_legendre
from ..products import AbstractProduct, TerminalClaim
from .method import AbstractMethod, Tiling, missing_ability

Scalar = Float[Array, ""]


class Fourier(AbstractMethod):
    """Terminal claims under a model with a characteristic function.

    With phi(u) = E[exp(i u X)], X = log(S_T / F) and k = log(F / K), the undiscounted call is

        C = F - sqrt(F K) / pi * int_0^inf Re[exp(i u k) phi(u - i/2)] / (u^2 + 1/4) du

    (Lewis 2001, eq. 3.11). The same integral for a lognormal phi with equal variance is known in closed form
    and is subtracted (Andersen and Piterbarg 2010, sec. 8.4.3), so that the integrand is small and smooth.
    Nodes are Gauss-Legendre in t with u = c sinh(t), which resolves both the bulk, of width 1/sqrt(variance),
    and an exponential tail that may be a hundred times longer. The integration path is rotated to the side
    where exp(i u k) decays instead of oscillating (Andersen and Lake 2018, sec. 4): all contracts of an expiry
    on one side of the forward share phi at its nodes.

    Attributes:
        is_random: False.
        num_nodes: The number of nodes of the integral.
    """

    is_random: ClassVar[bool] = False
    group_size: ClassVar[int | None] = 8
    program_size: ClassVar[int] = 3

    num_nodes: int = eqx.field(static=True, default=96)

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        return Tiling(2**10 * self.num_nodes, 256, rows=8)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not isinstance(product, TerminalClaim):
            return missing_ability("terminal claim (a payoff of the spot at expiry alone)", product)
        if not isinstance(model, CharacteristicFunction):
            return missing_ability("characteristic function", model)
        return None

    def shared_key(
        self, product: TerminalClaim, model: CharacteristicFunction
    ) -> tuple[Scalar, Scalar]:
        return product.expiry, _Place.of(product, model).side

    def shared(
        self, products: TerminalClaim, model: CharacteristicFunction
    ) -> tuple[PyTree, PyTree]:
        places = jax.vmap(lambda product: _Place.of(product, model))(products)
        nearest, farthest = (pick(places.distance) for pick in (jnp.argmin, jnp.argmax))
        side = places.side[farthest]  # rounding may decide the side of the nearest
        stretch = jnp.where(places.is_slow[0], _SLOW_STRETCH, _MAX_STRETCH)
        about, expiry = places.k[nearest], products.expiry[0]
        spectrum = Spectrum.of(
            model, expiry, self.num_nodes, side=side, about=about, stretch=stretch
        )
        return spectrum.weighted, (spectrum.nodes, spectrum.std, spectrum.about)

    def samples(
        self, product: Any, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        alone = jax.tree.map(lambda x: jnp.asarray(x)[None], product)
        return self.samples_given(product, model, self.shared(alone, model))

    def samples_given(
        self,
        product: TerminalClaim,
        model: CharacteristicFunction,
        shared: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, ""]:
        del key
        weighted, (nodes, *others) = shared
        forward, strike = model.forward(product.expiry), product.strike
        spectrum = Spectrum(nodes, weighted, *others)
        share, cash = spectrum.exercise_values(forward, strike, product.side)
        asset_units, cash_units = product.units
        return model.discount(product.expiry) * (asset_units * share + cash_units * cash)


class _Place(NamedTuple):
    """The position of a contract among those of its expiry.

    k: log(F / K). drift: the additional growth rate of the integrand's phase in u. is_slow: whether the
    characteristic function decays too slowly for a straight path (like exp(-sqrt u) at a correlation of one).
    """

    k: Float[Array, "..."]
    drift: Float[Array, "..."]
    is_slow: Bool[Array, "..."]

    @classmethod
    def of(cls, product: TerminalClaim, model: CharacteristicFunction) -> "_Place":
        k = jnp.log(model.forward(product.expiry) / product.strike)
        std = jnp.sqrt(model.total_variance(product.expiry))
        k, std, (decay, drift) = jax.lax.stop_gradient((k, std, model.tail_rate(product.expiry)))
        is_slow = _MAX_STRETCH * decay < _LOG_TRUNCATION * std
        # on a rotated path the integrand grows at first, but little if the drift is small
        return cls(k, drift, is_slow & (jnp.abs(drift) < 3.0 * std))

    @property
    def side(self) -> Float[Array, "..."]:
        """The side to which the path is rotated; 0 if the integrand would grow there, unless it is slow."""
        phase = self.k + self.drift
        turns = self.is_slow | (self.k * phase > 0.0)
        return jnp.where(turns, jnp.sign(phase), 0.0)

    @property
    def distance(self) -> Float[Array, "..."]:
        """The distance of the contract from the edge of its side."""
        return jnp.abs(jnp.where(self.is_slow, self.k + self.drift, self.k))


class Spectrum(eqx.Module):
    """The weighted (phi - lognormal phi) exp(i u about) at the nodes of an expiry, for many strikes."""

    nodes: Complex[Array, " nodes"]
    weighted: Complex[Array, "*spectra nodes"]
    std: Scalar
    about: Scalar

    @classmethod
    def of(
        cls,
        model: CharacteristicFunction,
        expiry: Scalar,
        num_nodes: int,
        *,
        side: Scalar | float = 0.0,
        about: Scalar | float = 0.0,
        stretch: Scalar | float | None = None,
    ) -> "Spectrum":
        """Evaluate the characteristic function once per node.

        side: the direction of the path's rotation by 15 degrees, the sign of k + drift with the drift of
        `tail_rate`; 0 for a straight path. about: the k at which the factor is 1, between -drift and those of
        all strikes. stretch: the length of the path in units of 1 / std; None for `_MAX_STRETCH`.
        """
        std, decay, drift = jax.lax.stop_gradient(
            (jnp.sqrt(model.total_variance(expiry)), *model.tail_rate(expiry))
        )
        side, about = (jnp.asarray(x, std.dtype) for x in (side, about))
        angle = side * _TURN
        rate = decay * jnp.cos(angle) + (about + drift) * jnp.sin(angle)
        longest = jnp.asarray(_MAX_STRETCH if stretch is None else stretch, std.dtype)
        distance, weights = _sinh_nodes(std, rate, longest, num_nodes=num_nodes)
        ray = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
        nodes = distance.astype(ray.dtype) * ray
        i = jnp.asarray(1j, ray.dtype)
        weights = weights.astype(ray.dtype) * ray / (nodes * nodes + 0.25)
        # combined in the exponent: phi alone may overflow where the product is small
        wave = i * nodes * about.astype(ray.dtype)
        log_phi = model.log_characteristic(nodes - 0.5 * i, expiry)
        log_lognormal = -0.5 * (std**2).astype(ray.dtype) * (nodes * nodes + 0.25)
        difference = exp(log_phi + wave) - exp(log_lognormal + wave)
        return cls(nodes, difference * weights, std, about)

    def corrections(self, k: Scalar) -> Float[Array, " spectra"]:
        """Return the model's undiscounted call less the lognormal call, over sqrt(F K), at k = log(F / K).

        There is one for each of several spectra, only one of which belongs to the strike. Computing all of them
        is a matrix product over strikes, which is cheaper than selecting the right one first.
        """
        return -self._integrals(k, *self.weighted) / jnp.pi

    def _integrals(self, k: Scalar, *columns: Complex[Array, " nodes"]) -> Float[Array, " columns"]:
        """Return the integrals of the columns times exp(i u (k - about))."""
        iu = self.nodes * jnp.asarray(1j, self.nodes.dtype)
        wave = jax.lax.stop_gradient(exp(iu * (k - self.about).astype(iu.dtype)))
        return _integrals(k, jnp.stack(columns, axis=1), wave, iu)

    @jaxtape.no_inline
    def exercise_values(
        self, forward: Scalar, strike: Scalar, side: Scalar
    ) -> tuple[Scalar, Scalar]:
        """Return (E[S_T 1{exercise}], P(exercise)), undiscounted, exercise = {side (S_T - strike) > 0}.

        Both follow from the call: P(S_T > K) = -dC/dK and E[S_T 1{S_T > K}] = C + K P(S_T > K).
        """
        iu = self.nodes * jnp.asarray(1j, self.nodes.dtype)
        columns = self.weighted, iu * self.weighted
        call, slope = -self._integrals(jnp.log(forward / strike), *columns) / jnp.pi
        share, cash = exercise_probabilities(forward, strike, self.std, side)
        root = jnp.sqrt(forward / strike)
        cash_correction = root * (slope - 0.5 * call)
        share_correction = strike * (root * call + cash_correction)
        return forward * share + side * share_correction, cash + side * cash_correction


@jax.custom_jvp
def _integrals(k: Scalar, columns: Array, wave: Array, iu: Array) -> Float[Array, " columns"]:
    """Return the real parts of the integrals of columns exp(i u k), with `wave` the exponential."""
    del k, iu
    # products become matrix products over strikes and tangents
    return jnp.real(wave) @ jnp.real(columns) - jnp.imag(wave) @ jnp.imag(columns)


@functools.partial(_integrals.defjvp, symbolic_zeros=True)
def _integrals_jvp(primals, tangents):
    """Differentiate in k with the same wave."""
    (k, columns, wave, iu), (k_dot, columns_dot, *_) = primals, tangents
    value = _integrals(k, columns, wave, iu)
    slope = jnp.zeros_like(value)
    if not isinstance(k_dot, SymbolicZero):
        slope = slope + k_dot * _integrals(k, iu[:, None] * columns, wave, iu)
    if not isinstance(columns_dot, SymbolicZero):
        slope = slope + _integrals(k, columns_dot, wave, iu)
    return value, slope


_TURN = np.pi / 12.0
_LOG_TRUNCATION = 38.0  # exp(-38) = 3e-17, below float64 precision
_MAX_STRETCH = 400.0  # longest resolved tail, in units of 1 / std
_SLOW_STRETCH = 1e6  # the same for slowly decaying characteristic functions


@jaxtape.no_inline(static_argnames="num_nodes")
def _sinh_nodes(std: Scalar, tail_rate: Scalar, stretch: Scalar, num_nodes: int):
    """Return nodes and weights on (0, U), where U covers the Gaussian bulk and the exponential tail."""
    abscissae, weights = (jnp.asarray(x, dtype=std.dtype) for x in gauss_legendre(num_nodes))
    scale = 1.0 / std
    gaussian = np.sqrt(2.0 * _LOG_TRUNCATION) * scale
    exponential = jnp.minimum(_LOG_TRUNCATION / tail_rate, stretch * scale)
    length = jnp.arcsinh(jnp.maximum(gaussian, exponential) / scale)
    t = 0.5 * (abscissae + 1.0) * length
    return scale * jnp.sinh(t), scale * jnp.cosh(t) * (0.5 * length * weights)
