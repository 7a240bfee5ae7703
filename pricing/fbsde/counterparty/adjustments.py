"""Valuation adjustments: CVA, DVA and FVA with standard errors, and exposure profiles."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ...argument_kinds import of_kinds
from ...fields import Number, not_below_zero
from ...numbers_shown import repr_with_numbers
from ...numerics.safe_math import larger, safe_sqrt
from ...sampling import AbstractSampler, PseudoRandom
from ..error_bars.certificate import Estimate
from .close_out import Rule, cost_samples, fitted_rule, weights_of
from .credit_curve import CreditCurve
from .exposure_paths import Exposure, ExposurePaths
from .joint_model import JointModel
from .netting_set import Flows, Grid, NettingSet

CLOSE_OUTS = "clean", "risky"
IN_PAIRS = PseudoRandom(antithetic=True)

NETTING_SET = NettingSet, "a netting set, such as NettingSet([Swap(...)])"
JOINT_MODEL = JointModel, "a model, such as JointModel(HullWhite(0.03, 0.05, 0.01))"
CREDIT_CURVE = CreditCurve, "a curve, such as CreditCurve([5.0], [0.02])"


class XVA(eqx.Module):
    """The valuation adjustments of a netting set, discounted to today, and its exposure over time.

    The adjusted value of the set is value - total, with total = cva - dva + fva.

    Attributes:
        value: The value without adjustments.
        cva: The cost of the counterparty's default.
        dva: The benefit of our own default.
        fva: The funding cost of borrowing uncollateralized amounts, less the gain from lending them.
        total: cva - dva + fva, with its own standard error.
        times: The dates of the profiles in years, the midpoints of equal intervals, of shape (dates,).
        ee: The expected exposure E_t[(V - C)^+] in currency at each date, under the measure of the bond
            maturing then; CVA integrates the discount factor times this.
        ene: The expected negative exposure E_t[(V - C)^-], at least 0.
        pfe: The potential future exposure: the quantile of V - C on each date, under the same measure.
    """

    __repr__ = repr_with_numbers

    value: Float[Array, ""]
    cva: Estimate
    dva: Estimate
    fva: Estimate
    total: Estimate
    times: Float[Array, " dates"]
    ee: Estimate
    ene: Estimate
    pfe: Float[Array, " dates"]

    def plot(self, axes: Any = None) -> Any:
        """Plot the exposures over time with two standard errors, as a matplotlib figure.

        Args:
            axes: Matplotlib axes; None to create a figure.

        Returns:
            The figure of the axes.
        """
        import matplotlib.pyplot as plt  # slow to import

        if axes is None:
            _, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
        for label, estimate, sign in (("EE", self.ee, 1.0), ("-ENE", self.ene, -1.0)):
            mean, error = (sign * np.asarray(x) for x in (estimate.mean, estimate.std_error))
            (line,) = axes.plot(self.times, mean, label=label)
            low, high = mean - 2.0 * error, mean + 2.0 * error
            axes.fill_between(self.times, low, high, color=line.get_color(), alpha=0.25)
        axes.plot(self.times, self.pfe, label="PFE", ls="--")
        axes.set(xlabel="years", ylabel="exposure after collateral")
        axes.axhline(0.0, lw=0.6, color="gray")
        axes.legend()
        return axes.figure


@of_kinds(
    netting_set=NETTING_SET,
    model=JOINT_MODEL,
    counterparty=CREDIT_CURVE,
    own=CREDIT_CURVE,
    sampler=(AbstractSampler, "a sampler, such as PseudoRandom() or Sobol()"),
)
@full_matmul_precision
def xva(
    netting_set: NettingSet,
    model: JointModel,
    counterparty: CreditCurve,
    own: CreditCurve | None = None,
    *,
    key: PRNGKeyArray,
    close_out: str = "clean",
    borrowing_spread: Number = 0.0,
    lending_spread: Number = 0.0,
    num_dates: int = 120,
    num_paths: int = 16384,
    num_fit_paths: int = 8192,
    quantile: float = 0.95,
    block: int = 2048,
    sampler: AbstractSampler = IN_PAIRS,
) -> XVA:
    """Compute the valuation adjustments of a netting set for default, funding and collateral.

    The adjustment U of a set with value V and collateral C solves, divided by the numeraire,

        -dU = [a e^+ - b e^- - (1 - k)(h_c + h_b) U] dt - Z dW,  U_T = 0,  e = V - C - k U,

    a = (1 - R_c) h_c + s_b, b = (1 - R_b) h_b + s_l, with h the default intensities of counterparty and bank,
    and s the borrowing and lending spreads. Claims are settled on V ("clean", k = 0: U is an integral of
    expected exposures until the first default) or on the adjusted value ("risky", k = 1: a nonlinear equation).
    Burgard and Kjaer, Journal of Credit Risk 7 (2011); Crepey, Mathematical Finance 25 (2015); Brigo, Morini
    and Pallavicini (2013); Gnoatto, Picarelli and Reisinger, Deep xVA solver (2023).

    The risky value needs no nested paths: given the sign of e, U_0 = E[int exp(-int g) g (V - C) dt], with g =
    a or b by that sign. The sign comes from a backward regression on separate paths. U is stationary in it (for
    a >= b it is the maximum over all rules), so an error of the regression has a second-order effect, and
    derivatives keep the rule fixed.

    Derivatives are unbiased except for a smoothing window of a quarter of a standard deviation around each
    exercise decision, where the exposure jumps: its effect is estimated from the paths in the window.

    Args:
        netting_set: The trades and their collateral.
        model: The joint model of rates and equities.
        counterparty: The default intensities and recovery of the other party.
        own: The intensities and recovery of our own party; None if we never default.
        key: The seed of the paths.
        close_out: "clean" or "risky".
        borrowing_spread: s_b per year, on uncollateralized amounts owed to us.
        lending_spread: s_l per year, on uncollateralized amounts that we owe.
        num_dates: The number of equal intervals to the last payment; exposures are taken at their midpoints.
        num_paths: The number of paths.
        num_fit_paths: The number of paths of the regression for a risky close-out.
        quantile: The level of the PFE, between 0 and 1.
        block: The number of paths simulated at once.
        sampler: The sampler of the random numbers.

    Returns:
        The adjustments with standard errors, and the exposures.

    Raises:
        ValueError: A number is out of range, an asset is not in the model, or trades are traced.

    Examples:
        >>> import jax
        >>> from pricing import HullWhite, Swap
        >>> from pricing.fbsde import CreditCurve, JointModel, NettingSet, xva
        >>> swap = Swap(0.03, 0.0, [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], notional=1e6)
        >>> model = JointModel(HullWhite(0.03, 0.05, 0.01))
        >>> bank, client = CreditCurve([5.0], [0.01]), CreditCurve([5.0], [0.03])
        >>> found = xva(NettingSet([swap]), model, client, bank, key=jax.random.key(0), num_dates=12)
        >>> found.ee.mean.shape, bool(10.0 * found.cva.std_error < found.cva.mean < found.dva.mean)
        ((12,), True)
    """
    if close_out not in CLOSE_OUTS:
        raise ValueError(f"close_out must be 'clean' or 'risky', got {close_out!r}")
    for name, count in (("num_dates", num_dates), ("num_fit_paths", num_fit_paths)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must be between 0 and 1, both excluded, got {quantile}")
    spreads = tuple(
        not_below_zero(name, spread)
        for name, spread in (
            ("borrowing_spread", borrowing_spread),
            ("lending_spread", lending_spread),
        )
    )
    flows = netting_set.flows
    if flows.assets.size and not 0 <= flows.assets.min() <= flows.assets.max() < model.num_assets:
        raise ValueError(
            f"the netting set has options on asset {flows.assets.max()}, counted from 0, and the model "
            f"{model.num_assets} assets: give JointModel(..., equities=BlackScholes(...)) with all of them"
        )
    grid = flows.grid(num_dates)
    run = _Run(
        close_out == "risky", num_paths, num_fit_paths, block, sampler, tuple(grid.middles.tolist())
    )
    parties = (counterparty, own, spreads)
    own_arrays = flows._replace(exercise=()), grid, netting_set.threshold, quantile
    flows, grid, threshold, level = jax.tree.map(jnp.asarray, own_arrays)
    return _adjustments(run, flows, grid, threshold, model, parties, level, key)


class _Run(NamedTuple):
    """The static options of the program. middles: the indices of the profile's dates among all."""

    is_risky: bool
    num_paths: int
    num_fit_paths: int
    block: int
    sampler: AbstractSampler
    middles: tuple[int, ...]


