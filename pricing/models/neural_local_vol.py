"""Neural local volatility: dS = (r - q) S dt + sigma(t, log(S / F(t))) S dW, with a neural network sigma."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..fields import FlatOr, Number, Numeric, inside, positive
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.safe_math import clipped
from .local_vol import LocalVolatility
from .model import AbstractEquityModel, Discounts, Scalar, flat_or_curve

Points = Float[Array, " points"]

_FEATURES = 3
_FORTNIGHT = 0.02  # years: keeps the standardized log-moneyness finite today
_MOST = 3.0  # vol is in (0, 3) per 1.00: bounded, so that the discounted spot is a true martingale
_REACH, _NODES = 2.0, 161  # the range of k / sqrt(t + .02), and the nodes on it
_QUADRATURE = gauss_legendre(8)


class VolNetwork(eqx.Module):
    """A callable pytree, such as an `eqx.nn.MLP`, with arrays as leaves and static functions."""

    arrays: PyTree[Array]
    rest: PyTree = eqx.field(static=True)

    @classmethod
    def of(cls, network: Callable[[Array], Array]) -> "VolNetwork":
        """Return the network partitioned into arrays and static parts; a partitioned one is unchanged."""
        if isinstance(network, VolNetwork):
            return network
        return cls(*eqx.partition(network, eqx.is_array))

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        return eqx.combine(self.arrays, self.rest)(features)


class NeuralLocalVol(LocalVolatility):
    """One asset whose local volatility is a neural network of time and log-moneyness.

    sigma(t, k) = 3 sigmoid(logit(base_vol / 3) + shift + network(sqrt(t), k, k / sqrt(t + .02))),
    k = log(S / F(t)), bounded and smooth. The Euler step of the log-spot has the mean -sigma^2 dt / 2, so for
    any network the discounted spot is a martingale at every step. All prices are expectations under this one
    measure, so no weights of the network admit arbitrage. Cohen, Reisinger and Wang (2021) and Gierjatowicz et
    al. (2020, sec. 3) calibrate such models.

    Attributes:
        spot: The price of the asset, in currency.
        rate: The interest rate per year, continuous, a number or a curve.
        network: The network from features, of shape (3,), to one number: any `eqx.Module` with smooth
            activations.
        dividend_yield: The dividend yield less the cost of borrow per year, continuous, a number or a curve.
        base_vol: The vol when the network is 0, per 1.00, between 0 and 3.

    Examples:
        >>> import jax
        >>> from pricing import NeuralLocalVol
        >>> model = NeuralLocalVol.flat(100.0, 0.03, 0.2, key=jax.random.key(0))
        >>> f"{model.local_variances.local_variance(0.5, 1.0, jax.numpy.zeros(1))[0]:.3f}"
        '0.020'
    """

    spot: Numeric[Float[Array, ""]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    network: VolNetwork = eqx.field(converter=VolNetwork.of)  # pyright: ignore[reportGeneralTypeIssues]
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)
    base_vol: Numeric[Float[Array, ""]] = inside("base_vol", 0.0, _MOST, default=0.2)

    moves_with_spot: ClassVar[bool] = False

    @classmethod
    def flat(
        cls,
        spot: Number,
        rate: Any,
        vol: Number,
        dividend_yield: Any = 0.0,
        *,
        width: int = 32,
        depth: int = 2,
        key: PRNGKeyArray,
    ) -> "NeuralLocalVol":
        """Return the model with an untrained multilayer perceptron whose vol is `vol` everywhere.

        Args:
            spot: The price of the asset, in currency.
            rate: The interest rate per year.
            vol: The vol, per 1.00.
            dividend_yield: The dividend yield less the cost of borrow per year, a number or a curve.
            width: The number of units per hidden layer.
            depth: The number of hidden layers.
            key: The key of the random weights.

        Returns:
            The model.
        """
        network = eqx.nn.MLP(_FEATURES, "scalar", width, depth, jnp.tanh, key=key)
        last = lambda network: network.layers[-1].weight
        network = eqx.tree_at(last, network, replace_fn=jnp.zeros_like)
        bias = lambda network: network.layers[-1].bias
        network = eqx.tree_at(bias, network, replace_fn=jnp.zeros_like)
        return cls(spot, rate, network, dividend_yield, vol)

    @property
    def local_variances(self) -> "NeuralVariance":
        return NeuralVariance(self.network, self.base_vol)

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        return replace(self, base_vol=self.base_vol + vol)


class NeuralVariance(eqx.Module):
    """Variances of the log-spot given by a network."""

    network: VolNetwork
    base_vol: Scalar

    def local_variance(self, start: Scalar, end: Scalar, k: Points) -> Points:
        """Return sigma^2 at the midpoint of the step times its length."""
        return self.vol(0.5 * (start + end), k) ** 2 * (end - start)

    def total_variance(self, t: Scalar, k: Points) -> Points:
        """Return the integral of sigma^2 to t at each k, the scale of the implied variance."""
        nodes, weights = (jnp.asarray(x, k.dtype) for x in _QUADRATURE)
        squares = jax.vmap(lambda s: self.vol(s, k) ** 2)(0.5 * t * (1.0 + nodes))
        return 0.5 * t * (weights @ squares)

    def vol(self, t: Scalar, k: Points) -> Points:
        """Return sigma(t, k): the network at the nodes, linear between and flat beyond them."""
        scale = jnp.sqrt(t + _FORTNIGHT)
        nodes = jnp.linspace(-_REACH, _REACH, _NODES, dtype=k.dtype)
        root = jnp.broadcast_to(jnp.sqrt(t), nodes.shape)
        features = 4.0 * jnp.stack([root, nodes * scale, nodes], axis=-1)
        level = jnp.log(self.base_vol / (_MOST - self.base_vol))
        vols = _MOST * jax.nn.sigmoid(level + jax.vmap(self.network)(features))
        place = clipped((k / scale + _REACH) * ((_NODES - 1) / (2.0 * _REACH)), 0.0, _NODES - 1.0)
        left = jnp.minimum(place.astype(jnp.int32), _NODES - 2)
        share = place - left.astype(place.dtype)
        return vols[left] * (1.0 - share) + vols[left + 1] * share
