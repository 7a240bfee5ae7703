"""A `Problem` from products and a model of `pricing`: the state is the model's, the driver discounts."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import as_real
from ..models import AbstractModel, BlackScholes, Heston, HullWhite
from ..products import (
    AbstractProduct,
    American,
    Barrier,
    Basket,
    Bermudan,
    BermudanSwaption,
    European,
    Swaption,
)
from .laws import AbstractLaw, Lognormal, ShortRate, SpotAndVariance
from .problem import Problem, Real, State

_KNOCKS_OUT = 2  # codes of kinds below are knock-outs


def problem_of(product: AbstractProduct, model: AbstractModel, num_steps: int) -> Problem:
    """The backward equation of a contract, or of a batch of one kind with the same dates.

    European, Bermudan and American options and knock-outs on dates, under Black-Scholes, x the spot,
    or Heston, x = (spot, variance); baskets and Bermudan options on them, under Black-Scholes with several
    assets; European and Bermudan swaptions under Hull-White, x the short rate less today's forward rate. States
    move by their exact law, Heston's by Andersen's QE-M scheme. An American option may be exercised on the
    grid's dates. A batch of products (leaves with an axis in front) is a vector of contracts.

    Raises TypeError for another model or product, ValueError where dates are not on the grid of num_steps.
    """
    law = _law(product, model)
    terminal, maturity, rights = _parts(product, law, num_steps)
    return Problem(
        law.x0.size,
        maturity,
        law.x0,
        drift=law.drift,
        diffusion=law.diffusion,
        driver=law.driver,
        terminal=terminal,
        num_steps=num_steps,
        step=law.step,
        **rights,
    )


def _law(product: AbstractProduct, model: AbstractModel) -> AbstractLaw:
    """How the state moves that the product is a function of."""
    if isinstance(product, (Swaption, BermudanSwaption)):
        if isinstance(model, HullWhite):
            return ShortRate(model.anchored(jnp.zeros_like(model.horizon)))
    elif isinstance(model, BlackScholes):
        return Lognormal(model.read_at(_one(product).vol_at))
    elif isinstance(model, Heston) and model.spot.ndim == 0 and not product.multi_asset:
        return SpotAndVariance(model)
    raise TypeError(
        f"{type(product).__name__} under {type(model).__name__} has no problem yet: give options under "
        "BlackScholes or, of one asset, Heston, and swaptions under HullWhite, or write a Problem."
    )


def _parts(
    product: AbstractProduct, law: AbstractLaw, num_steps: int
) -> tuple[Callable, float, dict]:
    """What is paid at the end, when that is, and what may happen before."""
    if isinstance(product, (Swaption, BermudanSwaption)):
        dates = _same("exercise dates", product.entry_dates, axes=1)
        full = product.broadcast()
        assert isinstance(full, Swaption | BermudanSwaption) and isinstance(law, ShortRate)
        return _exercised(_Swap(full, law), dates)
    if isinstance(product, Bermudan):
        dates = _same("dates", product.dates, axes=1)
        return _exercised(_Intrinsic(product.payoff_product), dates)
    if isinstance(product, American):
        claim = European(product.strike, product.expiry, product.option)
        dates = np.linspace(0.0, _same("expiry", product.expiry), num_steps + 1)
        return _exercised(_Intrinsic(claim), dates)
    if isinstance(product, (European, Basket)):
        return _exercised(_Intrinsic(product), _same("expiry", product.expiry)[None])
    if isinstance(product, Barrier) and product.dates is not None:
        terminal, maturity, _ = _parts(product.vanilla, law, num_steps)
        return terminal, maturity, _stopped(product)
    raise TypeError(
        f"{type(product).__name__} has no problem yet: give a European, basket, Bermudan or American "
        "option, a barrier on dates or a swaption, or write a Problem."
    )


def _exercised(pays: Callable, dates: np.ndarray) -> tuple[Callable, float, dict]:
    """Parts of a contract that pays at one of the dates, if that is positive."""
    rights = {"exercise_times": dates, "exercise_value": pays} if len(dates) > 1 else {}
    return _IfPositive(pays, dates[-1]), float(dates[-1]), rights


def _stopped(product: Barrier) -> dict:
    if np.any(np.asarray(product.kind) >= _KNOCKS_OUT):
        raise TypeError("a knock-in is the vanilla option less its knock-out: give these")
    if product.batch_shape:
        raise TypeError("paths stop for all contracts alike: give one barrier option at a time")
    return {
        "stopping_times": np.asarray(product.dates),
        "is_alive": _Alive(product),
        "stopped_value": _Rebate(product),
    }


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


class _IfPositive(eqx.Module):
    pays: Callable
    when: Real = eqx.field(converter=as_real)

    def __call__(self, x: State) -> Float[Array, "*contracts"]:
        return jnp.maximum(self.pays(self.when, x), 0.0)


class _Intrinsic(eqx.Module):
    """What exercise pays, below zero where it does not pay."""

    claim: European | Basket

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


class _Swap(eqx.Module):
    """What a swap is worth when it is entered."""

    product: Swaption | BermudanSwaption
    law: ShortRate

    def __call__(self, t: Real, x: State) -> Float[Array, "*contracts"]:
        def worth(product):
            at_once, payments = product.payments(t)
            return at_once + payments @ self.law.bonds(t, product.payment_dates, x)

        for _ in self.product.batch_shape:
            worth = jax.vmap(worth)
        return worth(self.product)


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
