"""Continuous barriers under lognormal spots by the density of the first passage."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ..formulas.first_passage import first_passage_value
from ..models import AbstractModel, LognormalSpots, WithDividends
from ..products import AbstractProduct, SingleBarrier, TwoBarriers
from .method import AbstractMethod, Tiling, at_least, missing_ability


class FirstPassage(AbstractMethod):
    """One or two continuous barriers: the first-passage density from its integral equation, values from it.

    Rate and vol may depend on time. Panels end at the pillars of curves and surfaces (`first_passage_value`),
    so the number of nodes grows with them. Under constant coefficients a single barrier has its closed form.

    Attributes:
        is_random: False.
        num_panels: The number of panels, besides those between pillars, at least 1.
        num_nodes: The number of nodes of a panel, at least 2.

    Raises:
        ValueError: A count is too small.

    Examples:
        >>> from pricing import Barrier, BlackScholes, ZeroCurve, price
        >>> model = BlackScholes(100.0, ZeroCurve([0.5, 1.0], [0.01, 0.05]), 0.2)
        >>> f"{price(Barrier(100.0, 1.0, 90.0), model, FirstPassage()).value:.4f}"
        '8.3027'
    """

    is_random: ClassVar[bool] = False
    program_size: ClassVar[int] = 3

    num_panels: int = eqx.field(static=True, default=12)
    num_nodes: int = eqx.field(static=True, default=8)

    def __check_init__(self):
        at_least(1, self, "num_panels")
        at_least(2, self, "num_nodes")

    def tiling(self, products: AbstractProduct) -> Tiling:
        del products
        return Tiling(8 * 40 * self.num_panels * self.num_nodes**3, 16)

    def coarser(self) -> "FirstPassage":
        """Return the method with half the panels and three quarters of the nodes.

        Between many pillars the number of panels hardly falls: their nodes decide the error.
        """
        nodes = max(2, self.num_nodes - self.num_nodes // 4)
        return replace(self, num_panels=max(1, self.num_panels // 2), num_nodes=nodes)

    def finer(self) -> "FirstPassage":
        return replace(self, num_panels=2 * self.num_panels)

    def unsupported_reason(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        barriers = isinstance(product, (SingleBarrier, TwoBarriers))
        if not barriers or product.monitoring_dates is not None:
            return missing_ability("continuously monitored barrier", product)
        if isinstance(model, WithDividends) or not isinstance(model, LognormalSpots):
            return missing_ability("lognormal spots without dividends on dates", model)
        return None

    def samples(
        self, product: Any, model: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        del key
        read = model.at_smile_point(product.smile_point)
        return first_passage_value(product, read, self.num_panels, self.num_nodes)
