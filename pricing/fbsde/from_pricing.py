"""A `Problem` from products and a model of `pricing`, with the model's state and a discounting driver."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from ..fields import as_real, in_working_precision
from ..models import AbstractModel, AbstractRateModel, Diffusion
from ..numerics.safe_math import maximum
from ..products import AbstractProduct, BarrierOption, Exercisable, SpotOption, SwapEntry
from ..regression import most_in_step
from .problem import Problem, Real, State


def from_product(product: AbstractProduct, model: AbstractModel, num_steps: int) -> Problem:
    """Return the backward equation of a contract, or of a batch of one kind with equal dates.

    States move by the model's step: exact under Black-Scholes (x: the spots) and Hull-White (x: the short rate
    less today's forward rate), Andersen's QE-M under Heston (x: spot and variance). The driver is -r y.

    Unsupported products or models raise a TypeError that names supported ones; dates off the grid, or contracts
    with different dates, raise ValueError.

    Args:
        product: A right to exercise (European, Bermudan and American options on one asset or a basket;
            swaptions) or a knock-out on dates. A right to exercise at any time becomes one on the dates of the
            grid; its upper bound (`bounds`) holds for any time. A batch (leaves with a leading axis) is a
            vector of contracts.
        model: A model with the ability `Diffusion`.
        num_steps: The number of equal steps to the last date; all dates must lie on this grid.

    Returns:
        The problem, in the model's state.

    Examples:
        >>> from pricing import BlackScholes, European
        >>> from pricing.fbsde import from_product
        >>> problem = from_product(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2), 8)
        >>> f"{problem.terminal(problem.x0 + 5.0):.2f}"
        '5.00'
    """
    model = _diffusion(product, in_working_precision(model))
    return Problem(
        model.state0.size,
        x0=model.state0,
        drift=model.drift,
        diffusion=model.diffusion,
        driver=Partial(_discounting, model),
        num_steps=num_steps,
        step=model.step,
        step_is_exact=model.step_is_exact,
        **_payments(product, model, num_steps),
    )


def _diffusion(product: AbstractProduct, model: AbstractModel) -> Diffusion:
    """Return the model for the product.

    Raises:
        TypeError: The model has no dynamics for the quantity that the product reads, or different dynamics by
            contract.
    """
    fits = isinstance(product, SwapEntry) == isinstance(model, AbstractRateModel)
    if product.multi_asset and not model.underlying.ndim:
        fits = False
    if fits and isinstance(model, Diffusion):
        first = (0,) * len(product.batch_shape)
        full = product.broadcast()
        one = jax.tree.map(lambda leaf: leaf[first], full)
        read = model.at_smile_point(one.smile_point)
        if read is not model and not isinstance(product, Exercisable):
            raise TypeError(
                f"{type(product).__name__} under a vol surface has no problem: a surface does not "
                f"determine paths; give a number or a VolCurve"
            )
        if read is not model and np.ptp(np.asarray(full.smile_point[1])) > 0.0:  # pyright: ignore[reportOptionalSubscript]
            raise TypeError(
                f"under a surface {type(model).__name__} has different dynamics for each strike, "
                f"but a Problem has one: give the contracts of one strike at a time, or a model "
                f"such as Heston"
            )
        return read
    raise TypeError(
        f"{type(product).__name__} under {type(model).__name__} has no problem yet: give options under a model "
        "of equities with the ability Diffusion (BlackScholes; Heston of one asset), and swaptions under one "
        "of rates (HullWhite), or write a Problem."
    )


def _payments(product: AbstractProduct, model: Diffusion, num_steps: int) -> dict[str, Any]:
    """Return the parts of a `Problem` that a product determines: payments, and their times.

    Raises:
        TypeError: The product is neither a right to exercise nor a barrier on dates.
    """
    if isinstance(product, Exercisable):
        dates = _same("exercise dates", product.exercise_times(num_steps))
        if product.any_time:
            dates = np.append(0.0, dates)
        full = product.broadcast()
        assert isinstance(full, Exercisable)
        pays = Partial(_exercise_value, full, model)
        rights = {"exercise_times": dates, "exercise_value": pays} if len(dates) > 1 else {}
        if product.any_time:
            rights["exercise_in_step"] = Partial(_exercise_in_step, full, model)
        terminal = Partial(_if_positive, pays, as_real(dates[-1]))
        return {"terminal": terminal, "maturity": float(dates[-1]), **rights}
    if isinstance(product, BarrierOption) and product.monitoring_dates is not None:
        return _payments(product.vanilla, model, num_steps) | _stopped(product, model)
    raise TypeError(
        f"{type(product).__name__} has no problem yet: give an option that is exercised for a payoff of the "
        "spots, a barrier on dates or a swaption, or write a Problem."
    )


def _stopped(product: BarrierOption, model: Diffusion) -> dict:
    """Return the parts of a `Problem` for a knock-out: the times, condition and payment of its end.

    Raises:
        TypeError: The barrier is a knock-in, or there are several contracts.
    """
    if np.any(np.asarray(product.knocks_in)):
        raise TypeError("a knock-in is the vanilla option less its knock-out: solve these instead")
    if product.batch_shape:
        raise TypeError("paths stop for all contracts alike: give one barrier option at a time")
    return {
        "stopping_times": np.asarray(product.monitoring_dates),
        "is_alive": Partial(_is_alive, product, model),
        "stopped_value": Partial(_rebate, product),
    }


def _same(name: str, values: Array) -> np.ndarray:
    """Return the dates that all contracts share.

    Raises:
        ValueError: The dates differ.
    """
    rows = np.asarray(values).reshape(-1, np.shape(values)[-1])
    if np.any(np.abs(rows - rows[:1]) > 1e-9):
        raise ValueError(
            f"contracts of one problem have the same {name}, got {np.unique(rows)[:5]}: solve "
            f"them separately"
        )
    return rows[0]


def _discounting(model: Diffusion, t: Real, x: State, y: Array, z: Array) -> Array:
    del z
    return -model.short_rate(t, x) * y


def _if_positive(pays: Callable, when: Real, x: State) -> Float[Array, "*contracts"]:
    """Return the terminal payment, 0 where exercise would cost."""
    return maximum(pays(when, x), 0.0)


def _exercise_value(
    product: Exercisable, model: Diffusion, t: Real, x: State
) -> Float[Array, "*contracts"]:
    """Return the exercise value, negative where exercise would cost."""
    market = model.observed(t, x)
    pays = lambda product: product.exercise_value(t, market)
    for _ in product.batch_shape:
        pays = jax.vmap(pays)
    return pays(product)


def _exercise_in_step(
    product: Exercisable, model: Diffusion, t: Real, dt: Real, x: State
) -> Float[Array, "*contracts"]:
    """Return the largest value at a step's end of exercise within it; infinite if unknown."""
    spot, is_sum = model.observed(t, x).spot, False
    if isinstance(product, SpotOption) and product.average == "arithmetic":
        is_sum = not product.has_own_payoff
    if spot is None or not (isinstance(product, SpotOption) and is_sum):
        return jnp.full(product.batch_shape, jnp.inf, x.dtype)
    spots = jnp.atleast_1d(spot)

    def most(product: SpotOption) -> Array:
        weights = product.weights_of(spots.size)
        amounts = product.side * jnp.append(weights, -product.strike)
        return most_in_step(model, t - dt, t, amounts) @ jnp.append(spots, 1.0)

    for _ in product.batch_shape:
        most = jax.vmap(most)
    return most(product)


def _is_alive(product: BarrierOption, model: Diffusion, t: Real, x: State) -> Bool[Array, ""]:
    spot = model.observed(t, x).spot
    assert spot is not None  # barriers refer to the spot
    return product.is_inside(spot)


def _rebate(product: BarrierOption, t: Real, x: State) -> Array:
    del t, x
    return product.rebate
