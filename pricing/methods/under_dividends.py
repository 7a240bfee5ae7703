"""An adapter that applies any method to the part of the spot above its cash dividends."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from ..fields import as_real
from ..formulas.stock import stock_model
from ..models import AbstractModel, WithDividends
from ..products import AbstractProduct
from ..products.above_cash import above_cash
from ..results import RESULTS
from .method import AbstractMethod, Tiling


class UnderDividends(AbstractMethod):
    """An adapter of another method for `WithDividends` models.

    Under escrowed dynamics S_t = X_t + b(t), a payoff of S at known times is a payoff of X, whose model has no
    cash dividends: strikes and levels are reduced by b (`pricing.products.above_cash`). Accuracy and batching
    are those of the method; derivatives are to the raw spot and each dividend. A method that handles dividends
    itself receives contract and model unchanged.

    Attributes:
        method: The other method.
        age: Minus the years that have passed, which bring ex-dates closer; 0 except for theta.

    Examples:
        >>> from pricing import BlackScholes, Dividends, European, WithDividends, price
        >>> model = WithDividends(BlackScholes(100.0, 0.05, 0.2), Dividends([0.5], cash=[3.0]))
        >>> price(European(100.0, 1.0), model).stats["method"].name
        'ClosedForm'
    """

    method: AbstractMethod
    age: Float[Array, ""] = eqx.field(
        converter=as_real, default=0.0, metadata={"core": 0, "time": True}
    )

    @property
    def is_random(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.is_random

    @property
    def is_fitted(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.is_fitted

    @property
    def group_size(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.group_size

    @property
    def program_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.program_size

    @property
    def name(self) -> str:
        return self.method.name

    def tiling(self, products: AbstractProduct) -> Tiling:
        return self.method.tiling(products)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if self.method.reads_dividends(model):
            return self.method.unsupported_reason(product, model)
        if not isinstance(model, WithDividends) or model.dynamics != "escrowed":
            return "spot dynamics of dividends need FiniteDifference"
        found = above_cash(product, jnp.zeros_like)  # its kind does not depend on the amounts
        if found is None:
            return (
                f"{type(product).__name__} cannot be written on the spot above its cash dividends"
            )
        return self.method.unsupported_reason(found, stock_model(model))

    def _pair(self, product: AbstractProduct, model: Any) -> tuple[Any, Any]:
        """Return the contract on X and its model, or both unchanged for a method that handles dividends.

        Raises:
            TypeError: The contract cannot be written on X.
        """
        model = model.nearer(-self.age)
        if self.method.reads_dividends(model):
            return product, model
        found = above_cash(product, model.cash)
        if found is None:
            raise TypeError(f"{type(product).__name__} has no form above cash dividends")
        return found, stock_model(model)

    def _of(self, method: AbstractMethod) -> "UnderDividends":
        return dataclasses.replace(self, method=method)

    def canonical(self, product: AbstractProduct) -> AbstractProduct:
        return self.method.canonical(product)

    def judged(self, product: AbstractProduct) -> AbstractProduct:
        return self.method.judged(product)

    def samples(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> Any:
        return self.method.samples(*self._pair(product, model), key=key)

    def result(self, product: AbstractProduct, model: AbstractModel) -> RESULTS:
        return self.method.result(*self._pair(product, model))

    def second_order(self, product: AbstractProduct, model: AbstractModel) -> frozenset[str]:
        return self.method.second_order(*self._pair(product, model))

    def prepared(
        self, products: AbstractProduct, model: AbstractModel, mesh: Mesh | None = None
    ) -> "UnderDividends":
        return self._of(self.method.prepared(*self._pair(products, model), mesh))

    def shared_key(self, product: AbstractProduct, model: AbstractModel) -> tuple[Any, ...]:
        return self.method.shared_key(*self._pair(product, model))

    def shared(self, products: AbstractProduct, model: AbstractModel) -> tuple[PyTree, PyTree]:
        return self.method.shared(*self._pair(products, model))

    def samples_given(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        shared: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Any:
        return self.method.samples_given(*self._pair(product, model), shared, key=key)

    def fitted(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> "UnderDividends":
        return self._of(self.method.fitted(*self._pair(product, model), key=key))

    def coarser(self) -> "UnderDividends | None":
        coarser = self.method.coarser()
        return None if coarser is None else self._of(coarser)

    def compared_with(self, model: AbstractModel) -> "tuple[UnderDividends, ...]":
        return tuple(map(self._of, self.method.compared_with(model)))

    def finer(self) -> "UnderDividends":
        return self._of(self.method.finer())

    def setup(
        self, product: AbstractProduct, model: AbstractModel, *, key: PRNGKeyArray | None = None
    ) -> PyTree:
        return self.method.setup(*self._pair(product, model), key=key)

    def paths(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        setup: PyTree,
        index: Integer[Array, ""],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[PyTree, PyTree]:
        return self.method.paths(*self._pair(product, model), setup, index, key=key)

    def block_samples(
        self,
        product: AbstractProduct,
        model: AbstractModel,
        setup: PyTree,
        paths: tuple[PyTree, PyTree],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Any:
        return self.method.block_samples(*self._pair(product, model), setup, paths, key=key)

    def over_blocks(self, function: Callable[[Array], PyTree]) -> PyTree:
        return self.method.over_blocks(function)


def for_model(method: AbstractMethod, model: AbstractModel) -> AbstractMethod:
    """Return the method for a model, adapted if the model pays dividends that it does not handle.

    Args:
        method: The method.
        model: The model.
    """
    if not isinstance(model, WithDividends) or isinstance(method, UnderDividends):
        return method
    kind: Any = UnderDividends
    return kind(method, jnp.zeros((), model.spot.dtype))
