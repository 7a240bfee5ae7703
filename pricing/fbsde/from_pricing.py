"""A `Problem` from products and a model of `pricing`: the state is the spots, the driver discounts."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, BlackScholes
from ..products import (
    AbstractProduct,
    American,
    Barrier,
    Basket,
    Bermudan,
    European,
)
from .problem import Problem, Real, State

_KNOCKS_OUT = 2  # codes of kinds below are knock-outs


def problem_of(product: AbstractProduct, model: AbstractModel, num_steps: int) -> Problem:
    """The backward equation of a contract, or of a batch of one kind with the same dates.

    European, basket, Bermudan and American options, knock-outs on dates, under Black-Scholes with any
    number of assets. Spots move by their exact law; an American option may be exercised on the grid's dates.
    A batch of products (leaves with an axis in front) is a vector of contracts.

    Raises TypeError for another model or product, ValueError where dates are not on the grid of num_steps.
    """
    if not isinstance(model, BlackScholes):
        raise TypeError(
            f"{type(model).__name__} has no problem yet: give BlackScholes, or write a Problem."
        )
    model = model.read_at(_one(product).vol_at)
    claim, rights = _parts(product, num_steps)
    maturity = float(_same("expiry", claim.expiry))
    dim = max(1, model.spot.size)
    return Problem(
        dim,
        maturity,
        jnp.reshape(model.spot, (dim,)),
        _Drift(model),
        _Diffusion(model),
        _Discounting(model),
        _Payoff(claim),
        num_steps,
        step=_Step(model),
        **rights,
    )


def _parts(product: AbstractProduct, num_steps: int) -> tuple[AbstractProduct, dict]:
    """What is paid at the end, and what may happen before."""
    if isinstance(product, Bermudan):
        claim = product.payoff_product
        dates = _same("dates", product.dates, axes=1)
        return claim, {"exercise_times": dates, "exercise_value": _Intrinsic(claim)}
    if isinstance(product, American):
        claim = European(product.strike, product.expiry, product.option)
        dates = np.linspace(0.0, _same("expiry", product.expiry), num_steps + 1)
        return claim, {"exercise_times": dates, "exercise_value": _Intrinsic(claim)}
    if isinstance(product, Barrier) and product.dates is not None:
        if np.any(np.asarray(product.kind) >= _KNOCKS_OUT):
            raise TypeError("a knock-in is the vanilla option less its knock-out: give these")
        if product.batch_shape:
            raise TypeError("paths stop for all contracts alike: give one barrier option at a time")
        alive, paid = _Alive(product), _Rebate(product)
        return product.vanilla, {
            "stopping_times": np.asarray(product.dates),
            "is_alive": alive,
            "stopped_value": paid,
        }
    if isinstance(product, (European, Basket)):
        return product, {}
    raise TypeError(
        f"{type(product).__name__} has no problem yet: give a European, basket, Bermudan or American "
        "option or a barrier on dates, or write a Problem."
    )


def _same(name: str, values: Array, axes: int = 0):
    """The value, or dates, that all contracts share."""
    rows = np.asarray(values).reshape(-1, *np.shape(values)[np.ndim(values) - axes :])
    if np.any(np.abs(rows - rows[:1]) > 1e-9):
        raise ValueError(
            f"contracts of one problem have one {name}, got {np.unique(rows)[:5]}: solve them apart"
        )
    return rows[0]


def _one(product: AbstractProduct) -> AbstractProduct:
    """The first contract of a batch."""
    batch = product.batch_shape
    full = product.broadcast()
    return jax.tree.map(lambda leaf: leaf[(0,) * len(batch)], full) if batch else product


class _Of(eqx.Module):
    """A function of the model's numbers, which are leaves: new ones compile nothing."""

    model: BlackScholes

    def vol(self, t: Real) -> Float[Array, " dim"]:
        """Of each spot, at t."""
        rate = jax.jvp(self.model.state_variance, (t,), (jnp.ones_like(t),))[1]
        return jnp.sqrt(rate).reshape(-1)

    def mixed(self, moves: State) -> State:
        """Independent moves as the spots' correlation makes of them."""
        if self.model.correlation is None:
            return moves
        return jnp.linalg.cholesky(self.model.correlation) @ moves


class _Drift(_Of):
    def __call__(self, t: Real, x: State) -> State:
        log_forward = lambda t: jnp.log(self.model.forward(t)).reshape(-1)  # noqa: E731
        return jax.jvp(log_forward, (t,), (jnp.ones_like(t),))[1] * x


class _Diffusion(_Of):
    def __call__(self, t: Real, x: State) -> Array:
        scale = self.vol(t) * x
        if self.model.correlation is None:
            return scale
        return scale[:, None] * jnp.linalg.cholesky(self.model.correlation)


class _Step(_Of):
    def __call__(self, t: Real, dt: Real, x: State, dw: State) -> State:
        """The lognormal law over a step."""
        growth = (self.model.forward(t + dt) / self.model.forward(t)).reshape(-1)
        variance = (self.model.state_variance(t + dt) - self.model.state_variance(t)).reshape(-1)
        return x * growth * jnp.exp(jnp.sqrt(variance / dt) * self.mixed(dw) - 0.5 * variance)


class _Discounting(_Of):
    def __call__(self, t: Real, x: State, y: Array, z: Array) -> Array:
        del x, z
        log_discount = lambda t: jnp.log(self.model.discount(t))  # noqa: E731
        return jax.jvp(log_discount, (t,), (jnp.ones_like(t),))[1] * y


class _Payoff(eqx.Module):
    """What a claim pays at its expiry, of every contract of a batch."""

    claim: AbstractProduct

    def __call__(self, x: State) -> Float[Array, "*contracts"]:
        return jnp.maximum(intrinsic(self.claim, x), 0.0)


class _Intrinsic(eqx.Module):
    """What exercise pays, below zero where it does not pay."""

    claim: AbstractProduct

    def __call__(self, t: Real, x: State) -> Float[Array, "*contracts"]:
        del t
        return intrinsic(self.claim, x)


def intrinsic(claim: European | Basket, x: State) -> Float[Array, "*contracts"]:
    """side * (average of the spots - strike)."""
    averages: dict[str, Callable] = {
        "arithmetic": lambda weights: weights @ x,
        "geometric": lambda weights: jnp.exp(weights @ jnp.log(x)),
        "max": lambda weights: jnp.max(x),
        "min": lambda weights: jnp.min(x),
    }
    if not isinstance(claim, Basket):
        return claim.side * (x[0] - claim.strike)
    level = averages[claim.average](claim.weights_of(x.size))
    return claim.side * (level - claim.strike)


class _Alive(eqx.Module):
    barrier: Barrier

    def __call__(self, t: Real, x: State) -> Array:
        del t
        return self.barrier.living_side * (x[0] - self.barrier.barrier) > 0.0


class _Rebate(eqx.Module):
    barrier: Barrier

    def __call__(self, t: Real, x: State) -> Array:
        del t, x
        return self.barrier.rebate
