"""Early exercise by regression: a lower bound from a fitted rule, an upper bound from a martingale."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from jaxtape import AbstractSchedule, StoreAll

from ..fields import word
from ..models import AbstractModel
from ..numerics.differentiable_once import differentiable_once
from ..products import AbstractProduct, EarlyExercise
from ..regression import (
    USUAL_INNER_PATHS,
    BoundSamples,
    ExercisePolicy,
    NestedPaths,
    exercise_problem_of,
    fit,
    simulate_policy,
    unsupported_reason,
    usual_inner_paths,
)
from ..sampling import AbstractSampler, PseudoRandom
from .method import AbstractMethod, Tiling, at_least, samples_by_blocks

_WHY_ONCE = (
    "Samples under an exercise rule jump where its decision changes: their second derivative is "
    "wrong. Differentiate once, or use Quadrature() or IntegralEquation() for Gamma, where they "
    "apply."
)


class LeastSquares(AbstractMethod):
    """Longstaff and Schwartz (2001): fit an exercise rule by backward regression, apply it to new paths.

    Bermudan and American options under Black-Scholes (one asset or several) and Heston, Bermudan swaptions
    under Hull-White and G2++. An American option is valued with `num_steps` equally spaced exercise dates and
    today; its upper bound holds for exercise at any time.

    The rule and a martingale M are fitted on `num_fit_paths` separate paths (`pricing/regression`). With bound
    "lower", a sample on one of `num_paths` new paths is the rule's payoff less M, both divided by the
    numeraire: its mean is the rule's value, which is at most the true value, and M removes most of the noise.
    With bound "upper", a sample is max_t (payoff_t - M_t), whose mean is above the true value (Rogers 2002;
    Haugh and Kogan 2004). `bounds` computes both. M consists of functions with known means over a step and, for
    an upper bound with `num_inner_paths`, of the fitted value less its mean over that number of inner steps
    (Andersen and Broadie 2004).

    Derivatives keep the rule and the martingale fixed: at the optimal rule, its own derivative has no effect. A
    sample's derivative is an unbiased sample of the derivative under the fixed rule; a second derivative
    raises.

    Attributes:
        is_random: True.
        num_paths: The number of paths of the bound.
        num_fit_paths: The number of paths of the fit.
        num_steps: The number of dates of an American option; also the smallest number of steps of a Heston
            variance path.
        degree: The degree of the regression's polynomials; None for a degree chosen by the number of factors.
        num_inner_paths: The inner steps at each date of each path, for `bounds` and for bound "upper", 0 or a
            power of two; None for 16 on the best or worst of several assets, else 0.
        bound: "lower" or "upper".
        block: The number of paths simulated at once.
        sampler: The sampler of the random numbers: `PseudoRandom()`, `PseudoRandom(antithetic=True)` or
            `Sobol()`.
        schedule: The checkpointing schedule of the time loop (`jaxtape.scan`).
        rule: A fixed rule from `fitted`; None to fit one at each call.

    Raises:
        ValueError: A count is below 1, or num_inner_paths is neither 0 nor a power of two.
    """

    is_random: ClassVar[bool] = True
    program_size: ClassVar[int] = 10
    is_fitted: ClassVar[bool] = True

    num_paths: int = eqx.field(static=True, default=32768)
    num_fit_paths: int = eqx.field(static=True, default=8192)
    num_steps: int = eqx.field(static=True, default=50)
    degree: int | None = eqx.field(static=True, default=None)
    num_inner_paths: int | None = eqx.field(static=True, default=None)
    bound: str = word("bound", ("lower", "upper"), default="lower")
    block: int = eqx.field(static=True, default=4096)
    sampler: AbstractSampler = eqx.field(static=True, default=PseudoRandom())
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())
    rule: ExercisePolicy | None = None

    def __check_init__(self):
        at_least(1, self, "num_paths", "num_fit_paths", "num_steps", "block", "degree")
        inner = self.num_inner_paths
        if inner is not None and (inner < 0 or inner.bit_count() > 1):
            raise ValueError(
                f"num_inner_paths must be 0 or a power of 2, got {inner}; they are Sobol' points"
            )

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        inner = 0 if self.bound == "lower" else self.num_inner_paths or USUAL_INNER_PATHS
        of_path, of_fit = 64 * self.num_steps + inner, 8 * self.num_steps + 256
        return Tiling(8 * (of_path * paths + of_fit * self.num_fit_paths), 1)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        return unsupported_reason(product.broadcast().canonical, model)

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        del product, model
        return frozenset()

    def fitted(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> "LeastSquares":
        return replace(self, rule=self._rule(product, model, key))

    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " samples"]:
        return samples_by_blocks(self, product, model, key)

    def setup(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> ExercisePolicy | None:
        """Return the rule, unless it is fixed."""
        if self.rule is not None:
            return None
        return jax.lax.stop_gradient(self._rule(product, model, key))

    def block_samples(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        setup: ExercisePolicy | None,
        paths: tuple[None, Integer[Array, ""]],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " samples"]:
        rule = self._rule(product, model, key) if setup is None else setup
        inner = 0 if self.bound == "lower" else self._inner_paths(rule)
        return getattr(self._of_block(product, model, rule, inner, paths[1], key), self.bound)

    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        blocks = self.sampler.blocks(self.num_paths, self.block)[0]
        return jax.lax.map(function, jnp.arange(blocks))

    def bound_samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray
    ) -> BoundSamples:
        """Return samples of both bounds, from the same paths."""
        rule = jax.lax.stop_gradient(self._rule(product, model, key))
        inner = self._inner_paths(rule)

        @jax.checkpoint
        def of_block(index: Array) -> BoundSamples:
            return self._of_block(product, model, rule, inner, index, key)

        return jax.tree.map(jnp.ravel, self.over_blocks(of_block))

    def _inner_paths(self, rule: ExercisePolicy) -> int:
        inner = self.num_inner_paths
        return usual_inner_paths(rule) if inner is None else inner

    def _of_block(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        rule: ExercisePolicy,
        inner: int,
        index,
        key,
    ) -> BoundSamples:
        """Return samples of both bounds from one block of paths."""
        rule = jax.lax.stop_gradient(rule)
        paths = self.sampler.blocks(self.num_paths, self.block)[1]
        shape = rule.hedge.shape[0] - 1, rule.basis.standardized.mean.shape[-1]
        of_paths, of_inner = jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
        noise = self.sampler.noise(of_paths, index, paths, (shape,), 0, rule.hedge.dtype).normals[0]
        nested = None
        if inner:
            shifts = jax.random.fold_in(of_inner, index)
            nested = NestedPaths.drawn(inner, (*shape, paths), key=shifts)

        def values(product, model, rule, noise, nested) -> BoundSamples:
            chain = exercise_problem_of(product.canonical, model, self.num_steps)
            return simulate_policy(chain, rule, noise, self.schedule, nested)

        found = differentiable_once(values, _WHY_ONCE)(product, model, rule, noise, nested)
        return jax.tree.map(self.sampler.reduce, found)

    def _rule(
        self, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray | None
    ) -> ExercisePolicy:
        """Return the fixed rule, or fit one.

        Raises:
            ValueError: A rule must be fitted and there is no key.
        """
        if self.rule is not None:
            return self.rule
        if key is None:
            raise ValueError("a rule is fitted on random paths: give key=jax.random.key(seed)")
        return self._fitted(product, model, key)

    @eqx.filter_jit
    def _fitted(
        self, product: AbstractProduct, model: AbstractModel, key: PRNGKeyArray
    ) -> ExercisePolicy:
        product, model = jax.lax.stop_gradient((product, model))
        canonical = product.canonical
        assert isinstance(canonical, EarlyExercise)  # checked by `unsupported_reason`
        chain = exercise_problem_of(canonical, model, self.num_steps)
        degree = chain.steps.usual_degree if self.degree is None else self.degree
        return fit(chain, self.num_fit_paths, degree, key=jax.random.fold_in(key, 0))
