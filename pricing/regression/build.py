"""From a product and a model to the chain that says when to exercise."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import G2, AbstractModel, BlackScholes, Heston, HullWhite
from ..products import AbstractProduct, American, Bermudan, BermudanSwaption
from .backward import Rule
from .chain import Chain
from .equities import lognormal_chain
from .rates import swaption_chain
from .stochastic_variance import VarianceStep, heston_chain

Exercisable = Bermudan | American | BermudanSwaption

USUAL_INNER_PATHS = 16
_DEGREES = (
    (2, 6),
    (3, 4),
    (5, 3),
    (12, 2),
    (float("inf"), 1),
)  # up to so many factors, this degree


def lacking(product: AbstractProduct, model: AbstractModel) -> str | None:
    """What keeps the pair from being a chain, in words."""
    name, law = type(product).__name__, type(model).__name__
    if isinstance(product, BermudanSwaption):
        known = isinstance(model, (HullWhite, G2))
        return None if known else f"{law} has no Gaussian state at exercise dates that gives bonds"
    if not isinstance(product, (Bermudan, American)):
        return f"{name} has no right to exercise early"
    if isinstance(model, BlackScholes):
        return None
    if not isinstance(model, Heston):
        return f"{law} has no path of the spot on exercise dates"
    return (
        f"several assets under {law} have no martingale in closed form"
        if product.multi_asset
        else None
    )


def chain_of(product: Exercisable, model: AbstractModel, num_steps: int) -> Chain:
    """num_steps: of the walk of a random variance; an American option is exercised on as many dates."""
    model = model.read_at(product.vol_at)
    if isinstance(product, BermudanSwaption):
        assert isinstance(model, HullWhite | G2)
        return swaption_chain(product, _from_today(product.exercise_dates), model)
    is_american = isinstance(product, American)
    if is_american:
        shares = jnp.arange(1, num_steps + 1, dtype=product.expiry.dtype) / num_steps
        dates = product.expiry * shares
    else:
        dates = product.dates
    if isinstance(model, BlackScholes):
        return lognormal_chain(product, _from_today(dates), is_american, model)
    assert isinstance(model, Heston)
    substeps = -(-num_steps // dates.size)
    is_open = jnp.arange(dates.size * substeps + 1) % substeps == 0
    is_open = is_open.at[0].set(is_american).at[-1].set(False)
    return heston_chain(product, _refined(_from_today(dates), substeps), is_open, model)


def usual_degree(chain: Chain) -> int:
    """Of the polynomials of a regression: it keeps their number below a hundred up to a dozen factors."""
    factors = chain.start.size
    if isinstance(chain.steps, VarianceStep):
        return 3
    return next(degree for most, degree in _DEGREES if factors <= most)


def usual_inner_paths(rule: Rule) -> int:
    """Of the martingale of an upper bound: functions with known means suffice where exercise pays one sum."""
    return 0 if rule.frame.ranks is None else USUAL_INNER_PATHS


def _from_today(dates: Float[Array, " dates"]) -> Float[Array, " times"]:
    return jnp.concatenate([jnp.zeros_like(dates[:1]), dates])


def _refined(times: Float[Array, " dates"], substeps: int) -> Float[Array, " times"]:
    """The times, and equal steps between each two of them."""
    shares = jnp.arange(substeps, dtype=times.dtype) / substeps
    steps = times[:-1, None] + jnp.diff(times)[:, None] * shares[None, :]
    return jnp.concatenate([steps.ravel(), times[-1:]])