@stored_jit
def _adjustments(
    run: _Run, flows: Flows, grid: Grid, threshold, model, parties, quantile, key
) -> XVA:
    dtype = model.rates.vol.dtype
    edges, times, quantile = (jnp.asarray(x, dtype) for x in (grid.edges, grid.times, quantile))
    paths = ExposurePaths.of(model, flows, times, grid.may_exercise, threshold)
    counterparty, own, spreads = parties
    weights = weights_of(edges, counterparty, own, spreads, run.is_risky)
    middles = np.array(run.middles)
    motions = times.size, model.num_assets + 1
    of_fit, of_value = jax.random.split(key)

    def exposures(sampler, key, index, count) -> Exposure:
        noise = sampler.noise(key, index, count, (motions,), 0, dtype).normals[0]
        return jax.tree.map(lambda leaf: leaf[middles], paths.simulate(noise))

    rule = None
    if run.is_risky:
        count = IN_PAIRS.blocks(run.num_fit_paths, run.num_fit_paths)[1]
        seen = exposures(IN_PAIRS, of_fit, 0, count)
        rule = fitted_rule(*jax.lax.stop_gradient((seen, weights)))
    blocks, count = run.sampler.blocks(run.num_paths, run.block)

    @jax.checkpoint
    def of_block(index):
        seen = exposures(run.sampler, of_value, index, count)
        level = None if rule is None else jax.vmap(Rule.level)(rule, seen)
        sums = run.sampler.reduce(cost_samples(seen, level, weights))
        sizes = jnp.stack(
            [_positive(seen.value) + seen.gain, _positive(-seen.value) + seen.loss], -1
        )
        return sums, run.sampler.reduce(jnp.swapaxes(sizes, 0, 1)), seen.value, seen.deflator

    sums, sizes, value, deflator = jax.lax.map(of_block, jnp.arange(blocks))
    together = lambda x: _estimate(x.reshape(-1, *x.shape[2:]))
    cva, borrowing, dva, lending = jnp.moveaxis(sums, -1, 0)
    fva = borrowing - lending
    total = together(cva - dva + fva)
    cva, dva, fva = together(cva), together(dva), together(fva)
    bond = paths.rates.discount(times[middles])
    ee, ene = (jax.tree.map(lambda x: x / bond, together(sizes[..., side])) for side in (0, 1))
    of_date = lambda x: jnp.moveaxis(x, 1, 0).reshape(middles.size, -1)
    pfe = jax.vmap(_quantile, (0, 0, None))(of_date(value), of_date(deflator), quantile)
    return XVA(paths.today, cva, dva, fva, total, times[middles], ee, ene, pfe)


def _estimate(samples: Float[Array, "samples ..."]) -> Estimate:
    count = samples.shape[0]
    mean = jnp.mean(samples, axis=0)
    apart = samples - mean[None]
    return Estimate(mean, safe_sqrt(jnp.sum(apart**2, axis=0) / max(count - 1, 1) / count))


def _quantile(
    value: Float[Array, " paths"], deflator: Float[Array, " paths"], level: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the quantile of value / deflator under the measure of the bond maturing then."""
    amounts = value / deflator
    order = jnp.argsort(jax.lax.stop_gradient(amounts))
    share = jnp.cumsum(deflator[order])
    return amounts[order][jnp.searchsorted(share, level * share[-1])]


def _positive(x: Array) -> Array:
    return larger(x, 0.0)
